"""Results with changes."""

from dataclasses import fields, replace

from felb.federated.protocol import Outcome


def changed(result, **changes):
    """Return the result with other fields, of its own or of its outcome."""
    of_outcome = {entry.name: changes.pop(entry.name) for entry in fields(Outcome) if entry.name in changes}
    return replace(result, outcome=replace(result.outcome, **of_outcome), **changes)
