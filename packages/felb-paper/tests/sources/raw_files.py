"""Small raw files in every way they are handed out."""

from __future__ import annotations

import gzip
import zipfile
from typing import TYPE_CHECKING

import pytest

from felb.errors import InputError

if TYPE_CHECKING:
    from pathlib import Path

WAYS = ("plain", "gz", "zip", "folder", "folder with gz", "folder with zip")


def put(folder: Path, files: dict[str, str | bytes], way: str) -> Path:
    """Write files (the main one first, paths as in the archive) in one of the `WAYS`; return what a user would name."""
    folder.mkdir(exist_ok=True)
    content = {name: text.encode() if isinstance(text, str) else text for name, text in files.items()}
    if "zip" in way:
        with zipfile.ZipFile(folder / "archive.zip", "w", zipfile.ZIP_DEFLATED) as archive:
            for name, data in content.items():
                archive.writestr(name, data)
            archive.writestr("README.txt", "read me")
            archive.writestr(f"__MACOSX/{next(iter(content))}", "junk")
        return folder / "archive.zip" if way == "zip" else folder
    for name, data in content.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if "gz" in way:
            path.with_name(path.name + ".gz").write_bytes(gzip.compress(data))
        else:
            path.write_bytes(data)
    main = next(iter(content))
    return folder if "folder" in way else folder / (f"{main}.gz" if way == "gz" else main)


def refused(load, path, *words):
    """See that a file is refused with a message that names it and holds all words."""
    with pytest.raises(InputError) as caught:
        load(path)
    message = str(caught.value)
    assert str(path) in message
    for word in words:
        assert word in message
    return message
