"""The clean job passes as a rehearsal on the CPU; each injected fault ends at the check that should catch it."""

import json
import subprocess
import sys

import pytest
from conftest import JOBS, check

pytestmark = pytest.mark.slow

SMALL = JOBS / "small"


@pytest.fixture(scope="module")
def clean(shared_pilot):
    code, sheet, errors = shared_pilot.run(SMALL)
    return code, sheet, errors, shared_pilot.folder()


def test_clean_job_passes(clean):
    code, sheet, errors, _ = clean
    not_good = {c["id"]: c["why"] for c in sheet["checks"] if c["must"] and c["verdict"] in ("stop", "not-judged")}
    assert set(not_good) <= {"dec.targets"}, errors
    assert (code, sheet["verdict"], sheet["passed_gates"]) == (0, "pass", [0, 1])


def test_a_rehearsal_is_never_ready(clean, shared_pilot):
    _, sheet, _, folder = clean
    assert sheet["ready"] is False and sheet["rehearsal"] is True
    assert "REHEARSAL PASS" in shared_pilot.call("report", folder).stdout
    assert check(sheet, "par.placement")["verdict"] == "not-applicable"
    assert any(entry["id"] == "cmp.throughput" for entry in sheet["not_tested"])


def test_every_field_is_there(clean):
    _, sheet, _, _ = clean
    assert check(sheet, "dec.sheet")["verdict"] == "pass"
    for name in ("torch", "weights_sha256", "thresholds_sha256", "mfu", "command", "not_tested"):
        assert sheet["fields"][name] is not None
    assert sheet["fields"]["mfu"].startswith("unknown: ")


def test_the_judge_saw_the_job(clean):
    _, sheet, _, _ = clean
    measured = check(sheet, "par.self-test")["measured"]
    assert measured["known_good"] and measured["worker_fault"]["caught"]
    assert all(fault["caught"] for fault in measured["faults"])
    assert check(sheet, "par.gradients")["measured"]["tensors"] == 6
    assert check(sheet, "ckpt.crash")["measured"]["killed_in_save"] > 0


def test_run_folder_holds_everything(clean):
    _, sheet, _, folder = clean
    manifest = json.loads((folder / "manifest.json").read_text())
    assert manifest["finished"] is True
    for name in ("sheet.json", "report.html", "worker.py", "reference/lock.json"):
        assert (folder / name).is_file(), name
    assert set(sheet["files"]) >= {"reference/events.jsonl", "candidate/events.jsonl"}
    for check_ in sheet["checks"]:
        for name in check_["evidence"]:
            assert (folder / name).exists(), name


@pytest.mark.parametrize(
    ("fault", "caught_by"),
    [
        ("drop-gradient", "par.gradients"),
        ("swap-labels", "par.loss"),
        ("lose-optimizer-state", "ckpt.resume"),
        ("lose-rng-state", "ckpt.resume"),
        ("skip-update", "par.updates"),
        ("bfloat16", "par.forward"),
        ("nan-gradient", "par.gradients"),
        ("stale-data", "ckpt.resume"),
        ("device-tag", "ckpt.portable"),
        ("scale-weight", "par.next-step"),  # a batch norm hides it from the outputs
    ],
)
def test_injected_fault_is_caught(pilot, fault, caught_by):
    code, sheet, _ = pilot.run(SMALL, "--inject", fault)
    assert check(sheet, caught_by)["verdict"] == "stop", check(sheet, caught_by)["why"]
    assert code == 1 and sheet["verdict"] == "stop" and sheet["injected"] == fault


def test_a_divergence_is_named_and_can_be_run_again(pilot):
    _, sheet, _ = pilot.run(SMALL, "--inject", "scale-weight")
    located = check(sheet, "par.first-divergence")
    assert located["verdict"] == "pass" and located["measured"]["module"] == "0", located["why"]
    repro = pilot.folder() / "isolate" / "repro.py"
    done = subprocess.run([sys.executable, repro, "cpu"], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr  # the weights of the reference: no fault in this copy
    assert "0 on cpu, output 0" in done.stdout and "agrees" in done.stdout
    assert "recorded by the candidate: 0\n" not in done.stdout


def test_autocast_is_judged_by_its_own_rule(pilot):
    code, sheet, errors = pilot.run(SMALL, "--set", "reference.autocast=bfloat16")
    assert (code, sheet["verdict"]) == (0, "pass"), errors
    measured = check(sheet, "par.self-test")["measured"]
    assert all(fault["caught"] for fault in measured["faults"])
    assert measured["smallest_seen"]["factor"] > 1.01  # what bf16 cannot see is not seen, and said


def test_gate_zero_only(pilot):
    code, sheet, _ = pilot.run(SMALL, "--gate", "0")
    assert code == 0 and sheet["asked_gates"] == [0]
    assert not any(entry["id"].startswith("par.") for entry in sheet["checks"])
    assert any(entry["id"] == "par.loss" and "not asked" in entry["why"] for entry in sheet["not_tested"])
