"""Releases as vectors of whole numbers, and runs that are added up by secure sums."""

import subprocess
import sys
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from declarations import algorithm_with
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from felb.data import planted
from felb.data.partition import split
from felb.engines.local import InProcess, run
from felb.errors import FederationError, InputError
from felb.federated.gate import Gate, Responses, client_gate
from felb.federated.loop import play
from felb.federated.protocol import Participation, Release, Request, Sums, Update
from felb.federated.tasks import Output, TaskSpec
from felb.kernels import UPLOAD_BITS
from felb.kernels.passes import on_grid
from felb.privacy import Privacy
from felb.secure_sum.releases import MaskedSums, as_vector, from_vector, read_bits
from felb.sklearn.methods import make_federated

DATA = planted(120, 20, 3, noise=0.05, seed=1)
SHARDS = split(DATA.A, np.arange(120) % 5)[0]

ALIKE = defaultdict(lambda: UPLOAD_BITS)
"""The bits of every array."""

arrays = st.one_of(
    hnp.arrays(np.int64, hnp.array_shapes(min_dims=0, max_dims=3, min_side=0), elements=st.integers(-(2**50), 2**50)),
    hnp.arrays(np.bool_, hnp.array_shapes(max_dims=2)),
    hnp.arrays(np.float64, hnp.array_shapes(max_dims=2), elements=st.floats(-(2**19), 2**19)).map(on_grid),
    hnp.arrays(np.float32, hnp.array_shapes(max_dims=2), elements=st.floats(0, 1, width=32)).map(on_grid),
)


@given(st.dictionaries(st.sampled_from(["V", "counts", "gains"]), arrays), st.integers(1, 4))
def test_the_sum_of_vectors_is_the_sum_of_releases_bit_for_bit(values, clients):
    plain = Sums.of([Release(values)] * clients)
    vector, layout = as_vector(values, ALIKE, sites=50)
    found = from_vector(vector * clients, layout)
    assert found.keys() == plain.keys()
    for name, value in plain.items():
        np.testing.assert_array_equal(found[name], value)
        assert (found[name].dtype, found[name].shape) == (value.dtype, value.shape)


def test_layouts_do_not_depend_on_the_values():
    one, other = (as_vector({"V": np.full((2, 3), x), "n": np.int64(7)}, ALIKE, sites=3)[1] for x in (0.5, 1e3))
    assert one == other


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"V": np.array([0.1])}, "no multiple"),
        ({"V": np.array([2.0**30])}, "leaves the range"),
        ({"n": np.array([2**62])}, "leaves the range"),
        ({"n": np.array([-(2**63)])}, "leaves the range"),
    ],
)
def test_what_would_not_add_up_exactly_is_refused(values, message):
    with pytest.raises(FederationError, match=message):
        as_vector(values, ALIKE, sites=3)


def test_large_losses_and_scaled_factors_fit():
    V = np.zeros((3, 20))
    felb_bits = read_bits(algorithm(), Request("local_factor", t=0, V=V))
    scaffold = Request("scaffold", V=V, t=0, kappa=0.0, lam=0.0, steps=1, control=V)
    scaffold_bits = read_bits(algorithm("scaffold"), scaffold)
    assert (felb_bits["loss"], scaffold_bits["V"], scaffold_bits["loss"]) == (20, 24, 20)
    as_vector({"loss": np.array(2.0**36)}, felb_bits, sites=50)
    as_vector({"V": np.array(2.0**29)}, scaffold_bits, sites=50)


@pytest.mark.parametrize(
    "layout", [b"", b"[]", b'[["V","f",[2],32],["V","f",[1],32]]', b'[["V","x",[3]]]', b'[["V","i",[-3]]]']
)
def test_a_layout_that_does_not_fit_is_refused(layout):
    with pytest.raises(FederationError, match="layout"):
        from_vector(np.zeros(3, np.int64), layout)


# -- runs ------------------------------------------------------------------------------------------------------------


def algorithm(name="felb", **parameters):
    return make_federated(name, n_components=3, **({"max_iter": 3} | parameters)).algorithm(20)


def test_dropouts_cost_nothing_and_the_history_names_them():
    played = Participation(dropout=0.4)
    masked = run(algorithm(), SHARDS, seed=1, participation=played, secure=True)
    plain = run(algorithm(), SHARDS, seed=1, participation=Participation(dropout=0.4, quorum=4))
    assert list(masked.history) == list(plain.history)
    assert any(row.get("missing") for row in masked.history)
    assert min(row["clients"] for row in masked.history) >= 4
    np.testing.assert_array_equal(masked.outcome.components, plain.outcome.components)


