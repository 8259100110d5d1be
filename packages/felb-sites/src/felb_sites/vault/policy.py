"""The policy of a site: a file on its own disk that no coordinator can change."""

from __future__ import annotations

import hashlib
import json
import math
import sys
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from felb.errors import FelbError, InputError
from felb.privacy import MechanismName, Neighbours, NoisePlace, Unit
from felb.privacy.accounting import LARGEST_DELTA, public_size
from felb.privacy.disclosure import Disclosure
from felb.records import read_record

if TYPE_CHECKING:
    from collections.abc import Mapping

    from felb.data.binary import BinaryMatrix
    from felb.privacy.spec import PrivacyPlan
    from felb_sites.run_plan import Plan

TAKES_UNKNOWN = "bmf"
"""The method that can leave unknown cells out of its counts."""
LARGEST_EPSILON = 4.0
"""Of a run, for a site that asks for privacy and does not say how much: beyond it, little is guaranteed."""


LARGEST_FEDERATION = 50
"""Sites that may share the noise of the aggregate, for a site that does not say how many."""
TOTAL_EPSILON, TOTAL_DELTA = 10.0, 1e-4
"""Of all runs together, for a site that does not say how much; that of ε for runs that no person approves."""
ADD_REMOVE = "add_remove"
"""The neighbour relation, for a site that names none."""


class Refusal(FelbError):
    """The site does not take part; `code`, a word of `felb_sites.reasons`, is all of it that leaves.

    The message is for the site's own log. `needs` may leave as well: a number that follows from the plan and the
    site's rules, such as how many rows there would have to be.
    """

    def __init__(self, message: str, *, code: str = "policy", needs: int | None = None) -> None:
        super().__init__(message)
        self.code, self.needs = code, needs


