"""What the recommended setting of FELB and FELB-MU guarantees: results follow the data, not its size or its split."""

import numpy as np
import pytest

import felb
from felb.data import BinaryMatrix, partition, planted
from felb.engines import local
from felb.federated.aggregate import curvature_mean
from felb.federated.algorithms.felb import LOCAL_FACTOR, felb_mu
from felb.federated.algorithms.felb import felb as felb_algorithm
from felb.federated.protocol import CLIENT_STREAM, random_stream
from felb.kernels import WEIGHTED_BITS
from felb.kernels.passes import whole_multiples
from felb.metrics import confusion
from felb.optim.palm import Objective, Point, palm_step
from felb.optim.steps import Lipschitz, Multiplicative
from felb.sklearn.base import draw_seed

# Short runs stop before the components are Boolean.
pytestmark = pytest.mark.filterwarnings("ignore::felb.errors.ConvergenceWarning")

METHODS = pytest.mark.parametrize("method", [felb.FELB, felb.FELBMU])
RULES = pytest.mark.parametrize("rule", [Lipschitz(), Multiplicative()], ids=lambda rule: rule.name)

SMALL = planted(200, 40, 4, noise=0.05, seed=1)  # of seeds 0, 1 and 2, the one that takes a hundred rounds
PARTS = [SMALL.A.rows(0, 50), SMALL.A.rows(50, 120), SMALL.A.rows(120, 200)]
LARGER = planted(600, 80, 5, noise=0.05, seed=0)


# -- size ----------------------------------------------------------------------------------------------------------


@METHODS
def test_repeated_rows_change_nothing(method):
    once = method(4, random_state=0).fit(PARTS)
    assert once.converged_
    for times in (2, 4):
        again = method(4, random_state=0).fit([BinaryMatrix.vstack([part] * times) for part in PARTS])
        np.testing.assert_allclose(again.relaxed_components_, once.relaxed_components_, atol=3e-4)
        np.testing.assert_array_equal(again.components_, once.components_)
        assert again.n_iter_ == once.n_iter_
        np.testing.assert_allclose(again.history_["loss"], times * once.history_["loss"], rtol=1e-4)


def test_absolute_weights_do_depend_on_repeated_rows():
    """The test above is sharp enough to see weights that do not grow with the data."""
    absolute = felb.FelbSetting(units="absolute", l2=0.1, proximity=1.0)
    fits = [
        felb.FELB(4, setting=absolute, random_state=0, max_iter=10).fit(
            [BinaryMatrix.vstack([part] * times) for part in PARTS]
        )
        for times in (1, 4)
    ]
    assert np.abs(fits[0].relaxed_components_ - fits[1].relaxed_components_).max() > 0.01


# -- entries at zero -----------------------------------------------------------------------------------------------


def test_an_entry_that_was_zero_can_be_found():
    """Multiplicative steps alone keep a zero for ever; FELB-MU raises entries before each of them."""
    data = planted(300, 40, 3, noise=0.0, density=1.0, seed=2)
    V = data.V.astype(np.float32)
    lost = np.ascontiguousarray(np.where(np.arange(40) < 20, V, 0).T)
    gaps = {}
    for floor in (0.0, 0.001):
        point = Point.start(data.U.astype(np.float32), lost)
        for _ in range(40):
            rule = Multiplicative(floor=floor)
            point, _ = palm_step(data.A, point, Objective(kappa=0.0, relative=True), rule=rule, lam=0.0)
        gaps[floor] = float(np.abs(point.Vt.T - V)[:, 20:].max())
    assert gaps[0.0] == 1.0
    assert gaps[0.001] < 0.5, "where components overlap, their entries are smaller"


# -- split ---------------------------------------------------------------------------------------------------------


@METHODS
def test_two_clients_with_the_same_rows_are_one(method):
    one = method(4, random_state=0).fit(SMALL.A)
    two = method(4, random_state=0).fit([SMALL.A, SMALL.A])
    np.testing.assert_array_equal(two.components_, one.components_)
    np.testing.assert_allclose(two.relaxed_components_, one.relaxed_components_, atol=1e-4)


@METHODS
def test_how_rows_are_split_does_not_decide_what_is_found(method):
    splits = [partition.even(600, 1)]
    for clients in (5, 20):
        splits += [
            partition.even(600, clients),
            partition.uneven(600, clients, concentration=0.5),
            partition.by_component(LARGER.U, clients),
        ]
    found = []
    for groups in splits:
        model = method(5, random_state=0)
        U = model.fit_transform(LARGER.A, groups=groups)
        found.append(confusion(LARGER.signal, U, model.components_).f1)
    assert min(found) >= 0.97
    assert max(found) - min(found) <= 0.02


