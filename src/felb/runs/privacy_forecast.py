"""Forecast of the noise and the quality of a private run, from planted data of its shape.

A small simulation stands for the large run. With n', m' in place of n, m, a component keeps the share of records that
have it and has w' = w √(m'/m) features in place of w. The noise σ of a sum, beside the count that is expected of it,
stays what it is. So, of what tells components from noise, nothing is easier than at full size:

    a feature by how often it occurs                                              1/σ            the same
    a component by its w² sums, among noise of the norm σ√m                       w/(σ√m)        the same
    a feature by the w sums that it has with its component                        √w/σ           harder

Where w' must be larger, to be a pattern at all, σ grows such that the second stays the same. Fewer records also vary
more by themselves, which the real run would be spared.
"""

from __future__ import annotations

import math
import time
import warnings
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from felb.data import planted
from felb.errors import ConvergenceWarning, InputError
from felb.estimators.bmf_estimator import FederatedBMF
from felb.metrics import confusion
from felb.privacy.accountant import gaussian_epsilon
from felb.privacy.names import COOCCURRENCE, STATISTICS
from felb.privacy.noise_forecast import INSIDE, ReleaseNoise, Shape, release_noise
from felb.privacy.spec import WIDE

if TYPE_CHECKING:
    from collections.abc import Callable

    from felb.data.synthetic import Planted
    from felb.privacy import Privacy

MOST_RECORDS, MOST_FEATURES, FEATURES_PER_COMPONENT = 3000, 300, 5
LEAST_WIDTH, MOST_COVERED = 4.0, 0.5
"""Features that a scaled component has at least, and their largest share."""

FACTORS = (1.0, 0.5, 2.0, 0.25, 4.0)
"""Multiples of the requested ε that are tried, in this order."""

SEEDS, SECONDS = 3, 45.0
"""Data sets that are tried at most, and when no other run is begun, once the requested ε was tried."""

FLIPPED = 0.1
"""Wrong cells, as a share of the ones."""

DELTA_OF_SIMULATION = 1e-9
"""The simulation spends another budget than the run it stands for; only its noise matters."""

LEAST_MU, MOST_MU = 1e-3, 50.0
"""Noise beyond the first leaves nothing to see, below the second nothing of it is seen."""


@dataclass(frozen=True, slots=True)
class Expected:
    """What to expect of one ε: F1 of what is found with what was planted, for each data set tried."""

    epsilon: float
    scores: tuple[float, ...]

    @property
    def mean(self) -> float:
        """The mean over the data sets."""
        return float(np.mean(self.scores))


@dataclass(frozen=True, slots=True)
class PrivacyForecast:
    """What a private run would guarantee, how much noise that takes, and what to expect of it.

    Parameters
    ----------
    shape, simulated : the data as described, and that of the simulation
    epsilon, delta, mu : the guarantee
    statement : the same in words
    releases : noise of each release
    expected : quality by ε
    without : the same without any noise
    """

    shape: Shape
    simulated: Shape
    clients: int
    epsilon: float
    delta: float
    mu: float
    statement: str
    releases: tuple[ReleaseNoise, ...]
    expected: tuple[Expected, ...]
    without: tuple[float, ...]

    @property
    def notes(self) -> list[str]:
        """How the simulation differs from the run, in sentences."""
        real, small = self.shape, self.simulated
        held = f"each in {real.height:.0%} of the records"
        notes = [
            f"imagined: {real.n_components} components of {real.width:.3g} features, {held}; "
            f"{1 - INSIDE:.0%} of their cells missing, {FLIPPED:.0%} wrong ones"
        ]
        if (small.n_records, small.n_features) == (real.n_records, real.n_features):
            notes.append("simulated at full size, all noise added at once")
        else:
            notes.append(
                f"simulated: {small.n_records} records x {small.n_features} features, components of {small.width:.3g} "
                "features; the noise hides them no less than at full size"
            )
        if real.n_features > WIDE:
            notes.append(f"not simulated: finding the frequent among more than {WIDE} features, so expect less")
        return notes

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return {
            "shape": asdict(self.shape),
            "simulated": asdict(self.simulated),
            "clients": self.clients,
            "epsilon": self.epsilon,
            "delta": self.delta,
            "mu": self.mu,
            "statement": self.statement,
            "releases": [{**asdict(release), "relative": release.relative} for release in self.releases],
            "expected": [{"epsilon": row.epsilon, "f1": row.mean, "scores": row.scores} for row in self.expected],
            "without_noise": {"f1": float(np.mean(self.without)), "scores": self.without},
            "notes": self.notes,
        }


