"""Federated Boolean matrix factorization.

A ≈ U∘V: a record has a feature if one of its components has it. The records may live at several clients that may not
share them; felb finds one shared Boolean V, and every client keeps its own U.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from felb._version import __version__
from felb.late import late_names

if TYPE_CHECKING:
    from felb import data, metrics, privacy, scverse
    from felb.analysis.choice_estimator import FederatedBMFCV
    from felb.analysis.rank_choice import choose_k
    from felb.analysis.refits import stability
    from felb.centralized.asso import Asso
    from felb.centralized.elbmf import ELBMF
    from felb.centralized.grecond import GreConD
    from felb.centralized.mebf import MEBF
    from felb.centralized.zhang import Zhang
    from felb.data.binary import BinaryMatrix
    from felb.errors import ConvergenceWarning, FelbError, InputError
    from felb.estimators.binarizer import Binarizer
    from felb.estimators.bmf_estimator import FederatedBMF
    from felb.estimators.competitor_estimators import FedNMF, FedProx, ProxSkip, Scaffold
    from felb.estimators.felb_estimators import FELB, FELBMU
    from felb.estimators.post_hoc_estimator import PostHoc
    from felb.federated.algorithms.felb_setting import Setting as FelbSetting
    from felb.federated.participation import Participation
    from felb.runs.applying import drift
    from felb.runs.job import Job
    from felb.runs.job_runner import fit, resume, simulate
    from felb.runs.model_file import load, save
    from felb.runs.result import Result

__all__ = [
    "ELBMF",
    "FELB",
    "FELBMU",
    "MEBF",
    "Asso",
    "Binarizer",
    "BinaryMatrix",
    "ConvergenceWarning",
    "FedNMF",
    "FedProx",
    "FederatedBMF",
    "FederatedBMFCV",
    "FelbError",
    "FelbSetting",
    "GreConD",
    "InputError",
    "Job",
    "Participation",
    "PostHoc",
    "ProxSkip",
    "Result",
    "Scaffold",
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

# Imported on first use: `import felb` and `felb --help` stay instant.
_LAZY = {
    "Asso": "felb.centralized.asso",
    "Binarizer": "felb.estimators.binarizer",
    "BinaryMatrix": "felb.data.binary",
    "ConvergenceWarning": "felb.errors",
    "ELBMF": "felb.centralized.elbmf",
    "FELB": "felb.estimators.felb_estimators",
    "FELBMU": "felb.estimators.felb_estimators",
    "FedNMF": "felb.estimators.competitor_estimators",
    "FedProx": "felb.estimators.competitor_estimators",
    "FederatedBMF": "felb.estimators.bmf_estimator",
    "FederatedBMFCV": "felb.analysis.choice_estimator",
    "FelbError": "felb.errors",
    "FelbSetting": "felb.federated.algorithms.felb_setting:Setting",
    "GreConD": "felb.centralized.grecond",
    "InputError": "felb.errors",
    "Job": "felb.runs.job",
    "MEBF": "felb.centralized.mebf",
    "Participation": "felb.federated.participation",
    "PostHoc": "felb.estimators.post_hoc_estimator",
    "ProxSkip": "felb.estimators.competitor_estimators",
    "Result": "felb.runs.result",
    "Scaffold": "felb.estimators.competitor_estimators",
    "Zhang": "felb.centralized.zhang",
    "choose_k": "felb.analysis.rank_choice",
    "data": "felb.data:",
    "drift": "felb.runs.applying",
    "fit": "felb.runs.job_runner",
    "load": "felb.runs.model_file",
    "metrics": "felb.metrics:",
    "privacy": "felb.privacy:",
    "resume": "felb.runs.job_runner",
    "save": "felb.runs.model_file",
    "scverse": "felb.scverse:",
    "simulate": "felb.runs.job_runner",
    "stability": "felb.analysis.refits",
}

__getattr__ = late_names(__name__, _LAZY)


def __dir__() -> list[str]:
    return sorted(__all__)
