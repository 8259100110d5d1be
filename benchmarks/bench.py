"""Everything that is guaranteed about speed and memory, measured and held against its bar.

    python benchmarks/bench.py            the full form, about ten minutes on two idle cores; writes RESULTS.md
    python benchmarks/bench.py --quick    fewer repeats, a quarter of the rows, under two minutes; writes nothing

Ratios are taken in one process, in turn, and the smallest of all times is used. Two threads are measured in wall time,
which only an idle machine gives: look at the load average.
"""

from __future__ import annotations

import time
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import bench_baselines
import bench_boolean
import bench_growth
import bench_memory
import bench_pass
import bench_start
from common import Section, facts, load_average, make_parser, write_page
from shapes import SHAPES, generate

if TYPE_CHECKING:
    from common import Figure

RESULTS = Path(__file__).with_name("RESULTS.md")


@dataclass(frozen=True)
class Effort:
    """How much is measured."""

    repeats: int
    share: int
    steps: int
    growth: float


FULL = Effort(repeats=9, share=1, steps=4, growth=1.0)
QUICK = Effort(repeats=3, share=4, steps=3, growth=0.25)


def tell(line: str, started: float = time.perf_counter()) -> None:
    """Show what goes on."""
    print(f"[{time.perf_counter() - started:4.0f} s] {line}", flush=True)


def tell_all(figures: list[Figure]) -> list[Figure]:
    """Show figures as they are found."""
    for figure in figures:
        tell(f"  {figure.what}: {figure.measured}  {figure.bar} {figure.verdict}")
    return figures


def measure(effort: Effort) -> list[Section]:
    """Measure everything, shape by shape."""
    speed, threads, memory, boolean = [], [], [], []
    tell("start of a process")
    start = tell_all(bench_start.measure(effort.repeats))
    for name in bench_pass.DEFAULT:
        shape = SHAPES[name]
        A = generate(shape.take(shape.rows // effort.share))
        tell(f"{name}: {A}, k = {shape.k}")
        speed += tell_all(bench_pass.compare(name, A, rule="lipschitz", repeats=effort.repeats))
        threads += tell_all(bench_pass.scale(name, A, rule="lipschitz", repeats=2 * effort.repeats))
        memory += tell_all([bench_memory.measure(name, A, shape.k, threads=t) for t in (1, 2)])
        if name == "ratings":
            boolean += tell_all(bench_boolean.measure(name, A, shape.k, repeats=min(3, effort.repeats)))
        del A
    tell("pooled methods")
    oracles, baselines = tell_all(bench_baselines.oracles()), tell_all(bench_baselines.speed())
    tell("growth")
    growth = bench_growth.measure(steps=effort.steps, repeats=effort.repeats, size=effort.growth, tell=tell)
    fewest = f"processor time in one thread, the smallest of {effort.repeats} interleaved runs"
    return [
        Section(
            "Speed",
            "`pass`: U moves and AᵀU, UᵀU are collected, against the same in SciPy and NumPy. `iteration`: pass and "
            "step of V, against one iteration of scikit-learn's NMF (mu). `dense`: that, against the same on a "
            f"dense A through BLAS. Other / felb, {fewest}.",
            speed,
        ),
        Section(
            "Two threads",
            f"One thread / two, the smallest wall time of {2 * effort.repeats}; `(machine)` is what "
            "two threads that share nothing gained meanwhile, 2 on an idle machine; `(busy)` takes half the processor "
            "time of both threads, a hint at what the wall time would be if nothing else ran.",
            threads,
        ),
        Section("Memory", bench_memory.__doc__.split("\n\n    python")[0].strip(), memory),
        Section("Start", f"Processor time of new processes, the smallest of {effort.repeats}.", start),
        Section("Growth", bench_growth.__doc__.strip() + f" {fewest.capitalize()}.", growth),
        Section("Boolean kernels", bench_boolean.__doc__.strip() + " Processor time in passes.", boolean),
        Section("Pooled methods", "What reference implementations give, on data beside the project.", oracles),
        Section("Speed of pooled methods", "Processor time of a whole fit.", baselines),
    ]


def markdown(about: dict[str, str], sections: list[Section]) -> str:
    """Return the page: bars that are missed first, then the machine, then all figures."""
    figures = [figure for section in sections for figure in section.figures]
    missed = [figure for figure in figures if figure.met is False]
    met = sum(figure.met is True for figure in figures)
    lines = ["# Benchmarks", "", "Written by `make bench`. Shapes: `shapes.py`.", ""]
    lines += [f"- {name}: {value}" for name, value in about.items()]
    lines += [
        "",
        f"{met} of {met + len(missed)} bars are met" + ("; missed (see PROFILE.md for why):" if missed else "."),
        "",
    ]
    lines += [f"- {figure.what}: {figure.measured}, bar {figure.bar}" for figure in missed]
    return "\n".join([*lines, "", *(section.markdown() for section in sections)])


def main() -> None:
    """Measure, print and write."""
    parser = make_parser(__doc__)
    parser.add_argument("--quick", action="store_true", help="under two minutes, on a quarter of the rows")
    parser.add_argument("--output", type=Path, help="where to write; RESULTS.md for the full form")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    about = facts()
    effort = QUICK if options.quick else FULL
    if options.quick:
        about["form"] = f"quick: 1/{effort.share} of the rows, {effort.repeats} repeats; bars are for the full form"
    sections = measure(effort)
    about["load average at end"] = load_average()
    page = markdown(about, sections)
    print("\n" + page)
    output = options.output or (None if options.quick else RESULTS)
    if output is not None:
        write_page(output, page)


if __name__ == "__main__":
    main()
