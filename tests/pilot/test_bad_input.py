"""Whatever is wrong ends with a clear sentence, the right exit code, and the evidence kept."""

import json
import os
import shutil
import signal
import sys
import time

import pytest
from conftest import JOBS, check

SMALL = JOBS / "small"


@pytest.fixture
def job(tmp_path):
    folder = tmp_path / "job"
    shutil.copytree(SMALL, folder)
    return folder


def refused(pilot, job, *words, more=()):
    code, document, errors = pilot.run(job, *more)
    assert code == 3, errors
    for word in words:
        assert word in errors, errors
        assert word in document["error"]["message"]
    return errors


def test_malformed_pilot_file(pilot, job):
    (job / "pilot.toml").write_text("[pilot]\nowner = \n")
    refused(pilot, job, "pilot.toml:2:", "owner = ")


def test_unknown_key(pilot, job):
    (job / "pilot.toml").write_text("[candidate]\ndevise = 'cpu'\n")
    refused(pilot, job, "unknown key `devise`", "did you mean `device`?", "pilot.toml:2:1")


def test_wrong_set(pilot, job):
    refused(pilot, job, "whole number", more=("--set", "job.steps=many"))


def test_missing_folder(pilot, tmp_path):
    refused(pilot, tmp_path / "nowhere", "does not exist")


def test_folder_without_a_job(pilot, tmp_path):
    refused(pilot, tmp_path, "no pilot.toml and no job.py")


def test_job_without_model(pilot):
    refused(pilot, JOBS / "no_model", "model")


def test_job_with_a_syntax_error(pilot):
    refused(pilot, JOBS / "syntax_error", "SyntaxError")


def test_job_that_raises_shows_its_own_lines_only(pilot):
    errors = refused(
        pilot, JOBS / "raises", "ValueError", "labels are not one-hot", "job.py:15", "check_labels(labels)"
    )
    assert "worker.py" not in errors and "site-packages" not in errors
    assert (pilot.folder() / "reference" / "events.jsonl").exists()


def test_unknown_fault(pilot):
    refused(pilot, SMALL, "drop-gradient", more=("--inject", "drop-gradiant"))


def test_missing_interpreter(pilot):
    refused(pilot, SMALL, "/no/such/python", more=("--set", "candidate.python=/no/such/python"))


def test_batch_that_changes_between_calls(pilot):
    refused(pilot, JOBS / "impure_batch", "batch(0) gives another batch when it is called again")


@pytest.mark.slow
def test_batch_that_changes_between_processes(pilot):
    code, sheet, _ = pilot.run(JOBS / "impure_process")
    assert code == 1 and check(sheet, "par.inputs-equal")["verdict"] == "stop"
    assert "batch(step) gives another batch" in check(sheet, "par.inputs-equal")["why"]
    assert check(sheet, "par.noise-floor")["verdict"] == "not-judged"


@pytest.mark.slow
@pytest.mark.parametrize("job", ["clock", "unseeded"])
def test_a_job_that_does_not_repeat_itself_is_no_pass(pilot, job):
    code, sheet, _ = pilot.run(JOBS / job)
    floor = check(sheet, "par.noise-floor")
    assert code != 0 and floor["verdict"] == "not-judged" and "does not repeat itself from step 0" in floor["why"]


@pytest.mark.slow
def test_nan_loss_is_no_pass(pilot):
    code, sheet, _ = pilot.run(JOBS / "nan_loss")
    assert code == 2 and sheet["verdict"] == "not-judged"
    assert "NaN" in check(sheet, "par.drift")["why"]
    assert check(sheet, "par.nonfinite")["verdict"] == "pass"


def test_missing_device(pilot):
    code, sheet, _ = pilot.run(SMALL, device="xla")
    assert code == 1
    assert check(sheet, "env.backend-proof")["verdict"] == "stop"
    assert "`xla` is not available" in check(sheet, "env.backend-proof")["why"]
    assert not any(entry["id"].startswith("par.") for entry in sheet["checks"]), "gate 1 must not run after a stop"


def cut(path):
    path.write_bytes(path.read_bytes()[:-7])


def flip(path):
    data = bytearray(path.read_bytes())
    data[-3] ^= 1
    path.write_bytes(data)


@pytest.mark.slow
@pytest.mark.parametrize("damage", [cut, flip])
def test_damaged_evidence_is_not_judged(pilot, damage):
    code, _, _ = pilot.run(SMALL)
    assert code == 0
    folder = pilot.folder()
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["finished"] = False  # as if the run had been killed while it judged
    (folder / "manifest.json").write_text(json.dumps(manifest))
    damaged = next((folder / "candidate" / "tensors").glob("base.gradients.0*"))
    damage(damaged)
    code, sheet, _ = pilot.run(SMALL)
    assert pilot.folder() == folder, "the same run goes on"
    assert code == 2 and sheet["verdict"] == "not-judged"
    judged = check(sheet, "par.gradients")
    assert judged["verdict"] == "not-judged" and damaged.name in judged["why"]
    assert check(sheet, "par.next-step")["verdict"] == "pass"


def wait_for(condition, seconds=60):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.02)
    return False


def workers(pilot):
    """Process ids of task.start events, newest last."""
    found = []
    for path in pilot.out.glob("*/events.jsonl"):
        *lines, _ = path.read_text().split("\n")  # the last may be half written
        for event in map(json.loads, lines):
            if event["event"] == "task.start":
                found.append((event["task"], event["pid"]))
    return found


def started(pilot, task):
    return [pid for name, pid in workers(pilot) if name == task]


@pytest.mark.slow
def test_interrupted_run_goes_on(pilot):
    arguments = pilot.run_arguments(SMALL)
    process = pilot.start(*arguments)
    assert wait_for(lambda: started(pilot, "base"))
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=30)
    assert process.returncode == 2 and "the same command goes on" in errors
    for _, pid in workers(pilot):
        assert not os.path.exists(f"/proc/{pid}") or open(f"/proc/{pid}/stat").read().split()[2] == "Z"
    folder = pilot.folder()
    assert json.loads((folder / "manifest.json").read_text())["finished"] is False
    before = started(pilot, "environment")
    code, sheet, errors = pilot.run(SMALL)
    assert code == 0, errors
    assert pilot.folder() == folder and started(pilot, "environment") == before, "ended tasks are not repeated"


@pytest.mark.slow
def test_killed_worker_is_named_and_the_run_goes_on(pilot):
    process = pilot.start(*pilot.run_arguments(SMALL))
    assert wait_for(lambda: started(pilot, "base"))
    os.kill(started(pilot, "base")[0], signal.SIGKILL)
    out, errors = process.communicate(timeout=120)
    assert process.returncode in (2, 3), errors
    assert "signal 9" in errors + out
    code, _, errors = pilot.run(SMALL)
    assert code == 0, errors


@pytest.mark.slow
def test_hung_worker_is_stopped(pilot, job):
    (job / "job.py").write_text(
        (job / "job.py").read_text().replace("def batch(step):", "def batch(step):\n    import time; time.sleep(60)")
    )
    started_at = time.monotonic()
    code, document, errors = pilot.run(job, "--set", "pilot.step_timeout=4")
    assert code in (2, 3) and time.monotonic() - started_at < 50
    assert "no progress" in errors or "no progress" in json.dumps(document)


def test_python_of_the_tests_is_used(pilot):
    _, sheet, _ = pilot.run(SMALL, "--gate", "0")
    measured = check(sheet, "env.isolated")["measured"]
    assert measured["executable"]["candidate"] == sys.executable
