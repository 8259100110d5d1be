"""Small data on disk, and jobs on it."""

from __future__ import annotations

import pytest

from felb.data.synthetic import write_planted
from felb.runs.job import Job


@pytest.fixture(scope="session")
def small_data(tmp_path_factory) -> str:
    """90 records x 14 features with three planted components."""
    folder = tmp_path_factory.mktemp("data")
    options = {"noise": 0.02, "heights": (0.3, 0.4), "widths": (0.25, 0.4), "seed": 3}
    return str(write_planted(folder / "small", 90, 14, k=3, **options)["data"])


@pytest.fixture
def make_job(small_data):
    """Make a quick job over four clients; its λ grows fast, so that its result is Boolean."""

    def make(**changes) -> Job:
        parameters = {"max_iter": 12, "l2_rate": 1.5, **changes.pop("parameters", {})}
        settings = {"data": small_data, "method": "felb-mu", "n_components": 3, "clients": 4, "seed": 1, **changes}
        return Job(**settings, parameters=parameters)

    return make
