"""Small raw tables in many forms, and the schemas that read them."""

from __future__ import annotations

import csv

from felb.tables.schema import Feature, Handling, Roles, Schema

EVENTS = [
    (10, "I21.0", "2024-01-05"),
    (2, "I21.4", "2023-12-31"),
    (2, "E11", "2024-03-01"),
    (2, "E11", "2024-03-01"),
    (33, "E11", "2022-07-09"),
    (4, "J45", "2024-02-02"),
    (10, "Z99", "2024-02-03"),
]
EVENT_SCHEMA = Schema(
    (
        Feature(name="I21 acute myocardial infarction", prefixes=("I21",)),
        Feature(name="E11 type 2 diabetes", codes=("E11",)),
        Feature(name="diabetes since 2024", codes=("E11",), since="2024-01-01"),
        Feature(name="any before 2024", any=True, before="2024-01-01"),
        Feature(name="J45", codes=("J45",)),
    ),
    Roles("person_id", "code", "value", "date"),
    codes=Handling("zero", "ignore"),
)
EVENT_ROWS = {  # by hand
    "2": (1, 1, 1, 1, 0),
    "4": (0, 0, 0, 0, 1),
    "10": (1, 0, 0, 0, 0),
    "33": (0, 1, 0, 1, 0),
}

SURVEY = [
    (3, "F", 39, 24.5, "true"),
    (1, "M", 40, 31.0, "false"),
    (20, None, 71, None, "true"),
    (2, "D", None, 18.25, None),
]
SURVEY_SCHEMA = Schema(
    (
        Feature(name="sex: F", column="sex", values=("F",)),
        Feature(name="sex: M", column="sex", values=("M",)),
        Feature(name="sex: missing", column="sex", missing=True),
        Feature(name="sex: other", column="sex", other=True),
        Feature(name="age below 40", column="age", upper=40),
        Feature(name="age 40-59", column="age", lower=40, upper=60),
        Feature(name="age 60+", column="age", lower=60),
        Feature(name="bmi above 24.5", column="bmi", lower=24.5, lower_open=True),
        Feature(name="insured", column="insured", values=("true",)),
    ),
    Roles("id", "item", "value"),
    {
        "sex": Handling("category", "other"),
        "age": Handling("unknown", "ignore"),
        "bmi": Handling("zero", "ignore"),
        "insured": Handling("zero", "error", ("false",)),
    },
)
SURVEY_ROWS = {
    "1": "010001010",  # by hand; ? is unknown
    "2": "0001???00",
    "3": "100010001",
    "20": "001000101",
}


def write_csv_table(path, names, rows, delimiter=","):
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, delimiter=delimiter)
        writer.writerow(names)
        writer.writerows(rows)
    return path
