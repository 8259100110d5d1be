"""Writes planted data to files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import scipy.sparse as sp

from felb.data import planted
from felb.errors import InputError
from felb.safe_files import replacing

if TYPE_CHECKING:
    import os


def generate(
    out: str | os.PathLike[str], n: int, m: int, *, k: int, force: bool = False, **options: Any
) -> dict[str, Path]:
    """Write planted data and its answer as SciPy ``.npz`` files; return their paths by what they hold."""
    stem = Path(out)
    stem = stem.with_suffix("") if stem.suffix == ".npz" else stem
    if stem.name in ("", ".."):
        raise InputError(f"{out} is a folder; give a file name in it, such as {stem / 'planted'}")
    paths = {
        "data": stem.with_name(f"{stem.name}.npz"),
        "signal": stem.with_name(f"{stem.name}.signal.npz"),
        "U": stem.with_name(f"{stem.name}.U.npz"),
        "V": stem.with_name(f"{stem.name}.V.npz"),
    }
    taken = [str(path) for path in paths.values() if path.exists()]
    if taken and not force:
        raise InputError(f"{taken[0]} exists; choose another name or replace it with --force")
    data = planted(n, m, k, **options)
    stem.parent.mkdir(parents=True, exist_ok=True)
    matrices: dict[str, Any] = {"data": data.A.to_scipy(), "signal": data.signal.to_scipy(), "U": data.U, "V": data.V}
    for name, path in paths.items():
        with replacing(path) as partial, partial.open("wb") as file:
            sp.save_npz(file, sp.csr_array(matrices[name], dtype="uint8"))
    return paths
