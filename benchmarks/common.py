"""What benchmarks share: options, figures with bars, pages, measured cells, real data, facts about the machine."""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import platform
import re
import subprocess
import sys
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from felb.records import replacing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from felb.data import BinaryMatrix, Planted


def make_parser(description: str | None) -> argparse.ArgumentParser:
    """Return a parser of options whose help is the docstring of a benchmark, as it is written."""
    return argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)


def draw_by_seed(seed: int) -> None:
    """From now on draw privacy noise, rounded to whole steps, by NumPy in place of the exact sampler.

    It is fast, has a seed and the size of that of real releases, and so is good for benchmarks and nothing else.
    """
    from felb.privacy import mechanisms, releases

    rng = np.random.default_rng(seed)
    mechanisms.discrete_gaussian = releases.discrete_gaussian = lambda sigma, size: np.rint(  # type: ignore[assignment]
        rng.normal(0.0, sigma, size)
    ).astype(np.int64)


@dataclass(frozen=True)
class Figure:
    """One measured number; `bar` says in words what it must hold and `met` whether it does."""

    what: str
    measured: str
    bar: str = ""
    met: bool | None = None

    @property
    def verdict(self) -> str:
        """Return "met", "missed", or nothing without a bar."""
        return "" if self.met is None else "met" if self.met else "**missed**"


@dataclass(frozen=True)
class Section:
    """A heading, a sentence on how its figures were taken, and the figures."""

    title: str
    how: str
    figures: Sequence[Figure]

    def markdown(self) -> str:
        """Return the section as Markdown."""
        rows = [f"| {f.what} | {f.measured} | {f.bar} | {f.verdict} |" for f in self.figures]
        head = ["| | measured | bar | |", "|---|---|---|---|"]
        return "\n".join([f"## {self.title}", "", self.how, "", *head, *rows, ""])


def at_least(what: str, ratio: float, bar: float | None, detail: str = "") -> Figure:
    """Return a ratio that must reach its bar, if it has one."""
    measured = f"{ratio:.2f}x" + (f" ({detail})" if detail else "")
    return Figure(what, measured) if bar is None else Figure(what, measured, f">= {bar}x", ratio >= bar)


def at_most(what: str, value: float, bar: float | None, unit: str) -> Figure:
    """Return an amount that must stay below its bar, if it has one."""
    measured = f"{value:.3g} {unit}" if value < 100 else f"{value:.0f} {unit}"
    return Figure(what, measured) if bar is None else Figure(what, measured, f"<= {bar:g} {unit}", value <= bar)


def f1_star(model: Any, data: Planted, **how: Any) -> float:
    """Fit planted data; return F1 of the reconstruction against the planted signal."""
    from felb.metrics import confusion

    U = model.fit_transform(data.A, **how)
    return confusion(data.signal, U, model.components_).f1


def exit_if_missed(missed: Sequence[str]) -> None:
    """End with an error that names the bars that are missed, if any."""
    if missed:
        sys.exit("missed: " + "; ".join(missed))


def smallest(runs: dict[str, Callable[[], object]], repeats: int, clock: Callable[[], float]) -> dict[str, float]:
    """Return the smallest time of each, run in turn so that all see the same machine."""
    best = dict.fromkeys(runs, np.inf)
    for _ in range(repeats):
        for name, run in runs.items():
            start = clock()
            run()
            best[name] = min(best[name], clock() - start)
    return best


def write_page(path: Path, text: str) -> None:
    """Write a page of results; a page that is there is replaced as a whole."""
    with replacing(path) as partial:
        partial.write_text(text.rstrip("\n") + "\n", encoding="utf-8")


PACKAGES = ("numpy", "scipy", "scikit-learn", "numba", "llvmlite")


def facts() -> dict[str, str]:
    """Return processor, cores, caches, vector width, memory, versions, date and load average, as far as known."""
    import felb

    processor = _cpuinfo("model name") or platform.processor() or platform.machine()
    family = "/".join(filter(None, (_cpuinfo("cpu family"), _cpuinfo("model\t"), _cpuinfo("stepping"))))
    found = {
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "processor": processor + (f" (family/model/stepping {family})" if family else ""),
        "cores for this process": str(_cores()),
        "caches": _caches(),
        "vectors": _vectors(),
        "memory": _memory(),
        "system": f"{platform.system()} {platform.release().split('-')[0]}, {platform.machine()}",
        "versions": ", ".join(
            [f"felb {felb.__version__} {_revision()}".strip(), f"Python {platform.python_version()}"]
            + [f"{name} {version(name)}" for name in PACKAGES]
        ),
        "load average at start": load_average(),
    }
    return {name: value for name, value in found.items() if value}


