"""Federated Boolean matrix factorization.

A ≈ U∘V: a record has a feature if one of its components has it. The records may live at several clients that may not
share them; felb finds one shared Boolean V, and every client keeps its own U.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from felb._version import __version__

if TYPE_CHECKING:
    from felb import datasets, metrics, privacy
    from felb.engines.local import Participation
    from felb.errors import ConvergenceWarning, FelbError, InputError
    from felb.estimators.competitors import FedNMF, FedProx, ProxSkip, Scaffold
    from felb.estimators.felb import FELB, FELBMU
    from felb.estimators.posthoc import PostHoc
    from felb.estimators.sums import FederatedBMF
    from felb.federated.algorithms.felb_setting import Setting as FelbSetting
    from felb.linalg.binary import BinaryMatrix
    from felb.models.asso import Asso
    from felb.models.elbmf import ELBMF
    from felb.models.grecond import GreConD
    from felb.models.mebf import MEBF
    from felb.models.zhang import Zhang

__all__ = [
    "ELBMF",
    "FELB",
    "FELBMU",
    "MEBF",
    "Asso",
    "BinaryMatrix",
    "ConvergenceWarning",
    "FedNMF",
    "FedProx",
    "FederatedBMF",
    "FelbError",
    "FelbSetting",
    "GreConD",
    "InputError",
    "Participation",
    "PostHoc",
    "ProxSkip",
    "Scaffold",
    "Zhang",
    "__version__",
    "datasets",
    "metrics",
    "privacy",
]

# Imported on first use: `import felb` and `felb --help` stay instant.
_LAZY = {
    "Asso": "felb.models.asso",
    "BinaryMatrix": "felb.linalg.binary",
    "ConvergenceWarning": "felb.errors",
    "ELBMF": "felb.models.elbmf",
    "FELB": "felb.estimators.felb",
    "FELBMU": "felb.estimators.felb",
    "FedNMF": "felb.estimators.competitors",
    "FedProx": "felb.estimators.competitors",
    "FederatedBMF": "felb.estimators.sums",
    "FelbError": "felb.errors",
    "FelbSetting": "felb.federated.algorithms.felb_setting:Setting",
    "GreConD": "felb.models.grecond",
    "InputError": "felb.errors",
    "MEBF": "felb.models.mebf",
    "Participation": "felb.engines.local",
    "PostHoc": "felb.estimators.posthoc",
    "ProxSkip": "felb.estimators.competitors",
    "Scaffold": "felb.estimators.competitors",
    "Zhang": "felb.models.zhang",
    "datasets": "felb.datasets:",
    "metrics": "felb.metrics:",
    "privacy": "felb.privacy:",
}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'felb' has no attribute {name!r}")
    module, _, attribute = _LAZY[name].partition(":")
    loaded = import_module(module)
    value = loaded if _LAZY[name].endswith(":") else getattr(loaded, attribute or name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
