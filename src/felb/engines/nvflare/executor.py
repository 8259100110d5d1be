"""The FLARE executor at a site: passes requests to the site session and returns responses; a job names it by path."""

from __future__ import annotations

import contextlib
import errno
import traceback
from typing import TYPE_CHECKING, Any

from nvflare.apis.event_type import EventType
from nvflare.apis.executor import Executor
from nvflare.apis.fl_constant import FLContextKey, ReturnCode
from nvflare.apis.shareable import Shareable, make_reply

from felb.engines.nvflare.messages import REASON, ROUND, RUN, TASK, VALUES, read_request
from felb.engines.nvflare.refusals import note_refusal
from felb.engines.nvflare.site_policy import Refusal, SiteConfig
from felb.engines.nvflare.site_session import SiteSession
from felb.errors import FelbError
from felb.federated.wire import pack

if TYPE_CHECKING:
    from nvflare.apis.fl_context import FLContext
    from nvflare.apis.signal import Signal


def told(error: Exception) -> str:
    """Return what the coordinator may know of an error; all but refusals may quote the data."""
    if isinstance(error, Refusal):
        return str(error)
    if isinstance(error, OSError) and error.errno is not None:
        return f"{type(error).__name__} {errno.errorcode.get(error.errno, '')}; see the site's log"
    return f"{type(error).__name__}; see the site's log"


class SiteExecutor(Executor):
    """Plays a site's part of a run.

    Parameters
    ----------
    plan : arguments of the job, as they came; the site session checks them
    """

    def __init__(self, plan: Any = None, **others: Any) -> None:
        super().__init__()
        self._plan, self._others = plan, sorted(others)
        self._session: SiteSession | None = None

    def execute(self, task_name: str, shareable: Shareable, fl_ctx: FLContext, abort_signal: Signal) -> Shareable:  # noqa: ARG002
        """Answer one request; an error goes to this site's log, and only its kind to the coordinator."""
        try:
            if task_name != TASK or self._others:
                raise Refusal("this site plays plans of felb and takes no other arguments")
            if self._session is None:
                self._session = SiteSession(fl_ctx.get_identity_name(), self._plan, self._config(fl_ctx))
            request = read_request(shareable, run_id=self._session.plan.run_id)
            values = self._session.answer(request)
        except Exception as error:
            self.log_error(fl_ctx, f"felb: no answer ({error})\n{traceback.format_exc()}")
            if isinstance(error, Refusal):
                with contextlib.suppress(OSError, FelbError):  # the refusal stands, noted or not
                    note_refusal(self._config(fl_ctx).state, self._plan, str(error))
            reply = make_reply(ReturnCode.EXECUTION_EXCEPTION)
            reply[REASON] = told(error)
            return reply
        answer = make_reply(ReturnCode.OK)
        answer.update({RUN: self._session.plan.run_id, ROUND: request.round, VALUES: pack(values)})
        return answer

    @staticmethod
    def _config(fl_ctx: FLContext) -> SiteConfig:
        return SiteConfig.load(fl_ctx.get_prop(FLContextKey.WORKSPACE_OBJECT).get_site_config_dir())

    def handle_event(self, event_type: str, fl_ctx: FLContext) -> None:
        """Let go of the data at the end of a job."""
        if event_type == EventType.END_RUN:
            self._session = None
        super().handle_event(event_type, fl_ctx)
