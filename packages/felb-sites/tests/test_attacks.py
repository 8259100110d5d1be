"""Attacks on a site and on a federation: what a hostile relay, coordinator, courier, file or network can do.

Attacks on single envelopes, requests and lists are beside the vault and the relay; docs/explanation/threats.md names
the test of each attack.
"""

from __future__ import annotations

import ast
import contextlib
import gzip
import json
import os
import shutil
import socket
import ssl
import stat
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import msgspec
import numpy as np
import pytest
from courier_world import AUDITED, Relay, World, wait_for
from loopback import MaskedTransport
from starlette.responses import Response
from vault_parts import exact_plan, make_loopback, notes

from felb.errors import InputError
from felb.federated.journal import pack
from felb.federated.loop import play
from felb_sites import messages, supervise
from felb_sites.coordinator.folder import Federation
from felb_sites.loader import refresh
from felb_sites.run_plan import Plan
from felb_sites.site_folder import Site
from felb_sites.supervise import SiteProcesses, keep_lines
from felb_sites.vault.operator import Operator
from felb_sites.vault.store import Store

BENCHMARKS = Path(__file__).parents[3] / "benchmarks"
SECRET = "Jane Doe, 1970-01-01"
ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root has other users and mounts")
FELB = [sys.executable, "-P", "-c", "from felb.cli import main; main()"]


# -- the courier -----------------------------------------------------------------------------------------------------


class HostileRelay(Relay):
    """Answers with whatever may hurt, and becomes honest when it has nothing else left."""

    def __init__(self, folder, public):
        super().__init__(folder, public)
        bomb = gzip.compress(bytes(1 << 24))
        named = {"content-disposition": 'attachment; filename="../../x.py"', "set-cookie": "a=b; path=/"}
        self.challenges_first = [
            Response(b"[" * 60_000),
            Response(bomb, headers={"content-encoding": "gzip"}),
            Response(status_code=302, headers={"location": "file:///etc/passwd"}),
            Response(b'{"challenge": "zz", "federation": "\\u001b[31m"}', headers=named),
        ]
        archive = b"PK\x03\x04custom/sitecustomize.py"
        self.next_first = [
            Response(archive),
            Response(b"\x80\x04cos\nsystem\n(S'touch x'\ntR."),
            Response(msgspec.msgpack.encode([(9, b"b"), (3, b"a")])),
            Response(msgspec.msgpack.encode([[1, {"__class__": "os.system"}]])),
            Response(msgspec.msgpack.encode([(1, b"x")]), headers={"content-encoding": "gzip", **named}),
        ]

    async def challenge(self, request):
        return self.challenges_first.pop(0) if self.challenges_first else await super().challenge(request)

    async def next(self, request):
        return self.next_first.pop(0) if self.next_first else await super().next(request)


def list_files(folder):
    return {path: (path.stat().st_size, path.stat().st_mtime_ns) for path in folder.rglob("*") if path.is_file()}


def test_whatever_a_relay_sends_the_courier_writes_unpacks_and_starts_nothing(tmp_path):
    world = World(tmp_path)
    world.relay.__class__ = HostileRelay
    HostileRelay.__init__(world.relay, world.relay.folder, world.relay.public)
    world.write()
    script = tmp_path / "audited.py"
    script.write_text(AUDITED)
    try:
        world.relay.kept = [(7, b"honest")]
        world.relay.start()
        world.vault.start()
        before = list_files(tmp_path)
        world.carry(str(script))
        wait_for(lambda: b"honest" in world.vault.got or world.process.poll() is not None, 120)
        place = Path(f"/proc/{world.process.pid}")
        held = [str(entry.readlink()) for entry in (place / "fd").iterdir()]
        children = [task.read_text() for task in place.glob("task/*/children")]
        threads_stopped = world.process.poll()
        assert threads_stopped is None, world.events()
        kinds = ("socket:", "pipe:", "anon_inode:", "/dev/null", "/dev/urandom")
        assert [name for name in held if not name.startswith(kinds)] == []
        assert "".join(children).strip() == ""
        assert list_files(tmp_path) == before
        assert not world.relay.challenges_first
        assert not world.relay.next_first
        assert world.vault.got[-1] == b"honest"
        assert not any(b"\x1b" in line or b"custom" in line for line in world.lines)
    finally:
        world.stop()


