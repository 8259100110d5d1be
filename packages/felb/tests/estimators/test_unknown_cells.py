"""FederatedBMF where cells are unknown: they count neither way, centralized or federated."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from brief_effort import BRIEF
from hypothesis import given, settings
from hypothesis import strategies as st

import felb
from felb.data import BinaryMatrix, partition, planted
from felb.metrics import Counts

pytestmark = pytest.mark.filterwarnings("ignore::felb.errors.ConvergenceWarning")


def hidden(shape, share=0.2, *, seed=0):
    return np.random.default_rng(seed).random(shape) < share


def f1(found, truth):
    return 2 * (found & truth).sum() / (found.sum() + truth.sum())


DATA = planted(600, 60, 4, noise=0.05, seed=0)
SIGNAL = (DATA.U.astype(int) @ DATA.V.astype(int)) > 0
CELLS = hidden(DATA.A.shape)
SEEN = DATA.A.toarray() & ~CELLS

KINDS = {
    "default": {"effort": BRIEF},
    "hamming": {"objective": "hamming", "effort": BRIEF},
    "costs": {"objective": "hamming", "false_positive_cost": 2.0, "effort": BRIEF},
    "f1": {"objective": "f1", "effort": BRIEF},
    "recover": {"objective": "recover", "effort": BRIEF},
    "mdl": {"n_components": "mdl", "max_components": 8, "effort": BRIEF},
    "search": {"objective": "hamming", "effort": replace(BRIEF, tries=2, cover_features=100, proposals=20)},
}


def model(**options):
    return felb.FederatedBMF(**({"n_components": 4, "random_state": 0} | options))


def same(one, other):
    np.testing.assert_array_equal(one.components_, other.components_)
    np.testing.assert_array_equal(one.supports_, other.supports_)
    assert one.counts_ == other.counts_
    if one.belief_ is not None:
        np.testing.assert_array_equal(one.belief_.theta, other.belief_.theta)


@pytest.mark.parametrize("options", KINDS.values(), ids=KINDS.keys())
def test_centralized_and_fifty_clients_agree_to_the_last_bit(options):
    groups = partition.uneven(len(SEEN), 50, seed=1)
    centralized = model(**options)
    U = centralized.fit_transform([BinaryMatrix.of(SEEN)], unknown=[CELLS])
    shared = model(**options)
    np.testing.assert_array_equal(shared.fit_transform(SEEN, unknown=CELLS, groups=groups), U)
    same(centralized, shared)


def test_clients_that_know_all_their_cells_are_treated_alike():
    cells = CELLS.copy()
    cells[:300] = False
    seen = DATA.A.toarray() & ~cells
    centralized = model().fit([BinaryMatrix.of(seen)], unknown=[cells])
    listed = model().fit(
        [seen[:300], seen[300:450], seen[450:]], unknown=[None, cells[300:450], sp.csr_array(cells[450:])]
    )
    same(centralized, listed)


@pytest.mark.parametrize("options", KINDS.values(), ids=KINDS.keys())
def test_known_cells_alone_are_counted(options):
    fitted = model(**options)
    U = fitted.fit_transform(SEEN, unknown=CELLS)
    R = fitted.inverse_transform(U)
    A = SEEN
    known = ~CELLS
    assert fitted.counts_ == Counts((A & R).sum(), (R & ~A & known).sum(), (A & ~R).sum(), known.sum())
    np.testing.assert_array_equal(fitted.supports_, U.sum(axis=0))
    assert fitted.score(SEEN, unknown=CELLS) == pytest.approx(fitted.counts_.f1, abs=0.01)


def test_no_unknown_cells_change_nothing():
    plain = model().fit(DATA.A)
    same(plain, model().fit(DATA.A, unknown=np.zeros(DATA.A.shape)))
    same(plain, model().fit(DATA.A, unknown=sp.csr_array(DATA.A.shape, dtype=bool)))
    assert plain.counts_.cells == 600 * 60


def test_all_ways_to_say_unknown_say_the_same():
    marked = model().fit(SEEN, unknown=CELLS)
    missing = np.where(CELLS, np.nan, SEEN)
    same(marked, model().fit(missing))
    same(marked, model().fit(pd.DataFrame(missing).astype("Int64")))
    same(marked, model().fit(BinaryMatrix.of(SEEN).with_unknown(CELLS)))
    half = CELLS & hidden(CELLS.shape, 0.5, seed=9)
    same(marked, model().fit(np.where(half, np.nan, SEEN), unknown=CELLS & ~half))
    frame = pd.DataFrame(missing, columns=[f"c{j}" for j in range(60)])
    named = model().fit(frame)
    assert list(named.feature_names_in_) == list(frame.columns)
    np.testing.assert_array_equal(named.transform(frame), named.transform(frame.fillna(0), unknown=CELLS))


@given(st.integers(0, 10_000), st.sampled_from(["hamming", "recover"]))
@settings(max_examples=8, deadline=None, derandomize=True)
def test_what_stood_in_unknown_cells_is_forgotten(seed, objective):
    data = planted(80, 20, 2, noise=0.05, seed=seed)
    cells = hidden(data.A.shape, 0.3, seed=seed)
    A, other = data.A.toarray(), hidden(data.A.shape, 0.5, seed=seed + 1)
    one, two = (
        model(n_components=2, objective=objective).fit(np.where(cells, np.nan, X), groups=np.arange(80) % 3)
        for X in (A, np.where(cells, other, A))
    )
    same(one, two)


@pytest.mark.parametrize("missing", ["random", "by client"])
@pytest.mark.parametrize("objective", ["hamming", "auto"])
def test_hidden_cells_are_predicted(missing, objective):
    """Cells hidden at random, or columns that a client has not measured: little is lost, and zeros would be worse."""
    data = planted(2000, 200, 10, noise=0.1, heights=(0.05, 0.25), widths=(0.05, 0.25), seed=0)
    truth, A = (data.U.astype(int) @ data.V.astype(int)) > 0, data.A.toarray()
    groups = np.arange(2000) % 10
    cells = hidden(A.shape, 0.4) if missing == "random" else hidden((10, 200), 0.4)[groups]
    options = {"n_components": 10, "objective": objective, "effort": "fast"}
    scores = {}
    for name, X, unknown in (("all", A, None), ("unknown", A & ~cells, cells), ("zeros", A & ~cells, None)):
        fitted = model(**options)
        R = fitted.inverse_transform(fitted.fit_transform(X, groups=groups, unknown=unknown))
        scores[name] = f1(R, truth), f1(R & cells, truth & cells)
    assert scores["unknown"][0] > scores["all"][0] - 0.03
    assert scores["unknown"][1] > 0.95
    assert scores["unknown"][0] > scores["zeros"][0]
    if objective == "hamming":
        assert scores["unknown"][1] > scores["zeros"][1] + 0.2


def test_rows_and_columns_of_which_nothing_is_known():
    cells = CELLS.copy()
    cells[:20], cells[:, [3, 40]] = True, True
    fitted = model()
    U = fitted.fit_transform(DATA.A.toarray() & ~cells, unknown=cells)
    assert not U[:20].any()
    assert not fitted.components_[:, [3, 40]].any()
    assert fitted.counts_.cells == (~cells).sum()
    known = ~cells.all(axis=0)
    assert f1(fitted.inverse_transform(U)[20:, known], SIGNAL[20:, known]) > 0.97
    with pytest.raises(felb.InputError, match="all cells of the data are unknown"):
        model().fit(np.full((6, 5), np.nan))


def test_transform_predicts_what_is_unknown_in_new_rows():
    fitted = model().fit(DATA.A)
    complete = fitted.transform(DATA.A)
    partial = fitted.transform(np.where(CELLS, np.nan, SEEN))
    assert (complete == partial).mean() > 0.99
    assert f1(fitted.inverse_transform(partial) & CELLS, SIGNAL & CELLS) > 0.97


@pytest.mark.parametrize(
    ("X", "unknown", "message"),
    [
        (np.eye(4), np.zeros((4, 3)), "unknown is 4 x 3.* 4 x 4"),
        (np.eye(4), np.full((4, 4), 2), "holds 2"),
        (np.eye(4), np.eye(4), "4 cells .*unknown"),
        ([np.eye(4), np.eye(4)], np.zeros((8, 4)), "unknown must be a list"),
        ([np.eye(4), np.eye(4)], [None], "unknown must be a list"),
        ([np.eye(4), np.eye(4)], [None, np.eye(4)], "4 cells are marked"),
        (np.array([[np.inf, 1.0]]), None, "holds inf"),
    ],
)
def test_bad_marks_say_what_is_wrong(X, unknown, message):
    with pytest.raises(felb.InputError, match=message):
        model(n_components=1).fit(X, unknown=unknown)


@pytest.mark.parametrize(
    "other",
    [
        felb.FELB(2),
        felb.FELBMU(2),
        felb.FedNMF(2),
        felb.Scaffold(2),
        felb.ELBMF(2),
        felb.Asso(2),
        felb.GreConD(2),
        felb.PostHoc(felb.GreConD(2), "vote"),
    ],
    ids=lambda other: type(other).__name__,
)
def test_other_methods_refuse_unknown_cells(other):
    X = BinaryMatrix.of(SEEN).with_unknown(CELLS)
    for data in (X, [X, X]) if hasattr(other, "algorithm") else (X,):
        with pytest.raises(felb.InputError, match=r"unknown cells.* \d+; .*FederatedBMF"):
            other.fit(data)
    with pytest.raises(felb.InputError, match="missing"):
        other.fit(np.where(CELLS, np.nan, SEEN))


def test_privacy_refuses_unknown_cells():
    pytest.importorskip("dp_accounting")
    with pytest.raises(felb.InputError, match=r"privacy.* known"):
        model(privacy=felb.privacy.Privacy(epsilon=1.0)).fit(SEEN, unknown=CELLS)
