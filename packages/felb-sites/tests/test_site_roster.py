"""Rosters at a site: a coordinator proposes, a person confirms, and nobody adds a site silently."""

from __future__ import annotations

import zipfile

import msgspec
import pytest

from felb.errors import InputError
from felb_sites import site_roster
from felb_sites.member_list import read_members, roster_of, write_members
from felb_sites.site_roster import CHANGED, MOST_PROPOSED, NEW, OWN, SAME, SHORT, SiteRosters, write_roster
from felb_sites.vault_key import KEY_FILE, announce, announced, vault_key, without_announcement

pytest.importorskip("cryptography")

from felb.secure_sum.protocol import Member, Roster, member_of, new_signing_key


def stranger(name):
    return member_of(name, new_signing_key())


@pytest.fixture
def rosters(tmp_path):
    return SiteRosters(tmp_path / "vault", "a")


def confirmed(rosters, roster):
    rosters.propose(write_roster(roster))
    return rosters.confirm(roster.digest[:SHORT])


def test_a_proposal_is_nothing_until_a_person_has_confirmed_its_digest(rosters):
    roster = Roster((rosters.own, stranger("b"), stranger("c")))
    rosters.propose(write_roster(roster))
    assert (rosters.proposed(), rosters.confirmed(), rosters.find(roster.digest)) == ([roster], [], None)
    for wrong in ("", roster.digest[: SHORT - 1], "0" * 64):
        with pytest.raises(InputError, match="digest"):
            rosters.confirm(wrong)
    assert rosters.confirm(f" {roster.digest[:SHORT].upper()} ") == roster
    assert (rosters.proposed(), rosters.find(roster.digest)) == ([], roster)
    rosters.propose(write_roster(roster))
    assert rosters.proposed() == [], "what is confirmed is not asked again"


def test_a_site_that_was_added_needs_a_new_confirmation(rosters):
    roster = confirmed(rosters, Roster((rosters.own, stranger("b"), stranger("c"))))
    larger = Roster((*roster.members, stranger("d")))
    rosters.propose(write_roster(larger))
    assert rosters.find(larger.digest) is None
    assert [line.state for line in rosters.lines(larger)] == [OWN, SAME, SAME, NEW]
    rosters.confirm(larger.digest)
    assert rosters.find(larger.digest) == larger
    assert rosters.find(roster.digest) == roster, "runs over fewer sites go on"


def test_a_key_that_changed_is_shown_and_ends_the_rosters_with_the_old_one(rosters):
    roster = confirmed(rosters, Roster((rosters.own, stranger("b"), stranger("c"))))
    changed = Roster((*roster.members[:2], stranger("c")))
    rosters.propose(write_roster(changed))
    assert [line.state for line in rosters.lines(changed)] == [OWN, SAME, CHANGED]
    rosters.confirm(changed.digest)
    assert rosters.confirmed() == [changed]


def test_a_roster_without_the_key_of_this_vault_is_refused(rosters):
    for members in (
        (stranger("a"), stranger("b"), stranger("c")),
        (Member("z", rosters.own.key), stranger("b"), stranger("c")),
    ):
        with pytest.raises(InputError, match="this vault"):
            rosters.propose(write_roster(Roster(members)))


@pytest.mark.parametrize("data", [b"", b"{}", b"[]", b'[{"name":"a"}]', b"\xff", b"[" * 5000, b"0" * (1 << 17)])
def test_what_is_no_roster_is_an_error_and_leaves_nothing(rosters, data):
    with pytest.raises(InputError):
        rosters.propose(data)
    assert rosters.proposed() == []


def test_a_flood_of_proposals_does_not_fill_the_disk(rosters):
    for number in range(MOST_PROPOSED + 3):
        last = Roster((rosters.own, stranger("b"), stranger(f"c{number}")))
        rosters.propose(write_roster(last))
    assert len(rosters.proposed()) == MOST_PROPOSED
    assert rosters.proposed()[-1] == last


def test_the_key_of_a_vault_is_made_once_and_its_owner_s_alone(tmp_path):
    first, again = vault_key(tmp_path / "v"), vault_key(tmp_path / "v")
    assert member_of("a", first) == member_of("a", again)
    assert (tmp_path / "v" / KEY_FILE).stat().st_mode & 0o777 == 0o600
    (tmp_path / "v" / KEY_FILE).write_text("damaged")
    with pytest.raises(InputError, match="damaged"):
        vault_key(tmp_path / "v")


