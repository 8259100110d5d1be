"""The federated methods as plain data: their parameters, and the algorithm that these make."""

from __future__ import annotations

import warnings
from abc import abstractmethod
from collections.abc import Callable, Mapping  # noqa: TC003  # the annotation of a field
from dataclasses import KW_ONLY, asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

from felb.centralized.base import CentralizedMethod, ExtendedReal, Method, check_parameters, warn_of_time_limit
from felb.centralized.elbmf import ELBMFMethod
from felb.data.coercion import drop_numbered_names, read_partly_known
from felb.errors import ConvergenceWarning, InputError
from felb.federated.aggregate import ALIGNED_AGGREGATIONS, BOOLEAN_AGGREGATIONS
from felb.federated.algorithms.bmf import Effort, federated_bmf
from felb.federated.algorithms.competitors import fednmf, fedprox, proxskip, scaffold
from felb.federated.algorithms.felb import SETTINGS, UNWEIGHTED, Setting, felb, felb_mu
from felb.federated.algorithms.post_hoc import PASSES, aligned, check_passes, post_hoc
from felb.federated.algorithms.private import private_bmf
from felb.federated.algorithms.registry import MDL
from felb.federated.algorithms.wrappers import private_uploads, refined
from felb.federated.protocol import Participation  # noqa: TC001  # the annotation of a field
from felb.federated.steps.refine import REFINE_ROUNDS
from felb.privacy.releases import Uploads
from felb.privacy.spec import Population, Privacy

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from felb.data.binary import BinaryMatrix
    from felb.federated.protocol import Algorithm, Outcome

SAMPLED_MEMORY = 0.5
"""Share of earlier rounds in statistics and gains where a sample of the clients plays a round."""


