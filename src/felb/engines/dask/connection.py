"""The client of a Dask cluster: the current one, or a new one by its address; and what its failures mean."""

from __future__ import annotations

import logging
import os
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from felb.errors import ConnectionLostError, FederationError, FelbError, InputError, missing_extra

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from distributed import Client, Future

LOCAL = "local"
"""In place of an address: a cluster of this machine, one process for each processor."""

CONNECT_SECONDS = 10
"""How long to wait for a scheduler."""

WORKER_SECONDS = 30
"""How long to wait for a first worker; batch systems take their time."""

POLL_SECONDS = 2
"""How often to look whether the scheduler is still there."""

START = "start one, from distributed import Client; client = Client(), and call fit again"


def has_client() -> bool:
    """Tell whether there is a current client, without loading Dask."""
    if "distributed" not in sys.modules:
        return False
    return _current() is not None


def current_client() -> Client:
    """Return the client that Dask takes for the current one: of this worker, of a ``with``, or the last one made."""
    try:
        import distributed  # noqa: F401
    except ImportError as error:
        missing_extra("data in Dask blocks", "dask", error)
    client = _current()
    if client is None:
        raise InputError(f"there is no Dask client that could compute on these blocks; {START}")
    check_alive(client)
    return client


def _current() -> Client | None:
    from distributed import get_client

    try:
        return get_client()
    except ValueError:
        return None


@contextmanager
def connected(address: str) -> Iterator[Client]:
    """Connect to the scheduler at an address such as ``tcp://10.0.0.1:8786``, or start a cluster here (``local``)."""
    try:
        from distributed import Client, LocalCluster
    except ImportError as error:
        missing_extra("--dask", "dask", error)
    if address == LOCAL:
        workers = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        with (
            LocalCluster(
                n_workers=workers, threads_per_worker=1, dashboard_address=":0", silence_logs=logging.ERROR
            ) as cluster,
            Client(cluster) as client,
        ):
            yield client
        return
    try:
        client = Client(address, timeout=CONNECT_SECONDS)
    except (OSError, ValueError, TypeError) as error:
        raise InputError(
            f"no Dask scheduler answers at {address!r} ({_reason(error)}); check the address, which looks like "
            "tcp://host:8786, or use 'local'"
        ) from error
    with client:
        yield client


def check_alive(client: Client) -> None:
    """Raise if the client has no scheduler, or the scheduler no workers."""
    if client.status != "running":
        raise FederationError(f"the Dask client is {client.status}: its scheduler is gone; {START}")
    try:
        client.wait_for_workers(1, timeout=WORKER_SECONDS)
    except TimeoutError as error:
        raise FederationError(
            f"the Dask scheduler at {_address(client)} has no workers; start some: dask worker {_address(client)}"
        ) from error


@contextmanager
def failures_explained(client: Client, what: str) -> Iterator[None]:
    """Turn what Dask raises when a cluster fails into errors of felb; errors of felb from a worker come through."""
    from distributed import KilledWorker

    try:
        yield
    except ConnectionLostError as error:
        raise ConnectionLostError(f"{what}: the Dask scheduler at {_address(client)} was lost; {error}") from error
    except FelbError:
        raise
    except KilledWorker as error:
        raise ConnectionLostError(
            f"{what}: several workers died one after the other over the same block ({_reason(error)}), perhaps for "
            "want of memory; use smaller blocks or workers with more memory"
        ) from error
    except Exception as error:
        # A lost scheduler shows as a cancelled future, as a closed connection, or as a timeout.
        if client.status == "running" and not _is_cancelled(error):
            raise
        raise ConnectionLostError(
            f"{what}: the Dask scheduler at {_address(client)} was lost ({_reason(error)}); start it again, then "
            "repeat the call, or go on with --resume"
        ) from error


def gathered(client: Client, futures: Sequence[Future]) -> list[Any]:
    """Return the results of futures; unlike Dask's own function it does not wait for a scheduler that is gone."""
    from distributed import wait

    while True:
        if client.status != "running":
            raise ConnectionLostError(f"the Dask client is {client.status}: its scheduler is gone; {START}")
        try:
            wait(list(futures), timeout=POLL_SECONDS)
            return list(client.gather(list(futures)))
        except TimeoutError:
            continue


def _is_cancelled(error: Exception) -> bool:
    return "Cancelled" in type(error).__name__ or "CommClosed" in type(error).__name__


def _address(client: Client) -> Any:
    return getattr(client.scheduler, "address", None) or "an unknown address"


def _reason(error: BaseException) -> str:
    return str(error).partition("\n")[0] or type(error).__name__
