"""A courier that has turned, against the process of root that starts it and against the vault's memory."""

from __future__ import annotations

import io
import os
import socket
import struct
import tempfile
import threading
from pathlib import Path

import pytest
from waiting import PATIENCE

from felb.errors import InputError
from felb_sites import site_processes, vault_socket
from felb_sites.site_processes import hand_over, keep_lines, write_as
from felb_sites.vault_socket import VaultServer, ask
from felb_sites.vault_words import Reply

NOBODY = 65534
as_root = pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root has other users")


@pytest.fixture
def folder():
    """A folder that other users can reach."""
    with tempfile.TemporaryDirectory(prefix="felb") as made:
        Path(made).chmod(0o711)
        yield Path(made)


@as_root
def test_handing_over_a_folder_follows_no_link_and_no_second_name(folder):
    kit, vault, data = folder / "kit", folder / "vault", folder / "data.csv"
    (kit / "local").mkdir(parents=True)
    vault.mkdir(mode=0o700)
    data.write_text("1,0\n")
    for path in (vault / "felb.json", kit / "local" / "own.json"):
        path.write_text("{}")
    (kit / "local" / "policy").symlink_to(vault / "felb.json")
    (kit / "vault").symlink_to(vault)
    os.link(data, kit / "data")
    hand_over(kit, NOBODY, NOBODY)
    owners = {path: path.lstat().st_uid for path in (kit, kit / "local", kit / "local" / "own.json", vault, data)}
    assert list(owners.values()) == [NOBODY] * 3 + [0, 0]
    assert (vault / "felb.json").stat().st_uid == 0
    (kit / "late").write_text("root's, in a folder that was handed over before")
    hand_over(kit, NOBODY, NOBODY)
    assert (kit / "late").stat().st_uid == 0, "what the user can change meanwhile is not walked through again"


@as_root
def test_in_the_courier_s_folder_files_are_written_as_its_user(folder):
    kit, policy = folder / "kit", folder / "felb.json"
    kit.mkdir()
    policy.write_text("the policy")
    (kit / "courier.json").symlink_to(policy)
    os.chown(kit, NOBODY, NOBODY)
    with pytest.raises(InputError, match="cannot write"):
        write_as(kit / "courier.json", "{}", NOBODY, NOBODY)
    assert policy.read_text() == "the policy"
    (kit / "courier.json").unlink()
    write_as(kit / "courier.json", "{}", NOBODY, NOBODY)
    assert (kit / "courier.json").read_text() == "{}"


def test_a_line_without_end_is_kept_in_parts(tmp_path, monkeypatch):
    monkeypatch.setattr(site_processes, "LONGEST_LINE", 100)

    class Endless(io.BytesIO):
        def __iter__(self):
            pytest.fail("reads a line, however long it is")

    keep_lines(Endless(b"x" * 250 + b"\nlast\n"), tmp_path / "courier.log")
    assert [len(line) for line in (tmp_path / "courier.log").read_text().splitlines()] == [100, 100, 50, 4]


class Turn:
    """A lock that tells when somebody has it, and when somebody else has to wait."""

    def __init__(self):
        self._lock, self.taken, self.refused = threading.Lock(), threading.Event(), threading.Event()

    def __enter__(self):
        if not self._lock.acquire(blocking=False):
            self.refused.set()
            self._lock.acquire()
        self.taken.set()

    def __exit__(self, *_):
        self._lock.release()


def test_large_messages_are_received_one_after_the_other(folder, monkeypatch):
    monkeypatch.setattr(vault_socket, "LARGE", 10)

    handled = []

    class Vault:
        def handle(self, words, values):
            handled.append(len(values))
            return Reply(values=values)

    server = VaultServer(Vault(), folder / "v.sock")
    server._large = turn = Turn()
    thread = threading.Thread(target=server.serve)
    thread.start()
    try:
        with socket.socket(socket.AF_UNIX) as slow:
            slow.connect(str(server.path))
            slow.sendall(struct.pack("!IQ", 2, 1000) + b"{}" + b"x" * 500)
            assert turn.taken.wait(PATIENCE)
            assert ask(server.path, {}, b"small").values == b"small", "others go on"
            large = threading.Thread(target=ask, args=(server.path, {}, b"y" * 1000))
            large.start()
            assert turn.refused.wait(PATIENCE), "it waits for the first one, and its bytes are not in memory"
            assert handled == [5]
        large.join(PATIENCE)
        assert handled == [5, 1000]
    finally:
        server.stop()
        thread.join()
