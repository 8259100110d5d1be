"""What runs on the workers: pure functions of their arguments, so that a lost result is computed again, bit for bit.

None of them changes an argument: Dask keeps results in memory, and hands the same object to every task that needs it.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from dask.sizeof import sizeof

from felb.data.blocks import Block
from felb.errors import InputError
from felb.federated.entries import SUFFIX, from_arrays, read_entry, to_arrays, write_entry
from felb.federated.gate import Gate
from felb.federated.participation import CLIENT_STREAM, NOISE_STREAM, random_stream
from felb.federated.protocol import Release, Sums, Update, add_in_pairs
from felb.kernels.blas import one_blas_thread_again
from felb.kernels.schedule import threads_at_most

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

    from felb.data.binary import BinaryMatrix
    from felb.federated.protocol import Algorithm, Request

    Rows = BinaryMatrix | Block

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


class Held:
    """What a block keeps on its worker: the client's state after a round, and what it told in that round.

    Both are one result, since every task that Dask schedules costs a millisecond.
    """

    __slots__ = ("state", "told")

    def __init__(self, state: Any, told: Any = None) -> None:
        self.state, self.told = state, told


@sizeof.register(Held)
def _size_of_held(held: Held) -> int:
    """Return the bytes of a state; Dask decides by sizes where to compute and what to put on disk."""
    arrays = {} if held.state is None else to_arrays(held.state)
    return sum(array.nbytes for array in arrays.values()) + int(sizeof(held.told))


@sizeof.register((Update, Release))
def _size_of_told(told: Update | Release) -> int:
    return sum(np.asarray(value).nbytes for value in told.values.values())


@sizeof.register(Sums)
def _size_of_sums(sums: Sums) -> int:
    return sum(np.asarray(value).nbytes for _, value in sums.items())


@dataclass(frozen=True, slots=True)
class Client:
    """Which client a block is, and the seed of the run."""

    name: str
    seed: int


def respond(algorithm: Algorithm, before: Held | None, block: Rows, request: Request, client: Client) -> Held:
    """Do the task of a request on a block."""
    rng = random_stream(client.seed, CLIENT_STREAM, request.round, client.name)
    # Dask counts a task as one thread, and runs as many at a time as the worker has.
    with one_blas_thread_again(), threads_at_most(1):
        return Held(*algorithm.respond(None if before is None else before.state, rows_of(block), request, rng=rng))


def respond_and_release(
    algorithm: Algorithm, before: Held | None, block: Rows, request: Request, client: Client
) -> Held:
    """Do the task of a request on a block, and let the update pass its gate."""
    held = respond(algorithm, before, block, request, client)
    noise = random_stream(client.seed, NOISE_STREAM, request.round, client.name)
    return Held(held.state, Gate(client.name, lambda _: None).release(held.told, request, rng=noise))


def told_by(held: Held) -> Any:
    """Return what a response tells, without the state: this is what the worker fetches that adds it up."""
    return held.told


def add_releases(parts: Sequence[Release]) -> Sums:
    """Add up the releases of a few clients."""
    return Sums.of(parts)


def add_sums(parts: Sequence[Sums]) -> Sums:
    """Add up partial sums."""
    return Sums.merged(parts)


def merge_updates(parts: Sequence[Update]) -> Update:
    """Add up updates of a few blocks of one owner."""
    total = add_in_pairs(parts, Update.plus)
    assert total is not None
    return total


def assignment_of(held: Held) -> NDArray[np.bool_] | None:
    """Return the assignment in a client's state."""
    return None if held.state is None else held.state.assigned


# -- states on disk --------------------------------------------------------------------------------------------------


def state_path(folder: str, number: int, index: int) -> Path:
    """Return where the state of a client after a round is kept."""
    return Path(folder) / f"{number:07}" / f"state-{index:07}{SUFFIX}"


def save_state(held: Held, folder: str, number: int, index: int) -> bool:
    """Write a client's state; complete or not at all."""
    path = state_path(folder, number, index)
    path.parent.mkdir(parents=True, exist_ok=True)
    state = held.state
    write_entry(path, {"round": number, "state": state is not None}, {} if state is None else to_arrays(state))
    return True


def load_state(beside: Rows, place: tuple[str, int, int], state_type: type[Any]) -> Held:  # noqa: ARG001
    """Read a client's state back, on a worker that has its block."""
    path = state_path(*place)
    try:
        header, arrays = read_entry(path, advice="start the run anew")
    except OSError as error:
        raise InputError(f"{path} cannot be read ({error.strerror}) on a worker; start the run again") from error
    return Held(from_arrays(state_type, arrays) if header["state"] else None)


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
