"""Public data: what it is, whose it is, where it is to be had, and how it becomes a matrix."""

from __future__ import annotations

import os
import warnings
from dataclasses import dataclass
from functools import cache as kept_in_memory
from pathlib import Path
from typing import Any

from felb.data.binary import BinaryMatrix
from felb.data.files import SHIPPED, Table, load, read, row_names
from felb.errors import FelbError, InputError

# Nothing is ever fetched. A data set either comes with felb, or its raw file is downloaded by the user, who thereby
# accepts the terms of its publisher.

DATA_FOLDER = "FELB_DATA"
"""Environment variable that names the folder with the raw files."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A public data set.

    Parameters
    ----------
    name : how commands name it
    title : what it is, in a line
    shape, density : of the matrix that its loader makes of the complete raw data, for data of the paper as it prints
        them; None where it prints none
    licence, attribution : terms of the publisher, and whom to credit
    home : page of the publisher
    files : names of the raw files, any of which will do; empty if the data comes with felb
    download : what to download there
    loader : name of the function in `felb_paper.sources`
    grows : whether the publisher keeps adding to it, so that the shape is only that of one day
    """

    name: str
    title: str
    shape: tuple[int, int] | None
    density: float | None
    licence: str
    attribution: str
    home: str
    files: tuple[str, ...] = ()
    download: str = ""
    loader: str = ""
    grows: bool = False

    @property
    def shipped(self) -> bool:
        """Whether the data comes with felb."""
        return self.name in SHIPPED

    @property
    def folder(self) -> Path:
        """Where its raw files are looked for if no other place is named."""
        return data_folder() / self.name


def data_folder() -> Path:
    """Return the folder for raw files: ``$FELB_DATA``, or ``felb-data`` in the home folder."""
    named = os.environ.get(DATA_FOLDER)
    return Path(named) if named else Path.home() / "felb-data"


CENSUS = (
    "U.S. Census Bureau, American Community Survey, 1-Year Public Use Microdata Sample; the selection of persons and "
    "columns follows F. Ding, M. Hardt, J. Miller, L. Schmidt: Retiring Adult (2021)"
)
CENSUS_TERMS = "published for public use by the U.S. government, identifiers removed; see the terms on census.gov"
CENSUS_HOME = "https://www.census.gov/programs-surveys/acs/microdata.html"
CENSUS_DOWNLOAD = (
    "persons of one year, CSV, of all states (csv_p<st>.zip) or the country (csv_pus.zip), from "
    "https://www2.census.gov/programs-surveys/acs/data/pums/YEAR/1-Year/; which year and states have the published "
    "size is not known, other ones need any_shape"
)
CENSUS_FILES = ("psam_p<SS>.csv (to 2016: ss<YY>p<st>.csv)",)

