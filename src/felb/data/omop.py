"""OMOP common data model: persons and their conditions, drugs and procedures, as a long table of concepts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from felb.data.duck import identifier, literal
from felb.data.raw_source import RawSource, described
from felb.data.schema import Roles
from felb.errors import InputError

if TYPE_CHECKING:
    from pathlib import Path

    import duckdb

    from felb.data.database_url import Address
    from felb.data.databases import Database

DOMAINS = {
    "condition": ("condition_occurrence", "condition_concept_id", "condition_start_date"),
    "drug": ("drug_exposure", "drug_concept_id", "drug_exposure_start_date"),
    "procedure": ("procedure_occurrence", "procedure_concept_id", "procedure_date"),
    "observation": ("observation", "observation_concept_id", "observation_date"),
    "measurement": ("measurement", "measurement_concept_id", "measurement_date"),
}
"""The tables of events, with their columns of concepts and dates (CDM 5.x)."""
ROLES = Roles(record="person_id", item="concept_id", time="date")


def omop_source(database: Database, address: Address, connection: duckdb.DuckDBPyConnection, folder: Path) -> RawSource:
    """Read the events of some domains; every person of the table ``person`` is a record.

    Options of the URL: ``domains=condition,drug,procedure`` (that is the default), ``schema=NAME`` of the database, and
    ``ancestors=all`` or ``ancestors=2``, by which an event also counts for the ancestors of its concept, all of them or
    those at most so many levels above. Events whose concept is 0 (not mapped) are left out.
    """
    prefix = f"{identifier(address.options['schema'])}." if "schema" in address.options else ""
    named = address.options.get("domains", "condition,drug,procedure").split(",")
    for domain in named:
        if domain not in DOMAINS:
            raise InputError(f"OMOP has no domain {domain!r} here; known are {', '.join(DOMAINS)}")
    database.load(f"{prefix}{identifier('person')}", ["person_id"], "felb_person")
    for domain in named:
        table, concept, date = DOMAINS[domain]
        events = f"(SELECT person_id, {concept} AS concept_id, {date} AS date FROM {prefix}{identifier(table)}) AS e"
        database.load(events, ["person_id", "concept_id", "date"], f"felb_{domain}")
    united = " UNION ALL ".join(f"SELECT * FROM felb_{domain}" for domain in named)
    events = f"SELECT * FROM ({united}) WHERE concept_id::VARCHAR <> '0'"
    if "ancestors" in address.options:
        events = _rolled_up(database, prefix, address.options["ancestors"], events)
    connection.execute(f"CREATE TEMP VIEW felb_raw AS {events}")
    database.load(f"{prefix}{identifier('concept')}", ["concept_id", "concept_name"], "felb_concept")
    used = "SELECT concept_id::VARCHAR, any_value(concept_name) FROM felb_concept WHERE concept_id::VARCHAR IN"
    labels = connection.execute(f"{used} (SELECT concept_id::VARCHAR FROM felb_raw) GROUP BY 1").fetchall()
    return RawSource(
        connection,
        folder,
        "felb_raw",
        described(connection, "felb_raw", address.name),
        address.name,
        ordered=False,
        roles=ROLES,
        records="(SELECT person_id AS record FROM felb_person)",
        labels=dict(labels),
    )


def _rolled_up(database: Database, prefix: str, levels: str, events: str) -> str:
    """Return the SQL of the events, each once for its concept and once for every ancestor of it."""
    if levels != "all" and not levels.isdigit():
        raise InputError(f"ancestors={levels} is neither all nor a number of levels")
    ancestors = f"{prefix}{identifier('concept_ancestor')}"
    names = ["ancestor_concept_id", "descendant_concept_id", "min_levels_of_separation"]
    database.load(ancestors, names, "felb_ancestor")
    near = "true" if levels == "all" else f"min_levels_of_separation::INTEGER <= {literal(levels)}::INTEGER"
    above = f"SELECT ancestor_concept_id, descendant_concept_id FROM felb_ancestor WHERE {near}"
    return (
        f"SELECT person_id, concept_id, date FROM ({events}) UNION ALL "
        f"SELECT person_id, ancestor_concept_id AS concept_id, date FROM ({events}) AS e JOIN ({above}) AS a "
        "ON e.concept_id = a.descendant_concept_id WHERE a.ancestor_concept_id <> e.concept_id"
    )
