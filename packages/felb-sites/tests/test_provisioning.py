"""What a request may obtain, who confirms it, and how a key is given up; without a server."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import ssl
import zipfile
from datetime import UTC, datetime, timedelta

import pytest

pytest.importorskip("nvflare")

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from cryptography.x509.oid import NameOID

from felb.errors import InputError
from felb_sites import authority as authority_module
from felb_sites.authority import Authority
from felb_sites.certificates import CertificateRequest, key_fingerprint, signed_certificate
from felb_sites.certificates import subject as subject_of
from felb_sites.provisioning import COORDINATOR_ORG, Coordinator, Invitation, Site
from felb_sites.revocation import REVOCATIONS, Revocations


@pytest.fixture(scope="module")
def founded(tmp_path_factory):
    """A federation, its authority elsewhere, and one admitted site; copied for each test."""
    base = tmp_path_factory.mktemp("founded")
    fed = Coordinator.found(base / "fed", name="zoos", host="localhost", port=8002, authority=base / "stick")
    site, request = Site.join(base / "a", fed.invitation, name="hospital-a")
    approved = fed.approve(
        request, base / "a.signed.zip", name="hospital-a", key_fingerprint=site.key_fingerprint(), valid_days=30
    )
    site.admit(approved)
    return base


@pytest.fixture
def place(founded, tmp_path):
    shutil.copytree(founded, tmp_path / "p")
    facts = tmp_path / "p" / "fed" / "federation.json"
    facts.write_text(json.dumps({**json.loads(facts.read_text()), "authority": str(tmp_path / "p" / "stick")}))
    return tmp_path / "p"


def intruder(place, name, *, kind="client", org=None, role=None):
    """Write a request as somebody who does not use felb would, under a harmless file name."""
    key = rsa.generate_private_key(65537, 2048)
    org, cert_type = org or re.sub(r"\W", "_", name), role or kind
    parts = ((NameOID.COMMON_NAME, name), (NameOID.ORGANIZATION_NAME, org), (NameOID.UNSTRUCTURED_NAME, cert_type))
    subject = x509.Name([x509.NameAttribute(oid, value) for oid, value in parts])
    csr = x509.CertificateSigningRequestBuilder().subject_name(subject).sign(key, hashes.SHA256())
    participant = {"name": name, "type": kind, "org": org, **({} if role is None else {"role": role})}
    members = {
        "site.yaml": json.dumps({"name": "zoos", "participants": [participant]}).encode(),
        f"{name}.csr": csr.public_bytes(Encoding.PEM),
    }
    der = key.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    said = {
        "artifact_type": "nvflare.cert.request",
        "schema_version": "1",
        "request_id": "f692ad065f4848a18092ec01ace0eb25",
        "project": "zoos",
        "name": name,
        "org": org,
        "kind": {"client": "site", "admin": "user"}.get(kind, kind),
        "cert_type": cert_type,
        "cert_role": role,
        "csr_sha256": hashlib.sha256(members[f"{name}.csr"]).hexdigest(),
        "public_key_sha256": hashlib.sha256(der).hexdigest(),
        "site_yaml_sha256": hashlib.sha256(members["site.yaml"]).hexdigest(),
    }
    path = place / "hospital-b.request.zip"
    with zipfile.ZipFile(path, "w") as archive:
        for member, content in {"request.json": json.dumps(said).encode(), **members}.items():
            archive.writestr(member, content)
    return path


FORGED = {
    "lead admin": ({"name": "mallory@federation.local", "kind": "admin", "role": "lead"}, "type 'lead'"),
    "server of the real host": ({"name": "localhost", "kind": "server"}, "type 'server'"),
    "second hospital-a": ({"name": "hospital-a"}, "is taken by the key"),
    "hospital-a in capitals": ({"name": "Hospital_A"}, "too much like"),
    "a site called like the server": ({"name": "localhost", "org": "localhost"}, "may be called"),
    "a site called server": ({"name": "server"}, "may be called"),
    "a site of the coordinator's organisation": ({"name": "hospital-b", "org": COORDINATOR_ORG}, "organisation"),
}


@pytest.mark.parametrize("case", FORGED)
def test_a_request_obtains_a_site_s_certificate_or_none(place, case):
    asked, said = FORGED[case]
    request = intruder(place, **asked)
    facts, fed = CertificateRequest.read(request), Coordinator.open(place / "fed")
    before = fed.authority.signed()
    out = place / "out.signed.zip"
    with pytest.raises(InputError, match=said):  # even if all that it says were confirmed
        fed.approve(request, out, name=facts.name, key_fingerprint=facts.key)
    assert not out.exists()
    assert fed.authority.signed() == before


def test_without_the_guard_the_same_request_obtains_a_lead_administrator(place, monkeypatch):
    request = intruder(place, "mallory@federation.local", kind="admin", role="lead")
    facts, fed = CertificateRequest.read(request), Coordinator.open(place / "fed")
    monkeypatch.setattr(authority_module.Authority, "_check_site", lambda *_, **__: None)
    out = fed.approve(request, place / "out.signed.zip", name=facts.name, key_fingerprint=facts.key)
    assert subject_of(signed_certificate(out).subject)["type"] == "lead", "the attack of the audit"


def test_what_is_signed_was_confirmed_by_name_and_key(place):
    fed = Coordinator.open(place / "fed")
    site, request = Site.join(place / "b", fed.invitation, name="hospital-b")
    out, key = place / "b.signed.zip", site.key_fingerprint()
    with pytest.raises(InputError, match=r"'hospital-b', .*'hospital-c'"):
        fed.approve(request, out, name="hospital-c", key_fingerprint=key)
    with pytest.raises(InputError, match="hospital-b"):
        fed.approve(request, out, name="hospital-b", key_fingerprint="SHA256:" + "00" * 32)
    with pytest.raises(InputError, match="64 hexadecimal digits"):
        fed.approve(request, out, name="hospital-b", key_fingerprint="AB")
    assert not out.exists()
    fed.approve(request, out, name="hospital-b", key_fingerprint=key.lower().replace(":", " "))
    certificate = signed_certificate(out)
    assert key_fingerprint(certificate.public_key()) == key
    assert [(line.name, line.type, line.key) for line in fed.authority.signed()][-1] == ("hospital-b", "client", key)
    site.admit(out)
    assert site.admitted


def test_a_request_whose_parts_contradict_each_other_is_none(place):
    request = intruder(place, "mallory@federation.local", kind="admin", role="lead")
    with zipfile.ZipFile(request) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    said = json.loads(members["request.json"])
    members["request.json"] = json.dumps({**said, "kind": "site", "cert_type": "client", "cert_role": None}).encode()
    with zipfile.ZipFile(request, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    with pytest.raises(InputError, match="contradicts itself"):
        CertificateRequest.read(request)
    with zipfile.ZipFile(request, "a") as archive, pytest.warns(UserWarning, match="Duplicate"):
        archive.writestr("request.json", json.dumps(said))
    with pytest.raises(InputError, match="other files"):
        CertificateRequest.read(request)


def test_the_command_shows_and_signs_nothing_until_both_are_given(place, capsys):
    from felb.cli import main

    fed = Coordinator.open(place / "fed")
    request, before = intruder(place, "hospital-b"), fed.authority.signed()
    key = CertificateRequest.read(request).key
    for given in ((), ("--name", "hospital-b"), ("--key-fingerprint", key)):
        with pytest.raises(SystemExit) as ended:
            main(["federation", "approve", str(fed.folder), str(request), *given])
        out, err = capsys.readouterr()
        assert ended.value.code == 1
        assert key in "".join(out.split())
        assert "client" in out
        assert "nothing was signed" in err
    assert fed.authority.signed() == before


def test_the_authority_s_key_may_be_kept_offline(place, capsys):
    from felb.cli import main

    fed = Coordinator.open(place / "fed")
    site, request = Site.join(place / "b", fed.invitation, name="hospital-b")
    assert not list(fed.folder.rglob("rootCA.key")), "nothing that signs is at the coordinator"
    (place / "stick").rename(place / "safe")
    confirmed = ["--name", "hospital-b", "--key-fingerprint", site.key_fingerprint()]
    with pytest.raises(SystemExit) as ended:
        main(["federation", "approve", str(fed.folder), str(request), *confirmed])
    assert ended.value.code == 1
    assert "kept elsewhere" in capsys.readouterr().err
    with pytest.raises(SystemExit) as ended:  # on the machine that has the medium, which knows nothing of the server
        main(
            ["federation", "approve", str(place / "safe"), str(request), *confirmed, "-o", str(place / "b.signed.zip")]
        )
    assert ended.value.code == 0, capsys.readouterr().err
    site.admit(place / "b.signed.zip")
    # A list is signed there, too, and brought to the coordinator.
    with pytest.raises(SystemExit):
        main(["federation", "revoke", str(place / "safe"), "hospital-b"])
    assert fed.revocations.names == ()
    with pytest.raises(SystemExit) as ended:
        main(["federation", "revoke", str(fed.folder), "--install", str(place / "safe" / REVOCATIONS)])
    assert ended.value.code == 0
    assert fed.revocations.names == ("hospital-b",)


def test_the_fingerprint_of_the_federation_is_asked_for(capsys, place):
    from felb.cli import main

    invitation = str(place / "fed" / "invitation.json")
    with pytest.raises(SystemExit) as ended:
        main(["site", "join", str(place / "b"), "--invitation", invitation, "--name", "hospital-b"])
    assert ended.value.code == 2
    assert "--fingerprint" in capsys.readouterr().err
    assert not (place / "b").exists()


def test_a_key_is_rotated_and_the_old_one_refused(place):
    fed, site = Coordinator.open(place / "fed"), Site.open(place / "a")
    site.configure(data="data.csv", policy={"min_rows": 77})
    shutil.copyfile(site.folder / "request" / "hospital-a.request.zip", place / "kept.request.zip")
    old, request = site.key_fingerprint(), site.rotate()
    new = site.key_fingerprint(rotated=True)
    assert new != old == site.key_fingerprint(), "the old key serves meanwhile"
    confirmed = {"name": "hospital-a", "key_fingerprint": new}
    with pytest.raises(InputError, match="say --rotate"):
        fed.approve(request, place / "new.signed.zip", **confirmed)
    assert not fed.revocations.refuses("hospital-a", old)
    fed.approve(request, place / "new.signed.zip", **confirmed, rotate=True)
    assert fed.revocations.refuses("hospital-a", old)
    assert not fed.revocations.refuses("hospital-a", new)
    site.admit(place / "new.signed.zip")
    assert site.key_fingerprint() == new
    assert site.config().policy.min_rows == 77
    with pytest.raises(InputError, match=r"hospital-a .*revoked"):  # whoever has kept the old request
        fed.approve(place / "kept.request.zip", place / "x.signed.zip", name="hospital-a", key_fingerprint=old)


def test_a_certificate_is_renewed_for_the_same_key_only(place):
    fed, site = Coordinator.open(place / "fed"), Site.open(place / "a")
    request = site.folder / "request" / "hospital-a.request.zip"
    confirmed = {"name": "hospital-a", "key_fingerprint": site.key_fingerprint()}
    fed.approve(request, place / "again.signed.zip", **confirmed)
    assert [line.name for line in fed.authority.signed()].count("hospital-a") == 2
    fed.revoke(names=("hospital-a",))
    with pytest.raises(InputError, match="hospital-a is revoked"):
        fed.approve(request, place / "again.signed.zip", **confirmed)


def test_a_list_is_signed_numbered_and_cannot_be_replaced_by_an_older_or_forged_one(place):
    fed = Coordinator.open(place / "fed")
    shutil.copyfile(fed.server / REVOCATIONS, place / "old.json")
    site_key = Site.open(place / "a").key_fingerprint()
    listed = fed.revoke(names=("hospital-b",), keys=(site_key,))
    assert (listed.number, listed.names, listed.keys) == (1, ("hospital-b",), (site_key,))
    with pytest.raises(InputError, match="list 1 "):
        fed.install_revocations(place / "old.json")
    forged = json.loads((fed.server / REVOCATIONS).read_text())
    forged["list"] = forged["list"].replace("hospital-b", "hospital-c")
    (place / "forged.json").write_text(json.dumps(forged))
    with pytest.raises(InputError, match="signed"):
        fed.install_revocations(place / "forged.json")
    (place / "broken.json").write_text("{")
    with pytest.raises(InputError, match="revocations"):
        Revocations.read(place / "broken.json", fed.authority.root)
    assert fed.readmit(names=("hospital-b",), keys=(site_key,)).number == 2
    with pytest.raises(InputError, match="is not revoked"):
        fed.readmit(names=("hospital-b",))


def test_the_registry_names_everything_that_was_signed(place, capsys):
    from felb.cli import main

    with pytest.raises(SystemExit):
        main(["federation", "members", str(place / "fed"), "--json"])
    lines = json.loads(capsys.readouterr().out)
    assert [(line["name"], line["type"], line["state"]) for line in lines] == [
        ("localhost", "server", "accepted"),
        ("coordinator@federation.local", "lead", "accepted"),
        ("hospital-a", "client", "accepted"),
    ]
    (place / "stick" / "registry.json").write_text("[]")
    with pytest.raises(InputError, match="restore it"):
        Authority.open(place / "stick").signed()


class Parts:
    """The parts of FLARE's server that the guard stands in front of: its own client manager, and a cell's filters."""

    def __init__(self):
        from nvflare.apis.client import Client
        from nvflare.private.fed.server.client_manager import ClientManager

        self.client_manager, self.engine, self.cell, self.core_cell = ClientManager("zoos"), self, self, self
        self.filters, self.tokens = [], iter(range(99))
        # FLARE verifies the certificate here; that it does is not what this test is about.
        self.client_manager.authenticated_client = lambda request, *_: Client(
            request.get_header("client_name"), f"token-{next(self.tokens)}"
        )

    def add_incoming_filter(self, channel, topic, cb):
        self.filters.append(cb)

    def disable_clients(self, names):
        for name in names:
            self.client_manager.disable_client(name)

    def enable_clients(self, names):
        for name in names:
            self.client_manager.enable_client(name)

    def remove_clients(self, tokens):
        for token in tokens:
            self.client_manager.remove_client(token)

    def register(self, site):
        from nvflare.apis.fl_context import FLContext
        from nvflare.apis.shareable import Shareable
        from nvflare.fuel.f3.message import Message
        from nvflare.private.defs import CellMessageHeaderKeys

        payload = Shareable()
        payload["cert"] = (site.kit / "startup" / "client.crt").read_bytes()
        headers = {CellMessageHeaderKeys.CLIENT_NAME: site.name, "client_name": site.name}
        client = self.client_manager.authenticated_client(Message(headers, payload), FLContext(), "regular")
        if client is not None:
            self.client_manager.clients[client.token] = client
        return client

    def heard(self, client, *, says="", certified=None):
        """Return whether a message gets through; it may say another name than the client's, or None for none."""
        from nvflare.fuel.f3.cellnet.defs import MessagePropKey
        from nvflare.fuel.f3.message import Message
        from nvflare.private.defs import CellMessageHeaderKeys

        name = client.name if says == "" else says
        message = Message({CellMessageHeaderKeys.CLIENT_NAME: name, CellMessageHeaderKeys.TOKEN: client.token}, None)
        message.set_prop(MessagePropKey.COMMON_NAME, certified)
        return all(cb(message) is None for cb in self.filters)


