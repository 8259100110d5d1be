"""Workers that are killed or come late, and a scheduler that dies: the result is that of an undisturbed run."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import dask_cluster
import numpy as np
import pytest
from test_transport_contract import Plan
from waiting import PATIENCE, wait_for

import felb
from felb.data import partition, planted
from felb.data.partition import split
from felb.engines import local
from felb.engines.dask import cluster as runner
from felb.errors import ConnectionLostError
from felb.runs.execute import fit, resume, unfinished_job
from felb.runs.job import Job

DATA = planted(240, 40, 4, noise=0.05, seed=1)
SHARDS, _ = split(DATA.A, partition.uneven(240, 5, seed=1))

STEADY = {"max_iter": 14, "l1": 0.0, "l2": 0.0, "tol": 0.0}
"""Without a pull towards Boolean values nothing settles before the last round."""


def start(*arguments):
    quiet = {**os.environ, "DASK_DISTRIBUTED__LOGGING__DISTRIBUTED": "error", "NUMBA_NUM_THREADS": "1"}
    return subprocess.Popen(
        [sys.executable, "-m", *arguments], env=quiet, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )


class Cluster:
    """A scheduler and workers without anybody who would start them again, as processes of this machine."""

    def __init__(self, folder):
        self._file = Path(folder) / "scheduler.json"
        self._place = str(folder)
        self.scheduler = start(
            "distributed.cli.dask_scheduler", "--port", "0", "--no-dashboard", "--scheduler-file", str(self._file),
            "--host", "127.0.0.1",
        )  # fmt: skip
        self.workers = []

    def add_worker(self):
        options = {"scheduler-file": str(self._file), "nthreads": "1", "local-directory": self._place}
        words = [word for name, value in options.items() for word in (f"--{name}", value)]
        self.workers.append(start("distributed.cli.dask_worker", "--no-nanny", "--no-dashboard", *words))

    def client(self):
        from distributed import Client

        wait_for(self._file.is_file, self.scheduler)
        return Client(scheduler_file=str(self._file), timeout=PATIENCE)

    def close(self):
        for process in (*self.workers, self.scheduler):
            process.kill()
            process.wait()


@pytest.fixture
def cluster(tmp_path):
    place = tmp_path / "cluster"
    place.mkdir()
    made = Cluster(place)
    made.add_worker()
    yield made
    made.close()


def test_a_late_worker_and_a_killed_one_change_nothing(cluster):
    plans = [Plan("felb-mu", {"max_iter": 14}), Plan("scaffold", {"max_iter": 6})]
    with cluster.client() as client:
        blocks = dask_cluster.on_workers(client, SHARDS)

        def disturb(progress):
            if len(progress.history) == 2:
                cluster.add_worker()
                client.wait_for_workers(2, timeout=PATIENCE)
            if len(progress.history) == 9:
                cluster.workers[0].send_signal(signal.SIGKILL)

        for plan, on_round in zip(plans, (disturb, lambda _: None), strict=True):
            here = local.run(plan.algorithm(), SHARDS, seed=plan.seed)
            there = runner.run(
                plan.algorithm(), blocks, client=client, seed=plan.seed, on_round=on_round, persist_every=4
            )
            np.testing.assert_array_equal(there.outcome.components, here.outcome.components)
            np.testing.assert_array_equal(there.outcome.relaxed, here.outcome.relaxed)
            assert list(there.history) == list(here.history)
            for name, U in here.assignments.items():
                np.testing.assert_array_equal(there.assignments[name], U)
        assert cluster.workers[0].wait() == -signal.SIGKILL


@pytest.mark.filterwarnings("ignore::felb.ConvergenceWarning")
def test_a_run_goes_on_at_another_cluster_after_its_scheduler_died(cluster, tmp_path):
    for name, shard in SHARDS.items():
        shard.save(tmp_path / f"part-{name}.felb")
    with cluster.client() as client:
        address = client.scheduler.address
    job = Job(str(tmp_path / "part-*.felb"), "felb", 4, parameters=STEADY, dask=address, block_rows=40)

    def die(progress):
        if len(progress.history) == 12:
            cluster.scheduler.send_signal(signal.SIGKILL)

    with pytest.raises(ConnectionLostError, match=r"round \d+: .*scheduler"):
        fit(job, tmp_path / "out", on_round=die)
    assert unfinished_job(tmp_path / "out") is not None
    rounds = []
    with dask_cluster.threads(1) as other:
        result = resume(
            tmp_path / "out", dask=other.scheduler.address, on_round=lambda progress: rounds.append(progress)
        )
    blocks = [part for shard in sorted(SHARDS) for part in SHARDS[shard].row_blocks(40)]
    undisturbed = felb.FELB(4, **STEADY, random_state=0).fit(blocks)
    np.testing.assert_array_equal(result.components, undisturbed.components_)
    assert list(result.history) == list(undisturbed.history_)
    assert len(rounds) < len(result.history), "it goes on from the journal"
    assert sorted(result.clients.values()) == sorted(len(block) for block in blocks)
    assert not (tmp_path / "out" / "states").exists()
