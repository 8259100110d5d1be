"""Labels of records: from a file, a column of the data, or the annotations of an AnnData file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from felb.data.registry import read_data
from felb.data.variables import opened
from felb.errors import InputError
from felb.safe_files import open_regular

OBS = "obs:"
"""Before the name of a column of ``obs``."""
MAX_LABEL_BYTES = 1 << 28


def read_labels(source: str, data: str | None, n_records: int) -> np.ndarray[Any, Any]:
    r"""Return the label of each record; None where a record has none.

    Parameters
    ----------
    source : ``obs:NAME`` for a column of ``obs`` of an ``.h5ad`` file; a text file with one label per line, in the
        order of the records, under a heading or not; or the name of a column of the data that is no feature
    data : the data file; not needed for a file of labels
    n_records : number of records

    Examples
    --------
    >>> from pathlib import Path
    >>> _ = Path("kinds.txt").write_text("kind\ncat\ndog\n")
    >>> read_labels("kinds.txt", None, 2).tolist()
    ['cat', 'dog']
    """
    if Path(source).is_file():
        found = _lines(Path(source), n_records)
    elif data is None:
        raise InputError(
            f"there is no file {source!r}; name the data file too if it is a column of it", parameter="labels"
        )
    elif source.startswith(OBS):
        found = _annotation(Path(data), source.removeprefix(OBS))
    else:
        found = np.asarray(read_data(data, client_column=source).clients, dtype=object)
    if len(found) != n_records:
        raise InputError(f"{source} has {len(found)} labels for {n_records} records", parameter="labels")
    return found


def _lines(path: Path, n_records: int) -> np.ndarray[Any, Any]:
    with open_regular(path) as file:
        text = file.read(MAX_LABEL_BYTES + 1)
    if len(text) > MAX_LABEL_BYTES:
        raise InputError(f"{path} has more than {MAX_LABEL_BYTES} bytes; give one label per line", parameter="labels")
    try:
        lines = text.decode("utf-8-sig").splitlines()
    except UnicodeDecodeError as error:
        raise InputError(
            f"{path} is no text in UTF-8 ({error}); give one label per line", parameter="labels"
        ) from error
    lines = lines[1:] if len(lines) == n_records + 1 else lines
    return np.array([line.strip() or None for line in lines], dtype=object)


def _annotation(path: Path, name: str) -> np.ndarray[Any, Any]:
    if path.suffix != ".h5ad" or not path.is_file():
        raise InputError(f"{path} is no .h5ad file, so it has no annotations; give a column or a file of labels")
    table = opened(path)
    try:
        if name not in table.obs.columns:
            there = ", ".join(map(str, table.obs.columns[:10])) or "none"
            raise InputError(f"obs of {path} has no column {name!r}; it has {there}", parameter="labels")
        column = table.obs[name]
        return np.asarray(column.astype(object).where(column.notna(), None), dtype=object)
    finally:
        table.file.close()
