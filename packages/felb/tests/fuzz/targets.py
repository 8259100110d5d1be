"""What is fuzzed: for each target its seeds, and what is done with a mutant.

A mutant may be read, or refused by an error of felb; anything else is a finding.
"""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import warnings
import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.io
import scipy.sparse as sp

from felb.data import BinaryMatrix, read
from felb.data.binary import check_indptr, check_order, check_range
from felb.data.storage import ALIGNMENT, MAGIC, block_checksum
from felb.errors import FelbError
from fuzz.mutations import mutated, mutated_value

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

CELLS = np.random.default_rng(11).random((12, 7)) < 0.4


@dataclass(frozen=True)
class Target:
    """A thing that is fuzzed: makes a case from a random generator, and tries it in a scratch folder.

    More memory than so many bytes for all cases together is a finding.
    """

    make: Callable[[random.Random], Any]
    attempt: Callable[[Any, Path], None]
    most_memory: int = 1 << 30


def check_matrix(matrix: BinaryMatrix) -> None:
    """Raise an assertion if a matrix that was read could lead a kernel astray, then let one walk over it."""
    for part in (matrix, matrix.unknown):
        if part is not None:
            assert part.shape == matrix.shape
            check_indptr(part.indptr, len(part), part.indices.size)
            check_range(part.indices, part.shape[1])
            check_order(part.indptr, part.indices)
    if matrix.shape[0] * matrix.shape[1] < 100_000:
        from felb.metrics import confusion

        U, V = np.ones((matrix.shape[0], 1), bool), np.ones((1, matrix.shape[1]), bool)
        counts = confusion(matrix, U, V)
        assert counts.tp == matrix.nnz


def reader(suffix: str, seeds: list[bytes], repair: Callable[[bytes], bytes] | None = None) -> Target:
    """Return the target of a file format; `repair` makes checksums fit again, so that mutants get past them."""

    def make(rng: random.Random) -> bytes:
        content = mutated(seeds, rng)
        return repair(content) if repair is not None and rng.random() < 0.6 else content

    def attempt(content: bytes, folder: Path) -> None:
        path = folder / f"mutant{suffix}"
        path.write_bytes(content)
        check_matrix(
            read(path, missing="unknown" if suffix in (".csv", ".npy", ".parquet", ".felb") else "error").matrix
        )

    return Target(make, attempt)


def record(
    name: str, seeds: list[bytes], use: Callable[[Path], object], others: dict[str, bytes] | None = None
) -> Target:
    """Return the target of a file in a folder that `use` reads."""

    def attempt(content: bytes, folder: Path) -> None:
        if not (folder / name).exists():  # the others stay as they are: `use` only reads
            for other, held in {**(others or {}), name: content}.items():
                (folder / other).parent.mkdir(parents=True, exist_ok=True)
                (folder / other).write_bytes(held)
        (folder / name).write_bytes(content)
        use(folder)

    return Target(lambda rng: mutated(seeds, rng), attempt)


