"""The half of its rows with which a site takes part in a refit.

A coordinator that knew which rows were drawn could compare the sums of several refits and solve for single records. So
a site draws by a key of its own, from the operating system, and keeps it. Rows are drawn without replacement: a record
counts once, and disclosure rules mean what they mean in any other run.
"""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

import numpy as np

from felb.records import replacing
from felb_sites.site_policy import Refusal

if TYPE_CHECKING:
    from pathlib import Path

    from felb.data.binary import BinaryMatrix

SAMPLE_KEY = "sample.key"
"""In the folder of the run at the site."""
KEY_BYTES = 16


def drawn_half(matrix: BinaryMatrix, folder: Path, *, answered: bool) -> BinaryMatrix:
    """Return ⌈n/2⌉ of the n rows, by the key in the folder of the run, which is made before the first answer."""
    path = folder / SAMPLE_KEY
    if not path.is_file():
        if answered:
            raise Refusal("the rows that were drawn for this refit are lost; start another one", code="known")
        with replacing(path) as partial:
            partial.write_bytes(secrets.token_bytes(KEY_BYTES))
    rng = np.random.default_rng(int.from_bytes(path.read_bytes(), "little"))
    n = len(matrix)
    return matrix.take(np.sort(rng.permutation(n)[: (n + 1) // 2]))
