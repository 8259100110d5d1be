"""A model as one file: what is in it, what is not, and damage."""

import json
import warnings
import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import felb
from felb.data.files import load
from felb.errors import InputError
from felb.privacy.disclosure import Disclosure
from felb.runs.result import FORMAT, MEMBERS, Result, digest_record, read_assignment

STORED = Path(__file__).parent / "formats" / f"{FORMAT}.felbmodel"
ZOO = load("zoo")


@pytest.fixture(scope="module")
def model():
    return felb.FederatedBMF(3, effort="fast", objective="recover", random_state=0).fit(ZOO)


@pytest.fixture
def saved(model, tmp_path):
    path = tmp_path / "zoo.felbmodel"
    model.save(path)
    return path


def test_a_stored_model_gives_the_bits_of_the_run():
    stored = Result.read(STORED)
    assert stored.outcome.belief is not None
    assert stored.model().transform(ZOO).sum(axis=0).tolist() == list(stored.supports)


def test_another_format_is_refused_by_its_name(model, tmp_path):
    (tmp_path / "later").mkdir()
    Result.from_model(model).write(tmp_path / "later", {})
    record = tmp_path / "later" / "result.json"
    record.write_text(record.read_text().replace(FORMAT, "felb-result-9"))
    with pytest.raises(InputError, match=r"'felb-result-9'.*newer felb"):
        Result.read(tmp_path / "later")


def test_nothing_of_the_owner_is_in_the_file(model, tmp_path):
    Result.from_model(model, ZOO, source="zoo").save(tmp_path / "zoo.felbmodel")
    with zipfile.ZipFile(tmp_path / "zoo.felbmodel") as archive:
        assert set(archive.namelist()) <= set(MEMBERS)
        text = archive.read("result.json").decode()
    assert ZOO.fingerprint() not in text
    back = Result.read(tmp_path / "zoo.felbmodel")
    assert (back.features, back.provenance.data["ones"], back.provenance.data["rows"]) == (None, None, 101)


def test_a_folder_of_a_run_is_a_model(tmp_path):
    run = felb.simulate(felb.Job("zoo", "bmf", 3, clients=3, parameters={"effort": "fast"}), tmp_path / "run")
    again = felb.load(tmp_path / "run")
    assert again.feature_names_in_.tolist() == list(ZOO.columns)
    U = np.concatenate([read_assignment(tmp_path / "run", name) for name in sorted(run.clients)])
    assert again.transform(ZOO).sum(axis=0).tolist() == U.sum(axis=0).tolist() == list(run.supports)
    assert again.score(ZOO) == pytest.approx(run.scores["f1"])
    felb.Result.read(tmp_path / "run").save(tmp_path / "run.felbmodel")
    np.testing.assert_array_equal(felb.load(tmp_path / "run.felbmodel").transform(ZOO), again.transform(ZOO))


def test_results_under_disclosure_rules_keep_no_belief(model, tmp_path):
    found = Result.from_model(model, ZOO).disclosed(Disclosure.of("none"))
    assert (found.outcome.belief, found.features) == (None, None)
    found.save(tmp_path / "zoo.felbmodel")
    with zipfile.ZipFile(tmp_path / "zoo.felbmodel") as archive:
        assert "belief.safetensors" not in archive.namelist()


