from typing import get_args

from felb import choices
from felb.data.partition import PARTITIONS
from felb.federated.aggregate import ALIGNED_AGGREGATIONS, BOOLEAN_AGGREGATIONS
from felb.federated.algorithms.felb import SETTINGS
from felb.privacy.disclosure import PRESETS
from felb.privacy.spec import Privacy


def test_each_list_of_words_is_that_of_the_table_it_stands_for():
    assert tuple(PARTITIONS) == choices.SPLITS
    assert tuple(SETTINGS) == choices.FELB_SETTINGS
    assert tuple(BOOLEAN_AGGREGATIONS) == choices.AGGREGATIONS
    assert tuple(ALIGNED_AGGREGATIONS) == tuple(f"aligned-{word}" for word in choices.AGGREGATIONS)
    assert tuple(PRESETS) == choices.DISCLOSURE_PRESETS


def test_every_mechanism_and_place_of_noise_is_accepted():
    for mechanism in get_args(choices.MechanismName):
        assert Privacy(1.0, mechanism=mechanism).mechanism == mechanism
    for place in get_args(choices.NoisePlace):
        assert Privacy(1.0, noise=place).noise == place
