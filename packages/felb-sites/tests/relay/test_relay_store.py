"""What the relay keeps, and what makes it forget."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass, field

import pytest

from felb.errors import FederationError, InputError
from felb_sites.envelopes import COORDINATOR, Header, digest, read_envelope, seal, seal_nothing
from felb_sites.keys.identity import Identity
from felb_sites.keys.members import Member, MemberList, SignedMembers
from felb_sites.relay.store import ConflictError, FullError, RelayStore, Run

FEDERATION = "0123456789abcdef" * 2


@dataclass
class Parties:
    """An authority, a coordinator's run key, and three sites with their couriers."""

    authority: Identity = field(default_factory=Identity.create)
    run: Identity = field(default_factory=Identity.create)
    sites: dict = field(default_factory=lambda: {name: Identity.create() for name in "abc"})
    couriers: dict = field(default_factory=lambda: {name: Identity.create() for name in "abc"})

    def members(self, number=1, names="abc"):
        listed = tuple(
            Member(n, self.sites[n].sign_public, self.sites[n].seal_public, self.couriers[n].sign_public) for n in names
        )
        made = MemberList(FEDERATION, number, self.run.sign_public, self.run.seal_public, listed)
        return SignedMembers.sign(made, self.authority).data

    def from_site(self, name="a", number=1, *, kind="response", payload=b"x", signer=None, receipts=(), **changed):
        receivers = () if kind == "receipt" else (COORDINATOR,)
        said = {"federation": FEDERATION, "run": "r", "round": 0, "sender": name, "receivers": receivers}
        header = Header(**{**said, "kind": kind, "number": number, "receipts": tuple(receipts), **changed})
        signer = signer or self.sites[name]
        if kind == "receipt":
            return seal_nothing(header, b"", signer).to_bytes()
        return seal(header, payload, signer, receivers={COORDINATOR: self.run.seal_public}).to_bytes()

    def from_coordinator(self, number=1, *, to="abc", kind="sums", payload=b"y", run="r"):
        header = Header(FEDERATION, run, number, COORDINATOR, tuple(to), kind, number)
        keys = {name: self.sites[name].seal_public for name in to}
        return seal(header, payload, self.run, receivers=keys).to_bytes()


@pytest.fixture(scope="module")
def parties():
    return Parties()


@pytest.fixture
def open_store(tmp_path, parties):
    opened = []

    def make(**options):
        store = RelayStore(
            tmp_path / "relay.sqlite", federation=FEDERATION, authority=parties.authority.sign_public, **options
        )
        opened.append(store)
        return store

    yield make
    for store in opened:
        store.close()


@pytest.fixture
def store(open_store, parties):
    made = open_store()
    made.install(parties.members())
    made.open_run(Run("r", ("a", "b", "c"), 1000))
    return made


def put(store, data):
    return store.put(read_envelope(data).header, data)


def kept(store, receiver, **options):
    return [data for _, data in store.waiting(receiver, 0, **options)]


def rows(store):
    return store._base.execute("SELECT count(*) FROM envelopes").fetchone()[0]


def test_the_same_bytes_are_kept_once_and_others_are_a_conflict(store, parties):
    data = parties.from_site()
    assert put(store, data)
    assert not put(store, data)
    with pytest.raises(ConflictError):
        put(store, parties.from_site(payload=b"other"))
    assert kept(store, COORDINATOR, run="r") == [data]


def test_a_receipt_deletes_one_delivery_and_the_last_one_the_envelope(store, parties):
    data = parties.from_coordinator()
    put(store, data)
    before = rows(store)
    for name in "ab":
        put(store, parties.from_site(name, kind="receipt", receipts=[digest(data)]))
        assert data not in kept(store, name)
    assert data in kept(store, "c")
    assert rows(store) == before
    put(store, parties.from_site("c", 7, receipts=[digest(data)]))  # any envelope carries receipts
    assert rows(store) == before  # one came, one went
    assert data not in kept(store, "c")


def test_a_receipt_deletes_nothing_of_others(store, parties):
    data = parties.from_coordinator(to="b")
    put(store, data)
    put(store, parties.from_site("a", kind="receipt", receipts=[digest(data)]))
    assert data in kept(store, "b")


def test_a_conflict_deletes_nothing(store, parties):
    data = parties.from_coordinator()
    put(store, data)
    put(store, parties.from_site("a"))
    with pytest.raises(ConflictError):
        put(store, parties.from_site("a", payload=b"other", receipts=[digest(data)]))
    assert data in kept(store, "a")


def test_everything_survives_a_new_start(store, open_store, parties):
    data = parties.from_coordinator()
    put(store, data)
    store.close()
    again = open_store()
    assert kept(again, "a")[-1] == data
    assert again.runs == store.runs
    assert again.members is not None
    assert again.members.data == parties.members()


