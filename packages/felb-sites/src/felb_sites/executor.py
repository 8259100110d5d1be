"""The courier: FLARE's side of a site, which carries messages to the vault and back; named by path in a job.

It runs in FLARE's processes, which have the site's TLS key and a connection to the outside, and nothing else. It holds
no data and reads no policy; what it is told by the vault is a word of a closed list, and arrays that the gate let out.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nvflare.apis.executor import Executor
from nvflare.apis.fl_constant import FLContextKey, ReturnCode
from nvflare.apis.shareable import Shareable, make_reply

from felb_sites.messages import CODE, HAVE, ROUND, TASK, VALUES, vault_message
from felb_sites.vault_socket import ask
from felb_sites.vault_words import COURIER_FILE, OK, Reply

if TYPE_CHECKING:
    from nvflare.apis.fl_context import FLContext
    from nvflare.apis.signal import Signal


class SiteExecutor(Executor):
    """Carries a run's messages.

    Parameters
    ----------
    plan : arguments of the job, as they came; the vault checks them
    """

    def __init__(self, plan: Any = None, **others: Any) -> None:
        super().__init__()
        self._plan, self._others = plan, bool(others)

    def execute(self, task_name: str, shareable: Shareable, fl_ctx: FLContext, abort_signal: Signal) -> Shareable:  # noqa: ARG002
        """Carry one message; nothing is logged here, because FLARE's logs of errors can be asked for from outside."""
        try:
            reply = self._carry(task_name, shareable, fl_ctx)
        except Exception:
            reply = Reply("failed")
        answer = make_reply(ReturnCode.OK if reply.code == OK else ReturnCode.EXECUTION_EXCEPTION)
        answer[CODE], answer[HAVE] = reply.code, reply.have
        if reply.code == OK:
            answer.update({ROUND: shareable.get(ROUND), VALUES: reply.values})
        return answer

    def _carry(self, task_name: str, shareable: Shareable, fl_ctx: FLContext) -> Reply:
        if task_name != TASK or self._others:
            return Reply("plan")
        local = Path(fl_ctx.get_prop(FLContextKey.WORKSPACE_OBJECT).get_site_config_dir())
        socket = json.loads((local / COURIER_FILE).read_text(encoding="utf-8"))["socket"]
        return ask(socket, *vault_message(shareable, self._plan, site=str(fl_ctx.get_identity_name())))
