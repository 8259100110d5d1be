"""FELB and FELB-MU as plain data, and what all methods have in common whose clients upload V."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import KW_ONLY, asdict, dataclass, replace
from typing import TYPE_CHECKING

from felb.errors import InputError
from felb.federated.algorithms.felb import SETTINGS, UNWEIGHTED, Setting, felb, felb_mu
from felb.federated.algorithms.methods import FederatedMethod
from felb.federated.algorithms.wrappers import private_uploads, refined
from felb.federated.steps.refine import REFINE_ROUNDS
from felb.privacy.releases import Uploads
from felb.privacy.spec import Privacy  # noqa: TC001  # the annotation of a field

if TYPE_CHECKING:
    from felb.federated.protocol import Algorithm
    from felb.privacy.spec import Population


@dataclass(eq=False, repr=False)
class UploadingMethod(FederatedMethod):
    """Base of the methods whose clients upload V; a subclass says how often in `uploads`.

    Parameters
    ----------
    refine : flip entries of the Boolean components by their summed gain, and assign rows by branch and bound
    privacy : specification of uploads; None for no noise
    """

    _: KW_ONLY
    refine: bool = False
    privacy: Privacy | None = None

    @abstractmethod
    def plain_algorithm(self, n_features: int, uploads: Uploads | None = None) -> Algorithm:
        """Return the algorithm without refinement; under privacy, the one that makes these uploads and no others."""

    @abstractmethod
    def plain_rounds(self) -> int | None:
        """Return the rounds at most before refinement."""

    @abstractmethod
    def uploads(self, n_features: int, *, rounds: int | None) -> Uploads:
        """Return what a client uploads, in as many rounds as were agreed on, if so."""

    @property
    def refines(self) -> bool:
        """Whether components are refined."""
        if self.refine not in (True, False):
            raise InputError(f"refine must be True or False, got {self.refine!r}")
        return bool(self.refine)

    @property
    def assigns_exactly(self) -> bool:
        """Whether rows are assigned by branch and bound, as they are to refined components."""
        return self.refines

    @property
    def max_rounds(self) -> int | None:
        """Rounds at most before the assignment, those of the refinement included."""
        plain = self.plain_rounds()
        return plain if plain is None or not self.refines else plain + REFINE_ROUNDS + 1

    def exact_algorithm(self, n_features: int, *, centralized: bool) -> Algorithm:  # noqa: ARG002
        """Return the algorithm without noise, with refinement if that is asked for."""
        plain = self.plain_algorithm(n_features)
        return refined(plain, memory=self.memory) if self.refines else plain

    def private_algorithm(self, n_features: int, population: Population) -> Algorithm:
        """Return the algorithm with noise on what clients upload."""
        assert self.privacy is not None
        if self.refines:
            raise InputError("refinement sums exact gains over clients, which privacy does not allow; use refine=False")
        if (self.sampled or self.joined_late) and self.privacy.noise == "distributed":
            raise InputError("distributed noise needs every client's share; leave out participation")
        uploads = self.uploads(n_features, rounds=self.privacy.rounds)
        plan = self.privacy.plan(**asdict(population), n_columns=n_features, uploads=uploads)
        return private_uploads(self.plain_algorithm(n_features, uploads), plan)


@dataclass(eq=False, repr=False)
class FELBMethod(UploadingMethod):
    """The method of `felb.FELB`, which describes it and its parameters."""

    n_components: int = 10
    _: KW_ONLY
    l1: float | None = None
    l2: float | None = None
    l2_rate: float | None = None
    inertia: float = 0.001
    proximity: float | None = None
    local_steps: int = 10
    max_iter: int | None = None
    tol: float | None = None
    setting: str | Setting = "recommended"
    dtype: str = "float32"

    _make = staticmethod(felb)

    def uploads(self, n_features: int, *, rounds: int | None) -> Uploads:
        """V in every round, of which there are `max_iter` unless the specification says otherwise."""
        return Uploads(rounds or self._rounds(), int(self.n_components) * n_features)

    def plain_rounds(self) -> int:
        """Return the rounds at most before refinement: those of the start and of local steps."""
        return as_setting(self.setting).start_rounds + self._rounds()

    def _rounds(self) -> int:
        return as_setting(self.setting).max_iter if self.max_iter is None else int(self.max_iter)

    def plain_algorithm(self, n_features: int, uploads: Uploads | None = None) -> Algorithm:
        """Return the algorithm without refinement; under privacy, V alone leaves a client."""
        setting = as_setting(self.setting)
        if uploads is not None and setting.start != "independent":
            alone = UNWEIGHTED
            setting = replace(setting, start=alone.start, step=alone.step, average=alone.average)
        return self._make(
            n_features,
            int(self.n_components),
            kappa=self.l1,
            lam=self.l2,
            rate=self.l2_rate,
            beta=self.inertia,
            gamma=self.proximity,
            local_steps=self.local_steps,
            max_rounds=self._rounds() if uploads is None else uploads.rounds,
            tol=self.tol,
            setting=setting,
            dtype=self.dtype,
        )


@dataclass(eq=False, repr=False)
class FELBMUMethod(FELBMethod):
    """The method of `felb.FELBMU`."""

    _make = staticmethod(felb_mu)


def as_setting(setting: str | Setting) -> Setting:
    """Return the setting of that name, or the setting itself."""
    if isinstance(setting, Setting):
        return setting
    if not isinstance(setting, str) or setting not in SETTINGS:
        names = ", ".join(SETTINGS)
        raise InputError(f"setting must be one of {names}, or a felb.FelbSetting, got {setting!r}", parameter="setting")
    return SETTINGS[setting]
