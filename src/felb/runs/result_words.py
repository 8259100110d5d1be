"""What a result says about itself in sentences: what is known, what is an assumption, and what to look at."""

from __future__ import annotations

from typing import TYPE_CHECKING

from felb.choices import MDL

if TYPE_CHECKING:
    from felb.runs.result import Result

AGREED = "agreed_records"
"""Of the facts about the data: the number of records that was agreed on, from which the noise was calibrated."""
RESAMPLED = "resampled"
"""Of the facts about the data: every site took part with a random half of its rows, for a refit."""
DEFAULT_MOST = 30
"""`max_components` of runs that do not say it."""


def records_in_words(result: Result) -> str:
    """Say how many records there are, as far as that is known; a number that was only agreed on is told as such.

    Examples
    --------
    >>> import felb
    >>> records_in_words(felb.fit(felb.Job("zoo", "grecond", 4), "zoo-run"))
    '101 records'
    """
    rows, agreed = (result.provenance.data.get(name) for name in ("rows", AGREED))
    if rows is not None:
        return f"{rows} record{'' if rows == 1 else 's'}"
    if agreed is None:
        return "an unknown number of records"
    return f"an unknown number of records (agreed for the noise: {agreed})"


def remarks(result: Result) -> list[str]:
    """Return what a reader should know before trusting the result, a sentence or two each."""
    found = []
    data, parameters = result.provenance.data, result.provenance.parameters
    if data.get(AGREED) is not None and data.get("rows") is None:
        sites = ", ".join(result.clients) or "none"
        found.append(
            f"The number of {data[AGREED]} records is an assumption: it was agreed on before the run, to calibrate the "
            f"noise. How many records the sites that took part ({sites}) hold is not known to the coordinator."
        )
    most = parameters.get("max_components", DEFAULT_MOST)
    if parameters.get("n_components") == MDL and len(result.components) == most:
        found.append(
            f"Rank selection ended at max_components = {most}, the most components it may take; the shortest "
            "description may need more. Run it again with a larger max_components."
        )
    if result.scores.get("coverage", 0.0) < 0:
        found.append(f"There are more wrong cells than ones in the data. {_why(result)}")
    return found


def _why(result: Result) -> str:
    """Say why a result with so many wrong cells was chosen."""
    from felb.federated.steps.belief_propagation import ASSIGN_BY_BELIEF  # compiled code, not needed for errors

    if not any(row.get("task") == ASSIGN_BY_BELIEF for row in result.history):
        return "Empty components would have fewer; take fewer components, or another method."
    asked = result.provenance.parameters.get("objective", "auto")
    chosen = 'as objective = "recover" asks' if asked == "recover" else f'and objective = "{asked}" preferred them'
    return (
        f"The components are those that are likeliest behind heavy noise, {chosen}: noise makes wrong cells of what is "
        'right. objective = "hamming" gives the fewest wrong cells.'
    )
