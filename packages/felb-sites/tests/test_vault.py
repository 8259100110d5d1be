"""The vault alone, asked by whoever has its socket: nothing but approved runs is answered, and nothing breaks it."""

from __future__ import annotations

import json
import os
import random
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import numpy as np
import pytest
from vault_alone import OPEN, VaultAlone
from waiting import PATIENCE

from felb.data import partition
from felb.data.files import load
from felb.data.partition import split
from felb.errors import InputError
from felb.federated import client
from felb.federated.protocol import Part, Request
from felb_sites import SHORT
from felb_sites.approvals import Approvals, plan_digest
from felb_sites.attempts import MOST_FAILURES
from felb_sites.messages import vault_message, write_question, write_request
from felb_sites.reasons import REASONS
from felb_sites.refusals import read_refusals
from felb_sites.run_plan import Plan
from felb_sites.site_logs import read_outbound
from felb_sites.site_policy import Policy, SiteConfig
from felb_sites.site_session import SiteSession
from felb_sites.vault import OK, Vault
from felb_sites.vault_fuzzing import mutated_messages, random_frames
from felb_sites.vault_socket import VaultServer, ask, send

ZOO = load("zoo")
SHARDS = split(ZOO, [f"site-{i}" for i in partition.even(101, 3)])[0]
EXACT = Plan("exact", "felb-mu", 4, 17, {"max_iter": 3})
PRIVATE = Plan("private", "bmf", 3, 17, {"effort": "fast"}, {"epsilon": 1.0, "delta": 1e-5}, 101, 3)


def site_with(folder, **policy):
    return VaultAlone(folder, SHARDS["site-0"], **policy)


@pytest.fixture
def site(tmp_path):
    made = site_with(tmp_path / "site", **OPEN)
    yield made
    made.vault.close()


# -- approval --------------------------------------------------------------------------------------------------------


def test_nothing_is_approved_by_default_and_an_exact_run_is_not_even_offered(tmp_path):
    site = site_with(tmp_path, min_rows=5)
    assert site.ready(EXACT) == "privacy"
    assert Approvals(site.state).all() == []
    pytest.importorskip("opendp")
    assert site.ready(PRIVATE) == "pending"
    assert site.ask(PRIVATE) == "pending"
    assert [approval.run for approval in Approvals(site.state).pending()] == ["private"]
    assert site.kinds().count("pending") == 1, "a person is told once"
    assert read_outbound(site.state) == []
    site.vault.close()


def test_a_run_is_approved_by_its_digest_and_can_be_denied_at_any_time(tmp_path):
    assert site_with(tmp_path, min_rows=5, require_privacy=False).ready(EXACT) == "disclosure", "not even offered"
    site = site_with(tmp_path, min_rows=5, require_privacy=False, disclosure="none")
    assert site.ready(EXACT) == "pending"
    approvals, digest = Approvals(site.state), plan_digest(EXACT)
    for wrong in (digest[:8], "0" * 64, digest[1:]):
        with pytest.raises(InputError, match="digest"):
            approvals.approve("exact", wrong)
    approvals.approve("exact", digest[:SHORT])
    assert site.ready(EXACT) == OK
    assert site.ask(EXACT) == OK
    other = Plan("exact", "felb-mu", 5, 17, {"max_iter": 3})
    assert site.ready(other) == "known", "what was approved is this plan and no other"
    approvals.deny("exact")
    assert site.ready(EXACT) == "denied"
    assert site.ask(EXACT) == "denied", "also in the middle of a run"
    with pytest.raises(InputError, match="no run"):
        approvals.find("nothing")
    site.vault.close()


def test_a_policy_may_approve_private_runs_or_a_method(tmp_path):
    pytest.importorskip("opendp")
    by_word = Policy(auto_approve=("private",))
    assert (by_word.approves(PRIVATE), by_word.approves(EXACT)) == (True, False)
    by_method = Policy(auto_approve=("felb-mu",))
    assert (by_method.approves(PRIVATE), by_method.approves(EXACT)) == (False, True)
    assert not Policy().approves(PRIVATE)


