"""What the tests of several kernels share."""

import numpy as np

from felb.data.binary import BinaryMatrix


def sparse(dense):
    """Return a slice of rows (its `indptr` does not start at 0) that holds `dense`."""
    padded = np.vstack([np.ones((1, dense.shape[1]), bool), dense, np.ones((1, dense.shape[1]), bool)])
    indptr = np.concatenate(([0], np.cumsum(padded.sum(axis=1))))
    return BinaryMatrix(indptr, np.nonzero(padded)[1], dense.shape[1]).rows(1, 1 + dense.shape[0])


def interpret(monkeypatch, module):
    """Run the kernels of a module in the interpreter."""
    for name, value in list(vars(module).items()):
        monkeypatch.setattr(module, name, getattr(value, "py_func", value))
