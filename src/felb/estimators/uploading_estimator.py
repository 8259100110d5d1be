"""Estimators whose clients upload components, with or without a privacy specification."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from felb.errors import InputError
from felb.estimators.refined_estimator import RefinableEstimator
from felb.federated.algorithms.uploads import private_uploads
from felb.privacy.spec import Population, Privacy

if TYPE_CHECKING:
    from felb.federated.protocol import Algorithm
    from felb.privacy.private_uploads import Uploads


class UploadingEstimator(RefinableEstimator):
    """Base of the estimators with a parameter `privacy` for uploads; a subclass says what is uploaded in `uploads`."""

    privacy: Privacy | None

    @abstractmethod
    def uploads(self, n_features: int, *, rounds: int | None) -> Uploads:
        """Return what a client uploads, in as many rounds as were agreed on, if so."""

    @abstractmethod
    def uploading_algorithm(self, n_features: int, uploads: Uploads) -> Algorithm:
        """Return the algorithm without refinement that makes these uploads."""

    def algorithm(
        self, n_features: int, *, population: Population | None = None, centralized: bool = False
    ) -> Algorithm:
        """Return the algorithm, with noise calibrated for the population if there is a privacy specification."""
        privacy: Any = self.privacy
        if privacy is None:
            return super().algorithm(n_features, population=population, centralized=centralized)
        if population is None:
            raise InputError(
                "population is required with privacy, because noise depends on the number of clients; or use "
                "algorithm_for"
            )
        if not isinstance(privacy, Privacy):
            raise InputError(f"privacy must be a specification, felb.privacy.Privacy(epsilon=1.0), got {privacy!r}")
        if self.refines:
            raise InputError("refinement sums exact gains over clients, which privacy does not allow; use refine=False")
        if (self.sampled or self.joined_late) and privacy.noise == "distributed":
            raise InputError("distributed noise needs every client's share; leave out participation")
        uploads = self.uploads(n_features, rounds=privacy.rounds)
        plan = privacy.plan(**asdict(population), n_columns=n_features, uploads=uploads)
        return private_uploads(self.uploading_algorithm(n_features, uploads), plan)
