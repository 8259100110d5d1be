"""Data in Dask blocks: every kind of it is fitted on the workers as the same rows are here, and errors say where."""

import subprocess
import sys
import warnings
from dataclasses import replace

import dask.array as da
import dask.dataframe as dd
import dask_cluster
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from dask.sizeof import sizeof
from declarations import algorithm_with

import felb
from felb.data import open_blocks, planted
from felb.engines.dask import worker as worker_tasks
from felb.engines.dask.cluster import DistributedRows, run
from felb.engines.dask.worker import Held, StateFolder, load_state, respond, save_state
from felb.errors import FederationError, InputError
from felb.federated.algorithms.bmf import EFFORTS
from felb.federated.algorithms.felb import felb as felb_algorithm
from felb.federated.protocol import Release, Request, Sums, Update
from felb.federated.steps.state import ClientState
from felb.federated.tasks import TaskSpec
from felb.kernels.schedule import available_cpus

DATA = planted(300, 40, 4, noise=0.05, seed=1)
DENSE = DATA.A.toarray().astype(np.int8)
ROWS = (60, 130, 10, 100)
"""Blocks of different sizes."""
PARTS = [felb.BinaryMatrix.of(part) for part in np.split(DENSE, np.cumsum(ROWS)[:-1])]
NAMES = [f"c{i}" for i in range(40)]
QUICK = replace(EFFORTS["fast"], relaxed_rounds=5, refine_rounds=4)
"""Rounds of every kind, of which a cluster takes some milliseconds each."""


@pytest.fixture(scope="module")
def client():
    with dask_cluster.threads() as client:
        yield client


def quick(**parameters):
    return felb.FederatedBMF(4, random_state=0, effort=QUICK, objective="hamming", **parameters)


def array(values=DENSE):
    return da.from_array(values, chunks=(ROWS, values.shape[1]))


def csr():
    return array().map_blocks(sp.csr_array, dtype=np.int8)


def frame():
    whole = pd.DataFrame(DENSE, columns=NAMES)
    return dd.from_pandas(whole, npartitions=4, sort=False)


def cells():
    anndata = pytest.importorskip("anndata")
    return anndata.AnnData(csr(), var=pd.DataFrame(index=NAMES))


def cut_across():
    return array().rechunk({1: 15})


def files(folder):
    for number, part in enumerate(PARTS):
        part.save(folder / f"part-{number}.felb")
    return open_blocks(folder / "part-*.felb")


def ranges(folder):
    DATA.A.save(folder / "whole.felb")
    return open_blocks(folder / "whole.felb", rows=90)


def parquet(folder):
    for number, part in enumerate(PARTS):
        pd.DataFrame(part.toarray(), columns=NAMES).to_parquet(folder / f"part-{number}.parquet")
    return open_blocks(folder / "part-*.parquet")


@pytest.fixture(scope="module")
def centralized():
    return quick().fit(DATA.A)


@pytest.mark.parametrize("make", [array, csr, frame, cells, cut_across, files, ranges, parquet])
def test_every_kind_of_blocks_gives_what_the_rows_give_here(make, client, centralized, tmp_path):
    X = make(tmp_path) if make in (files, ranges, parquet) else make()
    model = quick().fit(X)
    np.testing.assert_array_equal(model.components_, centralized.components_)
    assert model.counts_ == centralized.counts_
    assert (getattr(model, "feature_names_in_", None) is not None) == (make in (frame, cells, parquet))
    lazy = model.transform(X)
    assert isinstance(lazy, da.Array)
    np.testing.assert_array_equal(lazy.compute(), centralized.transform(DATA.A))
    assert model.score(X) == centralized.score(DATA.A)
    # The fitted model is a plain one.
    named = pd.DataFrame(DENSE, columns=NAMES) if hasattr(model, "feature_names_in_") else DATA.A
    np.testing.assert_array_equal(model.transform(named), centralized.transform(DATA.A))


