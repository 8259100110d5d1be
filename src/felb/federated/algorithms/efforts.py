"""Efforts of the default method: how much work a run does to leave local minima."""

from __future__ import annotations

from dataclasses import dataclass

from felb.errors import InputError


@dataclass(frozen=True, slots=True)
class Effort:
    """How much work a run does.

    Parameters
    ----------
    relaxed_rounds, refine_rounds : rounds of NMF, and of a refinement at most
    tries, patience : of `reseed`; without tries, nothing is reseeded
    cover_features : data of at most this many columns is also started from patterns of columns, see `cover`
    cuts : whether to start also from the relaxed V cut without regard to U, see `cut_relaxed`
    restarts : further starts, from random V. Of all starts, that with the smallest summed loss after refinement is
        taken
    generations : of `recombine` at most, which crosses what several starts have found, on small data
    proposals : of `local_search` and `centralized_search`; without them, there is no search
    recovery : whether the objective "auto" tries belief propagation, see `recover_if_it_may_pay`
    """

    relaxed_rounds: int = 20
    refine_rounds: int = 10
    tries: int = 30
    patience: int = 8
    cover_features: int = 1_000
    cuts: bool = True
    restarts: int = 2
    generations: int = 24
    proposals: int = 0
    recovery: bool = True


EFFORTS = {
    "fast": Effort(tries=0, cover_features=0, cuts=False, restarts=0, generations=0, recovery=False),
    "default": Effort(),
    "high": Effort(proposals=4_000),
}


def effort_named(effort: str | Effort) -> Effort:
    """Return the effort of that name, or the effort itself."""
    if isinstance(effort, Effort):
        return effort
    if effort not in EFFORTS:
        raise InputError(f"unknown effort {effort!r}; use one of {', '.join(EFFORTS)}, or an Effort")
    return EFFORTS[effort]
