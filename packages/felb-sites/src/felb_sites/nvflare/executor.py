"""The end at a site: the courier of felb inside a FLARE client; its requests to the relay travel as FLARE messages.

A job tells it nothing: the folder of the courier is named by ``felb.json``, which the site writes to the folder
``local`` of its FLARE client.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import msgspec
from nvflare.apis.executor import Executor
from nvflare.apis.fl_constant import FLContextKey, ReturnCode
from nvflare.apis.shareable import Shareable, make_reply

from felb.errors import FederationError, InputError
from felb_sites.courier.process import Courier
from felb_sites.courier.process import Settings as CourierSettings

if TYPE_CHECKING:
    from nvflare.apis.fl_context import FLContext
    from nvflare.apis.signal import Signal

TASK, TOPIC, SETTINGS = "felb_carry", "felb.relay", "felb.json"
PATH, TOKEN, CONTENT, STATUS = "path", "token", "content", "status"
"""Of a request to the relay, and of its answer."""
REQUESTS = 8
"""At a time; a poll that was given up takes a place until the relay has answered it."""
LOOK_SECONDS, PAUSE_SECONDS = 0.2, 10.0
"""Between two looks whether the job has ended, and before a courier that could not start is asked for again."""

logging.getLogger("httpx").setLevel(logging.WARNING)  # it would write a line for every request


class Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What ``felb.json`` says.

    Parameters
    ----------
    courier : path of the courier's folder; ``{client}`` in it stands for the name of the FLARE client
    one_user : whether the FLARE client may run as root or as the user of the vault; for tests
    """

    courier: str
    one_user: bool = False


class FlareTransport(httpx.AsyncBaseTransport):
    """Sends the requests of a courier to the controller of the job, which asks the relay.

    Parameters
    ----------
    engine : of the FLARE client
    """

    def __init__(self, engine: Any) -> None:
        self._engine = engine
        self._threads = ThreadPoolExecutor(REQUESTS, "felb requests")

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Return the answer of the relay."""
        asked = Shareable()
        asked[PATH] = request.url.raw_path.decode("ascii")
        asked[TOKEN] = request.headers.get("authorization", "").removeprefix("Bearer ")
        asked[CONTENT] = await request.aread() if request.method == "POST" else None
        seconds = request.extensions["timeout"]["read"]
        answer = await asyncio.get_running_loop().run_in_executor(self._threads, self._ask, asked, seconds)
        status, content = answer.get(STATUS), answer.get(CONTENT)
        if answer.get_return_code() != ReturnCode.OK or not isinstance(status, int) or not isinstance(content, bytes):
            raise httpx.ConnectError("the FLARE server did not answer", request=request)
        return httpx.Response(status, stream=httpx.ByteStream(content), request=request)

    async def aclose(self) -> None:
        """Begin no further request."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _ask(self, asked: Shareable, seconds: float) -> Shareable:
        with self._engine.new_context() as fl_ctx:
            replies = self._engine.send_aux_request(
                targets=None, topic=TOPIC, request=asked, timeout=seconds, fl_ctx=fl_ctx, optional=True
            )
        return next(iter((replies or {}).values()), make_reply(ReturnCode.COMMUNICATION_ERROR))


class CourierExecutor(Executor):
    """Carries the envelopes of its site for as long as the job lasts."""

    def execute(self, task_name: str, shareable: Shareable, fl_ctx: FLContext, abort_signal: Signal) -> Shareable:
        """Carry until the job ends; a site that is not ready says why in its own log, and is asked again."""
        del shareable
        if task_name != TASK:
            return make_reply(ReturnCode.TASK_UNKNOWN)
        try:
            asyncio.run(self._carry(fl_ctx, abort_signal))
        except (FederationError, InputError, OSError) as error:
            self.log_error(fl_ctx, f"felb: {error}")
        except Exception as error:  # its text could repeat what the relay or the vault has said
            self.log_error(fl_ctx, f"felb: the courier has ended with {type(error).__name__}")
        else:
            return make_reply(ReturnCode.OK)
        asyncio.run(_wait_for(abort_signal, PAUSE_SECONDS))
        return make_reply(ReturnCode.EXECUTION_EXCEPTION)

    async def _carry(self, fl_ctx: FLContext, abort_signal: Signal) -> None:
        local = Path(fl_ctx.get_prop(FLContextKey.WORKSPACE_OBJECT).get_site_config_dir())
        folder = find_courier(local / SETTINGS, client=fl_ctx.get_identity_name())
        courier = asyncio.create_task(Courier(folder, FlareTransport(fl_ctx.get_engine())).run())
        ended = asyncio.create_task(_wait_for(abort_signal))
        await asyncio.wait({courier, ended}, return_when=asyncio.FIRST_COMPLETED)
        ended.cancel()
        courier.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await courier


def find_courier(path: Path, *, client: str) -> Path:
    """Return the courier's folder of a FLARE client, whose user must be neither root nor that of the vault."""
    try:
        settings = msgspec.json.decode(path.read_bytes(), type=Settings)
    except (OSError, msgspec.MsgspecError) as error:
        raise InputError(f'{path} cannot be read; write {{"courier": "FOLDER OF THE COURIER"}} to it') from error
    folder = Path(settings.courier.replace("{client}", client))
    socket = folder / CourierSettings.read(folder).socket
    try:
        owner = socket.stat().st_uid
    except OSError as error:
        raise InputError(f"the vault of {client} does not run, or this user may not get to its socket") from error
    if os.geteuid() in (0, owner) and not settings.one_user:
        raise InputError(
            "the FLARE client must run neither as root nor as the user of the vault: whoever administers FLARE can run "
            "code as its user; start it as the user of the courier"
        )
    return folder


async def _wait_for(signal: Signal, seconds: float = float("inf")) -> None:
    while not signal.triggered and seconds > 0:
        await asyncio.sleep(LOOK_SECONDS)
        seconds -= LOOK_SECONDS
