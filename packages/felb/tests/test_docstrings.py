"""The examples in docstrings run, and every public name has one."""

from __future__ import annotations

import doctest
import importlib
from pathlib import Path

import pytest

import felb
from felb import report

SOURCE = Path(felb.__file__).parent
MODULES = sorted(
    ".".join(("felb", *path.relative_to(SOURCE).with_suffix("").parts)).removesuffix(".__init__")
    for path in SOURCE.rglob("*.py")
    if ">>> " in path.read_text(encoding="utf-8")
)
EXPLAIN_THEMSELVES = {
    "FelbError",
    "InputError",
    "ConvergenceWarning",
    "Table",
    "Planted",
    "Component",
    "Provenance",
    "Order",
    "ReportInputs",
}
"""Errors, and records that only functions make."""


def examples():
    for name in MODULES:
        module = importlib.import_module(name)
        for test in doctest.DocTestFinder().find(module, name):
            if test.examples:
                yield pytest.param(test, id=test.name)


@pytest.mark.parametrize("example", list(examples()))
def test_an_example_prints_what_it_says(example, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    report: list[str] = []
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
    runner.run(example, out=report.append)
    assert not report, "".join(report)


def public():
    for room in (felb, felb.data, felb.data.partition, felb.metrics, felb.privacy, report):
        names = getattr(room, "__all__", None) or [n for n in vars(room) if not n.startswith("_")]
        for name in names:
            thing = getattr(room, name)
            if (
                callable(thing)
                and getattr(thing, "__module__", "").startswith("felb")
                and name not in EXPLAIN_THEMSELVES
            ):
                yield pytest.param(thing, id=f"{room.__name__}.{name}")


@pytest.mark.parametrize("thing", list(public()))
def test_a_public_name_has_an_example(thing):
    assert ">>> " in (thing.__doc__ or "")
