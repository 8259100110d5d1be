"""The loader of a site: reads files or a database under the schema into a snapshot that the vault opens.

``python -m felb_sites.loader FOLDER`` is a process of its own. It parses what others have written and may hold the
credentials of a database; it has neither the keys nor the store of the vault. The vault reads nothing but snapshots.
"""

from __future__ import annotations

import subprocess
import sys
import time
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

from felb.data.files import read
from felb.data.storage import save_matrix
from felb.errors import FelbError, InputError, SchemaWarning, describe_without_values
from felb.tables.schema import Schema
from felb_sites.run_plan import fingerprint
from felb_sites.vault.policy import SiteConfig
from felb_sites.vault.snapshot import Snapshot, write_snapshot

if TYPE_CHECKING:
    from felb.data.binary import BinaryMatrix

VALUES = "--values"
"""Errors may repeat values of the data, since a person reads them on a terminal."""


def read_data(config: SiteConfig) -> BinaryMatrix:
    """Read the data of a site as its settings say."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SchemaWarning)  # what is new is the site's own; `felb schema check` tells it
        return read(
            config.data,
            client_column=config.client_column,
            header=config.header,
            binarize_threshold=config.binarize_threshold,
            missing=config.missing,
            schema=config.schema,
        ).matrix


def fingerprint_columns(config: SiteConfig, matrix: BinaryMatrix) -> str | None:
    """Fingerprint what a plan names: the columns in their order, and the schema if there is one."""
    names = matrix.columns
    if names is not None and config.schema is not None:
        names = Schema.read(config.schema).agreed_names
    return None if names is None else fingerprint(names)


def load(vault: Path) -> Snapshot:
    """Read the data of the site whose vault has the folder, and put a new snapshot in the place of the old one."""
    config = SiteConfig.load(vault / "settings.json")
    matrix = read_data(config)
    columns = fingerprint_columns(config, matrix)
    return write_snapshot(vault, matrix, columns=columns, settings=config.data_digest, save=save_matrix)


def refresh(vault: Path) -> Snapshot:
    """Take a new snapshot in a process of its own; its errors name rows and columns, and values on a terminal only."""
    values = [VALUES] if sys.stderr.isatty() else []
    done = subprocess.run(
        [sys.executable, "-m", "felb_sites.loader", str(vault), *values],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    if done.returncode:
        said = done.stderr.strip().splitlines()
        raise InputError(said[-1] if said else f"the loader has ended with code {done.returncode}")
    found = Snapshot.read(vault)
    assert found is not None
    return found


def main() -> None:
    """Take a snapshot for the vault whose folder is given; what is logged holds nothing of the data."""
    tells = VALUES in sys.argv[2:] or sys.stderr.isatty()
    if not tells:
        warnings.simplefilter("ignore")  # they may repeat values
    try:
        made = load(Path(sys.argv[1]))
    except Exception as error:
        if tells and isinstance(error, FelbError | OSError):
            raise SystemExit(f"the data cannot be read: {error}") from None
        advice = "`felb site refresh` on a terminal says more"
        raise SystemExit(f"the data cannot be read: {describe_without_values(error)}; {advice}") from None
    sys.stdout.write(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {made.rows} rows, {made.columns} columns\n")


if __name__ == "__main__":
    main()
