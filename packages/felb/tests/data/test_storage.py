import contextlib
import json
import os
import shutil
import time
import zlib

import numpy as np
import pytest
import scipy.sparse as sp

from felb.data import BinaryMatrix
from felb.data import storage as mapping
from felb.data import storage as verified
from felb.data.storage import ALIGNMENT, BLOCK_BYTES, FOLDED_WORDS, MAGIC, MatrixWriter, block_checksum
from felb.errors import InputError

DENSE = np.random.default_rng(7).random((50, 13)) < 0.3


@pytest.fixture
def matrix():
    return BinaryMatrix.of(DENSE, columns=[f"ü{i}" for i in range(13)])


@pytest.fixture
def saved(matrix, tmp_path):
    matrix.save(tmp_path / "m.felb")
    return tmp_path / "m.felb"


def head(text):
    """Return what a file begins with up to the end of its header."""
    return MAGIC + len(text).to_bytes(8, "little") + zlib.crc32(text).to_bytes(8, "little") + text


def header_end(content):
    return 24 + int.from_bytes(content[8:16], "little")


def at_rows(content):
    return -(-header_end(content) // ALIGNMENT) * ALIGNMENT


def with_header(path, **changes):
    """Write the same file with a changed header, everything else in its right place."""
    content = path.read_bytes()
    header = json.loads(content[24 : header_end(content)])
    body = content[at_rows(content) :]
    start = head(json.dumps({**header, **changes}).encode())
    path.write_bytes(start + b"\0" * (-len(start) % ALIGNMENT) + body)


def resealed(content):
    """Return a file of one block per array with the checksums that its arrays now have."""
    header = json.loads(content[24 : header_end(content)])
    at, blocks = at_rows(content), []
    for nnz in (header["nnz"], header["unknown"]):
        if nnz is not None:
            for size in (8 * (header["shape"][0] + 1), np.dtype(header["index_dtype"]).itemsize * nnz):
                blocks += [block_checksum(bytes(content[at : at + size]))] if size else []
                at = -(-(at + size) // ALIGNMENT) * ALIGNMENT
    table = np.array(blocks, "<u4").tobytes()
    return bytes(content[:at]) + table + zlib.crc32(table).to_bytes(4, "little")


def test_round_trip(matrix, saved):
    opened = BinaryMatrix.open(saved)
    assert opened == matrix
    assert opened.columns == matrix.columns
    np.testing.assert_array_equal(opened.toarray(), DENSE)


def test_header_helper_changes_nothing_by_itself(matrix, saved):
    with_header(saved)
    assert BinaryMatrix.open(saved) == matrix


def test_ones_are_mapped_and_read_only(saved):
    opened = BinaryMatrix.open(saved)
    base = opened.indices
    while base is not None and not isinstance(base, np.memmap):
        base = base.base
    assert isinstance(base, np.memmap)
    assert not opened.indices.flags.writeable
    assert np.shares_memory(opened.rows(10, 20).indices, opened.indices)
    np.testing.assert_array_equal(opened.rows(10, 20).toarray(), DENSE[10:20])


def test_paths_may_be_text(matrix, tmp_path):
    matrix.save(str(tmp_path / "t.felb"))
    assert BinaryMatrix.open(str(tmp_path / "t.felb")) == matrix


def test_a_slice_saves_only_its_own_rows(matrix, tmp_path):
    matrix.rows(20, 30).save(tmp_path / "part.felb")
    matrix.save(tmp_path / "all.felb")
    opened = BinaryMatrix.open(tmp_path / "part.felb")
    assert opened == matrix.rows(20, 30)
    assert opened.indptr[0] == 0
    assert opened.indices.size == matrix.rows(20, 30).nnz
    assert (tmp_path / "part.felb").stat().st_size < (tmp_path / "all.felb").stat().st_size


@pytest.mark.parametrize("shape", [(5, 4), (0, 4), (5, 0), (0, 0)])
def test_nothing_in_it(shape, tmp_path):
    BinaryMatrix.of(np.zeros(shape)).save(tmp_path / "zero.felb")
    opened = BinaryMatrix.open(tmp_path / "zero.felb")
    assert opened.shape == shape
    assert opened.nnz == 0
    assert opened == BinaryMatrix.of(np.zeros(shape))


@pytest.mark.parametrize("n_columns", [65536, 65537])
def test_wide(n_columns, tmp_path):
    wide = BinaryMatrix.of(sp.coo_array(([1, 1], ([0, 2], [n_columns - 1, 0])), shape=(3, n_columns)))
    wide.save(tmp_path / "wide.felb")
    opened = BinaryMatrix.open(tmp_path / "wide.felb")
    assert opened == wide
    assert opened.indices.dtype == (np.uint16 if n_columns == 65536 else np.int32)


def test_arrays_are_aligned(saved):
    content = saved.read_bytes()
    assert content.startswith(MAGIC)
    indptr = np.frombuffer(content, "<i8", count=51, offset=at_rows(content))
    np.testing.assert_array_equal(indptr, BinaryMatrix.of(DENSE).indptr)


def test_every_truncation_is_refused(saved, tmp_path):
    content = saved.read_bytes()
    cut = tmp_path / "cut.felb"
    for length in [*range(0, 200, 7), *range(200, len(content), 61), len(content) - 1]:
        cut.write_bytes(content[:length])
        with pytest.raises(InputError, match=r"cut\.felb is (not a felb matrix|damaged|truncated)"):
            BinaryMatrix.open(cut)


def test_longer_than_it_says(saved):
    saved.write_bytes(saved.read_bytes() + b"\0")
    with pytest.raises(InputError, match="truncated or damaged"):
        BinaryMatrix.open(saved)


@pytest.mark.parametrize("content", [b"", b"FELB", b"\x93NUMPY....", b"PK\x03\x04", b"FELBMAT9" + b"\0" * 100])
def test_foreign_file(content, tmp_path):
    (tmp_path / "f.felb").write_bytes(content)
    with pytest.raises(InputError, match=r"f\.felb .*BinaryMatrix\.save"):
        BinaryMatrix.open(tmp_path / "f.felb")


@pytest.mark.parametrize(
    "changes",
    [
        {"shape": [50]},
        {"shape": [50, -13]},
        {"shape": ["50", "13"]},
        {"shape": [50.0, 13]},
        {"shape": [True, 13]},
        {"shape": None},
        {"shape": [50, 2**40]},
        {"nnz": -1},
        {"nnz": None},
        {"nnz": "12"},
        {"index_dtype": "object"},
        {"index_dtype": "int32"},
        {"index_dtype": "no such type"},
        {"index_dtype": 7},
        {"columns": 5},
        {"columns": "abcdefghijklm"},
        {"columns": ["a"]},
        {"columns": ["a"] * 13},
        {"columns": {"a": 1}},
    ],
)
def test_damaged_header(saved, changes):
    with_header(saved, **changes)
    with pytest.raises(InputError, match=r"m\.felb is damaged: .*header"):
        BinaryMatrix.open(saved)


@pytest.mark.parametrize("changes", [{"nnz": 10**15}, {"nnz": 0}, {"shape": [10**15, 13]}, {"shape": [49, 13]}])
def test_header_that_does_not_fit_the_file(saved, changes):
    with_header(saved, **changes)
    with pytest.raises(InputError, match=r"is (truncated or )?damaged"):
        BinaryMatrix.open(saved)


@pytest.mark.parametrize("text", [b"", b"[]", b'"x"', b"nul", b"{}", b"\xff\xfe", b"[" * 100_000, b'{"shape": [1, 1]}'])
def test_header_that_is_no_header(text, tmp_path):
    path = tmp_path / "h.felb"
    path.write_bytes(head(text) + b"\0" * 256)
    with pytest.raises(InputError, match="header"):
        BinaryMatrix.open(path)


def test_absurd_header_length(tmp_path):
    (tmp_path / "h.felb").write_bytes(MAGIC + b"\xff" * 8 + b"{}")
    with pytest.raises(InputError, match="header"):
        BinaryMatrix.open(tmp_path / "h.felb")


@pytest.mark.parametrize(("entry", "value"), [(0, 1), (7, 2**40), (7, -1), (50, 0)])
def test_damaged_row_starts(saved, entry, value):
    content = bytearray(saved.read_bytes())
    at = at_rows(content) + 8 * entry
    content[at : at + 8] = value.to_bytes(8, "little", signed=True)
    saved.write_bytes(content)
    with pytest.raises(InputError, match=r"block 1 of 1 of the starts"):
        BinaryMatrix.open(saved)
    saved.write_bytes(resealed(content))
    with pytest.raises(InputError, match=r"rows .*follow"):
        BinaryMatrix.open(saved)


def at_ones(content):
    return -(-(at_rows(content) + 8 * 51) // ALIGNMENT) * ALIGNMENT


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda ones: ones.__setitem__(5, 13), "there is no column 13"),
        (lambda ones: ones.__setitem__(0, 65535), "there is no column 65535"),
        (lambda ones: ones.__setitem__(slice(0, 2), ones[1::-1].copy()), "row 0 names column .* after column"),
        (lambda ones: ones.__setitem__(1, ones[0]), "row 0 names column .* twice"),
    ],
)
def test_damaged_ones_are_refused_with_and_without_fitting_checksums(saved, change, message):
    content = bytearray(saved.read_bytes())
    ones = np.frombuffer(content, "<u2", count=int(DENSE.sum()), offset=at_ones(content))
    change(ones)
    saved.write_bytes(content)
    with pytest.raises(InputError, match=r"block 1 of 1 of the ones \(bytes \d+ to \d+\)"):
        BinaryMatrix.open(saved)
    saved.write_bytes(resealed(content))
    with pytest.raises(InputError, match=f"damaged: {message}"):
        BinaryMatrix.open(saved)