def test_no_function_that_the_courier_calls_writes_a_file_unpacks_or_executes():
    from felb_sites import carrier, sockets
    from felb_sites.courier import process

    forbidden = {
        "open",
        "exec",
        "eval",
        "compile",
        "__import__",
        "write_bytes",
        "write_text",
        "mkdir",
        "Popen",
        "system",
    }
    forbidden |= {
        "extractall",
        "unpack_archive",
        "import_module",
        "loads",
        "decompress",
        "replacing",
        "rename",
        "unlink",
    }
    for module in (process, carrier, sockets):
        called = {
            node.func.id if isinstance(node.func, ast.Name) else node.func.attr
            for node in ast.walk(ast.parse(Path(module.__file__).read_text()))
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name | ast.Attribute)
        }
        allowed = {"open", "unlink"} if module is sockets else set()  # folders of sockets, and an old socket
        assert called & forbidden <= allowed, module.__name__


def test_the_log_of_a_courier_is_for_its_owner_and_holds_nothing_that_a_terminal_obeys(tmp_path):
    reading, writing = os.pipe()
    os.write(writing, b"\x1b]0;title\x07 and \xe2\x80\xae reversed\n")
    os.close(writing)
    keep_lines(os.fdopen(reading, "rb"), tmp_path / "courier.log")
    text = (tmp_path / "courier.log").read_text()
    assert stat.S_IMODE((tmp_path / "courier.log").stat().st_mode) == 0o600
    assert "title" in text
    assert not {"\x1b", "\x07", "\u202e"} & set(text)


# -- users -----------------------------------------------------------------------------------------------------------

READ = """
import os, sys
os.setgroups([]), os.setgid(int(sys.argv[2])), os.setuid(int(sys.argv[1]))
for path in sys.argv[3:]:
    try:
        os.listdir(path) if os.path.isdir(path) else open(path, "rb").close()
        print(path)
    except OSError:
        pass
"""


@pytest.fixture
def joined():
    """A site in a folder that other users can reach."""
    with tempfile.TemporaryDirectory(dir="/tmp") as place:
        folder = Path(place)
        folder.chmod(0o755)
        federation = Federation.create(folder / "c", name="f", host="localhost", port=1, listen="loopback")
        site, _ = Site.join(folder / "site", federation.invitation, name="north")
        (site.folder / "data.csv").write_text("a,b\n" + "1,0\n" * 30)
        (site.folder / "data.csv").chmod(0o600)
        site.configure(data=str(site.folder / "data.csv"), policy={"min_rows": 21})
        refresh(site.vault)
        yield site


@ROOT
def test_the_courier_s_user_can_read_neither_data_nor_policy_nor_store_nor_keys(joined, monkeypatch):
    import pwd

    monkeypatch.setattr(supervise, "check_python", lambda *_: None)  # this Python may be root's own
    Store(joined.vault, name="north").close()
    nobody = pwd.getpwnam("nobody")
    private = [joined.folder / "data.csv"]
    SiteProcesses(joined, courier_user="nobody", one_user=False, tell=lambda _: None, private=private).prepare()
    everything = [str(path) for path in (joined.folder, *sorted(joined.folder.rglob("*")))]
    command = [sys.executable, "-c", READ, str(nobody.pw_uid), str(nobody.pw_gid), *everything]
    read = set(subprocess.run(command, capture_output=True, text=True, check=True).stdout.split("\n")) - {""}
    own = {str(joined.courier), *(str(path) for path in joined.courier.iterdir())}
    assert read == own | {str(path) for path in joined.folder.glob("*.request.json")}  # goes to the coordinator
    for name in ("vault.key", "settings.json", "snapshot.json", "store.sqlite"):
        assert str(joined.vault / name) in everything


@ROOT
def test_a_site_does_not_start_if_the_courier_s_user_can_read_its_data(joined):
    (joined.folder / "data.csv").chmod(0o644)
    private = [joined.folder / "data.csv"]
    with pytest.raises(InputError, match=r"can read .*data\.csv"):
        SiteProcesses(joined, courier_user="nobody", one_user=False, tell=lambda _: None, private=private).prepare()


# -- data in messages ------------------------------------------------------------------------------------------------

