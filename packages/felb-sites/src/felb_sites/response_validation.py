"""Response validation at the coordinator: every response is read within bounds and checked before it enters a sum."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from felb.errors import FederationError
from felb.federated import tasks
from felb.federated.journal import MAX_BYTES, unpack
from felb.federated.protocol import Release

if TYPE_CHECKING:
    from felb.federated.protocol import Request


class ResponseValidator(tasks.ResponseValidator):
    """Reads responses from bytes, and checks them as the algorithm declares."""

    def admit(self, data: Any, request: Request, *, site: str) -> Release:
        """Return a site's response if it may enter the sum; otherwise raise an error that names the site."""
        try:
            values = unpack(data, limit=min(self.most_bytes(request), MAX_BYTES))
        except FederationError as error:
            raise FederationError(f"the response of {site} to round {request.round} was rejected: {error}") from error
        self.check(values, request, client=site)
        return Release(values)
