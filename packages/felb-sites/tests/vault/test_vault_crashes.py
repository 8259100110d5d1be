"""Whenever a vault dies or its disk is full, the run ends as if nothing had happened, and nothing is charged twice."""

from __future__ import annotations

import sqlite3

import numpy as np
import pytest
from loopback import Loopback
from vault_parts import (
    NAMES,
    charges,
    exact_plan,
    make_loopback,
    make_shards,
    outbox,
    plain_lines,
    private_plan,
    receipts,
    seed_noise,
)  # fmt: skip

from felb.errors import InputError
from felb.federated.algorithms import private
from felb.federated.algorithms.private import Candidates
from felb_sites import messages
from felb_sites.envelopes import digest
from felb_sites.vault.operator import Operator
from felb_sites.vault.store import Store

SITE = "site-2"
FIRST = messages.RoundSums()


class Killed(BaseException):
    """The process is gone."""


class Connection:
    """A connection to a store that breaks at a chosen write.

    Parameters
    ----------
    real : the connection
    breaks : called with the number and the text of each statement that writes; returns "before" or "after" to be
        killed there, "full" for a full disk
    """

    def __init__(self, real, breaks):
        self.real, self.breaks, self.dead = real, breaks, False

    def __getattr__(self, name):
        return getattr(self.real, name)

    @property
    def in_transaction(self):
        return not self.dead and self.real.in_transaction

    def close(self):
        self.real.close()

    def execute(self, statement, *values):
        if self.dead:
            raise Killed
        word = statement.split()[0]
        what = None if word in ("select", "pragma", "begin", "rollback") else self.breaks(word)
        if what == "full":
            raise sqlite3.OperationalError("database or disk is full")
        if what == "before":
            self._die()
        found = self.real.execute(statement, *values)
        if what == "after":
            self._die()
        return found

    def _die(self):
        self.dead = True
        self.real.close()  # what was not committed is gone
        raise Killed


class Breaking(Loopback):
    """A federation whose second site breaks once, and whose relay delivers again what was not acknowledged."""

    def __init__(self, folder, *, at=None, how="before", words=("commit",)):
        self.at, self.how, self.words, self.count = at, how, words, 0
        self.delivered, self.acknowledged = [], set()
        self.armed = False
        super().__init__(folder, make_shards())
        self.armed = True
        self._wrap()

    def _wrap(self):
        store = self.vaults[SITE].store
        store._db = Connection(store._db, self._breaks)

    def _breaks(self, word):
        if word not in self.words:
            return None
        self.count += 1
        return self.how if self.count == self.at else None

    def restart(self, *names):
        super().restart(*names)
        if self.armed and SITE in (names or self.shards):
            self._wrap()

    def deliver(self, data, *, to=None):
        for name in self.vaults if to is None else to:
            if name != SITE or not self.armed:
                self.vaults[name].deliver([data])
                continue
            self.delivered.append(data)
            for _ in range(4):
                due = [known for known in self.delivered if digest(known) not in self.acknowledged]
                try:
                    for known in due:
                        self.vaults[SITE].deliver([known])
                except Killed:
                    self.restart(SITE)
                self.acknowledged |= receipts(self, SITE)
                if all(digest(known) in self.acknowledged for known in self.delivered):
                    break
            else:
                raise AssertionError("an envelope was never acknowledged")


@pytest.fixture
def seeded(monkeypatch):
    """Noise that can be repeated, and candidates without their factorizations."""
    seed_noise(monkeypatch)

    def found(released, n_components, *, factorize, seed):
        V = np.zeros((2, n_components, released.M.shape[0]), dtype=bool)
        V[0, 0, :5] = V[1, 0, 5:9] = True
        return Candidates(V, 3.0)

    monkeypatch.setattr(private, "find_candidates", found)


PLANS = {
    "exact": lambda loop: exact_plan(),
    "private": lambda loop: private_plan("r1"),
    "masked": lambda loop: loop.masked(exact_plan()),
}


