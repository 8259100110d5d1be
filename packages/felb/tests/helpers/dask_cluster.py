"""A Dask cluster within the process of the tests, and blocks on it."""

from __future__ import annotations

import warnings
from contextlib import contextmanager

from felb.engines.dask.worker import identity


@contextmanager
def threads(n_workers=2):
    """Workers that are threads of this process: quick to start, enough for all that is not about dying."""
    import dask
    from distributed import Client

    quiet = {"distributed.admin.log-format": "%(message)s", "distributed.worker.memory.spill": False}
    with warnings.catch_warnings(), dask.config.set(quiet):
        warnings.simplefilter("ignore")  # Dask's own, about ports and about work that it finds too short or too large
        with Client(
            processes=False, n_workers=n_workers, threads_per_worker=1, dashboard_address=":0", set_as_default=True
        ) as client:
            yield client


def on_workers(client, shards):
    """Send rows that this process holds to the workers."""
    return {name: client.submit(identity, shard, pure=False) for name, shard in shards.items()}