@dataclass(eq=False, repr=False)
class FederatedMethod(Method):
    """Base of the federated methods; a subclass is a dataclass that adds its parameters, and defines `algorithm`.

    Parameters
    ----------
    participation : who plays a round; everybody without it
    """

    _: KW_ONLY
    participation: Participation | None = None

    def algorithm(
        self,
        n_features: int,
        *,
        population: Population | None = None,
        centralized: bool = False,
        restricted: bool = False,
    ) -> Algorithm:
        """Return the algorithm with these parameters, to be run over any transport.

        Parameters
        ----------
        population : numbers of records and clients, from which noise is calibrated; required with privacy
        centralized : the only client owns all rows; more computations are possible than in a federation
        restricted : sums over several clients leave under disclosure rules; requests that these rules do not cover
            are left out
        """
        privacy = getattr(self, "privacy", None)
        if privacy is None:
            return self.exact_algorithm(n_features, centralized=centralized, restricted=restricted)
        if population is None:
            raise InputError(
                "population is required with privacy, because noise depends on the numbers of records and clients; or "
                "use algorithm_for"
            )
        if not isinstance(privacy, Privacy):
            raise InputError(f"privacy must be a specification, felb.privacy.Privacy(epsilon=1.0), got {privacy!r}")
        return self.private_algorithm(n_features, population)

    @abstractmethod
    def exact_algorithm(self, n_features: int, *, centralized: bool, restricted: bool) -> Algorithm:
        """Return the algorithm without noise; the options are those of `algorithm`."""

    def private_algorithm(self, n_features: int, population: Population) -> Algorithm:
        """Return the algorithm of a method that has a privacy specification, with noise for the population."""
        raise NotImplementedError

    def algorithm_for(
        self, shards: Mapping[str, BinaryMatrix], *, centralized: bool = False, restricted: bool = False
    ) -> Algorithm:
        """Return the algorithm for these clients, whose rows are checked; the options are those of `algorithm`."""
        for shard in shards.values():
            self.check_cells(shard)
        if not any(shard.known_cells for shard in shards.values()):
            raise InputError("all cells of the data are unknown, so there is nothing to fit; check how it was read")
        population = Population(n_records=sum(len(shard) for shard in shards.values()), n_clients=len(shards))
        n_features = next(iter(shards.values())).shape[1]
        return self.algorithm(
            n_features, population=population, centralized=centralized, restricted=restricted and len(shards) > 1
        )

    def algorithm_for_blocks(self, rows: Any) -> Algorithm:
        """Return the algorithm for blocks on Dask, of `felb.engines.dask.cluster.DistributedRows`.

        Where records are protected, the owner of all blocks is the one client.
        """
        if getattr(self, "privacy", None) is not None and any(fact.unknown is not None for fact in rows.facts.values()):
            raise InputError("under privacy, all cells must be known; fill the unknown ones, or leave out privacy")
        n_records, n_features = rows.shape
        algorithm = self.algorithm(n_features, population=Population(n_records, n_clients=len(rows.blocks)))
        if algorithm.privacy is None or algorithm.privacy.uploads is not None:
            return algorithm
        return self.algorithm(n_features, population=Population(n_records, n_clients=1))

    def limit(self) -> float | None:
        """Return the seconds that a run, or a part of it, may take."""
        return self.time_limit

    def rank(self) -> Any:
        """Return the requested number of components."""
        return self.n_components

    @property
    def max_rounds(self) -> int | None:
        """Rounds at most before the assignment; None if it is not known before the run."""
        return getattr(self, "max_iter", None)

    @property
    def assigns_exactly(self) -> bool:
        """Whether rows are assigned by branch and bound."""
        return True

    @property
    def sampled(self) -> bool:
        """Whether some clients may be missing from a round, so that the metrics of rounds cannot be compared."""
        played = self.participation
        return played is not None and (played.fraction < 1 or played.dropout > 0 or played.quorum is not None)

    @property
    def joined_late(self) -> bool:
        """Whether some clients join later; only metrics of the same cells can be compared."""
        return self.participation is not None and bool(self.participation.joins)

    @property
    def memory(self) -> float:
        """Share of earlier rounds in statistics and gains."""
        return SAMPLED_MEMORY if self.sampled else 0.0

    def warn_about_outcome(self, outcome: Outcome) -> None:
        """Warn about data without ones and about a result that collapsed, is not Boolean, or is incomplete."""
        counts = outcome.counts
        ones = None if counts is None or not counts.cells else counts.tp + counts.fn
        too_early = not (outcome.complete or outcome.components.any())  # nothing was found, and that is why
        if not too_early and (ones is None or not self.warn_of_few_ones(ones, len(outcome.components)) or ones):
            self.warn_about(outcome.components, outcome.supports, outcome.integrality_gap)
        if not outcome.complete:
            warn_of_time_limit(self.label, self.limit())


