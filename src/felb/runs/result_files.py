"""Reads a result back: a folder, or a model file, in this format and the ones before it."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from felb.data.binary import check_column_names
from felb.data.schema import Schema
from felb.errors import FelbError, InputError
from felb.metrics.history import History
from felb.records import Natural, read_bounded, read_record
from felb.runs.model_file import unpacked
from felb.runs.result import (
    AGAIN,
    BELIEF,
    COMPONENTS,
    FORMATS,
    PRIVATE,
    SCHEMA,
    Provenance,
    Result,
    fingerprint_of,
    read_boolean,
)
from felb.runs.result_places import RESULT, check_result_folder, is_model_file
from felb.runs.result_words import AGREED

if TYPE_CHECKING:
    from pathlib import Path

    from felb.optim.belief import Belief


def read_result(path: Path) -> Result:
    """Read a result folder or a model file; damage is an `InputError` that names the file and what is wrong in it."""
    if is_model_file(path):
        with unpacked(path) as folder:
            return _read_folder(folder)
    check_result_folder(path)
    return _read_folder(path)


def _read_folder(path: Path) -> Result:
    stored = read_record(path / RESULT, _Stored, advice=AGAIN)
    shape, features = (stored.n_components, stored.n_features), None
    if (path / PRIVATE).is_file():  # whoever has passed the result on has kept it
        owned = read_record(path / PRIVATE, _Owned, advice=AGAIN)
        if owned.result not in (None, fingerprint_of(read_bounded(path / RESULT, advice=AGAIN))):
            raise InputError(f"{path / PRIVATE} is not of the {RESULT} beside it; bring back its own, or remove it")
        stored.clients = {**stored.clients, **owned.clients}
        stored.provenance = replace(stored.provenance, data={**stored.provenance.data, **owned.data})
        if owned.features is not None:
            from felb.metrics.features import FeatureCounts

            features = FeatureCounts.of_json(owned.features, stored.n_features, source=str(path / PRIVATE))
    if stored.format == FORMATS[0] and stored.privacy is not None and stored.provenance.data.get("rows") is not None:
        # The first format told the agreed number of records of a private run as if it were the number of records.
        data = {**stored.provenance.data, "rows": None, AGREED: stored.provenance.data["rows"]}
        stored.provenance = replace(stored.provenance, data=data)
    found = Result(
        components=read_boolean(path / COMPONENTS, shape),
        columns=None if stored.columns is None else tuple(stored.columns),
        supports=tuple(stored.supports),
        clients=stored.clients,
        scores={name: math.nan if score is None else score for name, score in stored.scores.items()},
        converged=stored.converged,
        integrality_gap=math.nan if stored.integrality_gap is None else stored.integrality_gap,
        history=History(stored.history),
        provenance=stored.provenance,
        complete=stored.complete,
        privacy=stored.privacy,
        disclosure=stored.disclosure,
        withheld=tuple(stored.withheld),
        schema=_read_schema(path, stored.schema),
        weights=stored.weights or None,
        n_iter=None if stored.n_iter is msgspec.UNSET else stored.n_iter,
        belief=_read_belief(path / BELIEF, shape) if stored.belief else None,
        features=features,
    )
    k, m = shape
    if len(found.supports) != k or (found.columns is not None and len(found.columns) != m):
        raise InputError(f"{path / COMPONENTS} does not belong to {RESULT} beside it; {AGAIN}")
    if found.columns is not None:
        check_column_names(found.columns, m)
    return found


def _read_belief(path: Path, shape: tuple[int, int]) -> Belief:
    """Read the model of the noise, whose numbers must be such as can be computed with."""
    from felb.federated.wire import unpack
    from felb.optim.belief import Belief

    try:
        found = Belief.from_values(unpack(read_bounded(path, advice=AGAIN)))
        rates = np.concatenate([found.row_rates, [found.column_rate, found.threshold or 0.0]])
        if found.theta.shape != shape or not np.isfinite(found.theta).all() or not ((rates > 0) & (rates < 1)).all():
            raise InputError("its numbers do not fit the components")
    except (FelbError, OSError, KeyError, TypeError, ValueError, OverflowError) as error:
        raise InputError(f"{path} is damaged or missing ({error}); {AGAIN}") from error
    return found


def _read_schema(folder: Path, digest: str | None) -> Schema | None:
    """Return the schema of a result; another one than it was made with is an error."""
    if digest is None:
        return None
    found = Schema.read(folder / SCHEMA)
    if found.digest != digest:
        raise InputError(f"{folder / SCHEMA} is not the schema of the result beside it; make the result again")
    return found


class _Owned(msgspec.Struct, forbid_unknown_fields=True):
    """What stands in private.json: what would tell the data of a client from other data."""

    clients: dict[str, Natural | None]
    data: dict[str, Any]
    features: dict[str, Any] | None = None
    result: str | None = None  # earlier versions did not say what it belongs to


class _Stored(msgspec.Struct, forbid_unknown_fields=True):
    """What stands in result.json."""

    format: str
    scores: dict[str, int | float | None]
    converged: bool
    complete: bool
    integrality_gap: int | float | None
    n_components: Natural
    n_features: Natural
    supports: list[Natural | None]
    clients: dict[str, Natural | None]
    provenance: Provenance
    history: list[dict[str, Any]]
    columns: list[str] | None
    privacy: dict[str, Any] | None
    disclosure: dict[str, Any] | None
    withheld: list[Natural]
    schema: str | None = None
    weights: tuple[float, float] | msgspec.UnsetType | None = msgspec.UNSET
    n_iter: Natural | msgspec.UnsetType | None = msgspec.UNSET
    belief: bool | msgspec.UnsetType = msgspec.UNSET

    def __post_init__(self) -> None:
        if self.format not in FORMATS:
            raise ValueError(f"the format {self.format!r} is not known; a newer felb may have written it")
        for name in ("weights", "n_iter", "belief"):  # the first format did not have them
            if getattr(self, name) is msgspec.UNSET:
                if self.format != FORMATS[0]:
                    raise ValueError(f"Object missing required field `{name}`")
                setattr(self, name, None)
        for number, row in enumerate(self.history):
            if type(row.get("round", 0)) is not int or not isinstance(row.get("task", ""), str):
                raise ValueError(f"row {number} of the history has no round or task")
        data = self.provenance.data
        numbers = dict.fromkeys(("rows", "columns", "ones", AGREED), int)
        for name, kind in {"source": str, "fingerprint": str, **numbers}.items():
            if not isinstance(data.get(name), kind | None):
                raise ValueError(f"`provenance.data.{name}` is {type(data[name]).__name__}, not {kind.__name__}")
        if not isinstance((self.privacy or {"text": ""}).get("text"), str):
            raise ValueError("`privacy.text` does not say what was guaranteed")