@pytest.mark.parametrize(
    "model",
    [
        felb.FELB(4, max_iter=5, random_state=3),
        felb.FELBMU(4, max_iter=5, refine=True, random_state=3),
        felb.FELB(4, max_iter=5, random_state=3, participation=felb.Participation(0.5, dropout=0.2)),
        felb.Scaffold(4, max_iter=5, random_state=3),
        felb.PostHoc(felb.Asso(4), "or", random_state=3),
    ],
    ids=["felb", "felb-mu, refined", "felb, sampled", "scaffold", "post-hoc"],
)
def test_a_block_is_a_client(model, client):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", felb.ConvergenceWarning)
        here = model.fit(PARTS)
        found = here.components_, here.relaxed_components_, here.counts_, list(here.history_)
        there = model.fit(array())
    np.testing.assert_array_equal(there.components_, found[0])
    if found[1] is not None:
        np.testing.assert_array_equal(there.relaxed_components_, found[1])
    assert (there.counts_, list(there.history_)) == found[2:]


def test_fit_transform_is_lazy_too(client, centralized):
    U = quick().fit_transform(csr())
    assert isinstance(U, da.Array)
    np.testing.assert_array_equal(U.compute(), centralized.transform(DATA.A))


def test_missing_cells_of_dense_chunks_are_unknown(client):
    values = DENSE.astype(float)
    values[::7, 3] = np.nan
    here, there = quick().fit(values), quick().fit(array(values))
    np.testing.assert_array_equal(there.components_, here.components_)
    assert there.counts_ == here.counts_
    assert there.counts_.cells == values.size - np.isnan(values).sum()


def test_a_time_limit_ends_a_run(client):
    with pytest.warns(felb.ConvergenceWarning):
        model = felb.FederatedBMF(4, random_state=0, time_limit=1e-6).fit(array())
    assert not model.complete_


def test_empty_partitions_are_left_out(client):
    whole = frame()
    assert quick().fit(whole[whole["c0"] == 1]).n_features_in_ == 40
    with pytest.raises(InputError, match="all 4 blocks"):
        quick().fit(whole[whole["c0"] == 2])


# -- privacy -----------------------------------------------------------------------------------------------------------


def whole_steps(sigma, size):
    """Noise that depends on nothing but its scale and size."""
    return np.rint(np.random.default_rng([int(1000 * sigma), size]).normal(0, sigma, size)).astype(np.int64)


@pytest.mark.parametrize("mechanism", ["cooccurrence", "statistics"])
def test_records_are_protected_by_noise_in_the_sum_of_all_blocks(mechanism, client, monkeypatch):
    monkeypatch.setattr("felb.privacy.mechanisms.discrete_gaussian", whole_steps)
    spec = felb.privacy.Privacy(8.0, 1e-5, mechanism=mechanism, rounds=3 if mechanism == "statistics" else None)
    here, there = (quick(privacy=spec).fit(X) for X in (DATA.A, array()))
    np.testing.assert_array_equal(there.components_, here.components_)
    assert there.privacy_statement_ == here.privacy_statement_
    assert there.counts_ is None


