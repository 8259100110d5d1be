"""States of clients on disk, written by the workers every few rounds.

What has to be computed again after a worker has died stays short by it, and a run can go on on another cluster.
"""

from __future__ import annotations

import json
import shutil
import tempfile
import uuid
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from felb.engines.dask.worker_tasks import sees
from felb.errors import InputError
from felb.safe_files import replacing

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from distributed import Client

_COMPLETE = "complete.json"
KEPT = 2
"""Rounds whose states are kept: those of the last one, and until the journal knows of it, those of the one before."""


class StateFolder:
    """A folder that the caller and all workers see.

    Parameters
    ----------
    folder : the place
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    @property
    def path(self) -> str:
        """The folder as the workers are told."""
        return str(self.folder.absolute())

    def shared_with(self, client: Client) -> bool:
        """Tell whether all workers find the folder and may write into it."""
        token = uuid.uuid4().hex
        try:
            (self.folder / f".{token}").write_text(token, encoding="utf-8")
            return all(client.run(sees, self.path, token).values())
        finally:
            for probe in self.folder.glob(f".{token}*"):
                probe.unlink(missing_ok=True)

    def complete(self, number: int, names: Sequence[str]) -> None:
        """Note that the states of these clients after a round are all there, and delete older ones."""
        place = self.folder / f"{number:07}"
        place.mkdir(exist_ok=True)
        with replacing(place / _COMPLETE) as partial:
            partial.write_text(json.dumps(list(names)), encoding="utf-8")
        for old in self._rounds()[:-KEPT]:
            shutil.rmtree(old, ignore_errors=True)

    def names(self, number: int) -> list[str]:
        """Return the clients whose states after a round are there."""
        try:
            text = (self.folder / f"{number:07}" / _COMPLETE).read_text(encoding="utf-8")
            return [str(name) for name in json.loads(text)]
        except (OSError, ValueError) as error:
            raise InputError(
                f"the states after round {number} are not in {self.folder}, so the run cannot continue; start it again "
                "with --force"
            ) from error

    def _rounds(self) -> list[Path]:
        return sorted(place for place in self.folder.iterdir() if (place / _COMPLETE).is_file())


@contextmanager
def state_folder(client: Client, place: Path | None) -> Iterator[StateFolder | None]:
    """Give the folder for states: `place`, which must be shared; otherwise a temporary one if the workers see it.

    Where temporary folders are made is Dask's setting ``felb.state-folder``, or the system's.
    """
    import dask

    if place is not None:
        store = StateFolder(place)
        if not store.shared_with(client):
            raise InputError(
                f"some Dask workers cannot write to {place}; to go on after an interruption, a run needs a result "
                "folder that all workers share, with felb of the same version on each"
            )
        yield store
        return
    parent: Any = dask.config.get("felb.state-folder", None)
    with tempfile.TemporaryDirectory(prefix="felb-states-", dir=parent, ignore_cleanup_errors=True) as temporary:
        store = StateFolder(Path(temporary))
        yield store if store.shared_with(client) else None