def resealed_felb(content: bytes) -> bytes:
    """Return a mutated .felb file with fitting checksums, as a clever damage would leave it."""
    try:
        length = int.from_bytes(content[8:16], "little")
        text = content[24 : 24 + length]
        header = json.loads(text)
        at, blocks = -(-(24 + length) // ALIGNMENT) * ALIGNMENT, []
        for nnz in (header["nnz"], header.get("unknown")):
            if nnz is not None:
                for size in (8 * (header["shape"][0] + 1), np.dtype(header["index_dtype"]).itemsize * nnz):
                    blocks += [block_checksum(bytes(content[at : at + size]))] if size else []
                    at = -(-(at + size) // ALIGNMENT) * ALIGNMENT
        table = np.array(blocks, "<u4").tobytes()
        head = MAGIC + length.to_bytes(8, "little") + zlib.crc32(text).to_bytes(8, "little")
        return head + content[24:at] + table + zlib.crc32(table).to_bytes(4, "little")
    except (ValueError, KeyError, TypeError, AttributeError, IndexError, OverflowError, RecursionError):
        return content


def repacked(content: bytes) -> bytes:
    """Return text packed, so that mutations are of the text and not of its packing."""
    return gzip.compress(content, 1, mtime=0)


def as_bytes(write: Callable[[Path], object], suffix: str, folder: Path) -> bytes:
    """Return what a function writes to a file."""
    path = folder / f"seed{suffix}"
    write(path)
    return path.read_bytes()


def repacked_npz(content: bytes) -> bytes:
    """Return an archive with the right checksums, if the parts of a mutated one can still be found."""
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            out = io.BytesIO()
            with zipfile.ZipFile(out, "w") as other:
                for info in archive.infolist()[:20]:
                    at = (
                        info.header_offset
                        + 30
                        + len(info.filename)
                        + int.from_bytes(content[info.header_offset + 28 : info.header_offset + 30], "little")
                    )
                    other.writestr(info.filename, content[at : at + min(info.compress_size, 1 << 20)])
            return out.getvalue()
    except Exception:
        return content


def repacked_mat(content: bytes) -> bytes:
    """Return a MATLAB file whose elements are packed anew, so that mutations are of what was packed."""
    header, elements, at = content[:128], [], 128
    while at + 8 <= len(content):
        kind, length = (int.from_bytes(content[at + i : at + i + 4], "little") for i in (0, 4))
        held = content[at : at + 8 + length]
        if kind == 15:
            elements.append(held)
        else:
            packed = zlib.compress(held)
            elements.append((15).to_bytes(4, "little") + len(packed).to_bytes(4, "little") + packed)
        at += 8 + length
    return header + b"".join(elements)


def data_targets(folder: Path) -> dict[str, Target]:
    """Return the readers of data files."""
    partly = BinaryMatrix.of(CELLS).with_unknown(~CELLS & (np.arange(7) == 3))
    felb = [
        as_bytes(BinaryMatrix.of(CELLS, columns=list("abcdefg")).save, ".felb", folder),
        as_bytes(partly.save, ".felb", folder),
        as_bytes(BinaryMatrix.of(sp.random(9, 70_000, 0.001, format="csr").astype(bool)).save, ".felb", folder),
    ]
    table = "\n".join(",".join("1" if cell else "0" for cell in row) for row in CELLS)
    csv = [f"{','.join('abcdefg')}\n{table}\n".encode(), table.encode(), b'"a","b"\n"1",0\n,1\n']
    items = b"\n".join(b" ".join(b"%d" % i for i in np.flatnonzero(row)) for row in CELLS) + b"\n"
    pattern = b"%%MatrixMarket matrix coordinate pattern general\n%c\n3 4 3\n1 1\n2 4\n3 2\n"
    integer = b"%%MatrixMarket matrix coordinate integer symmetric\n3 3 2\n1 1 1\n3 2 1\n"
    array = b"%%MatrixMarket matrix array real general\n2 2\n1\n0\n0.0\n1e0\n"
    csr = sp.csr_matrix(CELLS.astype(np.int8))
    npz = [
        as_bytes(lambda p, f=f, c=c: sp.save_npz(p, csr.asformat(f), compressed=c), ".npz", folder)
        for f in ("csr", "csc", "coo", "bsr", "dia")
        for c in (False, True)
    ]
    npy = [as_bytes(lambda p, d=d: np.save(p, CELLS.astype(d)), ".npy", folder) for d in (bool, np.int8, float)]
    mat = [
        as_bytes(lambda p, X=X, c=c: scipy.io.savemat(p, {"X": X, "labels": [1, 2]}, do_compression=c), ".mat", folder)
        for X in (CELLS, CELLS.astype(float), csr.astype(float))
        for c in (False, True)
    ]
    targets = {
        "felb": reader(".felb", felb, resealed_felb),
        "csv": reader(".csv", csv),
        "csv.gz": reader(".csv.gz", csv, repacked),
        "dat": reader(".dat", [items]),
        "mtx": reader(".mtx", [pattern, integer, array]),
        "npz": reader(".npz", npz, repacked_npz),
        "npy": reader(".npy", npy),
        "mat": reader(".mat", mat, repacked_mat),
    }
    try:
        import pandas as pd
        import pyarrow  # noqa: F401

        frame = pd.DataFrame(CELLS.astype(np.int8), columns=list("abcdefg"))
        parquet = [as_bytes(frame.to_parquet, ".parquet", folder)]
        parquet.append(as_bytes(frame.astype(str).to_parquet, ".parquet", folder))
        targets["parquet"] = reader(".parquet", parquet)
    except ImportError:
        pass
    try:
        import anndata

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            h5ad = [
                as_bytes(anndata.AnnData(X).write_h5ad, ".h5ad", folder)
                for X in (CELLS.astype(np.float32), csr.astype(np.float32), csr.tocsc().astype(np.float32))
            ]
        targets["h5ad"] = reader(".h5ad", h5ad)
    except ImportError:
        pass
    return targets


def sparse_target() -> Target:
    """Return the target of SciPy matrices whose arrays were changed behind their back."""

    def make(rng: random.Random) -> Any:
        matrix = sp.csr_array(CELLS.astype(np.int8)).asformat(rng.choice(["csr", "csc", "coo", "bsr", "lil", "dia"]))
        names = [n for n in ("indptr", "indices", "data", "row", "col", "offsets") if hasattr(matrix, n)]
        for _ in range(rng.choice([1, 1, 2])):
            name = rng.choice(names or ["data"])
            value = np.array(getattr(matrix, name))
            if value.dtype == object or rng.random() < 0.3:
                value = value[: rng.randrange(len(value) + 1)]
            elif value.size:
                value.reshape(-1)[rng.randrange(value.size)] = rng.choice(
                    [-1, 5, 6, 7, 11, 12, 100, 2**31 - 1]
                ) % 128 - (value.dtype.itemsize > 1)
            with contextlib.suppress(ValueError, AttributeError, TypeError):
                setattr(matrix, name, value)
        return matrix

    return Target(make, lambda matrix, _: check_matrix(BinaryMatrix.of(matrix)))


def record_targets(folder: Path) -> dict[str, Target]:
    """Return the records that felb stores and reads back."""
    from felb import FederatedBMF, Job, load, simulate
    from felb.federated.journal import Journal, write_entry
    from felb.federated.protocol import Sums
    from felb.privacy.outbound_log import read_outbound_log, summarize
    from felb.runs.folder import RunFolder
    from felb.runs.result import Result, read_assignment

    simulate(Job("zoo", "grecond+or", 3, clients=2), folder / "result")
    held = {
        str(p.relative_to(folder / "result")): p.read_bytes() for p in (folder / "result").rglob("*") if p.is_file()
    }
    log = next(name for name in held if name.startswith("outbound/"))
    assignment = next(name for name in held if name.startswith("assignments/"))

    def show(place: Path) -> None:
        found = Result.read(place)
        found.described()
        found.rounds()
        json.dumps(found.to_json(), allow_nan=True)
        for client in found.clients:
            assert read_assignment(place, client).ndim == 2

    def entry(header: dict[str, Any], **arrays: Any) -> bytes:
        return as_bytes(lambda path: write_entry(path, header, arrays), ".safetensors", folder)

    head = {"round": 3, "task": "assign", "clients": 2, "missing": ["a"]}
    rounds = [entry(head, counts=np.arange(4), V=np.eye(2))]
    step = {"path": [0, 1], "first": 0, "end": 2, "steps": 1, "rows": [{"round": 0}, {"round": 1}]}
    steps = [entry(step, V=np.eye(3))]

    def open_journal(place: Path) -> None:
        journal = Journal(place)
        assert journal.next_round >= 0
        found = journal.sums(3, "assign") if journal.next_round == 4 else None
        assert found is None or isinstance(found, Sums)

    job = json.dumps({"data": "zoo", "method": "felb", "n_components": 3, "seed": 1, "clients": 2}).encode()

    Result.read(folder / "result").save(folder / "grecond.felbmodel", force=True)
    FederatedBMF(2, effort="fast", objective="recover", random_state=0).fit(CELLS).save(folder / "bmf.felbmodel")
    models = [(folder / name).read_bytes() for name in ("grecond.felbmodel", "bmf.felbmodel")]

    def use_model(place: Path) -> None:
        model = load(place / "mutant.felbmodel")
        assert model.transform(np.zeros((2, model.n_features_in_), dtype=bool)).shape == (2, len(model.components_))

    def model_file(rng: random.Random) -> bytes:
        if rng.random() < 0.4:
            return mutated(models, rng)
        with zipfile.ZipFile(io.BytesIO(rng.choice(models))) as archive:
            members = {name: archive.read(name) for name in archive.namelist()}
        name, out = rng.choice(sorted(members)), io.BytesIO()
        with zipfile.ZipFile(out, "w") as archive:
            for member, content in members.items():
                archive.writestr(member, mutated([content], rng) if member == name else content)
        return out.getvalue()

    return {
        "model": Target(model_file, record("mutant.felbmodel", models, use_model).attempt),
        "result.json": record("result.json", [held["result.json"]], show, held),
        "components.npz": record("components.npz", [held["components.npz"]], show, held),
        "assignment": record(assignment, [held[assignment]], show, held),
        "outbound": record(log, [held[log]], lambda place: summarize(read_outbound_log(place / log))),
        "job": record("r.unfinished/job.json", [job], lambda place: RunFolder(place / "r").job()),
        "journal round": record("round-0000003.safetensors", rounds, open_journal),
        "journal step": record("step-0-1.safetensors", steps, open_journal),
    }


def wire_target() -> Target:
    """Return the target of messages between coordinator and sites."""
    from felb.federated.journal import pack, unpack

    seeds = [
        pack({"V": np.eye(3), "t": np.asarray(4), "b": CELLS}),
        pack({}),
        pack({"n": np.arange(5, dtype=np.int16)}),
    ]

    def attempt(content: bytes, _: Path) -> None:
        for name, array in unpack(content).items():
            assert name.isidentifier()
            assert array.dtype.kind in "biuf"
            assert array.dtype.names is None
            assert array.nbytes <= len(content)

    return Target(lambda rng: mutated(seeds, rng), attempt)


MANY_ROUNDS = 1000
"""Rounds at most of estimators that have no time limit."""


def estimator_target() -> Target:
    """Return the target of parameters: every estimator with one or two parameters changed, and a small fit."""
    from felb.federated.algorithms.registry import METHODS
    from felb.sklearn.methods import make

    quick = {"max_iter": 2, "max_rounds": 2, "n_components": 2}

    def make_case(rng: random.Random) -> Any:
        name = rng.choice(sorted(METHODS))
        known = make(name).get_params(deep=False)
        changed = rng.sample(sorted(known), min(len(known), rng.choice([1, 1, 2])))
        parameters = {key: value for key, value in quick.items() if key in known}
        return name, parameters | {key: mutated_value(known[key], rng) for key in changed}

    def attempt(case: Any, _: Path) -> None:
        name, parameters = case
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = make(name)
            limited = "time_limit" in model.get_params()
            model.set_params(**{"time_limit": 1.0} if limited else {})
            model.set_params(**parameters)
            rounds = parameters.get("max_iter")
            if not limited and isinstance(rounds, int) and rounds > MANY_ROUNDS:
                model.set_params(max_iter=MANY_ROUNDS)  # whoever asks for more waits for them
            model.fit(CELLS)
        assert model.components_.shape[1] == CELLS.shape[1]

    return Target(make_case, attempt)


FURTHER: list[Callable[[], dict[str, Target]]] = []
"""Targets of other packages."""


def all_targets(folder: Path, only: str | None = None) -> dict[str, Target]:
    """Return every target by its name, or at least the one of a name; seeds are made in `folder`."""
    groups: list[Callable[[], dict[str, Target]]] = [
        lambda: {"scipy": sparse_target(), "wire": wire_target()},
        lambda: data_targets(folder),
        lambda: {"estimators": estimator_target()} if only in (None, "estimators") else {},
        lambda: record_targets(folder),
        *FURTHER,
    ]
    found: dict[str, Target] = {}
    for group in groups:
        found |= group()
        if only in found:
            break
    return found


def try_case(target: Target, case: Any, folder: Path) -> str | None:
    """Try a case; return what was found, or None if it was read or refused by an error of felb."""
    try:
        target.attempt(case, folder)
    except FelbError as error:
        text = str(error)
        if len(text) > 4000 or any(ord(c) < 32 and c not in "\n\t" for c in text):
            return f"message of {len(text)} characters: {text[:80]!r}"
    except Exception as error:
        import traceback

        at = traceback.extract_tb(error.__traceback__)[-1]
        return f"{type(error).__name__} at {Path(at.filename).name}:{at.lineno}: {str(error)[:120]}"
    return None
