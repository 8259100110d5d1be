"""Small data, plans and looks into stores, for tests of vaults."""

from __future__ import annotations

import numpy as np
from loopback import Loopback

from felb.data import partition, planted
from felb.data.partition import split
from felb.privacy import mechanisms
from felb_sites.envelopes import read_envelope
from felb_sites.reasons import REASONS
from felb_sites.run_plan import Plan

N, M, K = 90, 10, 2
NAMES = ("site-1", "site-2", "site-3")
TERMS = {"epsilon": 1.0, "delta": 1e-5}
UNDECIDED = {"auto_approve": ()}


def make_shards(n=N, m=M, k=K, *, seed=1, sites=3):
    data = planted(n, m, k, noise=0.05, seed=seed)
    names = np.array([f"site-{i + 1}" for i in range(sites)])
    return split(data.A, names[partition.even(n, sites)])[0]


def exact_plan(run="r1", **values):
    return Plan(run, "felb-mu", K, M, {"max_iter": 3}, **{"sites": 3, **values})


def private_plan(run="p1", *, sites=3, columns=None, **terms):
    privacy = {**TERMS, **terms}
    return Plan(run, "bmf", K, M, {"effort": "fast"}, privacy=privacy, records=N, sites=sites, columns=columns)


def make_loopback(folder, **policy):
    return Loopback(folder, make_shards(), **policy)


def seed_noise(monkeypatch):
    """Let noise depend on nothing but its scale and size, so that two engines draw the same."""

    def sampler(sigma, size):
        return np.rint(np.random.default_rng([int(1000 * sigma), size]).normal(0, sigma, size)).astype(np.int64)

    monkeypatch.setattr(mechanisms, "discrete_gaussian", sampler)


def notes(loop, name="site-1"):
    """Return why a site has refused something, in its own words."""
    return [row["reason"] for row in loop.vaults[name].store.rows("select reason from refusals order by seq")]


def charges(loop, name="site-1"):
    rows = loop.vaults[name].store.rows("select run, epsilon, delta, unit, neighbours from budget order by run")
    return [tuple(row) for row in rows]


def plain_lines(loop, name="site-1"):
    """Return the lines of the log without what differs between two runs."""
    return [{k: v for k, v in line.items() if k not in ("time", "hash", "previous")} for line in loop.lines(name)]


def outbox(loop, name="site-1"):
    return loop.vaults[name].store.rows("select run, kind, number, body from outbox order by seq")


def receipts(loop, name="site-1"):
    """Return digests of all envelopes that a site has acknowledged, on their way or not."""
    found = {bytes(row["digest"]) for row in loop.vaults[name].store.rows("select digest from receipts")}
    for row in outbox(loop, name):
        found |= set(read_envelope(row["body"]).header.receipts)
    return found


def said_refusals(loop, name="site-1"):
    """Return the refusals that are new, each a word of the list."""
    found = [message for header, message in loop.read(name) if header.kind == "refusal"]
    assert all(message.code in REASONS for message in found)
    return found