@dataclass(frozen=True, slots=True)
class Policy:
    """Conditions under which a site takes part in a run.

    By default a run must guarantee privacy, and a person approves each. Setting any of those from `mechanisms` on means
    that the site takes part only in runs that guarantee privacy, and that their guarantee must satisfy all of them.
    They are about the guarantee that the plan states and the site's own gate then keeps, whatever is asked later.

    Parameters
    ----------
    allowed_methods : methods the site runs; all federated ones if None
    min_rows : take part only with at least this many rows, so that sums hide single records
    auto_approve : runs that need no person's approval: "private" for those with a guarantee that this policy accepts,
        "all", or names of methods
    max_seconds : longest time that the site computes for one request; it then ends, the request counts as failed, and
        the vault is started again
    require_privacy : refuse to release anything that no privacy mechanism protects; False allows exact sums as well
    mechanisms : mechanisms the site accepts; None for all that guarantee a total for the run
    unit : whose presence must be hidden, a "record" (also if None) or a "client"
    neighbours : the relation of a guarantee, "add_remove" (also if None) or "replace"; with both, a run of either kind
        would have a budget of its own
    noise : "client" (also if None): each site must add all the noise itself; "distributed": a share of it is accepted,
        which protects only if the coordinator looks at nothing but the sum
    max_epsilon, max_delta : largest total ε and δ of a run; 4 and 10⁻⁵ if None
    total_epsilon : largest sum of the ε of all runs that this site has ever answered; if None, 10 for runs that the
        policy approves, and no limit for those that a person does
    total_delta : largest sum of their δ; 10⁻⁴ if None
    max_sites : most sites that may share the noise of the aggregate; 50 if None. With more, each adds less of it
    disclosure : rules for runs that guarantee nothing, a preset or a table, see `felb.privacy.disclosure`; the strict
        ones if None
    exact_after_private : whether runs that guarantee nothing are answered although private ones were, about the same
        records; they end what the private ones have guaranteed
    require_secure : refuse runs whose sums are not masked, so that nobody ever gets this site's own
    """

    allowed_methods: tuple[str, ...] | None = None
    min_rows: int = 20
    auto_approve: tuple[str, ...] = ()
    max_seconds: float = 3600.0
    require_privacy: bool = True
    mechanisms: tuple[str, ...] | None = None
    unit: str | None = None
    neighbours: str | None = None
    noise: str | None = None
    max_epsilon: float | None = None
    max_delta: float | None = None
    total_epsilon: float | None = None
    total_delta: float | None = None
    max_sites: int | None = None
    disclosure: str | Mapping[str, Any] | None = None
    exact_after_private: bool = False
    require_secure: bool = False

    def __post_init__(self) -> None:
        for name in ("allowed_methods", "mechanisms", "auto_approve"):
            words: Any = getattr(self, name)
            if words is not None:
                if not isinstance(words, list | tuple) or not all(isinstance(word, str) for word in words):
                    raise InputError(f"policy: {name} must be a list of words")
                object.__setattr__(self, name, tuple(words))
        if type(self.min_rows) is not int or self.min_rows < 1:
            raise InputError(f"policy: min_rows must be a whole number of at least 1, got {self.min_rows!r}")
        for name in ("require_privacy", "exact_after_private", "require_secure"):
            if not isinstance(getattr(self, name), bool):
                raise InputError(f"policy: {name} must be true or false, got {getattr(self, name)!r}")
        if self.max_sites is not None and (type(self.max_sites) is not int or self.max_sites < 1):
            raise InputError(f"policy: max_sites must be a whole number of at least 1, got {self.max_sites!r}")
        for name, kind in (("unit", Unit), ("neighbours", Neighbours), ("noise", NoisePlace)):
            if getattr(self, name) is not None:
                _check_words(name, (getattr(self, name),), get_args(kind))
        _ = self.rules  # refuses what is no rule
        _check_words("mechanisms", self.mechanisms or (), get_args(MechanismName))
        for name in ("max_seconds", "max_epsilon", "max_delta", "total_epsilon", "total_delta"):
            value: Any = getattr(self, name)
            if not (value is None and name != "max_seconds") and not _is_positive(value):
                raise InputError(f"policy: {name} must be a positive number, got {value!r}")

    @property
    def rules(self) -> Disclosure:
        """The disclosure rules for what leaves without noise."""
        return Disclosure.of(self.disclosure)

    @property
    def asks_for_privacy(self) -> bool:
        """Whether a run must guarantee privacy."""
        sizes = (self.max_epsilon, self.max_delta, self.total_epsilon, self.total_delta)
        conditions = (self.mechanisms, self.unit, self.neighbours, self.noise, *sizes)
        return self.require_privacy or any(condition is not None for condition in conditions)

    def approves(self, plan: Plan) -> bool:
        """Return whether a plan that satisfies all conditions needs no person's approval."""
        words = self.auto_approve
        return "all" in words or plan.method in words or ("private" in words and plan.privacy is not None)

    def total_limits(self, plan: Plan | None = None) -> tuple[float | None, float]:
        """Return what all runs together may cost, (Σε, Σδ), as it holds for a plan; None is no limit."""
        by_itself = bool(self.auto_approve) if plan is None else self.approves(plan)
        return self.total_epsilon or (TOTAL_EPSILON if by_itself else None), self.total_delta or TOTAL_DELTA

    def check(self, plan: Plan, guaranteed: PrivacyPlan | None) -> None:
        """Refuse a plan, and what it guarantees, that this site does not agree to, before its data is read."""
        self.check_plan(plan)
        self.check_privacy(guaranteed)
        self.check_disclosure(plan)
        self.check_masks(plan, guaranteed)

    def check_masks(self, plan: Plan, guaranteed: PrivacyPlan | None) -> None:
        """Refuse sums in the clear where this site asks for masks, or where it adds a share of the noise only."""
        if plan.roster is not None:
            return
        if self.require_secure:
            raise Refusal("this site takes part only in runs whose sums are masked", code="secure")
        if guaranteed is not None and guaranteed.privacy.noise != "client":
            raise Refusal("a share of the noise protects only in masked sums, and the plan's are not", code="secure")

    def check_plan(self, plan: Plan) -> None:
        """Refuse a method this site does not run."""
        if self.allowed_methods is not None and plan.method not in self.allowed_methods:
            raise Refusal(
                f"this site does not run {plan.method!r}; it allows {_listed(self.allowed_methods)}", code="method"
            )

    def check_disclosure(self, plan: Plan, *, n_rows: int | None = None) -> None:
        """Refuse an exact run over too few sites, or with more parameters than the rows hide; noise needs none."""
        if plan.privacy is not None:
            return
        if not self.rules.sites_suffice(plan.sites):
            raise Refusal(
                f"this site's sums are added up with those of {self.rules.min_sites - 1} or more others only",
                code="sites",
                needs=self.rules.min_sites,
            )
        size = {"n_features": plan.n_features, "n_components": plan.most_components}
        if n_rows is not None and not self.rules.rows_suffice(n_rows, **size):
            needs = math.ceil(plan.n_features * plan.most_components / (self.rules.max_parameters or 1))
            raise Refusal(
                f"a run without privacy with {plan.n_features} features and {plan.most_components} components needs "
                f"{needs} rows, this site has {n_rows}",
                code="disclosure",
                needs=needs,
            )

    def check_rare_features(self, matrix: BinaryMatrix, plan: Plan) -> None:
        """Refuse sketches that determine AᵀA where few records have a feature: its row of AᵀA is the sum of their rows.

        Where sums are masked nobody sees this site's own, and under privacy there is noise.
        """
        import numpy as np

        from felb.federated.steps.starts import EXTRA, GRAM_SKETCH, POWER

        reached = (POWER + 1) * (plan.most_components + EXTRA)  # columns of all AᵀA Q together
        if plan.privacy is not None or plan.roster is not None or plan.n_features > reached:
            return
        counts = matrix.to_scipy(np.int64).sum(axis=0)
        if GRAM_SKETCH.name in plan.algorithm().tasks and np.any((counts > 0) & (counts < self.rules.min_support)):
            raise Refusal(
                "few records of this site have a feature, and exact sums would reveal them", code="disclosure"
            )

    def check_shape(self, shape: tuple[int, int], plan: Plan, *, columns: str | None) -> None:
        """Refuse to take part with data that is too little or of other columns; `columns` fingerprints this site's."""
        if shape[0] < self.min_rows:
            raise Refusal(
                f"the policy of this site asks for {self.min_rows} rows, it has {shape[0]}",
                code="rows",
                needs=self.min_rows,
            )
        if shape[1] != plan.n_features:
            raise Refusal(f"this site has {shape[1]} columns, the plan {plan.n_features}", code="columns")
        if plan.columns is not None and columns != plan.columns:
            raise Refusal("this site's column names are not those of the plan, or are in another order", code="columns")

    def check_known(self, matrix: BinaryMatrix, plan: Plan) -> None:
        """Refuse to take part with unknown cells where all must be known."""
        if matrix.unknown is not None and plan.method != TAKES_UNKNOWN:
            raise Refusal(
                f"this site has unknown cells, which {plan.method!r} does not take; {TAKES_UNKNOWN!r} does",
                code="unknown",
            )
        if matrix.unknown is not None and plan.privacy is not None:
            raise Refusal("this site has unknown cells, and under privacy all cells must be known", code="unknown")

    def check_privacy(self, guaranteed: PrivacyPlan | None) -> None:
        """Refuse a guarantee that is less than this site asks for, before its data is read."""
        if guaranteed is not None and guaranteed.privacy.noise == "distributed":
            self._check_shares(guaranteed)
        if not self.asks_for_privacy:
            return
        if guaranteed is None:
            raise Refusal(
                "this site takes part only in runs that guarantee privacy, and the plan guarantees none", code="privacy"
            )
        privacy = guaranteed.privacy
        accepted = self.mechanisms or get_args(MechanismName)
        if privacy.mechanism not in accepted:
            raise Refusal(
                f"this site does not accept the mechanism {privacy.mechanism!r}; it accepts {_listed(accepted)}",
                code="privacy",
            )
        unit = self.unit or "record"
        if privacy.unit != unit:
            raise Refusal(
                f"this site asks for privacy of a {unit}, and the plan guarantees that of a {privacy.unit}",
                code="privacy",
            )
        relation = self.neighbours or ADD_REMOVE
        if privacy.neighbours != relation:
            raise Refusal(
                f"this site asks for neighbours {relation!r}, and the plan guarantees {privacy.neighbours!r}",
                code="privacy",
            )
        if privacy.noise == "distributed" and self.noise != "distributed":
            raise Refusal(
                "this site adds all of the noise itself, and the plan leaves it a share; noise must be 'client'",
                code="privacy",
            )
        self.check_size(guaranteed.privacy.epsilon, guaranteed.delta)

    def _check_shares(self, guaranteed: PrivacyPlan) -> None:
        """Refuse noise that is divided among more sites than there can be: each would add next to none."""
        most = self.max_sites or LARGEST_FEDERATION
        if guaranteed.n_clients > most:
            raise Refusal(
                f"this site shares noise with at most {most} sites, and the plan counts on {guaranteed.n_clients}",
                code="privacy",
            )

    def check_size(self, epsilon: float, delta: float) -> None:
        """Refuse more ε or δ than this site spends on one run."""
        most = self.max_epsilon or LARGEST_EPSILON
        most = most if self.total_epsilon is None else min(most, self.total_epsilon)
        if epsilon > most:
            raise Refusal(
                f"this site spends at most epsilon {most:g} on a run, and {epsilon:g} is asked for", code="epsilon"
            )
        largest = self.max_delta or LARGEST_DELTA
        if delta > largest:
            raise Refusal(f"this site accepts delta up to {largest:g}, and {delta:g} is asked for", code="delta")

    def check_delta(self, n_rows: int, guaranteed: PrivacyPlan | None) -> None:
        """Refuse a δ with which one of this site's own records could be published as it is.

        The bound 2 `public_size(n)` stands for n: a coordinator that proposes one δ after the other, which costs
        nothing, would otherwise find the very number of records.
        """
        if guaranteed is None:
            return
        if guaranteed.privacy.unit == "record" and 2 * guaranteed.delta * public_size(n_rows) >= 1:
            raise Refusal(
                "the plan's delta is too large for this site: state more records, or a smaller delta", code="delta"
            )


