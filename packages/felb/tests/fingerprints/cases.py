"""Small runs of every method whose results are compared with stored fingerprints.

``python tests/fingerprints/cases.py`` writes ``fingerprints.json`` anew; do so only when a change of results is meant.
"""

from __future__ import annotations

import hashlib
import json
import sys
import warnings
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "helpers"))

from seeded_noise import seeded_noise

import felb
from felb.data import load, partition, planted
from felb.federated.algorithms.registry import METHODS
from felb.privacy import Privacy
from felb.sklearn.methods import make

STORED = Path(__file__).with_name("fingerprints.json")
DATA = planted(160, 30, 4, noise=0.08, seed=5)
GROUPS = partition.uneven(160, 5, seed=1)
ZOO = load("zoo")
ANIMALS = partition.even(len(ZOO), 4)
UNKNOWN = (np.random.default_rng(3).random(DATA.A.shape) < 0.1) & ~DATA.A.toarray().astype(bool)
QUICK = {
    **{name: {} for name in ("asso", "grecond", "mebf", "grecond-plus", "greess", "sofa")},
    **{name: {"max_iter": 20} for name in ("zhang", "primp", "panpal", "c-salt", "faststep")},
    "elbmf": {"max_iter": 40},
}
HIGH = {"relaxed_rounds": 6, "refine_rounds": 5, "tries": 3, "cuts": False, "restarts": 0, "proposals": 60}


def bmf(k=4, **parameters):
    return felb.FederatedBMF(k, random_state=2, **parameters)


def effort(**parameters):
    from felb.federated.algorithms.bmf import Effort

    return Effort(**parameters)


def private(k=3, *, epsilon=8.0, **terms):
    parameters = {"effort": "fast"}
    secure = terms.get("noise") == "distributed"
    return bmf(k, privacy=Privacy(epsilon, 1e-5, **terms), secure=secure, **parameters)


def method(name):
    inner = name.split("+")[0]
    parameters = QUICK.get(inner, {"max_iter": 12} if inner.startswith("felb") else {})
    return make(name, n_components=4, random_state=2, **parameters)


def participation(**terms):
    return felb.Participation(**terms)


def on_planted(model, **options):
    model.fit(DATA.A, groups=GROUPS, **options)
    return model


def on_zoo(model):
    matrix = felb.BinaryMatrix.of(ZOO)
    return model.fit(matrix) if not hasattr(model, "participation") else model.fit(matrix, groups=ANIMALS)


