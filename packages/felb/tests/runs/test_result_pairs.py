"""Two results side by side."""

import numpy as np
import pytest
from results import changed as with_changes

from felb import Job, fit
from felb.cli import main
from felb.errors import InputError
from felb.runs.apply import pair_components


@pytest.fixture(scope="module")
def result(tmp_path_factory):
    return fit(Job("zoo", "grecond", 4), tmp_path_factory.mktemp("runs") / "zoo")


def test_a_result_is_paired_with_itself_in_any_order_of_components_and_columns(result):
    order, columns = [2, 0, 3, 1], np.random.default_rng(0).permutation(17)
    shuffled = with_changes(
        result,
        components=result.components[order][:, columns],
        supports=result.outcome.supports[order],
        columns=tuple(result.columns[j] for j in columns),
    )
    pairs = pair_components(result, shuffled)
    assert [pair.jaccard for pair in pairs] == [1.0] * 4
    for pair in pairs:
        assert order[pair.second.number] == pair.first.number
        assert set(pair.shared) == set(pair.first.features) == set(pair.second.features)
        assert pair.only_first == pair.only_second == ()


def test_what_has_no_match_is_left_over_on_its_side(result):
    fewer = with_changes(result, components=result.components[:2], supports=result.outcome.supports[:2])
    pairs = pair_components(result, fewer)
    assert [pair.second is None for pair in pairs] == [False, False, True, True]
    assert [pair.first is None for pair in pair_components(fewer, result)] == [False, False, True, True]


def test_differences_are_named(result):
    changed = result.components.copy()
    added, removed = np.flatnonzero(~changed[0])[0], np.flatnonzero(changed[0])[0]
    changed[0, [added, removed]] = [True, False]
    [pair] = [
        p for p in pair_components(result, with_changes(result, components=changed)) if p.first and p.first.number == 0
    ]
    size = int(result.components[0].sum())
    assert pair.jaccard == (size - 1) / (size + 1)
    assert pair.only_first == (result.columns[removed],)
    assert pair.only_second == (result.columns[added],)


def test_results_without_a_common_feature_are_refused(result):
    with pytest.raises(InputError, match="in common"):
        pair_components(result, with_changes(result, columns=tuple(f"other {j}" for j in range(17))))
    narrow = with_changes(result, components=result.components[:, :5], columns=None)
    with pytest.raises(InputError, match="17 and 5 features"):
        pair_components(with_changes(result, columns=None), narrow)


def test_the_command_shows_both(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for method in ("grecond", "asso"):
        fit(Job("zoo", method, 3), method)
    with pytest.raises(SystemExit, match="0"):
        main(["show", "grecond", "asso"])
    out = capsys.readouterr().out
    assert "A: grecond" in out
    assert "B: asso" in out
    assert "only B" in out
    with pytest.raises(SystemExit, match="1"):
        main(["show", "grecond", "missing"])
    assert "there is no folder 'missing'" in capsys.readouterr().err
