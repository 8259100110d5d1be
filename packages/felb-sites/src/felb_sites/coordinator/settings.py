"""The settings of a run over sites, as ``run.toml`` says them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from felb.centralized.base import LARGEST_SEED
from felb.errors import InputError
from felb.federated.algorithms.registry import DEFAULT, METHODS
from felb.privacy.disclosure import Disclosure
from felb.privacy.spec import LEAST_SITES, MOST_SITES
from felb.records import check_types, read_text, read_toml
from felb.tables.schema import Schema
from felb_sites.coordinator.record import FINISHED, RUNS, RunRecord
from felb_sites.run_plan import Plan, fingerprint
from felb_sites.terms import Terms

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping, Sequence

    from felb_sites.keys.members import Invitation, SignedMembers

SETTINGS: dict[str, Any] = {
    "id": str,
    "method": str,
    "components": int | str,
    "features": int,
    "columns": str,
    "schema": str,
    "seed": int,
    "sites": list[str],
    "parameters": dict[str, Any],
    "privacy": dict[str, Any],
    "terms": dict[str, Any],
    "disclosure": str | dict[str, Any],
}
"""Settings of a run and their types."""


class Hosting(Protocol):
    """What a run needs of the coordinator's folder, see `felb_sites.coordinator.folder.Federation`."""

    @property
    def folder(self) -> Path:
        """Where it is."""
        ...

    @property
    def invitation(self) -> Invitation:
        """Name and identifier of the federation."""
        ...

    @property
    def members(self) -> SignedMembers:
        """The member list as it is now."""
        ...


@dataclass(frozen=True, slots=True)
class DeployedRun:
    """What ``run.toml`` says.

    Parameters
    ----------
    plan : the plan that the sites receive
    terms : quorum, grace period and timeouts
    sites : names of the sites that take part; None until all members are put in by `proposed_by`
    columns : names of the features, if they are known here
    disclosure : rules for the result of a run without privacy; the strict ones if None
    schema : by which every site reads its data, if they agreed on one
    secure : sums are masked, so that the coordinator gets those over all sites and no site's own; None for wherever
        the number of sites allows it
    """

    plan: Plan
    terms: Terms = field(default_factory=Terms)
    sites: tuple[str, ...] | None = None
    columns: tuple[str, ...] | None = None
    disclosure: str | Mapping[str, Any] | None = None
    schema: Schema | None = None
    secure: bool | None = None

    def __post_init__(self) -> None:
        _ = self.rules  # refuses what is no rule
        if self.sites is not None:
            self._check_sites(len(self.sites))

    def _check_sites(self, count: int) -> None:
        if self.terms.quorum > count:
            raise InputError(f"quorum={self.terms.quorum} is larger than the number of sites, {count}")
        if self.secure and not LEAST_SITES <= count <= MOST_SITES:
            raise InputError(
                f"sums are masked among {LEAST_SITES} to {MOST_SITES} sites, and there are {count}; otherwise set "
                "secure = false in [terms]",
                parameter="secure",
            )
        spec = self.plan.spec
        if spec is not None and spec.noise != "client" and not self.masks(count):
            raise InputError(
                "distributed noise protects in masked sums only: secure = true in [terms], with three sites or more",
                parameter="noise",
            )
        if self.rules is not None and not self.rules.sites_suffice(count):
            raise InputError(
                f"the run has {count} sites, and its disclosure rules ask for {self.rules.min_sites} or more, since of "
                "two each would see the other's numbers; name more sites, or change min_sites in [disclosure]",
                parameter="sites",
            )

    def masks(self, count: int) -> bool:
        """Return whether the sums of so many sites are masked."""
        return LEAST_SITES <= count <= MOST_SITES if self.secure is None else self.secure

    @property
    def rules(self) -> Disclosure | None:
        """Disclosure rules for the result; None under privacy, where noise protects."""
        return Disclosure.of(self.disclosure) if self.plan.privacy is None else None

    @classmethod
    def read(cls, path: str | os.PathLike[str], *, without: Sequence[str] = ()) -> DeployedRun:
        """Read a file of settings; paths in it are relative to it. Sites named in `without` are left out."""
        source = Path(path)
        raw = read_toml(source, advice="docs/how-to/deployment.md has an example")
        unknown = sorted(set(raw) - set(SETTINGS))
        if unknown:
            raise InputError(f"{path} has the unknown setting {unknown[0]!r}; known are {', '.join(SETTINGS)}")
        missing = [name for name in ("id", "components") if name not in raw]
        if missing or sum(name in raw for name in ("features", "columns", "schema")) != 1:
            raise InputError(f"{path} must say {', '.join(missing or ['either features, columns or schema'])}")
        check_types(raw, SETTINGS, of=f"{path}: ")
        if without:
            raw["sites"] = _without(raw.get("sites"), without)
        return cls.of(raw, folder=source.parent)

    @classmethod
    def of(cls, raw: Mapping[str, Any], *, folder: Path) -> DeployedRun:
        """Make a run of settings that were read."""
        schema = None if "schema" not in raw else Schema.read(folder / raw["schema"])
        columns = None if "columns" not in raw else read_columns(folder / raw["columns"])
        agreed = columns
        if schema is not None:
            columns, agreed = schema.names, schema.agreed_names
        sites = raw.get("sites")
        if sites is not None and (
            not isinstance(sites, list)
            or not sites
            or not all(isinstance(s, str) for s in sites)
            or len(set(sites)) != len(sites)
        ):
            raise InputError("sites must be a list of different names")
        terms, secure = _agreed_terms(raw.get("terms"))
        plan = Plan.of(
            {
                "run_id": raw["id"],
                "method": raw.get("method", DEFAULT),
                "n_components": raw["components"],
                "n_features": raw["features"] if columns is None else len(columns),
                "parameters": raw.get("parameters", {}),
                "seed": raw.get("seed", 0),
                "columns": None if agreed is None else fingerprint(agreed),
                **_agreed(raw.get("privacy"), sites),
            }
        )
        if plan.privacy is not None and "disclosure" in raw:
            raise InputError("disclosure rules are for runs without [privacy]; leave out one of the two")
        named = None if sites is None else tuple(sites)
        return cls(plan, terms, named, columns, raw.get("disclosure"), schema, secure)

    def refit(self, number: int) -> DeployedRun:
        """Return the refit of that number: another run with another seed, each site with a random half of its rows.

        Where the method has an effort, it is low, unless the run says otherwise, as in `felb.stability`.
        """
        if number < 1:
            raise InputError(f"refits are numbered from 1, got {number}", parameter="refit")
        effort = {"effort": "fast"} if "effort" in METHODS[self.plan.method].parameters() else {}
        plan = replace(
            self.plan,
            run_id=f"{self.plan.run_id}-refit-{number}",
            seed=(self.plan.seed + number) % LARGEST_SEED,
            parameters={**effort, **self.plan.parameters},
            resample=True,
        )
        return replace(self, plan=plan)

    def rehearsal(self, federation: Hosting) -> DeployedRun:
        """Return a rehearsal of the run: another run, in which every site takes part with synthetic rows.

        It is a new one, ID-rehearsal-N, unless the last one with these settings was interrupted and can go on.
        """
        for number in count(1):
            plan = replace(self.plan, run_id=f"{self.plan.run_id}-rehearsal-{number}", rehearsal=True)
            made = replace(self, plan=plan)
            record = RunRecord(federation.folder / RUNS, plan.run_id)
            if not record.exists:
                return made
            status = record.status()
            if status.state != FINISHED and not status.hopeless and record.plan() == made.proposed_by(federation).plan:
                return made
        raise AssertionError

    def proposed_by(self, federation: Hosting) -> DeployedRun:
        """Return the run as the coordinator proposes it: with its sites, their number and, if masked, their roster.

        A site that is no member of the federation, or not any more, is an `InputError` that names it.
        """
        listed = federation.members.listed
        known = [member.name for member in listed.members]
        sites = tuple(sorted(known if self.sites is None else self.sites))
        unknown = sorted(set(sites) - set(known))
        if unknown:
            raise InputError(
                f"the run names {unknown[0]!r}, which is no site of this federation, or was revoked; "
                f"its sites are {', '.join(known) or 'none'}",
                parameter="sites",
            )
        if not sites:
            raise InputError("the federation has no sites yet; let one join: `felb site join`", parameter="sites")
        secure = self.masks(len(sites))
        roster = listed.roster(sites).digest if secure else None
        plan = replace(self.plan, roster=roster, sites=len(sites))
        return replace(self, plan=plan, sites=sites, secure=secure)


