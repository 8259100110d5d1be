"""A model as one file, ``NAME.felbmodel``: the files of a result folder that may be passed on, in a ZIP archive.

It holds no pickled objects. Reading it takes no other members than those of a result, and no more bytes than a file of
its size may unpack to.
"""

from __future__ import annotations

import os
import tempfile
import zipfile
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING

from felb.data.limits import Limits
from felb.errors import InputError, shortened
from felb.runs.result import BELIEF, COMPONENTS, SCHEMA, STATEMENT, Result
from felb.runs.result_places import MODEL_SUFFIX, RESULT
from felb.safe_files import open_regular, replacing

if TYPE_CHECKING:
    from collections.abc import Iterator

    from felb.centralized.base import BooleanFactorization

MEMBERS = (RESULT, COMPONENTS, "components.csv", BELIEF, SCHEMA, STATEMENT)
WRITTEN = (1980, 1, 1, 0, 0, 0)
"""In place of the time at which a member was written, so that equal models are equal files."""
AGAIN = "save the model again"
PIECE = 1 << 20


def save(model: BooleanFactorization, path: str | os.PathLike[str], *, force: bool = False) -> None:
    """Write a fitted estimator to a file; `felb.load` reads it back.

    Examples
    --------
    >>> import felb
    >>> data = felb.data.planted(300, 40, 3, noise=0.02, seed=0)
    >>> model = felb.FederatedBMF(3, random_state=0).fit(data.A)
    >>> felb.save(model, "model.felbmodel", force=True)
    >>> bool((felb.load("model.felbmodel").transform(data.A) == model.transform(data.A)).all())
    True
    """
    Result.from_model(model).save(path, force=force)


def load(path: str | os.PathLike[str]) -> BooleanFactorization:
    """Read a fitted estimator from a model file or from the folder of a result.

    Examples
    --------
    >>> import felb
    >>> _ = felb.fit(felb.Job("zoo", "grecond", 4), "zoo-run")
    >>> felb.load("zoo-run").component_features()[0][:2]
    ('hair', 'milk')
    """
    return Result.read(path).model()


def write_model_file(result: Result, path: Path, *, force: bool) -> None:
    """Write the members that may be passed on to an archive, which appears complete or not at all."""
    if path.suffix != MODEL_SUFFIX:
        raise InputError(f"{path} does not end in {MODEL_SUFFIX}, by which a model file is known; name it so")
    if path.exists() and not force:
        raise InputError(f"{path} exists; choose another name, or replace it with force=True")
    with tempfile.TemporaryDirectory(prefix="felb-model-") as scratch, replacing(path) as partial:
        folder = Path(scratch)
        result.write(folder, {})
        with zipfile.ZipFile(partial, "w") as archive:
            for name in MEMBERS:
                if (folder / name).is_file():
                    info = zipfile.ZipInfo(name, WRITTEN)
                    archive.writestr(info, (folder / name).read_bytes(), zipfile.ZIP_DEFLATED)


@contextmanager
def unpacked(path: Path) -> Iterator[Path]:
    """Unpack a model file into a folder that is there for the block; what is wrong in it is told of the file."""
    with tempfile.TemporaryDirectory(prefix="felb-model-") as scratch:
        _unpack(path, Path(scratch))
        try:
            yield Path(scratch)
        except InputError as error:
            raise InputError(str(error).replace(f"{scratch}{os.sep}", f"{path}: ")) from error


def _unpack(path: Path, folder: Path) -> None:
    try:
        with open_regular(path) as file:
            _unpack_members(file, path.stat().st_size, folder)
    except InputError as error:
        raise InputError(f"{path}: {error}; {AGAIN}") from error
    except OSError as error:
        raise InputError(f"{path} cannot be read ({error.strerror}); check the path") from error
    except Exception as error:  # what the reader of ZIP raises on damage is nearly anything
        raise InputError(f"{path} is damaged ({shortened(error)}); {AGAIN}") from error


def _unpack_members(file: IO[bytes], size: int, folder: Path) -> None:
    with zipfile.ZipFile(file) as archive:
        bounds, members = Limits().of(size), archive.infolist()
        names = [info.filename for info in members]
        strange = sorted(set(names) - set(MEMBERS))
        if strange or len(set(names)) < len(names) or RESULT not in names:
            what = f"it holds {strange[0][:60]!r}" if strange else f"its members are {', '.join(names[:8]) or 'none'}"
            raise InputError(f"this is no model file: {what}")
        left = bounds.bytes
        for info in members:
            with archive.open(info) as packed, (folder / info.filename).open("wb") as plain:
                while piece := packed.read(PIECE):
                    left -= len(piece)
                    if left < 0:
                        raise InputError(f"it unpacks to more than {bounds.bytes} bytes")
                    plain.write(piece)
