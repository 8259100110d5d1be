"""Settings for all tests."""

import os
import sys
from pathlib import Path

import pytest
from hypothesis import settings

# What several folders of tests use.
sys.path.insert(0, str(Path(__file__).parent / "helpers"))

# No test asserts how long something takes, and the same examples are tried everywhere.
settings.register_profile("felb", deadline=None, derandomize=True)
settings.load_profile("felb")

LONG = (
    "test_docs.py",
    "contracts/test_transport_contract.py",
    "contracts/test_algorithm_contract.py",
    "test_site.py",
    "contracts/test_extend_page.py",
    "engines/test_dask.py",
    "paper/test_study_runner.py",
    "kernels/test_passes.py",
    "report/test_report_browser.py",
    "contracts/test_secure_sum_contract.py",
    "fingerprints/test_fingerprints.py",
    "kernels/test_passes_elsewhere.py",
    "test_demo.py",
    "contracts/test_estimator_contract.py",
    "federated/test_felb_scale.py",
    "estimators/test_unknown_cells.py",
    "federated/test_phases_pipeline.py",
    "estimators/test_federated_bmf.py",
    "runs/test_comparison.py",
    "engines/test_dask_faults.py",
    "runs/test_run_signals.py",
    "cli/test_cli_experiment.py",
)
"""Files that take long, the longest first: several workers end at the same time if they begin with them."""

REPEATED = (
    "contracts/test_algorithm_contract.py::test_a_client_may_join_late",
    "contracts/test_algorithm_contract.py::test_a_finished_run",
    "contracts/test_algorithm_contract.py::test_a_masked_run",
    "contracts/test_algorithm_contract.py::test_a_run_that_is_interrupted",
    "contracts/test_algorithm_contract.py::test_a_seed",
    "contracts/test_algorithm_contract.py::test_clients_may_drop_out",
    "contracts/test_algorithm_contract.py::test_the_order",
    "contracts/test_algorithm_contract.py::test_the_threads",
    "contracts/test_estimator_contract.py::test_scikit_learn",
    "contracts/test_extend_page.py::test_",
    "contracts/test_feature_names_contract.py::test_names_are_kept",
    "contracts/test_secure_sum_contract.py::test_the_sum_is_exact",
    "contracts/test_transport_contract.py::test_a_seed",
    "contracts/test_transport_contract.py::test_an_interrupted_run",
    "contracts/test_transport_contract.py::test_shuffled",
    "estimators/test_federated_bmf.py::test_fifty",
    "estimators/test_unknown_cells.py::test_centralized_and_fifty",
    "federated/test_felb_scale.py::test_how_rows",
    "federated/test_felb_scale.py::test_the_order",
    "federated/test_phases_belief.py::test_resuming",
    "federated/test_phases_pipeline.py::test_ended",
    "federated/test_phases_pipeline.py::test_no_split",
    "federated/test_phases_pipeline.py::test_resuming",
    "fuzz/test_fuzz.py::test_mutants",
    "runs/test_resume.py::test_a_centralized_fit",
    "runs/test_resume.py::test_an_interruption_amid",
    "runs/test_resume.py::test_the_result_is_exactly",
    "test_safe_files_kills.py::test_",
    "test_demo.py::test_",
    "test_docs.py::test_a_tutorial",
    "test_docs.py::test_commands",
    "test_docs.py::test_python",
    "test_site.py::test_",
)
"""Tests that compare many runs of the same code. Traced, they take twice as long and cover little more."""


@pytest.fixture(scope="session", autouse=True)
def no_waiting_for_the_disk():
    """What a process has written outlives it; only a machine that dies needs more, and none does here.

    Processes that a test starts wait, and `test_safe_files.py` asserts that `os.fsync` is called where it must be.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda _: None)
        yield


def pytest_collection_modifyitems(items):
    """Put long files first, and do not trace what is repeated; that can only lower the measured coverage."""
    root = Path(__file__).parent
    names = {item: item.nodeid.removeprefix(f"{root.name}/") for item in items}
    places = {name: place for place, name in enumerate(LONG)}
    items.sort(key=lambda item: places.get(names[item].partition("::")[0], len(LONG)))
    for item in items:
        if names[item].startswith(REPEATED):
            item.add_marker(pytest.mark.no_cover)
