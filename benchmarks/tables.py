"""Raw events into a matrix: felb with a schema against the same pivot written by hand in DuckDB, in one run.

    python benchmarks/tables.py                       # 300 000 lines as CSV and Parquet
    python benchmarks/tables.py --lines 50000000      # Parquet only; several gigabytes of room, some minutes
    python benchmarks/tables.py --record              # keeps the figures in TABLES.md

Events (person_id, code, date) are generated: persons at random, codes as frequent as Zipf's law has it. Each reading is
done in a process of its own, three times, and the fastest counts; peak memory is that of the process. Both must give
the same matrix.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
from common import listed, make_parser, write_page

from felb.data import BinaryMatrix, Feature, Schema, read
from felb.tables.schema import Handling, Roles

FOLDER = Path(__file__).parent
TABLE = FOLDER / "TABLES.md"
CODES = [f"{chr(65 + i // 50)}{i % 50:02}" for i in range(1000)]
CSV_LINES = 5_000_000
"""Lines up to which a CSV file is measured too."""


def generate(path: Path, lines: int, persons: int) -> None:
    """Write events as Parquet and, if there are not too many, as CSV."""
    connection = duckdb.connect(config={"memory_limit": "2GB", "temp_directory": str(path.parent / "spilled")})
    connection.execute("SELECT setseed(0.5)")
    code = "(chr(65 + (k // 50)::INTEGER) || lpad((k % 50)::VARCHAR, 2, '0'))"
    events = (
        f"SELECT person_id, {code} AS code, date FROM (SELECT (random() * {persons})::BIGINT AS person_id, "
        f"least(exp(random() * ln({len(CODES)}))::INTEGER, {len(CODES)}) - 1 AS k, "
        f"DATE '2020-01-01' + (random() * 1500)::INTEGER AS date FROM range({lines}))"
    )
    connection.execute(f"COPY ({events}) TO '{path}.parquet' (FORMAT parquet)")
    if lines <= CSV_LINES:
        connection.execute(f"COPY (FROM '{path}.parquet') TO '{path}.csv' (HEADER)")


def schema() -> Schema:
    """One feature per code."""
    features = tuple(Feature(name=code, codes=(code,)) for code in CODES)
    return Schema(features, Roles("person_id", "code", time="date"), codes=Handling("zero", "ignore"))


def by_felb(path: str) -> BinaryMatrix:
    """Read events by a schema."""
    return read(path, schema=schema()).matrix


def by_hand(path: str) -> BinaryMatrix:
    """Do the same pivot with DuckDB and NumPy, as one would write it for this file alone."""
    with tempfile.TemporaryDirectory() as folder:
        connection = duckdb.connect(config={"memory_limit": "1GB", "temp_directory": folder})
        connection.execute(
            "CREATE TABLE codes AS SELECT unnest($1) AS code, unnest($2) AS feature", [CODES, [*range(1000)]]
        )
        connection.execute(
            f"CREATE TABLE persons AS SELECT person_id, row_number() OVER (ORDER BY person_id) - 1 AS row "
            f"FROM (SELECT DISTINCT person_id FROM '{path}')"
        )
        cells = connection.execute(
            f"SELECT DISTINCT row, feature FROM '{path}' JOIN codes USING (code) JOIN persons USING (person_id) "
            "ORDER BY row, feature"
        ).fetchnumpy()
        ((n,),) = connection.execute("SELECT count(*) FROM persons").fetchall()
    indptr = np.concatenate(([0], np.cumsum(np.bincount(cells["row"], minlength=n))))
    return BinaryMatrix(indptr, np.asarray(cells["feature"]), len(CODES), CODES)


READERS = {"felb": by_felb, "by hand": by_hand}


def measure(reader: str, path: str, repeats: int) -> dict[str, Any]:
    """Read in a process of its own; the fastest of several."""
    command = [sys.executable, __file__, "--reader", reader, "--file", path, "--repeats", str(repeats)]
    return dict(json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout))


def read_here(reader: str, path: str, repeats: int) -> None:
    """Print seconds, peak memory and the fingerprint of what was read."""
    seconds, processor = [], []
    for _ in range(repeats):
        start, used = time.perf_counter(), time.process_time()
        matrix = READERS[reader](path)
        seconds.append(time.perf_counter() - start)
        processor.append(time.process_time() - used)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    found = {"seconds": min(seconds), "processor": min(processor), "megabytes": peak}
    print(json.dumps({**found, "same": matrix.fingerprint(), "ones": matrix.nnz}))


def main() -> None:
    """Measure, print and perhaps record."""
    parser = make_parser(__doc__)
    parser.add_argument("--lines", type=int, default=300_000)
    parser.add_argument("--persons", type=int, help="by default a tenth of the lines")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--record", action="store_true", help="add the figures to TABLES.md")
    parser.add_argument("--reader", choices=list(READERS), help=argparse.SUPPRESS)
    parser.add_argument("--file", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.reader:
        read_here(options.reader, options.file, options.repeats)
        return
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "events"
        generate(path, options.lines, options.persons or options.lines // 10)
        for suffix in ("parquet", "csv"):
            file = path.with_suffix(f".{suffix}")
            if not file.exists():
                continue
            felb, hand = (measure(reader, str(file), options.repeats) for reader in READERS)
            assert felb["same"] == hand["same"], "the two matrices differ"
            figures = " | ".join(
                f"{one['seconds']:.2f} | {one['processor']:.2f} | {one['megabytes']:.0f}" for one in (felb, hand)
            )
            ratios = " | ".join(f"{felb[name] / hand[name]:.2f}" for name in ("seconds", "processor"))
            rows.append(f"| {options.lines:,} | {suffix} | {felb['ones']:,} | {figures} | {ratios} |")
            print(rows[-1], flush=True)
    if options.record:
        record(rows)


HEAD = """# Raw events into a matrix

`python benchmarks/tables.py --record`: seconds and peak megabytes of felb with a schema, and of the same pivot written
by hand in DuckDB; the fastest of three readings, of two for 5 million lines, one for 50 million. The matrices are the
same, bit for bit. Seconds of the processor, summed over cores, depend less on what else the machine does: its load at
the last recording is stated below, and on a busy machine the other seconds are mostly waiting.

| lines | file | ones | felb s | processor s | MB | by hand s | processor s | MB | ratio s | ratio processor s |
|---|---|---|---|---|---|---|---|---|---|---|
"""


def record(rows: list[str]) -> None:
    """Add rows to the table; a row of the same lines and file is replaced."""
    old = TABLE.read_text(encoding="utf-8").splitlines() if TABLE.exists() else []
    kept = {tuple(row.split(" | ")[:2]): row for row in [*old, *rows] if row[:3].strip("| ").isdigit()}
    machine = "\n".join(listed())
    table = "\n".join(kept.values())
    write_page(TABLE, f"{HEAD}{table}\n\n{machine}")


if __name__ == "__main__":
    main()