def test_a_request_carries_the_key_of_the_vault_for_its_site_and_certificate_only(tmp_path):
    request, key = tmp_path / "a.request.zip", new_signing_key()
    with zipfile.ZipFile(request, "w") as archive:
        archive.writestr("request.json", "{}")
    plain = request.read_bytes()
    whose = {"federation": "f", "name": "a", "certificate_key": "SHA256:00"}
    announce(request, key, **whose)
    with zipfile.ZipFile(request) as archive:
        told = archive.read("vault.json")
    assert announced(told, **whose) == member_of("a", key)
    for other in ({"federation": "g"}, {"name": "b"}, {"certificate_key": "SHA256:01"}):
        with pytest.raises(ValueError, match="this site"):
            announced(told, **{**whose, **other})
    (tmp_path / "stripped.zip").write_bytes(without_announcement(request.read_bytes()))
    with zipfile.ZipFile(tmp_path / "stripped.zip") as archive, zipfile.ZipFile(request) as full:
        assert archive.namelist() == ["request.json"]
        assert full.namelist() == ["request.json", "vault.json"]
    assert len(plain) == len((tmp_path / "stripped.zip").read_bytes())


def test_a_coordinator_proposes_the_sites_of_a_run_and_names_one_whose_key_it_lacks(tmp_path):
    members = [stranger(name) for name in "cab"]
    write_members(tmp_path / "members.json", members)
    assert read_members(tmp_path / "members.json") == sorted(members)
    assert roster_of(members, ["a", "b", "c"]) == Roster(tuple(members))
    assert read_members(tmp_path / "none.json") == []
    with pytest.raises(InputError, match=r"vault of d .*rotate"):
        roster_of(members, ["a", "b", "d"])
    (tmp_path / "members.json").write_text("[1]")
    with pytest.raises(InputError, match="damaged"):
        read_members(tmp_path / "members.json")


def test_two_people_who_compare_digests_mean_the_same_sites(tmp_path):
    """The coordinator shows each site its own two invented partners; the digests then differ."""
    sites = {name: SiteRosters(tmp_path / name, name) for name in "abc"}
    true = Roster(tuple(site.own for site in sites.values()))
    for name, site in sites.items():
        invented = Roster((site.own, *(stranger(other) for other in "abc" if other != name)))
        site.propose(write_roster(invented))
        site.propose(write_roster(true))
    digests = [{roster.digest for roster in site.proposed()} for site in sites.values()]
    assert set.intersection(*digests) == {true.digest}
    assert 4 * SHORT >= 128, "two rosters that agree so far cannot be made"


@pytest.mark.parametrize("name", ["b\x1b[1A\x1b[2K", "b\nthis site", "b c", "", "A", "\u0430"])
def test_a_name_that_would_hide_a_site_from_a_person_is_refused(rosters, name):
    """It moves the cursor, breaks the line, or is taken for the name of another site."""
    members = sorted((rosters.own, stranger("c"), stranger("d"), stranger(name)))
    with pytest.raises(InputError, match="name"):
        rosters.propose(msgspec.json.encode(members))
    assert rosters.proposed() == []


def test_a_digest_that_two_proposals_begin_with_confirms_neither(rosters, monkeypatch):
    monkeypatch.setattr(site_roster, "SHORT", 0)
    made = [Roster((rosters.own, stranger("b"), stranger("c"))) for _ in range(2)]
    for roster in made:
        rosters.propose(write_roster(roster))
    with pytest.raises(InputError, match="several"):
        rosters.confirm("")
    assert rosters.confirmed() == []


def test_a_key_of_an_unknown_kind_is_refused_as_one_that_cannot_be_read():
    known = stranger("b")
    ed25519 = bytes.fromhex("06032b6570")  # the identifier 1.3.101.112, and 1.3.101.95, which nobody knows
    odd = known.key.replace(ed25519, bytes.fromhex("06032b655f"))
    assert odd != known.key
    with pytest.raises(InputError, match="key of b"):
        Roster((stranger("a"), Member("b", odd), stranger("c")))
    told = {"key": odd.hex(), "signature": ""}
    with pytest.raises(ValueError, match="key"):
        announced(msgspec.json.encode(told), federation="f", name="b", certificate_key="k")
