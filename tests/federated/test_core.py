"""Messages, gate, client and states."""

import json
from dataclasses import dataclass

import numpy as np
import pytest

from felb.errors import FederationError, InputError
from felb.federated.client import Client
from felb.federated.gate import Gate
from felb.federated.messages import Broadcast, Release, Total, Update
from felb.federated.recipes.felb import ClientState, FelbServer, ServerState, felb
from felb.federated.recipes.felb_setting import CHOICES, LITERAL, FelbParameters, Setting
from felb.federated.state import from_arrays, to_arrays
from felb.linalg import BinaryMatrix
from felb.optim.steps import Lipschitz
from felb.privacy.outbound import OutboundLog, OutboundRecord

BROADCAST = Broadcast("count", 3, {})
RNG = np.random.default_rng(0)


def test_total_adds_floats_in_float64_and_integers_in_int64():
    parts = [Release({"V": np.float32([0.1, 0.2]), "n": np.int32([1])}) for _ in range(3)]
    total = Total.of(parts)
    assert total.n_clients == 3
    assert total.values["V"].dtype == np.float64
    assert total.values["n"].dtype == np.int64
    np.testing.assert_array_equal(total.values["V"], 3 * np.float32([0.1, 0.2]).astype(np.float64))
    np.testing.assert_array_equal(parts[0].values["V"], np.float32([0.1, 0.2]))


@pytest.mark.parametrize("other", [{"W": np.zeros(2)}, {"V": np.zeros(3)}])
def test_updates_that_do_not_fit_are_refused(other):
    total = Total.of([Release({"V": np.zeros(2)})])
    with pytest.raises(FederationError, match="a client sent"):
        total.add(Release(other))


def test_gate_logs_every_array_and_refuses_what_is_not_finite(tmp_path):
    log = OutboundLog(tmp_path / "deep" / "site.jsonl")
    gate = Gate("site", log)
    release = gate.release(Update({"V": np.zeros((2, 3)), "loss": np.float64(1)}), BROADCAST, rng=RNG)
    assert set(release.values) == {"V", "loss"}
    with pytest.raises(FederationError, match=r"site: loss .* NaN"):
        gate.release(Update({"V": np.zeros(2), "loss": np.float64(np.nan)}), BROADCAST, rng=RNG)
    lines = [json.loads(line) for line in log.path.read_text().splitlines()]
    assert [(line["what"], line["shape"], line["bytes"], line["round"]) for line in lines] == [
        ("V", [2, 3], 48, 3),
        ("loss", [], 8, 3),
    ]
    assert all(line["time"] and line["mechanism"] == "none" for line in lines)
    assert OutboundRecord.__dataclass_fields__.keys() <= lines[0].keys()


def test_a_client_does_only_what_it_knows():
    client = Client({"count": lambda s, a, b, r: (s, Update({}))}, ClientState, lambda s: s)
    shard = BinaryMatrix.of(np.eye(2))
    assert client.step(1, shard, BROADCAST, rng=RNG)[0] == 1
    with pytest.raises(FederationError, match=r"unknown task 'exfiltrate'.*count"):
        client.step(None, shard, Broadcast("exfiltrate", 0, {}), rng=RNG)


def test_states_survive_being_stored():
    state = ServerState(5, np.eye(2, dtype=np.float32), settled=True, loss=3.5)
    back = from_arrays(ServerState, to_arrays(state))
    np.testing.assert_array_equal(back.V, state.V)
    assert (back.round, back.settled, back.loss, back.counts) == (5, True, 3.5, None)
    assert type(back.round) is int
    assert type(back.settled) is bool


def test_states_hold_nothing_but_arrays():
    @dataclass
    class Sly:
        code: object

    with pytest.raises(TypeError, match="field code of Sly"):
        to_arrays(Sly(code=print))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"n_components": 0}, "n_components must be at least 1"),
        ({"local_steps": 0}, "local_steps"),
        ({"max_rounds": 0}, "max_iter"),
        ({"kappa": -1}, "l1"),
        ({"lam": float("nan")}, "l2"),
        ({"gamma": -0.1}, "proximity"),
        ({"beta": 0.5}, "inertia"),
    ],
)
def test_parameters_are_checked_once_at_the_edge(change, message):
    with pytest.raises(InputError, match=message):
        FelbParameters(**({"n_components": 2, "rule": Lipschitz()} | change))


@pytest.mark.parametrize("field", CHOICES)
def test_settings_are_checked(field):
    with pytest.raises(InputError, match=field):
        Setting(**{field: "moon"})


def parameters(**changes):
    return FelbParameters.of(2, Lipschitz(), **{"kappa": 0.0, "lam": 0.25, "rate": 1.0, **changes})


def test_server_needs_only_the_sum_and_the_count():
    server = FelbServer(parameters(setting=Setting(start="random", average="equal")), 3)
    total = {"V": np.array([[4.0, 0.0, 1.0], [3.0, 1.0, 4.0]]), "loss": np.float64(7)}
    new = server.combine(total, 4, server.start(0))
    # prox of the mean with λ = ¼: x/1.25 below a half, (x + .25)/1.25 above.
    np.testing.assert_allclose(new.V, [[1, 0, 0.2], [0.8, 0.2, 1]], rtol=1e-6)
    assert (new.round, new.loss) == (1, 7.0)


def test_server_weighs_components_by_curvature_and_keeps_those_nobody_uses():
    server = FelbServer(parameters(lam=0.0, setting=Setting(start="random")), 3)
    state = server.start(0)
    s, V = np.array([[3.0, 0.0], [1.0, 0.0]]), np.random.default_rng(0).random((2, 2, 3))
    total = {"V": (s[:, :, None] * V).sum(axis=0), "curvature": s.sum(axis=0), "loss": np.float64(7)}
    new = server.combine(total, 2, state)
    np.testing.assert_allclose(new.V[0], (3 * V[0, 0] + V[1, 0]) / 4, rtol=1e-6)
    np.testing.assert_array_equal(new.V[1], state.V[1])


def test_a_boolean_aggregate_stays_put_at_the_server():
    server = FelbServer(parameters(tol=0.0, setting=Setting(start="random")), 3)
    V = np.array([[1, 0, 1], [0, 1, 1]], dtype=np.float32)
    new = server.combine({"V": 5.0 * V, "curvature": np.full(2, 5.0), "loss": np.float64(0)}, 5, ServerState(40, V))
    np.testing.assert_array_equal(new.V, V)
    assert new.settled
    assert server.broadcast(new).task == "assign"


def test_nothing_found_yet():
    server = felb(3, 2, setting=LITERAL).server
    with pytest.raises(InputError, match="not a single round"):
        server.outcome(server.start(0))