def forecast(
    shape: Shape,
    privacy: Privacy,
    *,
    clients: int,
    seed: int = 0,
    on_step: Callable[[int, int], None] = lambda _done, _total: None,
) -> PrivacyForecast:
    """Calibrate the noise of a run and simulate what it would find.

    Parameters
    ----------
    shape : of the data
    privacy : the specification to plan for
    clients : that would take part
    seed : fixes the planted data; the noise cannot be fixed
    on_step : called with the steps done and planned; with little time, fewer are done
    """
    if privacy.unit != "record":
        raise InputError("plans are for mechanisms that protect a record; that of the paper is for reproduction only")
    plan = privacy.plan(n_records=shape.n_records, n_clients=clients, n_columns=shape.n_features)
    releases = release_noise(plan, shape)
    small = scaled_down(shape)
    settings: list[Privacy | None] = [None]
    for epsilon in (factor * privacy.epsilon for factor in FACTORS):
        settings.append(_standing_for(replace(privacy, epsilon=epsilon), shape, small, clients=clients))
    started, scores = time.monotonic(), [list[float]() for _ in settings]
    total = SEEDS * len(settings)
    on_step(0, total)
    for number in range(SEEDS):
        data = imagine(small, seed=seed + number)
        for found, setting in zip(scores, settings, strict=True):
            if scores[1] and time.monotonic() - started > SECONDS:
                break
            found.append(_recovered(data, small.n_components, setting, seed=seed + number))
            on_step(sum(map(len, scores)), total)
    return PrivacyForecast(
        shape=shape,
        simulated=small,
        clients=clients,
        epsilon=privacy.epsilon,
        delta=plan.delta,
        mu=plan.mu,
        statement=plan.statement(),
        releases=tuple(releases),
        expected=tuple(
            Expected(factor * privacy.epsilon, tuple(found))
            for factor, found in sorted(zip(FACTORS, scores[1:], strict=True))
            if found
        ),
        without=tuple(scores[0]),
    )


def scaled_down(shape: Shape) -> Shape:
    """Return a shape small enough to be simulated, in which components are no easier to tell from noise."""
    n = min(shape.n_records, MOST_RECORDS)
    m = min(shape.n_features, max(MOST_FEATURES, FEATURES_PER_COMPONENT * shape.n_components))
    if m == shape.n_features:
        return replace(shape, n_records=n)
    width = min(
        shape.width * math.sqrt(m / shape.n_features), max(shape.width * m / shape.n_features, MOST_COVERED * m)
    )
    width = max(min(shape.width, LEAST_WIDTH), width)
    ones = INSIDE * m * (1 - (1 - shape.height * width / m) ** shape.n_components)
    return replace(shape, n_records=n, n_features=m, width=width, ones_per_record=ones)


def imagine(shape: Shape, *, seed: int) -> Planted:
    """Plant components of that shape."""
    share = round(shape.width) / shape.n_features
    flips = FLIPPED * shape.ones_per_record / shape.n_features
    n, m, k = shape.n_records, shape.n_features, shape.n_components
    height, width = (min(1.0, part + 1e-9) for part in (shape.height, share))
    return planted(n, m, k, noise=flips, density=INSIDE, heights=(height, height), widths=(width, width), seed=seed)


def noise_factor(shape: Shape, small: Shape) -> float:
    """Return by how much the noise beside a count must be larger in the simulation, for w/(σ√m) not to grow."""
    return max(1.0, small.width / shape.width * math.sqrt(shape.n_features / small.n_features))


def _standing_for(privacy: Privacy, shape: Shape, small: Shape, *, clients: int) -> Privacy:
    """Return the specification under which one client with the small data has the noise that all have with theirs."""
    bound = privacy.row_bound
    if bound is not None:
        bound = max(1, round(bound * small.ones_per_record / shape.ones_per_record))
    alone = replace(
        privacy, delta=DELTA_OF_SIMULATION, noise="client", colluders=0, dropouts=0, row_bound=bound, epsilon=1.0
    )
    plan = privacy.plan(n_records=shape.n_records, n_clients=clients, n_columns=shape.n_features)
    trial = alone.plan(n_records=small.n_records, n_clients=1, n_columns=small.n_features)
    wanted = _main(release_noise(plan, shape)) * noise_factor(shape, small)
    mu = trial.mu * _main(release_noise(trial, small)) / wanted
    return replace(alone, epsilon=gaussian_epsilon(min(MOST_MU, max(LEAST_MU, mu)), DELTA_OF_SIMULATION))


def _main(releases: list[ReleaseNoise]) -> float:
    """Return the relative noise of the release that decides the quality."""
    relative = {release.what: release.relative for release in releases}
    noise = relative.get(COOCCURRENCE, relative.get(STATISTICS))
    assert noise is not None
    return noise


def _recovered(data: Planted, n_components: int, privacy: Privacy | None, *, seed: int) -> float:
    model = FederatedBMF(n_components, objective="hamming", effort="fast", privacy=privacy, random_state=seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # where noise hides everything, that is the answer
        U = model.fit_transform(data.A)
    return float(confusion(data.signal, U, model.components_).f1)
