"""The catalogue says of every data set what a user must know, and guards what is loaded."""

from __future__ import annotations

import pytest

from felb.data import load
from felb.data.files import SHIPPED, Shipped
from felb.errors import InputError
from felb_paper import data as catalogue
from felb_paper import sources
from felb_paper.data import ENTRIES, entries, find, load_raw

RATINGS = '{"item_id": 3, "user_id": 12, "rating": 4}\n'


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.name)
def test_entries_are_complete(entry):
    assert entry.title
    assert entry.licence
    assert len(entry.attribution) > 10
    assert entry.home.startswith("https://")
    assert (entry.shape is None) == (entry.density is None)
    assert entry.density is None or 0 < entry.density < 1
    assert entry.shipped != bool(entry.files) == bool(entry.download) == bool(entry.loader)
    if entry.loader:
        assert callable(getattr(sources, entry.loader))


def test_names_are_unique_and_everything_shipped_is_listed():
    names = [entry.name for entry in ENTRIES]
    assert len(names) == len({name.lower() for name in names})
    assert set(SHIPPED) <= set(entries())
    listed = [entry.shipped for entry in entries().values()]
    assert listed == sorted(listed, reverse=True)


@pytest.mark.parametrize("name", SHIPPED)
def test_shipped_data_is_what_the_catalogue_says(name):
    table, entry = load_raw(name), find(name)
    assert table.matrix == load(name)
    assert table.matrix.shape == entry.shape
    assert table.matrix.density == pytest.approx(entry.density, abs=1e-4)
    assert table.rows is None or len(table.rows) == entry.shape[0]


def test_a_shipped_set_without_an_entry_is_described_by_what_is_known(monkeypatch):
    monkeypatch.setattr(catalogue, "ENTRIES", ())
    monkeypatch.setattr(catalogue, "SHIPPED", {"zoo": Shipped("zoo", "animals", "CC BY 4.0")})
    (entry,) = entries().values()
    assert (entry.name, entry.shape, entry.licence) == ("zoo", (101, 17), "CC BY 4.0")


def test_names_are_found_in_any_case():
    assert find("CS.lg").name == "cs.LG"
    with pytest.raises(InputError, match=r"no data set 'mnist'; felb knows zoo, .*movielens"):
        find("mnist")


def test_raw_files_are_looked_for_in_the_data_folder(tmp_path, monkeypatch):
    monkeypatch.setenv(catalogue.DATA_FOLDER, str(tmp_path))
    with pytest.raises(InputError, match=r"goodreads; .*ratings.json .*https://grouplens"):
        load_raw("goodreads")
    (tmp_path / "goodreads").mkdir()
    (tmp_path / "goodreads" / "ratings.json").write_text(RATINGS)
    assert load_raw("goodreads", any_shape=True).matrix.shape == (1, 1)
    assert load_raw("goodreads", any_shape=True, at_least=5).matrix.nnz == 0
    monkeypatch.delenv(catalogue.DATA_FOLDER)
    assert find("goodreads").folder.parts[-2:] == ("felb-data", "goodreads")


def test_another_shape_is_refused_unless_it_is_wanted(tmp_path):
    path = tmp_path / "ratings.json"
    path.write_text(RATINGS)
    with pytest.raises(InputError, match=r"ratings.json: .*1 x 1.*350332 x 9374"):
        load_raw("goodreads", path)


def test_data_that_grows_has_no_fixed_shape(tmp_path):
    path = tmp_path / "arxiv-metadata-oai-snapshot.json"
    path.write_text('{"id": "1", "categories": "cs.LG", "abstract": "network"}\n')
    assert load_raw("cs.LG", path).matrix.columns == ("network",)


def test_shipped_data_takes_no_file(tmp_path):
    with pytest.raises(InputError, match="zoo"):
        load_raw("zoo", tmp_path)


def test_data_without_a_published_size_is_loaded_whatever_its_size(tmp_path):
    path = tmp_path / "arxiv-metadata-oai-snapshot.json"
    path.write_text('{"id": "1", "categories": "cs.LG", "abstract": "The networks"}\n')
    assert load_raw("cs.LG-R", path).matrix.columns == ("networks", "the")
