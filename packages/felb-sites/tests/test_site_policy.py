"""A site's own file decides what it takes part in."""

import json

import numpy as np
import pytest

from felb.data.binary import BinaryMatrix
from felb.errors import InputError
from felb_sites.run_plan import Plan, fingerprint
from felb_sites.site_policy import Policy, Refusal, SiteConfig
from felb_sites.site_session import SiteSession

PLAN = Plan("r1", "felb-mu", 3, 4)
ROWS = BinaryMatrix.of(np.ones((30, 4), bool))


def test_a_site_runs_only_the_methods_it_allows():
    Policy(allowed_methods=("felb-mu",)).check_plan(PLAN)
    Policy().check_plan(PLAN)
    with pytest.raises(Refusal, match=r"'felb-mu'.* felb"):
        Policy(allowed_methods=("felb",)).check_plan(PLAN)


def test_a_site_with_few_rows_stays_out_and_does_not_say_how_few():
    Policy(min_rows=30).check_data(ROWS, PLAN, columns=None)
    with pytest.raises(Refusal, match="fewer rows") as refused:
        Policy(min_rows=31).check_data(ROWS, PLAN, columns=None)
    assert "30" not in str(refused.value)


def test_columns_must_be_those_of_the_plan():
    with pytest.raises(Refusal, match=r"4 columns.* 5"):
        Policy().check_data(ROWS, Plan("r1", "felb-mu", 3, 5), columns=None)
    named = Plan("r1", "felb-mu", 3, 4, columns=fingerprint("abcd"))
    Policy().check_data(ROWS, named, columns=fingerprint("abcd"))
    for columns in (None, fingerprint("abdc")):
        with pytest.raises(Refusal, match="column names"):
            Policy().check_data(ROWS, named, columns=columns)


def test_unknown_cells_are_for_the_method_that_takes_them(tmp_path):
    (tmp_path / "d.csv").write_text("a,b,c,d\n" + "1,0,NA,1\n" * 30)
    settings = {"data": str(tmp_path / "d.csv"), "state": str(tmp_path)}
    with pytest.raises(InputError, match="is missing"):
        SiteConfig.of(settings, source="felb.json").read()
    rows = SiteConfig.of({**settings, "missing": "unknown"}, source="felb.json").read()
    assert rows.unknown.nnz == 30
    Policy().check_data(rows, Plan("r1", "bmf", 3, 4), columns=None)
    with pytest.raises(Refusal, match=r"unknown cells.*'felb-mu'.*'bmf'"):
        Policy().check_data(rows, PLAN, columns=None)
    private = Plan("r1", "bmf", 3, 4, privacy={"epsilon": 1.0}, records=100, sites=2)
    with pytest.raises(Refusal, match=r"privacy .*known"):
        Policy().check_data(rows, private, columns=None)


@pytest.mark.parametrize(
    "raw",
    [
        {"state": "s"},
        {"data": "d", "state": "s", "polcy": {}},
        {"data": "d", "state": "s", "policy": {"require_privcy": True}},
        {"data": "d", "state": "s", "policy": {"min_rows": 0}},
        {"data": "d", "state": "s", "policy": {"min_rows": "many"}},
        {"data": "d", "state": "s", "policy": {"require_privacy": "no"}},
        {"data": "d", "state": "s", "policy": {"max_epsilon": -1}},
        {"data": "d", "state": "s", "policy": {"max_epsilon": "1"}},
        {"data": "d", "state": "s", "policy": {"max_delta": 0}},
        {"data": "d", "state": "s", "policy": {"total_epsilon": True}},
        {"data": "d", "state": "s", "policy": {"mechanisms": ["coocurrence"]}},
        {"data": "d", "state": "s", "policy": {"mechanisms": "cooccurrence"}},
        {"data": "d", "state": "s", "policy": {"unit": "patient"}},
        {"data": "d", "state": "s", "policy": {"noise": "somewhere"}},
        {"data": "d", "state": "s", "policy": {"allowed_methods": "felb"}},
        {"data": "d", "state": "s", "policy": []},
        [],
    ],
)
def test_a_condition_misspelt_is_an_error_not_a_condition_less(raw, tmp_path):
    (tmp_path / "felb.json").write_text(json.dumps(raw))
    with pytest.raises(InputError):
        SiteConfig.load(tmp_path)


def test_a_site_without_its_file_does_not_start(tmp_path):
    with pytest.raises(InputError, match="felb site start"):
        SiteConfig.load(tmp_path)


def test_the_data_path_is_the_sites_and_refusals_come_before_anything_is_read(tmp_path):
    config = SiteConfig(str(tmp_path / "missing.csv"), str(tmp_path / "state"), policy=Policy(allowed_methods=()))
    with pytest.raises(Refusal, match="does not run"):
        SiteSession("a", PLAN.to_json(), config)
    with pytest.raises(Refusal, match="has no 'data'"):
        SiteSession("a", {**PLAN.to_json(), "data": "/etc/passwd"}, config)
    assert not (tmp_path / "state").exists()


def test_a_site_reads_raw_data_by_its_schema_and_takes_part_only_under_the_same(tmp_path):
    from felb.data import Feature, Schema
    from felb.tables.schema import Roles
    from felb_sites.deployed import DeployedRun
    from felb_sites.run_plan import fingerprint

    rules = (Feature(name="F", column="sex", values=("F",)), Feature(name="M", column="sex", values=("M",)))
    agreed, other = Schema(rules, Roles("id")), Schema((rules[0], Feature(name="M", column="sex", values=("m",))))
    agreed.write(tmp_path / "agreed.toml")
    other.write(tmp_path / "other.toml")
    (tmp_path / "raw.csv").write_text("extra,sex,id\nx,F,2\ny,M,1\n")
    config = SiteConfig(str(tmp_path / "raw.csv"), str(tmp_path), schema=str(tmp_path / "agreed.toml"))
    matrix = config.read()
    assert matrix.toarray().tolist() == [[False, True], [True, False]]
    names = config.agreed_names(matrix)
    policy = Policy(min_rows=1)
    for file, same in (("agreed.toml", True), ("other.toml", False)):
        run = DeployedRun.of({"id": "r", "components": 1, "schema": file}, folder=tmp_path)
        assert run.columns == ("F", "M")
        if same:
            policy.check_data(matrix, run.plan, columns=fingerprint(names))
        else:
            with pytest.raises(Refusal, match="of the plan"):
                policy.check_data(matrix, run.plan, columns=fingerprint(names))
