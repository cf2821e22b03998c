"""The pilot against the device that this project brings, on the CPU plugin."""

import glob
import importlib.util
import json
import shutil

import pytest
from conftest import BINARY, JOBS, ROOT, check

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def autoload(pilot):
    del pilot.environment["TORCH_DEVICE_BACKEND_AUTOLOAD"]


@pytest.mark.parametrize(
    ("example", "settings"),
    [
        ("digits", []),
        ("chargpt", []),
        ("chargpt", ["--set", "reference.autocast=bfloat16"]),
        ("qwen3", []),
        ("gan", []),
        ("lstm", []),
    ],
    ids=["digits", "chargpt", "chargpt-bf16", "qwen3", "gan", "lstm"],
)
def test_examples_pass_as_rehearsals(pilot, example, settings):
    code, sheet, errors = pilot.run(ROOT / "examples" / example, *settings, device="tpu")
    not_good = {c["id"]: c["why"] for c in sheet["checks"] if c["must"] and c["verdict"] in ("stop", "not-judged")}
    assert set(not_good) <= {"dec.targets"}, not_good
    assert code == 0 and sheet["verdict"] == "pass" and sheet["rehearsal"] and not sheet["ready"], errors
    placement = check(sheet, "par.placement")
    assert placement["verdict"] == "pass" and placement["measured"]["ops_on_device"] > 50
    assert placement["measured"]["fallbacks"] == 0
    assert check(sheet, "env.backend-proof")["verdict"] == "pass"
    assert sheet["fields"]["plugin_sha256"] and len(sheet["tensors"]) > 20


def test_a_whole_step_job_with_every_kind_of_part(pilot):
    code, sheet, errors = pilot.run(JOBS / "whole", device="tpu")
    assert (code, sheet["verdict"]) == (0, "pass"), errors
    portable = check(sheet, "ckpt.portable")["measured"]
    assert portable["torch_file_parts"] == 7 and portable["torch_file"] == []


def test_an_op_without_a_row_is_named(pilot):
    code, sheet, _ = pilot.run(JOBS / "unsupported_op", device="tpu")
    assert code == 1 and sheet["verdict"] == "stop"
    forward = check(sheet, "par.forward")
    assert forward["verdict"] == "stop" and "elsewhere::bell" in forward["why"], forward["why"]
    assert "job.py:20" in forward["why"]
    assert check(sheet, "par.drift")["verdict"] == "not-judged"


def test_an_op_that_falls_back_is_no_pass(pilot):
    pilot.environment["TPUPILOT_FALLBACK"] = "warn"
    code, sheet, _ = pilot.run(JOBS / "unsupported_op", device="tpu")
    assert code == 1 and check(sheet, "env.settings")["verdict"] == "stop"  # gate 0 stops before it can hide anything


def test_a_fallback_that_the_job_itself_allows_is_caught(pilot):
    code, sheet, _ = pilot.run(JOBS / "falls_back", "--set", "job.steps=3", device="tpu")
    placement = check(sheet, "par.placement")
    assert code == 1 and placement["verdict"] == "stop", placement["why"]
    assert placement["measured"]["fallbacks"] > 0 or placement["measured"]["cpu_ops_on_device_data"], placement
    assert check(sheet, "par.loss")["verdict"] == "pass", "the numbers alone do not show it"


def test_a_step_that_leaves_the_device_is_caught(pilot):
    code, sheet, _ = pilot.run(JOBS / "leaves_the_device", "--set", "job.steps=3", device="tpu")
    placement = check(sheet, "par.placement")
    assert code == 1 and placement["verdict"] == "stop" and "ran on the CPU" in placement["why"], placement["why"]
    assert check(sheet, "par.loss")["verdict"] == "pass", "the numbers alone do not show it"