def ended(loop, kind):
    """Play a run and return all that must not depend on what broke."""
    outcome = loop.play(PLANS[kind](loop)).outcome
    loop.vaults[SITE].store.verify_log()
    lines = [{k: v for k, v in line.items() if k != "roster"} for line in plain_lines(loop, SITE)]
    return outcome.components.tolist(), charges(loop, SITE), lines


def some(count, most):
    """Return numbers from 1 to a count, all of them or evenly spread ones."""
    return sorted({int(at) for at in np.linspace(1, count, min(count, most)).round()})


@pytest.mark.usefixtures("seeded")
@pytest.mark.parametrize("how", ["before", "after"])
@pytest.mark.parametrize("kind", PLANS)
def test_a_vault_that_dies_at_any_commit_ends_the_run_as_an_undisturbed_one(tmp_path, kind, how):
    calm = Breaking(tmp_path / "calm")
    expected = ended(calm, kind)
    assert calm.count > 10
    for at in some(calm.count, 12 if kind == "masked" else 30):
        loop = Breaking(tmp_path / str(at), at=at, how=how)
        assert ended(loop, kind) == expected, f"killed {how} commit {at}"
        assert loop.count >= at


@pytest.mark.usefixtures("seeded")
@pytest.mark.parametrize("kind", PLANS)
def test_a_disk_that_is_full_at_any_write_delays_the_run_and_nothing_else(tmp_path, kind):
    words = ("insert", "update", "delete", "commit")
    calm = Breaking(tmp_path / "calm", words=words)
    expected = ended(calm, kind)
    for at in some(calm.count, 12 if kind == "masked" else 30):
        loop = Breaking(tmp_path / str(at), at=at, how="full", words=words)
        assert ended(loop, kind) == expected, f"full at write {at}"


def test_a_disk_that_stays_full_lets_nothing_leave_and_nothing_be_acknowledged(tmp_path):
    loop = make_loopback(tmp_path)
    loop.propose(exact_plan())
    vault = loop.vaults["site-1"]
    before = [tuple(row) for row in outbox(loop)]
    real = vault.store._db
    vault.store._db = Connection(real, lambda word: "full")
    data = loop.seal("sums", "r1", 0, FIRST)
    for _ in range(8):
        vault.deliver([data])
    assert [tuple(row) for row in outbox(loop)] == before
    assert loop.lines("site-1") == []
    assert digest(data) not in receipts(loop)
    vault.store._db = real
    vault.deliver([data])
    assert loop.last("site-1", "response") is not None
    assert digest(data) in receipts(loop)


# -- backups ---------------------------------------------------------------------------------------------------------


def stopped(loop, name="site-1"):
    loop.vaults[name].close()
    return Operator(loop.folder / name / "vault")


def open_store(loop, name="site-1"):
    loop.vaults[name].store = Store(loop.folder / name / "vault", name=name)
    return loop.vaults[name].store


def begun(loop, plan):
    loop.propose(plan)
    loop.vaults["site-1"].deliver([loop.seal("sums", plan.run_id, 0, FIRST)])
    loop.read("site-1")


def test_a_store_that_was_restored_begins_an_epoch_in_which_open_runs_are_lost_and_charged(tmp_path):
    loop = make_loopback(tmp_path, exact_after_private=True)
    begun(loop, private_plan("open"))
    loop.propose(private_plan("waits"))
    copy = tmp_path / "copy.sqlite"
    loop.vaults["site-1"].store.backup(copy)
    loop.vaults["site-1"].deliver([loop.seal("sums", "waits", 0, FIRST)])
    lines = len(loop.lines("site-1"))
    told = stopped(loop).restore(str(copy))
    assert told["lines of the log that are lost"] == lines - told["lines"] > 0
    loop.restart("site-1")
    store = loop.vaults["site-1"].store
    assert store.epoch == 1
    assert {row["run"]: row["state"] for row in store.rows("select run, state from runs")} == {
        "open": "lost", "waits": "lost",
    }  # fmt: skip
    assert [row[0] for row in charges(loop)] == ["open", "waits"], "each with all that it may cost"
    for run in ("open", "waits"):
        loop.read("site-1")
        loop.vaults["site-1"].deliver([loop.seal("sums", run, 1, FIRST, round=1)])
        assert [message.code for _, message in loop.read("site-1")] == ["known"]
        assert loop.propose(private_plan(run), number=1, sites=NAMES)["site-1"].code == "known"
    store.verify_log()


