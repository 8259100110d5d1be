"""A coordinator that lies freely within the protocol and tries to read a person's record.

False sums let a coordinator choose components, candidates and bases nearly at will, so the attacks are given more than
that: they ask any request that the declarations of the approved algorithm admit. The victim is a record of which the
coordinator knows some codes that no other record of the federation has together. An attack returns what it claims to
have read of the other features; what it does not claim is guessed from the marginals, as everybody can.

A new attack is a function with the decorator `attack`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from felb.data.binary import BinaryMatrix
from felb.errors import FederationError
from felb.federated.algorithms.bmf import federated_bmf
from felb.federated.client import Client
from felb.federated.gate import Gate
from felb.federated.protocol import Request
from felb.kernels import SKETCH_BITS

if TYPE_CHECKING:
    from collections.abc import Callable

    from felb.privacy.disclosure import Disclosure

AT_ONCE = 40
"""Candidates in a request."""


@dataclass
class Coordinator:
    """What a coordinator sees of some sites.

    Parameters
    ----------
    sites : rows of each
    rules : of every site; None for none
    cost : of a covered zero in the approved plan
    masked : only sums over the sites are seen
    """

    sites: list[np.ndarray]
    rules: Disclosure | None
    cost: float
    masked: bool = True

    def __post_init__(self):
        m = self.sites[0].shape[1]
        self.weights = (1.0, -float(self.cost))
        self.algorithm = federated_bmf(m, 8, objective="hamming", false_positive_cost=float(self.cost))
        self.clients = [
            Client(str(i), self.algorithm, Gate(str(i), lambda _: None, disclosure=self.rules), seed=0)
            for i in range(len(self.sites))
        ]
        self.rows = [BinaryMatrix.of(site) for site in self.sites]

    def ask(self, task, **values):
        """Return what is seen of the responses to a request: their sum, or one of each site."""
        request = Request(task, **values)
        seen = [
            client.answer(None, rows, request)[1].values for client, rows in zip(self.clients, self.rows, strict=True)
        ]
        if not self.masked:
            return seen
        return [{name: sum(np.asarray(one[name], np.int64) for one in seen) for name in seen[0]}]


ATTACKS: dict[str, Callable] = {}
NOT_STOPPED = {"differences of large groups", "large groups: what all of them have"}
"""Attacks that no rule stops; the page of `benchmarks/adversary.py` has their figures."""


def attack(name):
    """Add a function (coordinator, known codes, other features) -> claimed cells by feature to the attacks."""

    def add(function):
        ATTACKS[name] = function
        return function

    return add


def sets_of(known, features, m):
    """Return the known codes alone, and with each of some features."""
    found = np.zeros((1 + len(features), m), dtype=bool)
    found[:, known] = True
    found[np.arange(1, len(features) + 1), features] = True
    return found


def in_parts(features):
    return [features[i : i + AT_ONCE] for i in range(0, len(features), AT_ONCE)]


@attack("candidates: known codes and one more")
def count_candidates(coordinator, known, others):
    """At a high cost a candidate pays only in the records that hold all of it."""
    m, claims = coordinator.sites[0].shape[1], {}
    nothing = {"components": np.zeros((1, m), bool), "weights": coordinator.weights}
    for part in in_parts(others):
        candidates = sets_of(known, part, m)
        for seen in coordinator.ask("candidate_gains", **nothing, candidates=candidates):
            supports = seen["ones"] // candidates.sum(axis=1)
            if supports[0] == 1:
                claims |= dict(zip(part, supports[1:] > 0, strict=True))
    return claims


@attack("components: right cells with and without one more")
def count_components(coordinator, known, others):
    """Beside a common component, another one of the known codes and one more changes the counts by the victim."""
    m, claims = coordinator.sites[0].shape[1], {}
    common = int(np.argmax(sum(site.sum(axis=0) for site in coordinator.sites)))
    for part in in_parts(others):
        V = np.zeros((2 + len(part), 2, m), dtype=bool)
        V[:, 0, common] = True
        V[1:, 1] = sets_of(known, part, m)
        for seen in coordinator.ask("stacked_gains", candidates=V, weights=coordinator.weights):
            more = seen["counts"][1:, 0] - seen["counts"][0, 0]
            if 0 < more[0] <= len(known):
                claims |= dict(zip(part, more[1:] > 0, strict=True))
    return claims


@attack("gains: a component of the known codes")
def read_gains(coordinator, known, others):
    """The gain of an entry of a component that only the victim has is the victim's cell."""
    m, claims = coordinator.sites[0].shape[1], {}
    V = sets_of(known, [], m)
    for seen in coordinator.ask("flip_gains", components=V, weights=coordinator.weights):
        gains = seen["gains"][0]
        if seen["supports"][0] == 1 or gains[known[0]] == 1:
            claims |= {j: gains[j] > 0 for j in others}
    return claims