@pytest.mark.parametrize("step", ["keys", "shares", "masked input", "consistency", "unmask"])
def test_a_reply_that_is_lost_at_any_step_leaves_the_run_as_it_was(step):
    """With three clients none may be missing, so that a lost reply repeats the round, once."""
    three = dict(list(SHARDS.items())[:3])
    played = algorithm()
    add_up, lost = MaskedSums.simulated(three, played), []

    def courier(trip, name, deliver):
        reply = deliver()
        if trip.step == step and not lost:
            lost.append(name)
            return None
        return reply

    add_up.interfere = courier
    found = play(played, transport(played, three, add_up), seed=1)
    plain = run(played, three, seed=1)
    assert lost
    assert list(found.history) == list(plain.history)
    np.testing.assert_array_equal(found.outcome.components, plain.outcome.components)


def transport(played, shards, add_up):
    gates = {name: Gate(name, lambda _: None) for name in shards}
    return InProcess(played, shards, gates, pool=ThreadPoolExecutor(1), seed=1, add_up=add_up)


def test_a_site_that_is_gone_for_good_is_missing_from_then_on():
    played = algorithm()
    add_up = MaskedSums.simulated(SHARDS, played)
    seen = []

    def courier(trip, name, deliver):
        seen.append(trip.step)
        return None if name == "3" and len(seen) > 30 else deliver()

    add_up.interfere = courier
    found = play(played, transport(played, SHARDS, add_up), seed=1)
    missing = [row.get("missing", []) for row in found.history]
    assert missing[0] == []
    assert missing[-1] == ["3"]
    assert found.history[-1]["clients"] == 4


def test_a_sum_that_lost_too_many_sites_ends_the_run():
    count = TaskSpec("count", "counting", lambda work: (None, Update({"n": np.int64(1)})), outputs={"n": Output("i")})
    add_up = MaskedSums.simulated(SHARDS, algorithm_with(count))
    releases = {name: Release({"n": np.int64(1)}) for name in list(SHARDS)[:3]}
    with pytest.raises(FederationError, match="nothing was learned"):
        add_up(releases, Request("count"), list(SHARDS)[3:])


def test_a_client_that_joins_later_enters_the_sums_from_then_on():
    played = Participation(joins={"3": 4})
    masked, plain = (run(algorithm(), SHARDS, seed=1, participation=played, secure=secure) for secure in (True, False))
    assert list(masked.history) == list(plain.history)
    assert [row["clients"] for row in masked.history][3:5] == [4, 5]
    np.testing.assert_array_equal(masked.outcome.components, plain.outcome.components)


@pytest.mark.parametrize("participation", [Participation(fraction=0.5), Participation(joins={"3": 2, "4": 1})])
def test_sampled_clients_and_more_late_ones_than_may_be_missing_are_refused(participation):
    with pytest.raises(InputError, match="all clients") as raised:
        run(algorithm(), SHARDS, participation=participation, secure=True)
    assert raised.value.parameter == "secure"


@pytest.mark.parametrize("count", [1, 2])
def test_two_clients_are_too_few(count):
    with pytest.raises(InputError, match="3 to 50"):
        run(algorithm(), dict(list(SHARDS.items())[:count]), secure=True)


@pytest.mark.parametrize("package", ["cryptography", "Crypto"])
def test_without_the_extra_the_error_names_it(package):
    code = (
        f"import sys; sys.modules[{package!r}] = None\n"
        "import felb, numpy as np\n"
        "A = np.eye(9, dtype=bool)\n"
        "try:\n    felb.FELB(2, max_iter=1, secure=True).fit(A, groups=np.arange(9) % 3)\n"
        "except felb.errors.MissingExtraError as error:\n    print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "felb[secure]" in done.stdout


# -- distributed noise -----------------------------------------------------------------------------------------------


def test_a_charge_stays_after_a_failed_round_and_the_repeated_one_costs_nothing():
    pytest.importorskip("dp_accounting")
    pytest.importorskip("opendp")
    privacy = Privacy(1.0, 1e-5, noise="distributed", mechanism="statistics", rounds=1)
    model = make_federated("bmf", n_components=3, privacy=privacy, effort="fast")
    private = model.algorithm_for(SHARDS)
    kept = {name: Responses(private.privacy.accountant()) for name in SHARDS}
    gates = {
        name: client_gate(name, private, lambda _: None, responses=kept.__getitem__, secure=True) for name in SHARDS
    }
    add_up = MaskedSums.simulated(SHARDS, private, dropouts=0)
    add_up.interfere = lambda trip, _, deliver: None if trip.step == "unmask" else deliver()
    with ThreadPoolExecutor(1) as pool:
        asked = InProcess(private, SHARDS, gates, pool=pool, seed=1, add_up=add_up)
        with pytest.raises(FederationError, match="nothing was learned"):
            play(private, asked, seed=1)
        assert {len(responses.accountant.entries) for responses in kept.values()} == {1}
        asked = InProcess(private, SHARDS, gates, pool=pool, seed=1, add_up=MaskedSums.simulated(SHARDS, private))
        assert play(private, asked, seed=1) is not None
    assert {len(responses.accountant.entries) for responses in kept.values()} == {1}