PLANTED = {
    "bmf, fast": lambda: bmf(effort="fast"),
    "bmf, default": bmf,
    "bmf, high": lambda: bmf(effort=effort(**HIGH), objective="hamming"),
    "bmf, hamming": lambda: bmf(objective="hamming"),
    "bmf, f1": lambda: bmf(objective="f1"),
    "bmf, f1, high": lambda: bmf(effort=effort(**HIGH), objective="f1"),
    "bmf, recover": lambda: bmf(objective="recover"),
    "bmf, costs": lambda: bmf(false_positive_cost=2.5, effort="fast"),
    "bmf, mdl": lambda: bmf("mdl", max_components=9),
    "bmf, mdl, f1": lambda: bmf("mdl", max_components=7, objective="f1", effort="fast"),
    "bmf, sampled": lambda: bmf(participation=participation(fraction=0.6)),
    "bmf, sampled, f1": lambda: bmf(objective="f1", participation=participation(fraction=0.6, dropout=0.1)),
    "bmf, dropout": lambda: bmf(participation=participation(dropout=0.3)),
    "bmf, late joiner": lambda: bmf(participation=participation(joins={"3": 12})),
    "bmf, late joiner in the start": lambda: bmf(objective="hamming", participation=participation(joins={"3": 2})),
    "felb": lambda: felb.FELB(4, max_iter=15, random_state=2),
    "felb, literal": lambda: felb.FELB(4, max_iter=8, setting="literal", random_state=2),
    "felb, refined": lambda: felb.FELB(4, max_iter=8, refine=True, random_state=2),
    "felb, dropout": lambda: felb.FELB(4, max_iter=9, participation=participation(dropout=0.3), random_state=2),
    "felb-mu": lambda: felb.FELBMU(4, max_iter=15, random_state=2),
    "felb-mu, refined, sampled": lambda: felb.FELBMU(
        4, max_iter=8, refine=True, participation=participation(fraction=0.6), random_state=2
    ),
    "felb-mu, late joiner": lambda: felb.FELBMU(
        4, max_iter=9, participation=participation(joins={"3": 4}), random_state=2
    ),
    "post-hoc, refined": lambda: felb.PostHoc(felb.Asso(4), "or", refine=True, random_state=2),
    "post-hoc, elbmf, sampled": lambda: felb.PostHoc(
        felb.ELBMF(4, max_iter=40), participation=participation(fraction=0.6), random_state=2
    ),
    "private, cooccurrence": private,
    "private, row bound": lambda: private(row_bound=8),
    "private, scores": lambda: private(score_share=0.2),
    "private, statistics": lambda: private(mechanism="statistics", rounds=3),
    "private, statistics, scores": lambda: private(mechanism="statistics", rounds=2, score_share=0.2),
    "private, hybrid": lambda: private(mechanism="hybrid", rounds=2),
    "private, aggregate": lambda: private(noise="distributed", colluders=1),
    "private, felb, uploads": lambda: felb.FELB(
        3, max_iter=4, privacy=Privacy(50.0, 1e-5, unit="client", theta=5.0), random_state=2
    ),
    "private, post-hoc, bits": lambda: felb.PostHoc(
        felb.Asso(3), privacy=Privacy(300.0, 1e-5, unit="client"), random_state=2
    ),
}
CASES = {
    **{f"zoo, {name}": (lambda name=name: on_zoo(method(name))) for name in METHODS},
    **{f"planted, {name}": (lambda build=build: on_planted(build())) for name, build in PLANTED.items()},
    "unknown cells, bmf": lambda: on_planted(bmf(), unknown=UNKNOWN),
    "unknown cells, recover": lambda: on_planted(bmf(objective="recover"), unknown=UNKNOWN),
    "centralized, bmf": lambda: bmf().fit(DATA.A),
    "centralized, bmf, high": lambda: bmf(effort=effort(**HIGH), objective="hamming").fit(DATA.A),
    "centralized, bmf, high, unknown cells": lambda: bmf(effort=effort(**HIGH)).fit(DATA.A, unknown=UNKNOWN),
    "wide, private": lambda: private(2, epsilon=30.0).fit(wide(), groups=np.arange(90) % 2),
}
"""Name -> fitted estimator."""


def wide():
    """More columns than a private run takes all pairs of."""
    rng = np.random.default_rng(0)
    X = np.zeros((90, 2100), dtype=bool)
    X[:50, :12] = X[40:, 12:20] = True
    return X & (rng.random(X.shape) < 0.9)


def fingerprint(model) -> dict[str, object]:
    """Return what must stay: components bit for bit, counts, supports and rounds.

    Metrics of relaxed rounds are left out, since their last digits depend on the processor.
    """
    counts = getattr(model, "counts_", None)
    supports = model.supports_
    return {
        "components": hashlib.sha256(np.packbits(model.components_).tobytes()).hexdigest()[:16],
        "shape": list(model.components_.shape),
        "counts": None if counts is None else [counts.tp, counts.fp, counts.fn, counts.cells],
        "supports": None if supports is None else supports.tolist(),
        "rounds": len(model.history_),
    }


def found(name: str) -> dict[str, object]:
    """Run a case."""
    with warnings.catch_warnings(), seeded_noise():
        warnings.simplefilter("ignore")
        return fingerprint(CASES[name]())


if __name__ == "__main__":
    only = sys.argv[1:]
    stored = json.loads(STORED.read_text()) if only and STORED.is_file() else {}
    stored |= {name: found(name) for name in (only or CASES)}
    lines = (f"{json.dumps(name)}: {json.dumps(values)}" for name, values in stored.items())
    STORED.write_text("{\n" + ",\n".join(lines) + "\n}\n")
