"""Tiny experiments, and records of experiments whose figures are made up."""

from __future__ import annotations

from dataclasses import replace

from felb.runs.cells import CellRecord
from felb_paper.cells import MethodUse, _manifest
from felb_paper.experiments.planted import NOISE

FAST = MethodUse("FELB", "felb", {"max_iter": 2, "local_steps": 1})
ASSO = MethodUse("Asso", "asso+vote")


def tiny(**changes):
    """An experiment of four cells that take milliseconds."""
    settings = {"rows": 60, "columns": 12, "components": 2, "clients": 3, "levels": (0.0, 0.1), "trials": 1}
    return replace(NOISE[1], **{**settings, "methods": (FAST, ASSO), **changes})


def made_up(study, figures, *, curves=lambda cell: {}, keep=lambda cell: True):
    """A record of a study with the figures that a function gives for each planned cell."""
    record = _manifest(study)
    cells = {
        cell.key: CellRecord(cell.key, "done", figures=figures(cell), curves=curves(cell))
        for cell in record.planned
        if keep(cell)
    }
    return replace(record, cells=cells)
