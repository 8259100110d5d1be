"""What a coordinator that lies freely reads of single records, beyond guessing from the marginals."""

import pytest
from attacks import ATTACKS, NOT_STOPPED, choose_victims, make_sites, play

from felb.privacy.disclosure import PRESETS, Disclosure

SITES = make_sites()
MOST = 0.02
STOPPED = [name for name in ATTACKS if name not in NOT_STOPPED]


def victims_of(name, count):
    """A sketch tells pairs, so that its victim has a code that nobody else has."""
    return choose_victims(SITES, 1 if name.startswith("sketches") else 4, count)


@pytest.mark.parametrize("masked", [True, False], ids=["masked", "plain"])
@pytest.mark.parametrize("cost", [5, 41])
@pytest.mark.parametrize("name", STOPPED)
def test_an_attack_reads_next_to_nothing_under_the_default_rule(name, cost, masked):
    score = play(name, Disclosure(), sites=SITES, victims=victims_of(name, 12), cost=cost, masked=masked)
    assert score.upper <= MOST, score


@pytest.mark.parametrize("preset", [name for name in PRESETS if name != "none"])
def test_no_preset_tells_a_record_by_chosen_candidates(preset):
    score = play(STOPPED[0], PRESETS[preset], sites=SITES, victims=victims_of("", 20), cost=41, masked=True)
    assert score.upper <= MOST, score


@pytest.mark.parametrize("name", STOPPED)
def test_the_attack_reads_records_where_no_rule_applies(name):
    """Otherwise it would be no attack."""
    score = play(name, None, sites=SITES, victims=victims_of(name, 4), cost=41, masked=True)
    assert score.advantage > 0.1, score
