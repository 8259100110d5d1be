"""The paper's tables of real data: F1, and RMSD as 50·√(share of wrong cells); None where a run did not end."""

from __future__ import annotations

import math
from dataclasses import dataclass

METHODS = ("Asso", "MEBF", "GreConD", "Zhang", "ELBMF", "FELB-MU", "FELB")
"""Columns of the tables."""


@dataclass(frozen=True, slots=True)
class PublishedData:
    """A data set of the tables: what the paper says about it, and what it found, in the order of `METHODS`."""

    name: str
    title: str
    shape: tuple[int, int]
    density: float
    components: int
    f1: tuple[float | None, ...]
    rmsd: tuple[float | None, ...]

    @property
    def all_zero_rmsd(self) -> float:
        """RMSD of a reconstruction without a single one: every one of the data is wrong."""
        return 50 * math.sqrt(self.density)

    @property
    def ones(self) -> int:
        """Ones of the matrix, as many as its density says."""
        return round(self.density * self.shape[0] * self.shape[1])

    def table(self, metric: str) -> dict[str, float | None]:
        """One row of a table by method."""
        return dict(zip(METHODS, self.f1 if metric == "f1" else self.rmsd, strict=True))


TABLE = (
    PublishedData("acs-income", "ACS Income", (1_630_167, 998), 0.01002, 20,
        (0.388, 0.108, 0.690, 0.0, 0.0, 0.585, 0.328), (4.583, 4.929, 3.485, 5.005, 5.005, 3.962, 4.560)),
    PublishedData("acs-poverty", "ACS Poverty", (3_271_346, 836), 0.02392, 20,
        (0.692, None, 0.797, 0.0, 0.217, 0.638, 0.517), (5.822, None, 4.785, 7.734, 7.190, 7.576, 7.588)),
    PublishedData("cs.LG", "cs.LG", (145_981, 14_570), 0.004619, 50,
        (None, 0.0, 0.068, 0.0, 0.0, 0.057, 0.006), (None, 3.398, 3.350, 3.398, 3.398, 3.372, 3.396)),
    PublishedData("goodreads", "Goodreads", (350_332, 9374), 0.001114, 50,
        (None, 0.0, 0.017, None, 0.0, 0.125, 0.059), (None, 1.669, 1.668, None, 1.669, 1.641, 1.660)),
    PublishedData("hpa-brain", "HPA Brain", (76_533, 20_082), 0.2388, 100,
        (None, 0.642, None, 0.0, 0.0, 0.007, 0.0), (None, 19.537, None, 24.434, 24.434, 24.409, 24.433)),
    PublishedData("movielens", "Movielens", (162_541, 62_423), 0.001540, 20,
        (None, 0.017, None, None, 0.0, 0.193, 0.163), (None, 1.956, None, None, 1.962, 1.914, 1.925)),
    PublishedData("netflix", "Netflix", (480_189, 17_770), 0.006672, 20,
        (None, 0.010, None, None, 0.0, 0.197, 0.144), (None, 4.075, None, None, 4.084, 3.982, 4.009)),
    PublishedData("tcga", "TCGA", (10_459, 20_530), 0.01889, 33,
        (0.039, 0.055, 0.007, 0.0, 0.0, 0.414, 0.402), (6.858, 6.834, 6.871, 6.872, 6.872, 6.346, 6.420)),
)  # fmt: skip

SHIPPED_COMPONENTS = {"zoo": 5, "soybean": 10, "sc_10x_brain_10k": 20}
"""Data that comes with felb, which the paper does not have, and the number of components it is run with."""
