"""A command loads only what it needs: which heavy libraries are not imported for help, errors and logs."""

import json
import subprocess
import sys

import pytest

from felb.cli import VERBS
from felb.privacy.outbound_log import OutboundLog, OutboundRecord

HEAVY = (
    "numba", "sklearn", "scipy.stats", "nvflare", "matplotlib", "duckdb", "pandas", "dask", "opendp", "dp_accounting",
)  # fmt: skip
ALSO_NOT_FOR_HELP = ("numpy", "scipy")

PROGRAM = """
import contextlib, io, json, sys
from felb.cli import main
loaded = {}
for args in json.loads(sys.argv[1]):
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()) as told:
        try:
            main(args)
        except SystemExit as ended:
            code = ended.code
    loaded[" ".join(args)] = code, told.getvalue(), [name for name in json.loads(sys.argv[2]) if name in sys.modules]
print(json.dumps(loaded))
"""


def run(commands, watched, folder):
    """Return exit code, stderr and watched modules after each command; all in one process, so that they add up."""
    words = [sys.executable, "-c", PROGRAM, json.dumps(commands), json.dumps(watched)]
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def test_help_of_every_command_imports_no_numerical_library(tmp_path):
    commands = [["--help"], *([verb, "--help"] for verb in VERBS), ["site", "start", "--help"]]
    for command, (code, told, found) in run(commands, HEAVY + ALSO_NOT_FOR_HELP, tmp_path).items():
        assert (code, found) == (0, []), (command, told)


@pytest.mark.parametrize(
    "command",
    [
        ["fit", "missing.csv", "-o", "out"],
        ["fit", "zoo", "-o", "out", "--method", "unknown"],
        ["simulate", "missing.csv", "-o", "out"],
        ["show", "missing"],
        ["report", "missing"],
        ["score", "missing", "zoo"],
        ["apply", "missing", "zoo", "-o", "U.csv"],
        ["convert", "missing.csv", "out.felb"],
        ["status", "missing"],
        ["site", "log", "missing"],
        ["site", "budget", "missing"],
        ["experiment", "run", "missing"],
    ],
    ids=" ".join,
)
def test_an_input_error_is_told_without_heavy_imports(command, tmp_path):
    [(code, told, found)] = run([command], HEAVY, tmp_path).values()
    assert code == 1
    assert told.startswith("error: ")
    assert found == []


@pytest.mark.parametrize("missing", ["missing", "missing.felbmodel"])
def test_a_result_that_is_not_there_is_refused_without_a_numerical_library(missing, tmp_path):
    verbs = {"score": ("zoo",), "apply": ("zoo", "-o", "U.csv")} | dict.fromkeys(("show", "report", "interpret"), ())
    verbs["stability"] = ()
    commands = [[verb, missing, *more] for verb, more in verbs.items()]
    for command, (code, told, found) in run(commands, HEAVY + ALSO_NOT_FOR_HELP, tmp_path).items():
        assert (code, found) == (1, []), (command, told)
        assert missing in told


def test_the_log_of_a_site_is_shown_without_heavy_imports(tmp_path):
    left = OutboundRecord("a", 0, "gram_sketch", "sketch", (3, 4), "int64", 96, "none", None)
    (tmp_path / "site" / "state").mkdir(parents=True)
    (tmp_path / "site" / "site.json").write_text('{"name": "a"}')
    log = OutboundLog(tmp_path / "site" / "state" / "first" / "outbound.jsonl")
    log(left)
    log.close()
    commands = [["site", "log", "site", "--json"], ["site", "verify-log", "site"], ["site", "log", "site"]]
    for command, (code, told, found) in run(commands, HEAVY, tmp_path).items():
        assert (code, told, found) == (0, "", []), command