@pytest.fixture
def guarded(place, monkeypatch):
    from felb_sites import revocation_guard

    monkeypatch.setattr(revocation_guard, "LOOK_EVERY", 3600.0)  # the test looks by itself

    def start():
        parts, guard = Parts(), revocation_guard.RevocationGuard(str(place / "fed" / "server"))
        guard.install(parts)
        return parts, guard

    return start


def test_a_server_that_runs_goes_by_the_list_by_name_and_by_key(place, guarded):
    fed, site = Coordinator.open(place / "fed"), Site.open(place / "a")
    parts, guard = guarded()
    client = parts.register(site)
    assert parts.heard(client)
    for revoked in ({"names": ("hospital-a",)}, {"keys": (site.key_fingerprint(),)}):
        fed.revoke(**revoked)
        guard.look()
        assert not parts.heard(client), "also in a run under way"
        assert client.token not in parts.client_manager.clients
        assert parts.register(site) is None
        restarted, _ = guarded()
        assert not restarted.heard(client), "a token that outlives a restart of the server"
        fed.readmit(**revoked)
        guard.look()
        client = parts.register(site)
        assert parts.heard(client)


def test_a_revoked_site_is_not_heard_under_another_name_or_none(place, guarded):
    fed, site = Coordinator.open(place / "fed"), Site.open(place / "a")
    parts, guard = guarded()
    client = parts.register(site)
    for says in ("hospital-b", None):
        assert parts.heard(client, says=says, certified="hospital-a")
    fed.revoke(names=("hospital-a",))
    guard.look()
    for says in ("hospital-b", None):
        assert not parts.heard(client, says=says, certified="hospital-a")


