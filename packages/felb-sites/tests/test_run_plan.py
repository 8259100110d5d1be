"""A plan is checked by whoever receives it: the arguments of a job come from outside."""

import json
import math
import tracemalloc

import pytest

from felb.errors import InputError
from felb_sites.run_plan import Plan, fingerprint
from felb_sites.terms import Terms

GOOD = {"run_id": "r1", "method": "felb-mu", "n_components": 3, "n_features": 17, "parameters": {"max_iter": 5}}


def test_both_sides_make_the_same_plan_of_plain_data():
    plan = Plan.of(GOOD)
    assert Plan.of(json.loads(json.dumps(plan.to_json()))) == plan
    assert plan.algorithm().name == "felb-mu"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"method": "asso-nova"}, "unknown method"),
        ({"method": "elbmf"}, "for centralized data"),
        ({"method": "../felb"}, "unknown method"),
        ({"run_id": "../../etc"}, "run id"),
        ({"run_id": "a/b"}, "run id"),
        ({"run_id": 7}, "run id"),
        ({"n_components": -3}, "n_components"),
        ({"n_components": 0}, "n_components"),
        ({"n_components": True}, "n_components"),
        ({"n_components": 4096, "n_features": 10_000_000}, "too many"),
        ({"n_features": 10**12}, "n_features"),
        ({"n_features": 1.5}, "n_features"),
        ({"seed": -1}, "seed"),
        ({"columns": "names.txt"}, "columns"),
        ({"version": "99"}, "same version"),
        ({"rehearsal": 1}, "rehearsal must be"),
        ({"rehearsal": True, "resample": True}, "not rehearsed"),
        ({"data": "/etc/passwd"}, "has no 'data'"),
        ({"parameters": [1]}, "parameters"),
        ({"parameters": {"setting": "/etc/passwd"}}, "setting must be a number or a word"),
        ({"parameters": {"setting": {"a": 1}}}, "setting must be"),
        ({"parameters": {"dtype": "..\\x"}}, "dtype"),
        ({"parameters": {"unheard_of": 1}}, "no parameter 'unheard_of'"),
        ({"parameters": {"local_steps": -1}}, "local_steps"),
        ({"parameters": {"local_steps": 10**9}}, "local_steps"),
        ({"parameters": {"l2": math.nan}}, "l2"),
        ({"parameters": {"l2": -0.5}}, "l2"),
        ({"parameters": {"random_state": 3}}, "may set"),
        ({"parameters": {"participation": None}}, "may set"),
        ({"parameters": {"n_jobs": 99}}, "may set"),
        ({"method": "bmf", "parameters": {"time_limit": 5.0}}, "no time_limit"),
        ({"method": "asso+nova"}, "unknown method"),
        ({"method": "asso+vote+or"}, "unknown method"),
        ({"parameters": {"__class__": 1}}, "may set"),
        ({"parameters": {"privacy": "none"}}, "may set"),
        ({"n_components": "mdl"}, "does not find the number"),
        ({"n_components": "many"}, "n_components"),
        ({"method": "bmf", "n_components": "mdl", "parameters": {"max_components": 10**5}}, "n_components"),
        ({"records": 5}, "privacy specification"),
        ({"resample": 1}, "resample must be true or false"),
        ({"method": "bmf", "parameters": {}, "resample": True, "privacy": {"epsilon": 1.0}}, "budget again"),
        ({"sites": 10**6}, "sites must be"),
        ({"method": "bmf", "parameters": {}, "privacy": {"epsilon": 1e300}, "records": 9, "sites": 3}, "at most 1e"),
    ],
)
def test_arguments_that_are_wrong_or_hostile_are_refused(change, said):
    with pytest.raises(InputError, match=said):
        Plan.of({**GOOD, **change})


def test_a_plan_of_very_many_noisy_bits_takes_no_memory_before_it_is_approved():
    pytest.importorskip("dp_accounting")
    agreed = {"privacy": {"epsilon": 1.0, "unit": "client"}, "records": 1000, "sites": 3}
    tracemalloc.start()
    try:
        plan = Plan("run", "asso+vote", 4096, 48_828, **agreed)
        assert tracemalloc.get_traced_memory()[1] < 50 << 20
    finally:
        tracemalloc.stop()
    assert plan.algorithm().privacy.upload_mechanism().epsilon > 0


def test_the_number_of_components_may_be_left_to_the_run():
    assert Plan.of({**GOOD, "method": "bmf", "n_components": "mdl", "parameters": {}}).algorithm().name


@pytest.mark.parametrize("raw", [None, [], "plan", {"run_id": "r1"}])
def test_what_is_no_plan_is_refused(raw):
    with pytest.raises(InputError):
        Plan.of(raw)


def test_column_names_and_their_order_make_the_fingerprint():
    assert fingerprint(["a", "b"]) != fingerprint(["b", "a"])
    assert Plan.of({**GOOD, "columns": fingerprint(["a", "b"])}).columns == fingerprint(["a", "b"])


@pytest.mark.parametrize("raw", [{"quorum": 0}, {"grace": -1}, {"grace": math.nan}, {"hurry": 1}, {"quorum": True}])
def test_terms_are_checked(raw):
    with pytest.raises(InputError):
        Terms.of(raw)


def deadline(terms, *, quorum=5.0, everyone=False, silent=False, away=False):
    return terms.deadline(begun=0.0, quorum=quorum, everyone=everyone, silent=silent, away=away)


def test_a_missing_site_has_the_grace_period_after_the_quorum_and_the_timeout_at_most():
    terms = Terms(quorum=2, grace=10.0, round_timeout=100.0)
    assert deadline(terms) == 15.0
    assert deadline(terms, quorum=95.0) == 100.0


def test_a_task_for_everyone_waits_until_the_timeout_but_not_for_a_site_that_is_silent_already():
    terms = Terms(quorum=2, grace=10.0, round_timeout=100.0)
    assert deadline(terms, everyone=True) == 100.0
    assert deadline(terms, everyone=True, silent=True) == 8.0


def test_a_site_that_is_not_connected_is_waited_for_as_long_as_patience_lasts():
    terms = Terms(quorum=2, grace=50.0, round_timeout=100.0, patience=20.0)
    assert deadline(terms, away=True) == 20.0
    assert deadline(terms, quorum=30.0, away=True) == 30.0
