"""A site's part of one run: takes a request, checks it against the plan, answers it once, writes down what leaves."""

from __future__ import annotations

import json
import threading
import weakref
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp

from felb.errors import FederationError, InputError, MissingExtraError, PrivacyError
from felb.federated.client import Client
from felb.federated.gate import Gate, StoredResponses, answered_rounds
from felb.kernels.schedule import one_blas_thread
from felb.privacy.outbound_log import OutboundLog, drop_unsent, read_log
from felb.records import replacing, try_lock
from felb_sites.attempts import Attempts, planned_costs
from felb_sites.hardening import write_json
from felb_sites.replay import Replay
from felb_sites.run_plan import Plan, fingerprint
from felb_sites.site_budget import PLAN, RESPONSES, Spent
from felb_sites.site_logs import OUTBOUND
from felb_sites.site_policy import Refusal, SiteConfig
from felb_sites.site_sample import drawn_half

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from felb.data.binary import BinaryMatrix
    from felb.federated.protocol import Algorithm, Request, Sums, Update
    from felb.federated.tasks import TaskSpec, Work
    from felb.privacy.outbound_log import OutboundRecord
    from felb.privacy.spec import PrivacyPlan

ASSIGNMENT, ATTEMPTS, REPLAY, LOCK = "assignment.npz", "attempts", "replay", "lock"
DATA = "data.sha256"