MALFORMED = {
    "text": f'a,b\n1,0\n1,"{SECRET}"\n',
    "number": "a,b\n1,0\n1,19700101\n",
    "first": f'"{SECRET}",b\n1,0\n1,x\n',
    "width": f'a,b\n1,0\n1,0,"{SECRET}"\n',
}


@pytest.mark.parametrize("name", sorted(MALFORMED))
def test_malformed_data_is_told_by_row_and_column_without_a_cell(joined, name):
    (joined.folder / "data.csv").write_text(MALFORMED[name])
    for command in (
        [sys.executable, "-m", "felb_sites.loader", str(joined.vault)],
        [*FELB, "site", "refresh", str(joined.folder)],
    ):
        done = subprocess.run(command, capture_output=True, text=True)
        said = done.stdout + done.stderr
        assert done.returncode == 1
        assert "Traceback" not in said
        assert not any(part in said for part in (SECRET, "Jane", "1970"))
        assert name == "width" or "line 3, column 2" in said


def test_a_value_that_a_schema_does_not_list_is_told_by_its_column_alone(joined):
    (joined.folder / "data.csv").write_text(f'id,sex\n1,f\n2,"{SECRET}"\n')
    (joined.folder / "schema.toml").write_text(
        '[table]\nrecord = "id"\n[columns.sex]\nunlisted = "error"\n'
        '[[feature]]\nname = "f"\ncolumn = "sex"\nis = ["f"]\n'
    )
    settings = json.loads(joined.settings_path.read_text())
    joined.settings_path.write_text(json.dumps({**settings, "schema": "schema.toml"}))
    done = subprocess.run(
        [sys.executable, "-m", "felb_sites.loader", str(joined.vault)], capture_output=True, text=True
    )
    assert done.returncode == 1
    assert "column 'sex'" in done.stderr
    assert "Jane" not in done.stderr


def test_the_hook_the_console_and_the_refusals_of_a_site_hold_no_cell(tmp_path, monkeypatch, capsys):
    from felb_sites.vault import vault as module
    from felb_sites.vault.process import Console, notify

    loop = make_loopback(tmp_path)
    hook = tmp_path / "hook"
    command = f"tee -a {hook}"

    def fail(*_):
        raise ValueError(f"row 3 holds {SECRET!r}")

    monkeypatch.setattr(module.Session, "_do", fail)  # where the tasks see the rows
    console = Console(lambda: loop.configs["site-1"])
    loop.propose(exact_plan())
    loop.deliver(loop.seal("sums", "r1", 0, messages.RoundSums()))
    for event in loop.events:
        console(event)
        notify(command, event)
    said = capsys.readouterr().out + hook.read_text() + "".join(notes(loop))
    said += json.dumps([message for _, message in loop.read("site-1")], default=str)
    assert "refused" in said
    assert not any(part in said for part in (SECRET, "Jane", "1970"))


# -- a coordinator that has turned -----------------------------------------------------------------------------------


def test_candidates_that_do_not_follow_from_the_plan_are_refused_in_every_round(tmp_path):
    loop = make_loopback(tmp_path)
    plan = Plan("r1", "bmf", 2, 10, {"effort": "fast"}, sites=3)
    loop.propose(plan)
    transport = loop.transport(plan)
    tried = []

    def attack(request):
        chosen = {
            f"p{index}.{name}": ~np.asarray(value) if np.asarray(value).dtype == bool else np.asarray(value) + 1
            for index, part in enumerate(request.parts)
            for name, value in part.values.items()
            if np.asarray(value).dtype.kind in "biu" and np.asarray(value).size
        }
        if not chosen or request.task in tried:
            return
        tried.append(request.task)
        sums = b"" if transport.sums is None else pack(dict(transport.sums))
        clients = 0 if transport.sums is None else transport.sums.clients
        message = messages.RoundSums(clients, sums, pack(chosen))
        loop.deliver(loop.seal("sums", "r1", request.round, message, round=request.round), to=["site-1"])
        answers = [said for _, said in loop.read("site-1")]
        assert [type(said) for said in answers] == [messages.Refusal]
        assert answers[0].code == "request"

    transport.before = attack
    play(plan.algorithm(), transport, seed=plan.seed)
    assert "flip_gains" in tried


