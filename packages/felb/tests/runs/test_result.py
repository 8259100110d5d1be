"""A result survives the way to disk and back, in files that need no felb to be read."""

from __future__ import annotations

import contextlib
import json
import math
import re
import shutil
from dataclasses import replace
from urllib.parse import unquote

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from results import reseal

from felb import __version__
from felb.errors import InputError
from felb.federated.protocol import Outcome
from felb.metrics.counts import History
from felb.records import replace_nonfinite
from felb.runs import reading_unverified
from felb.runs.execute import simulate
from felb.runs.job import Job
from felb.runs.result import LONGEST_STEM, Component, Provenance, Result, file_stem, read_assignment


@pytest.fixture
def result() -> Result:
    return Result(
        outcome=Outcome(
            np.array([[1, 0, 1, 0], [0, 0, 0, 0], [0, 1, 1, 1]], dtype=bool),
            n_iter=1,
            integrality_gap=0.01,
            supports=np.array([2, 0, 5]),
        ),
        columns=("fever", "cough; dry", "größe", 'say "x"'),
        clients={"north": 4, "a/b": 3},
        scores={"f1": 0.75, "errors": 3},
        history=History(
            [{"round": 0, "task": "local_factor", "loss": 4.5}, {"round": 1, "task": "assign", "f1": 0.75}]
        ),
        provenance=Provenance("felb", {"l1": 0.1}, 7, {"source": "x.csv", "rows": 7}),
    )


@pytest.fixture
def assignments(result):
    rng = np.random.default_rng(0)
    return {client: rng.random((size, 3)) < 0.5 for client, size in result.clients.items()}


def test_read_gives_back_what_was_written(tmp_path, result, assignments):
    result.write(tmp_path, assignments)
    back = Result.read(tmp_path)
    assert np.array_equal(back.components, result.components)
    assert back.components.dtype == bool
    assert back.to_json() == result.to_json()
    for client, U in assignments.items():
        stored = read_assignment(tmp_path, client)
        assert stored.dtype == bool
        assert np.array_equal(stored, U)


def test_without_names_columns_are_numbered(tmp_path, result, assignments):
    unnamed = replace(result, columns=None)
    unnamed.write(tmp_path, assignments)
    back = Result.read(tmp_path)
    assert back.columns is None
    assert back.described()[0] == Component(2, ("x1", "x2", "x3"), 5)


def test_components_come_most_supported_first(result):
    assert [(c.number, c.support, c.features) for c in result.described()] == [
        (2, 5, ("cough; dry", "größe", 'say "x"')),
        (0, 2, ("fever", "größe")),
        (1, 0, ()),
    ]


def test_rounds_are_counted_by_task(result):
    assert result.rounds() == {"local_factor": 1, "assign": 1}
    centralized = replace(result, history=History([{"round": i, "loss": 1.0} for i in range(3)]))
    assert centralized.rounds() == {"iterate": 3}


def test_provenance_names_version_and_machine_but_not_whose(result):
    made = result.to_json()["provenance"]
    assert made["felb"] == __version__
    assert made["machine"].keys() == {"python", "numpy", "system", "processor", "cores"}


def test_figures_json_cannot_say_are_null(tmp_path, result, assignments):
    outcome = replace(result.outcome, integrality_gap=math.nan)
    odd = replace(result, outcome=outcome, history=History([{"round": np.int64(0), "change": math.inf}]))
    odd.write(tmp_path, assignments)
    text = (tmp_path / "result.json").read_text(encoding="utf-8")
    record = json.loads(text, parse_constant=lambda word: pytest.fail(f"{word} is not JSON"))
    assert record["integrality_gap"] is None
    assert record["history"] == [{"round": 0, "change": None}]
    assert replace_nonfinite({"a": (np.float32(0.5), np.float64("nan")), "b": [np.int32(3), "x"]}) == {
        "a": [0.5, None],
        "b": [3, "x"],
    }


# -- damage ------------------------------------------------------------------------------------------------------


