"""Frames over Unix sockets: who may talk, how much, and what happens when an end goes away."""

from __future__ import annotations

import os
import socket
import stat
import struct
import subprocess
import sys
import threading

import pytest

from felb.errors import FederationError, InputError
from felb_sites import sockets
from felb_sites.sockets import SocketClient, SocketServer


@pytest.fixture
def serve(tmp_path):
    made = []

    def start(handle=lambda message: message[::-1], *, name="s.sock", **more):
        server = SocketServer(tmp_path / name, handle, **{"limit": 1 << 26, **more})
        server.start()
        made.append(server)
        return server

    yield start
    for server in made:
        server.stop()


def test_questions_are_answered_over_one_connection(serve):
    server = serve()
    with SocketClient(server.path, seconds=5) as client:
        assert [client.ask(b"abc"), client.ask(b""), client.ask(b"x" * 3_000_001)] == [b"cba", b"", b"x" * 3_000_001]
        assert client.connections == 1


def test_a_long_path_with_spaces_and_umlauts(tmp_path):
    folder = tmp_path / ("ein Ordner mit Ü " * 8) / ("y" * 120)
    folder.mkdir(parents=True)
    server = SocketServer(folder / "carrier.sock", bytes, limit=10)
    server.start()
    with SocketClient(folder / "carrier.sock", seconds=5) as client:
        assert client.ask(b"here") == b"here"
    server.stop()
    assert not server.path.exists()


@pytest.mark.parametrize(("group", "mode"), [(None, 0o600), (os.getgid(), 0o660)])
def test_mode(serve, group, mode):
    old = os.umask(0)
    try:
        server = serve(group=group)
    finally:
        os.umask(old)
    assert stat.S_IMODE(server.path.stat().st_mode) == mode


def test_an_old_socket_is_replaced_and_another_file_is_not(serve, tmp_path):
    serve()
    second = serve(lambda _: b"second")
    with SocketClient(second.path, seconds=5) as client:
        assert client.ask(b"") == b"second"
    (tmp_path / "file").write_text("precious")
    with pytest.raises(InputError, match="is no socket"):
        SocketServer(tmp_path / "file", bytes, limit=1)
    assert (tmp_path / "file").read_text() == "precious"


def test_a_stopped_server_leaves_the_socket_of_its_successor(serve):
    first, second = serve(), serve()
    first.stop()
    assert second.path.exists()


def test_too_large_a_frame_ends_the_connection_before_it_is_read(serve):
    seen = []
    server = serve(lambda message: seen.append(message) or b"", limit=100)
    with socket.socket(socket.AF_UNIX) as line:
        line.settimeout(5)
        line.connect(str(server.path))
        line.sendall(struct.pack("!Q", 101))
        assert line.recv(1) == b""
    assert seen == []


def test_a_message_that_is_begun_must_go_on(serve, monkeypatch):
    monkeypatch.setattr(sockets, "PART_SECONDS", 0.2)
    server = serve()
    with socket.socket(socket.AF_UNIX) as line:
        line.settimeout(10)
        line.connect(str(server.path))
        line.sendall(b"\0\0\0")
        assert line.recv(1) == b""


def test_an_exception_closes_the_connection_and_says_nothing_of_the_message(serve, caplog):
    def handle(message):
        raise ValueError(message.decode())

    server = serve(handle)
    with SocketClient(server.path, seconds=5) as client, pytest.raises(FederationError):
        client.ask(b"secret of a patient")
    assert "ValueError" in caplog.text
    assert "patient" not in caplog.text


def test_connections_beyond_the_limit_are_closed(serve):
    server = serve(connections=1)
    with SocketClient(server.path, seconds=5) as first, SocketClient(server.path, seconds=5) as second:
        first.ask(b"a")
        with pytest.raises(FederationError):
            second.ask(b"b")
        assert first.ask(b"ab") == b"ba"


def test_questions_of_several_connections_are_answered_at_once(serve):
    both = threading.Barrier(2, timeout=10)
    server = serve(lambda message: str(both.wait()).encode())
    answers = []

    def ask():
        with SocketClient(server.path, seconds=10) as client:
            answers.append(client.ask(b""))

    threads = [threading.Thread(target=ask) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(answers) == [b"0", b"1"]


def test_a_client_connects_again_once(serve):
    server = serve()
    with SocketClient(server.path, seconds=5) as client:
        client.ask(b"a")
        server.stop()
        with pytest.raises(FederationError, match="the vault does not run; start the site with `felb site start"):
            client.ask(b"b")
        serve()
        assert client.ask(b"cd") == b"dc"
        assert client.connections == 2


def test_a_client_that_is_closed_lets_its_thread_go(serve):
    begun, go_on = threading.Event(), threading.Event()

    def handle(_):
        begun.set()
        go_on.wait(20)
        return b""

    server = serve(handle)
    client, errors = SocketClient(server.path, seconds=20), []

    def ask():
        try:
            client.ask(b"")
        except FederationError as error:
            errors.append(error)

    thread = threading.Thread(target=ask)
    thread.start()
    assert begun.wait(10)
    client.close()
    thread.join(10)
    go_on.set()
    assert len(errors) == 1


ASK = """
import os, socket, sys
os.setgroups([]), os.setgid(65534), os.setuid(65534)
with socket.socket(socket.AF_UNIX) as line:
    line.settimeout(5)
    line.connect(sys.argv[1])
    try:
        line.sendall(bytes(8))
        print(len(line.recv(8)))
    except OSError:
        print(0)
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="needs other users")
@pytest.mark.parametrize(("uids", "answered"), [(None, "0"), (frozenset({65533}), "0"), (frozenset({65534}), "8")])
def test_other_users_are_answered_only_if_they_are_named(uids, answered):
    import tempfile
    from pathlib import Path

    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        Path(folder).chmod(0o755)
        server = SocketServer(Path(folder) / "s", bytes, limit=10, group=65534, uids=uids)
        server.start()
        done = subprocess.run([sys.executable, "-c", ASK, str(server.path)], capture_output=True, text=True)
        server.stop()
    assert (done.stdout.strip(), done.stderr) == (answered, "")