def test_every_changed_byte_is_noticed_or_does_not_matter(matrix, saved):
    content = saved.read_bytes()
    for at in range(0, len(content), 3):
        saved.write_bytes(content[:at] + bytes([content[at] ^ 0x41]) + content[at + 1 :])
        with contextlib.suppress(InputError):
            assert BinaryMatrix.open(saved) == matrix  # padding between arrays


def test_a_pipe_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe.felb")
    with pytest.raises(InputError, match=r"pipe\.felb is no regular file"):
        BinaryMatrix.open(tmp_path / "pipe.felb")


@pytest.mark.parametrize("block", [0, 2])
def test_a_damaged_block_of_a_large_file_is_named(tmp_path, block):
    rng = np.random.default_rng(0)
    tall = BinaryMatrix.of(rng.random((200_000, 25)) < 0.3)
    tall.save(tmp_path / "tall.felb")
    content = bytearray((tmp_path / "tall.felb").read_bytes())
    at = -(-(at_rows(content) + 8 * 200_001) // ALIGNMENT) * ALIGNMENT
    content[at + block * BLOCK_BYTES + 17] ^= 1
    (tmp_path / "tall.felb").write_bytes(content)
    with pytest.raises(InputError, match=f"block {block + 1} of 3 of the ones "):
        BinaryMatrix.open(tmp_path / "tall.felb")


def test_a_file_that_was_checked_is_not_read_again_until_it_changes(matrix, saved, tmp_path, monkeypatch):
    monkeypatch.setenv(verified.CACHE, str(tmp_path / "cache"))
    monkeypatch.setattr(verified, "SMALLEST", 0)
    monkeypatch.setattr(verified, "_known", set())
    looked = []
    monkeypatch.setattr(mapping, "check_chunk", lambda *_: looked.append(1))
    BinaryMatrix.open(saved)
    BinaryMatrix.open(saved)
    assert len(looked) == 2  # too new to be told from one that is written in the same moment
    monkeypatch.setattr(verified, "SETTLED", -1.0)
    BinaryMatrix.open(saved)
    assert BinaryMatrix.open(saved) == matrix
    verified._known.clear()  # as another process finds it
    assert BinaryMatrix.open(saved) == matrix
    assert len(looked) == 3
    os.utime(saved, ns=(0, time.time_ns() + 10**9))
    BinaryMatrix.open(saved)
    assert len(looked) == 4


def test_unreadable_paths(tmp_path):
    with pytest.raises(InputError, match=r"none\.felb: No such file"):
        BinaryMatrix.open(tmp_path / "none.felb")
    with pytest.raises(InputError, match=r"cannot read .*: Is a directory"):
        BinaryMatrix.open(tmp_path)


def test_unwritable_paths(matrix, tmp_path):
    with pytest.raises(InputError, match=r"there is no folder"):
        matrix.save(tmp_path / "no folder" / "m.felb")
    (tmp_path / "folder.felb").mkdir()
    with pytest.raises(InputError, match=r"cannot write .*folder\.felb"):
        matrix.save(tmp_path / "folder.felb")
    assert [path.name for path in tmp_path.iterdir()] == ["folder.felb"]


def test_overwriting_leaves_open_maps_alone(matrix, saved):
    before = BinaryMatrix.open(saved)
    other = BinaryMatrix.of(~DENSE)
    other.save(saved)
    assert before == matrix  # the old file lives on until its last map is gone
    assert BinaryMatrix.open(saved) == other


def test_a_matrix_can_replace_the_file_it_is_mapped_from(matrix, saved):
    BinaryMatrix.open(saved).rows(5, 25).save(saved)
    assert BinaryMatrix.open(saved) == matrix.rows(5, 25)


def test_failed_writing_leaves_the_old_file(matrix, saved, monkeypatch):
    def broken(self, size):
        yield self.rows(0, 1)
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(BinaryMatrix, "row_blocks", broken)
    with pytest.raises(InputError, match="No space left"):
        BinaryMatrix.of(~DENSE).save(saved)
    monkeypatch.undo()
    assert BinaryMatrix.open(saved) == matrix
    assert [path.name for path in saved.parent.iterdir()] == ["m.felb"]


def test_a_copied_file_is_the_same_matrix(matrix, saved, tmp_path):
    shutil.copy(saved, tmp_path / "copy.felb")
    assert BinaryMatrix.open(tmp_path / "copy.felb").fingerprint() == matrix.fingerprint()


# -- block after block -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 7, 50, 100])
def test_written_in_blocks_it_is_the_same_file(matrix, saved, tmp_path, size):
    with MatrixWriter(tmp_path / "blocks.felb") as writer:
        for block in matrix.row_blocks(size):
            writer.append(block)
        writer.append(matrix.rows(0, 0))
        assert not (tmp_path / "blocks.felb").exists()
        assert (writer.shape, writer.nnz) == (matrix.shape, matrix.nnz)
    assert (tmp_path / "blocks.felb").read_bytes() == saved.read_bytes()


def test_no_blocks_are_an_empty_matrix(tmp_path):
    with MatrixWriter(tmp_path / "none.felb"):
        pass
    assert BinaryMatrix.open(tmp_path / "none.felb").shape == (0, 0)


def test_unnamed_blocks_take_the_names_of_the_first(matrix, tmp_path):
    with MatrixWriter(tmp_path / "n.felb") as writer:
        writer.append(matrix.rows(0, 20))
        writer.append(matrix.rows(20, 50).with_columns(None))
    assert BinaryMatrix.open(tmp_path / "n.felb") == matrix


@pytest.mark.parametrize(
    "other", [BinaryMatrix.of(DENSE[:, :5]), BinaryMatrix.of(DENSE, columns=list("abcdefghijklm"))]
)
def test_blocks_with_other_columns_leave_nothing(matrix, tmp_path, other):
    def append_both():
        with MatrixWriter(tmp_path / "x.felb") as writer:
            writer.append(matrix)
            writer.append(other)

    with pytest.raises(InputError, match="other columns"):
        append_both()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_interrupted_writing_leaves_the_old_file(matrix, saved, error):
    def fail():
        with MatrixWriter(saved) as writer:
            writer.append(BinaryMatrix.of(~DENSE))
            raise error

    with pytest.raises(error):
        fail()
    assert BinaryMatrix.open(saved) == matrix
    assert [path.name for path in saved.parent.iterdir()] == ["m.felb"]


def test_a_full_disk_while_blocks_are_written(matrix, saved, monkeypatch):
    def broken(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(shutil, "copyfileobj", broken)
    with pytest.raises(InputError, match=r"m\.felb: No space left"), MatrixWriter(saved) as writer:
        writer.append(matrix.rows(0, 3))
    assert BinaryMatrix.open(saved) == matrix
    assert [path.name for path in saved.parent.iterdir()] == ["m.felb"]


@pytest.mark.parametrize("size", [0, 1, 7, 8, 8 * FOLDED_WORDS - 1, 8 * FOLDED_WORDS, 20_000, BLOCK_BYTES])
def test_every_changed_byte_changes_the_checksum_of_its_block(size):
    rng = np.random.default_rng(size)
    block = rng.integers(0, 256, size, dtype=np.uint8)
    right = block_checksum(block.tobytes())
    for place in rng.integers(0, max(1, size), min(size, 40)):
        changed = block.copy()
        changed[place] ^= rng.integers(1, 256, dtype=np.uint8)
        assert block_checksum(changed.tobytes()) != right


def test_exchanged_pages_change_the_checksum_of_a_block():
    pages = np.random.default_rng(0).integers(0, 256, (256, 4096), dtype=np.uint8)
    right = block_checksum(pages.tobytes())
    for a, b in [(0, 1), (0, 255), (17, 18), (100, 200)]:
        order = np.arange(256)
        order[[a, b]] = b, a
        assert block_checksum(pages[order].tobytes()) != right


def test_a_checksum_is_that_of_sums_of_words():
    block = np.random.default_rng(0).integers(0, 256, 3 * 8 * FOLDED_WORDS + 13, dtype=np.uint8).tobytes()
    words = [int.from_bytes(block[at : at + 8], "little") for at in range(0, 3 * 8 * FOLDED_WORDS, 8)]
    sums = b"".join((sum(words[c::FOLDED_WORDS]) % 2**64).to_bytes(8, "little") for c in range(FOLDED_WORDS))
    assert block_checksum(block) == zlib.crc32(sums + block[-13:])
