"""Attacks, each as a function that says whether it succeeds, and how the guard against it is removed.

An attack is the same with and without its guard, so that what it shows is the guard and nothing else. Tests that remove
a guard by themselves stand elsewhere.
"""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
from loopback import Loopback

from felb.data.binary import BinaryMatrix
from felb.errors import FederationError, InputError
from felb.federated import client
from felb.federated.gate import Responses, StoredResponses
from felb.federated.journal import pack
from felb.federated.protocol import Part, Request
from felb.federated.tasks import TaskSpec
from felb.kernels.passes import from_sketch
from felb.privacy import mechanisms as discrete
from felb.privacy.mechanisms import DiscreteGaussian
from felb.privacy.spec import Privacy
from felb.runs import result as result_module
from felb.runs.execute import simulate
from felb.runs.job import Job
from felb_sites import site_session
from felb_sites.attempts import Attempts
from felb_sites.messages import vault_message, write_question, write_request
from felb_sites.replay import Replay
from felb_sites.response_validation import ResponseValidator
from felb_sites.run_plan import Plan
from felb_sites.site_budget import USUAL, Spent
from felb_sites.site_policy import Policy, Refusal, SiteConfig
from felb_sites.site_session import SiteSession
from felb_sites.vault import OK, Vault

ROWS = np.random.default_rng(3).random((90, 12)) < 0.3
SHARDS = {f"site-{i}": BinaryMatrix.of(ROWS[i::3]) for i in range(3)}
EXACT = Plan("exact", "bmf", 4, 12, {"effort": "fast"}, sites=3)
PRIVATE = Plan("private", "bmf", 3, 12, {"effort": "fast"}, {"epsilon": 1.0, "delta": 1e-5}, 90, 3)
SIZES = Request.of([Part("sizes", {})], all_clients=True, number=0)

# -- in a process of FLARE -------------------------------------------------------------------------------------------

GUARD = "from felb_sites import topic_guard\ntopic_guard.install()\n"
RELAYED = """
from types import SimpleNamespace
from unittest.mock import MagicMock
from nvflare.fuel.f3.cellnet.core_cell import CoreCell
from nvflare.fuel.f3.cellnet.defs import MessageHeaderKey as Key
from nvflare.fuel.f3.drivers.driver_params import DriverParams
from nvflare.fuel.f3.message import Message
server = MagicMock(message_interceptor=None)
server.my_info.fqcn, server.in_filter_reg.find.return_value = "server", None
line = SimpleNamespace(get_conn_properties=lambda: {DriverParams.PEER_CN.value: "hospital-b"})
asked = {Key.CHANNEL: "admin", Key.TOPIC: "admin", Key.MSG_TYPE: "req"}
message = Message({**asked, Key.ORIGIN: "hospital-b", Key.DESTINATION: "hospital-a"}, b"")
CoreCell._process_received_msg(server, SimpleNamespace(name="hospital-b"), line, message)
print("told", server._forward.called)
"""
SHELL = """
from nvflare.private.admin_defs import Message
from nvflare.private.fed.client.admin import FedAdminAgent
from nvflare.private.fed.client.client_req_processors import ClientRequestProcessors
class Site:
    processors = {}
for processor in ClientRequestProcessors.request_processors:
    FedAdminAgent.register_processor(Site, processor)
found = Site.processors.get("sys.shell")
print("told", found and found.process(Message(topic="sys.shell", body="cat records.csv"), None).body)
"""
ENVIRONMENT = """
import os
from nvflare.fuel.utils.wfconf import _EnvUpdater
os.environ["PASSWORD"] = "swordfish"
print("told", _EnvUpdater({"run": 1}).substitute("{$PASSWORD}"))
"""


def told_by_flare(body, folder):
    """Return what a process of FLARE tells, with what stands before its dispatch."""
    done = subprocess.run([sys.executable, "-c", GUARD + body], capture_output=True, text=True, check=False, cwd=folder)
    assert done.returncode == 0, done.stderr
    return done.stdout.rpartition("told ")[2].strip()


def without_the_list_of_topics(patch):
    patch.setitem(globals(), "GUARD", "")


def a_command_of_one_site_reaches_another(folder):
    pytest.importorskip("nvflare")
    return told_by_flare(RELAYED, folder) == "True"