@attack("sketches: the pairs of a known code")
def read_sketch(coordinator, known, others):
    """A unit vector in the basis tells how often a feature occurs together with all others."""
    m, claims = coordinator.sites[0].shape[1], {}
    for seen in coordinator.ask("gram_sketch", Q=np.eye(m)[:, known]):
        pairs = np.rint(np.ldexp(seen["sketch"].astype(float), -SKETCH_BITS))
        for place, code in enumerate(known):
            if pairs[code, place] == 1:
                claims |= {j: pairs[j, place] > 0 for j in others}
    return claims


@attack("relaxed rows: a component of the known codes")
def read_statistics(coordinator, known, others):
    """A V that leaves to a component only rows with all known codes makes AᵀU a sum over these."""
    m, claims = coordinator.sites[0].shape[1], {}
    V = np.zeros((2, m), dtype=np.float32)
    V[0, known] = 1.0
    V[1, known] = (len(known) - 0.5) / (0.1 * len(known))
    for seen in coordinator.ask("factor_statistics", V=V):
        part = seen["AtU"][:, 0]
        if part[known].min() > 0 and part[known].min() == part.max():
            claims |= {j: part[j] > 0 for j in others}
    return claims


@attack("differences of large groups")
def subtract_groups(coordinator, known, others):
    """Of the records with a known code all but one have another feature; if the victim is the one, it is read."""
    m, claims = coordinator.sites[0].shape[1], {}
    for code in known:
        supports = count_supports(coordinator, sets_of([code], others, m))
        for place in np.flatnonzero(supports[0] - supports[1:] == 1)[:1]:
            rest = [j for j in others if j != others[place]]
            whole = count_supports(coordinator, sets_of([code], rest, m))
            part = count_supports(coordinator, sets_of([code, others[place]], rest, m))
            claims |= {j: w > p for j, w, p in zip(rest, whole[1:], part[1:], strict=True) if w - p in (0, 1)}
    return claims


@attack("large groups: what all of them have")
def read_common(coordinator, known, others):
    """What all records with some of the known codes have the victim has, however many they are."""
    m, claims = coordinator.sites[0].shape[1], {}
    for size in range(1, len(known) + 1):
        supports = count_supports(coordinator, sets_of(known[:size], others, m))
        if supports[0] > 0:
            claims |= {j: True for j, support in zip(others, supports[1:], strict=True) if support == supports[0]}
    return claims


def count_supports(coordinator, sets):
    """Return how many records of all sites hold each set, as far as it is told."""
    nothing = {"components": np.zeros((1, sets.shape[1]), bool), "weights": coordinator.weights}
    seen = coordinator.ask("candidate_gains", **nothing, candidates=sets)
    return sum(one["ones"] for one in seen) // sets.sum(axis=1)


@dataclass
class Score:
    """Accuracy of an attack over victims, and that of guessing from the marginals."""

    read: list[float]
    guessed: list[float]
    claimed: int = 0

    @property
    def advantage(self):
        return float(np.mean(self.read) - np.mean(self.guessed))

    @property
    def upper(self):
        """Upper end of a 95% confidence interval of the advantage, from the differences of the victims."""
        gain = np.asarray(self.read) - np.asarray(self.guessed)
        return float(gain.mean() + 1.645 * gain.std() / np.sqrt(len(gain)))


def make_sites(n_sites=3, n_rows=200, n_features=40, seed=0):
    """Return records of a few groups with codes that hardly depend on them, as in a hospital."""
    rng = np.random.default_rng(seed)
    groups = rng.random((4, n_features)) < 0.2
    rates = rng.choice([0.0, 0.02, 0.1, 0.3, 0.5], n_features, p=[0.1, 0.25, 0.25, 0.2, 0.2])
    rows = rng.random((n_sites * n_rows, n_features)) < rates
    rows |= groups[rng.integers(0, 4, len(rows))] & (rng.random(rows.shape) < 0.7) & (rates > 0)
    rows[rng.integers(0, len(rows), n_features), np.arange(n_features)] = True  # the only one of a code, where none is
    return np.split(rows, n_sites)


def choose_victims(sites, n_known, count, seed=0):
    """Return records of which so many codes, chosen at random, are in no other record: (record, known codes)."""
    rng = np.random.default_rng(seed)
    rows = np.concatenate(sites)
    found = []
    for place in rng.permutation(len(rows)):
        codes = np.flatnonzero(rows[place])
        for _ in range(200 if len(codes) >= n_known else 0):
            known = np.sort(rng.choice(codes, n_known, replace=False))
            if rows[:, known].all(axis=1).sum() == 1:
                found.append((rows[place], known.tolist()))
                break
        if len(found) == count:
            break
    return found


def play(name, rules, *, sites, victims, cost, masked):
    """Play an attack against all victims."""
    coordinator = Coordinator(sites, rules, cost, masked)
    guess = np.concatenate(sites).mean(axis=0) > 0.5
    score = Score([], [])
    for record, known in victims:
        others = [j for j in range(len(record)) if j not in known]
        try:
            claims = ATTACKS[name](coordinator, known, others)
        except FederationError:
            claims = {}  # what a site refuses is not read
        score.claimed += len(claims)
        right = [bool(claims.get(j, guess[j])) == record[j] for j in others]
        score.read.append(float(np.mean(right)))
        score.guessed.append(float(np.mean(guess[others] == record[others])))
    return score
