"""Requests, sums, gate, tasks and states."""

import json
from dataclasses import dataclass

import numpy as np
import pytest
from declarations import algorithm_with, outputs_of

from felb.data import BinaryMatrix
from felb.errors import FederationError, InputError
from felb.federated.algorithms.felb import (
    CHOICES,
    LOCAL_FACTOR,
    SETTINGS,
    FelbParameters,
    FelbState,
    Setting,
    aggregate_factors,
    felb,
    felb_mu,
    felb_server,
)
from felb.federated.client import Client, compute_update
from felb.federated.gate import Gate
from felb.federated.journal import from_arrays, to_arrays
from felb.federated.protocol import Checkpoint, Part, Release, Request, Sums, Update
from felb.federated.tasks import TaskSpec
from felb.optim.prox import prox_elb, prox_elb_exact
from felb.optim.steps import Lipschitz
from felb.privacy.outbound_log import OutboundLog, OutboundRecord

REQUEST = Request.of([Part("count", {})], number=3)
RNG = np.random.default_rng(0)


def test_a_request_holds_arrays():
    request = Request("assign", components=[[True]], node_cap=3, all_clients=True)
    assert (request.task, request.round, request.all_clients) == ("assign", 0, True)
    assert {name: value.shape for name, value in request.values.items()} == {"components": (1, 1), "node_cap": ()}


def test_sums_add_floats_in_float64_and_integers_in_int64():
    parts = [Release({"V": np.float32([0.1, 0.2]), "n": np.int32([1])}) for _ in range(3)]
    sums = Sums.of(parts, missing=["b", "a"], number=4)
    assert (sums.clients, sums.missing, sums.round) == (3, ("a", "b"), 4)
    assert sums["V"].dtype == np.float64
    assert sums["n"].dtype == np.int64
    np.testing.assert_array_equal(sums["V"], 3 * np.float32([0.1, 0.2]).astype(np.float64))
    np.testing.assert_array_equal(parts[0].values["V"], np.float32([0.1, 0.2]))


@pytest.mark.parametrize("other", [{"W": np.zeros(2)}, {"V": np.zeros(3)}])
def test_updates_that_do_not_fit_are_refused(other):
    with pytest.raises(FederationError, match="a client sent"):
        Sums.of([Release({"V": np.zeros(2)}), Release(other)])


def test_metrics_are_reported_at_once_or_when_the_round_is_closed():
    sums, later = Sums({}, 1), {"tries": 1}
    sums.report(loss=2.0)
    sums.report_at_end(lambda: later)
    later = {"tries": 2}
    assert sums.metrics == {"loss": 2.0, "tries": 2}


def test_gate_logs_every_array_and_refuses_what_is_not_finite(tmp_path):
    log = OutboundLog(tmp_path / "deep" / "site.jsonl")
    gate = Gate("site", log)
    update = Update({"V": np.zeros((2, 3)), "loss": np.float64(1)})
    release = gate.release(update, REQUEST, outputs_of(update), rng=RNG)
    assert set(release.values) == {"V", "loss"}
    with pytest.raises(FederationError, match=r"site: loss .* NaN"):
        gate.release(Update({"V": np.zeros(2), "loss": np.float64(np.nan)}), REQUEST, outputs_of(update), rng=RNG)
    with pytest.raises(FederationError, match=r"declares \['loss'\]; nothing was sent"):
        gate.release(update, REQUEST, {"loss": outputs_of(update)["loss"]}, rng=RNG)
    lines = [json.loads(line) for line in log.path.read_text().splitlines()]
    assert [(line["what"], line["shape"], line["bytes"], line["round"]) for line in lines] == [
        ("V", [2, 3], 48, 3),
        ("loss", [], 8, 3),
    ]
    assert all(line["time"] and line["mechanism"] == "none" for line in lines)
    assert OutboundRecord.__dataclass_fields__.keys() <= lines[0].keys()


def test_a_client_does_only_what_it_knows():
    algorithm = algorithm_with(TaskSpec("count", "counting", lambda work: (work.state, Update({}))))
    shard = BinaryMatrix.of(np.eye(2))
    assert compute_update(algorithm, {"": 1}, shard, REQUEST, name="a", seed=0)[0] == {"": 1}
    with pytest.raises(FederationError, match=r"unknown task 'exfiltrate'.*count"):
        Client("a", algorithm, Gate("a", lambda _: None), seed=0).answer(None, shard, Request("exfiltrate"))


def test_states_survive_being_stored():
    state = FelbState(np.eye(2, dtype=np.float32), None, np.ones((1, 2), np.float32), t=5)
    back = from_arrays(FelbState, to_arrays(state))
    np.testing.assert_array_equal(back.U, state.U)
    assert back.U.dtype == np.float32
    assert (back.t, back.U_before, back.assigned) == (5, None, None)
    assert type(back.t) is int
    number, V, settled = from_arrays((0, None, False), to_arrays((7, np.ones(2), True)))
    assert (number, settled) == (7, True)
    np.testing.assert_array_equal(V, np.ones(2))


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


