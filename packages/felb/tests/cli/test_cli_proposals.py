"""A site's noisy proposal is charged to its budget; one without noise needs a policy that allows it."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
from felb_sites.proposals import PROPOSAL

from felb.tables.propose import read_proposal
from felb_sites.provisioning import Site
from felb_sites.site_budget import Spent
from felb_sites.vault_words import SITE

pytest.importorskip("dp_accounting")
pytest.importorskip("opendp")


@pytest.fixture
def site(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "site").mkdir()
    invitation = {"federation": "f", "host": "localhost", "port": 1, "fingerprint": "SHA256:00"}
    (tmp_path / "site" / SITE).write_text(json.dumps({"name": "north", "invitation": invitation}))
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"sex": rng.choice(["F", "M"], 2000), "smokes": rng.integers(0, 2, 2000)})
    table.to_csv("people.csv", index=False)
    made = Site.open(tmp_path / "site")
    made.configure(data="people.csv", policy={"total_epsilon": 2.0, "max_epsilon": 1.5})
    return made


@pytest.fixture
def propose(felb):
    return lambda *options: felb("schema", "propose", "people.csv", "--site", "site", *options)


def test_each_noisy_proposal_is_charged_and_refused_beyond_the_budget(site, propose):
    told = propose("--epsilon", 1, "-o", "a.json", "--json")
    assert told.code == 0, told.err
    assert told.json["named from"] > told.json["noise"] > 1
    summary, _ = read_proposal("a.json")
    assert set(summary.columns["sex"].counts) == {"F", "M"}
    assert set(summary.columns["smokes"].counts) == {"0", "1"}
    assert Spent(site.state).total() == (1.0, 1e-6)
    assert all(run.startswith(PROPOSAL) for run in Spent(site.state).runs())
    assert propose("--epsilon", 1, "-o", "a.json").code == 1  # the file is there: nothing is charged
    assert Spent(site.state).total()[0] == 1.0
    assert propose("--epsilon", 1, "-o", "b.json").code == 0
    assert Spent(site.state).total()[0] == 2.0
    refused = propose("--epsilon", 0.1, "-o", "c.json")
    assert refused.code == 1
    assert "budget" in refused.err
    assert Spent(site.state).total()[0] == 2.0


@pytest.mark.parametrize(
    ("options", "word"),
    [(("--epsilon", 1.6), "epsilon"), (("--epsilon", 1, "--delta", 1e-3), "delta"), ((), "privacy")],
)
def test_the_policy_of_the_site_limits_a_proposal(site, propose, options, word):
    refused = propose(*options, "-o", "a.json")
    assert refused.code == 1
    assert word in refused.err
    assert Spent(site.state).runs() == {}
    assert not (site.folder.parent / "a.json").exists()


def test_exact_counts_need_a_site_that_gives_them_and_has_given_no_private_ones(site, propose):
    open_to_both = {"total_epsilon": None, "max_epsilon": None, "require_privacy": False}
    site.configure(policy=open_to_both)
    assert propose("-o", "exact.json").code == 0
    assert propose("--epsilon", 1, "-o", "noisy.json").code == 0
    assert propose("-o", "again.json").code == 1
    site.configure(policy=open_to_both | {"exact_after_private": True})
    assert propose("-o", "again.json").code == 0


def test_noise_without_a_site_is_refused_since_nothing_could_be_charged(site, felb):
    refused = felb("schema", "propose", "people.csv", "--epsilon", 1, "-o", "a.json")
    assert refused.code == 1
    assert "--site" in refused.err
    assert Spent(site.state).runs() == {}
