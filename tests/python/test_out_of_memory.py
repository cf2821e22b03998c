"""Not enough memory is torch.OutOfMemoryError, as on every device of PyTorch: it names the op and the bytes, and what fits runs on."""

import os
import pathlib
import subprocess
import sys
import textwrap

import pytest
import torch

ROOT = pathlib.Path(__file__).resolve().parents[2]
TERA = 1 << 40


def one(tpu):
    return torch.ones(1, device=tpu)


# More than any machine has, each on another way through the device: what the plugin refuses at once, what it refuses
# while it computes, what the host has to stage, and what has no address.
TOO_MUCH = {
    "result of an op": (lambda d: one(d).expand(1 << 20, 1 << 20) + 1, "add", "4398046511104 bytes"),
    "zeros": (lambda d: torch.zeros(4 * TERA, device=d), "zero_", "17592186044416 bytes"),
    "fill": (lambda d: torch.full((4 * TERA,), 2.0, device=d), "fill_", "17592186044416 bytes"),
    "never written": (lambda d: torch.empty(4 * TERA, device=d).sum(), "sum", "17592186044416 bytes"),
    "repeat": (lambda d: one(d).repeat(4 * TERA), "copy_", "17592186044416 bytes"),
    "storage that grows": (lambda d: one(d).resize_(4 * TERA), "resize_", "17592186044416 bytes"),
    "addresses": (lambda d: torch.empty(32 * TERA, device=d), "", "35184372088832 bytes"),
    "matmul, read": (lambda d: (torch.ones(1 << 20, 1, device=d) @ torch.ones(1, 1 << 20, device=d))[0, 0].item(), "mm", "4398046511104 bytes"),
    "random, read": (lambda d: torch.rand(2 * TERA, device=d)[:2].cpu(), "uniform_", "8796093022208 bytes"),
}  # fmt: skip


@pytest.mark.parametrize("name", TOO_MUCH)
def test_what_does_not_fit_says_so_and_leaves_the_device_working(name, tpu):
    ask, op, size = TOO_MUCH[name]
    kept = torch.arange(5.0, device=tpu)
    torch.tpu.synchronize()
    before = torch.tpu.memory_allocated()
    with pytest.raises(torch.OutOfMemoryError) as raised:
        ask(tpu)
        torch.tpu.synchronize()
    text = str(raised.value)
    assert op in text and size in text and "smaller batch" in text, text
    del raised
    torch.tpu.synchronize()  # an error that was raised is not raised again
    assert torch.tpu.memory_allocated() == before
    assert (kept * 2 + 1).tolist() == [1.0, 3.0, 5.0, 7.0, 9.0]


def test_a_smaller_batch_after_it_is_the_usual_recovery(tpu):
    def step(batch):
        x = torch.ones(batch, 1, device=tpu, requires_grad=True)
        loss = (x @ torch.ones(1, batch, device=tpu)).sum()
        loss.backward()
        return loss.item(), x.grad.sum().item()

    batch, tries = 1 << 21, 0
    while True:
        try:
            tries += 1
            result = step(batch)
            break
        except torch.OutOfMemoryError:
            batch >>= 8
    assert tries == 2 and result == (batch**2, batch**2)


def with_fake_plugin(code, tmp_path, **environment):
    done = subprocess.run(
        [sys.executable, "-c", "import os, torch\n" + textwrap.dedent(code)], capture_output=True, text=True, timeout=120,
        env={**os.environ, "TPUPILOT_PLUGIN": str(ROOT / "build/tests/fake_plugin.so"), "TPUPILOT_CACHE_DIR": str(tmp_path),
             **environment},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("function", ["LoadedExecutable_Execute", "Client_Compile", "Client_BufferFromHostBuffer"])
def test_wherever_the_plugin_runs_out(function, tmp_path):
    """The call that fails changes nothing: made again, it works."""
    out = with_fake_plugin(
        f"""
        x = torch.arange(6, dtype=torch.float32).to("tpu")
        x + 1
        for work in (lambda: x.add_(torch.ones(2, 1, device="tpu").expand(2, 6)[0]), lambda: torch.ones(5).to("tpu")):
            held = torch.tpu.memory_allocated()
            os.environ["FAKE_PJRT_FAIL"] = "{function}:1"
            try:
                work()
            except torch.OutOfMemoryError as error:
                print(error)
                print(x.shape, torch.tpu.memory_allocated() == held)
                del error
            os.environ["FAKE_PJRT_FAIL"] = ""
            work()
        torch.tpu.synchronize()
        """,
        tmp_path,
    )
    lines = out.splitlines()
    assert len(lines) >= 2 and len(lines) % 2 == 0, out
    assert lines[0].startswith("[") and "RESOURCE_EXHAUSTED" in lines[0] and "smaller batch" in lines[0]
    assert function == "Client_Compile" or "bytes), with" in lines[0], lines[0]
    assert lines[1] == "torch.Size([6]) True"


@pytest.mark.parametrize("read", ["y.cpu()", "y.sum().item()", "torch.tpu.synchronize()"])
def test_a_late_error_names_the_op_that_met_it(read, tmp_path):
    out = with_fake_plugin(
        f"""
        x = torch.arange(6, dtype=torch.float32).to("tpu")
        os.environ["FAKE_PJRT_ASYNC_ERROR"] = "8"
        y = torch.exp(x)
        try:
            {read}
        except torch.OutOfMemoryError as error:
            print(error)
        torch.tpu.synchronize()
        """,
        tmp_path,
    )
    assert "[exp" in out and "f32[6]" in out and "24 bytes" in out, out
