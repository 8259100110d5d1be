"""Values of wrong types in public constructors: felb's own errors, never those of Python or NumPy."""

from __future__ import annotations

import dataclasses
import inspect

import numpy as np
import pytest

import felb
from felb.data import Limits, planted
from felb.federated.protocol import Participation
from felb.privacy import Privacy
from felb.privacy.disclosure import Disclosure
from felb.runs.job import Job

WRONG = ["x", None, [1], {}, b"x", float("nan"), 10**400, -1, 0, 1.5, True, object(), np.array([1, 2])]
RECORDS = {
    Privacy: {"epsilon": 1.0},
    Participation: {},
    Limits: {},
    Disclosure: {},
    Job: {"data": "zoo", "method": "bmf", "n_components": 2},
}


def _accepts_or_refuses(make) -> bool:
    try:
        make()
    except felb.FelbError:
        return False
    return True


@pytest.mark.parametrize("kind", RECORDS, ids=lambda kind: kind.__name__)
def test_records_refuse_wrong_types_themselves(kind):
    refused = 0
    for field in dataclasses.fields(kind):
        for value in WRONG:
            refused += not _accepts_or_refuses(lambda: kind(**{**RECORDS[kind], field.name: value}))  # noqa: B023
    assert refused > 5 * len(dataclasses.fields(kind))


def test_planted_data_refuses_wrong_types_itself():
    names = list(inspect.signature(planted).parameters)
    refused = [
        name
        for name in names
        for value in WRONG
        if not _accepts_or_refuses(
            lambda: planted(**{"n": 20, "m": 10, "k": 2, name: value})  # noqa: B023
        )
    ]
    assert set(refused) == set(names)


@pytest.mark.parametrize(("kind", "value"), [(Privacy, "x"), (Participation, "x"), (Privacy, 10**401)])
def test_the_error_names_the_parameter(kind, value):
    with pytest.raises(felb.InputError, match=r"(epsilon|fraction) must be a number"):
        kind(value)
