"""Tables, pages and figures of stored experiments, also where cells are missing."""

from __future__ import annotations

import csv
import io
from dataclasses import replace

import pytest

from felb.errors import InputError
from felb.report.tables import FAILED, NO_SCORE, OUT_OF_TIME
from felb.runs.cells import CellRecord
from felb_paper.figures import draw_study, mean_curves, names_in_a_line
from felb_paper.study import Claim, Metric, Planned, StudyRecord, View
from felb_paper.tables import (
    failures,
    index_markdown,
    provenance_text,
    study_tables,
    summary,
    to_csv,
    to_markdown,
)

METRICS = (Metric("f1", "F1", "high", digits=2), Metric("cost", "cost", digits=1))
PLANNED = tuple(
    Planned(f"{method}-{place}-{trial}", method, place, "", trial)
    for method in ("Asso", "FELB")
    for place in (0.0, 0.1)
    for trial in range(2)
)
CELLS = {
    "Asso-0.0-0": CellRecord("Asso-0.0-0", "done", {"f1": 0.2}),
    "Asso-0.0-1": CellRecord("Asso-0.0-1", "done", {"f1": 0.4}),
    "FELB-0.0-0": CellRecord("FELB-0.0-0", "done", {"f1": 0.8}),
    "Asso-0.1-0": CellRecord("Asso-0.1-0", "failed", message="no | luck"),
    "FELB-0.1-0": CellRecord("FELB-0.1-0", "timeout", message="no answer within 3 s"),
}
VIEW = View("lines", "flipped", METRICS, ("Asso", "FELB"), percent=True, note="A note.")
RECORD = StudyRecord("noise", "Noise", "How much?", "quick", VIEW, PLANNED, cells=CELLS)


def test_cells_hold_mean_and_interval_the_best_is_marked_and_what_is_missing_says_why():
    (table,) = study_tables(RECORD)  # no cell has a cost
    assert table.title == "F1"
    assert table.head == ("flipped", "0%", "10%")
    assert table.rows == (("Asso", "0.30 ±1.27", FAILED), ("FELB", "0.80*", OUT_OF_TIME))
    (table,) = study_tables(replace(RECORD, cells={}))
    assert table.rows[0] == ("Asso", NO_SCORE, NO_SCORE)


def test_a_mean_of_some_trials_says_how_many_where_the_others_ended_without_figures():
    late = {**CELLS, "FELB-0.0-1": CellRecord("FELB-0.0-1", "timeout")}
    (table,) = study_tables(replace(RECORD, cells=late))
    assert table.rows[1][1] == "0.80 (1 of 2)*"


def ranked(values, better="high", **ended):
    """A record of one trial on two data sets, with figures by method; None where a cell has none."""
    planned = tuple(Planned(f"{m}-{p}", m, p, "", 0) for m in values for p in ("zoo", "tcga"))
    cells = {
        f"{m}-{p}": CellRecord(f"{m}-{p}", "timeout" if v is None else "done", {"f1": v, "rows": 3, "columns": 2})
        for m, both in values.items()
        for p, v in zip(("zoo", "tcga"), both, strict=True)
    }
    metric = replace(METRICS[0], better=better)
    view = View("points", "data", (metric,), tuple(values), scale="names", ranked=tuple(values)[:3], **ended)
    return replace(RECORD, view=view, planned=planned, cells=cells)


FOUR = {"Asso": (0.5, 0.2), "Zhang": (0.5, None), "FELB": (0.7, 0.4), "FederatedBMF": (0.9, 0.6)}


def test_ranks_are_among_the_ranked_methods_and_those_without_a_figure_come_last():
    record = ranked(FOUR)
    assert record.ranks(METRICS[0], "zoo") == {"Asso": 2, "Zhang": 2, "FELB": 1}
    assert record.ranks(METRICS[0], "tcga") == {"Asso": 2, "Zhang": 3, "FELB": 1}
    assert record.ranks(replace(METRICS[0], better="low"), "zoo") == {"Asso": 1, "Zhang": 1, "FELB": 3}
    scores, ranks = study_tables(record)
    assert scores.rows[-1] == ("FederatedBMF", "0.90*", "0.60*")
    assert ranks.head == ("data", "zoo", "tcga", "average")
    assert ranks.rows == (("Asso", "2", "2", "2.00"), ("Zhang", "2", "3", "2.50"), ("FELB", "1", "1", "1.00*"))


