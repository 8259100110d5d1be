"""Snapshots of a run on disk: plain arrays and JSON, complete or not there at all."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np

from felb.atomic import replacing
from felb.engines.local import Snapshot
from felb.errors import InputError
from felb.federated.state import from_arrays, to_arrays
from felb.results.history import History

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from felb.federated.server import Recipe

_META = "meta"


def save_snapshot(path: Path, snapshot: Snapshot) -> None:
    """Write a snapshot, replacing an older one in one move."""
    names = list(snapshot.clients)
    arrays = {f"server/{field}": value for field, value in to_arrays(snapshot.server).items()}
    for i, name in enumerate(names):
        arrays |= {f"client/{i}/{field}": value for field, value in to_arrays(snapshot.clients[name]).items()}
    # JSON's NaN and Infinity are read back by Python; this file is only ever read by felb.
    meta = json.dumps({"clients": names, "history": [dict(row) for row in snapshot.history]})
    arrays[_META] = np.frombuffer(meta.encode(), dtype=np.uint8)
    with replacing(path) as partial, partial.open("wb") as file:
        np.savez(file, allow_pickle=False, **arrays)


def load_snapshot(path: Path, recipe: Recipe) -> Snapshot:
    """Read a snapshot of a run of `recipe` back; a damaged file is refused."""
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as stored:
            arrays = {name: stored[name] for name in stored.files}
        meta = json.loads(arrays[_META].tobytes())
        clients = {
            name: from_arrays(recipe.client.state_type, _under(arrays, f"client/{i}/"))
            for i, name in enumerate(meta["clients"])
        }
        server = from_arrays(recipe.server.state_type, _under(arrays, "server/"))
        return Snapshot(server, clients, History(meta["history"]))
    except Exception as error:  # what the readers of ZIP, NumPy and JSON raise on damage is nearly anything
        reason = str(error).partition("\n")[0] or type(error).__name__
        raise InputError(
            f"the checkpoint {path} is damaged ({reason}); delete it, then --resume plays the run again from its start"
        ) from error


def _under(arrays: dict[str, NDArray[Any]], prefix: str) -> dict[str, NDArray[Any]]:
    return {name.removeprefix(prefix): value for name, value in arrays.items() if name.startswith(prefix)}