def test_supports_of_the_components_of_two_parts_are_not_added():
    part = Update({"V": np.zeros((2, 3))}, supports={"V": np.array([4, 5])})
    with pytest.raises(FederationError, match="supports"):
        part.plus(part)


@pytest.mark.parametrize("field", CHOICES)
def test_settings_are_checked(field):
    with pytest.raises(InputError, match=field):
        Setting(**{field: "moon"})


def test_components_of_independent_starts_cannot_be_weighed():
    with pytest.raises(InputError, match="average"):
        Setting(start="independent")
    assert Setting(start="independent", average="equal").average == "equal"


@pytest.mark.parametrize(("exact", "prox"), [(False, prox_elb), (True, prox_elb_exact)])
def test_the_server_applies_the_operator_of_the_setting(exact, prox):
    V = np.array([[0.1, 0.4, 0.6, 0.9]])
    setting = Setting(average="equal", exact_prox=exact)
    sums = Sums({"V": 2 * V, "loss": np.array(1.0)}, clients=2)
    found = aggregate_factors(parameters(setting=setting, kappa=0.05, lam=0.2, dtype="float64"), sums, 0, before=V)
    np.testing.assert_allclose(found, np.clip(prox(V, 0.05, 0.2), 0, 1))


@pytest.mark.parametrize("floor", [-0.1, 0.5, float("nan"), "moon", None])
def test_the_floor_of_multiplicative_steps_lies_below_the_cut(floor):
    with pytest.raises(InputError, match="floor"):
        Setting(floor=floor)


def test_only_the_printed_algorithm_lets_multiplicative_steps_end_at_zero():
    floors = {name: felb_mu(30, 4, setting=setting).tasks[LOCAL_FACTOR].do.parameters.rule.floor
              for name, setting in SETTINGS.items()}  # fmt: skip
    assert floors == {"recommended": 0.001, "unweighted": 0.001, "literal": 0.0}


def parameters(**changes):
    return FelbParameters.of(2, Lipschitz(), **{"kappa": 0.0, "lam": 0.25, "rate": 1.0, **changes})


def test_the_server_needs_only_the_sum_and_the_count():
    total = Sums({"V": np.array([[4.0, 0.0, 1.0], [3.0, 1.0, 4.0]])}, 4)
    # prox of the mean with λ = ¼: x/1.25 below a half, (x + .25)/1.25 above.
    V = aggregate_factors(parameters(setting=Setting(start="random", average="equal")), total, 0, before=None)
    np.testing.assert_allclose(V, [[1, 0, 0.2], [0.8, 0.2, 1]], rtol=1e-6)


def test_the_server_weighs_components_by_curvature_and_keeps_those_nobody_uses():
    s, V = np.array([[3.0, 0.0], [1.0, 0.0]]), np.random.default_rng(0).random((2, 2, 3))
    before = np.random.default_rng(1).random((2, 3)).astype(np.float32)
    total = Sums({"V": (s[:, :, None] * V).sum(axis=0), "curvature": s.sum(axis=0)}, 2)
    new = aggregate_factors(parameters(lam=0.0), total, 0, before=before)
    np.testing.assert_allclose(new[0], (3 * V[0, 0] + V[1, 0]) / 4, rtol=1e-6)
    np.testing.assert_array_equal(new[1], before[1])


def test_a_boolean_aggregate_stays_put_and_ends_the_rounds():
    server = felb_server(parameters(tol=0.0, setting=Setting(start="random")), 3)(0)
    V = np.array([[1, 0, 1], [0, 1, 1]], dtype=np.float32)
    checkpoint = next(server)
    assert isinstance(checkpoint, Checkpoint)
    request = server.send((40, V, False))
    assert (request.task, int(request.values["t"])) == (LOCAL_FACTOR, 40)
    request = server.send(Sums({"V": 5.0 * V, "curvature": np.full(2, 5.0), "loss": np.float64(0)}, 5))
    assert request.task == "assign"
    np.testing.assert_array_equal(request.values["components"], V > 0.5)


def test_uploads_are_on_a_grid_so_that_no_order_of_clients_shows():
    rng, algorithm = np.random.default_rng(0), felb(30, 3)
    request = Request(LOCAL_FACTOR, t=0, V=rng.random((3, 30)).astype(np.float32))
    parts = []
    for rows in (5, 40, 17):
        shard = BinaryMatrix.of(rng.random((rows, 30)) < 0.3)
        _, update = compute_update(algorithm, None, shard, request, name="a", seed=0)
        parts.append(Release(update.values))
    for name in ("V", "loss"):
        sums = {Sums.of(order)[name].tobytes() for order in (parts, parts[::-1], [parts[1], parts[2], parts[0]])}
        assert len(sums) == 1
