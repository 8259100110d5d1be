"""Commands of sites load only what they need."""

import pytest
from watched_imports import HEAVY, run_watched

from felb.privacy.outbound_log import OutboundLog, OutboundRecord


@pytest.mark.parametrize(
    "command", [["status", "missing"], ["site", "log", "missing"], ["site", "budget", "missing"]], ids=" ".join
)
def test_an_input_error_is_told_without_heavy_imports(command, tmp_path):
    [(code, told, found)] = run_watched([command], HEAVY, tmp_path).values()
    assert code == 1
    assert told.startswith("error: ")
    assert found == []


def test_the_log_of_a_site_is_shown_without_heavy_imports(tmp_path):
    left = OutboundRecord("a", 0, "gram_sketch", "sketch", (3, 4), "int64", 96, "none", None)
    (tmp_path / "site" / "state").mkdir(parents=True)
    (tmp_path / "site" / "site.json").write_text('{"name": "a"}')
    log = OutboundLog(tmp_path / "site" / "state" / "first" / "outbound.jsonl")
    log(left)
    log.close()
    commands = [["site", "log", "site", "--json"], ["site", "verify-log", "site"], ["site", "log", "site"]]
    for command, (code, told, found) in run_watched(commands, HEAVY, tmp_path).items():
        assert (code, told, found) == (0, "", []), command
