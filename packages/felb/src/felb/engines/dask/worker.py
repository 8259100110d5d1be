"""What runs on the workers of a Dask cluster, and the states that they keep on disk."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import shutil
import tempfile
import uuid
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from dask.sizeof import sizeof

from felb.data.files import Block
from felb.errors import ConnectionLostError, FederationError, FelbError, InputError, missing_extra
from felb.federated import client as clients
from felb.federated.gate import Gate
from felb.federated.journal import SUFFIX, read_entry, states_from_arrays, states_to_arrays, write_entry
from felb.federated.protocol import Release, Sums, Update, add_in_pairs
from felb.kernels.schedule import one_blas_thread, threads_at_most
from felb.records import replacing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from distributed import Client, Future
    from numpy.typing import NDArray

    from felb.data.binary import BinaryMatrix
    from felb.federated.protocol import Algorithm, Request

    Rows = BinaryMatrix | Block


# -- The client of a Dask cluster: the current one, or a new one by its address; and what its failures mean ----------

LOCAL = "local"
"""In place of an address: a cluster of this machine, one process for each processor."""

CONNECT_SECONDS = 10
"""How long to wait for a scheduler."""

WORKER_SECONDS = 30
"""How long to wait for a first worker; batch systems take their time."""

POLL_SECONDS = 2
"""How often to look whether the scheduler is still there."""

START = "start one, from distributed import Client; client = Client(), and call fit again"


def has_client() -> bool:
    """Tell whether there is a current client."""
    return _current() is not None


def current_client() -> Client:
    """Return the client that Dask takes for the current one: of this worker, of a ``with``, or the last one made."""
    try:
        import distributed  # noqa: F401
    except ImportError as error:
        missing_extra("data in Dask blocks", "dask", error)
    client = _current()
    if client is None:
        raise InputError(f"there is no Dask client that could compute on these blocks; {START}")
    check_alive(client)
    return client


def _current() -> Client | None:
    from distributed import get_client

    try:
        return get_client()
    except ValueError:
        return None


@contextmanager
def connected(address: str) -> Iterator[Client]:
    """Connect to the scheduler at an address such as ``tcp://10.0.0.1:8786``, or start a cluster here (``local``)."""
    try:
        from distributed import Client, LocalCluster
    except ImportError as error:
        missing_extra("--dask", "dask", error)
    if address == LOCAL:
        workers = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        with (
            LocalCluster(
                n_workers=workers, threads_per_worker=1, dashboard_address=":0", silence_logs=logging.ERROR
            ) as cluster,
            Client(cluster) as client,
        ):
            yield client
        return
    try:
        client = Client(address, timeout=CONNECT_SECONDS)
    except (OSError, ValueError, TypeError) as error:
        raise InputError(
            f"no Dask scheduler answers at {address!r} ({_reason(error)}); check the address, which looks like "
            "tcp://host:8786, or use 'local'"
        ) from error
    with client:
        yield client


def check_alive(client: Client) -> None:
    """Raise if the client has no scheduler, or the scheduler no workers."""
    if client.status != "running":
        raise FederationError(f"the Dask client is {client.status}: its scheduler is gone; {START}")
    try:
        client.wait_for_workers(1, timeout=WORKER_SECONDS)
    except TimeoutError as error:
        raise FederationError(
            f"the Dask scheduler at {_address(client)} has no workers; start some: dask worker {_address(client)}"
        ) from error


@contextmanager
def failures_explained(client: Client, what: str) -> Iterator[None]:
    """Turn what Dask raises when a cluster fails into errors of felb; errors of felb from a worker come through."""
    from distributed import KilledWorker

    try:
        yield
    except ConnectionLostError as error:
        raise ConnectionLostError(f"{what}: the Dask scheduler at {_address(client)} was lost; {error}") from error
    except FelbError:
        raise
    except KilledWorker as error:
        raise ConnectionLostError(
            f"{what}: several workers died one after the other over the same block ({_reason(error)}), perhaps for "
            "want of memory; use smaller blocks or workers with more memory"
        ) from error
    except Exception as error:
        # A lost scheduler shows as a cancelled future, as a closed connection, or as a timeout.
        if client.status == "running" and not _is_cancelled(error):
            raise
        raise ConnectionLostError(
            f"{what}: the Dask scheduler at {_address(client)} was lost ({_reason(error)}); start it again, then "
            "repeat the call, or go on with --resume"
        ) from error


def gathered(client: Client, futures: Sequence[Future]) -> list[Any]:
    """Return the results of futures; unlike Dask's own function it does not wait for a scheduler that is gone."""
    from distributed import wait

    while True:
        if client.status != "running":
            raise ConnectionLostError(f"the Dask client is {client.status}: its scheduler is gone; {START}")
        try:
            wait(list(futures), timeout=POLL_SECONDS)
            return list(client.gather(list(futures)))
        except TimeoutError:
            continue


def _is_cancelled(error: Exception) -> bool:
    return "Cancelled" in type(error).__name__ or "CommClosed" in type(error).__name__


def _address(client: Client) -> Any:
    return getattr(client.scheduler, "address", None) or "an unknown address"


def _reason(error: BaseException) -> str:
    return str(error).partition("\n")[0] or type(error).__name__


# -- What runs on the workers: pure functions of their arguments, so that a lost result is computed again, bit for bit
#
# None of them changes an argument: Dask keeps results in memory, and hands the same object to every task that needs it.

_T = TypeVar("_T")


def identity(value: _T) -> _T:
    """Return the argument: what is sent in a task can be sent again when its worker has died; scattered data cannot."""
    return value


