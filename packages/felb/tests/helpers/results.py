"""Results with changes."""

import json
from dataclasses import fields, replace

from felb.federated.protocol import Outcome
from felb.runs.result import seal


def changed(result, **changes):
    """Return the result with other fields, of its own or of its outcome."""
    of_outcome = {entry.name: changes.pop(entry.name) for entry in fields(Outcome) if entry.name in changes}
    return replace(result, outcome=replace(result.outcome, **of_outcome), **changes)


def reseal(folder):
    """Seal a result folder anew after its files were changed on purpose."""
    told = json.loads((folder / "result.json").read_text(encoding="utf-8"))
    seal(folder, {name: value for name, value in told.items() if name not in ("files", "digest")})