ENTRIES = (
    Entry(
        "zoo", "animals x properties", (101, 17), 0.4432, "CC BY 4.0",
        "R. Forsyth: Zoo (1990), UCI Machine Learning Repository, doi.org/10.24432/C5R59V; as prepared in R's mlbench",
        "https://archive.ics.uci.edu/dataset/111/zoo",
    ),
    Entry(
        "soybean", "diseased plants x symptoms, one-hot", (683, 99), 0.3190, "CC BY 4.0",
        "R. S. Michalski, R. L. Chilausky: Soybean (Large) (1980), UCI Machine Learning Repository, "
        "doi.org/10.24432/C5JG6Z; as prepared in R's mlbench",
        "https://archive.ics.uci.edu/dataset/90/soybean+large",
    ),
    Entry(
        "sc_10x_brain_10k", "mouse brain cells x genes, count > 0", (10_000, 1000), 0.0692, "CC BY 4.0",
        "10x Genomics, 1.3 million brain cells from E18 mice; the subset of scanpy's test data (BSD-3-Clause)",
        "https://www.10xgenomics.com/datasets/1-3-million-brain-cells-from-e-18-mice-2-standard-1-3-0",
    ),
    Entry(
        "acs-income", "working adults x answers (ACS Income)", (1_630_167, 998), 0.010, CENSUS_TERMS, CENSUS,
        CENSUS_HOME, CENSUS_FILES, CENSUS_DOWNLOAD, "load_income",
    ),
    Entry(
        "acs-poverty", "persons x answers (ACS Poverty)", (3_271_346, 836), 0.024, CENSUS_TERMS, CENSUS,
        CENSUS_HOME, CENSUS_FILES, CENSUS_DOWNLOAD, "load_poverty",
    ),
    Entry(
        "cs.LG", "machine learning papers x words of their abstract", (145_981, 14_570), 0.005,
        "CC0 1.0, as Kaggle's page of the metadata says; the papers have licences of their own",
        "arXiv.org, Cornell University: arXiv dataset on Kaggle",
        "https://www.kaggle.com/datasets/Cornell-University/arxiv", ("arxiv-metadata-oai-snapshot.json",),
        "the whole data set, one file (Kaggle wants an account)", "load_arxiv", grows=True,
    ),
    Entry(
        "cs.LG-R", "machine learning papers x words of their abstract, as they are (cs.LG R)", None, None,
        "CC0 1.0, as Kaggle's page of the metadata says; the papers have licences of their own",
        "arXiv.org, Cornell University: arXiv dataset on Kaggle",
        "https://www.kaggle.com/datasets/Cornell-University/arxiv", ("arxiv-metadata-oai-snapshot.json",),
        "the file of cs.LG; the text of the paper mentions this form, its tables do not have it", "load_arxiv_words",
    ),
    Entry(
        "genomics", "persons x variants that they carry (1000 Genomes)", None, None,
        "open data of the International Genome Sample Resource, without restrictions; see its data disclaimer",
        "The 1000 Genomes Project Consortium: A global reference for human genetic variation (2015)",
        "https://www.internationalgenome.org/data", ("ALL.chr*.vcf",),
        "phase 3 genotypes of one or more chromosomes, ALL.chr22.phase3_shapeit2_mvncall_integrated_v5b.20130502."
        "genotypes.vcf.gz and so on, from the folder release/20130502 of the FTP site; the text of the paper mentions "
        "this data, its tables do not have it, and which chromosomes were taken is not known",
        "load_genomes",
    ),
    Entry(
        "goodreads", "readers x books they like", (350_332, 9374), 0.001,
        "see book-genome-readme.txt on the source's page; the ratings come from the UCSD Book Graph: academic use "
        "only, no redistribution, no commercial use",
        "D. Kotkov, A. Medlar, A. Maslov, U. R. Satyal, M. Neovius, D. Glowacka: The Tag Genome Dataset for Books "
        "(2022), with ratings of the Goodreads data of M. Wan, J. McAuley (2018) and M. Wan et al. (2019)",
        "https://grouplens.org/datasets/book-genome/", ("ratings.json",),
        "book-genome.zip, in it book_dataset/raw/ratings.json; metadata.json beside it names the columns",
        "load_goodreads",
    ),
    Entry(
        "hpa-brain", "brain cells x genes, read count > 0", (76_533, 20_082), 0.239,
        "changed between releases (CC BY-SA, later CC BY 4.0); see https://www.proteinatlas.org/about/licence, and the "
        "terms of the studies that the counts come from",
        "Human Protein Atlas, proteinatlas.org, single cell type section (M. Karlsson et al., 2021)",
        "https://www.proteinatlas.org/about/download", ("rna_single_cell_read_count.tsv", "brain/read_count.tsv"),
        "rna_single_cell_read_count.zip; of all tissues in it, the brain is taken; the page has the latest release, "
        "and other releases than the published one need any_shape",
        "load_brain",
    ),
    Entry(
        "movielens", "viewers x movies they like (ml-25m)", (162_541, 62_423), 0.002,
        "for research, with acknowledgement; no redistribution and no commercial use without permission; the terms are "
        "in the README of the archive",
        "F. M. Harper, J. A. Konstan: The MovieLens Datasets: History and Context (2015), GroupLens",
        "https://grouplens.org/datasets/movielens/25m/", ("ratings.csv and movies.csv",), "ml-25m.zip",
        "load_movielens",
    ),
    Entry(
        "netflix", "customers x movies they like (Netflix Prize)", (480_189, 17_770), 0.007,
        "for research, with acknowledgement and a copy of publications to Netflix; no redistribution and no commercial "
        "use without permission; the terms are in the README of the archive",
        "Netflix, Inc.: Netflix Prize data (ratings of 1998 to 2005)",
        "https://www.kaggle.com/datasets/netflix-inc/netflix-prize-data",
        ("combined_data_1.txt to combined_data_4.txt", "training_set/mv_*.txt"),
        "the whole archive (a training_set.tar must be unpacked); movie_titles.csv (or .txt) beside the ratings names "
        "the columns",
        "load_netflix",
    ),
    Entry(
        "tcga", "tissue samples x genes, expression near the gene's maximum", (10_459, 20_530), 0.019,
        "open-access TCGA data under the NIH Genomic Data Sharing policy: participants may not be identified, the data "
        "set must be acknowledged",
        "The Cancer Genome Atlas Research Network; UCSC Xena (M. J. Goldman et al., 2020)",
        "https://xenabrowser.net/datapages/", ("HiSeqV2.gz", "*.tsv"),
        "cohort TCGA Pan-Cancer (PANCAN), data set TCGA.PANCAN.sampleMap/HiSeqV2 (log2(norm_count + 1)), also at "
        "https://legacy.xenahubs.net/download/TCGA.PANCAN.sampleMap/HiSeqV2.gz; not HiSeqV2_PANCAN of a single cohort, "
        "which is centred",
        "load_tcga",
    ),
)  # fmt: skip