def test_without_the_guard_a_revoked_site_is_heard(place, guarded, monkeypatch):
    from felb_sites.revocation_guard import RevocationGuard

    fed, site = Coordinator.open(place / "fed"), Site.open(place / "a")
    fed.revoke(names=("hospital-a",))
    assert guarded()[0].register(site) is None
    monkeypatch.setattr(RevocationGuard, "refuses", lambda *_: False)
    parts, _ = guarded()
    assert parts.heard(parts.register(site)), "the attack of the audit"


def test_a_server_without_a_list_that_verifies_hears_nobody(place, guarded):
    fed, site = Coordinator.open(place / "fed"), Site.open(place / "a")
    fed.revoke(names=("hospital-z",))
    good = (fed.server / REVOCATIONS).read_text()
    (fed.server / REVOCATIONS).write_text(good.replace("hospital-z", "hospital-y"))
    parts, guard = guarded()
    assert parts.register(site) is None
    (fed.server / REVOCATIONS).write_text(good)
    guard.look()
    client = parts.register(site)
    assert parts.heard(client)
    (fed.server / REVOCATIONS).unlink()
    guard.look()
    assert parts.heard(client), "the last good list stays in force"
    assert parts.client_manager.is_client_disabled("hospital-z")


@pytest.mark.parametrize("key", ["weak", "unknown"])
def test_an_approval_for_a_weak_or_unknown_key_is_refused(tmp_path, key):
    private = ed25519.Ed25519PrivateKey.generate() if key == "unknown" else rsa.generate_private_key(65537, 1024)
    name, now = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "a")]), datetime.now(UTC)
    made = x509.CertificateBuilder(name, name, private.public_key(), 1, now, now + timedelta(days=1))
    content = made.sign(private, None if key == "unknown" else hashes.SHA256()).public_bytes(Encoding.DER)
    if key == "unknown":  # the identifier of Ed25519, 1.3.101.112, becomes 1.3.101.95, which nobody knows
        content = content.replace(bytes.fromhex("06032b6570"), bytes.fromhex("06032b655f"))
    with zipfile.ZipFile(tmp_path / "a.signed.zip", "w") as archive:
        archive.writestr("signed.json", json.dumps({"cert_file": "a.crt"}))
        archive.writestr("a.crt", ssl.DER_cert_to_PEM_cert(content))
    with pytest.raises(InputError, match=r"a\.signed\.zip is no approval"):
        signed_certificate(tmp_path / "a.signed.zip")


