"""The readings of Alg. 1, and the ladder from the literal setting of FELB and FELB-MU to the recommended one.

    python benchmarks/readings.py
    python benchmarks/readings.py --all --seeds 3
    python benchmarks/readings.py --only elbmf

Readings: Alg. 1 in plain NumPy (`felb_paper.printed`) with one open point read differently at a time. Ladder: felb
itself, each rung with one change more than the one above it. Planted data: 2000 x 200, ten tiles, 5, 20 and 30% of the
cells flipped. Real data: zoo (5 components), soybean (10 components), 600 rows and the 200 heaviest columns of
sc_10x_brain_10k (20 components). Ten clients; mean over the seeds of data, split and method.
Writes READINGS.md. With --only elbmf, prints F1 of ELBMF as felb has it and as published, centralized and by
the vote of ten clients, on at most 3000 rows and 300 columns of real data.
"""

from __future__ import annotations

import math
import time
import warnings
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from common import FOLDER, make_parser, real, write_page

import felb
from felb.data import load, partition, planted
from felb.data.files import SHIPPED
from felb.data.partition import split
from felb.federated.algorithms.felb import LITERAL, RECOMMENDED, Setting
from felb.kernels.assign import assign_rows
from felb.metrics import confusion
from felb_paper.cells import PUBLISHED_ELBMF
from felb_paper.measuring import subset
from felb_paper.printed import CHOSEN, Reading, run_printed

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

METHODS = {"FELB": felb.FELB, "FELB-MU": felb.FELBMU}

READINGS: Mapping[str, Reading] = {
    'chosen (`setting="literal"`)': CHOSEN,
    "γ = 0.1": replace(CHOSEN, gamma=0.1),
    "γ = 10": replace(CHOSEN, gamma=10.0),
    "step 1/L, L = ‖G‖ (Frobenius)": replace(CHOSEN, step="inverse"),
    "step 1/L, L = ‖G‖ (spectral)": replace(CHOSEN, step="inverse", norm="spectral"),
    "step 1/L of the whole loss, L = 2‖G‖ (spectral)": replace(CHOSEN, step="inverse", norm="spectral", loss="whole"),
    "t counts rounds": replace(CHOSEN, clock="rounds"),
    "one random V̂ for all": replace(CHOSEN, start="shared"),
    "all 100 rounds": replace(CHOSEN, tol=None),
    "U_i kept and cut at ½": replace(CHOSEN, rows="kept"),
    "factors in [0, 1]": replace(CHOSEN, high=1.0),
    "factors without bounds": replace(CHOSEN, low=-math.inf),
    "exact proximal operator": replace(CHOSEN, exact=True),
    "mean without the server's operator": replace(CHOSEN, aggregation="mean"),
}


def climb() -> dict[str, Setting]:
    """Return the rungs of the ladder, each with one change more than the one before."""
    changes: dict[str, dict[str, Any]] = {
        "literal": {},
        "one random V̂ for all": {"start": "random"},
        "factors in [0, 1]": {"boxed": True},
        "t counts rounds": {"clock": "rounds"},
        "weights in units of curvature, λ = .001, κ = 0, γ = .3": {
            "units": "curvature", "l1": RECOMMENDED.l1, "l2": RECOMMENDED.l2, "proximity": RECOMMENDED.proximity,
        },
        "200 rounds, end at a gap of ¼": {"max_iter": RECOMMENDED.max_iter, "tol": RECOMMENDED.tol},
        "b steps of U_i, then b of V_i": {"order": "blocks"},
        "average by curvature": {"average": "curvature"},
        "a step size for each component": {"step": "component"},
        "floor of .001 for FELB-MU": {"floor": RECOMMENDED.floor},
        "spectral start = recommended": {"start": "spectral"},
    }  # fmt: skip
    rungs, setting = {}, LITERAL
    for name, change in changes.items():
        setting = replace(setting, **change)
        rungs[name] = setting
    assert setting == RECOMMENDED
    return rungs


SLOW = ("t counts rounds", "all 100 rounds", "mean without", "weights in units", "200 rounds")
NOT_ALL = """
Choices that play 100 rounds of alternating steps are left out (`--all` measures them): t in rounds, all 100 rounds, the
mean alone; of the ladder t in rounds, weights in units of curvature, and 200 rounds with an end at a gap of ¼. The
rungs below have these changes too."""


def choose(choices: Mapping[str, Any], everything: bool) -> dict[str, Any]:
    """Return all choices, or those that take minutes."""
    return {label: choice for label, choice in choices.items() if everything or not label.startswith(SLOW)}


@dataclass(frozen=True)
class Problem:
    """Data, its clients, and the planted signal where there is one."""

    A: felb.BinaryMatrix
    clients: np.ndarray
    k: int
    signal: felb.BinaryMatrix | None = None


def make_problems(seed: int) -> dict[str, Problem]:
    """Return the data sets by name."""
    found = {}
    for noise in (0.05, 0.2, 0.3):
        data = planted(2000, 200, 10, noise=noise, seed=seed)
        found[f"planted, {noise:.0%}"] = Problem(data.A, partition.even(2000, 10, seed=seed), 10, data.signal)
    brain = subset(load("sc_10x_brain_10k"), 600, 200, seed=seed)
    sets = {"zoo": (load("zoo"), 5, 10), "soybean": (load("soybean"), 10, 10), "brain": (brain, 20, 10)}
    for name, (A, k, clients) in sets.items():
        found[name] = Problem(A, partition.even(len(A), clients, seed=seed), k)
    return found