def entries() -> dict[str, Entry]:
    """Return all data sets by name, those first that come with felb."""
    known = {entry.name: entry for entry in ENTRIES}
    for name, shipped in SHIPPED.items():
        if name not in known:
            matrix = load(name)
            known[name] = Entry(
                name, shipped.what, matrix.shape, matrix.density, shipped.licence, shipped.what, "comes with felb"
            )
    return dict(sorted(known.items(), key=lambda item: not item[1].shipped))


def find(name: str) -> Entry:
    """Return the data set of this name, in any case."""
    known = {key.lower(): entry for key, entry in entries().items()}
    if name.lower() not in known:
        names = ", ".join(entry.name for entry in known.values())
        raise InputError(f"there is no data set {name!r}; felb knows {names}")
    return known[name.lower()]


def load_raw(
    name: str, path: str | os.PathLike[str] | None = None, *, any_shape: bool = False, **parameters: Any
) -> Table:
    """Load a data set by name: from the package, or from its raw file.

    Parameters
    ----------
    name : of the data set
    path : its raw file (plain, ``.gz`` or ``.zip``) or the folder it is in; by default `Entry.folder`. Not for data
        that comes with felb.
    any_shape : whether a matrix of another shape than the published one is fine: another year or release, or a part
    **parameters : for the loader, for example ``at_least`` of ratings

    Returns
    -------
    Table
        The matrix with its column names, and the names of its rows.

    Raises
    ------
    InputError
        If the file is missing or damaged, or the shape is not the expected one.
    """
    entry = find(name)
    if entry.shipped:
        if path is not None or parameters:
            raise InputError(f"{entry.name} comes with felb; it needs no raw file and has no parameters")
        return Table(load(entry.name), rows=row_names(entry.name))
    source = entry.folder if path is None else Path(path)
    if path is None and not source.exists():
        raise InputError(
            f"{entry.name}: there is no {source}; download {' or '.join(entry.files)} from {entry.home} into that "
            "folder, or name the place"
        )
    from felb_paper import sources

    table: Table = getattr(sources, entry.loader)(source, **parameters)
    if entry.shape is not None and table.matrix.shape != entry.shape and not (any_shape or entry.grows):
        found, expected = (f"{rows} x {columns}" for rows, columns in (table.matrix.shape, entry.shape))
        raise InputError(
            f"{source}: gives a matrix of {found}, but {entry.name} has {expected}; the file is incomplete or another "
            "release; set any_shape if that is intended",
            parameter="any_shape",
        )
    return table


# -- Real data for experiments: what is at hand, as matrices that are made of raw files once -------------------------

SUFFIX = ".felb"
SUFFIXES = (SUFFIX, ".npz")
"""Of files that hold one matrix."""

CONTENTS = 16
"""Characters of a fingerprint that tell matrices of the same name apart."""


