"""`felb fit --dask`: the result of `felb fit`, from the workers of a cluster; and what is refused without one."""

import json
import shlex

import dask_cluster
import numpy as np
import pytest

import felb
from felb.cli import main
from felb.data import planted
from felb.runs.execute import fit, unfinished_job
from felb.runs.job import Job
from felb.runs.result import Result, read_assignment

DATA = planted(300, 40, 4, noise=0.05, seed=1)
QUICK = "-k 4 --method bmf -p effort=fast -p objective=hamming"


@pytest.fixture(scope="module")
def address():
    with dask_cluster.threads() as client:
        yield client.scheduler.address


@pytest.fixture
def parts(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for number, first in enumerate((0, 120)):
        DATA.A.rows(first, 120 if first == 0 else 300).save(tmp_path / f"part-{number}.felb")
    return "part-*.felb"


def felb_says(line, capsys):
    with pytest.raises(SystemExit) as ended:
        main(shlex.split(line))
    return ended.value.code, capsys.readouterr()


def test_the_result_is_that_of_centralized_data(parts, address, capsys):
    code, said = felb_says(f"fit '{parts}' --dask {address} --block-rows 100 {QUICK} -o out --json", capsys)
    assert code == 0, said.err
    centralized = felb.FederatedBMF(4, effort="fast", objective="hamming", random_state=0).fit(DATA.A)
    result = Result.read("out")
    np.testing.assert_array_equal(result.components, centralized.components_)
    assert json.loads(said.out)["clients"] == {"client-01": 100, "client-02": 20, "client-03": 100, "client-04": 80}
    U = np.concatenate([read_assignment("out", name) for name in result.clients])
    np.testing.assert_array_equal(U, centralized.transform(DATA.A))
    assert result.provenance.data["rows"] == 300
    assert result.provenance.data["ones"] == DATA.A.nnz


def test_an_interrupted_run_goes_on_and_knows_its_data(parts, address, tmp_path, capsys):
    def interrupt(progress):
        if len(progress.history) == 13:
            raise KeyboardInterrupt

    job = Job(parts, "bmf", 4, parameters={"effort": "fast", "objective": "hamming"}, dask=address, block_rows=100)
    with pytest.raises(KeyboardInterrupt):
        fit(job, "out", on_round=interrupt)
    assert unfinished_job("out").dask == address
    DATA.A.rows(0, 119).save(tmp_path / "part-0.felb")
    code, said = felb_says("fit --resume out", capsys)
    assert (code, "has changed since the run was started" in said.err) == (1, True)
    DATA.A.rows(0, 120).save(tmp_path / "part-0.felb")
    code, said = felb_says(f"fit --resume out --dask {address}", capsys)
    assert code == 0, said.err
    centralized = felb.FederatedBMF(4, effort="fast", objective="hamming", random_state=0).fit(DATA.A)
    np.testing.assert_array_equal(Result.read("out").components, centralized.components_)


def test_a_private_run_keeps_its_statement(parts, address, capsys):
    pytest.importorskip("opendp")
    code, said = felb_says(f"fit '{parts}' --dask {address} -k 2 -p effort=fast --epsilon 8 -o out", capsys)
    assert code == 0, said.err
    assert "one record" in Result.read("out").privacy["text"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--method grecond", "grecond"),
        ("--unknown other.npz", "does not go with Dask"),
        ("-p nonsense=3", "nonsense"),
    ],
)
def test_what_cannot_be_is_refused_before_a_cluster_is_looked_for(options, message, parts, capsys):
    code, said = felb_says(f"fit '{parts}' --dask tcp://127.0.0.1:1 {options} -o out", capsys)
    assert code != 0
    assert message in said.err


def test_refusals_about_the_place(parts, address, monkeypatch, capsys):
    monkeypatch.setattr("felb.engines.dask.worker.CONNECT_SECONDS", 0.2)
    code, said = felb_says(f"fit '{parts}' --dask tcp://127.0.0.1:1 -o out", capsys)
    assert (code, "no Dask scheduler answers at 'tcp://127.0.0.1:1'" in said.err) == (1, True)
    code, said = felb_says(f"fit 'nothing-*.felb' --dask {address} -o out", capsys)
    assert (code, "check the path or the pattern" in said.err) == (1, True)
    code, said = felb_says(f"fit '{parts}' --block-rows 10 -o out", capsys)
    assert (code, "block_rows is the size of blocks on Dask" in said.err) == (1, True)
