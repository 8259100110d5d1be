"""Many clients in one process: samples of them, dropouts, and sums in pairs; benchmarks/many_clients.py has 10,000."""

import numpy as np
import pytest

import felb
from felb.data import partition, planted
from felb.metrics import confusion

CLIENTS = 400
DATA = planted(10 * CLIENTS, 40, 3, noise=0.03, seed=0)
GROUPS = partition.even(10 * CLIENTS, CLIENTS, seed=0)
SOME = felb.Participation(0.05, dropout=0.2)


@pytest.mark.parametrize(
    "model",
    [
        felb.FELB(3, max_iter=12, participation=SOME, random_state=0),
        felb.FELBMU(3, max_iter=12, participation=SOME, random_state=0),
        felb.FederatedBMF(3, objective="hamming", effort="fast", participation=SOME, random_state=0),
    ],
    ids=["felb", "felb-mu", "bmf"],
)
@pytest.mark.filterwarnings("ignore::felb.ConvergenceWarning")
def test_hundreds_of_clients_of_ten_rows_find_what_was_planted(model):
    U = model.fit_transform(DATA.A, groups=GROUPS)
    asked = [row["clients"] for row in model.history_]
    missing = [name for row in model.history_ for name in row.get("missing", ())]
    assert asked[-1] == CLIENTS, "everybody assigns"
    assert 0 < min(asked) <= 0.05 * CLIENTS
    assert missing
    assert len(set(missing)) > 5, "others drop out in other rounds"
    truth = (DATA.U.astype(np.int32) @ DATA.V.astype(np.int32)) > 0
    assert confusion(truth, U, model.components_).f1 > 0.9
