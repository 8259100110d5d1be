"""The kernels in other processes: no compiler, a lesser processor, a cache that is found, or cannot be written."""

import subprocess
import sys

import pytest

SCRIPT = """
import sys, warnings
import numpy as np
import felb.kernels
assert "numba" not in sys.modules, "importing felb.kernels must not import Numba"
from felb.data import BinaryMatrix
from felb.kernels.passes import row_pass
from felb.optim.steps import GradientStep, Penalty

rng = np.random.default_rng(0)
dense = rng.random((150, 90)) < 0.2
U, U_prev, V = (rng.random(shape, dtype=np.float32) for shape in ((150, 20), (150, 20), (90, 20)))
rule = GradientStep(0.01, Penalty(0.01, 0.1))
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    for _ in range(2):
        got = row_pass(BinaryMatrix.of(dense), U, V, rule=rule, U_prev=U_prev, beta=0.1)
exact = [x.astype(np.float64) for x in (U, U_prev, V)]
expected = row_pass(BinaryMatrix.of(dense), exact[0], exact[2], rule=rule, U_prev=exact[1], beta=0.1)
for x, y in zip(got, expected):
    np.testing.assert_allclose(x, y, rtol=1e-4, atol=1e-4)
print("warnings:", [str(w.message) for w in caught])
if "felb.kernels.vector_passes" in sys.modules:
    stats = sys.modules["felb.kernels.vector_passes"].move_pass.stats
    print("hits:", sum(stats.cache_hits.values()), "misses:", sum(stats.cache_misses.values()))
"""


def run(environment, tmp_path):
    import os

    return subprocess.run(
        [sys.executable, "-c", SCRIPT],
        env={**os.environ, **environment},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )


def test_without_the_compiler(tmp_path):
    done = run({"NUMBA_DISABLE_JIT": "1"}, tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("compiler is switched off") == 1
    assert "hits" not in done.stdout


@pytest.mark.parametrize(
    "processor", [{"NUMBA_CPU_NAME": "generic"}, {"NUMBA_CPU_NAME": "generic", "NUMBA_CPU_FEATURES": "+avx2"}]
)
def test_processors_without_wide_vectors(processor, tmp_path):
    done = run({**processor, "NUMBA_CACHE_DIR": str(tmp_path / "cache")}, tmp_path)
    assert done.returncode == 0, done.stderr
    assert "warnings: []" in done.stdout
    assert "misses: 1" in done.stdout


def test_the_second_process_finds_the_kernels(tmp_path):
    first, second = (run({"NUMBA_CACHE_DIR": str(tmp_path / "cache")}, tmp_path) for _ in range(2))
    assert "hits: 0 misses: 1" in first.stdout, first.stderr
    assert "hits: 1 misses: 0" in second.stdout, second.stderr


def test_without_a_place_for_the_cache(tmp_path):
    # A file where the folder should be: nobody can write there, not even root.
    blocked = tmp_path / "file"
    blocked.write_text("")
    done = run({"NUMBA_CACHE_LOCATOR_CLASSES": "UserProvidedCacheLocator", "NUMBA_CACHE_DIR": str(blocked)}, tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("felb cannot cache its compiled kernels") == 1