class SiteSession:
    """One site in one run.

    Everything is kept under the site's own state folder, in a folder named by the run:

    plan.json          what was agreed on; the run's id stands for this plan and no other
    data.sha256        fingerprint of the rows; the whole run is about the same ones
    responses/         responses and states of the last rounds; in a private run, every response and its cost
    attempts/          requests that failed, with what they cost
    replay/            sums of the rounds, from which the site derives the requests
    outbound.jsonl     one line for every array that left
    assignment.npz     U_i at the end, rows × components as a SciPy sparse matrix; not of a refit
    sample.key         of a refit: by which its rows were drawn, see `site_sample`
    secure.state       if sums are masked: keys, and which survivors were signed; see `masked_session`
    lock               held by the one process that answers for this run

    What all runs together may cost is in ``spent.json`` beside these folders.

    Parameters
    ----------
    name : of the site
    arguments : the plan, as it came from a coordinator
    config : the site's own settings
    end_process : ends the process when a request takes longer than the policy allows; compiled code cannot be
        interrupted in another way. None where the process has other work, and then there is no limit

    Attributes
    ----------
    close : lets another process answer for the run
    config : the settings that it goes by
    stale : the disk has failed, and what is in memory is not what is on it: the session is to be opened again
    """

    def __init__(
        self, name: str, arguments: Any, config: SiteConfig, *, end_process: Callable[[], None] | None = None
    ) -> None:
        self.plan = read_plan(arguments)
        self._algorithm = self.plan.algorithm()
        config.policy.check(self.plan, self._algorithm.privacy)
        self.name = name
        self.folder = Path(config.state) / self.plan.run_id
        self.config, self._end_process = config, end_process
        self._shard: BinaryMatrix | None = None
        self.stale = False
        self._check_known()
        guaranteed = self._algorithm.privacy
        self.folder.mkdir(parents=True, exist_ok=True)
        lock = try_lock(self.folder / LOCK)
        if lock is None:
            raise Refusal("another process of this site answers for this run", code="busy")
        self.close = weakref.finalize(self, lock.close)
        try:
            self._responses = StoredResponses(
                self.folder / RESPONSES,
                None if guaranteed is None else guaranteed.accountant(),
                state_type=self._algorithm.state_type,
                charged=guaranteed is not None,
            )
            self._attempts = Attempts(self.folder / ATTEMPTS, self._responses.accountant)
            Spent(config.state).check_complete()
            self._check_spent()
            drop_unsent(self.folder / OUTBOUND, answered_rounds(self.folder / RESPONSES))
        except BaseException:
            self.close()
            raise
        self._log, self._logged = OutboundLog(self.folder / OUTBOUND), frozenset[tuple[Any, ...]]()
        gate = Gate(
            name,
            self._note,
            accountant=self._responses.accountant,
            plan=guaranteed,
            responses=self._responses,
            disclosure=config.policy.rules,
        )
        # The coordinator must not be able to subtract the noise: its seed has no part in it.
        self._client = Client(name, self._algorithm, gate, self.plan.seed, noise=np.random.default_rng(), do=self._do)
        self._played: Replay | None = None

    @property
    def answered(self) -> bool:
        """Whether anything was answered in this run."""
        return bool(answered_rounds(self._responses.folder))

    @property
    def _replay(self) -> Replay | None:
        """The server's part of the run; made when it is known that the plan is of the size of the data."""
        if self._played is None and self.config.policy.require_replay:
            self.shard()
            plan = self.plan
            self._played = Replay(self._algorithm, plan.seed, self.folder / REPLAY, sites=plan.sites)
        return self._played

    @property
    def have(self) -> int | None:
        """Rounds whose sums the site has; None if it does not replay the algorithm."""
        return None if self._replay is None else self._replay.have

    def answer(self, request: Request, sums: Sequence[Sums] = ()) -> Mapping[str, NDArray[Any]]:
        """Return what leaves the site for a request; for one that was answered before, the same again.

        `sums` are those of rounds before it, from which the site derives what must be asked now.

        Raises a `Refusal`, and nothing else, whatever happens: what went wrong may depend on the data.
        """
        try:
            self._algorithm.check_request(request)
        except FederationError as error:
            raise Refusal(str(error), code="request") from error
        if self._replay is not None:
            with self._limited(lambda: None):
                self._replay.receive(sums)
        known = self._responses.find(request)
        if known is not None:
            return known
        if self._replay is not None:
            self._replay.check(request)
            if request.round in answered_rounds(self._responses.folder):
                raise Refusal("another request of this round was answered; a round has one", code="request")
        shard = self.shard()
        self._reserve()
        costs = planned_costs(self._algorithm.privacy, request.task)
        try:
            again = self._attempts.begin(request, costs)
        except PrivacyError as error:
            raise Refusal(f"the request goes beyond what the run has guaranteed: {error}", code="failed") from error
        self._logged = self._lines() if again and self._replay is not None else frozenset()
        try:
            with self._limited(lambda: self._attempts.fail(request, costs)):
                values = self._answer(shard, request)
        except OSError as error:  # a full disk says nothing about the data, and passes
            self._attempts.done(request)
            self.stale = True  # what was charged and logged in memory alone has not left
            raise Refusal(f"the answer could not be kept: {error}", code="failed") from error
        except Exception as error:
            self._attempts.fail(request, costs)
            raise Refusal(f"the request failed: {error!r}", code="failed") from error
        self._attempts.done(request)
        return values

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

        timer = threading.Timer(self.config.policy.max_seconds, end_now)
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()

    def _answer(self, shard: BinaryMatrix, request: Request) -> Mapping[str, NDArray[Any]]:
        _, release = self._client.answer(self._responses.states_before(request.round), shard, request)
        if self._algorithm.privacy is not None:
            Spent(self.config.state).note_answers(self.plan.run_id, len(self._responses))
        return release.values

    def _do(self, spec: TaskSpec, work: Work) -> tuple[Any, Update]:
        # What overflows saturates; an error here would tell something of the data.
        with one_blas_thread(), np.errstate(all="ignore"):
            state, update = spec.do(work)
        if spec.assigns and not self.plan.resample:
            # Before the response is kept: a repeated request is answered from there and assigns nothing.
            self._keep_assignment(state.assigned)
        return state, update

    @property
    def algorithm(self) -> Algorithm:
        """What is played."""
        return self._algorithm

    @property
    def privacy(self) -> PrivacyPlan | None:
        """What the run guarantees."""
        return self._algorithm.privacy

    def finished(self, request: Request) -> bool:
        """Return whether a request was the run's last one: the site's rows are assigned."""
        return any(self._algorithm.tasks[part.task].assigns for part in request.parts)

    def shard(self) -> BinaryMatrix:
        """Return the site's rows, read once."""
        if self._shard is None:
            try:
                matrix = self.config.read()
                names = self.config.agreed_names(matrix)
            except (InputError, MissingExtraError, OSError, ValueError) as error:
                raise Refusal(f"the data cannot be read: {error}", code="data") from error
            if self.plan.resample:
                matrix = drawn_half(matrix, self.folder, answered=self.answered)
            columns = None if names is None else fingerprint(names)
            self.config.policy.check_data(matrix, self.plan, columns=columns)
            self.config.policy.check_disclosure(self.plan, n_rows=len(matrix))
            self.config.policy.check_rare_features(matrix, self.plan)
            self.config.policy.check_delta(matrix, self._algorithm.privacy)
            self._check_rows(matrix)
            self._shard = matrix
        return self._shard

    def _check_rows(self, matrix: BinaryMatrix) -> None:
        """Refuse rows that have changed since the first answer: sums before and after would tell which."""
        path = self.folder / DATA
        if path.is_file() and path.read_text(encoding="utf-8") != matrix.fingerprint():
            raise Refusal("the data is not what it was when this run began", code="changed")

    def check_ready(self) -> None:
        """Refuse what would be refused at the first request: data that does not fit, a budget that does not suffice."""
        self.shard()
        guaranteed = self._algorithm.privacy
        if guaranteed is not None:
            Spent(self.config.state).check(self.plan.run_id, guaranteed, **self._total_limits)

    @property
    def _total_limits(self) -> dict[str, float | None]:
        """What all runs of this site together may cost."""
        epsilon, delta = self.config.policy.total_limits(self.plan)
        return {"limit": epsilon, "delta_limit": delta}

    def _reserve(self) -> None:
        """Set the run down in the site's budget for all runs, before anything of it is computed."""
        if not self._known_plan.is_file():
            write_json(self._known_plan, self.plan.to_json())
        if not (self.folder / DATA).is_file():
            with replacing(self.folder / DATA) as partial:
                partial.write_text(self.shard().fingerprint(), encoding="utf-8")
        guaranteed = self._algorithm.privacy
        self._check_spent()  # private runs may have begun since this one did
        if guaranteed is not None:
            Spent(self.config.state).reserve(self.plan.run_id, guaranteed, **self._total_limits)

    def _note(self, record: OutboundRecord) -> None:
        """Write a line about what leaves, unless a process that ended before its answer was kept has written it."""
        if (record.round, record.task, record.what) not in self._logged:
            self._log(record)

    def _lines(self) -> frozenset[tuple[Any, ...]]:
        path = self.folder / OUTBOUND
        lines = read_log(path) if path.is_file() else []
        return frozenset((line.get("round"), line.get("task"), line.get("what")) for line in lines)

    def _check_spent(self) -> None:
        """Refuse an exact run after private ones, and a private one of which responses are lost."""
        guaranteed, spent = self._algorithm.privacy, Spent(self.config.state)
        if guaranteed is None:
            spent.check_exact(allowed=self.config.policy.exact_after_private)
        else:
            spent.check_answers(self.plan.run_id, len(self._responses))

    def _check_known(self) -> None:
        """Refuse a run that was answered under another plan, or whose responses are lost: they are for one."""
        if self._known_plan.is_file():
            if json.loads(self._known_plan.read_text(encoding="utf-8")) != json.loads(json.dumps(self.plan.to_json())):
                raise Refusal(
                    "this site knows a run of this name with another plan; the new one needs another id", code="known"
                )
        elif self._algorithm.privacy is not None and self.plan.run_id in Spent(self.config.state).runs():
            raise Refusal("this site has answered a run of this name and lost its responses", code="known")

    @property
    def _known_plan(self) -> Path:
        return self.folder / PLAN

    def _keep_assignment(self, U: NDArray[np.bool_]) -> None:
        with replacing(self.folder / ASSIGNMENT) as partial, partial.open("wb") as file:
            sp.save_npz(file, sp.csr_array(U))


def read_plan(arguments: Any) -> Plan:
    """Read a plan that came from a coordinator."""
    try:
        return Plan.of(arguments)
    except (InputError, MissingExtraError) as error:
        raise Refusal(str(error), code="plan") from error
