"""Settings for all tests."""

import os
import sys
from pathlib import Path

import pytest
from hypothesis import settings

ROOT = Path(__file__).parent

# What several folders of tests use.
sys.path[:0] = [
    str(ROOT / "packages" / name) for name in ("felb/tests/helpers", "felb/tests/contracts", "felb-sites/tests/helpers")
]

pytest_plugins = ["command_line"]

# No test asserts how long something takes, and the same examples are tried everywhere.
settings.register_profile("felb", deadline=None, derandomize=True)
settings.load_profile("felb")

LONG = (
    "tests/test_docs.py",
    "packages/felb/tests/contracts/test_transport_contract.py",
    "packages/felb/tests/contracts/test_algorithm_contract.py",
    "tests/test_site.py",
    "packages/felb/tests/contracts/test_extend_page.py",
    "packages/felb/tests/engines/test_dask.py",
    "packages/felb-paper/tests/test_study_runner.py",
    "packages/felb/tests/kernels/test_passes.py",
    "packages/felb/tests/report/test_report_browser.py",
    "packages/felb/tests/contracts/test_secure_sum_contract.py",
    "packages/felb/tests/fingerprints/test_fingerprints.py",
    "packages/felb/tests/kernels/test_passes_elsewhere.py",
    "tests/test_demo.py",
    "packages/felb/tests/contracts/test_estimator_contract.py",
    "packages/felb/tests/federated/test_felb_scale.py",
    "packages/felb/tests/estimators/test_unknown_cells.py",
    "packages/felb/tests/federated/test_phases_pipeline.py",
    "packages/felb/tests/estimators/test_federated_bmf.py",
    "packages/felb/tests/runs/test_comparison.py",
    "packages/felb/tests/engines/test_dask_faults.py",
    "packages/felb/tests/runs/test_run_signals.py",
    "packages/felb-paper/tests/cli/test_cli_experiment.py",
)
"""Files that take long, the longest first: several workers end at the same time if they begin with them."""

REPEATED = (
    "packages/felb/tests/contracts/test_algorithm_contract.py::test_a_client_may_join_late",
    "packages/felb/tests/contracts/test_algorithm_contract.py::test_a_finished_run",
    "packages/felb/tests/contracts/test_algorithm_contract.py::test_a_masked_run",
    "packages/felb/tests/contracts/test_algorithm_contract.py::test_a_run_that_is_interrupted",
    "packages/felb/tests/contracts/test_algorithm_contract.py::test_a_seed",
    "packages/felb/tests/contracts/test_algorithm_contract.py::test_clients_may_drop_out",
    "packages/felb/tests/contracts/test_algorithm_contract.py::test_the_order",
    "packages/felb/tests/contracts/test_algorithm_contract.py::test_the_threads",
    "packages/felb/tests/contracts/test_estimator_contract.py::test_scikit_learn",
    "packages/felb/tests/contracts/test_extend_page.py::test_",
    "packages/felb/tests/contracts/test_feature_names_contract.py::test_names_are_kept",
    "packages/felb/tests/contracts/test_secure_sum_contract.py::test_the_sum_is_exact",
    "packages/felb/tests/contracts/test_transport_contract.py::test_a_seed",
    "packages/felb/tests/contracts/test_transport_contract.py::test_an_interrupted_run",
    "packages/felb/tests/contracts/test_transport_contract.py::test_shuffled",
    "packages/felb/tests/estimators/test_federated_bmf.py::test_fifty",
    "packages/felb/tests/estimators/test_unknown_cells.py::test_centralized_and_fifty",
    "packages/felb/tests/federated/test_felb_scale.py::test_how_rows",
    "packages/felb/tests/federated/test_felb_scale.py::test_the_order",
    "packages/felb/tests/federated/test_phases_belief.py::test_resuming",
    "packages/felb/tests/federated/test_phases_pipeline.py::test_ended",
    "packages/felb/tests/federated/test_phases_pipeline.py::test_no_split",
    "packages/felb/tests/federated/test_phases_pipeline.py::test_resuming",
    "packages/felb/tests/fuzz/test_fuzz.py::test_mutants",
    "packages/felb/tests/runs/test_resume.py::test_a_centralized_fit",
    "packages/felb/tests/runs/test_resume.py::test_an_interruption_amid",
    "packages/felb/tests/runs/test_resume.py::test_the_result_is_exactly",
    "packages/felb/tests/test_safe_files_kills.py::test_",
    "tests/test_demo.py::test_",
    "tests/test_docs.py::test_a_tutorial",
    "tests/test_docs.py::test_commands",
    "tests/test_docs.py::test_python",
    "tests/test_site.py::test_",
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
    names = {item: item.path.relative_to(ROOT).as_posix() + item.nodeid[item.nodeid.index("::") :] for item in items}
    places = {name: place for place, name in enumerate(LONG)}
    items.sort(key=lambda item: places.get(names[item].partition("::")[0], len(LONG)))
    for item in items:
        if names[item].startswith(REPEATED):
            item.add_marker(pytest.mark.no_cover)
