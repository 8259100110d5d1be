"""The snapshot of a site's data: a .felb file that the loader has written and the vault opens."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from felb.data.storage import open_matrix
from felb.errors import InputError
from felb.records import read_record, replacing, sync_folder
from felb_sites.vault.policy import Refusal

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from felb.data.binary import BinaryMatrix

ABOUT = "snapshot.json"


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


def open_snapshot(vault: Path) -> tuple[Snapshot, BinaryMatrix]:
    """Return the newest snapshot and its rows, or refuse; no word about what is in it."""
    try:
        found = Snapshot.read(vault)
        if found is None:
            raise Refusal("no snapshot of the data was taken: felb site refresh FOLDER", code="data")
        return found, found.open(vault)
    except (InputError, OSError, ValueError) as error:
        raise Refusal("the snapshot of the data is damaged: felb site refresh FOLDER", code="data") from error


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
    sync_folder(vault)
    for old in vault.glob("snapshot-*.felb"):
        if old.name != made.file:
            old.unlink(missing_ok=True)
    return made
