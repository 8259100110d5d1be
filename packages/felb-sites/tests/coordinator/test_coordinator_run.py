"""`felb run` over real vaults: results of a simulation, consents, absences, and kills at every call of the relay."""

import numpy as np
import pytest
from in_memory_relay import InMemoryRelay, Killed, host
from loopback import Loopback

from felb.data import partition, planted
from felb.data.partition import split
from felb.engines.local import run as simulate
from felb.errors import FederationError, InputError
from felb_sites.coordinator.run import run_deployed
from felb_sites.coordinator.settings import DeployedRun
from felb_sites.reasons import REASONS
from felb_sites.run_plan import Plan
from felb_sites.terms import Terms

N, M, K = 90, 8, 2
SITES = ("site-1", "site-2", "site-3")
QUICK = {"bmf": {"effort": "fast"}, "felb": {"max_iter": 3}, "felb-mu": {"max_iter": 3}}


def make_shards():
    data = planted(N, M, K, noise=0.05, seed=1)
    return split(data.A, np.array(SITES)[partition.even(N, 3)])[0]


@pytest.fixture
def loopback(tmp_path):
    return Loopback(tmp_path, make_shards())


def settings(method="felb", *, secure=False, quorum=3, **terms):
    plan = Plan("r1", method, K, M, QUICK[method])
    terms = {"grace": 0.0, "patience": 0.0, **terms}
    return DeployedRun(plan, Terms(quorum=quorum, **terms), SITES, None, disclosure="none", secure=secure)


def play(loopback, run, relay=None, *, out="out", **options):
    relay = relay or InMemoryRelay(loopback)
    return run_deployed(host(loopback), run, loopback.folder / out, client=relay, **options)


def log_of(loopback, name):
    ignored = {"time", "previous", "hash", "roster"}  # keys, and so rosters, are made anew
    return [{k: v for k, v in line.items() if k not in ignored} for line in loopback.lines(name)]


@pytest.mark.parametrize("secure", [False, True], ids=["clear", "masked"])
@pytest.mark.parametrize("method", ["bmf", "felb", "felb-mu"])
def test_a_run_ends_with_the_components_of_its_simulation(loopback, method, secure):
    run = settings(method, secure=secure)
    result = play(loopback, run)
    simulated = simulate(run.plan.algorithm(), make_shards(), seed=0)
    np.testing.assert_array_equal(result.outcome.components, simulated.outcome.components)
    assert len(result.history) == len(simulated.history)


def test_a_run_waits_for_people_and_goes_on_when_they_approve(tmp_path):
    loopback = Loopback(tmp_path, make_shards(), auto_approve=())
    told = []

    def approve(line):
        told.append(line)
        for name in SITES:
            vault = loopback.vaults[name]
            row = vault.store.run("r1")
            if row is not None and row["status"] == "waiting":
                vault.approve("r1", row["digest"], by="a person")

    assert play(loopback, settings(), on_event=approve) is not None
    assert any("waits for approval" in line for line in told)


def test_a_site_that_refuses_is_named_with_its_reason_and_nothing_is_asked(tmp_path):
    loopback = Loopback(tmp_path, make_shards(), min_rows=31)
    with pytest.raises(FederationError, match=r"site-1: .*rows") as error:
        play(loopback, settings())
    assert "not begun" in str(error.value)
    assert log_of(loopback, "site-1") == []


def test_a_site_that_is_no_member_is_an_error_that_names_it(loopback):
    loopback.members = loopback.sign_members(2, without=["site-2"])
    with pytest.raises(InputError, match="site-2"):
        play(loopback, settings())


def test_a_run_goes_on_without_a_site_that_withdraws_if_a_quorum_is_left(loopback):
    relay = InMemoryRelay(loopback)

    def withdraw(header):
        if (header.kind, header.round) == ("sums", 3):
            loopback.vaults["site-2"].deny("r1", by="a person")

    relay.before_post = withdraw
    result = play(loopback, settings(quorum=2), relay)
    missing = [row.get("missing", []) for row in result.history]
    assert missing[0] == []
    assert missing[-1] == ["site-2"]


