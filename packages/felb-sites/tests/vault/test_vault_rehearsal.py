"""Rehearsals: the whole run with synthetic rows; no record is read, nothing is spent, and every line says so."""

from __future__ import annotations

from dataclasses import replace

import pytest
from vault_parts import UNDECIDED, K, M, charges, exact_plan, make_loopback, notes, private_plan

from felb.data.storage import open_matrix
from felb_sites.run_plan import plan_digest
from felb_sites.vault import snapshot as snapshot_module
from felb_sites.vault.operator import Verbs
from felb_sites.vault.snapshot import draw_rows


def rehearsal(plan):
    return replace(plan, run_id=f"{plan.run_id}-rehearsal-1", rehearsal=True)


@pytest.fixture
def sealed_rows(monkeypatch):
    """Let every attempt to open rows fail."""

    def refuse(path):
        raise AssertionError(f"{path} was opened")

    monkeypatch.setattr(snapshot_module, "open_matrix", refuse)
    assert open_matrix is not snapshot_module.open_matrix


@pytest.mark.parametrize("masked", [False, True], ids=["clear", "masked"])
@pytest.mark.parametrize("plan", [exact_plan(), private_plan()], ids=["exact", "private"])
def test_a_rehearsal_ends_without_a_record_read_or_anything_spent(tmp_path, sealed_rows, plan, masked):
    loop = make_loopback(tmp_path)
    plan = rehearsal(plan)
    done = loop.play(loop.masked(plan) if masked else plan)
    assert done.outcome.components.shape[1] == M
    for name in loop.shards:
        lines = loop.lines(name)
        assert lines
        assert all(line["rehearsal"] and line["mechanism"] == "synthetic rows" for line in lines)
        assert all(line["cost"] is None and line["total"] is None for line in lines)
        assert charges(loop, name) == []
        assert not (tmp_path / name / "vault" / "assignments").exists()


def test_rows_of_a_rehearsal_are_the_same_every_time_and_others_at_every_site():
    drawn = draw_rows(300, M, K, seed=4, site="a")
    draw_rows.cache_clear()
    assert drawn.fingerprint() == draw_rows(300, M, K, seed=4, site="a").fingerprint()
    assert drawn.fingerprint() != draw_rows(300, M, K, seed=4, site="b").fingerprint()
    assert drawn.shape == (300, M)


def test_how_many_rows_are_drawn_tells_the_first_digit_alone(tmp_path):
    loop = make_loopback(tmp_path)  # thirty rows a site
    done = loop.play(rehearsal(exact_plan()))
    assert done.outcome.counts.cells == 3 * 30 * M
    loop.refresh("site-1", loop.shards["site-1"].take(range(29)))
    again = loop.play(replace(rehearsal(exact_plan()), run_id="again"))
    assert again.outcome.counts.cells == (20 + 30 + 30) * M


def test_a_rehearsal_is_refused_as_the_run_would_be(tmp_path):
    loop = make_loopback(tmp_path, disclosure={"max_parameters": 0.2}, **UNDECIDED)
    said = loop.propose(rehearsal(exact_plan()))["site-1"]
    assert (said.code, said.needs) == ("disclosure", M * K * 5)
    assert any("needs 100 rows, this site has 30" in note for note in notes(loop))


def test_an_approval_of_a_rehearsal_is_none_of_the_run_and_says_what_it_is(tmp_path):
    loop = make_loopback(tmp_path, **UNDECIDED)
    plan = exact_plan()
    assert plan_digest(plan) != plan_digest(replace(plan, rehearsal=True))
    loop.propose(rehearsal(plan))
    vault = loop.vaults["site-1"]
    verbs = Verbs(vault)
    shown = verbs.show("r1-rehearsal-1")
    assert "rehearsal" in shown["words"]
    assert "synthetic rows (rehearsal)" in shown["facts"]["records"]
    assert verbs.pending()[0]["rehearsal"]
    assert verbs.approve("r1-rehearsal-1", shown["digest"], "ada")["status"] == "approved"
    assert loop.propose(plan)["site-1"].status == "waiting"
