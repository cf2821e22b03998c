"""What a TPU's own precision, and the release that the job will run on, would make of a job."""

import json

import pytest
from conftest import JOBS, ROOT, check

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def autoload(pilot):
    del pilot.environment["TORCH_DEVICE_BACKEND_AUTOLOAD"]


def error(found, setting, part):
    return found["measured"]["settings"][setting][part]["relative_error"]


def test_three_settings_fall_in_order_on_chargpt_and_its_ops_are_on_the_target(pilot):
    code, sheet, errors = pilot.run(ROOT / "examples" / "chargpt", "--set", "job.steps=3", device="tpu")
    assert code == 0, errors
    found = check(sheet, "par.tpu-precision")
    assert found["verdict"] == "pass" and found["must"], found["why"]
    for part in ("loss", "gradients"):
        one, three, six = (error(found, setting, part) for setting in ("medium", "high", "highest"))
        # The loss is one f32 number: three and six passes may round to the same.
        assert one > three >= six and (three > six or part == "loss"), (part, one, three, six)
    assert 1e-4 < error(found, "medium", "gradients") < 1e-1
    assert found["measured"]["candidate"]["gradients"]["relative_error"] < 1e-5
    assert "one pass" in found["why"] and found["measured"]["job_asks"] == "highest"
    path = check(sheet, "inv.op-path")
    assert path["verdict"] == "pass", path["why"]
    rows = {row["op"]: row for row in path["measured"]["path"]}
    assert rows["aten::addmm"]["here"] in ("native", "derived") and rows["aten::addmm"]["target"] in (
        "registered",
        "core",
    )
    assert all(row["count"] > 0 and row["target"] != "absent" for row in rows.values())


def test_a_rule_stops_a_job_that_one_pass_spoils(pilot):
    code, sheet, _ = pilot.run(
        JOBS / "small", "--set", "job.steps=3", "--set", "parity.max_tpu_error=1e-5", device="tpu"
    )
    found = check(sheet, "par.tpu-precision")
    assert code == 1 and found["verdict"] == "stop", found["why"]
    assert "set_float32_matmul_precision" in found["why"] and "max_tpu_error" in found["why"]


def test_numerics_tpu_is_what_the_candidate_runs_at(pilot):
    code, sheet, errors = pilot.run(
        JOBS / "small", "--set", "job.steps=3", "--set", "candidate.numerics=tpu", device="tpu"
    )
    found = check(sheet, "par.tpu-precision")
    as_run = found["measured"]["candidate"]["gradients"]["relative_error"]
    assert as_run == pytest.approx(error(found, "medium", "gradients"), rel=1e-3), found["why"]
    assert sheet["fields"]["thresholds"]["autocast"] == "bfloat16"
    assert check(sheet, "env.smoke")["measured"]["max_abs_difference"] > 1e-3
    assert code in (0, 1), errors


def test_numerics_tpu_wants_the_device(pilot):
    done = pilot.call("run", JOBS / "small", "--set", "candidate.device=cpu", "--set", "candidate.numerics=tpu")
    assert done.returncode == 3 and "candidate.device" in done.stderr, done.stderr


def test_an_op_that_only_this_backend_has_stops_the_rehearsal(pilot, tmp_path):
    job = tmp_path / "job"
    job.mkdir()
    source = (JOBS / "small" / "job.py").read_text()
    (job / "job.py").write_text(
        source + "\n\n_loss = loss\n\n\ndef loss(model, batch):\n"
        "    result = _loss(model, batch)\n"
        "    value, extras = result if isinstance(result, tuple) else (result, {})\n"
        "    return torch.nn.functional.huber_loss(value, torch.zeros_like(value)), extras\n"
    )
    code, sheet, errors = pilot.run(job, "--set", "job.steps=3", device="tpu")
    path = check(sheet, "inv.op-path")
    assert code == 1 and sheet["verdict"] == "stop" and path["verdict"] == "stop", errors
    assert path["why"].startswith("will fail on torch_tpu 0.2.0: aten::huber_loss"), path["why"]
    assert sheet["summary"].startswith("inv.op-path: will fail on torch_tpu 0.2.0"), sheet["summary"]
    assert sheet["passed_gates"] == [0, 1] and not sheet["ready"]
    assert check(sheet, "par.loss")["verdict"] == "pass"
    other = type(pilot)(tmp_path / "none")
    other.environment = pilot.environment
    code, sheet, errors = other.run(job, "--set", "job.steps=3", "--set", "candidate.profile=none", device="tpu")
    assert code == 0 and check(sheet, "inv.op-path")["verdict"] == "pass", json.dumps(check(sheet, "inv.op-path"))
