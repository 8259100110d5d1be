"""The part of real data that methods are compared on, and how its rows are dealt out."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import felb
from felb_paper.cells import Cell, MethodUse, SourceData
from felb_paper.experiments import find_study
from felb_paper.measuring import COLUMNS, ROWS, prepare, subset

ZOO = felb.data.load("zoo")
CELL = Cell(MethodUse("FELB", "felb"), SourceData("zoo", 5, 60, None, 6), 4, "zoo", 0)


def test_rows_are_random_and_columns_the_heaviest_of_them():
    part = subset(ZOO, 40, 6)
    rows = np.sort(np.random.default_rng(0).choice(101, 40, replace=False))
    dense = ZOO.toarray()[rows]
    heaviest = sorted(sorted(range(17), key=lambda j: (-dense[:, j].sum(), j))[:6])
    assert (part.toarray() == dense[:, heaviest]).all()
    assert part.columns == tuple(ZOO.columns[j] for j in heaviest)


def test_small_data_is_taken_as_a_whole():
    assert subset(ZOO) is ZOO
    assert subset(ZOO, None, None) is ZOO
    assert (ROWS, COLUMNS) == (10_000, 1_000)


def test_other_seeds_take_other_rows():
    assert subset(ZOO, 40, None, seed=1) != subset(ZOO, 40, None, seed=0)


def test_cells_run_on_the_part():
    ready = prepare(CELL)
    assert subset(ZOO, 60, 6) == ready.A
    assert sorted(np.unique(ready.clients, return_counts=True)[1]) == [15, 15, 15, 15]


def test_uneven_clients_differ_in_size_and_by_component_in_their_rows():
    uneven = np.unique(prepare(replace(CELL, split="uneven")).clients, return_counts=True)[1]
    assert uneven.sum() == 60
    assert uneven.max() > 1.5 * uneven.min()
    ready = prepare(replace(CELL, split="by component"))
    assert sorted(np.unique(ready.clients, return_counts=True)[1]) == [15, 15, 15, 15]

    def spread(clients):
        dense = ready.A.toarray()
        return np.var([dense[clients == name].mean(axis=0) for name in np.unique(clients)], axis=0).sum()

    assert spread(ready.clients) > 2 * spread(prepare(CELL).clients)


@pytest.mark.parametrize("quick", [True, False])
def test_numbers_of_clients_that_leave_too_few_rows_are_left_out(quick):
    seen = {}
    for cell in find_study("clients", quick=quick).cells():
        seen.setdefault(cell.place, set()).add((cell.clients, cell.split))
    counts = {place: {count for count, split in found if split == "even"} for place, found in seen.items()}
    assert counts["zoo"] == ({1} if quick else {1, 10})
    assert counts["sc_10x_brain_10k"] == ({1, 15, 30} if quick else {1, 10, 50, 200})
    assert {(50, "uneven"), (50, "by component")} <= seen["soybean"] or quick