@METHODS
def test_the_order_of_clients_does_not_show_in_a_single_bit(method):
    parts = [LARGER.A.take(np.flatnonzero(c == partition.uneven(600, 7))) for c in range(7)]
    first = method(5, random_state=0, max_iter=15).fit(parts)
    for order in ([6, 5, 4, 3, 2, 1, 0], [3, 1, 6, 0, 2, 5, 4]):
        other = method(5, random_state=0, max_iter=15).fit([parts[c] for c in order])
        np.testing.assert_array_equal(other.relaxed_components_, first.relaxed_components_)
        np.testing.assert_array_equal(other.components_, first.components_)


def test_uploads_are_whole_numbers():
    sent = {}

    def watch(name):
        return lambda record: sent.setdefault(record.task, {}).setdefault(record.what, record)

    local.run(felb_algorithm(40, 4, max_rounds=2), dict(zip("abc", PARTS, strict=True)), seed=0, outbound=watch)
    assert {what: (record.dtype, record.shape) for what, record in sent[LOCAL_FACTOR].items()} == {
        "V": ("int64", (4, 40)),
        "curvature": ("int64", (4,)),
        "loss": ("float64", ()),
    }


# -- start ---------------------------------------------------------------------------------------------------------


def first_shared(algorithm, shards, *, seed):
    """Return the V̂ with which the local steps begin, and the rounds before them."""
    asked = []
    local.run(algorithm, shards, seed=seed, on_round=lambda now: asked.append(now.request))
    first = next(request for request in asked if request is not None and request.task == LOCAL_FACTOR)
    return first.values["V"], first.round


@pytest.mark.parametrize("algorithm", [felb_algorithm, felb_mu])
def test_the_start_is_the_same_for_any_split(algorithm):
    rng = np.random.default_rng(0)
    splits = [np.zeros(200, int), np.arange(200) % 2, partition.uneven(200, 9), partition.by_component(SMALL.U, 20)]
    starts = []
    for groups in splits:
        order = rng.permutation(200)
        A, groups = SMALL.A.take(order), groups[order]
        shards = {f"client-{c}": A.take(np.flatnonzero(groups == c)) for c in np.unique(groups)}
        V, rounds = first_shared(algorithm(40, 4, max_rounds=1), shards, seed=3)
        assert rounds == 4
        starts.append(V)
    assert starts[0].any()
    assert not np.array_equal(starts[0], first_shared(algorithm(40, 4, max_rounds=1), {"a": SMALL.A}, seed=4)[0])
    for V in starts[1:]:
        np.testing.assert_array_equal(V, starts[0])


# -- local steps ---------------------------------------------------------------------------------------------------


def a_point(dtype, k=4):
    rng = np.random.default_rng(0)
    return Point(*(rng.random((n, k)).astype(dtype) for n in (200, 40, 200, 40))), rng.random((40, k)).astype(dtype)


@RULES
@pytest.mark.parametrize("relative", [True, False])
@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float32, 1e-5), (np.float64, 1e-12)])
def test_blocks_of_one_step_are_the_alternating_step(rule, relative, dtype, tolerance):
    point, target = a_point(dtype)
    objective = Objective(kappa=0.01, gamma=0.7, relative=relative)
    options = {"rule": rule, "lam": 0.4, "beta": 0.05, "target": target}
    block, of_block = palm_step(SMALL.A, point, objective, steps=1, **options)
    step, of_step = palm_step(SMALL.A, point, objective, **options)
    for name in ("U", "Vt", "U_before", "Vt_before"):
        assert getattr(block, name).dtype == dtype
        np.testing.assert_allclose(getattr(block, name), getattr(step, name), rtol=tolerance, atol=tolerance)
    for a, b in zip(of_block, of_step, strict=True):
        np.testing.assert_allclose(a, b, rtol=10 * tolerance)


def prox(x, kappa, lam):
    """Eq. elb_prox for one number."""
    return (x - kappa * np.sign(x)) / (1 + lam) if x <= 0.5 else (x - kappa * np.sign(x - 1) + lam) / (1 + lam)


