"""The output of ``felb privacy plan``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.table import Table

from felb.cli.output import plain_console

if TYPE_CHECKING:
    from felb.runs.privacy_forecast import PrivacyForecast


def print_forecast(found: PrivacyForecast) -> None:
    """Print the guarantee, its noise, and the expected quality by ε."""
    console, shape = plain_console(), found.shape
    facts = Table(box=None, show_header=False, pad_edge=False)
    records = f"{shape.n_records:,} records x {shape.n_features:,} features, {shape.ones_per_record:.3g} ones each"
    facts.add_row("data", f"{records}; {found.clients} client{'s' if found.clients > 1 else ''}")
    budget = f"(epsilon, delta) = ({found.epsilon:g}, {found.delta:.3g}) in total per record"
    facts.add_row("guarantee", f"{budget}; mu = {found.mu:.3g}")
    for note in found.notes:
        name, _, text = note.partition(": ")
        facts.add_row(name, text) if text else facts.add_row("simulated", note.removeprefix("simulated "))
    for part in (facts, noise_table(found), quality_table(found)):
        console.print(part)
        console.print()


def noise_table(found: PrivacyForecast) -> Table:
    """Return the noise of each release and the expected counts."""
    table = Table(box=None, header_style="bold", pad_edge=False)
    table.add_column("release")
    for name in ("share", "rounds", "mu", "sd at a client", "sd of the sum", "expected", "noise"):
        table.add_column(name, justify="right")
    for part in found.releases:
        figures = (_figure(value, ",.1f") for value in (part.sigma_client, part.sigma_sum))
        last = _figure(part.expected, ",.0f"), _figure(part.relative, ".1%")
        table.add_row(part.what, f"{part.share:.0%}", str(part.rounds), f"{part.mu:.3g}", *figures, *last)
    return table


def quality_table(found: PrivacyForecast) -> Table:
    """Return the expected quality by ε."""
    table = Table(box=None, header_style="bold", pad_edge=False)
    for name in ("epsilon", "F1*", "lowest", "highest", "runs"):
        table.add_column(name, justify="right")
    table.add_column("")
    for row in found.expected:
        mark = "requested" if row.epsilon == found.epsilon else ""
        table.add_row(f"{row.epsilon:g}", *_scores(row.scores), mark)
    table.add_row("no noise", *_scores(found.without), "")
    return table


def _figure(value: float | None, form: str) -> str:
    return "" if value is None else format(value, form)


def _scores(scores: tuple[float, ...]) -> tuple[str, ...]:
    return (*(f"{value:.2f}" for value in (sum(scores) / len(scores), min(scores), max(scores))), str(len(scores)))
