"""Real binary matrices for benchmarks, from a folder of SciPy files beside the project; not part of it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from felb.data import read

if TYPE_CHECKING:
    from felb.data import BinaryMatrix

HERE = Path(__file__).resolve()
FOLDER = next(
    (found for above in HERE.parents[2:] if (found := above / "shared" / "data").is_dir()),
    HERE.parents[2] / "shared" / "data",
)


def real(name: str, folder: Path = FOLDER) -> BinaryMatrix | None:
    """Return a data set, or None where it is not at hand."""
    path = folder / f"{name}.npz"
    return read(path).matrix if path.is_file() else None