@dataclass(eq=False, repr=False)
class FederatedBMFMethod(FederatedMethod):
    """The method of `felb.FederatedBMF`, which describes it and its parameters."""

    wanted: ClassVar[Mapping[str, str]] = {
        "n_components": "a whole number, or 'mdl' to find it by minimum description length"
    }
    n_components: int | str = 10
    _: KW_ONLY
    max_components: int = 30
    objective: str = "auto"
    effort: str | Effort = "default"
    false_positive_cost: ExtendedReal = 1.0
    false_negative_cost: ExtendedReal = 1.0
    time_limit: float | None = None
    privacy: Privacy | None = None
    node_cap: int = 1_000

    def exact_algorithm(self, n_features: int, *, centralized: bool, restricted: bool) -> Algorithm:
        """Return the algorithm without noise."""
        return federated_bmf(
            n_features,
            self.n_components,
            max_components=int(self.max_components),
            objective=self.objective,
            effort=self.effort,
            false_positive_cost=self.false_positive_cost,
            false_negative_cost=self.false_negative_cost,
            sampled=self.sampled or (self.joined_late and self.n_components == MDL),
            centralized=centralized,
            starts_from_below=not restricted,
            node_cap=self.node_cap,
        )

    def private_algorithm(self, n_features: int, population: Population) -> Algorithm:
        """Return the algorithm with noise; raise for parameters that privacy does not support."""
        assert self.privacy is not None
        if self.n_components == MDL:
            raise InputError(
                "n_components='mdl' compares exact description lengths, which under privacy stay at the clients; "
                "give a number"
            )
        costs = self.false_positive_cost, self.false_negative_cost
        if self.objective not in ("auto", "hamming") or costs[0] != costs[1]:
            raise InputError(
                "under privacy, components are chosen for few wrong cells; leave both costs at 1 and use "
                "objective='auto' or 'hamming'"
            )
        if self.time_limit is not None:
            raise InputError("time_limit is not supported with privacy, because a private run cannot be stopped early")
        if self.sampled or self.joined_late:
            raise InputError("participation is not supported with privacy, because a private run needs all clients")
        plan = self.privacy.plan(**asdict(population), n_columns=n_features)
        return private_bmf(n_features, int(self.n_components), plan, effort=self.effort, node_cap=self.node_cap)

    @staticmethod
    def check_rank(n_components: Any, shape: tuple[int, int]) -> int:
        """Return the number of components, or the most there could be where it is to be found."""
        if isinstance(n_components, str) and n_components == MDL:
            return min(shape)
        if isinstance(n_components, str):
            wanted = FederatedBMFMethod.wanted["n_components"]
            raise InputError(f"n_components must be {wanted}, got {n_components!r}", parameter="n_components")
        return Method.check_rank(n_components, shape)

    def _read(self, X: Any) -> BinaryMatrix:
        return drop_numbered_names(X, read_partly_known(X, binarize_threshold=self.binarize_threshold))

    def check_cells(self, matrix: BinaryMatrix) -> None:
        """Accept unknown cells, except under privacy."""
        if self.privacy is not None and matrix.unknown is not None:
            raise InputError("under privacy, all cells must be known; fill the unknown ones, or leave out privacy")

    def warn_about_outcome(self, outcome: Outcome) -> None:
        """Warn also if rank selection ended where it began, at the most components it may take."""
        super().warn_about_outcome(outcome)
        if self.n_components == MDL and len(outcome.components) >= int(self.max_components):
            warnings.warn(
                f"rank selection ended at max_components={self.max_components}, the most components it may take; the "
                "shortest description may need more: give a larger max_components",
                ConvergenceWarning,
                stacklevel=4,
            )

    def warn_about(self, components: NDArray[np.bool_], supports: NDArray[np.int64] | None, gap: float) -> None:
        """Warn about data in which nothing was found."""
        if self.objective == "recover" and not (components.any() and (supports is None or supports.any())):
            warnings.warn(
                f"{self.label} found no recoverable structure: no record is likelier than not to have any component. "
                "The data may be noise; objective='hamming' fits it nevertheless.",
                ConvergenceWarning,
                stacklevel=3,
            )
        else:
            super().warn_about(components, supports, gap)


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

    def exact_algorithm(self, n_features: int, *, centralized: bool, restricted: bool) -> Algorithm:  # noqa: ARG002
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


