"""run.toml: values of wrong types are refused with the name of the setting."""

import pytest

from felb.errors import InputError
from felb_sites.coordinator.settings import DeployedRun
from felb_sites.vault.policy import Policy

START = 'id = "r"\ncomponents = 3\n'


@pytest.mark.parametrize(
    ("lines", "name"),
    [
        ("schema = 5", "schema"),
        ("columns = 5", "columns"),
        ('features = "x"', "features"),
        ("features = 5\nterms = 3", "terms"),
        ("features = 5\nsites = 3", "sites"),
        ("features = 5\nparameters = 3", "parameters"),
        ("features = 5\nprivacy = 3", "privacy"),
        ("features = 5\ndisclosure = 3", "disclosure"),
        ('features = 5\nseed = "x"', "seed"),
        ('features = 5\nmethod = "felb"\n[parameters]\nl1 = "x"', "l1"),
        ('features = 5\nmethod = "felb"\n[parameters]\nlocal_steps = "x"', "local_steps"),
        ('features = 5\n[terms]\nquorum = "x"', "quorum"),
        ('features = 5\nsites = ["a"]\n[privacy]\nepsilon = "x"\nrecords = 5', "epsilon"),
    ],
)
def test_a_setting_of_a_wrong_type_is_named(tmp_path, lines, name):
    (tmp_path / "run.toml").write_text(START + lines + "\n")
    with pytest.raises(InputError, match=name):
        DeployedRun.read(tmp_path / "run.toml")


@pytest.mark.parametrize("name", ["max_epsilon", "max_delta", "total_epsilon", "total_delta", "max_seconds"])
def test_a_policy_refuses_numbers_that_no_float_holds(name):
    with pytest.raises(InputError, match=name):
        Policy(**{name: 10**401})