def test_numbers_increase_after_everything_was_deleted(store, open_store, parties):
    put(store, parties.from_site())
    last = store.waiting(COORDINATOR, 0)[-1][0]
    store.forget("r", last + 1, ["response"])
    store.close()
    again = open_store()
    put(again, parties.from_site(number=2))
    assert again.waiting(COORDINATOR, 0)[0][0] > last


def test_the_newest_list_is_delivered_to_each_member(store, parties):
    assert kept(store, "a") == [parties.members()]
    newer = parties.members(2)
    store.install(newer)
    assert kept(store, "a") == [newer]
    assert store.install(newer) == []
    for data in (parties.members(1), parties.members(2, "ab")):
        with pytest.raises(ConflictError):
            store.install(data)


def test_a_list_of_somebody_else_is_refused(store):
    with pytest.raises(FederationError, match="has not signed"):
        store.install(Parties().members(5))


def test_a_member_that_is_removed_loses_what_waits_for_it(store, parties):
    alone, both = parties.from_coordinator(1, to="c"), parties.from_coordinator(2, to="ac")
    for data in (alone, both):
        put(store, data)
    assert store.install(parties.members(2, "ab")) == ["c"]
    assert kept(store, "c") == []
    assert both in kept(store, "a")
    assert rows(store) == 2  # the list and `both`


def test_bytes_and_number_of_a_sender_are_limited(open_store, parties):
    store = open_store(most_waiting=3)
    store.install(parties.members())
    store.open_run(Run("r", ("a", "b"), 1000))
    for number in range(3):
        put(store, parties.from_site(number=number))
    with pytest.raises(FullError):
        put(store, parties.from_site(number=3))
    assert put(store, parties.from_site("b"))  # others are not concerned
    assert not put(store, parties.from_site(number=2))  # nor what is there already
    store.forget("r", store.waiting(COORDINATOR, 0)[0][0] + 1, ["response"])
    assert put(store, parties.from_site(number=3))


def test_bytes_that_wait_are_limited(store, parties):
    payload = bytes(200_000)
    for number in range(21):  # of 64 * (1000 + 65536) bytes
        put(store, parties.from_site(number=number, payload=payload))
    with pytest.raises(FullError):
        put(store, parties.from_site(number=21, payload=payload))


def test_a_full_disk_keeps_nothing_of_an_envelope(store, parties):
    pages = store._base.execute("PRAGMA page_count").fetchone()[0]
    store._base.execute(f"PRAGMA max_page_count = {pages + 2}")
    before = rows(store)
    with pytest.raises(FullError, match="disk"):
        put(store, parties.from_site(payload=bytes(100_000)))
    assert rows(store) == before
    assert put(store, parties.from_site(payload=b""))


def test_a_closed_run_keeps_only_its_end(store, parties):
    end = parties.from_coordinator(0, kind="end")
    for data in (parties.from_coordinator(), end, parties.from_site()):
        put(store, data)
    store.close_run("r")
    assert kept(store, "a")[1:] == [end]
    assert kept(store, COORDINATOR) == []
    assert store.most_bytes("a") == 0


def test_a_batch_is_bounded_and_never_empty(store, parties, monkeypatch):
    monkeypatch.setattr("felb_sites.relay.store.BATCH_BYTES", 1000)
    for number in range(4):
        put(store, parties.from_site(number=number, payload=bytes(600)))
    seen = []
    while found := store.waiting(COORDINATOR, seen[-1] if seen else 0, run="r"):
        assert len(found) == 1
        seen.append(found[0][0])
    assert len(seen) == 4


def test_forget_keeps_other_kinds_and_newer_ones(store, parties):
    consent = parties.from_site(kind="consent")
    for data in (consent, parties.from_site(number=1), parties.from_site(number=2)):
        put(store, data)
    newest = store.waiting(COORDINATOR, 0)[-1][0]
    store.forget("r", newest, ["response"])
    assert kept(store, COORDINATOR) == [consent, parties.from_site(number=2)]


def test_the_file_is_for_its_owner_and_a_damaged_one_is_told(tmp_path, store, open_store):
    assert (tmp_path / "relay.sqlite").stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "relay.sqlite-wal").stat().st_mode & 0o777 == 0o600
    store.close()
    (tmp_path / "relay.sqlite").write_bytes(b"no database" * 1000)
    with pytest.raises(InputError, match="put it aside"):
        open_store()


def test_it_syncs_fully(store):
    assert store._base.execute("PRAGMA synchronous").fetchone() == (2,)
    assert store._base.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    assert isinstance(store._base, sqlite3.Connection)
