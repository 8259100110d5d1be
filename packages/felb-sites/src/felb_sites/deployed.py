"""A run over the sites of a federation: settings from a file, the result in a folder."""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from felb.centralized.base import LARGEST_SEED
from felb.errors import FederationError, InputError
from felb.federated.algorithms.registry import DEFAULT, METHODS
from felb.metrics.counts import History
from felb.privacy.disclosure import Disclosure
from felb.privacy.spec import LEAST_SITES, MOST_SITES, guarantee
from felb.records import NEW, beside, clear_leftovers, read_text, read_toml, replace_folder
from felb.runs import RESULT
from felb.runs.result import AGREED, RESAMPLED, Provenance, Result
from felb.tables.schema import Schema
from felb_sites.run_plan import Plan, fingerprint
from felb_sites.supervisor import supervise
from felb_sites.terms import Terms

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Mapping, Sequence

    from felb_sites.provisioning import Coordinator
    from felb_sites.run_record import RunRecord, Status
    from felb_sites.supervisor import Patience

SETTINGS = (
    "id",
    "method",
    "components",
    "features",
    "columns",
    "schema",
    "seed",
    "sites",
    "parameters",
    "privacy",
    "terms",
    "disclosure",
)
ALL_ROUNDS = 100_000
"""In one job: nobody is waited for who could rejoin with the next one."""


@dataclass(frozen=True, slots=True)
class DeployedRun:
    """What ``run.toml`` says.

    Parameters
    ----------
    plan : the plan that the sites receive
    terms : quorum, grace period and timeouts
    sites : names of the sites that take part; all connected sites if None
    columns : names of the features, if they are known here
    disclosure : rules for the result of a run without privacy; the strict ones if None
    schema : by which every site reads its data, if they agreed on one
    secure : sums are masked, so that the coordinator gets those over all sites and no site's own
    """

    plan: Plan
    terms: Terms = field(default_factory=Terms)
    sites: tuple[str, ...] | None = None
    columns: tuple[str, ...] | None = None
    disclosure: str | Mapping[str, Any] | None = None
    schema: Schema | None = None
    secure: bool = False

    def __post_init__(self) -> None:
        _ = self.rules  # refuses what is no rule

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
            not isinstance(sites, list) or not sites or not all(isinstance(s, str) for s in sites)
        ):
            raise InputError("sites must be a list of names")
        terms, secure = _agreed_terms(raw.get("terms"), sites)
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
        if sites is not None and terms.quorum > len(sites):
            raise InputError(f"quorum={terms.quorum} is larger than the number of sites, {len(sites)}")
        if plan.privacy is not None and "disclosure" in raw:
            raise InputError("disclosure rules are for runs without [privacy]; leave out one of the two")
        if plan.spec is not None and plan.spec.noise != "client" and not secure:
            raise InputError(
                "distributed noise protects in masked sums only: secure = true in [terms], with three sites or more",
                parameter="noise",
            )
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

    def proposed_by(self, coordinator: Coordinator) -> DeployedRun:
        """Return the run with the roster that the coordinator proposes, if its sums are masked."""
        if not self.secure or self.sites is None:
            return self
        roster = coordinator.roster(self.sites)
        return replace(self, plan=replace(self.plan, roster=roster.digest, sites=len(self.sites)))


def _agreed_terms(raw: Any, sites: list[str] | None) -> tuple[Terms, bool]:
    """Return the terms of a round, and whether sums are masked: by default where three or more sites are named."""
    said = dict(raw) if isinstance(raw, dict) else {}
    count = 0 if sites is None else len(sites)
    secure = said.pop("secure", LEAST_SITES <= count <= MOST_SITES)
    if not isinstance(secure, bool):
        raise InputError(f"secure must be true or false, got {secure!r}", parameter="secure")
    if secure and not LEAST_SITES <= count <= MOST_SITES:
        raise InputError(
            f"sums are masked among {LEAST_SITES} to {MOST_SITES} sites that are named: sites = [...]; otherwise set "
            "secure = false in [terms]",
            parameter="secure",
        )
    return Terms.of(said if raw is None or isinstance(raw, dict) else raw), secure


def _without(sites: Any, left_out: Sequence[str]) -> list[str]:
    if not isinstance(sites, list):
        raise InputError("--without leaves out a site that the run names; name them: sites = [...]")
    strangers = sorted(set(left_out) - set(sites))
    if strangers:
        raise InputError(f"--without {strangers[0]}: the run does not name this site; it names {', '.join(sites)}")
    return [site for site in sites if site not in left_out]


def participation(run: DeployedRun, history: History) -> dict[str, Any]:
    """Return who took part, and who missed how many rounds."""
    missed: dict[str, int] = {}
    for row in history:
        for site in row.get("missing", ()):
            missed[site] = missed.get(site, 0) + 1
    return {"sites": None if run.sites is None else list(run.sites), "missed_rounds": missed}


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
    records = terms["records"]
    return {
        "privacy": {name: value for name, value in terms.items() if name != "records"},
        "records": records,
        "sites": len(sites),
    }


