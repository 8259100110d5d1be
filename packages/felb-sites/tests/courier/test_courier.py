"""The courier between a relay that is played over TLS and a vault that is played at a socket."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from courier_world import AUDITED, World, make_certificate, wait_for

from felb_sites.courier import process


@pytest.fixture
def world(tmp_path):
    made = World(tmp_path)
    yield made
    made.stop()


def test_envelopes_go_both_ways_in_order_and_it_ends_cleanly(world):
    world.relay.kept = [(n, b"in %d" % n) for n in range(1, 31)]
    world.vault.outgoing = [(n, b"out %d" % n) for n in range(1, 11)]
    world.relay.start()
    world.vault.start()
    world.carry()
    wait_for(lambda: len(world.vault.got) == 30 and len(world.relay.posted) == 10)
    assert world.vault.got == [data for _, data in world.relay.kept]
    assert world.relay.posted == [(204, data) for _, data in world.vault.outgoing]
    wait_for(lambda: world.vault.told == ["connected"])
    world.process.send_signal(signal.SIGTERM)
    assert world.process.wait(5) == 0
    wait_for(lambda: "stopped" in world.events())
    assert not any(b"in 1" in line or b"out 1" in line for line in world.lines)


def test_a_backlog_is_delivered_as_one_batch_when_the_vault_is_back(world):
    world.relay.kept = [(n, b"%d" % n) for n in range(1, 4)]
    world.relay.start()
    world.carry()
    wait_for(lambda: 3 in world.relay.polls)  # polling, the heartbeat, goes on
    world.relay.kept += [(n, b"%d" % n) for n in range(4, 41)]
    wait_for(lambda: 40 in world.relay.polls)
    world.vault.start()
    wait_for(lambda: len(set(world.vault.got)) == 40)
    assert world.vault.got[:40] == [data for _, data in world.relay.kept]
    assert len(world.vault.delivered) <= 3


def test_a_vault_that_was_started_again_gets_what_it_has_not_acknowledged(world):
    world.relay.kept = [(1, b"one"), (2, b"two")]
    world.relay.start()
    world.vault.start()
    world.carry()
    wait_for(lambda: world.vault.got == [b"one", b"two"])
    world.vault.stop()
    wait_for(lambda: "vault-away" in world.events())
    world.vault.outgoing = [(1, b"numbers begin anew")]
    world.vault.start()
    wait_for(lambda: world.vault.got == [b"one", b"two"] * 2)
    wait_for(lambda: world.relay.posted == [(204, b"numbers begin anew")])


def test_a_relay_that_was_started_again_is_found_again(world):
    world.relay.start()
    world.vault.start()
    world.carry()
    wait_for(lambda: world.relay.polls)
    world.relay.stop()
    world.vault.outgoing = [(1, b"a"), (2, b"b")]
    wait_for(lambda: "unreachable" in world.events())
    world.relay.kept = [(1, b"x")]
    world.relay.start()
    wait_for(lambda: world.vault.got == [b"x"] and [data for _, data in world.relay.posted] == [b"a", b"b"])
    wait_for(lambda: world.vault.told[-1] == "connected")
    assert world.relay.sessions == 2


@pytest.mark.parametrize("code", [409, 413, 403])
def test_a_refused_envelope_is_not_sent_for_ever(world, code):
    world.relay.codes = [code, 403] if code == 403 else [code]
    world.vault.outgoing = [(1, b"refused"), (2, b"next")]
    world.relay.start()
    world.vault.start()
    world.carry()
    wait_for(lambda: world.relay.posted and world.relay.posted[-1] == (204, b"next"))
    assert [data for _, data in world.relay.posted] == [b"refused"] * (2 if code == 403 else 1) + [b"next"]


def test_a_full_relay_is_tried_again_and_the_order_is_kept(world):
    world.relay.codes = [507, 503, 507]
    world.vault.outgoing = [(1, b"a"), (2, b"b")]
    world.relay.start()
    world.vault.start()
    world.carry()
    wait_for(lambda: len(world.relay.posted) == 5)
    assert world.relay.posted == [(507, b"a"), (503, b"a"), (507, b"a"), (204, b"a"), (204, b"b")]


def test_a_revoked_site_tells_its_vault(world):
    world.relay.start()
    world.vault.start()
    world.carry()
    wait_for(lambda: world.vault.told == ["connected"])
    world.relay.is_member = False
    world.relay.tokens.clear()
    wait_for(lambda: world.vault.told == ["connected", "not-member"])


def test_another_certificate_is_refused(world):
    world.write(certificate=make_certificate(world.folder, "other"))
    world.relay.kept = [(1, b"x")]
    world.relay.start()
    world.vault.start()
    world.carry(SSL_CERT_FILE=str(world.folder / "tls.pem"))
    wait_for(lambda: world.vault.told == ["certificate"])
    assert not world.relay.challenges
    assert world.vault.got == []


@pytest.mark.parametrize(("trust", "told"), [("pinned", "certificate"), ("authority", "connected")])
def test_what_an_authority_has_signed_is_not_the_pinned_certificate(world, trust, told):
    world.write(certificate=make_certificate(world.folder, signed_by="authority"), trust=trust)
    world.relay.start()
    world.vault.start()
    world.carry()
    wait_for(lambda: world.vault.told == [told])


def test_the_proxy_of_the_environment_is_used(world):
    seen = []

    async def connect(reader, writer):
        line = await reader.readuntil(b"\r\n\r\n")
        seen.append(line.split()[:2])
        host, port = line.split()[1].decode().split(":")
        far_reader, far_writer = await asyncio.open_connection(host, int(port))
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")

        async def pump(source, target):
            try:
                while data := await source.read(1 << 16):
                    target.write(data)
                    await target.drain()
            except OSError:
                pass
            finally:
                target.close()

        await asyncio.gather(pump(reader, far_writer), pump(far_reader, writer))

    loop = asyncio.new_event_loop()
    server = loop.run_until_complete(asyncio.start_server(connect, "127.0.0.1", 0))
    port = server.sockets[0].getsockname()[1]
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    try:
        world.relay.kept = [(1, b"x")]
        world.relay.start()
        world.vault.start()
        world.carry(HTTPS_PROXY=f"http://127.0.0.1:{port}")
        wait_for(lambda: world.vault.got == [b"x"])
        assert seen[0] == [b"CONNECT", f"127.0.0.1:{world.relay.port}".encode()]
    finally:
        world.stop()
        world.process = world.relay.server = world.vault.server = None

        async def end():
            server.close()
            tasks = asyncio.all_tasks() - {asyncio.current_task()}
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

        asyncio.run_coroutine_threadsafe(end(), loop).result(10)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)
        loop.close()


def test_it_writes_no_file_and_starts_nothing(world, tmp_path):
    script = tmp_path / "audited.py"
    script.write_text(AUDITED)
    world.relay.kept = [(n, b"in") for n in range(1, 4)]
    world.relay.codes = [507, 409]
    world.vault.outgoing = [(1, b"a"), (2, b"b")]
    world.relay.start()
    world.vault.start()
    world.carry(str(script))
    wait_for(lambda: (world.vault.got and len(world.relay.posted) == 3) or world.process.poll() is not None)
    if world.process.poll() is None:
        world.vault.stop()
        wait_for(lambda: "vault-away" in world.events() or world.process.poll() is not None)
        world.process.terminate()
    assert (world.process.wait(10), [event for event in world.events() if "AUDIT" in event]) == (0, [])


def test_the_audit_sees_a_file_that_is_written(tmp_path):
    script = tmp_path / "audited.py"
    bad = AUDITED.replace(
        'runpy.run_module("felb_sites.courier.process", run_name="__main__", alter_sys=True)', 'open("/dev/null", "w")'
    )
    script.write_text(bad)
    assert subprocess.run([sys.executable, str(script)], capture_output=True).returncode == 99


def test_what_it_imports():
    code = "import sys, felb_sites.courier.process; print(*sorted(sys.modules))"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    own = {name for name in found if name.split(".")[0] in ("felb", "felb_sites")}
    assert own == {
        *("felb", "felb._lazy", "felb._version", "felb.errors", "felb.records"),
        *("felb.secure_sum", "felb.secure_sum.keys"),  # by which a key is derived
        *("felb_sites", "felb_sites.carrier", "felb_sites.sockets", "felb_sites.keys", "felb_sites.keys.identity"),
        *("felb_sites.courier", "felb_sites.courier.process"),
    }
    assert not {"numpy", "zipfile", "tarfile", "sqlite3", "multiprocessing"} & set(found)


def test_resident_memory_is_below_60_mb(world):
    world.relay.kept = [(1, b"x")]
    world.relay.start()
    world.vault.start()
    world.carry()
    wait_for(lambda: world.vault.got)
    lines = Path(f"/proc/{world.process.pid}/status").read_text().splitlines()
    resident = next(int(line.split()[1]) for line in lines if line.startswith("VmRSS"))
    assert resident < 60_000


def test_the_queue_has_an_end(monkeypatch):
    monkeypatch.setattr(process, "MOST_WAITING", 10)

    async def play():
        queue = process.Queue()
        await queue.put(b"x" * 50)  # one of any size
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(queue.put(b"y"), 0.05)
        assert await queue.take() == (b"x" * 50,)
        await asyncio.wait_for(queue.put(b"y"), 5)
        assert await queue.take() == (b"y",)

    asyncio.run(play())


def test_a_batch_is_bounded_but_never_empty(monkeypatch):
    monkeypatch.setattr(process, "MOST_WAITING", 10)
    assert process.first_batch((b"x" * 50, b"y")) == (b"x" * 50,)
    assert process.first_batch((b"x" * 5, b"y" * 5, b"z")) == (b"x" * 5, b"y" * 5)
    assert len(process.first_batch((b"",) * 100)) == 64


def test_a_pinned_certificate_leaves_no_room_for_authorities(world):
    world.write(ca="tls.pem")
    world.carry()
    assert world.process.wait(20) == 1
    wait_for(lambda: world.events() == ["error"])
