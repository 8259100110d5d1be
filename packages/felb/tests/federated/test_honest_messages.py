"""Whatever a user may ask for, every request passes the checks of every client and every response those of the server.

The checks are those of a deployed federation, since a simulation uses the same client and the same validator: a run
that ends without an error has passed them. So each case is a run, and what is drawn are the settings.
"""

import warnings
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import felb
from felb.engines.local import run
from felb.errors import InputError
from felb.federated.algorithms.bmf import Effort, federated_bmf
from felb.federated.protocol import Participation
from felb.privacy import Privacy
from felb.privacy.disclosure import Disclosure

SMALL = Effort(
    relaxed_rounds=2, refine_rounds=2, tries=2, patience=2, cover_features=1_000, restarts=1, generations=2, proposals=8
)
"""Every step of the default method, a few rounds each."""

METHODS = {
    "bmf": felb.FederatedBMF,
    "felb": felb.FELB,
    "felb-mu": felb.FELBMU,
    "fednmf": felb.FedNMF,
    "fedprox": felb.FedProx,
    "scaffold": felb.Scaffold,
    "proxskip": felb.ProxSkip,
    "vote": lambda **options: felb.PostHoc(felb.Asso(options.pop("n_components")), "vote", **options),
    "aligned": lambda **options: felb.PostHoc(felb.GreConD(options.pop("n_components")), "aligned-or", **options),
}


@st.composite
def data(draw):
    """Rows of any kind, also without ones or with ones only, and the client of each row."""
    n, m, seed = draw(st.integers(4, 60)), draw(st.integers(1, 14)), draw(st.integers(0, 2**16))
    density = draw(st.sampled_from([0.0, 0.05, 0.3, 0.7, 1.0]))
    rng = np.random.default_rng(seed)
    clients = draw(st.integers(1, min(4, n)))
    groups = np.concatenate([np.arange(clients), rng.integers(0, clients, n - clients)])
    return rng.random((n, m)) < density, groups, rng


def fit(model, A, groups, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            model.fit(A, groups=groups, **options)
        except InputError:
            return None  # the API does not accept these settings together
    return model


@settings(max_examples=60)
@given(data(), st.data())
def test_every_message_of_the_default_method_passes(rows, draw):
    A, groups, rng = rows
    objective = draw.draw(st.sampled_from(["auto", "hamming", "f1", "recover"]))
    costs = draw.draw(st.sampled_from([(1.0, 1.0), (2.0, 1.0), (1.0, 3.5), (np.inf, 1.0), (1.0, np.inf)]))
    unknown = (rng.random(A.shape) < 0.2) & ~A if draw.draw(st.booleans()) else None
    fit(
        felb.FederatedBMF(
            n_components=draw.draw(st.one_of(st.integers(1, min(A.shape)), st.just("mdl"))),
            max_components=5,
            objective=objective,
            effort=draw.draw(st.sampled_from([SMALL, "fast"])),
            false_positive_cost=costs[0],
            false_negative_cost=costs[1],
            participation=draw.draw(st.sampled_from([None, Participation(0.5), Participation(1.0, dropout=0.3)])),
            random_state=0,
        ),
        A.astype(int),
        groups if draw.draw(st.booleans()) else None,
        unknown=unknown,
    )


@pytest.mark.parametrize("method", [name for name in METHODS if name != "bmf"])
@settings(max_examples=10)
@given(data(), st.data())
def test_every_message_of_the_other_methods_passes(method, rows, draw):
    A, groups, _ = rows
    options = {"max_iter": 3} if method not in ("vote", "aligned") else {}
    if method in ("felb", "felb-mu"):
        options["setting"] = draw.draw(st.sampled_from(["recommended", "unweighted", "literal"]))
        options["refine"] = draw.draw(st.booleans())
    model = METHODS[method](
        n_components=draw.draw(st.integers(1, min(A.shape))),
        participation=draw.draw(st.sampled_from([None, Participation(0.5)])),
        secure=draw.draw(st.booleans()),
        random_state=0,
        **options,
    )
    fit(model, A.astype(int), groups)


@settings(max_examples=8)
@given(data(), st.sampled_from(["cooccurrence", "statistics", "hybrid"]))
def test_every_message_of_a_private_run_passes(rows, mechanism):
    A, groups, _ = rows
    privacy = Privacy(epsilon=2.0, mechanism=mechanism, score_share=0.1)
    fit(felb.FederatedBMF(n_components=min(2, *A.shape), effort="fast", privacy=privacy), A.astype(int), groups)


def shards_of(data, clients):
    matrix = felb.data.BinaryMatrix.of(data.A.to_dense() if hasattr(data.A, "to_dense") else data.A)
    cuts = np.linspace(0, len(matrix), clients + 1).astype(int)
    return {f"site-{i}": matrix.rows(a, b) for i, (a, b) in enumerate(pairwise(cuts))}


def test_a_sample_of_the_rows_is_not_taken_for_all_of_them():
    """From about a thousand rows on, a trial of recovery asks for a share of the rows."""
    planted = felb.data.planted(1_500, 30, 3, noise=0.25, seed=1)
    algorithm = federated_bmf(30, 3, effort=replace(SMALL, proposals=0))
    finished = run(algorithm, shards_of(planted, 3), seed=0)
    assert "belief_statistics" in {row["task"] for row in finished.history}


def test_starts_from_below_are_asked_under_disclosure_rules_too():
    planted = felb.data.planted(120, 12, 4, noise=0.05, seed=1)
    algorithm = federated_bmf(12, 4, effort=replace(SMALL, proposals=0))
    asked = set()
    spec = algorithm.tasks["flip_gains"]

    def watched(work):
        asked.add((work.weights, work.least))
        return spec.do(work)

    watching = replace(algorithm, tasks={**algorithm.tasks, "flip_gains": replace(spec, do=watched)})
    run(watching, shards_of(planted, 3), seed=0, disclosure=Disclosure(5, 1, None, 1))
    assert ((1.0, -13.0), 5) in asked
