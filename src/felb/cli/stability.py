"""``felb stability``."""

from __future__ import annotations

from typing import Any

import click

from felb.cli import options
from felb.cli.output import print_json, print_rows, warnings_as_notes


@click.command("stability")
@click.argument("result", type=click.Path())
@click.option(
    "--data",
    metavar="FILE",
    help="Data of the run (default: the file with the name that the run has stored, if it is found).",
)
@click.option("--resamples", "n_resamples", default=50, show_default=True, help="Number of refits.", **options.COUNT)
@click.option(
    "--refit",
    "refits",
    multiple=True,
    metavar="FOLDER",
    help="Result folder of `felb run --refit`; replaces refits on this machine; can be repeated.",
)
@options.seed
@options.client_column_of_data
@options.reading
@options.as_json
def command(
    result: str,
    data: str | None,
    n_resamples: int,
    refits: tuple[str, ...],
    seed: int,
    as_json: bool,
    **reading: Any,
) -> None:
    """Measure how often refits on resampled records find the components of RESULT again.

    Each client draws a bootstrap sample of its own rows, and the method of the result is run on these samples with
    another seed and, if it has one, low effort. The components of a refit are matched one to one with those of the
    result. The result is stored in RESULT/stability.json, and `felb report` shows it beside the components.

    The data of a run over sites is not here. `felb run --refit N` lets the sites refit it, each with a random half of
    its records, and `felb stability RESULT --refit FOLDER --refit FOLDER …` compares what they found.

    \b
    found    share of refits whose match has a Jaccard index of at least 0.75
    match    mean Jaccard index of the features with those of the match
    low/high 95% of the refits lie between these
    """  # noqa: D301
    from felb.runs.result_places import check_folder_of_result

    check_folder_of_result(result)
    from felb.cli.progress import step_progress  # slow to import, and not needed to refuse a wrong folder
    from felb.report import gather, stability_of
    from felb.report.component_parts import described
    from felb.report.result_stability import stability_of_refits, store_stability

    with warnings_as_notes(), step_progress("refits") as advance:
        evidence = gather(result, data=data, **options.given(**reading))
        if refits:
            stable = stability_of_refits(result, refits)
        else:
            stable = stability_of(
                evidence, n_resamples=n_resamples, seed=seed, on_refit=lambda done: advance(done, n_resamples)
            )
    place = store_stability(stable, evidence.folder)
    if as_json:
        print_json({"result": result, "file": str(place), **stable.to_json()})
        return
    rows = {row["component"]: row for row in stable.rows()}
    table = [
        {
            "component": component.number,
            "found": f"{rows[component.number]['found']:.0%}",
            **{name: f"{rows[component.number][name]:.2f}" for name in ("match", "low", "high")},
            "features": ", ".join(component.features[:6]) + (", …" if len(component.features) > 6 else ""),
        }
        for component in described(evidence)
    ]
    print_rows(table)
