"""Attacks fail, and each of them would succeed without the guard against it."""

from __future__ import annotations

import pytest

import attacks

PLAYED = {
    attacks.a_command_of_one_site_reaches_another: attacks.without_the_list_of_topics,
    attacks.a_server_reads_a_file_of_a_site: attacks.without_the_list_of_topics,
    attacks.a_count_is_read_off_noise_that_has_saturated: attacks.with_noise_of_any_width,
    attacks.failures_cost_nothing_and_have_no_end: attacks.with_failures_for_nothing,
    attacks.two_jobs_of_one_run_spend_its_budget_each: attacks.with_a_book_for_each_job,
    attacks.a_cell_of_the_data_is_in_a_reply: attacks.with_reasons_in_full,
    attacks.a_variable_is_filled_into_the_settings_of_a_job: attacks.without_the_list_of_topics,
    attacks.a_chosen_question_counts_the_rows_with_some_items: attacks.with_any_request,
    attacks.a_passive_server_gets_the_products_of_a_site_s_columns: attacks.with_exact_runs_of_any_size,
    attacks.a_site_poisons_the_sum: attacks.with_any_response,
    attacks.a_request_searches_without_end: attacks.with_any_request,
    attacks.a_result_that_is_passed_on_tells_the_data_from_other_data: attacks.with_all_facts_in_the_result,
    attacks.guarantees_of_different_kinds_are_added_up: attacks.with_one_kind_of_guarantee,
}
"""Attack, and what removes the guard against it."""


@pytest.fixture(params=PLAYED, ids=lambda attack: attack.__name__)
def attack(request):
    return request.param


def test_an_attack_fails(attack, tmp_path):
    assert not attack(tmp_path)


def test_an_attack_succeeds_without_the_guard_against_it(attack, tmp_path, monkeypatch):
    PLAYED[attack](monkeypatch)
    assert attack(tmp_path)
