"""One client's rows in several threads: the same bits as in one, for every task, state and number of threads."""

from dataclasses import replace

import numpy as np
import pytest

import felb
from felb.data import planted
from felb.engines import local
from felb.federated.algorithms import bmf
from felb.federated.algorithms.bmf import Effort
from felb.federated.steps.state import ClientState, Cover
from felb.progress import Deadline

DATA = planted(301, 40, 4, noise=0.2, seed=1)
QUICK = {"relaxed_rounds": 4, "refine_rounds": 3, "tries": 3, "restarts": 1}


@pytest.fixture(autouse=True)
def _small_spans(monkeypatch):
    monkeypatch.setattr(local, "LEAST_ONES", 1)


@pytest.mark.parametrize(
    "parameters",
    [
        {"effort": Effort(**QUICK)},
        {"effort": "fast"},
        {"effort": Effort(**QUICK, proposals=20)},
        {"objective": "recover"},
        {"objective": "f1", "effort": Effort(**QUICK)},
        {"n_components": "mdl", "max_components": 6, "effort": Effort(**QUICK)},
    ],
)
def test_a_fit_has_the_same_bits_in_any_number_of_threads(parameters):
    def fitted(n_jobs):
        model = felb.FederatedBMF(**({"n_components": 4} | parameters), n_jobs=n_jobs, random_state=0)
        return model.fit_transform(DATA.A), model

    U, one = fitted(1)
    for n_jobs in (2, 5):
        again, model = fitted(n_jobs)
        np.testing.assert_array_equal(again, U)
        np.testing.assert_array_equal(model.components_, one.components_)
        assert model.counts_ == one.counts_
        assert list(model.history_) == list(one.history_)


def test_unknown_cells_are_cut_with_their_rows():
    unknown = (np.random.default_rng(0).random(DATA.A.shape) < 0.1) & ~DATA.A.toarray()
    models = [
        felb.FederatedBMF(4, effort="fast", n_jobs=n_jobs, random_state=0).fit(DATA.A, unknown=unknown)
        for n_jobs in (1, 3)
    ]
    np.testing.assert_array_equal(models[0].components_, models[1].components_)
    assert models[0].counts_ == models[1].counts_


def test_a_state_is_cut_and_joined_by_rows():
    rng = np.random.default_rng(0)
    cover = Cover(rng.random((2, 3)) < 0.5, np.ones(2), rng.random((7, 2)) < 0.5)
    state = ClientState(relaxed=rng.random((7, 2)), log_odds=rng.random((7, 2)).astype(np.float32), cover=cover)
    joined = ClientState.joined([state.rows(0, 3), state.rows(3, 4), state.rows(4, 7)])
    np.testing.assert_array_equal(joined.relaxed, state.relaxed)
    np.testing.assert_array_equal(joined.log_odds, state.log_odds)
    np.testing.assert_array_equal(joined.cover.assigned, cover.assigned)
    assert joined.assigned is None


def change_task(monkeypatch, name, change):
    """Replace what a task of the default method does."""
    specs = (replace(spec, do=change(spec.do)) if spec.name == name else spec for spec in bmf.BMF_TASKS)
    monkeypatch.setattr(bmf, "BMF_TASKS", tuple(specs))


def test_an_error_in_a_thread_is_that_of_the_fit(monkeypatch):
    def fails(_):
        raise felb.errors.InputError("a task failed")

    change_task(monkeypatch, "flip_gains", lambda _: fails)
    with pytest.raises(felb.errors.InputError, match="a task failed"):
        felb.FederatedBMF(4, n_jobs=2, random_state=0).fit(DATA.A)


def test_the_deadline_reaches_the_threads(monkeypatch):
    seen = []

    def looking(assign):
        def do(work):
            seen.append(felb.progress.current_deadline())
            return assign(work)

        return do

    change_task(monkeypatch, "assign", looking)
    felb.FederatedBMF(4, effort="fast", time_limit=60.0, n_jobs=2, random_state=0).fit(DATA.A)
    assert len(seen) == 2
    assert all(isinstance(deadline, Deadline) for deadline in seen)