@dataclass(eq=False, repr=False)
class PostHocMethod(UploadingMethod):
    """The method of `felb.PostHoc`, which describes it and its parameters."""

    if_collapsed = 'another aggregation (such as "aligned-vote" or "or")'

    model: CentralizedMethod | None = None
    aggregation: str = "vote"
    _: KW_ONLY
    alignment_passes: int = PASSES

    def rank(self) -> int:
        """Return the number of components of `model`."""
        return self._model().n_components

    def limit(self) -> float | None:
        """Return the time limit of `model`, for each client."""
        return self._model().time_limit

    def plain_rounds(self) -> int:
        """One, and one for each pass of an alignment."""
        return 1 + (check_passes(self.alignment_passes) if self._aligned else 0)

    def uploads(self, n_features: int, *, rounds: int | None) -> Uploads:
        """V as bits, once; for an alignment as often as was agreed on, or as it may have passes."""
        times = (rounds or self.plain_rounds()) if self._aligned else 1
        return Uploads(times, int(self.rank()) * n_features, boolean=True)

    def plain_algorithm(self, n_features: int, uploads: Uploads | None = None) -> Algorithm:
        """Return the algorithm without refinement; under privacy, it aligns as often as there may be uploads."""
        model = self._model()
        check_parameters(model)
        if not self._aligned:
            return post_hoc(model, self.aggregation, n_features)
        plain = post_hoc(model, ALIGNED_AGGREGATIONS[self.aggregation], n_features)
        return aligned(plain, n_features, passes=self.alignment_passes if uploads is None else uploads.rounds - 1)

    @property
    def _aligned(self) -> bool:
        known = (*BOOLEAN_AGGREGATIONS, *ALIGNED_AGGREGATIONS)
        if self.aggregation not in known:
            raise InputError(f"unknown aggregation {self.aggregation!r}; use one of {', '.join(known)}")
        return self.aggregation in ALIGNED_AGGREGATIONS

    def _model(self) -> CentralizedMethod:
        model = ELBMFMethod() if self.model is None else self.model
        if not isinstance(model, CentralizedMethod):
            raise InputError(f"model must be a method for centralized data such as felb.Asso(10), got {model!r}")
        return model


@dataclass(eq=False, repr=False)
class PlainMethod(FederatedMethod):
    """Base of the methods that are neither refined nor private.

    Parameters
    ----------
    n_components : number of components
    """

    n_components: int = 10


@dataclass(eq=False, repr=False)
class FedNMFMethod(PlainMethod):
    """The method of `felb.FedNMF`, which describes it and its parameters."""

    if_collapsed = "another random_state"

    _: KW_ONLY
    max_iter: int = 50

    @property
    def max_rounds(self) -> int | None:
        """Rounds before the assignment: those of the start, the factorization and the thresholds."""
        return int(self.max_iter) + 5

    def exact_algorithm(self, n_features: int, **_: bool) -> Algorithm:
        """Return the algorithm; where a sample of the clients plays a round, statistics are averaged over rounds."""
        return fednmf(n_features, int(self.n_components), max_rounds=self.max_iter, memory=self.memory)


@dataclass(eq=False, repr=False)
class LocalStepsMethod(PlainMethod):
    """Base of the optimisers on the objective of FELB; `felb.FedProx` describes the parameters."""

    _: KW_ONLY
    l1: float = 0.001
    l2: float = 0.1
    l2_rate: float = 1.05
    local_steps: int = 10
    max_iter: int = 150
    tol: float = 0.01

    _make: ClassVar[Callable[..., Algorithm]]

    def exact_algorithm(self, n_features: int, **_: bool) -> Algorithm:
        """Return the algorithm, which is told its parameters in the symbols of the paper."""
        return self._make(
            n_features,
            int(self.n_components),
            kappa=self.l1,
            lam=self.l2,
            rate=self.l2_rate,
            local_steps=self.local_steps,
            max_rounds=self.max_iter,
            tol=self.tol,
            **self._own(),
        )

    def _own(self) -> dict[str, Any]:
        return {}


@dataclass(eq=False, repr=False)
class FedProxMethod(LocalStepsMethod):
    """The method of `felb.FedProx`."""

    _: KW_ONLY
    proximity: float = 0.3

    _make = staticmethod(fedprox)

    def _own(self) -> dict[str, Any]:
        return {"gamma": self.proximity}


@dataclass(eq=False, repr=False)
class ScaffoldMethod(LocalStepsMethod):
    """The method of `felb.Scaffold`."""

    _make = staticmethod(scaffold)


@dataclass(eq=False, repr=False)
class ProxSkipMethod(LocalStepsMethod):
    """The method of `felb.ProxSkip`."""

    _make = staticmethod(proxskip)
