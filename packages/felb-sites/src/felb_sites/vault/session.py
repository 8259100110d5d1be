"""A site's part of one run: derives the request of each round itself, answers it once, and keeps what must survive."""

from __future__ import annotations

import json
import math
import secrets
import sqlite3
import threading
import time
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp

from felb.errors import FederationError, InputError, PrivacyError
from felb.federated.client import Client
from felb.federated.gate import Gate, Responses
from felb.federated.journal import (
    Journal,
    decode_entry,
    digest,
    encode_entry,
    states_from_arrays,
    states_to_arrays,
    unpack,
)
from felb.federated.protocol import Sums
from felb.federated.steps.assignment import ASSIGN
from felb.kernels.schedule import one_blas_thread
from felb.privacy.accounting import UPLOADS, Charge, Cost, total_epsilon
from felb.privacy.outbound_log import SYNTHETIC
from felb.records import replacing
from felb_sites.vault.policy import Refusal
from felb_sites.vault.replay import Replay

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from numpy.typing import NDArray

    from felb.data.binary import BinaryMatrix
    from felb.federated.protocol import Algorithm, Request, Update, Values
    from felb.federated.tasks import TaskSpec, Work
    from felb.privacy.accounting import Accountant
    from felb.privacy.outbound_log import OutboundRecord
    from felb.privacy.spec import PrivacyPlan
    from felb_sites.messages import RoundSums
    from felb_sites.run_plan import Plan
    from felb_sites.vault.policy import Policy
    from felb_sites.vault.store import Store

KEPT = 3
"""Rounds whose states a site keeps; a coordinator falls back by one round at most."""
MOST_FAILURES = 5
"""Of one run: requests that failed, and times that one request was begun."""
REAL = "real"
"""The name under which the real-valued fields of the last request are kept."""
FAILED = "failed"
"""The name under which failures are charged."""
ROUNDING = 1e-9
"""Of sums that are compared with a limit: ten times 0.1 are 1."""
_ADVICE = "restore the store of this site: felb site restore"


class NotKept(Refusal):
    """The disk is full, or fails; the envelope that could not be dealt with is not acknowledged, and comes again."""

    def __init__(self, message: str) -> None:
        super().__init__(message, code="unavailable")


def planned_costs(plan: PrivacyPlan | None, task: str) -> dict[str, Cost]:
    """Return what a task's response costs by the plan alone, whatever the data is."""
    if plan is None or task == ASSIGN:
        return {}
    if plan.uploads is None:
        return {task: Cost("gaussian", plan.mu_of(task), plan.unit, plan.privacy.neighbours)}
    mechanism = plan.upload_mechanism()
    of_size = getattr(mechanism, "cost", None)
    if callable(of_size):
        return {UPLOADS: of_size(plan.uploads.size)}
    return {UPLOADS: Cost("gaussian", plan.mu_of(UPLOADS), plan.unit, plan.privacy.neighbours)}


def check_budget(store: Store, plan: Plan, guaranteed: PrivacyPlan | None, policy: Policy) -> None:
    """Refuse a run that would exceed what all runs of this site may cost, and exact runs after private ones.

    A run is set down with all that it may cost before its first answer. Guarantees of different units or neighbour
    relations say different things and are never added up.
    """
    others = store.rows("select * from budget where run<>?", plan.run_id)
    if guaranteed is None:
        if others and not policy.exact_after_private:
            raise Refusal(
                "private runs were answered here, and an exact one about the same records would end their guarantee",
                code="privacy",
            )
        return
    kind = guaranteed.unit, guaranteed.privacy.neighbours
    same = [row for row in others if (row["unit"], row["neighbours"]) == kind]
    cost = {"epsilon": guaranteed.privacy.epsilon, "delta": guaranteed.delta}
    for (name, more), most in zip(cost.items(), policy.total_limits(plan), strict=True):
        if most is not None and math.fsum([*(row[name] for row in same), more]) > most * (1 + ROUNDING):
            raise Refusal("this site's privacy budget for all runs does not suffice for this one", code="budget")


@dataclass
class _Answered:
    """What one request has led to, until it is written in one transaction."""

    lines: list[OutboundRecord] = field(default_factory=list)
    values: Values | None = None
    states: Mapping[str, Any] | None = None


