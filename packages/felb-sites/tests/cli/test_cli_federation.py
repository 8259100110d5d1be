"""The verbs of coordinators and sites that need no running federation."""

from __future__ import annotations

import json

import numpy as np
import pytest

from felb.errors import InputError
from felb_sites.deployed import DeployedRun
from felb_sites.hardening import listen_on_loopback, write_json
from felb_sites.provisioning import Site
from felb_sites.refusals import note_refusal

GOOD = {"id": '"r1"', "components": "3", "features": "17"}


def toml(folder, **settings):
    path = folder / "run.toml"
    path.write_text("\n".join(f"{name} = {value}" for name, value in {**GOOD, **settings}.items() if value))
    return path


def test_settings_of_a_run(tmp_path):
    (tmp_path / "columns.txt").write_text("a\nb\nc\n")
    settings = {
        "features": None,
        "columns": '"columns.txt"',
        "sites": '["x", "y"]',
        "terms": "{quorum = 2}",
        "method": '"felb-mu"',
    }
    run = DeployedRun.read(toml(tmp_path, **settings, parameters="{max_iter = 5}", seed="7"))
    assert (run.plan.n_features, run.plan.seed, run.plan.parameters) == (3, 7, {"max_iter": 5})
    assert (run.sites, run.columns, run.terms.quorum) == (("x", "y"), ("a", "b", "c"), 2)
    assert DeployedRun.read(toml(tmp_path)).plan.method == "bmf", "the default of all verbs"


@pytest.mark.parametrize(
    ("sites", "terms", "secure"),
    [
        ('["x", "y", "z"]', None, True),
        ('["x", "y", "z"]', "{secure = false}", False),
        ('["x", "y", "z"]', "{secure = true, quorum = 3}", True),
        ('["x", "y"]', None, False),
        (None, None, False),
    ],
)
def test_sums_are_masked_by_default_where_three_sites_are_named(tmp_path, sites, terms, secure):
    assert DeployedRun.read(toml(tmp_path, sites=sites, terms=terms)).secure is secure


def test_a_run_gets_the_roster_of_its_sites_from_the_coordinator(tmp_path):
    from felb.secure_sum.protocol import Roster, member_of, new_signing_key

    members = tuple(member_of(name, new_signing_key()) for name in "xyzw")

    class Coordinator:
        def roster(self, sites):
            return Roster(tuple(member for member in members if member.name in sites))

    run = DeployedRun.read(toml(tmp_path, sites='["x", "y", "z"]')).proposed_by(Coordinator())
    assert (run.plan.roster, run.plan.sites) == (Roster(members[:3]).digest, 3)
    plain = DeployedRun.read(toml(tmp_path, sites='["x", "y"]'))
    assert plain.proposed_by(Coordinator()) is plain


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"terms": "{secure = true}"}, "sites that are named"),
        ({"sites": '["x", "y"]', "terms": "{secure = true}"}, "3 to 50"),
        ({"sites": '["x", "y", "z"]', "terms": '{secure = "yes"}'}, "true or false"),
        (
            {
                "sites": '["x", "y", "z"]',
                "terms": "{secure = false}",
                "privacy": '{epsilon = 1, records = 1000, noise = "distributed"}',
            },
            "masked sums only",
        ),
        ({"id": None}, "must say id"),
        ({"features": None}, "features, columns or schema"),
        ({"columns": '"c.txt"'}, "features, columns or schema"),
        ({"features": None, "columns": '"missing.txt"'}, "cannot be read"),
        ({"componets": "3"}, "unknown setting 'componets'"),
        ({"method": '"elbmf"'}, "for centralized data"),
        ({"parameters": "{setting = '/etc'}"}, "number or a word"),
        ({"sites": "[]"}, "list of names"),
        ({"sites": '["x"]', "terms": "{quorum = 2}"}, "quorum=2"),
        ({"terms": "{quorm = 2}"}, "'quorm'"),
        ({"id": "[["}, "no TOML file"),
    ],
)
def test_settings_that_are_wrong_are_named(tmp_path, change, said):
    with pytest.raises(InputError, match=said):
        DeployedRun.read(toml(tmp_path, **change))


@pytest.mark.parametrize(
    "arguments",
    [
        ("run", "nowhere", "--config", "run.toml", "--out", "out"),
        ("status", "nowhere"),
        ("federation", "start", "nowhere"),
        ("federation", "approve", "nowhere", "x.request.zip"),
        ("site", "start", "nowhere"),
        ("site", "log", "nowhere"),
        ("site", "join", "there", "--invitation", "nowhere.json", "--name", "a", "--fingerprint", "SHA256:AA"),
    ],
)
def test_a_folder_that_is_none_is_said_so(felb, tmp_path, monkeypatch, arguments):
    monkeypatch.chdir(tmp_path)
    toml(tmp_path)
    shown = felb(*arguments)
    assert shown.code == 1
    assert "nowhere" in shown.err
    assert shown.out == ""


