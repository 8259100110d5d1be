"""The files for operations: units and containers name what exists, and the vault has no network."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import subprocess
import time
from pathlib import Path

import pytest
import yaml

from felb_sites.coordinator.folder import Federation
from felb_sites.site_folder import Site

DEPLOY = Path(__file__).parents[1] / "deploy"
UNITS = ("felb-relay", "felb-vault", "felb-courier", "felb-loader")
MODULE = re.compile(r"felb_sites(?:\.\w+)+")
MOST_EXPOSED = 3.0
IMAGE_ROOT = "FELB_IMAGE_ROOT"
"""Names a root file system of Debian with Python, in which the steps of the image may be executed."""


def read_unit(name):
    """Read a unit; of a setting that is given several times, the values are joined."""
    found = {}
    section = None
    for line in (DEPLOY / name).read_text(encoding="utf-8").splitlines():
        if not line.strip() or line.startswith("#"):
            continue
        if line.startswith("["):
            section = found.setdefault(line.strip("[]"), {})
            continue
        key, equals, value = line.partition("=")
        assert equals, f"{name}: {line}"
        section[key] = f"{section[key]} {value}" if key in section else value
    return found


def read_instructions():
    text = (DEPLOY / "Containerfile").read_text(encoding="utf-8")
    return [line.split(maxsplit=1) for line in text.splitlines() if line and not line.startswith("#")]


def check_modules(text):
    modules = MODULE.findall(text)
    assert modules
    for module in modules:
        assert importlib.util.find_spec(module) is not None, module


@pytest.mark.parametrize("name", UNITS)
def test_a_unit_runs_its_own_module_as_its_own_user(name):
    service = read_unit(f"{name}.service")["Service"]
    assert (service["User"], service["Group"]) == (name, name)
    check_modules(service["ExecStart"])
    assert name.removeprefix("felb-") in MODULE.findall(service["ExecStart"])[0]


def test_the_vault_has_no_network_and_the_courier_has_no_data():
    vault, courier = (read_unit(f"felb-{name}.service")["Service"] for name in ("vault", "courier"))
    assert vault["PrivateNetwork"] == "yes"
    assert vault["RestrictAddressFamilies"] == "AF_UNIX"
    assert "/data" in courier["InaccessiblePaths"]
    assert "ReadWritePaths" not in courier


def test_the_loader_sees_neither_keys_nor_store_and_its_timer_names_it():
    assert "/srv/felb/site" in read_unit("felb-loader.service")["Service"]["InaccessiblePaths"]
    assert read_unit("felb-loader.timer")["Timer"]["Unit"] == "felb-loader.service"


@pytest.mark.parametrize("name", UNITS)
def test_a_unit_is_hardened(name):
    program = shutil.which("systemd-analyze")
    if program is None:
        pytest.skip("systemd-analyze, which scores units, is not installed")
    told = subprocess.run(
        [program, "security", "--offline=true", str(DEPLOY / f"{name}.service")],
        capture_output=True,
        text=True,
        check=False,
    )
    score = re.search(r"exposure level for \S+: ([\d.]+)", told.stdout)
    if score is None:
        pytest.skip("this systemd-analyze cannot score a file that is not installed")
    assert float(score[1]) < MOST_EXPOSED


def test_the_image_runs_modules_that_exist_and_not_as_root():
    instructions = read_instructions()
    check_modules("".join(rest for word, rest in instructions if word in ("RUN", "CMD")))
    assert [rest for word, rest in instructions if word == "USER"] == ["10001:10001"]
    root = DEPLOY.parents[2]
    for word, rest in instructions:
        if word == "COPY" and not rest.startswith("--from"):
            assert (root / rest.split()[0]).exists()
        if word == "RUN":
            for folder in re.findall(r"/build/(packages/[\w-]+)", rest):
                assert (root / folder / "pyproject.toml").is_file()


def test_in_containers_the_vault_has_no_network_and_data_is_for_the_loader_alone():
    services = yaml.safe_load((DEPLOY / "compose.yaml").read_text(encoding="utf-8"))["services"]
    assert services["vault"]["network_mode"] == services["hand-over"]["network_mode"] == "none"
    assert services["vault"]["user"] != services["courier"]["user"]
    for name, service in services.items():
        assert service["read_only"] is True
        assert service["cap_drop"] == ["ALL"]
        assert not service["user"].startswith("0")
        command = " ".join(service["command"])
        if "felb_sites" in command:
            check_modules(command)
        assert any("DATA" in volume for volume in service["volumes"]) == (name == "loader")
    sockets = [volume for volume in services["courier"]["volumes"] if ":/site/vault" in volume]
    assert sockets == ["${SITE:?}/vault:/site/vault:ro"]


def test_a_snapshot_is_handed_over_with_its_rows_first_and_no_link_is_followed(tmp_path):
    staging, vault, secret = tmp_path / "staging", tmp_path / "vault", tmp_path / "secret"
    for folder in (staging, vault):
        folder.mkdir()
    (staging / "snapshot-new.felb").write_text("rows")
    (staging / "snapshot.json").write_text("about")
    (vault / "snapshot-old.felb").write_text("old rows")
    command = ["sh", str(DEPLOY / "hand-over-snapshot.sh"), str(staging), str(vault)]
    subprocess.run(command, check=True)
    assert sorted(path.name for path in vault.iterdir()) == ["snapshot-new.felb", "snapshot.json"]
    secret.write_text("secret")
    (staging / "snapshot-new.felb").unlink()
    (staging / "snapshot-new.felb").symlink_to(secret)
    assert subprocess.run(command, check=False).returncode
    assert (vault / "snapshot-new.felb").read_text() == "rows"


@pytest.mark.skipif(IMAGE_ROOT not in os.environ, reason=f"{IMAGE_ROOT} names no root file system: make test-image")
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can change the root file system")
def test_the_steps_of_the_image_lead_to_a_vault_that_runs_without_root_or_network(tmp_path):
    root, repository = Path(os.environ[IMAGE_ROOT]), DEPLOY.parents[2]
    chroot = shutil.which("chroot", path="/usr/sbin:/usr/bin")
    environment = {"PATH": "/usr/bin:/bin", **{k: v for k, v in os.environ.items() if k.startswith("PIP_")}}
    user = command = None
    for word, rest in read_instructions():
        if word == "COPY" and not rest.startswith("--from"):
            source, target = rest.split()
            place = root / target.lstrip("/")
            place.parent.mkdir(parents=True, exist_ok=True)
            copy = shutil.copytree if (repository / source).is_dir() else shutil.copyfile
            copy(repository / source, place)
        elif word == "RUN":
            subprocess.run([chroot, root, "/bin/sh", "-c", rest], check=True, env=environment)
        elif word == "ENV":
            environment |= dict(pair.split("=", 1) for pair in rest.split())
        elif word == "USER":
            user = rest
        elif word == "CMD":
            command = json.loads(rest)
    shutil.rmtree(root / "build")
    federation = Federation.create(tmp_path / "f", name="image", host="localhost", port=1)
    Site.join(root / "site", federation.invitation, name="a")
    for path in (root / "site", *(root / "site").rglob("*")):
        os.chown(path, *map(int, user.split(":")))
    inside = [chroot, f"--userspec={user}", root, *command]
    with_proc = ["/bin/sh", "-c", 'mount -t proc proc "$0/proc" && exec "$@"', root, *inside]
    separate = ["/usr/bin/unshare", "--net", "--mount", *with_proc]
    vault = subprocess.Popen(separate, env=environment, stderr=subprocess.PIPE)
    try:
        while not (root / "site" / "vault" / "operator.sock").exists():
            assert vault.poll() is None, vault.stderr.read().decode()
            time.sleep(0.1)
    finally:
        vault.terminate()
        vault.communicate(timeout=60)