def test_a_coordinator_that_tells_sites_different_sums_gets_no_masked_sum(tmp_path):
    loop = make_loopback(tmp_path)
    plan = loop.masked(exact_plan("m1"))
    loop.propose(plan)
    transport = MaskedTransport(loop, plan)

    class Split(Exception):
        pass

    def attack(request):
        if request.round != 1:
            return
        other = {name: np.asarray(value) + (1 if name != "rows" else 0) for name, value in transport.sums.items()}
        message = messages.RoundSums(3, pack(other), transport_real(request))
        loop.deliver(loop.seal("sums", "m1", 1, message, round=1), to=["site-2"])
        raise Split

    from loopback import real_fields as transport_real

    transport.before = attack
    with pytest.raises(Split):
        play(plan.algorithm(), transport, seed=plan.seed)
    before = {name: len(loop.lines(name)) for name in loop.shards}
    transport.before = lambda _: None
    with contextlib.suppress(Exception):
        play(plan.algorithm(), transport, seed=plan.seed)
    assert len(loop.lines("site-2")) == before["site-2"]
    assert any("number was used" in said or "request" in said or "refused" in said for said in notes(loop, "site-2"))


def test_a_store_that_was_put_back_by_hand_does_not_go_on_with_the_run(tmp_path):
    loop = make_loopback(tmp_path)
    plan = exact_plan()
    loop.propose(plan)
    transport, place = loop.transport(plan), tmp_path / "site-1" / "vault" / "store.sqlite"

    def copy(request):
        if request.round == 1:
            loop.vaults["site-1"].store.backup(tmp_path / "older")
        if request.round == 3:
            loop.vaults["site-1"].close()
            for path in place.parent.glob("store.sqlite*"):
                path.unlink()
            shutil.copy(tmp_path / "older", place)
            del loop.vaults["site-1"]
            loop.restart("site-1")
            loop.read("site-1")  # what was sent before

    transport.before = copy
    with pytest.raises(AssertionError, match="rounds are known here"):
        play(plan.algorithm(), transport, seed=plan.seed)


# -- real processes over TLS -----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def disturbed(tmp_path_factory):
    """The federation of benchmarks/federation_faults.py, whose couriers go through a proxy."""
    sys.path.insert(0, str(BENCHMARKS))
    try:
        import federation_faults
    finally:
        sys.path.remove(str(BENCHMARKS))
    with federation_faults.Disturbed(tmp_path_factory.mktemp("gestörte föderation"), seed=5) as made:
        made.counts = federation_faults.Counts
        yield made


def check(disturbed, kind, played):
    counts = disturbed.counts()
    disturbed.check(kind, played, counts)
    assert counts.wrong == []


@pytest.mark.federation
def test_lost_delayed_doubled_and_reordered_envelopes_change_nothing(disturbed):
    disturbed.proxy.share = 0.5
    try:
        played = disturbed.play("masked")
    finally:
        disturbed.proxy.share = 0.0
    check(disturbed, "masked", played)
    assert sum(disturbed.proxy.faults.values()) >= 20
    assert len(disturbed.proxy.faults) >= 4


@pytest.mark.federation
def test_a_run_that_is_killed_again_and_again_ends_as_undisturbed(disturbed):
    played = disturbed.play("private", "run", most=2)
    check(disturbed, "private", played)
    assert played[1] >= 1


@pytest.mark.federation
def test_everything_is_killed_in_the_middle_of_a_masked_run_and_the_run_goes_on(disturbed):
    local = disturbed.local
    run, command = disturbed.begin("masked")
    process, operator = disturbed.start(command), Operator(local.sites["site-1"].vault)
    wait_for(lambda: len(operator.log(run)) >= 3, 120)
    process.kill()
    process.wait()
    for name in list(local.processes):
        local.kill(name)
    assert not (disturbed.folder / f"out-{run}").exists()
    local.start()
    local.wait_until_connected()
    assert disturbed.start(command).wait(600) == 0
    check(disturbed, "masked", (run, 0))