def test_clients_are_protected_block_by_block(client, monkeypatch):
    monkeypatch.setattr("felb.privacy.releases.discrete_gaussian", whole_steps)
    spec = felb.privacy.Privacy(50.0, 1e-5, unit="client", theta=5.0)
    model = felb.FELB(3, max_iter=4, privacy=spec, random_state=2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", felb.ConvergenceWarning)
        here = model.fit(PARTS).relaxed_components_
        there = model.fit(array()).relaxed_components_
    np.testing.assert_array_equal(there, here)


# -- errors ------------------------------------------------------------------------------------------------------------


def test_a_wrong_cell_is_named_by_chunk_row_and_column(client):
    values = DENSE.astype(float)
    values[195, 7] = 0.5
    with pytest.raises(InputError, match=r"chunk 2 \(its first row is row 190\): row 5, column 7 holds 0.5"):
        quick().fit(array(values))
    names = pd.DataFrame(values, columns=NAMES)
    with pytest.raises(InputError, match=r"partition 1: row \d+, column 7 \('c7'\) holds 0.5"):
        quick().fit(dd.from_pandas(names, npartitions=2))
    assert quick(binarize_threshold=0.4).fit(array(values)).n_features_in_ == 40


def test_chunks_with_different_columns_are_refused(client, tmp_path):
    ragged = da.concatenate([array(), array()[:, :30].map_blocks(lambda part: part, chunks=(ROWS, (40,)))])
    with pytest.raises(InputError, match=r"chunk 4 .* 30 columns .*chunk 0 .* 40"):
        quick().fit(ragged)
    PARTS[0].with_columns(NAMES).save(tmp_path / "a.felb")
    PARTS[1].with_columns(NAMES[::-1]).save(tmp_path / "b.felb")
    with pytest.raises(InputError, match=r"column names of .*b.felb .*a.felb"):
        quick().fit(open_blocks(tmp_path / "*.felb"))
    model = quick().fit(array())
    with pytest.raises(InputError, match="30 features"):
        model.transform(array()[:, :30]).compute()


def test_an_unreadable_file_is_named(client, tmp_path):
    blocks = files(tmp_path)
    (tmp_path / "part-2.felb").write_bytes(b"FELBMAT1 and nothing more")
    with pytest.raises(InputError, match=r"part-2.felb"):
        quick().fit(blocks)
    (tmp_path / "part-2.felb").unlink()
    with pytest.raises(InputError, match=r"cannot read .*part-2.felb"):
        quick().fit(blocks)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: open_blocks("nowhere/*.felb"), "there is no file 'nowhere/\\*.felb'"),
        (lambda: open_blocks([]), "no files were given"),
        (lambda: open_blocks("x.felb", rows=0), "at least one row"),
        (lambda: open_blocks("x.felb", groups=3), "cannot be read with groups="),
        (lambda: quick().fit(array(), groups=np.zeros(300)), "every block"),
        (lambda: quick().fit(array(), unknown=DENSE), "NaN in dense chunks"),
        (lambda: quick().fit(array()[:, 0]), "expected 2D"),
        (lambda: felb.Asso(4).fit(array()), "only the federated methods take"),
    ],
)
def test_what_cannot_be_is_refused(call, message, client):
    with pytest.raises(InputError, match=message):
        call()


def test_without_a_client(centralized, tmp_path):
    """In a process of its own, since a client that another test has made is the current one."""
    blocks = files(tmp_path)
    code = """
import sys, numpy as np, felb
from felb.data import open_blocks
blocks = open_blocks(sys.argv[1])
model = felb.FederatedBMF(4, random_state=0, effort="fast", objective="hamming").fit(blocks)
assert not {"dask", "distributed"} & set(sys.modules), "files are fitted here, without Dask"
print(model.counts_, model.transform(blocks).shape, round(model.score(blocks), 4))
import dask.array as da
try:
    model.fit(da.ones((20, 4), chunks=5))
except felb.InputError as error:
    print(error)
"""
    done = subprocess.run(
        [sys.executable, "-c", code, blocks[0].path.replace("-0", "-*")], capture_output=True, text=True
    )
    assert done.stdout.splitlines() == [
        f"{centralized.counts_} (300, 4) {centralized.score(DATA.A):.4f}",
        "there is no Dask client that could compute on these blocks; start one, from distributed import Client; "
        "client = Client(), and call fit again",
    ], done.stderr


# -- parts -------------------------------------------------------------------------------------------------------------


def test_partial_sums_have_the_bits_of_the_whole():
    rng = np.random.default_rng(0)
    for n in (1, 2, 3, 7, 8, 9, 16, 17, 63, 64, 65, 130):
        releases = [Release({"x": rng.normal(size=3) * 10.0 ** rng.integers(-9, 9)}) for _ in range(n)]
        parts = [Sums.of(releases[at : at + 8]) for at in range(0, n, 8)]
        before = [part["x"].tobytes() for part in parts]
        while len(parts) > 1:
            parts = [Sums.merged(parts[at : at + 8]) for at in range(0, len(parts), 8)]
        whole = Sums.of(releases)
        assert parts[0]["x"].tobytes() == whole["x"].tobytes()
        assert parts[0].clients == whole.clients == n
        assert before[0] == Sums.of(releases[:8])["x"].tobytes(), "what is kept in memory stays as it is"


