"""Parameters of the optimisation are refused under the names of the public API."""

import pytest

import felb
from felb.data import planted
from felb.optim.prox import MOST_LOCAL_STEPS


@pytest.mark.parametrize("method", [felb.FELB, felb.FELBMU, felb.FedProx, felb.Scaffold, felb.ProxSkip])
@pytest.mark.parametrize("steps", [0, MOST_LOCAL_STEPS + 1])
def test_a_round_has_a_number_of_local_steps_that_can_be_waited_for(method, steps):
    data = planted(20, 6, 2, seed=0).A
    with pytest.raises(felb.InputError, match="local_steps"):
        method(2, max_iter=1, local_steps=steps, random_state=0).fit(data)
