from typing import get_args

from felb.cli.options import DISCLOSURE_PRESETS, SPLITS
from felb.data.partition import PARTITIONS
from felb.federated.aggregate import ALIGNED_AGGREGATIONS, BOOLEAN_AGGREGATIONS
from felb.federated.algorithms.felb import SETTINGS
from felb.federated.algorithms.registry import AGGREGATIONS, FELB_SETTINGS
from felb.privacy import MechanismName, NoisePlace
from felb.privacy.disclosure import PRESETS
from felb.privacy.spec import Privacy


def test_each_list_of_words_is_that_of_the_table_it_stands_for():
    assert tuple(PARTITIONS) == SPLITS
    assert tuple(SETTINGS) == FELB_SETTINGS
    assert tuple(BOOLEAN_AGGREGATIONS) == AGGREGATIONS
    assert tuple(ALIGNED_AGGREGATIONS) == tuple(f"aligned-{word}" for word in AGGREGATIONS)
    assert tuple(PRESETS) == DISCLOSURE_PRESETS


def test_every_mechanism_and_place_of_noise_is_accepted():
    for mechanism in get_args(MechanismName):
        assert Privacy(1.0, mechanism=mechanism).mechanism == mechanism
    for place in get_args(NoisePlace):
        assert Privacy(1.0, noise=place).noise == place
