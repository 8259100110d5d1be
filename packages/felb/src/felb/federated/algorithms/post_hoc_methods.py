"""Methods for centralized data at every client, their components aggregated, as plain data."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING

from felb.centralized.base import CentralizedMethod, check_parameters
from felb.centralized.elbmf import ELBMFMethod
from felb.errors import InputError
from felb.federated.aggregate import ALIGNED_AGGREGATIONS, BOOLEAN_AGGREGATIONS
from felb.federated.algorithms.felb_methods import UploadingMethod
from felb.federated.algorithms.post_hoc import PASSES, aligned, check_passes, post_hoc
from felb.privacy.releases import Uploads

if TYPE_CHECKING:
    from felb.federated.protocol import Algorithm


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
