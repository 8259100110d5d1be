"""The stability of a run over sites: real processes refit it, each with half of its rows."""

from __future__ import annotations

import pytest

from federation_parts import SITES, plan, play
from felb.report.inputs import compare_refits
from felb_sites.deployed import DeployedRun

pytestmark = pytest.mark.federation


def test_refits_over_sites_tell_how_stable_components_are(federation, tmp_path):
    made = plan("stable", method="bmf", effort="fast")
    whole, _ = play(federation, tmp_path / "whole", made)
    for number in (1, 2):
        refit = DeployedRun(made).refit(number).plan
        result, _ = play(federation, tmp_path / f"refit-{number}", refit)
        assert result.provenance.data["rows"] == 17 * 3
    places = [tmp_path / f"refit-{number}" for number in (1, 2)]
    stable = compare_refits(tmp_path / "whole", places)
    assert stable.match.shape == (2, len(whole.components))
    assert stable.mean.max() > 0.5
    assert not list(federation.coordinator.runs.rglob("sample.key"))
    drawn = [federation.sites[name].state / "stable-refit-1" / "sample.key" for name in SITES]
    assert len({path.read_bytes() for path in drawn}) == 3
