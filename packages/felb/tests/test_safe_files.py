"""Files and folders are there in full or not at all, whatever happens on the way."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from felb.errors import InputError
from felb.records import replace_folder, replacing, try_lock


def test_a_file_appears_when_it_is_complete(tmp_path):
    target = tmp_path / "x.txt"
    target.write_text("old")
    with replacing(target) as partial:
        assert partial.parent == target.parent
        assert partial.name.startswith(".")
        partial.write_text("new")
        assert target.read_text() == "old"
    assert target.read_text() == "new"
    assert list(tmp_path.iterdir()) == [tmp_path / "x.txt"]


def test_a_missing_folder_is_named_and_not_made(tmp_path):
    with pytest.raises(InputError, match="there is no folder"), replacing(tmp_path / "missing" / "x.txt"):
        pass
    assert not (tmp_path / "missing").exists()


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_a_file_that_could_not_be_written_leaves_the_old_one(tmp_path, error):
    target = tmp_path / "x.txt"
    target.write_text("old")

    def write():
        with replacing(target) as partial:
            partial.write_text("half")
            raise error

    with pytest.raises(error):
        write()
    assert target.read_text() == "old"
    assert list(tmp_path.iterdir()) == [tmp_path / "x.txt"]


def test_a_file_and_a_folder_are_on_the_disk_before_they_take_their_place(tmp_path, monkeypatch):
    """Or a machine that loses its power would be left with the new name of nothing."""
    synced = []

    def fsync(descriptor):
        synced.append((os.fstat(descriptor).st_ino, sorted(path.name for path in tmp_path.iterdir())))

    monkeypatch.setattr(os, "fsync", fsync)
    with replacing(tmp_path / "file") as partial:
        partial.write_text("x")
    ((inode, names),) = synced
    assert inode == (tmp_path / "file").stat().st_ino
    assert "file" not in names
    synced.clear()
    (tmp_path / "made").mkdir()
    (tmp_path / "made" / "inner").write_text("x")
    replace_folder(tmp_path / "made", tmp_path / "folder")
    places = dict(synced)
    assert "folder" not in places[(tmp_path / "folder" / "inner").stat().st_ino]
    assert "folder" in places[tmp_path.stat().st_ino]


def test_a_block_that_writes_nothing_is_an_error(tmp_path):
    with pytest.raises(FileNotFoundError), replacing(tmp_path / "x.txt"):
        pass
    assert list(tmp_path.iterdir()) == []


def folder(path, text):
    path.mkdir()
    (path / "a.txt").write_text(text)
    return path


def test_a_folder_takes_the_place_of_another(tmp_path):
    new, target = folder(tmp_path / "new", "new"), tmp_path / "target"
    replace_folder(new, target)
    assert (target / "a.txt").read_text() == "new"
    replace_folder(folder(tmp_path / "newer", "newer"), target)
    assert (target / "a.txt").read_text() == "newer"
    assert list(tmp_path.iterdir()) == [tmp_path / "target"]


def test_a_folder_that_cannot_be_moved_leaves_the_old_one_in_place(tmp_path):
    target = folder(tmp_path / "target", "old")
    with pytest.raises(FileNotFoundError):
        replace_folder(tmp_path / "missing", target)
    assert (target / "a.txt").read_text() == "old"
    assert list(tmp_path.iterdir()) == [tmp_path / "target"]
    with pytest.raises(FileNotFoundError):
        replace_folder(tmp_path / "missing", tmp_path / "other")
    assert list(tmp_path.iterdir()) == [tmp_path / "target"]


@pytest.mark.skipif(sys.platform == "win32", reason="no such locks there")
def test_a_lock_is_held_by_one_until_it_is_closed_or_killed(tmp_path):
    path = tmp_path / "lock"
    held = try_lock(path)
    assert held is not None
    assert try_lock(path) is None
    held.close()
    code = (
        "import sys, pathlib; from felb.records import try_lock\n"
        "held = try_lock(pathlib.Path(sys.argv[1])); print(held is not None, flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout.readline() == "True\n"
        assert try_lock(path) is None
        other.kill()
    again = try_lock(path)
    assert again is not None
    again.close()


@pytest.mark.skipif(sys.platform == "win32", reason="no such locks there")
def test_a_file_system_without_locks_is_no_obstacle(tmp_path, monkeypatch):
    def no_locks(*_):
        raise OSError(37, "No locks available")

    monkeypatch.setattr("felb.records.fcntl.flock", no_locks)
    held = try_lock(tmp_path / "lock")
    assert held is not None
    held.close()
