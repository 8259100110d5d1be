"""Federated Boolean matrix factorization.

A ≈ U∘V: a record has a feature if one of its components has it. The records may live at several clients that may not
share them; felb finds one shared Boolean V, and every client keeps its own U.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from felb._lazy import import_when_used
from felb._version import __version__

if TYPE_CHECKING:
    from felb import data, metrics, privacy, scverse
    from felb.analysis.rank_choice import FederatedBMFCV, choose_k
    from felb.analysis.refits import stability
    from felb.data.binary import BinaryMatrix
    from felb.errors import ConvergenceWarning, FelbError, InputError
    from felb.federated.algorithms.felb import Setting as FelbSetting
    from felb.federated.protocol import Participation
    from felb.runs.apply import drift
    from felb.runs.execute import fit, resume, simulate
    from felb.runs.job import Job
    from felb.runs.model import load, save
    from felb.runs.result import Result
    from felb.sklearn.binarizer import Binarizer
    from felb.sklearn.centralized import (
        ELBMF,
        MEBF,
        Asso,
        CSalt,
        FastStep,
        GreConD,
        GreConDPlus,
        GreEss,
        PanPal,
        Primp,
        Sofa,
        Zhang,
    )
    from felb.sklearn.federated import FELB, FELBMU, FederatedBMF, FedNMF, FedProx, PostHoc, ProxSkip, Scaffold

__all__ = [
    "ELBMF",
    "FELB",
    "FELBMU",
    "MEBF",
    "Asso",
    "Binarizer",
    "BinaryMatrix",
    "CSalt",
    "ConvergenceWarning",
    "FastStep",
    "FedNMF",
    "FedProx",
    "FederatedBMF",
    "FederatedBMFCV",
    "FelbError",
    "FelbSetting",
    "GreConD",
    "GreConDPlus",
    "GreEss",
    "InputError",
    "Job",
    "PanPal",
    "Participation",
    "PostHoc",
    "Primp",
    "ProxSkip",
    "Result",
    "Scaffold",
    "Sofa",
    "Zhang",
    "__version__",
    "choose_k",
    "data",
    "drift",
    "fit",
    "load",
    "metrics",
    "privacy",
    "resume",
    "save",
    "scverse",
    "simulate",
    "stability",
]

# `import felb` and `felb --help` stay instant.
_LAZY = {
    "Asso": "felb.sklearn.centralized",
    "Binarizer": "felb.sklearn.binarizer",
    "BinaryMatrix": "felb.data.binary",
    "CSalt": "felb.sklearn.centralized",
    "ConvergenceWarning": "felb.errors",
    "ELBMF": "felb.sklearn.centralized",
    "FELB": "felb.sklearn.federated",
    "FELBMU": "felb.sklearn.federated",
    "FastStep": "felb.sklearn.centralized",
    "FedNMF": "felb.sklearn.federated",
    "FedProx": "felb.sklearn.federated",
    "FederatedBMF": "felb.sklearn.federated",
    "FederatedBMFCV": "felb.analysis.rank_choice",
    "FelbError": "felb.errors",
    "FelbSetting": "felb.federated.algorithms.felb:Setting",
    "GreConD": "felb.sklearn.centralized",
    "GreConDPlus": "felb.sklearn.centralized",
    "GreEss": "felb.sklearn.centralized",
    "InputError": "felb.errors",
    "Job": "felb.runs.job",
    "MEBF": "felb.sklearn.centralized",
    "PanPal": "felb.sklearn.centralized",
    "Participation": "felb.federated.protocol",
    "PostHoc": "felb.sklearn.federated",
    "Primp": "felb.sklearn.centralized",
    "ProxSkip": "felb.sklearn.federated",
    "Result": "felb.runs.result",
    "Scaffold": "felb.sklearn.federated",
    "Sofa": "felb.sklearn.centralized",
    "Zhang": "felb.sklearn.centralized",
    "choose_k": "felb.analysis.rank_choice",
    "data": "felb.data:",
    "drift": "felb.runs.apply",
    "fit": "felb.runs.execute",
    "load": "felb.runs.model",
    "metrics": "felb.metrics:",
    "privacy": "felb.privacy:",
    "resume": "felb.runs.execute",
    "save": "felb.runs.model",
    "scverse": "felb.scverse:",
    "simulate": "felb.runs.execute",
    "stability": "felb.analysis.refits",
}

__getattr__ = import_when_used(__name__, _LAZY)


def __dir__() -> list[str]:
    return sorted(__all__)
