"""The commands of a coordinator that need no running relay."""

from __future__ import annotations

import json

import click
import pytest
from watched_imports import HEAVY, run_watched

from felb_sites.cli.federation import federation_command
from felb_sites.cli.run import print_overview, run_command, status_command
from felb_sites.cli.site import site_command
from felb_sites.coordinator.folder import Federation
from felb_sites.reasons import REASONS

INIT = ("--name", "trial", "--host", "localhost")


@pytest.fixture
def folder(felb, tmp_path):
    made = tmp_path / "mein Bund"
    assert felb("federation", "init", made, *INIT).code == 0
    return made


def join(felb, folder, site, name="north"):
    told = Federation.open(folder).invitation.fingerprint
    words = ("--invitation", folder / "invitation.json", "--name", name, "--fingerprint", told, "--json")
    return felb("site", "join", site, *words).json


def all_commands():
    found = {"run": run_command, "status": status_command}
    for group in (federation_command, site_command):
        found[group.name] = group
        found |= {f"{group.name} {name}": command for name, command in group.commands.items()}
    roster = site_command.commands["roster"]
    return found | {f"site roster {name}": command for name, command in roster.commands.items()}


def test_every_command_is_there():
    assert set(federation_command.commands) == {
        "init", "approve", "members", "revoke", "roster", "start", "demo", "health",
    }  # fmt: skip
    assert set(site_command.commands) == {
        "join", "start", "pending", "show", "approve", "deny", "budget", "log", "verify-log", "roster", "rotate",
        "status", "health", "backup", "restore", "leave", "purge", "refresh",
    }  # fmt: skip


@pytest.mark.parametrize("name", sorted(all_commands()))
def test_every_command_has_help_of_80_columns(felb, name):
    shown = felb(*name.split(), "--help")
    assert shown.code == 0
    assert max(map(len, shown.out.splitlines())) <= 80
    for parameter in all_commands()[name].params:
        assert not isinstance(parameter, click.Option) or parameter.help, parameter.name


def test_init_shows_what_to_tell_by_telephone(felb, tmp_path):
    shown = felb("federation", "init", tmp_path / "f", *INIT)
    assert shown.code == 0
    fingerprint = Federation.open(tmp_path / "f").invitation.fingerprint
    assert fingerprint in shown.out.replace(" ", "").replace("\n", "")
    assert max(len(line) for line in shown.out.splitlines() if "SHA256" in line) <= 80
    again = felb("federation", "init", tmp_path / "f", *INIT)
    assert (again.code, again.out) == (1, "")
    assert "not empty" in again.err
    told = felb("federation", "init", tmp_path / "g", *INIT, "--port", 9000, "--listen", "loopback", "--json").json
    assert (told["url"], told["trust"]) == ("https://localhost:9000", "pinned")


def test_a_site_is_admitted_and_revoked(felb, folder, tmp_path):
    asked = join(felb, folder, tmp_path / "site ü")
    shown = felb("federation", "approve", folder, asked["send"])
    assert shown.code == 1
    assert "nothing was signed" in shown.err
    assert "north" in shown.out
    said = ("--name", "north", "--key-fingerprint")
    wrong = felb("federation", "approve", folder, asked["send"], *said, "SHA256:" + "00" * 32)
    assert "read out" in wrong.err
    done = felb("federation", "approve", folder, asked["send"], *said, asked["key fingerprint"], "--json").json
    assert (done["site"], done["list"]) == ("north", 2)
    shown = felb("federation", "members", folder)
    assert "north  member, since 20" in shown.out
    assert max(map(len, shown.out.splitlines())) <= 80
    roster = felb("federation", "roster", folder)
    assert max(map(len, roster.out.splitlines())) <= 80
    assert felb("federation", "roster", folder, "--json").json["sites"] == {"north": asked["key fingerprint"]}
    assert felb("federation", "roster", folder, "--site", "south").code == 1
    shown = felb("federation", "revoke", folder, "north", "--json").json
    assert shown == {"members": "none", "revoked": "north", "list": 3}
    [line] = felb("federation", "members", folder, "--json").json["sites"]
    assert line["state"] == "revoked"
    assert felb("federation", "revoke", folder, "north", "--undo", "--json").json["members"] == "north"
    shown = felb("federation", "revoke", folder, "--key", asked["key fingerprint"], "--json").json
    assert (shown["members"], shown["revoked"]) == ("none", "north")


def test_revoke_takes_one_thing(felb, folder):
    assert felb("federation", "revoke", folder).code == 2
    assert felb("federation", "revoke", folder, "north", "--install", "x").code == 2


def test_keys_are_rotated(felb, folder, tmp_path):
    asked = join(felb, folder, tmp_path / "site")
    said = ("--name", "north", "--key-fingerprint")
    felb("federation", "approve", folder, asked["send"], *said, asked["key fingerprint"])
    rotated = felb("site", "rotate", tmp_path / "site", "--json").json
    words = ("federation", "approve", folder, rotated["send"], *said, rotated["key fingerprint"])
    assert "--rotate" in felb(*words).err
    assert felb(*words, "--rotate").code == 0
    states = [(line["name"], line["state"]) for line in felb("federation", "members", folder, "--json").json["sites"]]
    assert states == [("north", "revoked"), ("north", "member")]