def test_every_missing_entry_is_named(tmp_path, result, assignments):
    result.write(tmp_path, assignments)
    whole = json.loads((tmp_path / "result.json").read_text(encoding="utf-8"))
    read = set(whole) - {"n_components", "n_features", "files", "digest"}  # of which the last two are the seal
    for missing in read:
        (tmp_path / "result.json").write_text(json.dumps({k: v for k, v in whole.items() if k != missing}))
        with pytest.raises(InputError, match=rf"result\.json is damaged .*{missing}"):
            Result.read(tmp_path)
    for key, value in (
        ("columns", 3),
        ("history", [1]),
        ("provenance", {"seed": 1}),
        ("clients", [1]),
        ("supports", 2),
    ):
        (tmp_path / "result.json").write_text(json.dumps({**whole, key: value}))
        with pytest.raises(InputError, match=r"result\.json is damaged"):
            Result.read(tmp_path)


def test_what_clients_do_not_tell_is_absent_not_zero(tmp_path, result, assignments):
    kept = replace(result, outcome=replace(result.outcome, supports=None), scores={})
    kept.write(tmp_path, assignments)
    again = Result.read(tmp_path)
    assert again.supports == (None, None, None)
    assert again.scores == {}
    assert [component.number for component in again.described()] == [0, 1, 2]
    assert (tmp_path / "components.csv").read_text().splitlines()[1].startswith("0,,")


def test_files_that_do_not_belong_together(tmp_path, result, assignments):
    result.write(tmp_path, assignments)
    for shape in ((2, 4), (3, 5)):
        sp.save_npz(tmp_path / "components.npz", sp.csr_array(shape, dtype=bool))
        with pytest.raises(InputError, match="belong"):
            Result.read(tmp_path)


def test_a_truncated_file_is_never_read_as_something_else(tmp_path, result, assignments):
    result.write(tmp_path, assignments)
    path = tmp_path / "components.npz"
    whole = path.read_bytes()
    for size in range(0, len(whole), 37):
        path.write_bytes(whole[:size])
        with pytest.raises(InputError, match=r"components\.npz is not the file"):
            Result.read(tmp_path)
        reseal(tmp_path)
        with pytest.raises(InputError, match=r"components\.npz is damaged"):
            Result.read(tmp_path)


def test_unknown_and_damaged_assignments(tmp_path, result, assignments):
    result.write(tmp_path, assignments)
    with pytest.raises(InputError, match=r"'east'.*result\.json"):
        read_assignment(tmp_path, "east")
    (tmp_path / "assignments" / "north.npz").write_bytes(b"PK")
    with pytest.raises(InputError, match="damaged"):
        read_assignment(tmp_path, "north")


def test_pickled_objects_are_not_loaded(tmp_path, result, assignments):
    result.write(tmp_path, assignments)
    np.savez(tmp_path / "components.npz", format=np.array({"x": 1}, dtype=object))
    reseal(tmp_path)
    with pytest.raises(InputError, match="damaged"):
        Result.read(tmp_path)


@pytest.mark.parametrize("kind", ["S3", "U4", "float16", "complex64", "datetime64[s]", "float64"])
def test_components_of_another_type_are_refused(tmp_path, result, assignments, kind):
    result.write(tmp_path, assignments)
    parts = dict(np.load(tmp_path / "components.npz"))
    parts["data"] = np.full(parts["data"].shape, 2).astype(kind)
    np.savez(tmp_path / "components.npz", **parts)
    reseal(tmp_path)
    with pytest.raises(InputError, match=r"components\.npz"):
        Result.read(tmp_path)


# -- file names --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("client", "stem"),
    [
        ("client-01", "client-01"),
        ("St. Mary", "St.%20Mary"),
        ("a/b", "a%2Fb"),
        ("a\\b", "a%5Cb"),
        ("..", "%2E."),
        (".hidden", "%2Ehidden"),
        ("50%", "50%25"),
        ("€", "%E2%82%AC"),
        ("x~", "x%7E"),
        ("", "~"),
    ],
)
def test_file_names_of_clients(client, stem):
    assert file_stem(client) == stem


def test_labels_that_once_collided():
    assert file_stem("\u20ac") != file_stem(" AC")
    assert file_stem("a b") != file_stem("a%20b")
    assert file_stem("L" * 300) != file_stem("L" * 301)


@given(st.text(max_size=200))
def test_a_file_name_is_plain_short_and_inside_its_folder(client):
    stem = file_stem(client)
    assert stem.isascii()
    assert 0 < len(stem) <= LONGEST_STEM
    assert not stem.startswith(".")
    assert not set(stem) & set('/\\:*?"<>| \0')
    if "~" not in stem:
        assert unquote(stem) == client, "distinct labels give distinct names, since quoting can be undone"


