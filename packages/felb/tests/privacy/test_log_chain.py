"""The chain of the outbound log: any change of the past is noticed, and a crash is none."""

from __future__ import annotations

import json

import pytest

from felb.errors import InputError
from felb.privacy.outbound_log import (
    START,
    Head,
    OutboundLog,
    OutboundRecord,
    chain_line,
    drop_unsent,
    keep_lines,
    open_head,
    read_head,
    read_log,
    summarize,
    verify,
    write_head,
)


def record(number, what="V"):
    return OutboundRecord("a", number, "task", what, (3,), "int64", 24, "none", None)


@pytest.fixture
def log(tmp_path):
    path = tmp_path / "outbound.jsonl"
    write = OutboundLog(path)
    for number in range(6):
        write(record(number))
    write.close()
    return path


def test_each_line_holds_the_hash_of_the_line_before(log):
    lines = read_log(log)
    assert [line["previous"] for line in lines] == [START, *(line["hash"] for line in lines[:-1])]
    assert verify(log) == Head(6, lines[-1]["hash"]) == read_head(log)
    assert summarize(lines)[0].count == 6, "readers see what they saw before"


def changed(lines):
    return [*lines[:2], lines[2].replace('"bytes": 24', '"bytes": 23'), *lines[3:]]


def rehashed(lines):
    fields = {k: v for k, v in json.loads(lines[2]).items() if k not in ("hash", "previous")}
    line, _ = chain_line({**fields, "bytes": 23}, Head(2, json.loads(lines[1])["hash"]))
    return [*lines[:2], line, *lines[3:]]


@pytest.mark.parametrize(
    ("tamper", "line"),
    [
        (changed, 3),
        (rehashed, 4),
        (lambda lines: lines[:2] + lines[3:], 3),
        (lambda lines: lines[1:], 1),
        (lambda lines: [lines[1], lines[0], *lines[2:]], 1),
        (lambda lines: [*lines[:3], lines[2], *lines[3:]], 4),
        (lambda lines: [*lines[:3], "{}", *lines[3:]], 4),
        (lambda lines: lines[:-1], 6),
        (lambda lines: [], 1),
    ],
    ids=["changed", "rehashed", "removed", "first", "exchanged", "twice", "put in", "last", "all"],
)
def test_the_first_wrong_line_is_named(log, tamper, line):
    lines = tamper(log.read_text().splitlines())
    log.write_text("".join(f"{entry}\n" for entry in lines))
    with pytest.raises(InputError, match=f"line {line}:"):
        verify(log)


def test_every_single_changed_byte_is_noticed(log):
    content = log.read_bytes()
    for place in range(0, len(content) - 1, 7):
        log.write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
        with pytest.raises(InputError):
            verify(log)


def test_a_lost_head_is_noticed(log):
    (log.parent / ".outbound.jsonl.head").unlink()
    with pytest.raises(InputError, match="hash"):
        verify(log)


@pytest.mark.parametrize("cut", range(1, 300, 13))
def test_a_line_cut_short_by_a_crash_is_no_damage_and_the_chain_goes_on(log, cut):
    line, _ = chain_line({"round": 6, "what": "V"}, verify(log))
    with log.open("a") as file:
        file.write(line[:cut])
    assert verify(log).lines == 6
    OutboundLog(log)(record(6))
    assert verify(log).lines == 7
    assert [entry["round"] for entry in read_log(log)] == list(range(7))


def test_a_crash_between_a_line_and_its_head_is_no_damage(log):
    before = read_head(log)
    OutboundLog(log)(record(6))
    with open_head(log) as file:
        write_head(file, before)
    assert verify(log).lines == 7


def test_lines_that_are_played_again_go_and_the_rest_is_chained_anew(log):
    keep_lines(log, lambda fields: fields["round"] < 4)
    assert verify(log).lines == 4
    OutboundLog(log)(record(4))
    assert verify(log).lines == 5


def test_a_round_that_was_logged_but_never_sent_is_not_logged_twice(log):
    OutboundLog(log)(record(6))
    OutboundLog(log)(record(6, "loss"))
    drop_unsent(log, {3, 4, 5})
    assert verify(log).lines == 6
    drop_unsent(log, {3, 4, 5})
    drop_unsent(log, set())
    assert verify(log).lines == 6, "earlier rounds are never dropped"


@pytest.mark.parametrize("lines", ["Infinity", "NaN", "-1", "1.5", '"6"', "[]", "null"])
def test_a_head_that_is_no_head_counts_as_lost(log, lines):
    (log.parent / f".{log.name}.head").write_text(f'{{"lines": {lines}, "hash": "{START}"}}')
    assert read_head(log) is None
    with pytest.raises(InputError, match="last hash is missing"):
        verify(log)


def test_an_emptied_log_without_its_head_is_noticed(log):
    log.write_bytes(b"")
    (log.parent / f".{log.name}.head").unlink()
    with pytest.raises(InputError, match="last hash is missing"):
        verify(log)