def _is_positive(value: Any) -> bool:
    return not isinstance(value, bool) and isinstance(value, int | float) and 0 < value <= sys.float_info.max


def _listed(words: tuple[str, ...]) -> str:
    return ", ".join(words) or "none"


def _check_words(name: str, words: tuple[str, ...], known: tuple[str, ...]) -> None:
    unknown = [word for word in words if word not in known]
    if unknown:
        raise InputError(f"policy: {name} knows no {unknown[0]!r}; it knows {', '.join(known)}")


@dataclass(frozen=True, slots=True)
class SiteConfig:
    """A site's own settings.

    Parameters
    ----------
    data : the site's data file, or the URL of its database
    header, binarize_threshold, client_column, missing : how the file is read, see `felb.data.read`
    policy : conditions under which the site takes part
    schema : file of the schema by which raw data is read; a run must be under the same one
    notify : command that is called with JSON on its standard input when a run asks for approval, is refused or ends,
        or when little of the budget is left
    """

    data: str
    header: bool | None = None
    binarize_threshold: float | None = None
    client_column: str | None = None
    missing: str = "error"
    policy: Policy = field(default_factory=Policy)
    schema: str | None = None
    notify: str | None = None

    def __post_init__(self) -> None:
        kinds: dict[str, Any] = {"header": bool, "binarize_threshold": (int, float), "policy": Policy}
        for entry in fields(self):
            value = getattr(self, entry.name)
            if not isinstance(value, kinds.get(entry.name, str)) and (value is not None or entry.default is not None):
                raise InputError(
                    f"{entry.name} of the site's settings has a value of another type", parameter=entry.name
                )

    @classmethod
    def load(cls, path: str | Path) -> SiteConfig:
        """Read the file of settings; relative paths in it are relative to the folder of the site."""
        file = Path(path)
        advice = "start the site with `felb site start --data`"
        try:
            raw = read_record(file, dict, advice=advice)
        except FileNotFoundError as error:
            raise InputError(f"{file} cannot be read ({error}); {advice}") from error
        found = cls.of(raw, source=str(file))
        places: dict[str, Any] = {
            name: str(file.parent.parent / value)
            for name in ("data", "schema")
            if (value := getattr(found, name)) is not None and "://" not in value
        }
        return replace(found, **places)

    @classmethod
    def of(cls, raw: Any, *, source: str) -> SiteConfig:
        """Read settings from plain data; a word that is not known is an error, since it may be a condition misspelt."""
        if not isinstance(raw, dict) or not isinstance(raw.get("policy", {}), dict):
            raise InputError(f"{source} must hold a table of settings")
        _check_names(raw, cls, source)
        _check_names(raw.get("policy", {}), Policy, f"{source}, policy")
        if "data" not in raw:
            raise InputError(f"{source} does not say data")
        return cls(**{**raw, "policy": Policy(**raw.get("policy", {}))})

    def to_json(self) -> dict[str, Any]:
        """Return plain data that `of` reads back."""
        return asdict(self)

    @property
    def data_digest(self) -> str:
        """Tells whether the settings by which data is read have changed."""
        said = {name: value for name, value in asdict(self).items() if name not in ("policy", "notify")}
        return hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()


def _check_names(raw: dict[str, Any], kind: type[Any], source: str) -> None:
    known = {entry.name for entry in fields(kind)}
    unknown = sorted(set(raw) - known)
    if unknown:
        raise InputError(f"{source} has the unknown setting {unknown[0]!r}; known are {', '.join(sorted(known))}")