# -- what leaves -----------------------------------------------------------------------------------------------------


def test_nothing_of_the_data_is_in_what_leaves_when_it_cannot_be_read(tmp_path):
    site = site_with(tmp_path, **OPEN)
    Path(site.config.data).unlink()
    secret = tmp_path / "data.csv"
    secret.write_text("a,b\nJane Doe 1970-01-01,1\n")
    site.config = SiteConfig(str(secret), str(site.state), policy=Policy(**OPEN))
    plan = Plan("h2", "felb-mu", 2, 2)
    reply = site.vault.handle(*vault_message(write_question(), plan.to_json()))
    assert (reply.code, reply.values) == ("data", b"")
    assert "Jane" in read_refusals(site.state)[0]["reason"], "the site's own log says what was wrong"
    assert "Jane" not in REASONS[reply.code]
    site.vault.close()


def test_a_courier_logs_nothing_and_replies_in_words_of_the_list(tmp_path, monkeypatch):
    pytest.importorskip("nvflare")
    from nvflare.apis.fl_constant import FLContextKey
    from nvflare.apis.shareable import Shareable

    from felb_sites.executor import SiteExecutor

    class Context:
        def get_prop(self, name, default=None):
            assert name == FLContextKey.WORKSPACE_OBJECT
            return self

        def get_site_config_dir(self):
            return str(tmp_path)

        def get_identity_name(self):
            return "site-0"

    monkeypatch.setattr(SiteExecutor, "log_error", lambda *_: pytest.fail("FLARE keeps errors for others to read"))
    monkeypatch.setenv("PASSWORD", "swordfish")
    for plan in ({"run_id": "{$PASSWORD}"}, "swordfish", None):
        executor = SiteExecutor(plan=plan)
        reply = executor.execute("felb", Shareable(), Context(), None)
        assert "swordfish" not in json.dumps({name: str(value) for name, value in reply.items()})
        assert reply["code"] in REASONS
    (tmp_path / "courier.json").write_text(json.dumps({"socket": str(tmp_path / "nobody.sock")}))
    assert SiteExecutor(plan={}).execute("felb", Shareable(), Context(), None)["code"] == "away"
    assert SiteExecutor(plan={}, more=1).execute("felb", Shareable(), Context(), None)["code"] == "plan"


def test_a_refusal_quotes_nothing_that_came(site):
    for plan in ({"run_id": "root-of-all"}, {**EXACT.to_json(), "method": "secretword"}, {**EXACT.to_json(), "x": 1}):
        reply = site.vault.handle({"verb": "ready", "plan": plan})
        assert reply.code == "plan"
        assert reply.values == b""
        assert "secretword" not in REASONS[reply.code]


def test_failures_are_constant_charged_and_capped(tmp_path, monkeypatch):
    pytest.importorskip("opendp")
    site = site_with(tmp_path, auto_approve=("all",), min_rows=5, require_replay=False)
    assert site.ready(PRIVATE) == OK
    session = site.vault._sessions["private"]
    broken = [
        OverflowError("a count of 41"),
        ValueError("row 7"),
        FloatingPointError("x"),
        MemoryError(),
        KeyError("k"),
    ]
    kinds = iter(broken * 3)

    def fail(*_, **__):
        raise next(kinds)

    with monkeypatch.context() as patch:
        patch.setattr(client, "compute_update", fail)
        request = Request.of([Part("sizes", {})], all_clients=True, number=0)
        replies = {site.vault.handle(*vault_message(write_request(request), PRIVATE.to_json())) for _ in range(3)}
        assert {(reply.code, reply.values) for reply in replies} == {("failed", b"")}
        spent = session._client.gate.accountant.spent
        assert spent > 0, "a failure costs what the answer would have cost"
        assert len(session._client.gate.accountant.entries) == 1, "the same request again is not computed again"
        for number in range(1, 12):
            request = Request.of([Part("sizes", {})], all_clients=True, number=number)
            assert site.vault.handle(*vault_message(write_request(request), PRIVATE.to_json())).code == "failed"
        assert len(list((site.state / "private" / "attempts").iterdir())) <= MOST_FAILURES
    before = session._client.gate.accountant.spent
    site.vault.close()
    again = SiteSession("site-0", PRIVATE.to_json(), site.config)
    assert again._client.gate.accountant.spent == pytest.approx(before), "charged also after a restart"
    again.close()