def test_an_authority_elsewhere_signs_and_the_coordinator_installs(felb, tmp_path):
    folder, safe = tmp_path / "f", tmp_path / "safe"
    assert felb("federation", "init", folder, *INIT, "--authority", safe).code == 0
    asked = join(felb, folder, tmp_path / "site")
    said = ("--name", "north", "--key-fingerprint", asked["key fingerprint"])
    assert "--authority" in felb("federation", "approve", folder, asked["send"], *said).err
    assert felb("federation", "approve", safe, asked["send"], *said).code == 0
    assert felb("federation", "members", folder, "--json").json["sites"] == []
    shown = felb("federation", "members", folder, "--install", safe / "members.felb", "--json").json
    assert [line["name"] for line in shown["sites"]] == ["north"]
    shown = felb("federation", "revoke", folder, "north", "--authority", safe, "--json").json
    assert shown == {"members": "none", "revoked": "north", "list": 3}
    assert felb("federation", "revoke", folder, "--install", safe / "members.felb").code == 0


def test_health_says_that_the_relay_does_not_run(felb, folder):
    shown = felb("federation", "health", folder)
    assert shown.code == 1
    assert "does not run" in shown.out
    assert max(map(len, shown.out.splitlines())) <= 80
    found = felb("federation", "health", folder, "--json")
    assert found.code == 1
    assert json.loads(found.out)["ok"] is False


def test_status_shows_sites_without_a_relay(felb, folder):
    shown = felb("status", folder)
    assert shown.code == 0, shown.err
    assert "not running" in shown.out


@pytest.mark.parametrize(
    "arguments",
    [
        ("run", "nowhere", "--config", "run.toml", "--out", "out"),
        ("status", "nowhere"),
        ("federation", "start", "nowhere"),
        ("federation", "health", "nowhere"),
        ("federation", "approve", "nowhere", "x.request.json"),
    ],
    ids=" ".join,
)
def test_a_folder_that_is_none_is_said_so(felb, tmp_path, monkeypatch, arguments):
    monkeypatch.chdir(tmp_path)
    shown = felb(*arguments)
    assert (shown.code, shown.out) == (1, "")
    assert "nowhere" in shown.err


@pytest.mark.parametrize("command", [["status", "missing"], ["federation", "members", "missing"]], ids=" ".join)
def test_an_input_error_is_told_without_heavy_imports(command, tmp_path):
    [(code, told, found)] = run_watched([command], HEAVY, tmp_path).values()
    assert (code, found) == (1, [])
    assert told.startswith("error: ")


def test_the_status_of_a_federation_fits_eighty_columns(capsys):
    run, site = "r" * 64, "s" * 40
    sites = {
        f"{site[:-1]}a": {"connected": True, "seconds": 1, "waiting": 12345},
        f"{site[:-1]}b": {"connected": False, "seconds": 123456, "waiting": 12345},
    }
    ran = {"run": run, "state": "waiting", "round": 123456, "sites": tuple(sites), "changed": "2026-01-01T10:00:00"}
    reasons = dict.fromkeys(sites, REASONS["roster"])
    facts = {"federation": "f", "relay": "https://fed.example.org:8443", "reachable": True, "sites": sites}
    print_overview({**facts, "runs": [{**ran, "reasons": reasons, "message": REASONS["plan"]}]})
    told = capsys.readouterr().out
    assert max(map(len, told.splitlines())) <= 80
    for name in (run, *sites, "not connected, last heard 123456 s ago", "12345 envelopes wait"):
        assert name in " ".join(told.split())


def test_an_error_of_the_settings_names_no_option_of_the_command(felb, tmp_path):
    Federation.create(tmp_path / "f", name="trial", host="localhost", port=1)
    (tmp_path / "run.toml").write_text('id = "r"\ncomponents = 2\nfeatures = 9\nsites = ["a", "b"]\n')
    shown = felb("run", tmp_path / "f", "--config", tmp_path / "run.toml", "--out", tmp_path / "out")
    assert shown.code == 1
    assert "2 sites" in shown.err
    assert "option" not in shown.err


def test_a_rehearsal_takes_no_folder_and_a_run_needs_one(felb, tmp_path):
    Federation.create(tmp_path / "f", name="trial", host="localhost", port=1)
    (tmp_path / "run.toml").write_text('id = "r"\ncomponents = 2\nfeatures = 9\n')
    words = ("run", tmp_path / "f", "--config", tmp_path / "run.toml")
    assert "--out" in felb(*words).err
    assert "keeps no result" in felb(*words, "--rehearse", "--out", tmp_path / "out").err
    assert "not rehearsed" in felb(*words, "--rehearse", "--refit", 1).err
