"""A cell of an experiment: one method on one data set with one seed, as plain data that decides its figures."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from felb.estimators.own_methods import is_path, source_digest
from felb.paper.study import Place, Planned

if TYPE_CHECKING:
    from collections.abc import Mapping

MEASURE = 1
"""Goes up when the same parameters would be measured differently, so that older cells are run again."""

Watch = Literal["scores", "rounds", "pictures"]
Split = Literal["even", "uneven", "by component"]


@dataclass(frozen=True, slots=True)
class PlantedData:
    """Planted tiles, as in `felb.data.planted`; the seed of the cell fixes them."""

    rows: int
    columns: int
    components: int
    noise: float = 0.0
    heights: tuple[float, float] = (0.05, 0.25)
    widths: tuple[float, float] = (0.05, 0.25)


@dataclass(frozen=True, slots=True)
class SourceData:
    """A data set by its name: of `felb.paper.public_data`, or a matrix in the data folder.

    Parameters
    ----------
    name : in the catalogue, or of the file without its suffix
    components : to look for
    rows : take that many, drawn by the seed of the cell; None for all
    contents : start of the fingerprint of a matrix in the data folder: another file of this name is another cell
    columns : take that many with the most ones, see `felb.paper.subset`; None for all
    """

    name: str
    components: int
    rows: int | None = None
    contents: str | None = None
    columns: int | None = None

    def plain(self) -> dict[str, Any]:
        """Return the fields as plain data; those that came later are left out where they say nothing."""
        later = ("contents", "columns")
        return {key: value for key, value in asdict(self).items() if key not in later or value is not None}


@dataclass(frozen=True, slots=True)
class InvaderData:
    """A picture that every client holds under additive noise of its own; `scale` pixels for each of the sprite's."""

    scale: int
    components: int
    noise: float


Data = PlantedData | SourceData | InvaderData
KINDS: Mapping[str, type[Data]] = {"planted": PlantedData, "source": SourceData, "invader": InvaderData}

Mechanism = Literal["gaussian", "laplace", "xor", "record"]


@dataclass(frozen=True, slots=True)
class Noise:
    """Noise on what clients send.

    Parameters
    ----------
    mechanism : of the paper, on each upload; or ``record``, the specification of `felb.privacy.Privacy` on records
    level : standard deviation σ, scale b, probability p of a flip, or total ε of ``record``
    theta : bound ‖V_i‖ <= θ by scaling down before the noise is added; None for none
    """

    mechanism: Mechanism
    level: float
    theta: float | None = None


@dataclass(frozen=True, slots=True)
class MethodUse:
    """A method as an experiment runs it: what it is called there, its word, its parameters."""

    label: str
    method: str
    parameters: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Cell:
    """One measurement.

    Parameters
    ----------
    use : the method
    data, clients : what it runs on, and over how many clients
    place, panel : where the cell is shown; not part of what is measured
    trial : number of the repetition; also the seed of data, split and method
    watch : scores of the end, figures of every round, or pictures
    noise : on what clients send
    split : how rows are dealt out to clients, for data by name
    """

    use: MethodUse
    data: Data
    clients: int
    place: Place
    trial: int
    panel: str = ""
    watch: Watch = "scores"
    noise: Noise | None = None
    split: Split = "even"

    @property
    def parameters(self) -> dict[str, Any]:
        """Everything that decides the figures, as plain data; an even split goes without saying."""
        kind = next(name for name, of in KINDS.items() if isinstance(self.data, of))
        return {
            "measure": MEASURE,
            "method": self.use.method,
            "method_parameters": dict(self.use.parameters),
            "data": {"kind": kind, **(self.data.plain() if isinstance(self.data, SourceData) else asdict(self.data))},
            "clients": self.clients,
            "seed": self.trial,
            "watch": self.watch,
            "noise": None if self.noise is None else asdict(self.noise),
            **({} if self.split == "even" else {"split": self.split}),
            # An edited method of one's own is another method.
            **({"source": source_digest(self.use.method)} if is_path(self.use.method) else {}),
        }

    @property
    def key(self) -> str:
        """Name of the cell's file: readable, and different for different parameters."""
        text = json.dumps(self.parameters, sort_keys=True)
        digest = hashlib.blake2b(text.encode(), digest_size=8).hexdigest()
        word = re.sub(r"[^A-Za-z0-9.+-]+", "_", f"{self.use.method}.{self.panel}.{self.place}".replace("..", "."))
        return f"{word}.{self.trial}.{digest}"

    def planned(self) -> Planned:
        """Return the cell as the manifest lists it."""
        return Planned(self.key, self.use.label, self.place, self.panel, self.trial)


def cell_of(parameters: Mapping[str, Any]) -> Cell:
    """Make a cell of its parameters again; where it is shown is not among them."""
    raw = dict(parameters["data"])
    kind = raw.pop("kind")
    for pair in ("heights", "widths"):
        if pair in raw:
            raw[pair] = tuple(raw[pair])
    noise = parameters["noise"]
    return Cell(
        use=MethodUse(parameters["method"], parameters["method"], parameters["method_parameters"]),
        data=KINDS[kind](**raw),
        clients=parameters["clients"],
        place="",
        trial=parameters["seed"],
        watch=parameters["watch"],
        noise=None if noise is None else Noise(**noise),
        split=parameters.get("split", "even"),
    )
