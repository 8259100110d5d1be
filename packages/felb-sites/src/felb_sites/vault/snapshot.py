"""The snapshot of a site's data, a .felb file that the loader has written and the vault opens; rows of rehearsals."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import scipy.sparse as sp

from felb.data.binary import BinaryMatrix
from felb.data.storage import open_matrix
from felb.errors import InputError
from felb.records import read_record, replacing, sync_folder
from felb_sites.vault.policy import Refusal

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

ABOUT = "snapshot.json"
DAMAGED = "the snapshot of the data is damaged: felb site refresh FOLDER"
WIDEST = 32
"""Features of a component of synthetic rows."""


class Snapshot(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is known of a snapshot.

    Parameters
    ----------
    file : its name in the folder of the vault; each snapshot has its own, so that a run keeps the one it is about
    rows, columns : its shape
    fingerprint : of its content
    names : fingerprint of column names and schema, as plans name them; None without names
    settings : digest of the settings by which it was read
    """

    file: str
    rows: int
    columns: int
    fingerprint: str
    names: str | None
    settings: str

    @classmethod
    def read(cls, vault: Path) -> Snapshot | None:
        """Return what is known of the snapshot, if one was taken."""
        try:
            return read_record(vault / ABOUT, cls, advice="take another one: felb site refresh FOLDER")
        except FileNotFoundError:
            return None

    def open(self, vault: Path) -> BinaryMatrix:
        """Open the rows."""
        return open_matrix(vault / self.file)


def find_snapshot(vault: Path) -> Snapshot:
    """Return the newest snapshot without its rows, or refuse; no word about what is in it."""
    try:
        found = Snapshot.read(vault)
    except (InputError, OSError, ValueError) as error:
        raise Refusal(DAMAGED, code="data") from error
    if found is None:
        raise Refusal("no snapshot of the data was taken: felb site refresh FOLDER", code="data")
    return found


def open_rows(vault: Path, snapshot: Snapshot) -> BinaryMatrix:
    """Return the rows of a snapshot, or refuse; no word about what is in it."""
    try:
        return snapshot.open(vault)
    except (InputError, OSError, ValueError) as error:
        raise Refusal(DAMAGED, code="data") from error


@lru_cache(maxsize=1)
def draw_rows(n: int, m: int, k: int, *, seed: int, site: str) -> BinaryMatrix:
    """Return n synthetic rows of m features for a rehearsal, the same ones every time.

    A = U∘V with noise: V has k random components, the same ones at all sites, U is of the site alone. It is sparse, so
    that the rows of large sites fit into memory.
    """
    shared, own = np.random.default_rng(seed), np.random.default_rng([seed, *site.encode()])

    def draw(rng: np.random.Generator, rows: int, columns: int, ones: int) -> Any:
        places = np.repeat(np.arange(rows), ones), rng.integers(columns, size=rows * ones)
        return sp.csr_array((np.ones(rows * ones, bool), places), shape=(rows, columns))

    V = draw(shared, k, m, max(1, min(WIDEST, m // 3)))
    return BinaryMatrix.of((draw(own, n, k, 2) @ V + draw(own, n, m, 1)).astype(bool))


def write_snapshot(
    vault: Path,
    matrix: BinaryMatrix,
    *,
    columns: str | None,
    settings: str,
    save: Callable[[BinaryMatrix, Path], None],
) -> Snapshot:
    """Write a snapshot; it is there with all that is known of it, or the one before is."""
    content = matrix.fingerprint()
    made = Snapshot(f"snapshot-{content[:16]}.felb", *matrix.shape, content, columns, settings)
    save(matrix, vault / made.file)
    (vault / made.file).chmod(0o600)
    with replacing(vault / ABOUT) as partial:
        partial.touch(0o600)
        partial.write_bytes(msgspec.json.encode(made))
        partial.chmod(0o600)
    sync_folder(vault)
    for old in vault.glob("snapshot-*.felb"):
        if old.name != made.file:
            old.unlink(missing_ok=True)
    return made
