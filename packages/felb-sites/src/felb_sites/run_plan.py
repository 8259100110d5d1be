"""The plan of a run over sites; coordinator and sites validate it before anything is computed."""

from __future__ import annotations

import hashlib
import json
import math
import re
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from felb._version import __version__
from felb.errors import InputError
from felb.federated.algorithms.registry import MDL, METHODS, OF_THE_RUN, make_algorithm
from felb.privacy.spec import LEAST_SITES, MOST_SITES, Population, most_dropouts, read_privacy

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from felb.federated.protocol import Algorithm
    from felb.privacy.spec import Privacy

WORD = re.compile(r"[a-z][a-z0-9_-]{0,39}")
METHOD = re.compile(r"[a-z][a-z0-9-]{0,39}(\+[a-z][a-z0-9-]{0,39})?")
DIGEST = re.compile("[0-9a-f]{64}")
RUN_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
NOT_OF_THE_METHOD = OF_THE_RUN | {"n_components"}
"""Parameters of estimators that a plan says in another way, or that are not the coordinator's to choose."""
MAX_FEATURES, MAX_COMPONENTS, MAX_CELLS, MAX_STEPS = 10_000_000, 4096, 200_000_000, 1_000_000
"""Beyond these, a plan is a mistake or an attack; V alone would not fit into memory."""
MAX_RECORDS, MAX_SITES = 10**12, 1000
DEFAULT_MAX_COMPONENTS = 30


@dataclass(frozen=True, slots=True)
class Plan:
    """One run, as plain data that fits into a job's arguments; both sides make the same algorithm of it.

    Parameters
    ----------
    run_id : names the run, also across restarts
    method : a name in `felb.federated.algorithms.registry.METHODS`
    n_components, n_features : the shape of V; "mdl" components if the run is to find their number
    parameters : further parameters of the method, numbers and words only
    privacy : terms of `felb.privacy.Privacy`, numbers and words only; None if nothing is guaranteed
    records : records of all sites together, as publicly known, from which δ follows; only with `privacy`
    sites : number of sites that take part, for noise of which each adds a share, and for rules that ask for several
    seed : fixes the start
    columns : fingerprint of the column names every site must have, in their order; None if they are not checked
    roster : digest of the sites and keys by which sums are masked; None if sums are added up in the clear
    resample : every site takes part with a random half of its rows, for a refit
    rehearsal : every site takes part with synthetic rows; none of its records is read, and no budget is spent
    version : of felb at the coordinator; sites of another version would compute something else
    """

    run_id: str
    method: str
    n_components: int | str
    n_features: int
    parameters: Mapping[str, Any] = field(default_factory=dict)
    privacy: Mapping[str, Any] | None = None
    records: int | None = None
    sites: int | None = None
    seed: int = 0
    columns: str | None = None
    roster: str | None = None
    resample: bool = False
    rehearsal: bool = False
    version: str = __version__

    def __post_init__(self) -> None:
        if not isinstance(self.run_id, str) or not RUN_ID.fullmatch(self.run_id):
            raise InputError(f"run id {_short(self.run_id)} must consist of letters, digits, - and _, at most 64")
        if not isinstance(self.method, str) or not METHOD.fullmatch(self.method):
            raise InputError(f"unknown method {_short(self.method)}")
        _check_count("n_features", self.n_features, MAX_FEATURES)
        if type(self.seed) is not int or not 0 <= self.seed < 2**63:
            raise InputError(f"seed must be a whole number of at least 0, got {_short(self.seed)}")
        for name, what in (("columns", "the fingerprint of the column names"), ("roster", "the digest of a roster")):
            value = getattr(self, name)
            if value is not None and not (isinstance(value, str) and DIGEST.fullmatch(value)):
                raise InputError(f"{name} must be {what}")
        for name in ("resample", "rehearsal"):
            if not isinstance(getattr(self, name), bool):
                raise InputError(f"{name} must be true or false, got {_short(getattr(self, name))}")
        if self.resample and self.rehearsal:
            raise InputError("a refit is not rehearsed; rehearse the run itself", parameter="rehearsal")
        if self.version != __version__:
            raise InputError(
                f"the plan was made by felb {_short(self.version)}, and this is felb {__version__}; "
                "install the same version everywhere"
            )
        if not isinstance(self.parameters, dict):
            raise InputError("parameters must be named numbers and words")
        for name, value in self.parameters.items():
            _check_parameter(name, value)
        self._check_rank()
        self._check_privacy()
        self._check_roster()
        self.algorithm()  # the method's own checks

    @property
    def most_components(self) -> int:
        """Components at most; a run that finds their number has a limit."""
        if self.n_components == MDL:
            return int(self.parameters.get("max_components", DEFAULT_MAX_COMPONENTS))
        return int(self.n_components)

    @property
    def assigns(self) -> bool:
        """Whether sites keep which of their records have which component: of whole runs on real records."""
        return not (self.resample or self.rehearsal)

    def _check_rank(self) -> None:
        most: Any = self.n_components
        if most == MDL:
            if self.method not in METHODS or "max_components" not in METHODS[self.method].parameters():
                raise InputError(f"{self.method} does not find the number of components by itself; give a number")
            most = self.parameters.get("max_components", DEFAULT_MAX_COMPONENTS)
        _check_count("n_components", most, MAX_COMPONENTS)
        if int(most) * self.n_features > MAX_CELLS:
            raise InputError(f"{most} components of {self.n_features} features are too many")

    def _check_privacy(self) -> None:
        if self.privacy is not None and self.resample:
            raise InputError("a refit of a private run would spend its privacy budget again", parameter="privacy")
        if self.privacy is None:
            if self.records is not None:
                raise InputError("records need a privacy specification")
            if self.sites is not None:
                _check_count("sites", self.sites, MAX_SITES)
            return
        _check_count("records", self.records, MAX_RECORDS)
        _check_count("sites", self.sites, MAX_SITES)
        if self.method in METHODS and "privacy" not in METHODS[self.method].parameters():
            raise InputError(f"method {self.method!r} adds no noise and can guarantee no privacy")

    def _check_roster(self) -> None:
        if self.roster is not None and (self.sites is None or not LEAST_SITES <= self.sites <= MOST_SITES):
            raise InputError(
                f"sums are masked among {LEAST_SITES} to {MOST_SITES} sites, and the plan says "
                f"{'not how many' if self.sites is None else self.sites}",
                parameter="secure",
            )

    @property
    def dropouts(self) -> int | None:
        """Sites that may be missing in a masked sum; None if sums are added up in the clear.

        As many as the protocol can do without; fewer, if fewer were counted on for distributed noise.
        """
        if self.roster is None or self.sites is None:
            return None
        most, spec = most_dropouts(self.sites), self.spec
        return most if spec is None or spec.noise == "client" else min(most, spec.dropouts)

    @property
    def spec(self) -> Privacy | None:
        """The privacy specification, if there is one."""
        if self.privacy is None:
            return None
        if not isinstance(self.privacy, dict):
            raise InputError("privacy must be a table of named terms")
        for name, value in self.privacy.items():
            _check_parameter(name, value)
        return read_privacy(self.privacy)

    @classmethod
    def of(cls, arguments: Any) -> Plan:
        """Read a plan from the arguments of a job; anything unknown is refused."""
        if not isinstance(arguments, dict):
            raise InputError("a plan must be a table of named values")
        known = set(cls.__dataclass_fields__)
        unknown = sorted(str(name) for name in set(arguments) - known)
        if unknown:
            raise InputError(f"a plan has no {_short(unknown[0])}; it has {', '.join(sorted(known))}")
        missing = {"run_id", "method", "n_components", "n_features"} - set(arguments)
        if missing:
            raise InputError(f"the plan does not say {', '.join(sorted(missing))}")
        return cls(**arguments)

    def algorithm(self) -> Algorithm:
        """Return the algorithm that both sides play; noise is calibrated for what the plan says of the federation."""
        made = make_algorithm(
            self.method,
            self.n_features,
            self.n_components,
            self.parameters,
            privacy=self.spec,
            population=self._population,
        )
        if self.parameters.get("time_limit") is not None and not METHODS[self.method].post_hoc:
            raise InputError(f"a run of {self.method} over sites has no time_limit; lower its rounds or effort instead")
        return made

    @property
    def _population(self) -> Population | None:
        return None if self.records is None or self.sites is None else Population(self.records, self.sites)

    def to_json(self) -> dict[str, Any]:
        """Return plain data that `of` reads back."""
        return asdict(self)