def run_deployed(
    coordinator: Coordinator,
    run: DeployedRun,
    out: str | os.PathLike[str],
    *,
    force: bool = False,
    late: bool = False,
    patience: Patience | None = None,
    on_status: Callable[[Status], None] = lambda _: None,
    on_event: Callable[[str], None] = lambda _: None,
) -> Result:
    """Play a run to its end, or an unfinished one from its last round, and leave the result in the folder `out`.

    With `late`, the last round of a finished run is played again: sites that missed it get their assignment and are
    counted, the others send again what they sent. The folder holds V, the history and the summed scores; assignments
    and outbound logs stay at their sites.
    """
    place = Path(out).resolve()
    if place.exists() and not (force and (place / RESULT).is_file()):
        raise InputError(f"{out} exists; choose another folder, or replace a result with --force")
    run = run.proposed_by(coordinator)
    record = supervise(
        coordinator,
        run.plan,
        run.terms,
        sites=run.sites,
        late=late,
        patience=patience,
        on_status=on_status,
        on_event=on_event,
    )
    result = result_of(record, run, federation=coordinator.invitation.federation)
    if run.rules is not None:
        result = result.disclosed(run.rules)
    place.parent.mkdir(parents=True, exist_ok=True)
    clear_leftovers(place.parent)
    complete = beside(place, NEW)
    try:
        complete.mkdir()
        result.write(complete, {})
        replace_folder(complete, place)
    finally:
        shutil.rmtree(complete, ignore_errors=True)
    return result


def result_of(record: RunRecord, run: DeployedRun, *, federation: str) -> Result:
    """Make the result of a finished run from its journal."""
    execution = record.execution(run.plan)
    outcome, history = execution.outcome, History(execution.rows)
    if outcome is None:
        raise FederationError(f"run {run.plan.run_id!r} is not finished yet")
    privacy = run.plan.algorithm().privacy
    counts, last, plan = outcome.counts, record.status(), run.plan
    return Result.of(
        outcome,
        columns=run.columns,
        schema=run.schema,
        clients=dict.fromkeys(last.sites),  # only the sum of their rows is kept
        history=history,
        privacy=None if privacy is None else guarantee(privacy, history),
        provenance=Provenance(
            method=plan.method,
            parameters={
                "n_components": plan.n_components,
                **plan.parameters,
                **({} if plan.privacy is None else {"privacy": dict(plan.privacy)}),
                "terms": run.terms.to_json(),
                "secure": plan.roster is not None,
            },
            seed=plan.seed,
            data={
                "source": f"federation {federation}, run {plan.run_id}",
                # A private run knows how many records were agreed on, not how many there are.
                "rows": None if counts is None or plan.privacy is not None else counts.cells // plan.n_features,
                **({} if plan.records is None else {AGREED: plan.records}),
                "columns": plan.n_features,
                "ones": None if counts is None or plan.privacy is not None else counts.tp + counts.fn,
                "fingerprint": None,
                "participation": participation(run, history),
                **({RESAMPLED: True} if plan.resample else {}),
            },
        ),
    )


def read_columns(path: Path) -> tuple[str, ...]:
    """Read column names, one a line."""
    names = tuple(read_text(path, advice="it must hold one column name per line").splitlines())
    if not names or len(set(names)) != len(names):
        raise InputError(f"{path} must hold one unique column name per line")
    return names


def demonstrate(
    *,
    sites: int,
    n_components: int | str,
    method: str = DEFAULT,
    out: str | os.PathLike[str] | None = None,
    keep: str | os.PathLike[str] | None = None,
    on_status: Callable[[Status], None] = lambda _: None,
    on_event: Callable[[str], None] = lambda _: None,
) -> tuple[Result, str]:
    """Play a federation of real processes on this machine on the zoo data; return its result and where it is kept."""
    from felb.data import partition
    from felb.data.files import load
    from felb.data.partition import split
    from felb_sites.local_federation import LocalFederation

    matrix = load("zoo")
    shards, _ = split(matrix, [f"site-{number + 1:02}" for number in partition.even(len(matrix), sites)])
    columns = matrix.columns or ()
    parameters = {"effort": "fast"} if method == DEFAULT else {}
    plan = Plan("demo", method, n_components, len(columns), parameters, columns=fingerprint(columns))
    terms = Terms(quorum=sites, rounds_per_job=ALL_ROUNDS)
    secure = LEAST_SITES <= sites <= MOST_SITES
    run = DeployedRun(plan, terms, tuple(shards), columns, disclosure="none", secure=secure)  # the data is public
    with tempfile.TemporaryDirectory(prefix="felb-demo-") as scratch:
        folder = Path(scratch if keep is None else keep) / "federation"
        on_event(f"making keys and certificates of a coordinator and {sites} sites")
        federation = LocalFederation(folder, shards, policy={"min_rows": 1})
        on_event("starting them; they talk over mutual TLS")
        with federation:
            on_event("playing the run")
            place = Path(out) if out is not None else Path(scratch) / "result"
            result = run_deployed(federation.coordinator, run, place, on_status=on_status, on_event=on_event)
    return result, "not kept" if out is None else str(out)