def _agreed_terms(raw: Any) -> tuple[Terms, bool | None]:
    """Return the terms of a round, and whether sums are masked; None if the settings do not say."""
    said = dict(raw) if isinstance(raw, dict) else {}
    secure = said.pop("secure", None)
    if secure is not None and not isinstance(secure, bool):
        raise InputError(f"secure must be true or false, got {secure!r}", parameter="secure")
    if raw is not None and not isinstance(raw, dict):
        raise InputError(f"[terms] must be a table, got {raw!r}")
    return Terms.of(said), secure


def _without(sites: Any, left_out: Sequence[str]) -> list[str]:
    if not isinstance(sites, list):
        raise InputError("--without leaves out a site that the run names; name them: sites = [...]")
    strangers = sorted(set(left_out) - set(sites))
    if strangers:
        raise InputError(f"--without {strangers[0]}: the run does not name this site; it names {', '.join(sites)}")
    return [site for site in sites if site not in left_out]


def _agreed(terms: Any, sites: list[str] | None) -> dict[str, Any]:
    """Return what a plan says about privacy: the terms, how many records there are in all, and how many sites."""
    if terms is None:
        return {} if sites is None else {"sites": len(sites)}
    if not isinstance(terms, dict) or not {"epsilon", "records"} <= set(terms):
        raise InputError(
            "[privacy] must say epsilon, how much the run may reveal of a record in all (1 is a good start), and "
            "records, about how many there are at all sites together, which becomes known"
        )
    if sites is None:
        raise InputError("sites is required in a private run: sites = [...]")
    return {
        "privacy": {name: value for name, value in terms.items() if name != "records"},
        "records": terms["records"],
        "sites": len(sites),
    }


def read_columns(path: Path) -> tuple[str, ...]:
    """Read column names, one a line."""
    names = tuple(read_text(path, advice="it must hold one column name per line").splitlines())
    if not names or len(set(names)) != len(names):
        raise InputError(f"{path} must hold one unique column name per line")
    return names
