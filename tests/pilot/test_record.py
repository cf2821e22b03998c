"""The old environment is recorded by itself, elsewhere, and judged here: the same verdict as in one run."""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import sysconfig
import venv

import pytest
from conftest import JOBS, check

pytestmark = pytest.mark.slow

SMALL = JOBS / "small"
# The borrowed torch still sees tpupilot's entry point in its metadata, which a real old environment does not have.
BORROWED = {**os.environ, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}


@pytest.fixture(scope="module")
def recorded(shared_pilot):
    done = shared_pilot.call("record", SMALL, "--out", shared_pilot.out, "--json")
    assert done.returncode == 0, done.stderr
    return pathlib.Path(json.loads(done.stdout)["folder"])


def judge(pilot, evidence, *more):
    return pilot.run(SMALL, "--set", f"reference.evidence={evidence}", *more)


def verdicts(sheet):
    return {c["id"]: c["verdict"] for c in sheet["checks"]}


def test_a_recording_that_was_copied_is_judged_as_the_run_itself(pilot, recorded, tmp_path):
    elsewhere = tmp_path / "copied"
    shutil.copytree(recorded, elsewhere)
    code, sheet, errors = judge(pilot, elsewhere)
    assert (code, sheet["verdict"]) == (0, "pass"), errors
    assert "on this machine" in check(sheet, "ckpt.portable")["why"]
    manifest = json.loads((pilot.folder() / "manifest.json").read_text())
    assert manifest["evidence"]["folder"] == str(elsewhere)
    straight = type(pilot)(tmp_path / "straight")
    code, whole, errors = straight.run(SMALL)
    assert code == 0 and verdicts(whole) == verdicts(sheet), errors


def test_a_fault_is_caught_against_a_recording(pilot, recorded):
    code, sheet, _ = judge(pilot, recorded, "--inject", "drop-gradient")
    assert code == 1 and check(sheet, "par.gradients")["verdict"] == "stop"
    assert check(sheet, "par.first-divergence")["verdict"] != "not-judged"  # the recording holds a module trace


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        (["--set", "job.seed=7"], "recorded with job.seed = 0, here it is 7"),
        (["--set", "reference.device=cuda"], "reference.device"),
    ],
)
def test_a_recording_of_other_settings_is_refused(pilot, recorded, settings, text):
    done = pilot.call(*pilot.run_arguments(SMALL, "--set", f"reference.evidence={recorded}", *settings))
    assert done.returncode == 3 and text in done.stderr


def test_a_damaged_recording_is_not_judged(pilot, recorded, tmp_path):
    elsewhere = tmp_path / "copied"
    shutil.copytree(recorded, elsewhere)
    victim = next((elsewhere / "reference" / "tensors").glob("base.state.*"))
    data = bytearray(victim.read_bytes())
    data[-1] ^= 1
    victim.write_bytes(data)
    done = pilot.call(*pilot.run_arguments(SMALL, "--set", f"reference.evidence={elsewhere}"))
    assert done.returncode == 2 and victim.name in done.stderr and "record it again" in done.stderr


def test_no_recording(pilot, tmp_path):
    done = pilot.call(*pilot.run_arguments(SMALL, "--set", f"reference.evidence={tmp_path}"))
    assert done.returncode == 3 and "tpupilot record" in done.stderr


@pytest.fixture(scope="module")
def old_environment(tmp_path_factory):
    """An interpreter of its own with this torch and without tpupilot."""
    folder = tmp_path_factory.mktemp("old") / "venv"
    venv.create(folder, with_pip=False)
    site = pathlib.Path(sysconfig.get_path("purelib", "venv", {"base": folder, "installed_base": folder}))
    (site / "borrowed.pth").write_text(sysconfig.get_path("purelib") + "\n")  # .pth files in there are not followed
    python = folder / "bin" / "python"
    probe = "import importlib.util as u, torch; print(torch.__version__, u.find_spec('tpupilot'))"
    done = subprocess.run([python, "-c", probe], capture_output=True, text=True, env=BORROWED)
    assert done.stdout.split()[1:] == ["None"], done.stdout + done.stderr
    return python


def test_the_second_environment_is_the_reference(pilot, old_environment):
    code, sheet, errors = pilot.run(SMALL, "--set", f"reference.python={old_environment}")
    assert (code, sheet["verdict"]) == (0, "pass"), errors
    assert check(sheet, "env.isolated")["verdict"] == "pass"


def test_the_one_file_records_where_nothing_is_installed(pilot, old_environment, tmp_path):
    recorder, folder = tmp_path / "recorder.py", tmp_path / "evidence"
    done = pilot.call("worker", SMALL, "--export", recorder)
    assert done.returncode == 0 and "--record" in done.stderr
    command = [old_environment, recorder, "--record", SMALL / "job.py", "--out", folder]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=BORROWED)
    assert done.returncode == 0, done.stderr
    code, sheet, errors = judge(pilot, folder)
    assert (code, sheet["verdict"]) == (0, "pass"), errors
    again = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=BORROWED)
    assert again.returncode == 2 and "nothing is overwritten" in again.stderr


def test_the_bare_worker_says_what_it_lacks(tmp_path, pilot):
    recorder = tmp_path / "recorder.py"
    pilot.call("worker", "--export", recorder)
    done = subprocess.run([sys.executable, recorder, "--record", "x.py", "--out", "y"], capture_output=True, text=True)
    assert done.returncode == 2 and "holds no plan" in done.stderr
