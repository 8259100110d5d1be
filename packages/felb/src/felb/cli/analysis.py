"""``felb stability`` and ``felb choose-k``."""

from __future__ import annotations

from typing import Any

import click

from felb.cli import options
from felb.cli.options import COUNT, PATH, option
from felb.cli.output import echo, print_json, print_rows, step_progress, unverified_option, warnings_as_notes


@click.command("stability")
@click.argument("result", **PATH)
@options.data_of_run
@option("--resamples n_resamples", "Number of refits.", COUNT, 50)
@option(
    "--refit refits",
    "Result folder of `felb run --refit`; replaces refits on this machine; can be repeated.",
    "FOLDER",
    multiple=True,
)
@options.seed
@options.client_column_of_data
@options.reading
@options.as_json
@unverified_option
def stability_command(
    result: str, n_resamples: int, refits: tuple[str, ...], seed: int, as_json: bool, **data: Any
) -> None:
    """Measure how often refits on resampled records find the components of RESULT again.

    Each client draws a bootstrap sample of its own rows, and the method of the result is run on these samples with
    another seed and, if it has one, low effort. The components of a refit are matched one to one with those of the
    result. The result is stored in RESULT/stability.json, and `felb report` shows it beside the components.

    The data of a run over sites is not here. `felb run --refit N` lets the sites refit it, each with a random half of
    its records, and `felb stability RESULT --refit FOLDER --refit FOLDER …` compares what they found.

    \b
    match    mean Jaccard index of the features with those of the match
    low/high 95% of the refits lie between these
    chance   Jaccard index of random sets of the same sizes
    found    share of refits whose match is at least half of the way from
             chance to 1
    """  # noqa: D301
    from felb.runs import check_folder_of_result

    check_folder_of_result(result)
    from felb.analysis.refits import FILE  # slow to import, and not needed to refuse a wrong folder
    from felb.report import gather, measure_stability
    from felb.report.inputs import compare_refits

    with warnings_as_notes(), step_progress("refits") as advance:
        inputs = gather(result, **options.given(**data))
        if refits:
            stable = compare_refits(result, refits)
        else:
            on_refit = lambda done: advance(done, n_resamples)  # noqa: E731
            stable = measure_stability(inputs, n_resamples=n_resamples, seed=seed, on_refit=on_refit)
    place = inputs.folder / FILE
    stable.write(place)
    if as_json:
        print_json({"result": result, "file": str(place), **stable.to_json()})
        return
    rows = {row["component"]: row for row in stable.rows()}
    table = [
        {
            "component": component.number,
            **{name: f"{rows[component.number][name]:.2f}" for name in ("match", "low", "high", "chance")},
            "found": f"{rows[component.number]['found']:.0%}",
            "features": ", ".join(component.features[:6]) + (", …" if len(component.features) > 6 else ""),
        }
        for component in inputs.describe_components()
    ]
    print_rows(table)


MOST_NUMBERS = 10_000
"""Numbers of components that one command compares at most."""


class Numbers(click.ParamType):  # type: ignore[type-arg]
    """Numbers of components: 2-15, or 2,4,8."""

    name = "numbers"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> list[int]:
        """Return the list of numbers."""
        try:
            spans = [[int(end) for end in part.split("-")] for part in str(value).split(",")]
            if sum(span[-1] - span[0] for span in spans) > MOST_NUMBERS:
                self.fail(f"{value!r} are more than {MOST_NUMBERS} numbers; compare fewer", param, ctx)
            found = [number for span in spans for number in range(span[0], span[-1] + 1)]
        except ValueError:
            found = []
        if not found or min(found) < 1:
            self.fail(f"{value!r} is no list of numbers; write 2-15 or 2,4,8", param, ctx)
        return found


@click.command("choose-k")
@click.argument("data")
@option(
    "-k --components n_components",
    "Numbers of components to compare, for example 2-15 or 2,4,8.",
    {"type": Numbers(), "metavar": "NUMBERS"},
    "1-15",
)
@option("--folds cv", "Number of folds.", COUNT, 3)
@option("--share", "Share of the cells that a fold holds out.", options.SHARE, 0.1)
@option(
    "--resamples n_resamples",
    "Number of refits for the stability of each number of components; with 0 it is not computed.",
    options.NATURAL,
    10,
)
@option("--clients", "Split the rows among this number of simulated clients.", COUNT)
@options.split
@options.client_column_left_out
@option("--figure", "Draw the curves into this PNG file; requires felb[report].", "FILE")
@options.seed
@options.reading
@options.as_json
def choose_k_command(
    data: str,
    n_components: list[int],
    cv: int,
    share: float,
    n_resamples: int,
    clients: int | None,
    split: str,
    figure: str | None,
    seed: int,
    as_json: bool,
    **reading: Any,
) -> None:
    """Choose the number of components for DATA by predicting held-out cells.

    For each number, the method bmf is fitted with low effort. In each fold a share of the cells is unknown to the fit
    and predicted by it. The smallest number whose mean F1 is at most one standard error below the best is chosen.
    The choice does not depend on how the rows are split among clients.

    \b
    held-out F1  F1 on the held-out cells, mean of the folds
    error        share of wrong cells of a fit to all cells
    stability    mean share of refits that find a component again
    bits         description length
    """  # noqa: D301
    from felb.data.files import read_data
    from felb.data.partition import dealt

    with warnings_as_notes():
        table = read_data(data, **options.given(**reading))
    from felb.analysis.rank_choice import choose_k  # slow to import, and not needed to refuse wrong data
    from felb.report.figures import check_drawable, write_choice

    if figure is not None:
        check_drawable(figure)
    with warnings_as_notes(), step_progress("numbers") as advance:
        groups: Any = table.clients
        if clients is not None:
            groups = dealt(len(table.matrix), clients, split=split, seed=seed)
        choice = choose_k(
            table.matrix,
            n_components,
            groups=groups,
            cv=cv,
            share=share,
            n_resamples=n_resamples,
            random_state=seed,
            on_rank=lambda number: advance(n_components.index(number) + 1, len(n_components)),
        )
        if figure is not None:
            write_choice(choice, figure)
    if as_json:
        print_json({"data": data, **choice.to_json(), **({} if figure is None else {"figure": figure})})
        return
    print_rows(
        [
            {
                "k": f"{row.n_components}{'*' if row.n_components == choice.best_k else ''}",
                "held-out F1": f"{row.mean:.4f} ± {row.standard_error:.4f}",
                "error": f"{row.error_rate:.4f}",
                "stability": "-" if row.stability is None else f"{row.stability:.2f}",
                "bits": f"{row.description_length:.0f}",
            }
            for row in choice.scores
        ]
    )
    echo(f"* chosen by held-out cells: {choice.best_k}; shortest description: {choice.shortest_k}")
