"""The end at the coordinator: a FLARE controller that passes the requests of couriers on to the relay.

``python -m felb_sites.nvflare.controller INVITATION JOB`` writes a job. It names the two classes of this adapter and
contains the invitation, which is no secret; there is no code in it.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import msgspec
from nvflare.apis.controller_spec import Task
from nvflare.apis.fl_constant import ReturnCode
from nvflare.apis.impl.controller import Controller
from nvflare.apis.shareable import Shareable, make_reply

from felb.errors import FelbError, InputError
from felb_sites.courier.process import Settings, make_context
from felb_sites.keys.members import Invitation
from felb_sites.nvflare.executor import CONTENT, PATH, STATUS, TASK, TOKEN, TOPIC, CourierExecutor

if TYPE_CHECKING:
    from nvflare.apis.client import Client
    from nvflare.apis.fl_context import FLContext
    from nvflare.apis.signal import Signal

ROUTES = re.compile(r"/v1/(challenge|session|envelope|next\?after=[0-9]{1,19})")
"""What couriers ask of the relay."""
TOKENS = re.compile(r"[!-~]{0,512}")
ANSWER_SECONDS, LOOK_SECONDS, HEALTH_SECONDS = 60.0, 0.2, 5.0
"""For an answer of the relay, and between two looks whether the job was aborted, and whether the relay is there."""
PATIENCE = 3600.0
UNREACHABLE = 502
"""The status of an answer that the relay did not give."""


class RelayController(Controller):
    """Passes requests on until the job is aborted, or the relay has not answered for a long time.

    Parameters
    ----------
    invitation : to the federation, as its file says
    patience : seconds without an answer of the relay after which the job ends
    """

    def __init__(self, invitation: dict[str, str], patience: float = PATIENCE) -> None:
        super().__init__()
        trusted = {name: invitation[name] for name in ("federation", "url", "trust", "certificate")}
        settings = msgspec.convert({**trusted, "site": "", "socket": ""}, Settings)
        self._url, self._patience, self._context = settings.url, patience, make_context(settings, Path())

    def start_controller(self, fl_ctx: FLContext) -> None:
        """Do nothing: all begins with the control flow."""

    def stop_controller(self, fl_ctx: FLContext) -> None:
        """Do nothing: the relay and the vaults keep what counts."""

    def process_result_of_unknown_task(
        self, client: Client, task_name: str, client_task_id: str, result: Shareable, fl_ctx: FLContext
    ) -> None:
        """Ignore it: the envelopes of couriers are not results."""

    def control_flow(self, abort_signal: Signal, fl_ctx: FLContext) -> None:
        """Let all sites carry, also those that come later, until the job ends."""
        asyncio.run(self._serve(abort_signal, fl_ctx))

    async def _serve(self, abort_signal: Signal, fl_ctx: FLContext) -> None:
        self._loop = asyncio.get_running_loop()
        async with httpx.AsyncClient(
            base_url=self._url,
            verify=self._context,
            timeout=httpx.Timeout(ANSWER_SECONDS, connect=10.0),
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=64),
            headers={"accept-encoding": "identity", "user-agent": "felb-nvflare"},
        ) as self._http:
            fl_ctx.get_engine().register_aux_message_handler(TOPIC, self._forward)
            self.broadcast_forever(Task(TASK, Shareable()), fl_ctx)
            heard = looked = time.monotonic()
            while not abort_signal.triggered and time.monotonic() - heard < self._patience:
                await asyncio.sleep(LOOK_SECONDS)
                if time.monotonic() - looked >= HEALTH_SECONDS:
                    looked = time.monotonic()
                    status, _ = await self._ask("/v1/health", "", None)
                    heard = heard if status == UNREACHABLE else looked
            self.cancel_all_tasks(fl_ctx=fl_ctx)

    def _forward(self, topic: str, request: Shareable, fl_ctx: FLContext) -> Shareable:
        """Answer a message of a courier; it is called in threads of FLARE."""
        del topic, fl_ctx
        path, token, content = request.get(PATH), request.get(TOKEN), request.get(CONTENT)
        words = isinstance(path, str) and isinstance(token, str) and isinstance(content, bytes | None)
        if not words or not ROUTES.fullmatch(path) or not TOKENS.fullmatch(token):
            return make_reply(ReturnCode.BAD_REQUEST_DATA)
        asked = asyncio.run_coroutine_threadsafe(self._ask(path, token, content), self._loop)
        answer = make_reply(ReturnCode.OK)
        answer[STATUS], answer[CONTENT] = asked.result(2 * ANSWER_SECONDS)
        return answer

    async def _ask(self, path: str, token: str, content: bytes | None) -> tuple[int, bytes]:
        headers = {"authorization": f"Bearer {token}"} if token else {}
        try:
            answer = await self._http.request(
                "GET" if content is None else "POST", path, headers=headers, content=content
            )
        except (httpx.HTTPError, OSError):
            return UNREACHABLE, b""
        return answer.status_code, answer.content


def write_job(invitation: Path, folder: Path, *, patience: float = PATIENCE) -> None:
    """Write the job of a federation to a new folder."""
    invited = Invitation.read(invitation)
    if folder.exists():
        raise InputError(f"{folder} exists already; give a folder that does not")
    controller = f"{__spec__.name}.{RelayController.__name__}"
    executor = f"{CourierExecutor.__module__}.{CourierExecutor.__name__}"
    arguments = {"invitation": msgspec.to_builtins(invited), "patience": patience}
    config = folder / "app" / "config"
    config.mkdir(parents=True)
    files: dict[Path, dict[str, Any]] = {
        folder / "meta.json": {"name": "felb", "resource_spec": {}, "min_clients": 1, "deploy_map": {"app": ["@ALL"]}},
        config / "config_fed_server.json": {
            "format_version": 2,
            "workflows": [{"id": "felb", "path": controller, "args": arguments}],
        },
        config / "config_fed_client.json": {
            "format_version": 2,
            "executors": [{"tasks": [TASK], "executor": {"path": executor, "args": {}}}],
        },
    }
    for path, content in files.items():
        path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def main() -> None:
    """Write a job."""
    if len(sys.argv) != 3:
        raise SystemExit("give the invitation file and the folder of the job, which is made")
    try:
        write_job(Path(sys.argv[1]), Path(sys.argv[2]))
    except FelbError as error:
        raise SystemExit(str(error)) from None


if __name__ == "__main__":
    main()