@dataclass(frozen=True, slots=True)
class Source:
    """A data set that is at hand.

    Parameters
    ----------
    name : in the catalogue, or of the file without its suffix
    shape, ones : of the matrix; for raw files, of the matrix that the complete ones give
    contents : start of the fingerprint of a matrix in the data folder; None for data that the catalogue defines
    """

    name: str
    shape: tuple[int, int]
    ones: int
    contents: str | None = None


def at_hand(folder: Path | None = None) -> list[Source]:
    """Return the data sets that come with felb, and those in a folder (by default the data folder).

    A data set of the catalogue is there as a matrix, ``NAME.felb`` or ``NAME.npz``, or, if its size is published, as
    raw files in ``NAME/``. Any other ``.npz`` (SciPy) or ``.felb`` file is a data set, too, called like the file. A
    file with the name of a data set that comes with felb is not looked at.
    """
    place = data_folder() if folder is None else folder
    shipped = {name: load(name) for name in SHIPPED}
    found = {name: Source(name, matrix.shape, matrix.nnz) for name, matrix in shipped.items()}
    for entry in entries().values():
        raw = (place / entry.name).is_dir()
        if not entry.shipped and raw and _matrix_file(entry.name, place) is None:
            if entry.shape is None or entry.density is None:
                continue  # of unknown size until it is loaded
            rows, columns = entry.shape
            found[entry.name] = Source(entry.name, entry.shape, round(entry.density * rows * columns))
    for path in _matrix_files(place):
        if path.stem not in found and (source := _described(path)) is not None:
            found[path.stem] = source
    return list(found.values())


def load_source(name: str, *, cache: Path | None = None, folder: Path | None = None) -> BinaryMatrix:
    """Load a data set: one that comes with felb, a matrix in the folder, or the raw files there.

    A matrix made of raw files is kept in `cache`, and used from there by later cells.
    """
    if name in SHIPPED:
        return load(name)
    place = data_folder() if folder is None else folder
    file = _matrix_file(name, place)
    if file is not None:
        return read(file).matrix
    kept = None if cache is None else cache / f"{name}{SUFFIX}"
    if kept is not None and kept.is_file():
        return BinaryMatrix.open(kept)
    if name not in entries():
        raise InputError(f"there is no {name}.npz in {place}; name the folder it is in")
    matrix = load_raw(name, place / name if (place / name).exists() else None, any_shape=True).matrix
    if kept is not None:
        kept.parent.mkdir(parents=True, exist_ok=True)
        matrix.save(kept)
    return matrix


def keep_source(name: str, *, cache: Path, folder: Path | None = None) -> None:
    """Make the matrix of a data set that is there as raw files, unless it was made before."""
    place = data_folder() if folder is None else folder
    if name not in SHIPPED and _matrix_file(name, place) is None and not (cache / f"{name}{SUFFIX}").is_file():
        load_source(name, cache=cache, folder=folder)


def _matrix_file(name: str, folder: Path) -> Path | None:
    places = [folder / f"{name}{suffix}" for suffix in SUFFIXES] + [folder / name / f"{name}{SUFFIX}"]
    return next((place for place in places if place.is_file()), None)


def _matrix_files(folder: Path) -> list[Path]:
    """Return the files with matrices, by name, each name once."""
    inside = [path for name in entries() if (path := folder / name / f"{name}{SUFFIX}").is_file()]
    files = [path for suffix in SUFFIXES for path in sorted(folder.glob(f"*{suffix}")) if path.is_file()]
    return list({path.stem: path for path in reversed([*files, *inside])}.values())[::-1]


def _described(path: Path) -> Source | None:
    """Return what a file holds; None, with a warning, if that is no matrix of zeros and ones."""
    state = path.stat()
    found = _read_description(path.resolve(), state.st_mtime_ns, state.st_size)
    if isinstance(found, str):
        warnings.warn(f"{path} is left out: {found}", UserWarning, stacklevel=3)
        return None
    return found


@kept_in_memory
def _read_description(path: Path, changed: int, size: int) -> Source | str:  # noqa: ARG001
    """Return what a file holds, or why it is no matrix; a file that changed is read again."""
    try:
        matrix = read(path).matrix
    except (FelbError, OSError) as error:
        return str(error)
    if matrix.unknown is not None:
        return "it has unknown cells"
    return Source(path.stem, matrix.shape, matrix.nnz, matrix.fingerprint()[:CONTENTS])
