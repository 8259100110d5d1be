"""The page of a stored experiment: what the paper says, the figure, the tables, where they come from."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import TYPE_CHECKING

from felb.paper.study import CLAIMS, StudyRecord, read_claims
from felb.paper.tables import failures, provenance_text, study_tables, summary
from felb.report import parts
from felb.report.page import Page, section, tag

if TYPE_CHECKING:
    import os
    from collections.abc import Sequence

    from felb.paper.study import Claim
    from felb.report.page import Html, Section

FIGURE = "figure.png"
"""The figure that `felb experiment run` leaves in the folder."""


def study_page(folder: str | os.PathLike[str]) -> Page:
    """Return the page of the experiment in a folder, from what is stored there alone."""
    record, claims = StudyRecord.read(folder), read_claims(folder)
    sections: list[Section] = []
    figure = Path(folder) / FIGURE
    if figure.is_file():
        sections.append(section("Figure", _embedded(figure, record)))
    sections.append(section("Claims", _claims(claims)))
    told = summary(record, marks="bold: best, underlined: second best")
    sections.append(section("Tables", parts.paragraph(f"{told}."), (table.html() for table in study_tables(record))))
    if wrong := failures(record):
        sections.append(section("Runs without values", tag("ul", (tag("li", reason) for reason in wrong))))
    settings = {name: _plain(value) for name, value in record.settings.items() if name != "methods"}
    sections.append(section("Provenance", parts.paragraph(f"{provenance_text(record)}."), parts.facts(settings)))
    lead = (parts.paragraph(record.question), parts.paragraph(record.view.note, fine=True))
    return Page(record.title, sections, kicker=f"Experiment {record.name}, {record.form} form", lead=lead)


def _embedded(figure: Path, record: StudyRecord) -> Html:
    source = f"data:image/png;base64,{base64.b64encode(figure.read_bytes()).decode()}"
    image = tag("img", src=source, alt=f"Figure of the experiment {record.name}", style="max-width:100%;height:auto")
    return parts.figure(image, caption="Mean and 95% interval over the trials.", wide=True)


def _claims(claims: Sequence[Claim]) -> Html:
    if not claims:
        return parts.note(f"The claims were not checked yet: there is no {CLAIMS}. Run the experiment to its end.")
    columns = [parts.Column(title, "words") for title in ("claim", "verdict", "measured")]
    rows = [(claim.says, claim.verdict, claim.numbers) for claim in claims]
    return parts.table(columns, rows, caption="Claims of the paper, compared with the runs of this experiment")


def _plain(value: object) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