def test_a_device_tag_in_the_checkpoint_is_caught(pilot):
    code, sheet, errors = pilot.run(JOBS / "device_tag", "--set", "job.steps=3", device="tpu")
    portable = check(sheet, "ckpt.portable")
    assert code == 1 and portable["verdict"] == "stop", errors
    assert "does not load" in portable["why"] and "tpu" in portable["why"] and "job.py:" in portable["why"]
    assert check(sheet, "ckpt.resume")["verdict"] == "pass", "on the device itself all is well"
    portable_job = pilot.out.parent / "cpu"
    straight = type(pilot)(portable_job)
    code, sheet, errors = straight.run(JOBS / "device_tag", "--set", "job.steps=3")
    assert code == 0 and check(sheet, "ckpt.portable")["verdict"] == "pass", errors


def test_out_of_memory_on_the_device_is_a_stop_that_names_it(pilot):
    code, sheet, errors = pilot.run(JOBS / "too_large", "--set", "job.steps=4", device="tpu")
    assert code == 1 and sheet["verdict"] == "stop", errors
    for name in ("par.forward", "par.loss", "par.gradients"):
        why = check(sheet, name)["why"]
        assert check(sheet, name)["verdict"] == "stop" and "OutOfMemoryError" in why and "job.py:" in why, why
        assert "zero_" in why and "17592186044416 bytes" in why and "smaller batch" in why, why
    assert check(sheet, "par.noise-floor")["verdict"] == "pass"
    manifest = json.loads((pilot.out / "manifest.json").read_text())
    for name in ("reference/base", "reference/repeat", "candidate/until"):
        assert (name in manifest["tasks"]) == (name != "candidate/until"), "what was gained is kept"
    assert any(name.startswith("candidate/tensors/base.gradients.0") for name in sheet["files"]), sheet["files"]


def test_a_plugin_that_is_too_old_stops_gate_zero(pilot):
    pilot.environment["FAKE_PJRT_MINOR"] = "40"
    plugin = BINARY.parents[1] / "tests" / "fake_plugin.so"
    code, sheet, _ = pilot.run(JOBS / "small", "--gate", "0", "--set", f"candidate.plugin={plugin}", device="tpu")
    proof = check(sheet, "env.backend-proof")
    assert code == 1 and proof["verdict"] == "stop" and "0.40" in proof["why"], proof["why"]


@pytest.mark.parametrize("kind", ["missing", "text"])
def test_a_bad_plugin_stops_gate_zero(pilot, tmp_path, kind):
    plugin = tmp_path / "plugin.so"
    if kind == "text":
        shutil.copy(__file__, plugin)
    code, sheet, _ = pilot.run(JOBS / "small", "--set", f"candidate.plugin={plugin}", device="tpu")
    proof = check(sheet, "env.backend-proof")
    assert code == 1 and proof["verdict"] == "stop" and "plugin.so" in proof["why"], proof["why"]


def no_tpu():
    if glob.glob("/dev/accel*") or glob.glob("/dev/vfio/[0-9]*"):
        pytest.skip("this machine may have a TPU")


@pytest.mark.parametrize("installed", [False, True], ids=["absent", "without-hardware"])
def test_the_tpu_plugin_by_name_is_refused_in_a_sentence(pilot, tmp_path, installed):
    """By doctor and by run; a stand-in of libtpu is not even opened where there is no TPU."""
    no_tpu()
    said = "pip install libtpu"
    if installed:
        (tmp_path / "libtpu").mkdir()
        shutil.copy(BINARY.parents[1] / "tests" / "fake_plugin.so", tmp_path / "libtpu" / "libtpu.so")
        pilot.environment["PYTHONPATH"] = str(tmp_path)
        said = "libtpu needs a TPU"
    elif importlib.util.find_spec("libtpu"):
        pytest.skip("libtpu is installed here")
    choice = ["--set", "candidate.plugin=tpu", "--set", "candidate.device=tpu", "--json"]
    doctor = pilot.call("doctor", JOBS / "small", *choice)
    found = next(c for c in json.loads(doctor.stdout)["checks"] if c["id"] == "env.backend-proof")
    assert doctor.returncode == 1 and found["verdict"] == "stop" and said in found["why"], found
    code, sheet, _ = pilot.run(JOBS / "small", "--gate", "0", *choice[:2], device="tpu")
    proof = check(sheet, "env.backend-proof")
    assert code == 1 and proof["verdict"] == "stop" and said in proof["why"], proof["why"]