class _StoreResponses(Responses):
    """The responses of a run in the store of the vault; `keep` hands them to the session, which writes all at once."""

    def __init__(self, store: Store, run: str, accountant: Accountant | None, answered: _Answered) -> None:
        super().__init__(accountant)
        self._store, self._run, self._answered = store, run, answered

    def find(self, request: Request) -> Values | None:
        """Return what was released for this very request, if it was."""
        found = self._store.row("select entry, digest from responses where run=? and round=?", self._run, request.round)
        if found is None:
            return None
        if found["digest"] != digest(request):
            raise Refusal("another request of this round was answered; a round has one", code="request")
        return decode_entry(found["entry"], source="a stored response", advice=_ADVICE)[1]

    def keep(self, request: Request, values: Values, states: Mapping[str, Any] | None = None) -> None:  # noqa: ARG002
        """Hand over what was released, and the states after it."""
        self._answered.values, self._answered.states = values, states


class Session:
    """One site in one run that was approved.

    Parameters
    ----------
    store : of the vault
    name : of the site
    plan, algorithm : of the run
    policy : of the site
    rows : the site's data, as it was read and checked
    end_process : ends the process when a request takes longer than the policy allows, since compiled code cannot be
        interrupted in another way; None for no limit
    """

    def __init__(
        self,
        store: Store,
        name: str,
        plan: Plan,
        algorithm: Algorithm,
        *,
        policy: Policy,
        rows: BinaryMatrix,
        end_process: Callable[[], None] | None = None,
    ) -> None:
        self._store, self.name, self.plan, self.algorithm = store, name, plan, algorithm
        self._policy, self._end_process = policy, end_process
        self._rows = self._bound_rows(rows)
        guaranteed = algorithm.privacy
        self._accountant = None if guaranteed is None else guaranteed.accountant()
        self._restore_charges()
        self._answered = _Answered()
        self._responses = _StoreResponses(store, plan.run_id, self._accountant, self._answered)
        gate = Gate(
            name,
            self._answered.lines.append,
            accountant=self._accountant,
            plan=guaranteed,
            responses=self._responses,
            disclosure=policy.rules,
        )
        # The coordinator must not be able to subtract the noise: its seed has no part in it.
        self._client = Client(name, algorithm, gate, plan.seed, noise=np.random.default_rng(), do=self._do)
        self._replay = Replay(algorithm, plan.seed, self._open_journal(), sites=plan.sites or 1)
        self._real: bytes | None = None
        self.request: Request | None = self._restore_request()

    # -- rows ----------------------------------------------------------------------------------------------------------

    def _bound_rows(self, rows: BinaryMatrix) -> BinaryMatrix:
        """Return the rows of the run, the same ones from its first answer to its last."""
        known = self._store.run(self.plan.run_id)
        assert known is not None
        if self.plan.resample:
            rows = self._drawn_half(rows, known["sample"])
        if known["data"] is None:
            self._store.update_run(self.plan.run_id, data=rows.fingerprint())
        elif known["data"] != rows.fingerprint():
            raise Refusal("the data is not what it was when this run began", code="changed")
        return rows

    def _drawn_half(self, rows: BinaryMatrix, key: bytes | None) -> BinaryMatrix:
        """Return ⌈n/2⌉ of the n rows, without replacement, by a key of this site's own.

        A coordinator that knew which rows were drawn could compare the sums of several refits and solve for records.
        """
        if key is None:
            key = secrets.token_bytes(16)
            self._store.update_run(self.plan.run_id, sample=key)
        rng, n = np.random.default_rng(int.from_bytes(key, "little")), len(rows)
        return rows.take(np.sort(rng.permutation(n)[: (n + 1) // 2]))

    # -- what was kept -------------------------------------------------------------------------------------------------

    def _open_journal(self) -> Journal:
        journal = Journal(advice=_ADVICE)
        for row in self._store.rows("select name, entry from journal where run=?", self.plan.run_id):
            entry = decode_entry(row["entry"], source=f"the entry {row['name']}", advice=_ADVICE)
            journal.take(row["name"], *entry, source=row["name"])
        return journal

    def keep_journal(self) -> None:
        """Write what the sums have led to; a session whose transaction fails must be opened again."""
        with self._store.transaction():
            new, dropped = self._replay.journal.take_changes()
            for name, entry in new.items():
                self._store.write("insert or replace into journal values(?, ?, ?)", self.plan.run_id, name, entry)
            for name in dropped:
                self._store.write("delete from journal where run=? and name=?", self.plan.run_id, name)
            self._store.keep(self.plan.run_id, REAL, self._real)

    def _restore_request(self) -> Request | None:
        """Return the request of the last round whose sums came, after a restart."""
        self._real = self._store.find(self.plan.run_id, REAL)
        return None if self._real is None else self._replay.request(unpack(self._real) if self._real else {})

    def _restore_charges(self) -> None:
        """Charge again what earlier answers and failures of this run have cost."""
        if self._accountant is None:
            return
        run = self.plan.run_id
        for row in self._store.rows("select round, entry, charges from responses where run=? order by round", run):
            values = decode_entry(row["entry"], source="a stored response", advice=_ADVICE)[1]
            costs = {what: Cost.from_json(cost) for what, cost in json.loads(row["charges"]).items()}
            self._accountant.charge(*(Charge.of("", row["round"], w, values[w], cost) for w, cost in costs.items()))
        for row in self._store.rows("select * from attempts where run=? and failed=1", run):
            costs = {what: Cost.from_json(cost) for what, cost in json.loads(row["costs"]).items()}
            self._charge_failure(row["round"], row["digest"], costs)

    def _charge_failure(self, number: int, request: str, costs: Mapping[str, Cost]) -> None:
        if self._accountant is not None and costs:
            told = np.frombuffer(request.encode(), np.uint8)
            self._accountant.charge(*(Charge.of(FAILED, number, what, told, cost) for what, cost in costs.items()))

    # -- rounds --------------------------------------------------------------------------------------------------------

    def receive(self, number: int, told: RoundSums) -> None:
        """Play on with the sums of the round before, so that `request` is that of a round; see `keep_journal`."""
        if number > 0 and number == self._replay.have + 1:
            try:
                sums = Sums(unpack(told.sums), told.clients, number=number - 1)
            except FederationError as error:
                raise Refusal("sums that cannot be read", code="request") from error
            with self._limited(lambda: None):
                self._replay.receive(_widened(sums), own=self._part_of(sums))
        if number != self._replay.have:
            raise Refusal(f"round {number} came, and {self._replay.have} rounds are known here", code="behind")
        try:
            real = unpack(told.real) if told.real else {}
        except FederationError as error:
            raise Refusal("a request that cannot be read", code="request") from error
        self.request, self._real = self._replay.request(real), told.real
        try:
            self.algorithm.check_request(self.request)
        except FederationError as error:
            raise Refusal(str(error), code="request") from error

    def _part_of(self, sums: Sums) -> Values | None:
        """Return this site's part in the sums of a round, if it must be in them: all sites have answered."""
        kept = "select entry from responses where run=? and round=?"
        row = self._store.row(kept, self.plan.run_id, sums.round) if sums.clients == self.plan.sites else None
        if row is None:
            return None
        return decode_entry(row["entry"], source="a stored response", advice=_ADVICE)[1]

    def find(self) -> Values | None:
        """Return what was released for the request of this round, if it was."""
        assert self.request is not None
        return self._responses.find(self.request)

    def begin(self) -> Refusal | None:
        """Set the attempt to answer down, with what it costs and what the run may cost; before a row is touched.

        Returns why it may not be answered, so that what was written with it stays.
        """
        assert self.request is not None
        store, run, request = self._store, self.plan.run_id, self.request
        guaranteed = self.algorithm.privacy
        costs = planned_costs(guaranteed, request.task)
        key = run, request.round, digest(request)
        try:
            check_budget(store, self.plan, guaranteed, self._policy)
        except Refusal as refusal:
            return refusal
        with store.transaction():
            if guaranteed is not None and not self.plan.rehearsal:
                terms = guaranteed.privacy.epsilon, guaranteed.delta, guaranteed.unit, guaranteed.privacy.neighbours
                store.write("insert or ignore into budget values(?, ?, ?, ?, ?, ?)", run, *terms, time.time())
            known = store.row("select tries, failed from attempts where run=? and round=? and digest=?", *key)
            failed = store.rows("select 1 from attempts where run=? and digest<>?", run, key[2])
            tries = 1 if known is None else known["tries"] + 1
            if (known is not None and known["failed"]) or tries > MOST_FAILURES or len(failed) >= MOST_FAILURES:
                return Refusal("too many requests of this run have failed; it is closed at this site", code="failed")
            if self._accountant is not None and costs:
                spent = [*(entry.cost for entry in self._accountant.entries), *costs.values()]
                if total_epsilon(spent, self._accountant.delta) > self._accountant.epsilon:
                    return Refusal("what the run may cost is spent", code="failed")
            said = json.dumps({what: cost.to_json() for what, cost in costs.items()})
            store.write("insert or replace into attempts values(?, ?, ?, ?, 0, ?)", *key, tries, said)
        return None

    def compute(self) -> Values:
        """Do the tasks of the request and let the update pass the gate; nothing is written, and nothing leaves."""
        assert self.request is not None
        request = self.request
        costs = planned_costs(self.algorithm.privacy, request.task)
        self._answered.lines.clear()
        self._answered.values = self._answered.states = None
        try:
            with self._limited(lambda: self._fail(request, costs)):
                self._client.answer(self._states_before(request.round), self._rows, request)
        except (OSError, sqlite3.Error) as error:  # a full disk says nothing about the data, and passes
            raise NotKept(f"the answer could not be kept: {error}") from error
        except Exception as error:
            self._fail(request, costs)
            # Its text may repeat what it found in the rows.
            raise Refusal(f"the request failed ({type(error).__name__})", code="failed") from error
        return self._released()

    def commit(self, *, masked: str | None) -> None:
        """Replace the attempt by charge, log and response, within the transaction of the caller.

        Parameters
        ----------
        masked : digest of the roster, if what leaves is masked
        """
        assert self.request is not None
        store, run, request, values = self._store, self.plan.run_id, self.request, self._released()
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        extra: dict[str, Any] = {} if masked is None else {"masked": True, "roster": masked}
        if self.plan.rehearsal:  # nothing of a record has left, so nothing was spent
            extra |= {"rehearsal": True, "mechanism": SYNTHETIC, "cost": None, "total": None}
        charges = {line.what: line.cost.to_json() for line in self._answered.lines if line.cost is not None}
        with store.transaction():
            store.write(
                "delete from attempts where run=? and round=? and digest=?", run, request.round, digest(request)
            )
            store.write(
                "insert into responses values(?, ?, ?, ?, ?)",
                run,
                request.round,
                digest(request),
                encode_entry({}, {name: np.asarray(value) for name, value in values.items()}),
                json.dumps(charges),
            )
            if self.algorithm.privacy is None:  # of charged responses none is ever deleted
                store.write("delete from responses where run=? and round<=?", run, request.round - KEPT)
            for line in self._answered.lines:
                store.append_log(run, {"time": now, **asdict(line), **extra})
            states = states_to_arrays(self._answered.states or {})
            store.put_state(run, request.round, encode_entry({}, states), keep=KEPT)
            store.update_run(run, round=request.round, state="ended" if self.is_last(request) else "open")

    def _released(self) -> Values:
        assert self._answered.values is not None
        return self._answered.values

    def is_last(self, request: Request) -> bool:
        """Return whether a request is the run's last one: the site's rows are assigned."""
        return any(self.algorithm.tasks[part.task].assigns for part in request.parts)

    def _states_before(self, number: int) -> Mapping[str, Any]:
        entry = self._store.state_before(self.plan.run_id, number)
        if entry is None:
            return {}
        return states_from_arrays(self.algorithm.state_type, decode_entry(entry, source="a state", advice=_ADVICE)[1])

    def _fail(self, request: Request, costs: Mapping[str, Cost]) -> None:
        """Charge a request that failed; a repetition of it fails at once."""
        key = self.plan.run_id, request.round, digest(request)
        self._store.write("update attempts set failed=1 where run=? and round=? and digest=?", *key)
        try:
            self._charge_failure(request.round, digest(request), costs)
        except PrivacyError:
            return  # more than was agreed is not to be had, and nothing has left

    @contextmanager
    def _limited(self, give_up: Callable[[], None]) -> Iterator[None]:
        """Let something take as long as the policy says; if it takes longer, it is given up, and the process ends."""
        if self._end_process is None:
            yield
            return
        end = self._end_process

        def end_now() -> None:
            give_up()
            end()

        timer = threading.Timer(self._policy.max_seconds, end_now)
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()

    def _do(self, spec: TaskSpec, work: Work) -> tuple[Any, Update]:
        # What overflows saturates; an error here would tell something of the data.
        with one_blas_thread(), np.errstate(all="ignore"):
            state, update = spec.do(work)
        if spec.assigns and self.plan.assigns:
            self._write_assignment(state.assigned)
        return state, update

    def _write_assignment(self, U: NDArray[np.bool_]) -> None:
        """Write U_i, rows × components, for the people at this site; before the response is kept."""
        place = self._store.folder / "assignments" / f"{self.plan.run_id}.npz"
        place.parent.mkdir(mode=0o700, exist_ok=True)
        with replacing(place) as partial, partial.open("wb") as file:
            sp.save_npz(file, sp.csr_array(U))


def _widened(sums: Sums) -> Sums:
    """Return sums as a server has them: whole numbers in int64, reals in float64."""
    values = {
        name: array.astype(np.float64 if array.dtype.kind == "f" else np.int64, copy=False)
        for name, array in sums.items()
    }
    return Sums(values, sums.clients, number=sums.round)


def read_plan(arguments: Any) -> Plan:
    """Read a plan that came from a coordinator."""
    from felb.errors import MissingExtraError
    from felb_sites.run_plan import Plan

    try:
        return Plan.of(arguments)
    except (InputError, MissingExtraError) as error:
        raise Refusal(str(error), code="plan") from error
