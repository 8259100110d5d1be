"""What `felb simulate` does once, and how much of felb it imports."""

import subprocess
import sys

import pytest

import felb
from felb.federated.algorithms import registry
from felb.federated.journal import Journal
from felb.runs import job as jobs
from felb.runs.execute import resume, simulate

PROGRAM = """
import sys
from felb.cli import main
try:
    main(["simulate", "data.csv", "--clients", "3", "-k", "2", "-o", "out"])
except SystemExit as ended:
    assert not ended.code
print(len([name for name in sys.modules if name.partition(".")[0] == "felb"]))
print([name for name in ("sklearn", "dask", "pandas", "matplotlib") if name in sys.modules])
"""


def test_a_simulation_imports_a_part_of_felb_and_no_estimators(tmp_path):
    rows = felb.data.planted(30, 6, 2, seed=0).A.toarray().astype(int)
    (tmp_path / "data.csv").write_text("".join(",".join(map(str, row)) + "\n" for row in rows))
    done = subprocess.run([sys.executable, "-c", PROGRAM], cwd=tmp_path, capture_output=True, text=True, check=True)
    *_, count, heavy = done.stdout.splitlines()
    assert int(count) <= 90
    assert heavy == "[]"


def test_the_method_is_made_once_and_a_new_journal_is_rewound_once(tmp_path, monkeypatch):
    made, rewound, planned = [], [], []
    make, rewind = registry.make_method, Journal.rewind_to_states
    monkeypatch.setattr(jobs, "make_method", lambda *args, **more: made.append(args) or make(*args, **more))
    monkeypatch.setattr(Journal, "rewind_to_states", lambda *args: rewound.append(args) or rewind(*args))
    result = simulate(felb.Job("zoo", "grecond+or", 3, clients=3), tmp_path / "out", on_plan=planned.append)
    assert (len(made), len(rewound)) == (1, 1)
    assert planned == [len(result.history)]


def test_a_resumed_run_makes_the_method_once(tmp_path, monkeypatch):
    def stop(_):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        simulate(felb.Job("zoo", "grecond+or", 3, clients=3), tmp_path / "out", on_round=stop)
    made, make = [], registry.make_method
    monkeypatch.setattr(jobs, "make_method", lambda *args, **more: made.append(args) or make(*args, **more))
    resume(tmp_path / "out")
    assert len(made) == 1
