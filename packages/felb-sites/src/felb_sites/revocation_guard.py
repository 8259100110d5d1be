"""The server's side of revocation: a component that reads the signed list while the server runs.

FLARE checks a certificate once, when a site registers, and then knows it by a token. The guard remembers the key behind
every token, so that a list that names a key ends the sessions of that key, also those that outlive a restart of the
server. Without a list that verifies, nobody is heard.
"""

from __future__ import annotations

import hashlib
import json
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nvflare.apis.event_type import EventType
from nvflare.apis.fl_component import FLComponent
from nvflare.apis.fl_constant import FLContextKey
from nvflare.fuel.f3.cellnet.defs import (
    CellChannel,
    CellChannelTopic,
    IdentityChallengeKey,
    MessageHeaderKey,
    MessagePropKey,
)
from nvflare.fuel.f3.cellnet.defs import ReturnCode as CellReturnCode
from nvflare.fuel.f3.cellnet.utils import make_reply
from nvflare.private.defs import CellMessageHeaderKeys
from nvflare.private.fed.utils.identity_utils import load_crt_chain_bytes

from felb.errors import InputError
from felb_sites.certificates import key_fingerprint
from felb_sites.hardening import write_json
from felb_sites.revocation import REVOCATIONS, Revocations

if TYPE_CHECKING:
    from nvflare.apis.fl_context import FLContext

SESSIONS = "sessions.json"
LOOK_EVERY = 1.0
"""Seconds between two looks at the list."""
MOST_SESSIONS = 10_000
REFUSED = "this site is not accepted"


class RevocationGuard(FLComponent):
    """Refuses names and keys of the list, at registration and for every message after it.

    Parameters
    ----------
    folder : the server's kit; holds the list, the root certificate and the keys behind the sessions
    """

    def __init__(self, folder: str) -> None:
        super().__init__()
        self._folder = Path(folder)
        self._sessions: dict[str, str] = {}
        self._listed: Revocations | None = None
        self._stamp: tuple[int, int] | None = None
        self._server: Any = None
        self._ended = threading.Event()
        self._lock = threading.Lock()

    def handle_event(self, event_type: str, fl_ctx: FLContext) -> None:
        """Begin to guard when the server starts, before it takes registrations."""
        if event_type == EventType.SYSTEM_BOOTSTRAP:
            self.install(fl_ctx.get_prop(FLContextKey.SITE_OBJ))
        elif event_type == EventType.SYSTEM_END:
            self._ended.set()

    def install(self, server: Any) -> None:
        """Take a place in front of a server's registration and of all messages to it."""
        self._server = server
        path = self._folder / SESSIONS
        if path.is_file():
            self._sessions = dict(json.loads(path.read_text(encoding="utf-8")))
        self.look()
        manager = server.client_manager
        register = manager.authenticated_client

        def authenticated_client(request: Any, fl_ctx: Any, client_type: Any) -> Any:
            key = certified_key(request)
            if self.refuses(request.get_header(CellMessageHeaderKeys.CLIENT_NAME), key):
                fl_ctx.set_prop(FLContextKey.UNAUTHENTICATED, REFUSED, sticky=False)
                self.logger.warning("registration of a revoked site or key was refused")
                return None
            client = register(request, fl_ctx, client_type)
            if client is not None and key is not None:
                self._remember(client.token, key)
            return client

        manager.authenticated_client = authenticated_client
        server.cell.core_cell.add_incoming_filter(channel="*", topic="*", cb=self.filter_message)
        threading.Thread(target=self._watch, name="felb revocations", daemon=True).start()

    def refuses(self, name: str | None, key: str | None) -> bool:
        """Whether the list in force refuses a name or a key; without a list, everybody."""
        return self._listed is None or self._listed.refuses(name, key)

    def filter_message(self, message: Any) -> Any:
        """Return a refusal for a message of a revoked site, None for all others."""
        channel, topic = message.get_header(MessageHeaderKey.CHANNEL), message.get_header(MessageHeaderKey.TOPIC)
        if channel == CellChannel.SERVER_MAIN and topic in (CellChannelTopic.Challenge, CellChannelTopic.Register):
            return None  # these carry a certificate, which is looked at in its place
        token = message.get_header(CellMessageHeaderKeys.TOKEN)
        certified = message.get_prop(MessagePropKey.COMMON_NAME)  # a message may say another name, or none
        names = {message.get_header(CellMessageHeaderKeys.CLIENT_NAME), certified} - {None}
        if any(self.refuses(name, self._sessions.get(_hashed(token))) for name in names):
            return make_reply(CellReturnCode.UNAUTHENTICATED, REFUSED)
        return None

    def look(self) -> None:
        """Read the list if it has changed, and end the sessions of those who are on it."""
        path = self._folder / REVOCATIONS
        try:
            stat = path.stat()
            stamp = (stat.st_mtime_ns, stat.st_ino)
            if stamp == self._stamp:
                return
            listed = Revocations.read(path, (self._folder / "startup" / "rootCA.pem").read_bytes())
        except (OSError, InputError) as error:
            if self._stamp is not None or self._listed is None:
                self._stamp = None
                kept = "nobody is accepted" if self._listed is None else "the list before it stays in force"
                self.logger.error(f"the list of revocations cannot be used ({error}); {kept}")
            return
        self._stamp = stamp
        if self._listed is not None and listed.number < self._listed.number:
            self.logger.error("the list of revocations is older than the one in force, which stays")
            return
        before, self._listed = self._listed, listed
        self._apply(listed, before)

    def _apply(self, listed: Revocations, before: Revocations | None) -> None:
        manager, engine = self._server.client_manager, self._server.engine
        names = set(listed.names)
        gone = [name for name in names if not manager.is_client_disabled(name)]
        back = [name for name in (() if before is None else before.names) if name not in names]
        if before is None:
            back = [name for name in manager.disabled_clients if name not in names]
        if gone:
            engine.disable_clients(sorted(gone))
        if back:
            engine.enable_clients(sorted(back))
        tokens = [token for token in list(manager.clients) if self._sessions.get(_hashed(token)) in listed.keys]
        if tokens:
            engine.remove_clients(tokens)
        self.logger.info(
            f"revocations: list {listed.number} in force, {len(listed.names)} names, {len(listed.keys)} keys"
        )

    def _watch(self) -> None:
        while not self._ended.wait(LOOK_EVERY):
            try:
                self.look()
            except Exception as error:  # a look that fails must not be the last one
                self.logger.error(f"the list of revocations could not be applied ({type(error).__name__})")

    def _remember(self, token: str, key: str) -> None:
        with self._lock:
            kept = list(self._sessions.items())[-MOST_SESSIONS + 1 :]
            self._sessions = {**dict(kept), _hashed(token): key}
            write_json(self._folder / SESSIONS, self._sessions)


def certified_key(request: Any) -> str | None:
    """Return the fingerprint of the key in a registration; None where there is no certificate that can be read."""
    try:
        return key_fingerprint(load_crt_chain_bytes(request.payload[IdentityChallengeKey.CERT])[0].public_key())
    except (KeyError, TypeError, ValueError, AttributeError, IndexError):
        return None


def _hashed(token: Any) -> str:
    """Tokens are credentials: only a digest of them is kept."""
    return hashlib.sha256(str(token).encode()).hexdigest()
