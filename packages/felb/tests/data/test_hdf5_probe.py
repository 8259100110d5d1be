"""HDF5 files are read by another process first: what ends it, or never ends, is refused here."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from felb.data import binary_files as hdf5_probe
from felb.errors import InputError

h5py = pytest.importorskip("h5py")
REPRODUCERS = Path(__file__).parent.parent / "fuzz" / "reproducers"


@pytest.fixture
def probe():
    made = hdf5_probe.Probe()
    yield made
    made.close()


@pytest.fixture
def sound(tmp_path):
    with h5py.File(tmp_path / "sound.h5ad", "w") as file:
        file["texts"] = ["one", "two"]
        file["numbers"] = [[1.0, 2.0]]
        file["numbers"].attrs["unit"] = "mm"
    return tmp_path / "sound.h5ad"


def test_a_file_that_kills_the_reader_is_refused_and_the_next_one_read(probe, sound):
    probe.check(sound)
    first = probe._process
    with pytest.raises(InputError, match="signal"):
        probe.check(REPRODUCERS / "h5ad~signal.h5ad")
    assert first.poll() is not None
    probe.check(sound)
    assert probe._process is not first


def test_one_process_serves_all_files(probe, sound, tmp_path):
    probe.check(sound)
    first = probe._process
    (tmp_path / "text.h5ad").write_text("no HDF5")
    for damaged in (tmp_path / "text.h5ad", REPRODUCERS / "h5ad~memory.h5ad"):
        with pytest.raises(InputError, match=damaged.name):
            probe.check(damaged)
    probe.check(sound)
    assert probe._process is first
    with pytest.raises(InputError, match="line break"):
        probe.check(Path("a\nb.h5ad"))


@pytest.mark.parametrize("program", ["import time; time.sleep(60)", "raise SystemExit(3)"])
def test_a_reader_that_hangs_or_ends_is_not_waited_for(probe, sound, program, tmp_path, monkeypatch):
    (tmp_path / "program.py").write_text(program)
    monkeypatch.setattr(hdf5_probe, "PROGRAM", tmp_path / "program.py")
    monkeypatch.setattr(hdf5_probe, "PATIENCE", 0.5)
    with pytest.raises(InputError, match=sound.name):
        probe.check(sound)


@pytest.mark.skipif(sys.platform != "linux", reason="the limit of processor time is Linux's")
def test_a_file_that_has_no_end_costs_a_few_seconds_of_a_processor():
    endless = REPRODUCERS / "h5ad~endless.h5ad"
    ended = subprocess.run(
        [sys.executable, "-I", hdf5_probe.PROGRAM], input=f"{endless}\n", capture_output=True, text=True
    )
    assert (ended.returncode, ended.stdout) == (-signal.SIGXCPU, "")
