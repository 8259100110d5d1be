"""What a new process costs before it computes: processor time of `felb --help`, `import felb` and the first pass."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile

from common import Figure, at_most

HELP_BAR, IMPORT_BAR = 0.5, 1.0

FIRST_PASS = """
import numpy as np
from felb.data import BinaryMatrix
from felb.kernels import passes
from felb.optim.steps import GradientStep, Penalty
rng = np.random.default_rng(1)
A = BinaryMatrix.of(rng.random((200, 50)) < 0.3)
U, Vt = rng.random((200, 10), dtype=np.float32), rng.random((50, 10), dtype=np.float32)
rule = GradientStep(0.01, Penalty(0.001, 0.1))
moved = passes.row_pass(A, U, Vt, rule=rule)
passes.factor_step(Vt, moved.AtU, moved.UtU, rule=rule)
from felb.kernels import vector_passes as kernels
compiled = [each for each in vars(kernels).values() if hasattr(each, "stats")]
print(sum(sum(kernel.stats.cache_misses.values()) for kernel in compiled))
"""

IMPORT = "import sys, felb; print(int('numba' in sys.modules or 'llvmlite' in sys.modules))"

IMPORT_ALL = "from felb import *"


def processor_seconds(arguments: list[str], cache: str) -> tuple[float, str]:
    """Run Python with a folder for compiled kernels; return its processor time and the last line it printed."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    environment = os.environ | {"NUMBA_CACHE_DIR": cache}
    run = subprocess.run([sys.executable, *arguments], capture_output=True, text=True, check=True, env=environment)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return seconds, run.stdout.strip().rsplit("\n", 1)[-1]


def measure(repeats: int) -> list[Figure]:
    """Return the figures; the smallest of several new processes, but for the one with an empty cache."""
    with tempfile.TemporaryDirectory() as cache:

        def best(*arguments: str) -> tuple[float, str]:
            return min(processor_seconds(list(arguments), cache) for _ in range(repeats))

        help_seconds, _ = best("-m", "felb", "--help")
        import_seconds, compiler_loaded = best("-c", IMPORT)
        import_all, _ = best("-c", IMPORT_ALL)
        empty, _ = best("-c", "import numpy, scipy.sparse")
        cold, compiled = processor_seconds(["-c", FIRST_PASS], cache)
        warm, compiled_again = best("-c", FIRST_PASS)
    return [
        at_most("`felb --help`", help_seconds, HELP_BAR, "s"),
        at_most("`import felb`", import_seconds, IMPORT_BAR, "s"),
        at_most("`from felb import *`, which is loaded on first use", import_all, None, "s"),
        at_most("compiler loaded by `import felb`", int(compiler_loaded), 0, "times"),
        at_most("import of NumPy and SciPy alone", empty, None, "s"),
        Figure("process with a first pass, nothing compiled yet", f"{cold:.2f} s ({compiled} kernels compiled)"),
        at_most("process with a first pass, kernels on disk", warm, None, "s"),
        at_most("kernels compiled by that second process", int(compiled_again), 0, "kernels"),
    ]


if __name__ == "__main__":
    for figure in measure(3):
        print(f"{figure.what}: {figure.measured} {figure.bar} {figure.verdict}", flush=True)