def slow_factor(X, before, ones, other, *, multiplicative, weights, beta, steps, target=None, upper=1.0):
    """Steps of the rows of X for ‖ones − X otherᵀ‖² with `other` held, number by number; X and the X before."""
    (n, k), m = X.shape, len(other)
    kappa, lam, gamma = weights
    gram = np.zeros((k, k))
    for a in range(k):
        for b in range(k):
            gram[a, b] = sum(other[j, a] * other[j, b] for j in range(m))
    curvature = sum(gram[a, a] for a in range(k)) / k
    kappa, lam = curvature * kappa, curvature * lam
    constant = np.sqrt(sum(gram[a, b] ** 2 for a in range(k) for b in range(k)))
    size = 2 * (1 - beta) / ((1 + 2 * beta) * constant) if beta else 1 / (1.1 * constant)
    for _ in range(steps):
        new = np.empty_like(X)
        for r in range(n):
            x = [X[r, c] + beta * (X[r, c] - before[r, c]) for c in range(k)]
            if multiplicative:
                x = [max(value, 0.0) for value in x]
            for c in range(k):
                product = sum(x[d] * gram[d, c] for d in range(k))
                eta = x[c] / max(product, 1e-12) if multiplicative else size
                gathered = sum(ones[r, j] * other[j, c] for j in range(m))
                # x − η(product − gathered); of a multiplicative step x and η product cancel.
                moved = eta * gathered if multiplicative else x[c] - eta * (product - gathered)
                value = min(max(prox(moved, eta * kappa, eta * lam), 0.0), upper)
                if target is not None:
                    pull = eta * gamma * np.sqrt(gram[c, c] * curvature)
                    value = (value + pull * target[r, c]) / (1 + pull)
                new[r, c] = value
        X, before = new, X
    return X, before


