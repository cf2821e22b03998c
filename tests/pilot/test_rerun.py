"""A rerun names its parent, and changes one variable."""

import pytest
from conftest import JOBS, Pilot, check

pytestmark = pytest.mark.slow

SMALL = JOBS / "small"


@pytest.fixture(scope="module")
def parent(tmp_path_factory, shared_pilot):
    code, _, errors = shared_pilot.run(SMALL, "--gate", "0")
    assert code == 0, errors
    return shared_pilot.folder()


def test_one_variable_may_change(pilot, parent):
    code, sheet, errors = pilot.run(SMALL, "--gate", "0", "--parent", parent, "--set", "job.seed=3")
    assert code == 0, errors
    rule = check(sheet, "dec.one-variable")
    assert rule["verdict"] == "pass" and list(rule["measured"]["changed"]) == ["job.seed"]
    assert sheet["fields"]["parent"] == str(parent)


def test_two_are_refused_before_anything_runs(pilot, parent):
    code, document, _ = pilot.run(
        SMALL, "--gate", "0", "--parent", parent, "--set", "job.seed=3", "--set", "job.steps=9"
    )
    assert code == 3 and "changes 2: job.seed, job.steps" in document["error"]["message"]
    assert not pilot.out.exists()


def test_a_finished_run_is_not_overwritten(parent):
    code, document, _ = Pilot(parent).run(SMALL, "--gate", "0")
    assert code == 3 and "nothing is overwritten" in document["error"]["message"]


def test_parent_must_be_a_run(pilot, tmp_path):
    code, document, _ = pilot.run(SMALL, "--parent", tmp_path)
    assert code == 3 and "cannot be read" in document["error"]["message"]
