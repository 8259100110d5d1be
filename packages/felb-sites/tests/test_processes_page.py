"""The page "Which process runs which module" says what a fresh interpreter loads."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "processes.md"
ROW = re.compile(r"^\| (\w+), `(felb_sites\.[\w.]+)` \| [^|]+ \| ([^|]+) \|$", re.MULTILINE)
WITHOUT_NUMPY = {"relay", "courier", "supervisor"}
PROGRAM = "import sys, {module}; print(*sorted(sys.modules))"


def rows():
    found = ROW.findall(PAGE.read_text(encoding="utf-8"))
    return [pytest.param(name, module, re.findall(r"`([\w.]+)`", told), id=name) for name, module, told in found]


def test_every_process_has_a_row():
    assert {row.id for row in rows()} == {"relay", "run", "vault", "loader", "courier", "supervisor"}


@pytest.mark.parametrize(("process", "module", "told"), rows())
def test_a_process_loads_the_modules_of_its_row(process, module, told):
    command = [sys.executable, "-c", PROGRAM.format(module=module)]
    loaded = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    own = {name for name in loaded if name.startswith("felb_sites.")}
    packages = {name.rpartition(".")[0] for name in own}
    assert {name.removeprefix("felb_sites.") for name in own - packages} == set(told)
    assert ("numpy" in loaded) == (process not in WITHOUT_NUMPY)


def test_the_page_says_who_has_no_numpy():
    text = " ".join(PAGE.read_text(encoding="utf-8").split())
    assert "The courier loads no NumPy" in text
    assert "The relay and the supervisor load no NumPy" in text
