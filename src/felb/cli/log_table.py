"""The table of an outbound log, for a site and for a whole run."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from rich.padding import Padding
from rich.table import Table

from felb.cli.output import plain_console

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from felb.privacy.outbound_log import Left


def print_outbound(lines: Sequence[Mapping[str, Any]], *, nothing: str) -> None:
    """Print one line for each kind of array that left; clients with equal tables are grouped."""
    from felb.privacy.outbound_log import summarize

    console = plain_console()
    if not lines:
        console.print(nothing, soft_wrap=True)
        return
    left = summarize(lines)
    for names, parts in alike(left):
        who = names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} others, each"
        console.print(who if parts[0].run is None else f"{who}, run {parts[0].run}", soft_wrap=True)
        console.print(Padding(table_of(parts), (0, 0, 1, 2)))
    console.print(in_all(left), soft_wrap=True)


def table_of(parts: Sequence[Left]) -> Table:
    """Return the table of one client."""
    table = Table(box=None, header_style="bold", pad_edge=False)
    for name in ("rounds", "what", "shape"):
        table.add_column(name, overflow="fold")
    table.add_column("bytes", justify="right", no_wrap=True)
    for name in ("mechanism", "cost", "total"):
        table.add_column(name, overflow="fold")
    for part in parts:
        what = part.what if part.what == part.task else f"{part.task}: {part.what}"
        shape = "x".join(map(str, part.shape)) or "1"
        row = (in_rounds(part), what, shape, f"{part.bytes:,}", part.mechanism)
        table.add_row(*row, part.cost_in_words, part.total_in_words)
    return table


def alike(left: Sequence[Left]) -> list[tuple[list[str], list[Left]]]:
    """Group clients whose tables are equal."""
    by_client: dict[tuple[str | None, str], list[Left]] = {}
    for part in left:
        by_client.setdefault((part.run, part.client), []).append(part)
    groups: list[tuple[list[str], list[Left]]] = []
    for (_, client), parts in by_client.items():
        same = [replace(part, client="") for part in parts]  # tables include the run: different runs are never grouped
        for names, others in groups:
            if [replace(part, client="") for part in others] == same:
                names.append(client)
                break
        else:
            groups.append(([client], parts))
    return groups


def in_rounds(part: Left) -> str:
    """Return the rounds of a line: 3, or 0-49, or 5 of 0-49 if some rounds are missing."""
    first, last = part.rounds
    if first == last:
        return str(first)
    return f"{first}-{last}" if part.count == last - first + 1 else f"{part.count} of {first}-{last}"


def in_all(left: Sequence[Left]) -> str:
    """Return a sentence with the total size and the total privacy cost."""
    clients = sorted({part.client for part in left})
    size = sum(part.bytes for part in left)
    count = sum(part.count for part in left)
    text = f"total: {count:,} arrays, {size:,} bytes, from {len(clients)} client{'s' if len(clients) > 1 else ''}"
    bare = sum(part.count for part in left if part.cost is None)
    if bare:
        return (
            f"{text}; {'none' if bare == count else f'{bare:,} not'} protected by noise, so there is no privacy total"
        )
    totals = [part.total for part in left if part.total is not None]
    if not totals:
        return text
    worst = max(totals, key=lambda total: float(total["epsilon"]))
    return f"{text}; each has spent at most (epsilon, delta) = ({worst['epsilon']:.4g}, {worst['delta']:.3g})"
