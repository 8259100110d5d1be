"""Enrichment of labels, and rules, against plain counts."""

import numpy as np
import pytest
from scipy.stats import fisher_exact

import felb
from felb.data import BinaryMatrix
from felb.metrics.interpretation import component_rules, enrichment

RNG = np.random.default_rng(0)
LABELS = RNG.choice(["cat", "dog", "cow"], 90)
U = np.column_stack([(LABELS == "cat") ^ (RNG.random(90) < 0.1), RNG.random(90) < 0.3])


def test_tables_and_p_values_are_those_of_counting():
    found = enrichment(U, LABELS)
    assert found.labels == ("cat", "cow", "dog")
    for i in range(2):
        for j, label in enumerate(found.labels):
            has = label == LABELS
            table = [[(U[:, i] & has).sum(), (U[:, i] & ~has).sum()], [(~U[:, i] & has).sum(), (~U[:, i] & ~has).sum()]]
            np.testing.assert_array_equal(found.tables[i, j], table)
            assert found.p_values[i, j] == pytest.approx(fisher_exact(table)[1])
    assert found.log_odds[0, 0] > 2
    assert found.q_values[0, 0] < 1e-6
    assert found.q_values[1].min() > 1e-3


def test_q_values_are_those_of_benjamini_and_hochberg():
    found = enrichment(U, LABELS)
    p, q = found.p_values.ravel(), found.q_values.ravel()
    for value, adjusted in zip(p, q, strict=True):
        bounds = [other * len(p) / (p <= other).sum() for other in p if other >= value]
        assert adjusted == pytest.approx(min(1.0, *bounds, 1.0))


def test_counts_of_clients_add_up_and_records_without_a_label_are_left_out():
    total = enrichment(U[:50], LABELS[:50]) + enrichment(U[50:], LABELS[50:])
    np.testing.assert_array_equal(total.tables, enrichment(U, LABELS).tables)
    some = LABELS.astype(object)
    some[:30] = None
    np.testing.assert_array_equal(enrichment(U, some).tables, enrichment(U[30:], LABELS[30:]).tables)


def test_large_tables_are_tested_by_chi_square_with_much_the_same_p_value():
    labels = np.repeat(["a", "b"], 60_000)
    members = (np.arange(120_000) % 2 == 0) ^ ((np.arange(120_000) % 400 == 0) & (labels == "a"))
    found = enrichment(members[:, None], labels)
    assert found.p_values[0, 0] == pytest.approx(fisher_exact(found.tables[0, 0])[1], rel=0.2)


def test_wrong_labels_are_refused():
    with pytest.raises(felb.InputError, match="label per record"):
        enrichment(U, LABELS[1:])
    with pytest.raises(felb.InputError, match="label"):
        enrichment(U, [None] * 90)
    with pytest.raises(felb.InputError, match="groups of records"):
        enrichment(np.ones((300, 1), bool), np.arange(300))


def test_rules_are_those_of_counting():
    A = RNG.random((200, 6)) < 0.4
    A[:80, :4] = True
    V = np.array([[1, 1, 1, 1, 0, 0], [0, 0, 0, 0, 0, 0], [0, 0, 0, 0, 1, 0]], bool)
    names = list("abcdef")
    rules = component_rules(BinaryMatrix.of(A), V, names, max_antecedent=2)
    assert len(rules) == 4
    assert {rule.component for rule in rules} == {0}
    for rule in rules:
        having = A[:, [names.index(name) for name in rule.antecedent]].all(axis=1)
        target = A[:, names.index(rule.consequent)]
        assert len(rule.antecedent) == 2
        assert rule.support == pytest.approx((having & target).mean())
        assert rule.confidence == pytest.approx(target[having].mean())
        assert rule.lift == pytest.approx(target[having].mean() / target.mean())
    assert [rule.lift for rule in rules] == sorted((rule.lift for rule in rules), reverse=True)
