"""Jobs that have no optimizer, a checkpoint format of their own, or custom operators: what they do not have is not
applicable, what they get wrong is caught by the check that names it."""

import subprocess
import sys

import pytest
from conftest import JOBS, check

pytestmark = pytest.mark.slow


def changed(tmp_path, name, *changes):
    """A copy of a job with texts replaced."""
    text = (JOBS / name / "job.py").read_text()
    for old, new in changes:
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    folder = tmp_path / name
    folder.mkdir()
    (folder / "job.py").write_text(text)
    return folder


def verdicts(sheet, *names):
    return {name: check(sheet, name)["verdict"] for name in names}


def on_the_device(pilot):
    del pilot.environment["TORCH_DEVICE_BACKEND_AUTOLOAD"]
    return {"device": "tpu"}


# ---- no optimizer ----


def test_an_inference_job_is_judged_by_its_outputs(pilot):
    code, sheet, errors = pilot.run(JOBS / "inference", "--set", "job.steps=4", **on_the_device(pilot))
    assert (code, sheet["verdict"]) == (0, "pass"), errors
    absent = ("par.loss", "par.gradients", "par.next-step", "par.updates", "par.drift", "ckpt.resume", "ckpt.crash")
    for name in absent:
        assert check(sheet, name)["verdict"] == "not-applicable" and "inference job" in check(sheet, name)["why"]
    present = ("par.forward", "par.nonfinite", "par.dtype", "par.placement", "par.self-test", "ckpt.portable")
    assert set(verdicts(sheet, *present, "par.noise-floor", "ckpt.round-trip", "ckpt.known-good").values()) == {"pass"}
    names = {row["name"] for row in sheet["tensors"] if row["kind"] == "forward"}
    assert {"forward/answer/logits", "forward/answer/count", "forward/pair/1/0", "output/0"} <= names
    trial = check(sheet, "par.self-test")["measured"]
    assert trial["worker_fault"] == {
        "fault": "scale-weight",
        "caught": True,
        "tensors": trial["worker_fault"]["tensors"],
    }
    assert {fault["fault"] for fault in trial["faults"]} == {"output scaled by 1.01", "outputs in another order"}
    assert all(fault["caught"] for fault in trial["faults"]) and sheet["fields"]["dtype"] == ["float32"]