Scores = dict[str, float]


def score_reading(problem: Problem, method: str, reading: Reading, seed: int) -> Scores:
    """Return F1, F1* and rounds of Alg. 1 in plain NumPy."""
    shards, rows = split(problem.A, problem.clients)
    parts = [shard.toarray() for shard in shards.values()]
    found = run_printed(parts, problem.k, multiplicative=method == "FELB-MU", reading=reading, seed=seed)
    U = assign_rows(problem.A, found.V)
    if found.U is not None:
        for picked, own in zip(rows.values(), found.U, strict=True):
            U[picked] = own
    return scores_of(problem, U, found.V, found.rounds)


def score_setting(problem: Problem, method: str, setting: Setting, seed: int) -> Scores:
    """Return the same of felb."""
    model = METHODS[method](problem.k, setting=setting, random_state=seed)
    U = model.fit_transform(problem.A, groups=problem.clients)
    return scores_of(problem, U, model.components_, model.n_iter_)


def scores_of(problem: Problem, U: np.ndarray, V: np.ndarray, rounds: int) -> Scores:
    """Return the figures of a result."""
    star = {} if problem.signal is None else {"F1*": confusion(problem.signal, U, V).f1}
    return {"F1": confusion(problem.A, U, V).f1, "rounds": float(rounds), **star}


def tabulate(choices: Mapping[str, Any], score: Callable[..., Scores], seeds: int) -> str:
    """Return the tables of F1*, F1 and rounds: a row for each choice, FELB / FELB-MU for each data set."""
    problems = [make_problems(seed) for seed in range(seeds)]
    names = list(problems[0])
    means: dict[tuple[str, str, str], dict[str, float]] = {}
    for label, choice in choices.items():
        start = time.perf_counter()
        for name in names:
            for method in METHODS:
                runs = [score(problems[seed][name], method, choice, seed) for seed in range(seeds)]
                means[label, name, method] = {key: float(np.mean([run[key] for run in runs])) for key in runs[0]}
        told = {f"{name}, {method}": means[label, name, method] for name in names for method in METHODS}
        print(f"{label}: {time.perf_counter() - start:.0f} s, {told}", flush=True)
    parts = []
    for key, digits in (("F1*", 3), ("F1", 3), ("rounds", 0)):
        shown = [name for name in names if any(key in means[label, name, "FELB"] for label in choices)]
        rows = [
            f"| {label} | "
            + " | ".join(
                " / ".join(f"{means[label, name, method][key]:.{digits}f}" for method in METHODS) for name in shown
            )
            + " |"
            for label in choices
        ]
        head = f"| {key}, FELB / FELB-MU | " + " | ".join(shown) + " |"
        parts += [head, "|---|" + "---|" * len(shown), *rows, ""]
    return "\n".join(parts).replace("F1*", "F1\\*")


def compare_elbmf() -> str:
    """Return the table of ELBMF in both settings, with the published weights."""
    rows = ["| data | recommended | published | recommended, vote | published, vote |", "|---|---|---|---|---|"]
    for name, k in {"zoo": 5, "soybean": 10, "bmf_mushroom": 20, "msweb": 20}.items():
        whole = load(name) if name in SHIPPED else real(name, FOLDER)
        if whole is None:
            continue
        A, alone, voted = subset(whole, 3000, 300), [], []
        for setting in ("recommended", "published"):
            model = felb.ELBMF(k, **PUBLISHED_ELBMF, max_iter=1000, setting=setting, random_state=0)
            U = model.fit_transform(A)
            alone.append(confusion(A, U, model.components_).f1)
            vote = felb.PostHoc(felb.ELBMF(k, **PUBLISHED_ELBMF, max_iter=1000, setting=setting), random_state=0)
            voted.append(vote.fit(A, groups=partition.even(len(A), 10, seed=0)).counts_.f1)
        rows.append(f"| {name} | " + " | ".join(f"{f1:.3f}" for f1 in (*alone, *voted)) + " |")
    return "\n".join(rows)


def main() -> None:
    """Measure both and write the page."""
    parser = make_parser(__doc__)
    parser.add_argument("--seeds", type=int, metavar="N", help="default: 2 for the readings, 1 for the ladder")
    parser.add_argument("--all", action="store_true", help="also what plays 100 rounds of alternating steps, for hours")
    parser.add_argument("--only", choices=("readings", "ladder", "elbmf"), help="print this part, write nothing")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    parts = {
        "elbmf": compare_elbmf,
        "readings": lambda: tabulate(choose(READINGS, options.all), score_reading, options.seeds or 2),
        "ladder": lambda: tabulate(choose(climb(), options.all), score_setting, options.seeds or 1),
    }
    if options.only:
        print(parts[options.only]())
        return
    text = f"""# Readings of Alg. 1, and the ladder to the recommended setting

Mean of {options.seeds or 2} seeds for the readings, of {options.seeds or 1} for the ladder;
`python benchmarks/readings.py` measures it and describes the data. [The readings](../docs/explanation/readings.md) says
what the paper prints about each point. {"" if options.all else NOT_ALL}

## One open point read differently at a time

{parts["readings"]()}
## From literal to recommended, one change a rung

{parts["ladder"]()}"""
    write_page(Path(__file__).with_name("READINGS.md"), text)


if __name__ == "__main__":
    main()
