"""Declarations for tests of what stands behind them: of arrays that leave, and of algorithms of a few tasks."""

import numpy as np

from felb.federated.protocol import Algorithm
from felb.federated.steps.state import ClientState
from felb.federated.tasks import Limits, Output, declare

SMALL = Limits(n_features=4, n_components=3)


def outputs_of(update, **marks):
    """Declare the arrays of an update, as a gate is told; `marks` are those of an array by its name."""
    return {
        name: (Output("f" if np.asarray(value).dtype.kind == "f" else "i", **marks.get(name, {})), np.shape(value))
        for name, value in update.values.items()
    }


def algorithm_with(*specs, server=None, limits=SMALL, state_type=ClientState, **options):
    """Return an algorithm that has these tasks."""
    return Algorithm("a", declare(*specs), state_type, server or (lambda seed: None), limits, **options)