def test_weights_that_are_not_numbers_cost_nothing_and_tell_nothing(site):
    V = np.zeros((2, 17), bool)
    plan = Plan("nan", "bmf", 4, 17, {"effort": "fast"})
    assert site.ready(plan) == OK
    asked = Request.of([Part("flip_gains", {"components": V, "weights": np.array([np.nan, -1.0])})], number=0)
    assert site.vault.handle(*vault_message(write_request(asked), plan.to_json())).code == "request"


class Ended(BaseException):
    """Stands for the end of the process."""


def test_a_request_that_computes_too_long_ends_the_process_and_has_failed(tmp_path, monkeypatch):
    pytest.importorskip("opendp")
    site, ended = site_with(tmp_path, auto_approve=("all",), min_rows=5, max_seconds=0.05), threading.Event()
    site.vault = Vault("site-0", lambda: site.config, end_process=ended.set)
    assert site.ready(PRIVATE) == OK

    def computes_for_ever(*_, **__):
        assert ended.wait(PATIENCE), "the site does not wait for ever"
        raise Ended

    with monkeypatch.context() as patch:
        patch.setattr(client, "compute_update", computes_for_ever)
        with pytest.raises(Ended):
            site.vault.handle(*site.first(PRIVATE))
    site.vault.close()
    site.vault = Vault("site-0", lambda: site.config)
    assert site.ask(PRIVATE) == "failed", "not computed again by the next process"
    session = site.vault._sessions["private"]
    assert [entry.run for entry in session._client.gate.accountant.entries] == ["failed"], "and charged"
    site.vault.close()


def test_a_request_in_time_does_not_end_the_process(tmp_path):
    site, ended = site_with(tmp_path, **OPEN, max_seconds=60), threading.Event()
    site.vault = Vault("site-0", lambda: site.config, end_process=ended.set)
    assert site.ready(EXACT) == OK
    assert site.ask(EXACT) == OK
    assert not ended.is_set()
    timers = [thread for thread in threading.enumerate() if isinstance(thread, threading.Timer)]
    assert all(timer.finished.is_set() for timer in timers), "cancelled"
    site.vault.close()


def test_one_process_owns_a_run(tmp_path):
    site = site_with(tmp_path, **OPEN)
    assert site.ready(EXACT) == OK
    second = Vault("site-0", lambda: site.config)
    reply = second.handle(*vault_message(write_question(), EXACT.to_json()))
    assert reply.code == "busy"
    site.vault.close()
    assert second.handle(*vault_message(write_question(), EXACT.to_json())).code == OK
    second.close()