@RULES
@pytest.mark.parametrize("beta", [0.0, 0.05])
def test_blocks_are_the_formulas_written_out(rule, beta):
    A, steps, weights = SMALL.A.rows(0, 12), 3, (0.002, 0.05, 0.3)
    rng = np.random.default_rng(5)
    U, Vt, U0, Vt0, target = (rng.random((n, 3)) for n in (12, 40, 12, 40, 40))
    ones = A.toarray().astype(float)
    slow = {"multiplicative": rule.name == "multiplicative", "weights": weights, "beta": beta, "steps": steps}
    U_slow, U_before = slow_factor(U, U0, ones, Vt, **slow)
    V_slow, V_before = slow_factor(Vt, Vt0, ones.T, U_slow, target=target, **slow)

    kappa, lam, gamma = weights
    objective = Objective(kappa=kappa, gamma=gamma, relative=True)
    options = {"rule": rule, "lam": lam, "steps": steps, "beta": beta}
    point, statistics = palm_step(A, Point(U, Vt, U0, Vt0), objective, target=target, **options)
    np.testing.assert_allclose(point.U, U_slow, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(point.Vt, V_slow, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(point.U_before, U_before, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(point.Vt_before, V_before, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(statistics.AtU, ones.T @ U_slow, rtol=1e-9)
    np.testing.assert_allclose(statistics.UtU, U_slow.T @ U_slow, rtol=1e-9)

    narrow = Point(*(X.astype(np.float32) for X in (U, Vt, U0, Vt0)))
    narrow, _ = palm_step(A, narrow, objective, target=target.astype(np.float32), **options)
    np.testing.assert_allclose(narrow.U, U_slow, atol=1e-4)
    np.testing.assert_allclose(narrow.Vt, V_slow, atol=1e-4)


# -- server --------------------------------------------------------------------------------------------------------


def test_the_curvature_mean_minimises_the_weighted_distance():
    rng = np.random.default_rng(0)
    s, V = rng.random((5, 3)) * np.array([1.0, 100.0, 1e-3]), rng.random((5, 3, 7))
    s[1, 0] = 0.0
    found = curvature_mean((s[:, :, None] * V).sum(axis=0), s.sum(axis=0), otherwise=np.full((3, 7), np.nan))
    for component in range(3):
        # √s_il V_l = √s_il V_il for all clients i, in the sense of least squares
        root = np.sqrt(s[:, component, None])
        best, *_ = np.linalg.lstsq(root, root * V[:, component], rcond=None)
        np.testing.assert_allclose(found[component], best[0], rtol=1e-10)

    def distance(W):
        return (s[:, :, None] * (W - V) ** 2).sum()

    least = distance(found)
    for _ in range(200):
        assert distance(found + 1e-3 * rng.standard_normal((3, 7))) > least


def test_the_grid_rounds_by_half_a_unit_at_most():
    values = np.random.default_rng(0).random((4, 9)) * 1e6
    assert whole_multiples(values).dtype == np.int64
    np.testing.assert_allclose(
        whole_multiples(values) / 2.0**WEIGHTED_BITS, values, rtol=0, atol=2.0 ** -(WEIGHTED_BITS + 1)
    )
    np.testing.assert_array_equal(whole_multiples(np.array([0.0, 1.0, 3.0])), np.array([0, 1, 3]) << WEIGHTED_BITS)


# -- the paper's algorithm, word for word --------------------------------------------------------------------------


def algorithm_1(
    parts, k, *, rounds, seed, multiplicative, kappa=0.001, lam=0.1, rate=1.05, gamma=1.0, beta=0.001, b=10
):
    """Alg. 1 in dense float64, every client from its own start; V̂ after each round and the summed loss."""
    parts = [part.toarray().astype(float) for part in parts]

    def elb(x, kappa, lam):
        return np.where(x <= 0.5, x - kappa * np.sign(x), x - kappa * np.sign(x - 1) + lam) / (1 + lam)

    def step(X, before, ones, gram, lam, shared=None):
        Y = X + beta * (X - before)
        if multiplicative:
            Y = np.maximum(Y, 0)
        if multiplicative:
            eta = Y / np.maximum(Y @ gram, 1e-12)
            moved = eta * ones
        else:
            eta = 2 * (1 - beta) / ((1 + 2 * beta) * np.linalg.norm(gram))
            moved = Y - eta * (Y @ gram - ones)
        Y = np.maximum(elb(moved, eta * kappa, eta * lam), 0)
        return Y if shared is None else (Y + eta * gamma * shared) / (1 + eta * gamma)

    names = [str(label) for label in range(len(parts))]
    clients = []
    for name, A in zip(names, parts, strict=True):
        rng = random_stream(seed, CLIENT_STREAM, 0, name)
        U = rng.random((len(A), k))
        clients.append((U, U, rng.random((A.shape[1], k))))
    shared, shared_before, history, losses = None, None, [], []
    for t in range(rounds):
        sent, loss = [], 0.0
        for i, A in enumerate(parts):
            U, U_before, own = clients[i]
            V = own if shared is None else shared
            V_before = V if shared_before is None else shared_before
            for local_step in range(b):
                weight = lam * rate ** (t * b + local_step)
                U, U_before = step(U, U_before, A @ V, V.T @ V, weight), U
                V, V_before = step(V, V_before, A.T @ U, U.T @ U, weight, shared), V
            clients[i] = U, U_before, own
            sent.append(V)
            loss += ((A - U @ V.T) ** 2).sum()
        shared_before = shared
        shared = np.maximum(elb(np.mean(sent, axis=0), kappa, lam * rate ** (t * b + b - 1)), 0)
        history.append(shared.T)
        losses.append(loss)
    return history, losses


@METHODS
@pytest.mark.parametrize("clients", [1, 3])
def test_the_literal_setting_is_algorithm_1(method, clients):
    data = planted(60, 24, 4, noise=0.05, seed=5)
    groups = partition.even(60, clients)
    model = method(4, setting="literal", random_state=0, max_iter=5, tol=0.0, dtype="float64").fit(
        data.A, groups=groups
    )
    parts = [data.A.take(np.flatnonzero(groups == c)) for c in range(clients)]
    seed = draw_seed(model.random_state)
    history, losses = algorithm_1(parts, 4, rounds=5, seed=seed, multiplicative=method is felb.FELBMU)
    np.testing.assert_allclose(model.relaxed_components_, history[-1], rtol=1e-7, atol=1e-9)
    np.testing.assert_allclose(model.history_["loss"], losses, rtol=1e-7)
    assert model.n_iter_ == 5


@pytest.mark.parametrize(
    ("method", "clients", "total", "loss", "ones"),
    [
        (felb.FELB, 1, 16.69463208075116, 73.45552072747225, 15),
        (felb.FELB, 3, 14.077630323768338, 59.14784942869697, 13),
        (felb.FELBMU, 1, 21.845935488537297, 73.08574870969979, 21),
        (felb.FELBMU, 3, 13.258744445064309, 57.54168376658952, 12),
    ],
)
def test_the_literal_setting_is_what_it_was(method, clients, total, loss, ones):
    """Numbers from before uploads were rounded to multiples of 2⁻³²."""
    data = planted(60, 24, 4, noise=0.05, seed=5)
    for dtype, tolerance in (("float32", 1e-5), ("float64", 1e-7)):
        model = method(4, setting="literal", random_state=0, max_iter=5, dtype=dtype)
        model.fit(data.A, groups=partition.even(60, clients))
        assert model.relaxed_components_.sum() == pytest.approx(total, rel=tolerance)
        assert model.history_["loss"][-1] == pytest.approx(loss, rel=tolerance)
        assert model.components_.sum() == ones
