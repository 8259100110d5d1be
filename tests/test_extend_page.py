"""The files and the change that docs/extend.md and docs/how-to/add-a-method.md show pass the contract suites.

The pages are the source. Files are the blocks of code that have a title; changes of felb are blocks of `diff`.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import felb
import felb_paper

ROOT = Path(__file__).parents[1]
SUITES = [ROOT / "packages" / name for name in ("felb/tests/contracts", "felb/tests/helpers", "felb-paper/tests")]
TITLED = re.compile(r'^```python title="([^"]+)"\n(.*?)^```$', re.MULTILINE | re.DOTALL)
DIFF = re.compile(r"^```diff\n(.*?)^```$", re.MULTILINE | re.DOTALL)
KINDS = {"aggregation", "algorithm", "estimator", "experiment", "mechanism", "transport"}
MOST_FILES, MOST_LINES = 3, 150


def page(name):
    """Return the text of a page, wherever it stands in docs/."""
    (found,) = (ROOT / "docs").rglob(name)
    return found.read_text(encoding="utf-8")


def run_pytest(folder, *arguments, path):
    """Run tests in a process of their own, with warnings as errors, in a folder of their own."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, path)), "PYTHONDONTWRITEBYTECODE": "1"}
    options = ("-W", "error", "-p", "no:cacheprovider", "-p", "no:xdist", "--tb=short")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, *map(str, arguments)],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


def test_every_kind_of_part_is_added_in_a_package_of_its_own_and_passes_its_suite(tmp_path):
    files = dict(TITLED.findall(page("extend.md")))
    assert {
        kind for kind in KINDS if any(f"from test_{kind}_contract import *" in text for text in files.values())
    } == (KINDS)
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    (tmp_path / "wards" / "__init__.py").touch()
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    installed = [Path(package.__file__).parents[1] for package in (felb, felb_paper)]
    code, printed = run_pytest(tmp_path, "wards", path=(tmp_path, *SUITES, *installed))
    assert code == 0, printed
    assert int(re.search(r"(\d+) passed", printed)[1]) > 100


@pytest.fixture(scope="module")
def patch():
    (text,) = DIFF.findall(page("add-a-method.md"))
    return text


def test_a_federated_method_is_a_small_change(patch):
    files = re.findall(r"^\+\+\+ b/(.*)$", patch, re.MULTILINE)
    changed = [line for line in patch.splitlines() if re.match(r"[+-](?![+-]{2} )", line)]
    assert 1 <= len(files) <= MOST_FILES
    assert len(changed) <= MOST_LINES
    assert not [name for name in files if name.startswith("tests/")]


def test_the_change_passes_the_suites(patch, tmp_path):
    if shutil.which("git") is None:
        pytest.skip("git applies the patch")
    # Compiled kernels come along, with their times, or it would take minutes to compile them again.
    shutil.copytree(Path(felb.__file__).parent, tmp_path / "packages" / "felb" / "src" / "felb")
    for name in ("packages/felb/tests", "packages/felb-sites", "packages/felb-paper", "pyproject.toml", "conftest.py"):
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy2
        copy(ROOT / name, tmp_path / name)
    (tmp_path / "tests").mkdir()
    shutil.copy2(ROOT / "tests" / "test_architecture.py", tmp_path / "tests")
    applied = subprocess.run(
        ["git", "apply", "--whitespace=error-all", "-"],
        cwd=tmp_path,
        env={**os.environ, "GIT_CEILING_DIRECTORIES": str(tmp_path.parent)},
        input=patch,
        text=True,
        capture_output=True,
        check=False,
    )
    assert applied.returncode == 0, applied.stderr
    code, printed = run_pytest(
        tmp_path,
        "packages/felb/tests/contracts/test_algorithm_contract.py",
        "packages/felb/tests/contracts/test_estimator_contract.py",
        "tests/test_architecture.py",
        "-k",
        "popular or Popular or phase or registered or registry or architecture",
        path=(tmp_path / "packages" / "felb" / "src", tmp_path / "packages" / "felb-sites" / "src"),
    )
    assert code == 0, printed
    assert int(re.search(r"(\d+) passed", printed)[1]) > 80