def a_server_reads_a_file_of_a_site(folder):
    pytest.importorskip("nvflare")
    (folder / "records.csv").write_text("Jane Doe,1\n")
    return "Jane Doe" in told_by_flare(SHELL, folder)


def a_variable_is_filled_into_the_settings_of_a_job(folder):
    pytest.importorskip("nvflare")
    return "swordfish" in told_by_flare(ENVIRONMENT, folder)


# -- noise and requests ----------------------------------------------------------------------------------------------


def a_count_is_read_off_noise_that_has_saturated(folder):
    pytest.importorskip("opendp")
    counts = np.array([17, 4, 9, 0, 41, 2], dtype=np.int64)
    try:
        noisy, _ = DiscreteGaussian(1e31, 1.0).release("counts", counts, rng=np.random.default_rng(0))
    except InputError:
        return False
    read = noisy - np.iinfo(np.int64).max  # the draws are the ends of the range, which are neighbours modulo 2^64
    return bool(np.all((read == counts) | (read == counts + 1)))


def with_noise_of_any_width(patch):
    patch.setattr(discrete, "WIDEST", np.inf)
    patch.setattr(discrete, "SATURATED", 1 << 64)


def failures_cost_nothing_and_have_no_end(folder):
    pytest.importorskip("opendp")
    session, computed = session_of(folder, PRIVATE, require_replay=False), []

    def overflow(*_, **__):
        computed.append(1)
        raise OverflowError("a count of 41")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(client, "compute_update", overflow)
        for number in range(12):
            with pytest.raises(Refusal):
                session.answer(Request.of([Part("sizes", {})], all_clients=True, number=number))
    return len(computed) == 12 and session._client.gate.accountant.spent == 0.0


def with_failures_for_nothing(patch):
    patch.setattr(Attempts, "begin", lambda *_: False)
    patch.setattr(Attempts, "fail", lambda *_: None)


def a_chosen_question_counts_the_rows_with_some_items(folder):
    items = [0, 1]
    V = np.zeros((4, 12), dtype=bool)
    V[0, items] = True
    asked = Request.of([Part("flip_gains", {"components": V, "weights": np.array([1.0, -12.0])})], number=0)
    try:
        told = session_of(folder, EXACT, require_replay=True).answer(asked)
    except Refusal:
        return False
    return int(told["supports"][0]) == int(ROWS[0::3][:, items].all(axis=1).sum())


def with_any_request(patch):
    patch.setattr(Replay, "check", lambda *_: None)
    patch.setattr(TaskSpec, "check_request", lambda *_: None)


def a_request_searches_without_end(folder):
    session, seen = session_of(folder, EXACT, require_replay=False), []
    asked = {"components": np.zeros((2, 12), bool), "weights": np.array([1.0, -1.0]), "node_cap": np.asarray(10**6)}

    def searches(work):
        seen.append(int(work.values["node_cap"]))
        raise ValueError

    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(session.algorithm.tasks, "assign", replace(session.algorithm.tasks["assign"], do=searches))
        with pytest.raises(Refusal):
            session.answer(Request.of([Part("assign", asked)], all_clients=True, number=0))
    return seen == [10**6]


# -- sites -----------------------------------------------------------------------------------------------------------


def config_of(folder, **policy):
    folder.mkdir(parents=True, exist_ok=True)
    data = folder / "data.npz"
    sp.save_npz(data, SHARDS["site-0"].to_scipy(bool))
    opened = {"auto_approve": ("all",), "require_privacy": False, "min_rows": 5, "disclosure": "none"}
    return SiteConfig(str(data), str(folder / "state"), policy=Policy(**{**opened, **policy}))


def session_of(folder, plan, **policy):
    return SiteSession("site-0", plan.to_json(), config_of(folder, **policy))


def two_jobs_of_one_run_spend_its_budget_each(folder):
    pytest.importorskip("opendp")
    config = config_of(folder, require_privacy=True)
    vaults = [Vault("site-0", lambda: config) for _ in range(2)]
    ready = [vault.handle(*vault_message(write_question(), PRIVATE.to_json())).code for vault in vaults]
    replies = [vault.handle(*vault_message(write_request(SIZES), PRIVATE.to_json())) for vault in vaults]
    books = [len(session._client.gate.accountant.entries) for vault in vaults for session in vault._sessions.values()]
    for vault in vaults:
        vault.close()
    return ready == [OK, OK] and replies[0].values != replies[1].values and books == [1, 1]