def test_private_models_keep_their_guarantee_and_no_number_of_records(tmp_path):
    spec = felb.privacy.Privacy(epsilon=2.0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = felb.FederatedBMF(2, effort="fast", privacy=spec, random_state=0).fit(ZOO)
    model.save(tmp_path / "private.felbmodel")
    again = felb.load(tmp_path / "private.felbmodel")
    assert again.privacy == spec
    assert again.privacy_statement_ == model.privacy_statement_
    assert (again.n_records_, again.counts_, again.supports_) == (None, None, None)
    np.testing.assert_array_equal(again.transform(ZOO), model.transform(ZOO))


def test_equal_models_are_equal_files_and_files_are_not_replaced(model, saved, tmp_path):
    model.save(tmp_path / "other.felbmodel")
    assert saved.read_bytes() == (tmp_path / "other.felbmodel").read_bytes()
    with pytest.raises(InputError, match="exists"):
        model.save(saved)
    model.save(saved, force=True)
    with pytest.raises(InputError, match="felbmodel"):
        model.save(tmp_path / "model.pkl")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["other.felbmodel", "zoo.felbmodel"]


def test_estimators_of_others_are_not_saved(tmp_path):
    class Own(felb.GreConD):
        pass

    with pytest.raises(InputError, match="Own"):
        Own(2).fit(ZOO).save(tmp_path / "own.felbmodel")


def test_a_page_of_a_model(model, tmp_path):
    model.report(tmp_path / "plain.html")
    model.report(tmp_path / "data.html", ZOO)
    plain, data = ((tmp_path / name).read_text() for name in ("plain.html", "data.html"))
    assert "milk" in plain
    assert len(data) > len(plain)
    assert "<svg" in data or "<img" in data


def damaged(saved, change):
    """Return a model file whose members were changed."""
    with zipfile.ZipFile(saved) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    change(members)
    with zipfile.ZipFile(saved, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return saved


def edited(**changes):
    """Return what changes entries of result.json."""

    def change(members):
        _store(members, {**json.loads(members["result.json"]), **changes})

    return change


def _store(members, record):
    """Store a record that was changed by somebody who seals it anew."""
    members["result.json"] = json.dumps({**record, "digest": digest_record(record)}).encode()


def parameter(**changes):
    """Return what changes parameters in result.json."""

    def change(members):
        record = json.loads(members["result.json"])
        record["provenance"]["parameters"] |= changes
        _store(members, record)

    return change


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda members: members.pop("result.json"), "no model file"),
        (lambda members: members.update({"../../evil": b"x"}), "evil"),
        (lambda members: members.update({"code.pkl": b"x"}), "code.pkl"),
        (lambda members: members.pop("components.npz"), "components.npz"),
        (lambda members: members.pop("belief.safetensors"), "belief.safetensors"),
        (lambda members: members.update({"belief.safetensors": b"\0" * 50}), "belief.safetensors"),
        (edited(n_components=2), "components.npz"),
        (edited(weights=[-1.0, 1.0]), "weights"),
        (edited(weights=[1.0]), "weights"),
        (edited(n_iter=-1), "n_iter"),
        (edited(surprise=1), "surprise"),
        (parameter(node_cap=0), "node_cap"),
        (parameter(node_cap="all"), "node_cap"),
        (parameter(effort={"tries": "many"}), "effort"),
        (parameter(privacy={"epsilon": -1}), "epsilon"),
    ],
)
def test_damage_is_refused_with_the_place(saved, change, words):
    with pytest.raises(InputError, match=words) as caught:
        felb.load(damaged(saved, change))
    assert "felb-model-" not in str(caught.value)


def test_what_is_no_archive_is_refused(saved, tmp_path):
    for content in (b"", b"PK", saved.read_bytes()[:-30], b"\x80\x04N."):
        saved.write_bytes(content)
        with pytest.raises(InputError, match=r"zoo\.felbmodel"):
            felb.load(saved)
    with pytest.raises(InputError, match="cannot be read"):
        felb.load(tmp_path / "absent.felbmodel")
    with pytest.raises(InputError, match="result folder"):
        felb.load(tmp_path)


def test_an_archive_that_unpacks_to_too_much_is_refused(saved):
    damaged(saved, lambda members: members.update({"components.csv": b""}))
    with zipfile.ZipFile(saved, "a", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("privacy.txt", b"\0" * (1 << 28))
    with pytest.raises(InputError, match="unpacks to more"):
        felb.load(saved)


def test_a_model_without_data_and_one_with_it_agree(model):
    plain, measured = Result.from_model(model), Result.from_model(model, ZOO)
    assert measured.scores == plain.scores
    assert measured.features.total == model.counts_
    assert replace(measured, features=None).supports == plain.supports