DAMAGES = (b"", b"[]", b"\xff", b"[" * 100_000, b'{"name": NaN}', b"9" * 5000)


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_files_of_a_federation_are_named(damage, place):
    coordinator, site, authority = (
        Coordinator.open(place / "fed"),
        Site.open(place / "a"),
        Authority.open(place / "stick"),
    )
    root = authority.root
    for path, use in (
        (place / "fed" / "invitation.json", lambda: coordinator.invitation),
        (place / "fed" / "federation.json", lambda: coordinator.authority),
        (place / "a" / "site.json", lambda: site.name),
        (place / "stick" / "registry.json", authority.signed),
        (place / "stick" / REVOCATIONS, lambda: Revocations.read(place / "stick" / REVOCATIONS, root)),
        (place / "a.signed.zip", lambda: signed_certificate(place / "a.signed.zip")),
        (place / "a.request.zip", lambda: CertificateRequest.read(place / "a.request.zip")),
    ):
        path.write_bytes(damage)
        with pytest.raises(InputError, match=re.escape(path.name)):
            use()


def test_pipes_and_endless_links_are_no_files_of_a_federation(place):
    os.mkfifo(place / "pipe")
    root = Authority.open(place / "stick").root
    for read in (
        Invitation.read,
        CertificateRequest.read,
        signed_certificate,
        lambda path: Revocations.read(path, root),
    ):
        with pytest.raises(InputError, match="pipe"):
            read(place / "pipe")
    (place / "loop").symlink_to(place / "loop")
    for opened in (Coordinator.open, Site.open, Authority.open):
        with pytest.raises(InputError, match="loop"):
            opened(place / "loop")