def plan_digest(plan: Plan) -> str:
    """Fingerprint a plan: the same for the coordinator who proposes it and the site that approves it."""
    return hashlib.sha256(json.dumps(plan.to_json(), sort_keys=True).encode()).hexdigest()


def fingerprint(columns: Sequence[str]) -> str:
    """Fingerprint column names; sites compare theirs without any of them being sent."""
    return hashlib.sha256("\n".join(columns).encode()).hexdigest()


def _check_count(name: str, value: Any, most: int) -> None:
    if type(value) is not int or not 1 <= value <= most:
        raise InputError(f"{name} must be a whole number from 1 to {most}, got {_short(value)}")


def _check_parameter(name: Any, value: Any) -> None:
    if not isinstance(name, str) or not WORD.fullmatch(name) or name in NOT_OF_THE_METHOD:
        raise InputError(f"{_short(name)} is not a parameter a coordinator may set")
    if isinstance(value, bool) or value is None:
        return
    if isinstance(value, int):
        if not 0 <= value <= MAX_STEPS:
            raise InputError(f"{name} must lie between 0 and {MAX_STEPS}, got {_short(value)}")
    elif isinstance(value, float):
        if not math.isfinite(value) or value < 0:
            raise InputError(f"{name} must be a finite number of at least 0, got {_short(value)}")
    elif not isinstance(value, str) or not WORD.fullmatch(value):
        raise InputError(f"{name} must be a number or a word, got {_short(value)}")


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