def test_fifty_couriers_at_once_spend_what_one_does(tmp_path):
    pytest.importorskip("opendp")
    site = site_with(tmp_path / "s", auto_approve=("all",), min_rows=5)
    with serving(site) as path:
        words, values = site.first(PRIVATE)
        replies = []
        threads = [threading.Thread(target=lambda: replies.append(ask(path, words, values))) for _ in range(50)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        answered = {reply.values for reply in replies if reply.code == OK}
        assert len(answered) == 1, "the same bits for all"
        assert len(site.vault._sessions["private"]._client.gate.accountant.entries) == 1


# -- the socket ------------------------------------------------------------------------------------------------------


class serving:
    """A vault behind its socket, in a folder whose path is short enough."""

    def __init__(self, site):
        self.site, self.folder = site, tempfile.mkdtemp(prefix="felb")

    def __enter__(self):
        self.server = VaultServer(self.site.vault, Path(self.folder) / "v.sock")
        self.thread = threading.Thread(target=self.server.serve)
        self.thread.start()
        return self.server.path

    def __exit__(self, *_):
        self.server.stop()
        self.thread.join()
        self.site.vault.close()
        shutil.rmtree(self.folder)


def test_the_socket_is_its_owner_s_alone(site):
    with serving(site) as path:
        assert path.stat().st_mode & 0o777 == 0o600
        assert ask(path, *vault_message(write_question(), EXACT.to_json())).code == OK
    assert ask(path, {"verb": "ready"}).code == "away"


def test_garbage_on_the_socket_ends_its_connection_and_nothing_else(site):
    rng = random.Random(5)
    with serving(site) as path:
        for frame in random_frames(rng, 200):
            with socket.socket(socket.AF_UNIX) as line:
                line.settimeout(PATIENCE)
                line.connect(str(path))
                try:
                    line.sendall(frame)
                    line.shutdown(socket.SHUT_WR)
                    while line.recv(4096):
                        pass
                except OSError:
                    pass
        assert ask(path, *vault_message(write_question(), EXACT.to_json())).code == OK
        assert read_outbound(site.state) == []


def test_a_message_that_claims_to_be_huge_is_not_waited_for(site):
    with serving(site) as path, socket.socket(socket.AF_UNIX) as line:
        line.settimeout(PATIENCE)
        line.connect(str(path))
        line.sendall(struct.pack("!IQ", 10, 1 << 40))
        assert line.recv(10) == b""
        with socket.socket(socket.AF_UNIX) as other:
            other.connect(str(path))
            send(other, {"verb": "ready"})
            assert other.recv(1 << 16)


def test_random_and_mutated_messages_get_a_word_of_the_list_and_no_data(tmp_path):
    """A few thousand of them; benchmarks/vault_fuzz.py sends a million."""
    site = site_with(tmp_path, min_rows=5, require_privacy=False, disclosure="none")
    rng = random.Random(7)
    honest = [site.first(EXACT), vault_message(write_question(), EXACT.to_json())]
    assert site.ready(EXACT) == "pending"
    Approvals(site.state).approve("exact", plan_digest(EXACT))
    seen, answered = set(), set()
    for message, values in mutated_messages(rng, honest, 3000):
        reply = site.vault.handle(message, values)
        assert reply.code in (OK, *REASONS)
        if reply.code != OK:
            assert reply.values == b""
        elif reply.values:
            answered.add(reply.values)
        seen.add(reply.code)
    assert {"plan", "request"} <= seen
    assert len(answered) <= 1, "only the first request of the run is answered, always by the same bits"
    assert {line["round"] for line in read_outbound(site.state)} <= {0}
    site.vault.close()


# -- processes and users ---------------------------------------------------------------------------------------------


def test_a_courier_needs_no_compiled_code_which_its_user_could_not_keep_anywhere():
    pytest.importorskip("nvflare")
    code = "import sys, felb_sites.executor; print({'numba', 'felb_sites.vault'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


def test_the_vault_knows_no_engine():
    code = "import sys, felb_sites.vault_process; print([m for m in sys.modules if m.startswith('nvflare')])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root has other users to try as")
def test_as_the_courier_s_user_neither_data_nor_policy_nor_journal_can_be_read(tmp_path):
    from felb_sites.site_processes import readable_by

    nobody = 65534
    with tempfile.TemporaryDirectory(prefix="felb") as outer:
        folder = Path(outer)
        folder.chmod(0o711)
        open_file = folder / "open"
        open_file.write_text("x")
        open_file.chmod(0o644)
        assert readable_by(open_file, nobody, nobody), "the test can tell the difference"
        for name in ("vault", "state"):
            (folder / name).mkdir(mode=0o700)
            (folder / name / "felb.json").write_text("{}")
            assert not readable_by(folder / name, nobody, nobody)
            assert not readable_by(folder / name / "felb.json", nobody, nobody)
        data = folder / "data.csv"
        data.write_text("1,0\n")
        data.chmod(0o600)
        assert not readable_by(data, nobody, nobody)
