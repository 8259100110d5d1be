"""ACS Income and Poverty from files in the layout of the census."""

from __future__ import annotations

import random

import numpy as np
import pytest
from raw_files import WAYS, put, refused

from felb.data import readers
from felb.errors import InputError
from felb_paper.sources import acs, load_income, load_poverty

ALL = ("RT", "SERIALNO", "SPORDER", "PWGTP", "PINCP", *sorted({*acs.INCOME, *acs.POVERTY}))


def person(number, **answers):
    """A person who passes the filter, all answers 1 unless given."""
    values = dict.fromkeys(ALL, "1") | {"RT": "P", "SERIALNO": f"2018GQ{number:07}", "SPORDER": "01"}
    values |= {"AGEP": "40", "PINCP": "30000", "WKHP": "40", "PWGTP": "12"}
    return values | answers


def pums(people, columns=ALL):
    return "\n".join([",".join(columns), *(",".join(who[name] for name in columns) for who in people)]) + "\n"


PEOPLE = [
    person(1, OCCP="0010", RELP="00"),
    person(2, AGEP="16"),
    person(3, PINCP="100"),
    person(4, PINCP=""),
    person(5, WKHP="", OCCP="", COW=""),
    person(6, PWGTP="0"),
    person(7, AGEP="17", PINCP="101", WKHP="01", PWGTP="1", OCCP="9920", COW=""),
    person(8, PINCP="-05000"),
]


@pytest.mark.parametrize("way", WAYS)
def test_income_takes_adults_who_work_and_earn(tmp_path, way):
    table = load_income(put(tmp_path / "raw", {"psam_p06.csv": pums(PEOPLE)}, way))
    assert table.rows == ("2018GQ0000001-01", "2018GQ0000007-01")
    assert table.matrix.row_sums().tolist() == [10, 10]
    first, second = ({table.matrix.columns[i] for i in np.flatnonzero(row)} for row in table.matrix.toarray())
    assert first - second == {"AGEP=40", "COW=1", "OCCP=10", "RELP=0", "WKHP=40"}
    assert second - first == {"AGEP=17", "COW=missing", "OCCP=9920", "RELP=1", "WKHP=1"}


def test_poverty_takes_everyone_and_missing_is_an_answer(tmp_path):
    table = load_poverty(put(tmp_path, {"psam_pusa.csv": pums(PEOPLE)}, "plain"))
    assert table.matrix.shape[0] == len(PEOPLE)
    assert set(table.matrix.row_sums().tolist()) == {20}
    features = [name.partition("=")[0] for name in table.matrix.columns]
    assert list(dict.fromkeys(features)) == list(acs.POVERTY)
    at = [name for name in table.matrix.columns if name.startswith("OCCP=")]
    assert at == ["OCCP=1", "OCCP=10", "OCCP=9920", "OCCP=missing"]


def test_newer_years_name_the_relationship_otherwise(tmp_path):
    newer = pums(PEOPLE).replace("RELP", "RELSHIPP")
    table = load_income(put(tmp_path / "new", {"psam_p06.csv": newer}, "plain"))
    assert "RELSHIPP=0" in table.matrix.columns
    mixed = put(tmp_path / "mixed", {"psam_p06.csv": newer, "psam_p08.csv": pums(PEOPLE)}, "folder")
    refused(load_income, mixed, "psam_p08.csv", "RELSHIPP", "one year")


def test_older_years_name_their_files_otherwise(tmp_path):
    table = load_poverty(put(tmp_path, {"ss16pca.csv": pums(PEOPLE), "ss16hca.csv": "RT,SERIALNO\nH,1\n"}, "zip"))
    assert table.matrix.shape[0] == len(PEOPLE)


@pytest.mark.parametrize("size", [1, 400, 1 << 22])
def test_files_are_put_below_each_other_and_are_as_a_plain_loop_makes_them(tmp_path, monkeypatch, size):
    monkeypatch.setattr(readers, "BLOCK_BYTES", size)
    rng = random.Random(3)
    people = [
        person(i, **{name: rng.choice(["", "1", "2", "07", "15", "300"]) for name in set(acs.POVERTY)})
        for i in range(60)
    ]
    files = {f"psam_p{i:02}.csv": pums(people[i * 20 : i * 20 + 20]) for i in range(3)}
    table = load_poverty(put(tmp_path, files, "folder"))

    def answer(who, name):
        return (name, int(who[name]) if who[name] else 10**9)

    columns = [pair for name in acs.POVERTY for pair in sorted({answer(who, name) for who in people})]
    expected = [[answer(who, name) == (name, value) for name, value in columns] for who in people]
    np.testing.assert_array_equal(table.matrix.toarray(), expected)
    names = [f"{name}={'missing' if value == 10**9 else value}" for name, value in columns]
    assert list(table.matrix.columns) == names
    assert table.rows == tuple(f"{who['SERIALNO']}-01" for who in people)


def test_features_are_a_parameter_and_names_of_persons_may_be_missing(tmp_path):
    path = put(tmp_path, {"psam_p06.csv": pums(PEOPLE, ("SEX", "MAR"))}, "plain")
    table = load_poverty(path, features=("MAR", "SEX"))
    assert table.matrix.columns == ("MAR=1", "SEX=1")
    assert table.rows is None
    for bad in ((), ("SEX", "SEX")):
        with pytest.raises(InputError, match="features must name"):
            load_poverty(path, features=bad)


def test_quoted_cells(tmp_path):
    quoted = "\n".join(",".join(f'"{cell}"' for cell in line.split(",")) for line in pums(PEOPLE).splitlines())
    plain = load_income(put(tmp_path / "a", {"psam_p06.csv": pums(PEOPLE)}, "plain"))
    table = load_income(put(tmp_path / "b", {"psam_p06.csv": quoted}, "plain"))
    assert (table.matrix, table.rows) == (plain.matrix, plain.rows)


def test_files_that_are_wrong(tmp_path):
    def wrong(content, *words, load=load_income):
        refused(load, put(tmp_path, {"psam_p06.csv": content}, "plain"), *words)

    wrong(pums(PEOPLE, [name for name in ALL if name not in ("OCCP", "RELP")]), "lacks the columns OCCP, RELP")
    wrong(pums(PEOPLE, [name for name in ALL if name != "PINCP"]), "lacks the column PINCP")
    wrong(pums(PEOPLE).replace("P,2018GQ0000003,", "P,"), "line 4 has", "fields")
    wrong(pums([*PEOPLE, person(9, OCCP="11-2021")]), "line 10", "'11-2021'", "OCCP")
    wrong(pums([*PEOPLE, person(9, OCCP="1.5")]), "line 10", "'1.5'", "OCCP", "whole number")
    wrong(pums([*PEOPLE, person(9, PINCP="much")]), "line 10", "'much'", "PINCP")
    wrong(pums(PEOPLE[1:6]), "no person")
    wrong(pums([]), "no person", load=load_poverty)
    wrong("", "line 1 is empty")
    wrong(pums(PEOPLE).encode("utf-16"), "UTF-8")
    wrong(pums([person(1, SERIALNO="né")]).encode("latin-1"), "line 2 is not UTF-8")
    refused(load_income, tmp_path / "psam_p99.csv", "No such file")