def test_a_backup_that_does_not_hold_a_known_line_is_refused_and_the_store_stays(tmp_path):
    loop = make_loopback(tmp_path)
    begun(loop, exact_plan())
    copy = tmp_path / "copy.sqlite"
    loop.vaults["site-1"].store.backup(copy)
    begun(loop, exact_plan("r2"))
    head = loop.vaults["site-1"].store.verify_log()
    with pytest.raises(InputError, match="older"):
        stopped(loop).restore(str(copy), head=head.hash)
    store = open_store(loop)
    assert (store.epoch, store.verify_log()) == (0, head)
    store.close()
    assert not list((tmp_path / "site-1" / "vault").glob("restored*"))


def test_a_backup_that_holds_the_known_line_is_taken_also_in_the_place_of_a_damaged_store(tmp_path):
    loop = make_loopback(tmp_path)
    begun(loop, exact_plan())
    copy = tmp_path / "copy.sqlite"
    store = loop.vaults["site-1"].store
    store.backup(copy)
    head = store.verify_log()
    operator = stopped(loop)
    (tmp_path / "site-1" / "vault" / "store.sqlite").write_bytes(b"damaged" * 1000)
    with pytest.raises(InputError, match="damaged"):
        Store(tmp_path / "site-1" / "vault")
    operator.restore(str(copy), head=head.hash)
    store = open_store(loop)
    assert (store.epoch, store.verify_log()) == (1, head)
    assert (tmp_path / "site-1" / "vault" / "store.sqlite").stat().st_mode & 0o777 == 0o600
    store.close()


def test_a_backup_whose_log_was_changed_is_refused_and_the_store_stays(tmp_path):
    loop = make_loopback(tmp_path)
    begun(loop, exact_plan())
    copy = tmp_path / "copy.sqlite"
    loop.vaults["site-1"].store.backup(copy)
    with sqlite3.connect(copy) as db:
        db.execute("update log set line=replace(line, 'site-1', 'site-9') where seq=1")
    db.close()
    with pytest.raises(InputError, match="line 1 of the log was changed"):
        stopped(loop).restore(str(copy))
    store = open_store(loop)
    assert store.epoch == 0
    store.close()


def test_a_backup_does_not_overwrite_a_file(tmp_path):
    loop = make_loopback(tmp_path)
    (tmp_path / "copy.sqlite").write_text("x")
    with pytest.raises(InputError, match="exists"):
        loop.vaults["site-1"].store.backup(tmp_path / "copy.sqlite")


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("update log set line=replace(line, 'site-1', 'site-9') where seq=2", "line 2 of the log was changed"),
        ("delete from log where seq=2", "line 2 of the log does not follow"),
        ("delete from log where seq=1", "line 1 of the log does not follow"),
    ],
)
def test_a_log_that_was_changed_names_its_first_wrong_line(tmp_path, statement, message):
    loop = make_loopback(tmp_path)
    loop.play(exact_plan())
    store = loop.vaults["site-1"].store
    assert store.verify_log().lines > 3
    store.write(statement)
    with pytest.raises(InputError, match=message):
        store.verify_log()


def test_a_store_of_another_site_is_refused(tmp_path):
    Store(tmp_path, name="site-1").close()
    with pytest.raises(InputError, match="store of site-1, not of site-2"):
        Store(tmp_path, name="site-2")