def test_a_site_that_is_revoked_in_the_middle_of_a_run_is_named_with_the_reason(loopback):
    relay, hosting, told = InMemoryRelay(loopback), host(loopback), []

    def revoke(header):
        if (header.kind, header.round) == ("sums", 3):
            hosting.members = loopback.sign_members(2, without=["site-2"])

    relay.before_post = revoke
    run = settings(quorum=2)
    result = run_deployed(hosting, run, loopback.folder / "out", client=relay, on_event=told.append)
    assert result.history[-1]["missing"] == ["site-2"]
    assert any("without site-2" in line and REASONS["revoked"] in line for line in told)


def test_a_rehearsal_is_numbered_after_one_that_is_over_and_leaves_no_result(loopback):
    relay, hosting, run = InMemoryRelay(loopback), host(loopback), settings()
    first = run.rehearsal(hosting)
    assert run.rehearsal(hosting).plan == first.plan
    run_deployed(hosting, first, None, client=relay)
    assert [first.plan.run_id, run.rehearsal(hosting).plan.run_id] == ["r1-rehearsal-1", "r1-rehearsal-2"]
    with pytest.raises(InputError, match="rehearsal has none"):
        run_deployed(hosting, run.rehearsal(hosting), loopback.folder / "out", client=relay)
    assert not (loopback.folder / "out").exists()
    assert play(loopback, run, relay) is not None, "the run itself is not touched by it"


def test_a_rehearsal_that_was_interrupted_goes_on_under_its_name(loopback):
    relay, hosting, run = InMemoryRelay(loopback), host(loopback), settings()
    relay.die_at = 12
    with pytest.raises(Killed):
        run_deployed(hosting, run.rehearsal(hosting), None, client=relay)
    assert run.rehearsal(hosting).plan.run_id == "r1-rehearsal-1"
    assert run_deployed(hosting, run.rehearsal(hosting), None, client=relay).history


def test_a_rehearsal_that_a_site_has_denied_is_followed_by_another_one(loopback):
    relay, hosting, run = InMemoryRelay(loopback), host(loopback), settings()
    relay.before_post = lambda header: (
        loopback.vaults["site-2"].deny(header.run, by="ada") if (header.kind, header.round) == ("sums", 1) else None
    )
    with pytest.raises(FederationError, match="site-2"):
        run_deployed(hosting, run.rehearsal(hosting), None, client=relay)
    assert run.rehearsal(hosting).plan.run_id == "r1-rehearsal-2"


def test_a_run_without_a_quorum_stops_and_says_who_is_missing(loopback):
    relay = InMemoryRelay(loopback)
    relay.lost = lambda header: header.kind == "response" and header.sender == "site-3"
    with pytest.raises(FederationError, match="site-3"):
        play(loopback, settings(round_timeout=0.3), relay)


@pytest.mark.parametrize("secure", [False, True], ids=["clear", "masked"])
def test_a_coordinator_that_is_killed_at_any_call_goes_on_to_the_same_result(tmp_path, secure):
    run = settings("felb", secure=secure)
    undisturbed = Loopback(tmp_path / "a", make_shards())
    counted = InMemoryRelay(undisturbed)
    expected = play(undisturbed, run, counted)
    loopback = Loopback(tmp_path / "b", make_shards())
    relay, result, steps = InMemoryRelay(loopback), None, 0
    while result is None:
        steps += 1
        relay.calls, relay.die_at = 0, 4 + 3 * steps  # deeper each time, so that every part of a round is hit
        try:
            result = play(loopback, run, relay)
        except Killed:
            loopback.restart()
            loopback.read_up_to = dict.fromkeys(SITES, 0)
    assert steps > 1
    np.testing.assert_array_equal(result.outcome.components, expected.outcome.components)
    for name in SITES:
        assert log_of(loopback, name) == log_of(undisturbed, name)


def test_a_second_run_of_the_same_name_with_other_settings_is_refused(loopback):
    play(loopback, settings())
    with pytest.raises(InputError, match="other settings"):
        play(loopback, settings("bmf"), out="other")