def test_an_invitation_changed_on_its_way_is_noticed(felb, tmp_path):
    invitation = tmp_path / "invitation.json"
    write_json(invitation, {"federation": "f", "host": "h", "port": 1, "fingerprint": "AA" * 32})
    arguments = ("--invitation", str(invitation), "--name", "a", "--fingerprint", "SHA256:" + "BB" * 32)
    shown = felb("site", "join", str(tmp_path / "site"), *arguments)
    assert shown.code == 1
    assert "fingerprint" in shown.err


def site_with_log(folder):
    write_json(folder / "site.json", {"name": "a", "invitation": {}})
    log = folder / "state" / "r1" / "outbound.jsonl"
    log.parent.mkdir(parents=True)
    record = {
        "time": "2026-01-01T00:00:00+00:00",
        "client": "a",
        "task": "local_factor",
        "what": "V",
        "shape": [3, 17],
        "dtype": "float32",
        "bytes": 204,
    }
    lines = [json.dumps({"round": t, **record, "mechanism": "none", "cost": None}) for t in range(2)]
    log.write_text("\n".join([*lines, '{"cut sho']))
    return folder


def test_a_site_shows_what_left_it(felb, tmp_path):
    folder = site_with_log(tmp_path)
    shown = felb("site", "log", str(folder))
    assert shown.code == 0
    for word in ("r1", "2", "local_factor", "3x17", "408", "none"):
        assert word in shown.out
    assert [line["round"] for line in json.loads(felb("site", "log", str(folder), "--json").out)] == [0, 1]
    assert "nothing has left" in felb("site", "log", str(folder), "--run", "other").out


def test_sizes_of_clients_are_shown_as_far_as_they_are_known():
    from felb.cli.output import describe_clients

    assert describe_clients({"a": 3, "b": 5}) == "2 with 3 to 5 records each"
    assert describe_clients({"a": None, "b": None}) == "2: a, b"
    assert describe_clients({"centralized": 9}) == "centralized"


def test_without_flare_it_is_said_what_to_install(felb, tmp_path, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    shown = felb("federation", "init", str(tmp_path / "f"), "--name", "f", "--host", "localhost")
    assert shown.code == 1
    assert "pip install felb-sites" in shown.err
    assert np.size(list(tmp_path.iterdir())) == 0


def test_a_site_s_conditions_on_privacy_are_remembered(felb, tmp_path, monkeypatch):
    site = Site(tmp_path / "site")
    (site.kit / "local").mkdir(parents=True)
    write_json(site.folder / "site.json", {"name": "a", "invitation": {}})
    monkeypatch.setattr(Site, "check_admitted", lambda self: None)
    data = tmp_path / "data.csv"
    np.savetxt(data, np.ones((3, 2), int), fmt="%d", delimiter=",")
    conditions = ("--max-epsilon", 1, "--max-delta", 1e-6, "--total-epsilon", 4, "--mechanism", "cooccurrence")
    shown = felb("site", "start", site.folder, "--data", data, *conditions, "--noise", "client", "--check")
    assert shown.code == 0, shown.err
    policy = site.config().policy
    assert (policy.max_epsilon, policy.max_delta, policy.total_epsilon) == (1.0, 1e-6, 4.0)
    assert (policy.mechanisms, policy.noise, policy.unit) == (("cooccurrence",), "client", None)
    site.state.mkdir()
    write_json(site.state / "spent.json", {"runs": {"r1": {"epsilon": 1.5, "delta": 1e-6}}})
    assert "2.5 of 4 is left" in felb("site", "budget", site.folder).out
    assert json.loads(felb("site", "budget", site.folder, "--json").out)["epsilon"] == 1.5
    note_refusal(site.state, {"run_id": "r2"}, "this site guarantees nothing")
    assert "run r2: this site guarantees nothing" in felb("site", "log", site.folder, "--refused").out


def test_a_server_may_listen_on_this_machine_alone(tmp_path):
    (tmp_path / "startup").mkdir()
    path = tmp_path / "startup" / "fed_server.json"
    write_json(path, {"servers": [{"service": {"target": "fed.example.org:8002", "scheme": "grpc"}}]})
    listen_on_loopback(tmp_path, 8002)
    assert json.loads(path.read_text())["servers"][0]["service"] == {"target": "127.0.0.1:8002", "scheme": "grpc"}