def test_states_on_disk_are_found_again_and_old_ones_deleted(tmp_path):
    store = StateFolder(tmp_path / "states")
    held = Held({"": ClientState(relaxed=np.ones((3, 2), np.float32), t=4)})
    for number in (2, 5, 8):
        for index, state in enumerate((held, Held(None))):
            save_state(state, store.path, number, index)
        store.complete(number, ["a", "b"])
    assert sorted(place.name for place in store.folder.iterdir()) == ["0000005", "0000008"]
    assert store.names(8) == ["a", "b"]
    found = load_state(PARTS[0], (store.path, 8, 0), ClientState)
    assert found.state[""].t == 4
    np.testing.assert_array_equal(found.state[""].relaxed, held.state[""].relaxed)
    assert load_state(PARTS[0], (store.path, 8, 1), ClientState).state is None
    assert sys.getsizeof(held) >= held.state[""].relaxed.nbytes
    with pytest.raises(InputError, match=r"states .*round 2"):
        store.names(2)
    with pytest.raises(InputError, match="cannot be read"):
        load_state(PARTS[0], (store.path, 2, 0), ClientState)


def test_a_cluster_without_workers_is_an_error_that_says_so(monkeypatch):
    monkeypatch.setattr("felb.engines.dask.worker.WORKER_SECONDS", 0.2)
    with (
        dask_cluster.threads(0),
        pytest.raises(FederationError, match="no workers"),
    ):
        quick().fit(array())


def test_a_lost_cluster_is_an_error_that_says_so():
    with dask_cluster.threads(1) as client:
        X = array()

        def leave(progress):
            if len(progress.history) == 3:
                client.cluster.close()

        with pytest.raises(FederationError, match=r"round 3: .*scheduler"):
            quick().fit(X, on_round=leave)
        with pytest.raises(FederationError, match="scheduler"):
            quick().fit(X)


def test_files_are_spread_evenly_over_the_workers(client, tmp_path):
    rows = DistributedRows.of(files(tmp_path), client, read=felb.BinaryMatrix.of)
    holders = client.who_has(list(rows.blocks.values()))
    places = [min(holders[future.key]) for future in rows.blocks.values()]
    assert sorted(places.count(worker) for worker in client.nthreads()) == [2, 2]
    assert places == sorted(places), "neighbours lie together, so that most are added where they are"


def test_states_stay_where_their_blocks_are_and_only_sums_move(client, tmp_path):
    tall = planted(20_000, 40, 4, noise=0.05, seed=1).A
    tall.save(tmp_path / "tall.felb")
    rows = DistributedRows.of(open_blocks(tmp_path / "tall.felb", rows=5_000), client, read=felb.BinaryMatrix.of)
    before = sum(client.run(sent).values())
    rounds = []
    algorithm = felb_algorithm(40, 4, max_rounds=30, tol=0.0)
    run(algorithm, rows.blocks, client=client, on_round=rounds.append, persist_every=10_000)
    state = 5_000 * 4 * 8  # at least, of one block
    # A request goes to each worker and a sum comes back: both are of 4 × 40 numbers and a few more.
    assert sum(client.run(sent).values()) - before < len(rounds) * state / 4


def sent(dask_worker):
    return dask_worker.transfer_outgoing_bytes_total


def test_dask_is_told_the_sizes_of_states_and_sums():
    release = Release({"sum": np.zeros((4, 40))})
    state = {"": ClientState(assigned=np.zeros((300, 4), dtype=bool))}
    assert sizeof(release) == sizeof(Sums.of([release])) == 4 * 40 * 8
    assert sizeof(Held(state, release)) >= 300 * 4 + 4 * 40 * 8


def test_a_task_on_a_worker_is_one_thread():
    seen = []

    def look(work):
        seen.append(available_cpus())
        return work.state, Update({})

    algorithm = algorithm_with(TaskSpec("look", "looking", look))
    respond(algorithm, None, PARTS[0], Request("look"), worker_tasks.WorkerClient("client-1", 0))
    assert seen == [1]