def test_an_inference_job_that_differs_stops(pilot):
    code, sheet, _ = pilot.run(JOBS / "inference", "--set", "job.steps=4", "--inject", "scale-weight")
    assert code == 1 and check(sheet, "par.forward")["verdict"] == "stop"
    assert check(sheet, "par.first-divergence")["measured"]["module"] == "0"
    repro = pilot.folder() / "isolate" / "repro.py"
    done = subprocess.run([sys.executable, repro, "cpu"], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0 and "agrees" in done.stdout, done.stdout + done.stderr


def test_a_whole_step_without_optimizer(pilot):
    code, sheet, errors = pilot.run(JOBS / "by_hand", "--set", "job.steps=4")
    assert (code, sheet["verdict"]) == (0, "pass"), errors
    assert check(sheet, "par.gradients")["verdict"] == "not-applicable"
    assert "no optimizer" in check(sheet, "par.gradients")["why"]
    judged = ("par.loss", "par.next-step", "par.updates", "par.drift", "par.self-test", "ckpt.resume", "ckpt.crash")
    assert set(verdicts(sheet, *judged).values()) == {"pass"}
    assert check(sheet, "par.updates")["measured"]["candidate"] == 4
    assert set(verdicts(sheet, "op.common", "op.boundary").values()) == {"not-applicable"}
    assert sheet["fields"]["custom_ops"].startswith("none")


# ---- a checkpoint format of the job's own ----


def test_the_jobs_own_format_is_what_resumes(pilot):
    code, sheet, errors = pilot.run(JOBS / "own_format", "--set", "job.steps=4", **on_the_device(pilot))
    assert (code, sheet["verdict"]) == (0, "pass"), errors
    assert "own" in check(sheet, "ckpt.round-trip")["why"] and "own restore()" in check(sheet, "ckpt.resume")["why"]
    assert "own format" in check(sheet, "ckpt.portable")["why"]
    assert (pilot.folder() / "candidate/checkpoints/mid/own/checkpoint/optimizer.pt").is_file()
    assert "candidate/checkpoints/mid/own/checkpoint/optimizer.pt" in sheet["files"]


def test_what_restore_forgets_is_named(pilot, tmp_path):
    forgetful = changed(
        tmp_path, "own_format", ('"optimizer", "scheduler", "rng")\n    found', '"scheduler")\n    found')
    )
    code, sheet, _ = pilot.run(forgetful, "--set", "job.steps=4")
    assert code == 1
    for name in ("ckpt.resume", "ckpt.round-trip", "ckpt.portable"):
        stopped = check(sheet, name)
        assert stopped["verdict"] == "stop" and "optimizer" in stopped["why"], stopped["why"]
    assert "rng" in check(sheet, "ckpt.round-trip")["why"]


def test_a_format_that_only_the_device_can_read_is_not_portable(pilot, tmp_path):
    job = changed(tmp_path, "own_format", ('map_location="cpu", ', ""))
    code, sheet, _ = pilot.run(job, "--set", "job.steps=4", **on_the_device(pilot))
    portable = check(sheet, "ckpt.portable")
    assert code == 1 and portable["verdict"] == "stop" and "restore() raised on the reference" in portable["why"]
    assert check(sheet, "ckpt.resume")["verdict"] == "pass"


def test_a_restore_that_raises_stops(pilot, tmp_path):
    job = changed(tmp_path, "own_format", ("    names = (", '    raise OSError("not here")\n    names = ('))
    code, sheet, _ = pilot.run(job, "--set", "job.steps=4")
    resume = check(sheet, "ckpt.resume")
    assert code == 1 and resume["verdict"] == "stop" and "OSError in restore" in resume["why"], resume["why"]


# ---- custom operators ----


def run_operators(pilot, job):
    return pilot.run(job, "--set", "job.steps=2", **on_the_device(pilot))


def test_a_custom_operator_that_is_right(pilot):
    code, sheet, errors = run_operators(pilot, JOBS / "operators")
    assert (code, sheet["verdict"]) == (0, "pass"), errors
    assert verdicts(sheet, "op.common", "op.boundary") == {"op.common": "pass", "op.boundary": "pass"}
    opcheck = check(sheet, "op.common")["measured"]["opcheck"]
    assert opcheck["candidate"]["tests::swish"]["test_schema"] == "passed"
    assert check(sheet, "op.boundary")["measured"]["inputs"] == 23
    names = {row["name"] for row in sheet["tensors"] if row["kind"] == "operator"}
    assert {"tests::swish/common 0/gradient/1", "tests::swish/boundary sliced with an offset/out/0"} <= names
    assert sheet["fields"]["custom_ops"]["names"] == ["tests::swish", "pair"]


def test_custom_operators_that_are_wrong_on_the_device(pilot, tmp_path):
    faults = ["offset", "gradient", "empty", "raises", "no_kernel"]
    code, sheet, _ = run_operators(pilot, changed(tmp_path, "operators", ("FAULTS = []", f"FAULTS = {faults}")))
    common, boundary = check(sheet, "op.common"), check(sheet, "op.boundary")
    assert code == 1 and common["verdict"] == "stop" and boundary["verdict"] == "stop"
    text = "tests::no_kernel on the input `common 0` raises on the candidate only: NotImplementedError"
    assert text in common["why"] and "torch.library.custom_op" in common["why"], common["why"]
    found = {name.rsplit("/", 2)[0] for name in common["measured"]["stopped"]}
    assert found == {"tests::gradient/common 0"}
    stopped = common["measured"]["stopped"] + boundary["measured"]["stopped"]
    assert {"tests::offset/boundary sliced with an offset/out/0", "tests::gradient/common 0/gradient/0"} <= set(stopped)
    assert not any("swish" in name or "pair" in name for name in stopped)
    assert any("tests::empty/boundary empty/out/0 (float32[0,6]" in name for name in boundary["measured"]["unmatched"])
    raised = {(e["operator"], e["input"]) for e in boundary["measured"]["errors"] if e["operator"] == "tests::raises"}
    transposed = ("tests::raises", "boundary non-contiguous, transposed")
    assert raised == {transposed, ("tests::raises", "boundary non-contiguous, every second element")}
