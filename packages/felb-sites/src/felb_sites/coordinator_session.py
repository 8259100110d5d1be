"""The connection of the coordinator to its server: list sites, submit a job, query its state."""

from __future__ import annotations

import contextlib
import io
import logging
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from felb.errors import FederationError
from felb_sites.flare import require_flare
from felb_sites.flare_job import write_job
from felb_sites.provisioning import PERSON

if TYPE_CHECKING:
    from felb_sites.provisioning import Coordinator
    from felb_sites.run_plan import Plan
    from felb_sites.terms import Terms

CONNECT_SECONDS = 5.0
ENDED = ("FINISHED", "FAILED", "ABORTED")


class Unreachable(FederationError):
    """The server did not answer; it may be restarting."""


class Line:
    """A connection that is made anew after the server was away; every failure of it is `Unreachable`."""

    def __init__(self, coordinator: Coordinator) -> None:
        require_flare()
        self._coordinator = coordinator
        self._session: Any = None
        logging.getLogger("nvflare").setLevel(logging.ERROR)

    def __enter__(self) -> Line:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def sites(self) -> list[str]:
        """Return the sites that are connected."""
        return sorted(self.heard())

    def heard(self) -> dict[str, float]:
        """Return when each connected site was last heard; one that was cut off stays in the list for a while."""
        return {client.name: float(client.last_connect_time or 0) for client in self._ask("get_connected_client_list")}

    def submit(self, plan: Plan, terms: Terms, **options: Any) -> str:
        """Send a job and return FLARE's name for it; `options` are those of `write_job`."""
        with tempfile.TemporaryDirectory() as folder:
            job = write_job(Path(folder) / "job", plan, terms, **options)
            return str(self._ask("submit_job", str(job)))

    def submit_folder(self, folder: str) -> str:
        """Send a job that is written already."""
        return str(self._ask("submit_job", folder))

    def ended(self, job: str) -> str | None:
        """Return how a job ended according to FLARE; None while it runs, or while FLARE believes so."""
        status = self._ask("get_job_status", job)
        return str(status) if status and str(status).startswith(ENDED) else None

    def abort(self, job: str) -> None:
        """Stop a job if it runs."""
        with contextlib.suppress(FederationError):  # it ended, or is not known to a server that was restarted
            self._ask("abort_job", job)

    def wait(self, seconds: float) -> None:
        """Wait for the server to be reachable."""
        end = time.monotonic() + seconds
        while True:
            try:
                self.sites()
            except Unreachable:
                if time.monotonic() > end:
                    raise
                time.sleep(1.0)
            else:
                return

    def close(self) -> None:
        """Hang up."""
        session, self._session = self._session, None
        if session is not None:
            try:
                session.close()
            except Exception as error:  # the other end may be gone
                logging.getLogger(__name__).debug("closing: %s", error)

    def _ask(self, what: str, *arguments: Any) -> Any:
        from nvflare.fuel.flare_api import api_spec
        from nvflare.fuel.flare_api.flare_api import new_secure_session

        try:
            if self._session is None:
                kit = str(self._coordinator.person)
                with contextlib.redirect_stdout(io.StringIO()):  # it prints its progress
                    self._session = new_secure_session(PERSON, kit, timeout=CONNECT_SECONDS, auto_login_max_tries=1)
            return getattr(self._session, what)(*arguments)
        except (api_spec.AuthorizationError, api_spec.InvalidJobDefinition, api_spec.AuthenticationError) as error:
            raise FederationError(f"the server refused: {error}") from error
        except (api_spec.JobNotFound, api_spec.JobNotRunning) as error:
            raise FederationError(str(error)) from error
        except Exception as error:
            self.close()
            invitation = self._coordinator.invitation
            raise Unreachable(
                f"the server at {invitation.host}:{invitation.port} does not answer ({error}); "
                f"start it with `felb federation start`"
            ) from error
