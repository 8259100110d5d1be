"""benchmarks/README.md lists every benchmark with its stored files, and nothing else; each can be started."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[1] / "benchmarks"
README = (FOLDER / "README.md").read_text(encoding="utf-8")
ROWS = [line.split("|")[1:-1] for line in README.splitlines() if line.startswith("| `")]
NAMES = {path.name for path in FOLDER.glob("*.py")}


def names(pattern, cells):
    return [name for cell in cells for name in re.findall(pattern, cell)]


def test_every_script_is_listed_in_a_first_column():
    assert set(names(r"`(\w+\.py)", [row[0] for row in ROWS])) == NAMES


def test_every_stored_file_belongs_to_one_benchmark():
    there = {path.name for path in FOLDER.glob("*.md")} - {"README.md"} | {
        p.name for p in (FOLDER / "measured").iterdir()
    }
    listed = names(r"`(\w+\.json)`(?!, from the next run on)", [row[3] for row in ROWS if len(row) == 5])
    listed += names(r"\]\((\w+\.md)\)", [row[-1] for row in ROWS])
    assert sorted(listed) == sorted(there)


def test_benchmarks_import_modules_that_exist():
    """Those of this folder; `felb` is checked by starting one."""
    for name in NAMES:
        tree = ast.parse((FOLDER / name).read_text(encoding="utf-8"))
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and f"{node.module}.py" in NAMES:
                defined = ast.parse((FOLDER / f"{node.module}.py").read_text(encoding="utf-8"))
                found = {n.name for n in ast.walk(defined) if isinstance(n, ast.FunctionDef | ast.ClassDef)}
                found |= {n.id for n in ast.walk(defined) if isinstance(n, ast.Name)}
                assert {alias.name for alias in node.names} <= found, name


@pytest.mark.parametrize("name", ["quality.py", "felb_real.py"])
def test_a_benchmark_shows_its_help(name):
    done = subprocess.run([sys.executable, FOLDER / name, "--help"], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("usage")