def test_the_best_is_bold_and_the_second_underlined_in_pages():
    record = ranked(FOUR)
    page = to_markdown(record, [])
    assert "| FELB | <u>0.70</u> | <u>0.40</u> |" in page
    assert "| FederatedBMF | **0.90** | **0.60** |" in page
    assert "| Zhang | 0.50 | out of time |" in page


def test_published_figures_do_not_stand_beside_data_of_another_shape():
    paper = {"published": {"f1": {"zoo": {"FELB": 0.25}, "tcga": {"FELB": 0.35}}}}
    shapes = {"published_shapes": {"zoo": (3, 2), "tcga": (30, 2)}}
    record = ranked(FOUR, **paper, **shapes)
    measured, _, alone = study_tables(record)
    assert measured.rows[2] == ("FELB", "0.70 / 0.25", "0.40")
    assert alone.head == ("data", "tcga")
    assert alone.rows == (("FELB", "0.35"),)
    assert StudyRecord.published(record, "f1", "tcga") == {}


def test_published_figures_stand_beside_measured_ones_and_alone_where_nothing_was_run():
    published = {"f1": {"0.0": {"Asso": 0.25, "FELB": None}, "elsewhere": {"FELB": 0.5}}}
    measured, paper = study_tables(replace(RECORD, view=replace(VIEW, published=published)))
    assert measured.rows[0][1:] == ("0.30 ±1.27 / 0.25", FAILED)
    assert measured.rows[1][1] == f"0.80* / {NO_SCORE}"
    assert paper.head == ("flipped", "elsewhere")
    assert paper.rows == (("FELB", "0.50"),)


def test_the_summary_and_the_failures_tell_what_is_missing():
    assert summary(RECORD).startswith("3 of 8 runs done, 1 failed, 1 out of time, 3 not run yet; 2 trials")
    assert failures(RECORD) == ["Asso 10%: no | luck", "FELB 10%: no answer within 3 s"]


def test_csv_has_a_line_for_every_figure():
    rows = list(csv.DictReader(io.StringIO(to_csv(RECORD))))
    assert len(rows) == 8
    first = rows[0]
    assert (first["method"], first["place"], first["figure"], first["trials"]) == ("Asso", "0.0", "f1", "2")
    assert float(first["low"]) < float(first["mean"]) < float(first["high"])
    assert {row["mean"] for row in rows if row["figure"] == "cost"} == {""}


def test_a_page_has_everything():
    claims = [Claim("F1* | falls", "contradicted", "0 < 1"), Claim("It holds", "reproduced", "1")]
    page = to_markdown(RECORD, claims, figure="noise.png")
    for part in ("# Noise\n", "How much?", "A note.", "![Noise](noise.png)", "`felb experiment run noise --quick`"):
        assert part in page
    assert "| F1\\* \\| falls |  | **contradicted** | 0 &lt; 1 |" in page
    assert "- Asso 10%: no \\| luck" in page
    assert "| Asso | 0.30 ±1.27 | failed |" in page
    assert "| FELB | **0.80** | out of time |" in page
    index = index_markdown([(RECORD, claims, "noise.md")])
    assert "| [Noise](noise.md) | quick | 3 of 8 | 1 | 1 | 0 |" in index
    assert "Quick forms use smaller data" in index
    assert "Quick forms" not in index_markdown([(replace(RECORD, form="full"), claims, "noise.md")])


def test_a_run_that_ended_early_stays_at_its_last_value():
    means = [mean for mean, _, _ in mean_curves([[4.0, 2.0], [2.0, 2.0, 0.0], [], [None]])]
    assert means == [3.0, 2.0, 1.0]
    assert mean_curves([[1.0]]) == [(1.0, 1.0, 1.0)]
    assert mean_curves([]) == []


