"""Rules of the architecture that no linter knows."""

import ast
import importlib
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import felb

SOURCE = Path(felb.__file__).parent
ROOT = Path(__file__).parents[1]
FILES = sorted(path for package in (ROOT / "packages").iterdir() for path in (package / "src").rglob("*.py"))


def calls(tree):
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            yield node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")


def imported(tree):
    """Yield the names of modules that are imported, and those that are imported from them."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield from (alias.name.split(".")[0] for alias in node.names)
        if isinstance(node, ast.ImportFrom) and node.module:
            yield node.module.split(".")[0]


def test_no_file_pickles_or_evaluates():
    for path in FILES:
        text = path.read_text(encoding="utf-8")
        tree = ast.parse(text)
        assert not {"pickle", "cloudpickle", "dill", "marshal", "shelve"} & set(imported(tree)), path
        called = {name for name in calls(tree) if name != "compile" or "re." not in text}
        assert not {"eval", "exec", "compile"} & called, path
        assert "allow_pickle=True" not in text, path


def test_only_the_gate_makes_a_release_and_a_coordinator_one_of_what_it_has_checked():
    makers = [p.as_posix() for p in FILES if "Release" in set(calls(ast.parse(p.read_text())))]
    assert [maker.partition("/src/")[2] for maker in makers] == [
        "felb/federated/gate.py",
        "felb_sites/coordinator/sites.py",
    ]


KEEPERS = {"journal.py", "gate.py"}
"""What is kept of a run; everything else in the core is replayed, and so must be deterministic."""


def test_the_federated_core_has_no_clock_and_does_no_input_or_output():
    core = [p for p in FILES if p.parent.name in ("federated", "steps", "algorithms") and p.name not in KEEPERS]
    assert len(core) > 5
    for path in core:
        tree = ast.parse(path.read_text(encoding="utf-8"))
        assert not {"time", "datetime", "os", "io", "pathlib", "socket", "random"} & set(imported(tree)), path
        assert "open" not in set(calls(tree)), path


def test_public_names_exist_and_are_listed():
    for name in felb.__all__:
        assert getattr(felb, name) is not None
    assert set(felb.__all__) <= set(dir(felb))
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = felb.nothing


def test_import_is_light_and_compiles_nothing():
    code = (
        "import sys, felb; assert not {'numpy', 'sklearn', 'numba', 'scipy'} & set(sys.modules), 'felb is not lazy';"
        "felb.FELB, felb.ELBMF, felb.BinaryMatrix, felb.data, felb.metrics;"
        "from numba.core.dispatcher import Dispatcher; import gc;"
        "assert not [d for d in gc.get_objects() if isinstance(d, Dispatcher) and d.signatures "
        "and d.py_func.__module__.startswith('felb')]"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_every_package_has_its_layer():
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]
    (layers,) = (contract["layers"] for contract in settings["contracts"] if contract["type"] == "layers")
    listed = {name.strip() for layer in layers for name in re.split("[|:]", layer)}
    there = {
        f"felb.{path.stem}" for path in SOURCE.iterdir() if path.suffix == ".py" or (path / "__init__.py").is_file()
    }
    engines = SOURCE / "engines"
    there |= {
        f"felb.engines.{path.stem}"
        for path in engines.iterdir()
        if path.suffix == ".py" or (path / "__init__.py").is_file()
    }
    assert there - {"felb.__init__", "felb.__main__", "felb.engines", "felb.engines.__init__"} == listed - {
        "felb_sites",
        "felb_paper",
    }
    assert not any("ignore_imports" in contract for contract in settings["contracts"])


def test_felb_does_not_name_the_other_distributions():
    named = [
        p.relative_to(SOURCE).as_posix()
        for p in SOURCE.rglob("*.py")
        if {"felb_sites", "felb_paper"} & set(re.findall(r"\w+", p.read_text()))
    ]
    assert named == []


def test_the_distributions_have_one_version():
    for name in ("felb-sites", "felb-paper"):
        project = tomllib.loads((ROOT / "packages" / name / "pyproject.toml").read_text(encoding="utf-8"))
        assert project["tool"]["hatch"]["version"]["path"] == "../felb/src/felb/_version.py"
        assert project["project"]["dependencies"][0].endswith(f"=={felb.__version__}")


def test_a_public_name_is_not_hidden_by_a_module_of_the_same_name():
    for path in SOURCE.rglob("__init__.py"):
        name = ".".join(("felb", *path.parent.relative_to(SOURCE).parts))
        package = importlib.import_module(name)
        for public in getattr(package, "__all__", ()):
            if (path.parent / f"{public}.py").is_file() or (path.parent / public / "__init__.py").is_file():
                module = importlib.import_module(f"{name}.{public}")  # importing it gives the package this attribute
                assert getattr(package, public) is module, f"{name}.{public} is two things"
