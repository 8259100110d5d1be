"""What a vault loads is little enough to be read."""

from __future__ import annotations

import json
import subprocess
import sys

MOST_LINES = 12_000
FORBIDDEN = {"sklearn", "dask", "distributed", "matplotlib", "nvflare", "httpx", "starlette", "uvicorn"}
LOAD = """
import json, sys
from pathlib import Path
import felb_sites.vault.process
from felb_sites.run_plan import Plan
Plan("r1", "bmf", 2, 12, sites=3).algorithm()
Plan("r2", "felb", 2, 12, sites=3).algorithm()
terms = {"epsilon": 1.0, "delta": 1e-5}
Plan("r3", "bmf", 2, 12, {"effort": "fast"}, privacy=terms, records=90, sites=3).algorithm()
files = {
    name: module.__file__ for name, module in sys.modules.items()
    if name.split(".")[0] in ("felb", "felb_sites") and getattr(module, "__file__", None)
}
lines = {name: len(Path(file).read_text().splitlines()) for name, file in files.items()}
print(json.dumps({"lines": lines, "packages": sorted({name.split(".")[0] for name in sys.modules})}))
"""


def load():
    done = subprocess.run([sys.executable, "-c", LOAD], capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def test_a_vault_loads_nothing_that_serves_draws_or_estimates():
    assert sorted(FORBIDDEN & set(load()["packages"])) == []


def test_a_vault_loads_few_lines():
    found = load()
    largest = sorted(found["lines"].items(), key=lambda item: -item[1])[:15]
    assert sum(found["lines"].values()) <= MOST_LINES, largest