# -- figures -----------------------------------------------------------------------------------------------------------

pytest_matplotlib = pytest.importorskip("matplotlib")


def panels(kind, **changes):
    names = ("one", "two")
    planned = tuple(replace(cell, key=f"{panel}{cell.key}", panel=panel) for panel in names for cell in PLANNED)
    cells = {f"{panel}{key}": replace(cell, key=f"{panel}{key}") for panel in names for key, cell in CELLS.items()}
    view = replace(VIEW, kind=kind, panels=names, **changes)
    return replace(RECORD, view=view, planned=planned, cells=cells)


def named(kind, **changes):
    planned = tuple(replace(cell, place="zoo" if cell.place else "tcga") for cell in PLANNED)
    return replace(RECORD, view=replace(VIEW, kind=kind, scale="names", percent=False, **changes), planned=planned)


def pictured():
    picture = {f"{kind}/{number}": ["01", "10"] for kind in ("data", "local", "aggregated") for number in (1, 2)}
    cells = {key: replace(cell, pictures=picture) for key, cell in CELLS.items()}
    return replace(named("pictures"), cells=cells)


def watched():
    cells = {key: replace(cell, curves={"f1": [0.1, 0.2]}) for key, cell in CELLS.items()}
    return replace(RECORD, view=replace(VIEW, kind="rounds"), cells=cells)


FIGURES = {
    "lines": RECORD,
    "lines of clients": replace(
        RECORD,
        view=replace(VIEW, scale="log2", percent=False, metrics=(replace(METRICS[0], log=True),)),
        planned=tuple(replace(cell, place=cell.place * 10 + 1) for cell in PLANNED),
    ),
    "panels": panels("lines"),
    "rounds": watched(),
    "points": named("points", published={"f1": {"zoo": {"FELB": 0.5}, "else": {"FELB": 0.1, "Asso": None}}}),
    "ratios": replace(panels("points", scale="names", percent=False, ratio=("f1", "FELB", "Asso"))),
    "pictures": pictured(),
}


@pytest.mark.parametrize("name", FIGURES)
def test_every_kind_of_figure_is_drawn_with_gaps(name, tmp_path):
    draw_study(FIGURES[name], tmp_path / "a" / "figure.png")
    assert (tmp_path / "a" / "figure.png").read_bytes().startswith(b"\x89PNG")
    assert [path.name for path in (tmp_path / "a").iterdir()] == ["figure.png"]


def test_the_legend_breaks_lines_only_where_it_must():
    assert names_in_a_line(["FELB", "Asso"], 9.0) == 2
    assert names_in_a_line(["FELB · 50 clients, by component"] * 12, 9.0) == 3
    assert names_in_a_line(["x" * 500], 9.0) == 1


def test_figures_are_the_same_every_time(tmp_path):
    for name in ("a.png", "b.png"):
        draw_study(RECORD, tmp_path / name)
    assert (tmp_path / "a.png").read_bytes() == (tmp_path / "b.png").read_bytes()


def test_what_cannot_be_drawn_is_refused(tmp_path):
    with pytest.raises(InputError, match="PNG"):
        draw_study(RECORD, tmp_path / "figure.pdf")
    with pytest.raises(InputError, match="'noise'"):
        draw_study(replace(RECORD, cells={}), tmp_path / "figure.png")


def test_a_page_tells_how_busy_the_machine_was_when_cells_were_measured():
    cells = {
        key: replace(cell, provenance={"felb": "1", "date": "2026-01-02", "load": load})
        for (key, cell), load in zip(RECORD.cells.items(), (0.5, 9.0, 1.5), strict=False)
    }
    told = provenance_text(replace(RECORD, cells=cells, provenance={"load": 40.0, "date": "2027-01-01"}))
    assert "felb 1, 2026-01-02" in told
    assert "median load 1.5" in told
    assert "median load 40" in provenance_text(replace(RECORD, cells={}, provenance={"load": 40.0}))