def with_a_book_for_each_job(patch):
    patch.setattr(site_session, "try_lock", lambda path: path.open("ab"))
    patch.setattr(StoredResponses, "find", Responses.find)
    patch.setattr(StoredResponses, "keep", Responses.keep)


def a_cell_of_the_data_is_in_a_reply(folder):
    secret = folder / "data.csv"
    secret.write_text("a,b\nJane Doe 1970-01-01,1\n")
    config = SiteConfig(str(secret), str(folder / "state"), policy=config_of(folder).policy)
    vault = Vault("site-0", lambda: config)
    reply = vault.handle(*vault_message(write_question(), Plan("h2", "felb-mu", 2, 2).to_json()))
    return "Jane" in reply.code or b"Jane" in reply.values


def with_reasons_in_full(patch):
    patch.setattr(Refusal, "code", property(str, lambda *_: None), raising=False)


def a_passive_server_gets_the_products_of_a_site_s_columns(folder):
    """Three sketches AᵀA Q that the default method asks by itself give AᵀA of 40 rows: S (QᵀS)⁺ Sᵀ (Nyström)."""
    A = np.random.default_rng(0).random((40, 80)) < 0.1
    plan = Plan("h5", "bmf", 10, 80, {"effort": "fast"}, sites=3)
    strict = {"disclosure": None, "min_rows": Policy().min_rows, "require_privacy": True, "require_replay": True}
    try:
        loop = Loopback(folder, plan, {name: BinaryMatrix.of(A) for name in "abc"}, **strict)
        asked, told = [], []
        while loop.request is not None and loop.request.task == "gram_sketch":
            request = loop.request
            loop.round()
            asked.append(request.values["Q"])
            told.append(from_sketch(loop.desks["a"].answer(request)["sketch"]))  # the same again
    except Refusal:
        return False
    Q, S = np.hstack(asked), np.hstack(told)
    gram = A.T.astype(float) @ A
    return bool(np.allclose(S @ np.linalg.pinv(Q.T @ S, rcond=1e-9) @ S.T, gram, atol=1e-2))


def with_exact_runs_of_any_size(patch):
    patch.setattr(Policy, "check_privacy", lambda *_: None)
    patch.setattr(Policy, "check_disclosure", lambda *_, **__: None)


# -- sums, budgets, results ------------------------------------------------------------------------------------------


def a_site_poisons_the_sum(folder):
    cover = {"components": np.zeros((2, 12), bool), "weights": np.array([1.0, -1.0])}
    asked = Request.of([Part("residual_counts", cover)], number=0)
    poison = {"residual": np.full(12, 2**50), "rows": np.asarray(-5)}
    try:
        release = ResponseValidator(EXACT.algorithm()).admit(pack(poison), asked, site="site-2")
    except FederationError:
        return False
    return int(release.values["rows"]) == -5


def with_any_response(patch):
    patch.setattr(ResponseValidator, "check", lambda *_, **__: None)


def a_result_that_is_passed_on_tells_the_data_from_other_data(folder):
    found = simulate(Job("zoo", "grecond+or", 3, clients=3), folder / "out")
    shared = json.loads((folder / "out" / "result.json").read_text())
    return shared["provenance"]["data"]["fingerprint"] == found.provenance.data["fingerprint"]


def with_all_facts_in_the_result(patch):
    patch.setattr(result_module, "NOT_SHARED", {})


def guarantees_of_different_kinds_are_added_up(folder):
    spent = Spent(folder)
    for name, kind in (("a", "add_remove"), ("b", "replace")):
        plan = Privacy(1.0, 1e-5, neighbours=kind).plan(n_records=90, n_clients=3, n_columns=12)
        spent.reserve(name, plan, limit=None)
    return spent.total() == (2.0, pytest.approx(2e-5))


def with_one_kind_of_guarantee(patch):
    charge = Spent.charge
    patch.setattr(Spent, "charge", lambda self, run, cost, **terms: charge(self, run, cost, **{**terms, "kind": USUAL}))
