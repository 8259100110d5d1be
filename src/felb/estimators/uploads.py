"""Estimators whose clients upload components, with or without an agreement on privacy."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any

from felb.errors import InputError
from felb.estimators.refined import RefinableEstimator
from felb.federated.recipes.private_uploads import private_uploads
from felb.privacy.policy import Privacy

if TYPE_CHECKING:
    from collections.abc import Mapping

    from felb.engines import Run
    from felb.federated.server import Recipe
    from felb.linalg.binary import BinaryMatrix
    from felb.privacy.uploads import Uploads


class UploadingEstimator(RefinableEstimator):
    """Base of the estimators with a parameter `privacy` for uploads; a subclass says what is uploaded in `uploads`."""

    privacy: Privacy | None

    @abstractmethod
    def uploads(self, n_features: int, *, rounds: int | None) -> Uploads:
        """Return what a client uploads, in as many rounds as were agreed on, if so."""

    @abstractmethod
    def uploading_recipe(self, n_features: int, uploads: Uploads) -> Recipe:
        """Return the recipe without refinement that makes these uploads."""

    def recipe(self, n_features: int) -> Recipe:
        """Return the recipe with this estimator's parameters, to be run on any engine."""
        if self.privacy is not None:
            raise InputError("noise depends on how many clients there are: use recipe_for with the shards")
        return super().recipe(n_features)

    def recipe_for(self, shards: Mapping[str, BinaryMatrix], *, alone: bool = False) -> Recipe:
        """Return the recipe for these clients, with noise calibrated for them if there is an agreement on privacy."""
        privacy: Any = self.privacy
        if privacy is None:
            return super().recipe_for(shards, alone=alone)
        if not isinstance(privacy, Privacy):
            raise InputError(f"privacy must be an agreement, felb.privacy.Privacy(epsilon=1.0), got {privacy!r}")
        if self.refinement is not None:
            raise InputError("refinement sums exact gains over clients, which privacy does not allow; use refine=False")
        if (self.sampled or self.joined_late) and privacy.noise == "aggregate":
            raise InputError("noise in the aggregate needs every client's share; leave out participation")
        n_features = next(iter(shards.values())).shape[1]
        uploads = self.uploads(n_features, rounds=privacy.rounds)
        plan = privacy.plan(
            n_records=sum(len(shard) for shard in shards.values()),
            n_clients=len(shards),
            n_columns=n_features,
            uploads=uploads,
        )
        return private_uploads(self.uploading_recipe(n_features, uploads), plan)

    def _keep(self, finished: Run, recipe: Recipe) -> None:
        self.privacy_statement_ = None if recipe.privacy is None else recipe.privacy.statement()
        super()._keep(finished, recipe)
