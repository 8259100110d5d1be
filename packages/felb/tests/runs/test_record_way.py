"""The way of one record through `felb simulate data.csv`: how many modules it passes, and what is done once."""

import sys
import threading
from collections import Counter
from pathlib import Path

import pytest

import felb
from felb.cli import main
from felb.data import planted

SOURCE = Path(felb.__file__).parent
CLIENTS = 4
NUMERICS = ("kernels/", "optim/", "metrics/", "federated/steps/")
"""The method itself; what the default one needs of them are its nine phases."""
MOST_OUTSIDE, MOST_IN_ALL = 45, 85


@pytest.fixture(scope="module")
def way(tmp_path_factory):
    """Calls of felb's functions by file and name, opened files, and the rounds of a run of the default method."""
    folder = tmp_path_factory.mktemp("way")
    rows = planted(120, 16, 3, noise=0.03, seed=0).A.toarray().astype(int)
    lines = [",".join(f"f{j}" for j in range(16)), *(",".join(map(str, row)) for row in rows)]
    (folder / "data.csv").write_text("\n".join(lines) + "\n")
    arguments = ["simulate", str(folder / "data.csv"), "-k", "3", "--clients", str(CLIENTS), "-o"]
    finish([*arguments, str(folder / "imports")])  # modules are loaded when they are first needed
    called, opened = Counter(), Counter()

    def watch(frame, event, argument):
        if event == "call":
            code = frame.f_code
            if code.co_name == "open" and code.co_filename.endswith(("pathlib.py", "_local.py")):
                opened[Path(frame.f_locals["self"]).name] += 1
            if code.co_filename.startswith(str(SOURCE)) and code.co_name != "<module>":
                called[Path(code.co_filename).relative_to(SOURCE).as_posix(), code.co_name] += 1

    before = sys.getprofile(), threading.getprofile()
    threading.setprofile(watch)
    sys.setprofile(watch)
    try:
        finish([*arguments, str(folder / "out")])
    finally:
        sys.setprofile(before[0])
        threading.setprofile(before[1])
    return called, opened, len(felb.Result.read(folder / "out").history)


def finish(arguments):
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 0


def test_a_record_passes_few_modules(way):
    modules = {file for file, _ in way[0]}
    outside = {file for file in modules if not file.startswith(NUMERICS)}
    assert len(outside) <= MOST_OUTSIDE, sorted(outside)
    assert len(modules) <= MOST_IN_ALL, sorted(modules)


def test_the_data_is_read_checked_and_partitioned_once(way):
    called, opened, _ = way
    for step in (
        ("data/files.py", "read"),
        ("data/readers.py", "open_bounded"),
        ("data/partition.py", "even"),
        ("data/partition.py", "split"),
        ("data/partition.py", "check_shards"),
        ("centralized/base.py", "check_rank"),
    ):
        assert called[step] == 1, step
    assert called["federated/algorithms/methods.py", "check_cells"] == CLIENTS
    assert opened["data.csv"] <= 1


def test_validation_is_not_repeated_inside_the_loop(way):
    called, _, _ = way
    grids = called["kernels/boolean.py", "overlap_grid"]  # here the U of the client and the V of the request first meet
    assert called["kernels/boolean.py", "check_factors"] <= grids + CLIENTS
    assert called["metrics/counts.py", "to_boolean"] == 0
    assert called["data/coercion.py", "to_binary"] <= 2, "when the data is read"


def test_the_outbound_log_of_a_client_is_opened_once(way):
    called, opened, rounds = way
    assert called["federated/gate.py", "release"] == rounds * CLIENTS
    assert {name: count for name, count in opened.items() if name.endswith(".jsonl")} == {
        f"client-{i + 1:02}.jsonl": 2
        for i in range(CLIENTS)  # for writing, and to synchronise the finished folder
    }
    assert called["privacy/outbound_log.py", "open_head"] == CLIENTS