@pytest.mark.federation
def test_400_half_open_and_slow_connections_do_not_stop_a_run(disturbed):
    settings = json.loads((disturbed.local.federation.folder / "relay" / "relay.json").read_text())
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with contextlib.ExitStack() as opened:
        lines = [opened.enter_context(socket.create_connection(("127.0.0.1", settings["port"]))) for _ in range(400)]
        for line in lines[300:]:
            line.settimeout(60)
            with contextlib.suppress(OSError):  # a busy machine takes longer than a handshake may
                shaken = opened.enter_context(context.wrap_socket(line, server_hostname="localhost"))
                shaken.sendall(b"POST /v1/session HTTP/1.1\r\ncontent-length: 4000\r\nx: ")
        check(disturbed, "clear", disturbed.play("clear"))


@pytest.mark.federation
def test_sites_listen_on_no_port_and_sockets_and_logs_are_for_their_owner(disturbed):
    local = disturbed.local
    listening = {
        line.split()[9]
        for name in ("tcp", "tcp6")
        for line in Path(f"/proc/net/{name}").read_text().splitlines()[1:]
        if line.split()[3] == "0A"
    }
    for name, process in local.processes.items():
        held = set()
        for entry in Path(f"/proc/{process.pid}/fd").iterdir():
            with contextlib.suppress(FileNotFoundError):  # it was closed meanwhile
                held.add(str(entry.readlink()))
        inodes = {link.removeprefix("socket:[").rstrip("]") for link in held if link.startswith("socket:[")}
        assert len(inodes & listening) == (1 if name == "relay" else 0), name
    sockets = [path for path in local.folder.rglob("*") if path.is_socket()]
    assert len(sockets) == 2 * len(local.sites) + 1
    for path in (*sockets, *local.folder.glob("*.log"), *local.folder.rglob("*.sqlite*"), *local.folder.rglob("*.key")):
        assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0, path


@pytest.mark.federation
def test_a_second_start_of_a_federation_or_a_vault_is_refused(disturbed):
    local = disturbed.local
    site = local.sites["site-1"]
    for command in (
        [*FELB, "federation", "start", str(local.federation.folder)],
        [sys.executable, "-m", "felb_sites.vault.process", str(site.vault)],
    ):
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
        assert done.returncode
        assert "runs already" in done.stderr
        assert "Traceback" not in done.stderr
    local.wait_until_connected()


@contextlib.contextmanager
def small_disk(folder):
    """Put a folder and what is in it on a disk of its own that is soon full."""
    megabytes = 16 + sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) // (1 << 20)
    aside = folder.with_name(f"{folder.name}-aside")
    folder.rename(aside)
    folder.mkdir(mode=0o700)
    mount = ["mount", "-t", "tmpfs", "-o", f"size={megabytes}m,mode=0700", "tmpfs", str(folder)]
    done = subprocess.run(mount, capture_output=True, text=True)
    if done.returncode:
        folder.rmdir()
        aside.rename(folder)
        pytest.skip(f"no file system can be mounted here: {done.stderr.strip()}")
    try:
        shutil.copytree(aside, folder, dirs_exist_ok=True, ignore=lambda _, names: [n for n in names if "sock" in n])
        yield folder
        shutil.copytree(folder, aside, dirs_exist_ok=True, ignore=lambda _, names: [n for n in names if "sock" in n])
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)
        folder.rmdir()
        aside.rename(folder)


def fill(folder):
    """Write until the disk is full; return the file."""
    path = folder / "full"
    with path.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(bytes(4096))
    return path


@ROOT
@pytest.mark.federation
@pytest.mark.parametrize("name", ["vault:site-1", "relay"])
def test_a_full_disk_delays_a_run_and_changes_nothing(disturbed, name):
    local = disturbed.local
    folder = local.federation.folder / "relay" if name == "relay" else local.sites["site-1"].vault
    local.kill(name)
    with small_disk(folder):
        local.start(name)
        local.wait_until_connected()
        run, command = disturbed.begin("masked")
        process, operator = disturbed.start(command), Operator(local.sites["site-2"].vault)
        wait_for(lambda: len(operator.log(run)) >= 2, 120)
        path = fill(folder)
        time.sleep(2.0)
        stopped = len(operator.log(run))
        path.unlink()
        code = process.wait(600)
        tries = 0
        while code and tries < 5:  # a coordinator whose relay was full stops, and goes on with the same command
            code, tries = disturbed.start(command).wait(600), tries + 1
        assert (code, stopped > 0) == (0, True)
        check(disturbed, "masked", (run, 0))
        local.kill(name)
    local.start(name)
    local.wait_until_connected()
