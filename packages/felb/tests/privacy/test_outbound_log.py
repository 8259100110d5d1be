"""Reading outbound logs back and adding up what they tell."""

from __future__ import annotations

import json

import pytest

from felb.errors import InputError
from felb.privacy.accounting import Cost
from felb.privacy.outbound_log import OutboundLog, OutboundRecord, read_log, summarize


def record(round_=0, *, client="a", what="sizes", cost=None, total=None, size=24):
    return OutboundRecord(client, round_, "task", what, (3,), "int64", size, "noise", cost, total)


def written(path, *records):
    log = OutboundLog(path)
    for entry in records:
        log(entry)
    return path


def gaussian(mu):
    return Cost("gaussian", mu, "record")


def test_lines_come_back_and_one_cut_short_is_left_out(tmp_path):
    path = written(tmp_path / "a.jsonl", record(0), record(1, cost=gaussian(0.1)))
    with path.open("a", encoding="utf-8") as file:
        file.write('[1]\n{"round": 2, "cli')
    lines = read_log(path)
    assert [line["round"] for line in lines] == [0, 1]
    assert lines[1]["cost"] == gaussian(0.1).to_json()


def test_rounds_of_the_same_kind_stand_together(tmp_path):
    totals = [{"epsilon": 0.1 * t, "delta": 1e-5, "mu": 0.3, "unit": "record"} for t in range(5)]
    records = [record(t, cost=gaussian(0.3), total=totals[t]) for t in range(5)]
    records.insert(2, record(1, what="choice", cost=Cost("laplace", 0.25, "record")))
    left = summarize(read_log(written(tmp_path / "a.jsonl", *records)))
    assert [(part.what, part.rounds, part.count, part.bytes) for part in left] == [
        ("sizes", (0, 4), 5, 120),
        ("choice", (1, 1), 1, 24),
    ]
    assert left[0].cost == pytest.approx({"mu": 0.3 * 5**0.5})
    assert left[1].cost == {"epsilon": 0.25}
    assert left[0].total == totals[4]
    assert (left[0].cost_in_words, left[0].total_in_words) == ("μ 0.671", "ε 0.4")
    assert (left[1].cost_in_words, left[1].total_in_words) == ("ε 0.25", "")
    json.dumps(left[0].to_json())


def test_one_release_without_noise_leaves_no_cost_to_state(tmp_path):
    path = written(tmp_path / "a.jsonl", record(0, cost=gaussian(0.1)), record(1))
    (left,) = summarize(read_log(path))
    assert left.cost is None
    assert left.cost_in_words == "none"


def test_clients_runs_and_shapes_are_told_apart():
    line = {**json.loads(json.dumps(vars_of(record()))), "time": ""}
    lines = [line, {**line, "client": "b"}, {**line, "run": "r"}, {**line, "shape": [4]}, {**line, "round": 7}]
    left = summarize(lines)
    assert len(left) == 4
    assert left[0].rounds == (0, 7)


def vars_of(entry):
    return {name: getattr(entry, name) for name in entry.__dataclass_fields__}


@pytest.mark.parametrize("line", [{}, {"client": "a"}, {**vars_of(record()), "shape": "x"}])
def test_what_is_no_line_of_a_log_is_refused(line):
    with pytest.raises(InputError, match="outbound log"):
        summarize([line])
