"""Two results side by side, for ``felb show A B``."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from rich.table import Table

from felb.cli.output import describe, plain_console, print_json, score_table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from felb.runs.result import Component, Result
    from felb.runs.result_pairs import Pair


def print_pair(results: Sequence[Result], folders: Sequence[str], *, as_json: bool, shown: int) -> None:
    """Print facts, scores and matched components of two results."""
    from felb.runs.result_pairs import pair_components

    pairs = pair_components(*results)
    if as_json:
        sides = [
            {"folder": folder, "method": result.provenance.method, "scores": result.scores}
            for folder, result in zip(folders, results, strict=True)
        ]
        print_json({"results": sides, "pairs": [asdict(pair) for pair in pairs]})
        return
    console = plain_console()
    console.print(_facts(results, folders))
    console.print()
    names = (f"{side}: {result.provenance.method}" for side, result in zip("AB", results, strict=True))
    console.print(score_table(dict(zip(names, (result.scores for result in results), strict=True))))
    console.print()
    console.print(_pairs(pairs, shown))


def _facts(results: Sequence[Result], folders: Sequence[str]) -> Table:
    told = [describe(result, folder) for result, folder in zip(results, folders, strict=True)]
    table = Table(box=None, header_style="bold", pad_edge=False)
    for title in ("", "A", "B"):
        table.add_column(title, overflow="fold")
    for name in dict.fromkeys(name for facts in told for name in facts):
        table.add_row(name, *(facts.get(name, "-") for facts in told))
    return table


def _pairs(pairs: Sequence[Pair], shown: int) -> Table:
    """Return the table of components: numbers, similarity, supports, and features of both or of one alone."""
    table = Table(box=None, header_style="bold", pad_edge=False)
    for title in ("A", "B", "match", "support A", "support B"):
        table.add_column(title, justify="right", no_wrap=True)
    table.add_column("features of both; of one alone", overflow="fold")
    for pair in pairs:
        sides = (pair.first, pair.second)
        match = f"{pair.jaccard:.2f}" if all(sides) else "-"
        parts = [_listed(pair.shared, shown)] if pair.shared else []
        parts += [f"only A: {_listed(pair.only_first, shown)}"] if pair.only_first else []
        parts += [f"only B: {_listed(pair.only_second, shown)}"] if pair.only_second else []
        table.add_row(*map(_number, sides), match, *map(_support, sides), "; ".join(parts))
    return table


def _number(component: Component | None) -> str:
    return "-" if component is None else str(component.number)


def _support(component: Component | None) -> Any:
    return "-" if component is None or component.support is None else str(component.support)


def _listed(features: Sequence[str], shown: int) -> str:
    more = len(features) - shown
    return ", ".join(features[:shown]) + (f", … ({more} more)" if more > 0 else "")
