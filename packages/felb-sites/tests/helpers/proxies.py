"""What stands between a site and a relay: an HTTP proxy that tunnels, and a reverse proxy that ends TLS."""

from __future__ import annotations

import asyncio
import ssl
import threading

from felb_sites.coordinator.local import find_free_port
from felb_sites.relay.process import create_certificate


class Proxies:
    """Both kinds, in a thread of their own within ``with``.

    Parameters
    ----------
    folder : a new one, for the certificate of the reverse proxy
    relay : port of the relay

    Attributes
    ----------
    connect, reverse : ports
    tunnels, requests : how many connections each has forwarded
    """

    def __init__(self, folder, relay):
        folder.mkdir()
        create_certificate(folder, "localhost")
        self.certificate, self._key, self._relay = folder / "tls.pem", folder / "tls.key", relay
        self.connect, self.reverse = find_free_port(), find_free_port()
        self.tunnels = self.requests = 0
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def __enter__(self):
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._start(), self._loop).result(30)
        return self

    def __exit__(self, *_):
        asyncio.run_coroutine_threadsafe(self._stop(), self._loop).result(30)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(30)
        self._loop.close()

    async def _start(self):
        own = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        own.load_cert_chain(self.certificate, self._key)
        self._servers = [
            await asyncio.start_server(self._tunnel, "127.0.0.1", self.connect),
            await asyncio.start_server(self._forward, "127.0.0.1", self.reverse, ssl=own),
        ]

    async def _stop(self):
        for server in self._servers:
            server.close()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    async def _tunnel(self, reader, writer):
        """Answer ``CONNECT host:port`` and pass bytes on."""
        head = await reader.readuntil(b"\r\n\r\n")
        verb, target, _ = head.split(b" ", 2)
        assert verb == b"CONNECT"
        host, _, port = target.decode().rpartition(":")
        self.tunnels += 1
        there = await asyncio.open_connection(host, int(port))
        writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        await exchange((reader, writer), there)

    async def _forward(self, reader, writer):
        """End TLS here, and begin another one to the relay."""
        self.requests += 1
        inside = ssl.create_default_context()
        inside.check_hostname, inside.verify_mode = False, ssl.CERT_NONE
        await exchange((reader, writer), await asyncio.open_connection("127.0.0.1", self._relay, ssl=inside))


async def exchange(here, there):
    """Pass bytes between two connections until either ends."""

    async def pass_on(reader, writer):
        try:
            while data := await reader.read(1 << 16):
                writer.write(data)
                await writer.drain()
        except OSError:
            pass
        finally:
            writer.close()

    await asyncio.gather(pass_on(here[0], there[1]), pass_on(there[0], here[1]))
