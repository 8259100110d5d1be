"""The table of methods: every name makes an algorithm, from plain parameters and without an estimator."""

import json
import subprocess
import sys

import numpy as np
import pytest

import felb
from felb.data.partition import split
from felb.engines.local import run
from felb.errors import InputError
from felb.federated.algorithms.registry import (
    CENTRALIZED,
    FEDERATED,
    METHODS,
    OF_THE_RUN,
    make_algorithm,
    make_method,
    plain_parameters,
)
from felb.privacy.spec import Population, Privacy
from felb.sklearn.methods import estimator_of, make, parameters_of

PROGRAM = """
import json, sys
from felb.federated.algorithms.registry import METHODS, make_algorithm, make_method
for name, method in METHODS.items():
    make_algorithm(name, 12, 3, {}) if method.federated else make_method(name)
print(json.dumps(sorted(sys.modules)))
"""


def test_no_method_needs_scikit_learn_an_engine_or_the_report():
    loaded = json.loads(subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, check=True).stdout)
    tops = {name.partition(".")[0] for name in loaded}
    assert not tops & {"sklearn", "dask", "distributed", "pandas", "matplotlib", "joblib", "click"}
    rooms = {name.split(".")[1] for name in loaded if name.startswith("felb.")}
    assert not rooms & {"sklearn", "engines", "report", "runs", "cli", "analysis", "tables", "secure_sum"}


@pytest.mark.parametrize("name", [method.name for method in FEDERATED + CENTRALIZED])
def test_an_estimator_has_the_parameters_of_its_method_and_those_of_the_run(name):
    assert issubclass(estimator_of(name), METHODS[name].kind)
    assert set(METHODS[name].parameters()) <= set(parameters_of(name))
    assert set(parameters_of(name)) - set(METHODS[name].parameters()) <= OF_THE_RUN
    assert plain_parameters(make(name)) == plain_parameters(make_method(name))


def test_the_parameters_of_a_post_hoc_method_are_those_of_its_model_too():
    method = make_method("asso+aligned-or", n_components=4, tau=0.7, refine=True)
    found = plain_parameters(method)
    assert (found["model__tau"], found["refine"], found["aggregation"]) == (0.7, True, "aligned-or")
    assert plain_parameters(make("asso+aligned-or", n_components=4, tau=0.7, refine=True)) == found


@pytest.mark.filterwarnings("ignore::felb.errors.ConvergenceWarning")
def test_an_algorithm_of_the_registry_finds_what_the_estimator_finds():
    data = felb.data.planted(90, 12, 3, noise=0.05, seed=0).A
    labels = np.repeat(["client-01", "client-02"], (40, 50))
    shards, _ = split(data, labels)
    for name, parameters in (("felb-mu", {"max_iter": 4, "refine": True}), ("grecond+vote", {})):
        found = run(make_algorithm(name, 12, 3, parameters), shards, seed=5).outcome
        model = make(name, n_components=3, random_state=5, **parameters).fit(data, groups=labels)
        np.testing.assert_array_equal(found.components, model.components_)


@pytest.mark.parametrize(
    ("method", "parameters", "said"),
    [
        ("none", {}, "unknown method 'none'; use one of bmf"),
        ("grecond", {}, r"for centralized data; use `felb fit`, or grecond\+vote"),
        ("felb", {"tau": 1.0}, "method 'felb' has no parameter 'tau'; it has "),
        ("felb", {"max_iter": "many"}, "max_iter must be a whole number or None, got 'many'"),
        ("asso+vote", {"tau": 2.0}, "tau must be a number above 0 and at most 1"),
    ],
)
def test_wrong_names_and_values_are_told(method, parameters, said):
    with pytest.raises(InputError, match=said):
        make_algorithm(method, 12, 3, parameters)


def test_privacy_needs_a_population_and_a_method_that_has_it():
    spec = Privacy(1.0)
    made = make_algorithm("bmf", 12, 3, {}, privacy=spec, population=Population(600, 3))
    assert made.privacy == spec.plan(n_records=600, n_clients=3, n_columns=12)
    with pytest.raises(InputError, match="population is required"):
        make_algorithm("bmf", 12, 3, {}, privacy=spec)
    with pytest.raises(InputError, match="no parameter 'privacy'"):
        make_algorithm("fedprox", 12, 3, {}, privacy=spec, population=Population(600, 3))
