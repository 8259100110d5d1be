"""The report of a stored result as one HTML page."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from felb.federated.task_table import rounds_by_phase
from felb.report import parts
from felb.report.component_parts import clients_section, components_section, overlap_section
from felb.report.curves import curves
from felb.report.label_part import labels_section
from felb.report.measures import bootstrap, cell_intervals
from felb.report.page import Page, section, tag
from felb.report.parts import Headline, counted, number, significant
from felb.report.picture_part import pictures_section
from felb.report.privacy_part import privacy_section
from felb.runs.result_words import records_in_words, remarks

if TYPE_CHECKING:
    from collections.abc import Mapping

    from felb.report.evidence import Evidence, Measured
    from felb.report.measures import Interval
    from felb.report.page import Section

SCORES = {
    "f1": ("F1", 3, "harmonic mean of precision and recall; 1 is best"),
    "precision": ("Precision", 3, "share of the reconstructed ones that are in the data"),
    "recall": ("Recall", 3, "share of the ones in the data that are reconstructed"),
    "coverage": ("Coverage", 3, "1 − wrong cells / ones in the data"),
    "rmsd": ("RMSD", 3, "square root of the share of wrong cells; 0 is best"),
    "errors": ("Wrong cells", 0, "number of missed ones and false ones"),
}
"""Name, digits and meaning of the scores that are shown."""


def result_page(evidence: Evidence) -> Page:
    """Make the page of a result.

    Examples
    --------
    >>> from felb import Job, fit
    >>> from felb.report import gather
    >>> _ = fit(Job("zoo", "grecond", 4), "zoo-run")
    >>> result_page(gather("zoo-run")).write("zoo.html") > 10_000
    True
    """
    result = evidence.result
    data, k = result.provenance.data, result.components.shape[0]
    sections = [
        scores_section(evidence),
        components_section(evidence),
        labels_section(evidence),
        pictures_section(evidence),
        overlap_section(evidence),
        clients_section(evidence),
        rounds_section(evidence),
        privacy_section(evidence),
        run_section(evidence),
    ]
    lead = (
        f"Sets of features that occur together, found by {result.provenance.method} in "
        f"{_records(evidence)} with {counted(result.components.shape[1], 'feature')}"
        f"{_where(result.clients)}. A record has a feature if one of its components has it."
    )
    return Page(
        f"{counted(k, 'component')} of {data.get('source') or 'unnamed data'}",
        [part for part in sections if part is not None],
        kicker="Result of a Boolean matrix factorization",
        lead=tag("p", lead),
    )


def _records(evidence: Evidence) -> str:
    known = evidence.n_records
    return records_in_words(evidence.result) if known is None else counted(known, "record")


def _where(clients: Mapping[str, int | None]) -> str:
    return f" at {len(clients)} clients" if len(clients) > 1 else ""


# -- scores ------------------------------------------------------------------------------------------------------------


def scores_with_intervals(evidence: Evidence) -> tuple[dict[str, float], dict[str, Interval], str]:
    """Return the scores, their intervals, and how both were come by."""
    measured = evidence.measured
    if measured is not None:
        intervals, resamples = bootstrap(measured.rows)
        how = (
            f"The brackets contain 95% bootstrap intervals over records ({number(resamples)} resamples). They show how "
            "much the scores of these components vary over other records of the same population. They do not show how "
            "much the components themselves vary; the command felb stability measures that."
        )
        return measured.counts.scores(), intervals, f"{_measured_on(measured)} {how}"
    counts = evidence.result.counts
    if counts is None:
        return (
            dict(evidence.result.scores),
            {},
            "There are no intervals, because the result does not contain the counts that they need.",
        )
    how = (
        "The brackets contain 95% Wilson intervals from the summed counts of all clients. They treat matrix cells as "
        "independent. The cells of one record are not, so the intervals are too narrow. With --data FILE, the report "
        "contains bootstrap intervals over records instead."
    )
    return dict(evidence.result.scores), cell_intervals(counts), how


def _measured_on(measured: Measured) -> str:
    if measured.same:
        agreed = "the stored assignments" if measured.stored else "new assignments, because none are stored for it"
        return f"Computed on the data of the run, with {agreed}."
    if measured.same is None:
        return f"Computed on {measured.source}; the result has no fingerprint of the data of the run to compare with."
    rows = number(len(measured.matrix))
    return f"Computed on {measured.source} ({rows} records), which is not the data of the run."


def scores_section(evidence: Evidence) -> Section:
    """Scores in large digits, with explanations."""
    scores, intervals, how = scores_with_intervals(evidence)
    if not scores:
        told = (
            "Scores are not part of what this run releases. The owner of the data can compute them with "
            "felb report RESULT --data FILE."
        )
        return section("Scores", *map(parts.note, remarks(evidence.result)), parts.note(told))
    shown = [
        Headline(name, number(scores[key], digits), _between(intervals.get(key), digits), meaning)
        for key, (name, digits, meaning) in SCORES.items()
        if scores.get(key) is not None
    ]
    warning = (
        parts.note(
            "This run was private. The scores, supports and pictures on this page are exact and not covered by its "
            "guarantee: protect the page like the data.",
            kind="important",
        )
        if evidence.private
        else None
    )
    incomplete = (
        None
        if evidence.result.complete
        else parts.note("A time limit ended the search; the page shows the best result until then.", kind="important")
    )
    notes = [parts.note(remark, kind="important") for remark in remarks(evidence.result)]
    return section("Scores", warning, incomplete, *notes, parts.headlines(shown), parts.paragraph(how, fine=True))


def _between(interval: Interval | None, digits: int) -> str | None:
    return None if interval is None else f"[{number(interval[0], digits)}, {number(interval[1], digits)}]"


# -- rounds and provenance ---------------------------------------------------------------------------------------------


def rounds_section(evidence: Evidence) -> Section:
    """Curves of what was kept of every round."""
    history = evidence.result.history
    if not len(history):
        return section("Rounds", parts.note("This method keeps no record of its steps."))
    phases = rounds_by_phase(evidence.result.rounds())
    told = ", ".join(f"{phase} {number(times)}" for phase, times in phases.items())
    drawn = curves(history)
    converged = "The search converged." if evidence.result.converged else "The search ended before it converged."
    return section(
        "Rounds",
        tag("p", f"{counted(len(history), 'round')}: {told}. {converged}"),
        parts.grid(*drawn, narrow=True)
        if drawn
        else parts.note("No value was recorded in more than one round, so there is no curve to draw."),
    )


def run_section(evidence: Evidence) -> Section:
    """What was run, on what, by which version, on which machine."""
    made, result = evidence.result.provenance, evidence.result
    data, seconds = made.data, evidence.seconds()
    machine = made.machine
    facts = {
        "Method": made.method,
        "Seed": made.seed,
        "Components": number(len(result.components)),
        "Boolean": "yes" if result.integrality_gap == 0 else f"up to a gap of {significant(result.integrality_gap)}",
        "Data": f"{data.get('source')}: {records_in_words(result)} × {counted(data.get('columns'), 'feature')}",
        **({"Unknown cells": number(data["unknown"])} if data.get("unknown") else {}),
        "Clients": number(len(result.clients)) if len(result.clients) > 1 else next(iter(result.clients), "none"),
        "Duration": "not recorded" if seconds is None else f"{significant(seconds)} s from first to last message",
        "felb": made.felb,
        "Machine": f"{machine.get('system')}, {machine.get('processor')}, {machine.get('cores')} cores",
        "Python, NumPy": f"{machine.get('python')}, {machine.get('numpy')}",
        **({"Folder": evidence.folder.name or str(evidence.folder)} if evidence.folder.is_dir() else {}),
    }
    parameters = {name: parts.code(_value(value)) for name, value in sorted(made.parameters.items())}
    return section("Run", parts.facts(facts), parts.details("All parameters", parts.facts(parameters)))


def _value(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} = {_value(item)}" for name, item in value.items()) or "none"
    return "none" if value is None else str(value)
