"""Federated methods as plain data: what they have in common, and the default one.

A method is its parameters and the algorithm that these make. The other ones are in `felb_methods`, `post_hoc_methods`
and `competitor_methods`, so that a site that runs one method loads the code of that one only.
"""

from __future__ import annotations

import warnings
from abc import abstractmethod
from collections.abc import Mapping  # noqa: TC003  # the annotation of a field
from dataclasses import KW_ONLY, asdict, dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from felb.centralized.base import ExtendedReal, Method, warn_of_time_limit
from felb.errors import ConvergenceWarning, InputError
from felb.federated.algorithms.bmf import Effort, federated_bmf
from felb.federated.algorithms.registry import MDL
from felb.federated.protocol import Participation  # noqa: TC001  # the annotation of a field
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
    ) -> Algorithm:
        """Return the algorithm with these parameters, to be run over any transport.

        Parameters
        ----------
        population : numbers of records and clients, from which noise is calibrated; required with privacy
        centralized : the only client owns all rows; more computations are possible than in a federation
        """
        privacy = getattr(self, "privacy", None)
        if privacy is None:
            return self.exact_algorithm(n_features, centralized=centralized)
        if population is None:
            raise InputError(
                "population is required with privacy, because noise depends on the numbers of records and clients; or "
                "use algorithm_for"
            )
        if not isinstance(privacy, Privacy):
            raise InputError(f"privacy must be a specification, felb.privacy.Privacy(epsilon=1.0), got {privacy!r}")
        return self.private_algorithm(n_features, population)

    @abstractmethod
    def exact_algorithm(self, n_features: int, *, centralized: bool) -> Algorithm:
        """Return the algorithm without noise; the options are those of `algorithm`."""

    def private_algorithm(self, n_features: int, population: Population) -> Algorithm:
        """Return the algorithm of a method that has a privacy specification, with noise for the population."""
        raise NotImplementedError

    def algorithm_for(self, shards: Mapping[str, BinaryMatrix], *, centralized: bool = False) -> Algorithm:
        """Return the algorithm for these clients, whose rows are checked; the options are those of `algorithm`."""
        for shard in shards.values():
            self.check_cells(shard)
        if not any(shard.known_cells for shard in shards.values()):
            raise InputError("all cells of the data are unknown, so there is nothing to fit; check how it was read")
        population = Population(n_records=sum(len(shard) for shard in shards.values()), n_clients=len(shards))
        n_features = next(iter(shards.values())).shape[1]
        return self.algorithm(n_features, population=population, centralized=centralized)

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

    def exact_algorithm(self, n_features: int, *, centralized: bool) -> Algorithm:
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
        from felb.federated.algorithms.private import private_bmf

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
        from felb.data.coercion import drop_numbered_names, read_partly_known

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
class PlainMethod(FederatedMethod):
    """Base of the methods that are neither refined nor private.

    Parameters
    ----------
    n_components : number of components
    """

    n_components: int = 10
