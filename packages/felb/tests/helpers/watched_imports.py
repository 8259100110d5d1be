"""Which heavy libraries a command imports."""

import json
import subprocess
import sys

HEAVY = (
    "numba", "sklearn", "scipy.stats", "nvflare", "matplotlib", "duckdb", "pandas", "dask", "opendp", "dp_accounting",
)  # fmt: skip
ALSO_NOT_FOR_HELP = ("numpy", "scipy")

PROGRAM = """
import contextlib, io, json, sys
from felb.cli import main
loaded = {}
for args in json.loads(sys.argv[1]):
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()) as told:
        try:
            main(args)
        except SystemExit as ended:
            code = ended.code
    loaded[" ".join(args)] = code, told.getvalue(), [name for name in json.loads(sys.argv[2]) if name in sys.modules]
print(json.dumps(loaded))
"""


def run_watched(commands, watched, folder):
    """Return exit code, stderr and watched modules after each command; all in one process, so that they add up."""
    words = [sys.executable, "-c", PROGRAM, json.dumps(commands), json.dumps(watched)]
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)