@given(
    st.text(alphabet=st.sampled_from("aA./%~ €\u20ac\n\ud800")), st.text(alphabet=st.sampled_from("aA./%~ €\n\ud800"))
)
def test_distinct_labels_get_distinct_names(a, b):
    assert (file_stem(a) == file_stem(b)) == (a == b)


def test_what_tells_the_data_from_other_data_is_not_in_what_is_shared(tmp_path):
    found = simulate(Job("zoo", "grecond+or", 3, clients=3), tmp_path / "out")
    assert found.provenance.data["fingerprint"]
    shared = (tmp_path / "out" / "result.json").read_text()
    assert found.provenance.data["fingerprint"] not in shared
    stored = json.loads(shared)
    assert stored["provenance"]["data"]["ones"] is None
    assert set(stored["clients"].values()) == {None}
    assert Result.read(tmp_path / "out").provenance.data == found.provenance.data, "its owner still knows"
    (tmp_path / "out" / "private.json").unlink()  # as it is passed on
    with pytest.warns(UserWarning, match=r"without private\.json"):
        received = Result.read(tmp_path / "out")
    assert received.provenance.data["fingerprint"] is None
    assert received.scores == found.scores


def test_private_facts_of_another_result_are_refused(tmp_path):
    for seed in (0, 1):
        simulate(Job("zoo", "grecond+or", 3, clients=3, seed=seed), tmp_path / f"{seed}")
    own = json.loads((tmp_path / "0" / "private.json").read_text())
    (tmp_path / "1" / "private.json").write_text(json.dumps(own))
    with pytest.raises(InputError, match=r"private\.json is not the file"):
        Result.read(tmp_path / "1")


# -- the seal ------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def sealed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sealed") / "out"
    simulate(Job("zoo", "grecond+or", 3, clients=3), folder)
    return folder


def _files(folder):
    return sorted(path for path in folder.rglob("*") if path.is_file())


def test_every_file_of_a_result_is_sealed(sealed):
    listed = json.loads((sealed / "result.json").read_text())["files"]
    assert [sealed / name for name in sorted(listed)] == [path for path in _files(sealed) if path.name != "result.json"]
    assert {"components.npz", "components.csv", "private.json", "assignments/client-01.npz"} <= set(listed)
    assert "outbound/client-01.jsonl" in listed


def test_a_flipped_bit_a_lost_line_and_an_exchanged_file_are_refused_by_name(sealed, tmp_path):
    rng = np.random.default_rng(0)
    for number, name in enumerate(path.relative_to(sealed) for path in _files(sealed)):
        folder = tmp_path / str(number)
        shutil.copytree(sealed, folder)
        path = folder / name
        whole = path.read_bytes()
        for _ in range(20):
            changed = bytearray(whole)
            changed[rng.integers(len(whole))] ^= 1 << int(rng.integers(8))
            path.write_bytes(bytes(changed))
            with contextlib.suppress(ValueError):
                if path.name == "result.json" and json.loads(bytes(changed)) == json.loads(whole):
                    continue  # blanks say nothing
            with pytest.raises(InputError, match=re.escape(path.name)):
                Result.read(folder)
        path.unlink()
        if path.name == "private.json":
            with pytest.warns(UserWarning, match="private"):
                Result.read(folder)
            continue
        with pytest.raises(InputError, match=re.escape(path.name) if path.name != "result.json" else "result"):
            Result.read(folder)


def test_a_changed_result_is_read_on_request_and_says_so(sealed, tmp_path):
    shutil.copytree(sealed, tmp_path / "out")
    one, other = (tmp_path / "out" / "assignments" / f"client-0{i}.npz" for i in (1, 2))
    content = one.read_bytes()
    one.write_bytes(other.read_bytes())
    other.write_bytes(content)
    with pytest.raises(InputError, match=r"client-01\.npz"):
        Result.read(tmp_path / "out")
    with reading_unverified(), pytest.warns(UserWarning, match=r"unverified: .*client-0\d\.npz") as told:
        assert Result.read(tmp_path / "out").scores == Result.read(sealed).scores
    assert len(told) == 2


def test_private_facts_that_were_not_written_with_the_result_are_refused(sealed, tmp_path, result, assignments):
    (tmp_path / "out").mkdir()
    result.write(tmp_path / "out", assignments, own=False)
    shutil.copy(sealed / "private.json", tmp_path / "out")
    with pytest.raises(InputError, match=r"private\.json was not written with the result"):
        Result.read(tmp_path / "out")
