"""Stored responses: a response and its cost are kept together, or neither is."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from declarations import outputs_of

from felb.data.binary import BinaryMatrix
from felb.errors import FederationError, InputError, PrivacyError
from felb.federated import journal as entries
from felb.federated.gate import KEPT, Gate, StoredResponses, answered_rounds
from felb.federated.protocol import Part, Request, Update
from felb.privacy import Privacy
from felb.privacy.releases import row_size_histogram

pytest.importorskip("dp_accounting")
pytest.importorskip("opendp")

PLAN = Privacy(1.0).plan(n_records=200, n_clients=1, n_columns=4)
ROWS = BinaryMatrix.of(np.resize([1, 0, 1, 1, 0], (200, 4)).astype(bool))


def opened(folder, plan=PLAN, **options):
    return StoredResponses(folder, plan.accountant(), **options)


def ask(folder, plan=PLAN, *, log=lambda _: None, number=0, values=None):
    """Ask a client that keeps its responses in `folder`."""
    kept = opened(folder, plan)
    gate = Gate.private("a", log, plan=plan, responses=kept)
    update = Update.of_records(sizes=row_size_histogram(ROWS))
    request = Request.of([Part("sizes", values or {})], all_clients=True, number=number)
    return gate.release(update, request, outputs_of(update), rng=np.random.default_rng(0)), kept


def test_a_request_that_comes_again_gets_the_same_bits_at_no_cost(tmp_path):
    logged = []
    first, kept = ask(tmp_path, log=logged.append)
    again, reopened = ask(tmp_path, log=logged.append)
    np.testing.assert_array_equal(first.values["sizes"], again.values["sizes"])
    assert again.values["sizes"].dtype == first.values["sizes"].dtype
    assert reopened.accountant.entries == kept.accountant.entries
    assert len(reopened.accountant.entries) == 1
    assert len(logged) == 1, "what has left once is logged once"
    assert answered_rounds(tmp_path) == {0}


def test_another_round_or_another_request_adds_to_what_was_spent(tmp_path):
    _, kept = ask(tmp_path)
    _, reopened = ask(tmp_path, number=1)
    assert reopened.accountant.mu == pytest.approx(np.sqrt(2) * kept.accountant.mu)
    assert len(reopened) == 2

    def again_and_again():
        for number in range(2, 20_000):
            ask(tmp_path, number=number, values={"other": np.asarray(number)})

    with pytest.raises(PrivacyError, match="total"):
        again_and_again()


def test_stopped_before_the_response_is_kept_nothing_was_spent(tmp_path, monkeypatch):
    def stop(*args, **options):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(entries, "pack", stop)
        with pytest.raises(KeyboardInterrupt):
            ask(tmp_path)
    assert list(tmp_path.iterdir()) == []
    assert opened(tmp_path).accountant.entries == ()


def test_a_response_is_not_changed(tmp_path):
    _, kept = ask(tmp_path)
    with pytest.raises(PrivacyError, match="answered already"):
        kept.keep(Request.of([Part("sizes", {})], all_clients=True, number=0), {"sizes": np.zeros(1)})
    assert len(kept) == 1


def test_an_empty_response_is_a_response(tmp_path):
    request = Request.of([Part("assign", {})], number=3)
    opened(tmp_path).keep(request, {})
    assert opened(tmp_path).find(request) == {}
    assert opened(tmp_path).find(Request.of([Part("assign", {"V": np.ones(1)})], number=3)) is None


@pytest.mark.parametrize("other", [Privacy(2.0), Privacy(1.0, 1e-7), Privacy(1.0, neighbours="replace")])
def test_responses_are_kept_under_one_agreement(tmp_path, other):
    ask(tmp_path)
    with pytest.raises(PrivacyError, match="was agreed as"):
        opened(tmp_path, other.plan(n_records=200, n_clients=1, n_columns=4))


def test_damaged_responses_are_not_taken_for_none(tmp_path):
    ask(tmp_path)
    (path,) = tmp_path.iterdir()
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(InputError, match=rf"{path.name} is damaged"):
        opened(tmp_path)


@dataclass(frozen=True)
class State:
    number: int = 0


@pytest.mark.parametrize("charged", [False, True])
def test_states_of_the_last_rounds_are_kept_with_their_responses(tmp_path, charged):
    def again():
        return StoredResponses(tmp_path, None, state_type=State, charged=charged)

    for number in range(6):
        again().keep(Request.of([Part("count", {})], number=number), {"n": np.asarray(number)}, {"": State(number)})
    kept = again()
    assert kept.states_before(6) == {"": State(5)}
    assert kept.states_before(5) == {"": State(4)}
    assert kept.states_before(4) == {"": State(3)}
    with pytest.raises(FederationError, match="too long ago"):
        kept.states_before(3)
    assert len(kept) == (6 if charged else KEPT)
    found = kept.find(Request.of([Part("count", {})], number=1))
    assert found == {"n": np.asarray(1)} if charged else found is None
    kept.keep(Request.of([Part("count", {"other": np.ones(1)})], number=4), {"n": np.asarray(40)}, {"": State(40)})
    assert again().states_before(6) == {"": State(40)}, "the course before was left"
    assert answered_rounds(tmp_path) == (set(range(6)) if charged else {3, 4})
