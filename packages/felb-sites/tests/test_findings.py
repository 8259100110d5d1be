"""Every finding of the audit has a test that plays it, and one that shows that it would succeed without its guard."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import pytest

import finding_attacks as attacks

PACKAGES = Path(__file__).parents[2]
PLACES = ("felb-sites/tests", "felb/tests/federated", "felb/tests/privacy", "felb/tests/runs")
PLAYED = {
    "C1": (attacks.c1_a_command_of_one_site_reaches_another, attacks.without_the_list_of_topics),
    "C2": (attacks.c2_a_server_reads_a_file_of_a_site, attacks.without_the_list_of_topics),
    "C4": (attacks.c4_a_count_is_read_off_noise_that_has_saturated, attacks.with_noise_of_any_width),
    "C5": (attacks.c5_failures_cost_nothing_and_have_no_end, attacks.with_failures_for_nothing),
    "H1": (attacks.h1_two_jobs_of_one_run_spend_its_budget_each, attacks.with_a_book_for_each_job),
    "H2": (attacks.h2_a_cell_of_the_data_is_in_a_reply, attacks.with_reasons_in_full),
    "H3": (attacks.h3_a_variable_is_filled_into_the_settings_of_a_job, attacks.without_the_list_of_topics),
    "H4": (attacks.h4_a_chosen_question_counts_the_rows_with_some_items, attacks.with_any_request),
    "H5": (attacks.h5_a_passive_server_gets_the_products_of_a_site_s_columns, attacks.with_exact_runs_of_any_size),
    "M4": (attacks.m4_a_site_poisons_the_sum, attacks.with_any_response),
    "M6": (attacks.m6_a_request_searches_without_end, attacks.with_any_request),
    "L2": (attacks.l2_a_result_that_is_passed_on_tells_the_data_from_other_data, attacks.with_all_facts_in_the_result),
    "L3": (attacks.l3_guarantees_of_different_kinds_are_added_up, attacks.with_one_kind_of_guarantee),
}
"""Attack, and what removes the guard against it."""
ELSEWHERE = {
    "C3": "test_c3_without_the_guard_the_same_request_obtains_a_lead_administrator",
    "M1": "test_m1_neighbours_are_not_told_apart_by_delta_and_sigma",
    "M2": "test_m2_without_the_guard_a_lost_folder_resets_the_accountant",
    "M3": "test_m3_noise_is_not_shared_with_more_sites_than_a_site_believes_in",
    "M5": "test_m5_without_the_guard_a_revoked_site_is_heard",
    "M7": "test_m7_exact_runs_do_not_follow_private_ones_unless_the_policy_says_so",
    "L1": "test_l1_at_the_finest_noise_discrete_and_continuous_cost_the_same",
}
"""Tests that remove the guard by themselves."""
FINDINGS = [f"{kind}{i}" for kind, most in (("C", 5), ("H", 5), ("M", 7), ("L", 3)) for i in range(1, most + 1)]


@pytest.mark.parametrize("finding", PLAYED)
def test_the_attack_of_a_finding_fails(finding, tmp_path):
    attack, _ = PLAYED[finding]
    assert not attack(tmp_path)


@pytest.mark.parametrize("finding", PLAYED)
def test_without_its_guard_the_attack_of_a_finding_succeeds(finding, tmp_path, monkeypatch):
    attack, remove = PLAYED[finding]
    remove(monkeypatch)
    assert attack(tmp_path)


@cache
def sources():
    """Return the source of every test by its name."""
    found = {}
    for path in (path for place in PLACES for path in (PACKAGES / place).glob("test_*.py")):
        text = path.read_text(encoding="utf-8")
        for node in ast.parse(text).body:
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                found[node.name] = ast.get_source_segment(text, node)
    return found


@pytest.mark.parametrize("finding", FINDINGS)
def test_every_finding_has_a_test_of_its_name_and_one_without_its_guard(finding):
    named = [name for name in sources() if finding.lower() in name.split("_")]
    assert named
    if finding in PLAYED:
        assert PLAYED[finding][0].__name__.startswith(f"{finding.lower()}_")
    else:
        assert "monkeypatch" in sources()[ELSEWHERE[finding]], "it removes the guard"
    assert (finding in PLAYED) != (finding in ELSEWHERE)
