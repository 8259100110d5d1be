"""Data, reconstruction and residual, side by side."""

from __future__ import annotations

from typing import TYPE_CHECKING

from felb.report import parts
from felb.report.images import PALETTES, data_uri, enlarged, pictures_of
from felb.report.page import Html, section, tag
from felb.report.parts import counted, number

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from felb.report.evidence import Evidence
    from felb.report.images import Pictures
    from felb.report.page import Section


def pictures_section(evidence: Evidence) -> Section:
    """Data, reconstruction and residual side by side."""
    title = "Data and reconstruction"
    measured = evidence.measured
    if measured is None:
        told = f"{evidence.absent} With --data FILE the report shows data, reconstruction and residual."
        return section(title, parts.note(told))
    if 0 in measured.matrix.shape or not len(measured.V):
        return section(title, parts.note("There is nothing to draw: the data or the result is empty."))
    drawn, unknown = pictures_of(measured), 0 if measured.matrix.unknown is None else measured.matrix.unknown.nnz
    tp, fp, fn = (number(count) for count in (measured.counts.tp, measured.counts.fp, measured.counts.fn))
    return section(
        title,
        parts.legend(
            {
                "one": "ink",
                "zero": "paper",
                "explained one": "kept",
                "missed one": "missed",
                "false one": "wrong",
            }
        ),
        parts.grid(
            _picture(drawn.data, f"Data: {number(measured.matrix.nnz)} ones"),
            _picture(drawn.reconstruction, f"Reconstruction: {tp} ones that are in the data, {fp} false ones"),
            _picture(drawn.residual, f"Residual: {fn} missed ones, {fp} false ones"),
            narrow=True,
        ),
        parts.paragraph(_picture_note(drawn, unknown), fine=True),
    )


def _picture(codes: NDArray[np.uint8], caption: str) -> Html:
    pixels = enlarged(codes)
    high, wide = pixels.shape
    images = (
        tag("img", src=Html(data_uri(pixels, colours)), alt=caption, width=wide, height=high, class_=f"on-{theme}")
        for theme, colours in PALETTES.items()
    )
    return parts.figure(images, caption=caption)


def _picture_note(drawn: Pictures, unknown: int) -> str:
    told = (
        "Rows are records and columns are features. Both are ordered by their components, beginning with the component "
        "that covers most cells; records and features without a component are at the end."
    )
    if unknown:
        told += f" The data has {counted(unknown, 'unknown cell')}; unknown cells are left blank in data and residual."
    if not drawn.chosen:
        return told
    shown = [
        f"{number(some)} of {number(all_)} {what}" if some < all_ else f"all {what}"
        for some, all_, what in zip(drawn.data.shape, drawn.shape, ("records", "features"), strict=True)
    ]
    return (
        f"{told} The picture shows {' and '.join(shown)}, selected evenly in this order. At most a quarter of them "
        "have no component, unless there are too few others."
    )