def listed(*, load: bool = True) -> list[str]:
    """Return the facts as a Markdown list, with or without the load average."""
    return [f"- {name}: {value}" for name, value in facts().items() if load or name != "load average at start"]


def load_average() -> str:
    """Return the load averages over 1, 5 and 15 minutes."""
    return ", ".join(f"{load:.2f}" for load in os.getloadavg()) if hasattr(os, "getloadavg") else ""


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _cpuinfo(field: str) -> str:
    path = Path("/proc/cpuinfo")
    found = re.search(rf"^{field}\s*: (.*)$", path.read_text(), re.MULTILINE) if path.exists() else None
    return found[1].strip() if found else ""


def _caches() -> str:
    parts = []
    for index in sorted(Path("/sys/devices/system/cpu/cpu0/cache").glob("index*")):
        level, kind, size = ((index / name).read_text().strip() for name in ("level", "type", "size"))
        parts.append(f"L{level}{kind[0].lower() if kind != 'Unified' else ''} {size}")
    return ", ".join(parts)


def _vectors() -> str:
    flags = _cpuinfo("flags").split()
    for flag, width in (("avx512f", "512 bits (AVX-512)"), ("avx2", "256 bits (AVX2)"), ("sse2", "128 bits (SSE2)")):
        if flag in flags:
            return width
    return "128 bits (NEON)" if platform.machine() in ("arm64", "aarch64") else ""


def _memory() -> str:
    if "SC_PHYS_PAGES" not in getattr(os, "sysconf_names", {}):
        return ""
    return f"{os.sysconf('SC_PHYS_PAGES') * os.sysconf('SC_PAGE_SIZE') / 2**30:.0f} GB"


def _revision() -> str:
    """Return the commit that is measured, and whether files differ from it."""
    command = ["git", "describe", "--always", "--dirty", "--abbrev=10"]
    run = subprocess.run(command, cwd=Path(__file__).parent, capture_output=True, text=True, check=False)
    return f"({run.stdout.strip()})" if run.returncode == 0 else ""


MEASURED = Path(__file__).with_name("measured")
"""Folder of the files of all benchmarks."""

Key = tuple[str | int | float, ...]


class Cells:
    """A JSON file with one line for each measured cell, sorted by key.

    Several processes may add cells to one file: each addition reads the file again while it holds a lock on the folder,
    and the file is replaced as a whole.

    Parameters
    ----------
    path : the file, which need not exist
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def all(self) -> dict[str, Any]:
        """Return all cells by the name of their key."""
        return json.loads(self.path.read_text(encoding="utf-8")) if self.path.is_file() else {}

    def get(self, key: Key) -> Any:
        """Return a cell, or None if it has not been measured."""
        return self.all().get(name_of(key))

    def put(self, key: Key, cell: Any) -> None:
        """Add a cell, or replace the one with the same key."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with _locked(self.path.parent):
            cells = {**self.all(), name_of(key): cell}
            lines = (f"{json.dumps(name)}: {json.dumps(cells[name])}" for name in sorted(cells))
            with replacing(self.path) as partial:
                partial.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


def name_of(key: Key) -> str:
    """Return the words of a key, separated by spaces."""
    return " ".join(f"{word:g}" if isinstance(word, float) else str(word) for word in key)


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Wait until no other process holds the folder, and hold it."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


FOLDER = next(
    (found for above in Path(__file__).resolve().parents[2:] if (found := above / "shared" / "data").is_dir()),
    Path(__file__).resolve().parents[2] / "shared" / "data",
)


def real(name: str, folder: Path = FOLDER) -> BinaryMatrix | None:
    """Return a data set, or None where it is not at hand."""
    from felb.data import read

    path = folder / f"{name}.npz"
    return read(path).matrix if path.is_file() else None
