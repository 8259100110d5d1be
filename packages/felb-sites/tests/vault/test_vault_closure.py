"""What a vault loads is little enough to be read: no estimators, no readers, and a bounded number of lines."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

FORBIDDEN = {"sklearn", "pandas", "dask", "distributed", "matplotlib", "nvflare", "httpx", "starlette", "uvicorn"}
FOREIGN = ("felb.cli", "felb.runs", "felb.report", "felb.sklearn", "felb.engines", "felb.tables", "felb.analysis")
READERS = {"felb.data.readers", "felb.data.files", "felb.data.coercion", "felb.privacy.statement"}
PLANS = {
    "bmf": ("bmf", {}, {}),
    "felb": ("felb", {}, {}),
    "private bmf": ("bmf", {"effort": "fast"}, {"privacy": {"epsilon": 1.0, "delta": 1e-5}, "records": 90}),
}
MOST = {"bmf": (22_600, 14_500), "felb": (23_300, 14_900), "private bmf": (23_400, 15_000)}
"""Physical lines, and lines of code without docstrings, comments and empty ones, that each plan loads at most.

The aim is 12,000; docs/reference/processes.md says what is loaded and why it is more."""
NOT_FOR = {
    "bmf": {"algorithms.felb", "algorithms.competitors", "algorithms.post_hoc", "algorithms.private"},
    "felb": {"algorithms.competitors", "algorithms.post_hoc", "algorithms.private"},
    "private bmf": {"algorithms.felb", "algorithms.competitors", "algorithms.post_hoc"},
}
"""Modules of `felb.federated` that belong to other methods."""
LOAD = """
import ast, io, json, sys, tokenize
from pathlib import Path
import felb_sites.site_folder
import felb_sites.vault.process
from felb_sites.run_plan import Plan
method, parameters, more = json.loads(sys.argv[1])
Plan("r1", method, 2, 12, parameters, sites=3, **more).algorithm()
loaded = dict(sys.modules)

def count_code(text):
    nodes = [node for node in ast.walk(ast.parse(text)) if hasattr(node, "body") and isinstance(node.body, list)]
    strings = [s for node in nodes for s in node.body if isinstance(s, ast.Expr) and isinstance(s.value, ast.Constant)]
    left_out = {line for s in strings for line in range(s.lineno, s.end_lineno + 1)}
    empty = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
    tokens = [t for t in tokenize.generate_tokens(io.StringIO(text).readline) if t.type not in empty]
    return len({line for t in tokens for line in range(t.start[0], t.end[0] + 1)} - left_out)

texts = {
    name: Path(module.__file__).read_text(encoding="utf-8") for name, module in loaded.items()
    if name.split(".")[0] in ("felb", "felb_sites") and getattr(module, "__file__", None)
}
lines = {name: (len(text.splitlines()), count_code(text)) for name, text in texts.items()}
print(json.dumps({"lines": lines, "packages": sorted({name.split(".")[0] for name in loaded})}))
"""


@pytest.fixture(scope="module", params=PLANS)
def loaded(request):
    """The plan, and what a vault has loaded that was asked to take part in it."""
    command = [sys.executable, "-c", LOAD, json.dumps(PLANS[request.param])]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return request.param, json.loads(done.stdout)


def test_a_vault_loads_nothing_that_serves_draws_or_estimates(loaded):
    assert sorted(FORBIDDEN & set(loaded[1]["packages"])) == []


def test_a_vault_loads_no_readers_and_no_other_methods(loaded):
    plan, found = loaded
    unwanted = READERS | {f"felb.federated.{name}" for name in NOT_FOR[plan]}
    assert [name for name in found["lines"] if name in unwanted or name.startswith(FOREIGN)] == []


def test_a_vault_loads_no_more_lines_than_the_page_of_processes_says(loaded):
    plan, found = loaded
    physical, code = (sum(lines) for lines in zip(*found["lines"].values(), strict=True))
    largest = sorted(found["lines"].items(), key=lambda item: -item[1][0])[:15]
    assert (physical <= MOST[plan][0], code <= MOST[plan][1]) == (True, True), (physical, code, largest)