def pinned(pins: Mapping[str, str], key: str) -> list[str]:
    """Return the workers that a task prefers; Dask's scheduler asks for each task that it is sent."""
    return [pins[key]] if key in pins else []


# -- blocks ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class BlockFacts:
    """What is told of a block: its size, and a fingerprint of its column names and of its cells."""

    rows: int
    columns: int
    ones: int
    unknown: int | None
    names: str
    fingerprint: str | None = None


def make_block(chunk: Any, label: str, read: Callable[[Any], BinaryMatrix], columns: Sequence[str] | None) -> Rows:
    """Make a chunk a block of rows, or say in which chunk the wrong cell is; a mapped file stays a name."""
    try:
        if isinstance(chunk, Block):
            rows = read(chunk.read())  # looks at it: an unreadable file should show before the first round
            return chunk if chunk.mapped else rows
        matrix = read(chunk)
        if columns is not None and len(columns) == matrix.shape[1]:
            matrix = matrix.with_columns(columns)
        return matrix
    except InputError as error:
        raise InputError(f"{label}: {error}") from error


def rows_of(block: Rows) -> BinaryMatrix:
    """Return the rows of a block."""
    return block.read() if isinstance(block, Block) else block


def describe(block: Rows, fingerprint: bool) -> BlockFacts:
    """Return the facts of a block."""
    matrix = rows_of(block)
    names = hashlib.blake2b(repr(matrix.columns).encode(), digest_size=8).hexdigest()
    unknown = None if matrix.unknown is None else matrix.unknown.nnz
    print_ = matrix.fingerprint() if fingerprint else None
    return BlockFacts(*matrix.shape, matrix.nnz, unknown, names, print_)


def column_names(block: Rows) -> tuple[str, ...] | None:
    """Return the column names of a block."""
    return rows_of(block).columns


# -- rounds ----------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Held:
    """What a block keeps on its worker: the client's state after a round, and what it told in that round.

    Both are one result, since every task that Dask schedules costs a millisecond.
    """

    state: Any
    told: Any = None


@sizeof.register(Held)
def _size_of_held(held: Held) -> int:
    """Return the bytes of a state; Dask decides by sizes where to compute and what to put on disk."""
    arrays = {} if held.state is None else states_to_arrays(held.state)
    return sum(array.nbytes for array in arrays.values()) + int(sizeof(held.told))


@sizeof.register((Update, Release))
def _size_of_told(told: Update | Release) -> int:
    return sum(np.asarray(value).nbytes for value in told.values.values())


@sizeof.register(Sums)
def _size_of_sums(sums: Sums) -> int:
    return sum(np.asarray(value).nbytes for _, value in sums.items())


@dataclass(frozen=True, slots=True)
class WorkerClient:
    """Which client a block is, and the seed of the run."""

    name: str
    seed: int


def respond(algorithm: Algorithm, before: Held | None, block: Rows, request: Request, client: WorkerClient) -> Held:
    """Do the task of a request on a block."""
    states = None if before is None else before.state
    algorithm.check_request(request)
    # Dask counts a task as one thread, and runs as many at a time as the worker has.
    with one_blas_thread(), threads_at_most(1):
        return Held(
            *clients.compute_update(algorithm, states, rows_of(block), request, name=client.name, seed=client.seed)
        )


def respond_and_release(
    algorithm: Algorithm, before: Held | None, block: Rows, request: Request, client: WorkerClient
) -> Held:
    """Do the task of a request on a block, and let the update pass its gate."""
    states = None if before is None else before.state
    own = clients.Client(client.name, algorithm, Gate(client.name, lambda _: None), client.seed)
    with one_blas_thread(), threads_at_most(1):
        return Held(*own.answer(states, rows_of(block), request))


def merge_updates(parts: Sequence[Update]) -> Update:
    """Add up updates of a few blocks of one owner."""
    total = add_in_pairs(parts, Update.plus)
    assert total is not None
    return total


def assignment_of(held: Held) -> NDArray[np.bool_] | None:
    """Return the assignment in a client's state."""
    return clients.read_assignment(held.state)


# -- states on disk --------------------------------------------------------------------------------------------------


def state_path(folder: str, number: int, index: int) -> Path:
    """Return where the state of a client after a round is kept."""
    return Path(folder) / f"{number:07}" / f"state-{index:07}{SUFFIX}"


def save_state(held: Held, folder: str, number: int, index: int) -> bool:
    """Write a client's state; complete or not at all."""
    path = state_path(folder, number, index)
    path.parent.mkdir(parents=True, exist_ok=True)
    state = held.state
    write_entry(path, {"round": number, "state": state is not None}, {} if state is None else states_to_arrays(state))
    return True


def load_state(beside: Rows, place: tuple[str, int, int], state_type: type[Any]) -> Held:  # noqa: ARG001
    """Read a client's state back, on a worker that has its block."""
    path = state_path(*place)
    try:
        header, arrays = read_entry(path, advice="start the run anew")
    except OSError as error:
        raise InputError(f"{path} cannot be read ({error.strerror}) on a worker; start the run again") from error
    return Held(states_from_arrays(state_type, arrays) if header["state"] else None)


def sees(folder: str, token: str) -> bool:
    """Tell whether this worker finds what the caller has written into a folder, and may write there itself."""
    try:
        mine = Path(folder) / f".{token}"
        if mine.read_text(encoding="utf-8") != token:
            return False
        probe = Path(folder) / f".{token}-{hashlib.blake2b(token.encode()).hexdigest()[:8]}"
        probe.touch()
        return True
    except OSError:
        return False


# -- States of clients on disk, written by the workers every few rounds ----------------------------------------------
#
# What has to be computed again after a worker has died stays short by it, and a run can go on on another cluster.

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
