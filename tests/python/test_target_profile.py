"""The profile of a release of torch_tpu beside this backend: nothing that it registers is forgotten here."""

import importlib.util
import json
import pathlib
import subprocess

import pytest
import torch

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROFILE = ROOT / "data/targets/torch_tpu-0.2.0.json"
HOLES = ROOT / "data/targets/torch_tpu-0.2.0-holes.tsv"


@pytest.fixture(scope="module")
def script():
    spec = importlib.util.spec_from_file_location("target_profile", ROOT / "scripts/target_profile.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    torch.empty(0, device="tpu")
    return module


@pytest.fixture(scope="module")
def profile():
    return json.loads(PROFILE.read_text())


def test_every_registered_overload_is_here_or_listed_with_a_reason(script, profile):
    """Asked of torch's dispatcher. A listed one that came is no hole: `python scripts/target_profile.py holes`."""
    assert script.holes_text(profile) == HOLES.read_text()
    for name, reason in script.holes(profile):
        assert reason and name in profile["registered"]


def test_what_is_absent_has_no_kernel_there_and_is_known_to_torch(script, profile):
    known, registered, absent = set(script.overloads()), set(profile["registered"]), set(profile["absent"])
    assert len(registered) == 674 and not registered & absent and absent <= known
    assert set(profile["refused"]) <= absent, "what it refused in op_db is what it does not have"
    derived = {"add.Tensor", "add_.Tensor", "relu_", "mm", "convolution", "_to_copy", "t", "linear"}
    assert not derived & absent
    assert {"erfc.out", "erfc", "erfc_", "huber_loss", "cholesky", "median"} <= absent


def test_faults_name_what_they_are_of(profile):
    faults = {(f["entry"], f["mode"], f["dtype"]): f for f in profile["faults"]}
    assert faults["nn.functional.pdist", "backward", "float32"]["overloads"] == ["_pdist_backward"]
    assert faults["nn.functional.conv2d", "forward", "int64"]["overloads"] == ["convolution"]
    assert not any("relu_" in f["overloads"] for f in profile["faults"]), "dispatched beside the one that fails"


def ops(*arguments):
    binary = ROOT / "build/bin/tpupilot"
    return subprocess.run([binary, "ops", *arguments], capture_output=True, text=True, timeout=60)


def test_the_command_says_first_what_will_fail(profile):
    listed = json.loads(ops("--target", "torch_tpu==0.2.0", "--json").stdout)
    rows = listed["ops"]
    assert listed["date"] == profile["date"]
    outcomes = [row["outcome"] for row in rows]
    order = ["will-fail", "may-fail", "not-here", "good"]
    assert outcomes == sorted(outcomes, key=order.index)
    by_name = {row["overload"]: row for row in rows}
    assert set(profile["registered"]) <= set(by_name)
    assert {row["overload"] for row in torch.tpu.support_matrix()} <= set(by_name)
    assert by_name["erfc.out"]["outcome"] == "will-fail" and by_name["erfc.out"]["here"] == "native"
    assert by_name["add.out"]["outcome"] == "good" and by_name["add.out"]["target"] == "registered"
    text = ops("--target", "torch_tpu==0.2.0").stdout
    assert text.index("will fail on torch_tpu 0.2.0") < text.index("aten::erfc.out") < text.index("aten::add.out")
    one = ops("erfc", "--target", "torch_tpu==0.2.0", "--markdown").stdout
    assert "| `aten::erfc.out` | native | absent |" in one and "aten::add" not in one


def test_an_unknown_target_is_named():
    done = ops("--target", "torch_tpu==9")
    assert done.returncode == 3 and "known: torch_tpu==0.2.0" in done.stderr, done.stderr
    assert ops("no_such_op", "--target", "torch_tpu==0.2.0").returncode == 1
