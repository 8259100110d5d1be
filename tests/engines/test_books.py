"""Books on disk: an answer and its cost are kept together, or neither is."""

from __future__ import annotations

import numpy as np
import pytest

from felb.engines import books
from felb.engines.books import answered_rounds, open_book
from felb.errors import InputError, PrivacyError
from felb.federated.gate import Gate
from felb.federated.messages import Broadcast, Update
from felb.linalg.binary import BinaryMatrix
from felb.privacy import Privacy
from felb.privacy.cooccurrence import row_size_histogram

pytest.importorskip("dp_accounting")
pytest.importorskip("opendp")

PLAN = Privacy(1.0).plan(n_records=200, n_clients=1, n_columns=4)
ROWS = BinaryMatrix.of(np.resize([1, 0, 1, 1, 0], (200, 4)).astype(bool))


def ask(folder, plan=PLAN, *, log=lambda _: None, round_=0):
    """Ask a client that keeps its book in `folder`."""
    book = open_book(folder, plan)
    gate = Gate.private("a", log, plan=plan, book=book)
    update = Update.of_records(sizes=row_size_histogram(ROWS))
    broadcast = Broadcast("sizes", round_, {}, everyone=True)
    return gate.release(update, broadcast, rng=np.random.default_rng(0)), book


def test_a_round_asked_for_again_gets_the_same_bits_at_no_cost(tmp_path):
    logged = []
    first, book = ask(tmp_path, log=logged.append)
    again, reopened = ask(tmp_path, log=logged.append)
    np.testing.assert_array_equal(first.values["sizes"], again.values["sizes"])
    assert again.values["sizes"].dtype == first.values["sizes"].dtype
    assert reopened.ledger.entries == book.ledger.entries
    assert len(reopened.ledger.entries) == 1
    assert len(logged) == 1, "what has left once is logged once"
    assert answered_rounds(tmp_path) == {0}


def test_another_round_adds_to_what_was_spent(tmp_path):
    _, book = ask(tmp_path)
    _, reopened = ask(tmp_path, round_=1)
    assert reopened.ledger.mu == pytest.approx(np.sqrt(2) * book.ledger.mu)
    assert set(reopened.answers) == {(0, "sizes"), (1, "sizes")}


def test_stopped_before_the_answer_is_kept_nothing_was_spent(tmp_path, monkeypatch):
    def stop(*args, **options):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(books.np, "savez", stop)
        with pytest.raises(KeyboardInterrupt):
            ask(tmp_path)
    assert list(tmp_path.iterdir()) == []
    assert open_book(tmp_path, PLAN).ledger.entries == ()


def test_an_answer_is_neither_changed_nor_forgotten(tmp_path):
    _, book = ask(tmp_path)
    with pytest.raises(PrivacyError, match="answered already"):
        book.answers[(0, "sizes")] = {"sizes": np.zeros(1)}
    with pytest.raises(PrivacyError, match="cannot be forgotten"):
        del book.answers[(0, "sizes")]
    assert len(book.answers) == 1


def test_an_empty_answer_is_an_answer(tmp_path):
    book = open_book(tmp_path, PLAN)
    book.answers[(3, "assign")] = {}
    assert open_book(tmp_path, PLAN).answers[(3, "assign")] == {}


@pytest.mark.parametrize("other", [Privacy(2.0), Privacy(1.0, 1e-7), Privacy(1.0, neighbours="replace")])
def test_a_book_is_kept_under_one_agreement(tmp_path, other):
    ask(tmp_path)
    with pytest.raises(PrivacyError, match="was agreed as"):
        open_book(tmp_path, other.plan(n_records=200, n_clients=1, n_columns=4))


def test_a_damaged_book_is_not_taken_for_an_empty_one(tmp_path):
    ask(tmp_path)
    path = tmp_path / "round-0000000.npz"
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(InputError, match="not known what was spent"):
        open_book(tmp_path, PLAN)
