"""A command loads only what it needs: which heavy libraries are not imported for help, errors and logs."""

import pytest
from watched_imports import ALSO_NOT_FOR_HELP, HEAVY, run_watched

from felb.cli import felb as group


def test_help_of_every_command_imports_no_numerical_library(tmp_path):
    commands = [["--help"], *([verb, "--help"] for verb in group.places)]
    for command, (code, told, found) in run_watched(commands, HEAVY + ALSO_NOT_FOR_HELP, tmp_path).items():
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
    ],
    ids=" ".join,
)
def test_an_input_error_is_told_without_heavy_imports(command, tmp_path):
    [(code, told, found)] = run_watched([command], HEAVY, tmp_path).values()
    assert code == 1
    assert told.startswith("error: ")
    assert found == []


@pytest.mark.parametrize("missing", ["missing", "missing.felbmodel"])
def test_a_result_that_is_not_there_is_refused_without_a_numerical_library(missing, tmp_path):
    verbs = {"score": ("zoo",), "apply": ("zoo", "-o", "U.csv")} | dict.fromkeys(("show", "report", "interpret"), ())
    verbs["stability"] = ()
    commands = [[verb, missing, *more] for verb, more in verbs.items()]
    for command, (code, told, found) in run_watched(commands, HEAVY + ALSO_NOT_FOR_HELP, tmp_path).items():
        assert (code, found) == (1, []), (command, told)
        assert missing in told
