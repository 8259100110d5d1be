"""Sites whose courier is another user, over real processes: the run ends, and that user gets nothing that was not told.

The interpreter of these tests may lie where another user cannot reach it, in the home of root. Then the sites run in a
mount namespace of their own, in which that home holds nothing but the interpreter, and is open.
"""

from __future__ import annotations

import json
import os
import shutil
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest

from federation_parts import SHARDS, SITES, plan, play
from felb.engines.local import run as run_local
from felb.errors import FederationError
from felb.federated.loop import Execution
from felb.federated.protocol import Part, Request
from felb_sites.approvals import Approvals
from felb_sites.local_federation import SERVER, LocalFederation
from felb_sites.messages import vault_message, write_question, write_request
from felb_sites.run_plan import Plan
from felb_sites.site_logs import read_outbound
from felb_sites.site_processes import readable_by

pytestmark = [
    pytest.mark.federation,
    pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root has other users to try as"),
]

USER, ID = "nobody", 65534
OPENED = """
set -e
mkdir -p "$1" && mount --bind "$2" "$1"
mount -t tmpfs -o mode=755 none "$3" && mkdir -p "$2" && mount --move "$1" "$2"
shift 3
exec "$@"
"""
HOSTILE = """
import json, os, socket, struct, sys
told = []
for frame in json.load(sys.stdin):
    with socket.socket(socket.AF_UNIX) as line:
        line.settimeout(60)
        line.connect(sys.argv[1])
        line.sendall(bytes.fromhex(frame))
        head = b""
        while len(head) < 12 and (part := line.recv(12 - len(head))):
            head += part
        table, values = struct.unpack("!IQ", head)
        rest = b""
        while len(rest) < table and (part := line.recv(table - len(rest))):
            rest += part
        told.append([json.loads(rest)["code"], values])
try:
    os.symlink("/etc/passwd", os.path.join(os.path.dirname(sys.argv[1]), "mine"))
except PermissionError:
    told.append(["no link", 0])
print(json.dumps(told))
"""


def reachable(command):
    """Return a command so that the other user can run this interpreter within it."""
    home = Path(sys.base_prefix).resolve()
    closed = next((folder for folder in reversed(home.parents) if not folder.stat().st_mode & 0o001), None)
    if closed is None:
        return command
    tool = closed / home.relative_to(closed).parts[0]
    aside = tempfile.gettempdir() + "/felb-interpreter"
    return ["unshare", "--mount", "sh", "-c", OPENED, "sh", aside, str(tool), str(closed), *command]


class TwoUsers(LocalFederation):
    """A federation whose couriers are another user's."""

    def command(self, name):
        return super().command(name) if name == SERVER else reachable([*super().command(name), USER])


@pytest.fixture(scope="module")
def federation():
    pytest.importorskip("nvflare")
    tried = subprocess.run(reachable(["true"]), capture_output=True, check=False)
    if tried.returncode:
        pytest.skip("another user cannot reach this interpreter, and there is no namespace for it")
    folder = Path(tempfile.mkdtemp(prefix="felb"))
    folder.chmod(0o711)
    made = TwoUsers(folder / "f", SHARDS, policy={"auto_approve": []})
    for site in made.sites.values():
        for path in site.folder.glob("data.*"):
            path.chmod(0o600)
    with made:
        yield made
    shutil.rmtree(folder)


@pytest.fixture(scope="module")
def played(federation, tmp_path_factory):
    """A run that was approved at every site, and has ended."""
    made, out = plan("users", rounds=4), tmp_path_factory.mktemp("out")
    with pytest.raises(FederationError, match="waits for approval"):
        play(federation, out / "r", made)
    for name in SITES:
        approvals = Approvals(federation.sites[name].state)
        approvals.approve("users", approvals.find("users").digest)
    return Plan.of(approvals.find("users").plan), play(federation, out / "r", made)[0]


def test_a_run_over_sites_of_two_users_ends_with_the_result_of_one_process(federation, played):
    import psutil

    made, result = played
    local = run_local(made.algorithm(), SHARDS, seed=made.seed)
    np.testing.assert_array_equal(result.components, local.outcome.components)
    for name in SITES:
        family = psutil.Process(federation.processes[name].pid).children(recursive=True)
        users = {
            "vault" if any("vault_process" in word for word in p.cmdline()) else "courier": p.uids().real
            for p in family
        }
        assert users == {"vault": 0, "courier": ID}


def test_as_the_courier_s_user_no_file_of_the_vault_can_be_read(federation, played):
    site = federation.sites["site-1"]
    assert readable_by(site.kit / "startup" / "client.key", ID, ID), "its own, so the test can tell the difference"
    places = (site.vault, site.state, site.folder / "request")
    kept = [path for place in places for path in (place, *place.rglob("*"))]
    assert {"felb.json", "plan.json", "spent.lock", "outbound.jsonl", "users.json"} & {path.name for path in kept}
    for path in (*kept, site.folder / "data.npz", site.folder / "data.columns.txt"):
        assert not readable_by(path, ID, ID), path


def frame(words, values=b""):
    table = json.dumps(words).encode()
    return (struct.pack("!IQ", len(table), len(values)) + table + values).hex()


def test_a_hostile_program_at_the_courier_s_end_learns_nothing_beyond_the_approved_run(federation, played):
    made, _ = played
    site, other = federation.sites["site-1"], plan("mine")
    before = len(read_outbound(site.state))
    first = Execution(other.algorithm(), seed=0).request
    chosen = np.zeros((4, 17), dtype=bool)
    chosen[0, :3] = True
    probe = Request.of([Part("assign", {"components": chosen})], all_clients=True, number=3)
    asked = [
        vault_message(write_question(), made.to_json()),
        vault_message(write_question(), other.to_json()),
        vault_message(write_request(first), other.to_json()),
        vault_message(write_question(), {**made.to_json(), "seed": 7}),
        vault_message(write_request(probe), made.to_json()),
        ({"verb": "shell", "plan": made.to_json()}, b""),
        ({"verb": "ready", "plan": {"run_id": "../../vault"}}, b""),
    ]
    program = ["setpriv", "--reuid", str(ID), "--regid", str(ID), "--clear-groups", sys.executable, "-I", "-c", HOSTILE]
    done = subprocess.run(
        reachable([*program, str(site.socket)]),
        input=json.dumps([frame(*message) for message in asked]),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    codes = ["ok", "pending", "pending", "known", "request", "request", "plan"]
    assert json.loads(done.stdout) == [*([code, 0] for code in codes), ["no link", 0]]
    assert len(read_outbound(site.state)) == before
