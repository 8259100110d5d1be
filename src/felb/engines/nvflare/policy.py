"""What a site agrees to: its own file, on its own disk, which no coordinator can change."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from felb.datasets import read
from felb.errors import FelbError, InputError
from felb.privacy.mechanisms import Mechanism, NoNoise

if TYPE_CHECKING:
    from felb.engines.nvflare.plan import Plan
    from felb.linalg.binary import BinaryMatrix

SITE_FILE = "felb.json"
TAKES_UNKNOWN = "bmf"
"""The method that can leave unknown cells out of its counts."""


class Refusal(FelbError):
    """The site does not take part; the message may leave the site, so it says nothing about the data."""


@dataclass(frozen=True, slots=True)
class Policy:
    """Conditions under which a site takes part in a run.

    Parameters
    ----------
    allowed_methods : methods the site runs; all federated ones if None
    min_rows : take part only with at least this many rows, so that sums hide single records
    require_privacy : refuse to release anything that no privacy mechanism protects
    max_epsilon : refuse to spend more than this privacy budget on a run; a run without a known cost is refused
    """

    allowed_methods: tuple[str, ...] | None = None
    min_rows: int = 20
    require_privacy: bool = False
    max_epsilon: float | None = None

    def __post_init__(self) -> None:
        methods: Any = self.allowed_methods
        if methods is not None:
            if not isinstance(methods, list | tuple) or not all(isinstance(method, str) for method in methods):
                raise InputError("policy: allowed_methods must be a list of words")
            object.__setattr__(self, "allowed_methods", tuple(methods))
        if type(self.min_rows) is not int or self.min_rows < 1:
            raise InputError(f"policy: min_rows must be a whole number of at least 1, got {self.min_rows!r}")
        if not isinstance(self.require_privacy, bool):
            raise InputError(f"policy: require_privacy must be true or false, got {self.require_privacy!r}")
        if self.max_epsilon is not None and not (isinstance(self.max_epsilon, int | float) and self.max_epsilon > 0):
            raise InputError(f"policy: max_epsilon must be a positive number, got {self.max_epsilon!r}")

    def check_plan(self, plan: Plan) -> None:
        """Refuse a plan this site does not agree to, before its data is read."""
        if self.allowed_methods is not None and plan.method not in self.allowed_methods:
            allowed = ", ".join(self.allowed_methods) or "none"
            raise Refusal(f"this site does not run {plan.method!r}; it allows {allowed}")

    def check_data(self, matrix: BinaryMatrix, plan: Plan, *, columns: str | None) -> None:
        """Refuse to take part with data that is too little or of other columns; `columns` fingerprints this site's."""
        if matrix.shape[0] < self.min_rows:
            raise Refusal("this site has fewer rows than its policy asks for")
        if matrix.shape[1] != plan.n_features:
            raise Refusal(f"this site has {matrix.shape[1]} columns, the plan {plan.n_features}")
        if plan.columns is not None and columns != plan.columns:
            raise Refusal("this site's column names are not those of the plan, or are in another order")
        if matrix.unknown is not None and plan.method != TAKES_UNKNOWN:
            raise Refusal(f"this site has unknown cells, which {plan.method!r} does not take; {TAKES_UNKNOWN!r} does")

    def mechanism(self, plan: Plan) -> Mechanism:  # noqa: ARG002
        """Return what protects this site's releases in a run; refuse if that is less than the policy asks for."""
        mechanism = NoNoise()
        if self.require_privacy:
            raise Refusal("this site releases nothing without a privacy mechanism, and the plan has none")
        if self.max_epsilon is not None:
            raise Refusal(f"this site spends at most epsilon {self.max_epsilon:g}, and the plan states no privacy cost")
        return mechanism


@dataclass(frozen=True, slots=True)
class SiteConfig:
    """A site's own settings.

    Parameters
    ----------
    data : the site's data file
    state : folder for what must survive a restart, the assignments and the outbound log
    header, binarize_threshold, client_column, missing : how the file is read, see `felb.datasets.read`
    policy : conditions under which the site takes part
    """

    data: str
    state: str
    header: bool | None = None
    binarize_threshold: float | None = None
    client_column: str | None = None
    missing: str = "error"
    policy: Policy = field(default_factory=Policy)

    @classmethod
    def load(cls, folder: str | Path) -> SiteConfig:
        """Read the file in a site's ``local`` folder."""
        path = Path(folder) / SITE_FILE
        try:
            raw = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise InputError(
                f"{path} cannot be read ({error}); start the site with `felb site start --data`"
            ) from error
        return cls.of(raw, source=str(path))

    @classmethod
    def of(cls, raw: Any, *, source: str) -> SiteConfig:
        """Read settings from plain data; a word that is not known is an error, since it may be a condition misspelt."""
        if not isinstance(raw, dict) or not isinstance(raw.get("policy", {}), dict):
            raise InputError(f"{source} must hold a table of settings")
        _check_names(raw, cls, source)
        _check_names(raw.get("policy", {}), Policy, f"{source}, policy")
        missing = {"data", "state"} - set(raw)
        if missing:
            raise InputError(f"{source} does not say {', '.join(sorted(missing))}")
        return cls(**{**raw, "policy": Policy(**raw.get("policy", {}))})

    def read(self) -> BinaryMatrix:
        """Read the site's data."""
        return read(
            self.data,
            client_column=self.client_column,
            header=self.header,
            binarize_threshold=self.binarize_threshold,
            missing=self.missing,
        ).matrix


def _check_names(raw: dict[str, Any], kind: type[Any], source: str) -> None:
    known = {entry.name for entry in fields(kind)}
    unknown = sorted(set(raw) - known)
    if unknown:
        raise InputError(f"{source} has the unknown setting {unknown[0]!r}; known are {', '.join(sorted(known))}")
