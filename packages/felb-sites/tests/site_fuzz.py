"""The records of sites and of a coordinator as targets of fuzzing; as a program, all targets of `make fuzz`."""

import json
import sys

from felb_sites.run_plan import Plan
from felb_sites.run_record import RunRecord
from felb_sites.site_budget import Spent
from felb_sites.site_policy import SITE_FILE, SiteConfig
from fuzz import run, targets


def site_targets():
    """Return the files that a site or a coordinator stores and reads back."""
    charge = {"epsilon": 1.0, "delta": 1e-5, "unit": "record", "began": "2026"}
    policy = {"min_rows": 5, "max_epsilon": 2.0, "mechanisms": ["cooccurrence"]}
    status = {"state": "running", "round": 2, "sites": ["a"], "reasons": {"b": "late"}, "time": 1.5}
    seeds = {
        "budget": ("spent.json", {"runs": {"a": charge, "b": charge}}, add_up),
        "site config": (SITE_FILE, {"data": "d.csv", "state": "s", "policy": policy}, SiteConfig.load),
        "plan": ("run/plan.json", Plan("run", "felb", 3, 20).to_json(), lambda place: RunRecord(place, "run").plan()),
        "status": ("run/status.json", status, lambda place: RunRecord(place, "run").status()),
    }
    return {name: targets.record(file, [json.dumps(seed).encode()], use) for name, (file, seed, use) in seeds.items()}


def add_up(place):
    epsilon, delta = Spent(place).total()
    assert epsilon >= 0
    assert delta >= 0


if __name__ == "__main__":
    targets.FURTHER.append(site_targets)
    sys.exit(run.main())
