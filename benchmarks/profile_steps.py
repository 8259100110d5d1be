"""Processor seconds of a fit by step, and all of them against scikit-learn's NMF of the same data and rank.

    python benchmarks/profile_steps.py                                  five data sets, fast and default
    python benchmarks/profile_steps.py bmf_mushroom --efforts default --record

Every fit runs in one thread on pooled rows, with the objective "auto". The two are run in turn in one process, and the
processor time of the process is taken, not that of a clock, so that a busy machine matters little. NMF is that of
scikit-learn with cd, nndsvd, tol = 1e-4 and at most 200 iterations. With --record, writes PROFILE_STEPS.md.
"""

from __future__ import annotations

import sys
import time
import warnings
from collections import Counter
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import numpy as np
from common import FOLDER, listed, make_parser, real, write_page
from sklearn.decomposition import NMF
from threadpoolctl import threadpool_limits

import felb
from felb.data import planted
from felb.federated.algorithms import bmf
from felb.federated.steps.state import step

if TYPE_CHECKING:
    from collections.abc import Iterator

    from felb.federated.steps.state import Steps
    from felb.federated.tasks import TaskSpec, Work

NAMES = ("bmf_mushroom", "sc_10x_brain_10k", "go_human_genes", "wordnet_glosses", "cps_280k")
TABLE = Path(__file__).with_name("PROFILE_STEPS.md")
COMPONENTS = 20
BARS = {"fast": 1.0, "default": 3.0}
SERVER, ASSIGNMENT = "server", "assignment"


class StepClock:
    """Processor seconds of the clients' tasks by the step that asked for them."""

    def __init__(self) -> None:
        self.seconds: Counter[str] = Counter()
        self._within: list[str] = []

    def step(self, name: str, generator: Steps, *, interruptible: bool = False) -> Steps:
        """Play a step as `felb.federated.steps.state.step` does, and know that it is being played."""

        def known() -> Steps:
            self._within.append(name)
            try:
                return (yield from generator)
            finally:
                self._within.pop()

        return (yield from step(name, known(), interruptible=interruptible))

    def timed(self, spec: TaskSpec) -> TaskSpec:
        """Return a task whose processor time is charged to the innermost step."""

        def do(work: Work) -> Any:
            start = time.process_time()
            try:
                return spec.do(work)
            finally:
                name = self._within[-1] if self._within else ASSIGNMENT
                self.seconds[name] += time.process_time() - start

        return replace(spec, do=do)

    @contextmanager
    def attached(self) -> Iterator[None]:
        """Charge the tasks of fits within this block."""
        with (
            patch.object(bmf, "step", self.step),
            patch.object(bmf, "BMF_TASKS", tuple(map(self.timed, bmf.BMF_TASKS))),
            patch.object(bmf, "CENTRALIZED_SEARCH", self.timed(bmf.CENTRALIZED_SEARCH)),
        ):
            yield


def profile(A: felb.BinaryMatrix, effort: str, k: int) -> tuple[Counter[str], felb.FederatedBMF]:
    """Fit once; return the seconds by step and the model."""
    clock = StepClock()
    start = time.process_time()
    with clock.attached():
        model = felb.FederatedBMF(k, effort=effort, n_jobs=1, random_state=0).fit(A)
    clock.seconds[SERVER] = time.process_time() - start - clock.seconds.total()
    return clock.seconds, model


def nmf_seconds(A: felb.BinaryMatrix, k: int) -> float:
    """Return the processor seconds of scikit-learn's NMF."""
    X = A.to_scipy(np.float32)
    start = time.process_time()
    NMF(k, init="nndsvd", solver="cd", tol=1e-4, max_iter=200, random_state=0).fit(X)
    return time.process_time() - start


def main() -> None:
    """Print the tables."""
    parser = make_parser(__doc__)
    parser.add_argument("names", nargs="*", default=list(NAMES))
    parser.add_argument("--efforts", nargs="+", default=["fast", "default"])
    parser.add_argument("--data", type=Path, default=FOLDER)
    parser.add_argument("-k", type=int, default=COMPONENTS)
    parser.add_argument("--record", action="store_true", help="write PROFILE_STEPS.md")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    small = planted(200, 40, 4, seed=0).A
    for effort in options.efforts:
        profile(small, effort, 4)
    lines = ["| data | effort | errors | seconds | of NMF's | bar | by step |", "|---|---|---|---|---|---|---|"]
    print(*lines, sep="\n")
    with threadpool_limits(1):
        for name in options.names:
            A = real(name, options.data)
            if A is None:
                print(f"skipped {name}: no file {name}.npz in the folder of --data", file=sys.stderr)
                continue
            other = nmf_seconds(A, options.k)
            lines.append(f"| {name} | scikit-learn's NMF | | {other:.2f} | 1 | | |")
            print(lines[-1], flush=True)
            for effort in options.efforts:
                seconds, model = profile(A, effort, options.k)
                total = seconds.total()
                bar = BARS.get(effort)
                held = "" if bar is None else f"<= {bar:g}" + ("" if total <= bar * other else " **missed**")
                steps = ", ".join(f"{step} {spent:.2f}" for step, spent in seconds.most_common() if spent >= 0.005)
                row = f"| {name} | {effort} | {model.counts_.errors} | {total:.2f} | {total / other:.2f} | {held} |"
                lines.append(f"{row} {steps} |")
                print(lines[-1], flush=True)
    if options.record:
        about = "Written by `python benchmarks/profile_steps.py --record`, which says how it is measured."
        write_page(TABLE, "\n".join(["# Time by step", "", about, "", *lines, "", *listed()]))


if __name__ == "__main__":
    main()
