"""The device as a user of PyTorch meets it: the CPU says what is right."""

import copy
import io
import pathlib

import pytest
import torch
import torch.nn.functional as F
from interpreter import printed, run_python
from torch import nn

ROOT = pathlib.Path(__file__).resolve().parents[2]


# ---- registration ----
def test_import_torch_alone_gives_the_device_and_loads_no_plugin():
    out = printed("import torch; print(torch.device('tpu'), torch.tpu.is_available(), torch.tpu.is_initialized())")
    assert out == "tpu True False"


def test_import_tpupilot_first():
    assert (
        printed("import tpupilot, torch; print(tpupilot.owner(), torch.ones(2, device='tpu').sum().item())")
        == "tpupilot 2.0"
    )


def test_a_broken_build_warns_once_and_leaves_torch_working():
    out = run_python(
        """
        import sys
        sys.modules["tpupilot._C"] = None   # importing it raises ImportError
        import torch
        print(torch.ones(2).sum().item())
        """
    )
    assert out.returncode == 0 and out.stdout.strip() == "2.0"
    assert out.stderr.count("the device 'tpu' is not available") == 1


def test_a_bad_environment_variable_is_named():
    out = run_python("import torch; print(torch.ones(1).item())", TPUPILOT_DEVICES="many")
    assert out.returncode == 0 and "TPUPILOT_DEVICES" in out.stderr


def test_autoload_can_be_switched_off():
    out = printed("import torch; print(torch._C._get_privateuse1_backend_name())", TORCH_DEVICE_BACKEND_AUTOLOAD="0")
    assert out == "privateuseone"


def test_a_missing_plugin_says_what_to_do():
    out = run_python("import torch; torch.ones(1, device='tpu')", TPUPILOT_PLUGIN="/nowhere/plugin.so")
    assert out.returncode == 1 and "/nowhere/plugin.so" in out.stderr.splitlines()[-1]


def test_a_forked_child_gets_an_error_not_a_hang():
    out = printed(
        """
        import os, torch
        torch.ones(2, device="tpu").sum().item()
        read, write = os.pipe()
        pid = os.fork()
        if pid == 0:
            try:
                torch.ones(3, device="tpu").sum().item()
                os.write(write, b"no error")
            except RuntimeError as error:
                os.write(write, str(error).encode())
            os._exit(0)
        os.waitpid(pid, 0)
        print(os.read(read, 10000).decode())
        """
    )
    assert "fork" in out and "spawn" in out


def test_the_process_ends_cleanly_after_backward():
    assert (
        printed(
            """
        import torch
        x = torch.ones(3, 3, device="tpu", requires_grad=True)
        (x @ x).sum().backward()
        print(x.grad.sum().item())
        """
        )
        == "54.0"
    )


def test_an_index_that_does_not_exist_raises():
    with pytest.raises(RuntimeError, match="tpu:7|device 7"):
        torch.ones(1, device="tpu:7")


# ---- values ----
def test_matmul_on_the_device_equals_the_cpu(tpu):
    a, b = torch.randn(64, 48), torch.randn(48, 32)
    c = (a.to(tpu) @ b.to(tpu)).cpu()
    assert c.shape == (64, 32)
    torch.testing.assert_close(c, a @ b)
    torch.testing.assert_close(c.double().sum(), (a @ b).double().sum())


def test_print_and_repr(tpu):
    x = torch.arange(6.0).reshape(2, 3)
    assert repr(x.to(tpu)) == "tensor([[0., 1., 2.],\n        [3., 4., 5.]], device='tpu:0')"
    assert "tpu" in repr(torch.ones(2, dtype=torch.int64, device=tpu).bool())


@pytest.mark.parametrize(
    "dtype",
    [
        torch.bool,
        torch.uint8,
        torch.int8,
        torch.int16,
        torch.int32,
        torch.int64,
        torch.float16,
        torch.bfloat16,
        torch.float32,
        torch.float64,
        torch.complex64,
        torch.complex128,
    ],
)
def test_round_trip(dtype, tpu):
    x = torch.tensor([[0, 1, 2], [3, 4, 250]]).to(dtype)
    for view in (x, x.t(), x[:, 1:], x[1], x[:, ::2], x[0, 1], x[:0]):
        y = view.to(tpu)
        assert y.dtype == dtype and y.stride() == view.to("cpu", copy=True).stride()
        assert torch.equal(y.cpu(), view)


def test_views_and_in_place_writes(tpu):
    def program(device):
        x = torch.arange(24.0, device=device).reshape(4, 6)
        x.t().add_(1)
        x[::2].zero_()
        x[1:3, 2:5].mul_(2)
        torch.add(x[0], x[1], out=x[3])
        x[:, 1].copy_(torch.tensor([9, 8, 7, 6]))
        y = x.view(2, 12)
        y[1, 3] = -1
        x.data = x.data * 2
        y[0, 0] = 77  # the old storage
        return x.cpu(), y.cpu()

    for ours, theirs in zip(program(tpu), program("cpu"), strict=True):
        assert torch.equal(ours, theirs)


def test_aliasing_of_data_and_detach(tpu):
    x = torch.zeros(10, device=tpu)
    y = x.view(2, 5)
    x.data = x.data + 1
    assert x.sum().item() == 10 and y.sum().item() == 0
    z = x.detach()
    z.add_(1)
    assert x.sum().item() == 20


def test_out_resizes_and_set(tpu):
    out = torch.empty(0, device=tpu)
    torch.add(torch.ones(2, 3, device=tpu), 1, out=out)
    assert out.shape == (2, 3) and out.sum().item() == 12
    a, b = torch.arange(4.0, device=tpu), torch.empty(0, device=tpu)
    b.set_(a.untyped_storage(), 1, (2,), (2,))
    assert b.tolist() == [1.0, 3.0]
    a.resize_(6)
    assert a[:4].tolist() == [0.0, 1.0, 2.0, 3.0]
    storage = a.untyped_storage()
    storage.resize_(0)
    assert storage.size() == 0
    storage.resize_(24)
    a.fill_(3)
    assert a.sum().item() == 18


def test_writes_through_an_expanded_tensor_raise_as_on_the_cpu(tpu):
    for device in ("cpu", tpu):
        with pytest.raises(RuntimeError, match="more than one element of the written-to tensor"):
            torch.zeros(3, 1, device=device).expand(3, 4).add_(1)


def test_zero_copy_upload_is_never_seen_by_later_writes(tpu):
    x = torch.arange(100_000, dtype=torch.float32)
    expected = x.clone()
    before = torch.tpu.counters()["zero_copy_uploads"]
    y = x.to(tpu)
    assert torch.tpu.counters()["zero_copy_uploads"] == before + 1
    x.add_(1)
    assert torch.equal(y.cpu(), expected)
    y.mul_(2)
    assert torch.equal(x, expected + 1)
    z = torch.arange(100_000, dtype=torch.float32)
    shared = z.numpy()
    w = z.to(tpu)
    shared[:] = 0
    assert torch.equal(w.cpu(), expected)


def test_synchronize_waits_for_results_that_nobody_holds(tmp_path):
    out = printed(
        """
        import torch
        torch.ones(3, device="tpu")  # dropped; its program fails later
        try:
            torch.tpu.synchronize()
        except RuntimeError as error:
            print(error)
        """,
        TPUPILOT_PLUGIN=str(ROOT / "build" / "tests" / "fake_plugin.so"),
        TPUPILOT_CACHE_DIR=str(tmp_path),
        FAKE_PJRT_ASYNC_ERROR="1",
    )
    assert "asynchronous fault" in out


@pytest.mark.parametrize("default", [torch.float32, torch.float64])
def test_the_default_dtype_decides_for_python_numbers(default, tpu):
    before = torch.get_default_dtype()
    torch.set_default_dtype(default)
    try:
        x = torch.tensor([16777217, 3])  # the first is no f32
        for function in (lambda t: t == 16777216.0, lambda t: t * 0.1, lambda t: torch.maximum(t, t) / 3, torch.sqrt):
            ours, theirs = function(x.to(tpu)).cpu(), function(x)
            assert ours.dtype == theirs.dtype
            torch.testing.assert_close(ours, theirs)
    finally:
        torch.set_default_dtype(before)


@pytest.mark.parametrize("bounds", [(0.0, 1.0, 0.1), (0.5, 7.2, 1.7), (5, 0, -2), (0, 3, 2.5), (3, 0, 1), (0, 1, 0)])
@pytest.mark.parametrize("dtype", [None, torch.int64, torch.int32, torch.uint8, torch.float32, torch.bfloat16])
def test_arange_with_fractional_steps(bounds, dtype, tpu):
    def outcome(device):
        try:
            x = torch.arange(*bounds, dtype=dtype, device=device).cpu()
            return x.dtype, x.tolist()
        except (RuntimeError, ValueError) as error:
            return type(error), str(error)

    assert outcome(tpu) == outcome("cpu")


def test_boolean_index_nonzero_and_masked_select(tpu):
    x = torch.arange(12.0).reshape(3, 4)
    d = x.to(tpu)
    assert torch.equal(d[d > 5].cpu(), x[x > 5])
    assert torch.equal(d.nonzero().cpu(), x.nonzero()) and d.nonzero().stride() == x.nonzero().stride()
    assert torch.equal(torch.masked_select(d.t(), d.t() > 2).cpu(), torch.masked_select(x.t(), x.t() > 2))
    d[d > 8] = -1
    x[x > 8] = -1
    assert torch.equal(d.cpu(), x)
    assert torch.equal(d, x.to(tpu)) and not torch.equal(d, d + 1)


def test_dtype_views_share_memory(tpu):
    x = torch.arange(4, dtype=torch.float32, device=tpu)
    bits = x.view(torch.int32)
    bits[1] = 0
    assert x.tolist() == [0.0, 0.0, 2.0, 3.0]
    c = torch.tensor([1 + 2j, 3 - 1j]).to(tpu)
    torch.view_as_real(c)[0, 0] = 5
    assert c.tolist() == [5 + 2j, 3 - 1j]
    assert c.conj().cpu().tolist() == [5 - 2j, 3 + 1j]


# ---- an op without a row ----
def test_an_op_without_a_row_raises_with_its_name(tpu):
    x = torch.eye(3, device=tpu)
    with pytest.raises(NotImplementedError, match=r"aten::_nested_from_padded.*support-matrix.*TPUPILOT_FALLBACK"):
        torch._nested_from_padded(x.view(1, 3, 3), torch.tensor([[3, 3]]))
    assert torch.tpu.counters()["fallbacks"] == 0


def test_fallback_is_counted_and_off_by_default():
    code = """
    import torch
    library = torch.library.Library("elsewhere", "DEF")
    library.define("twice(Tensor x) -> Tensor")
    library.impl("twice", lambda x: x * 2, "CPU")
    s = torch.ops.elsewhere.twice(torch.eye(3, device="tpu"))
    print(s.device, torch.tpu.counters()["fallbacks"] > 0)
    """
    out = run_python(code, TPUPILOT_FALLBACK="warn")
    assert out.stdout.split() == ["tpu:0", "True"] and "runs on the CPU" in out.stderr


# ---- random numbers ----
def test_seeds_and_states(tpu):
    torch.manual_seed(3)
    a = torch.rand(1000, device=tpu)
    torch.manual_seed(3)
    assert torch.equal(a, torch.rand(1000, device=tpu))
    state = torch.tpu.get_rng_state()
    b = torch.randn(1000, device=tpu)
    torch.tpu.set_rng_state(state)
    assert torch.equal(b, torch.randn(1000, device=tpu))
    with torch.random.fork_rng(devices=[0], device_type="tpu"):
        c = torch.rand(4, device=tpu)
    assert torch.equal(c, torch.rand(4, device=tpu))
    g = torch.Generator(device=tpu).manual_seed(5)
    d = torch.rand(4, device=tpu, generator=g)
    assert torch.equal(d, torch.rand(4, device=tpu, generator=torch.Generator(device=tpu).manual_seed(5)))
    assert 0.45 < a.mean().item() < 0.55 and a.min().item() >= 0 and a.max().item() < 1
    assert abs(b.mean().item()) < 0.15 and 0.9 < b.std().item() < 1.1


def test_an_empty_interval_of_integers_is_refused(tpu):
    for device in ("cpu", tpu):
        with pytest.raises(RuntimeError, match="random_ expects 'from' to be less than 'to', but got from=3 >= to=3"):
            torch.empty(2, device=device).random_(3, 3)


def test_dropout_draws_new_masks_without_compiling(tpu, counted):
    drop, x = nn.Dropout(0.5), torch.ones(1000, device=tpu)
    first = drop(x)
    with counted() as c:
        second = drop(x)
        drop.p = 0.25
        third = drop(x)
    assert c["compiles"] == 0
    assert not torch.equal(first, second)
    assert 0.4 < (second != 0).float().mean().item() < 0.6 and 0.68 < (third != 0).float().mean().item() < 0.82


def test_scalars_and_seeds_are_inputs(tpu, counted):
    x = torch.ones(7, 5, device=tpu)
    (x * 2.0 + 1.5).pow(2.0).clamp(0.5, 3)
    torch.rand(7, 5, device=tpu)
    with counted() as c:
        for i in range(1, 5):
            (x * (2.0 + i) + i / 3).pow(1.0 + i).clamp(-float(i), i)
            torch.manual_seed(i)
            torch.rand(7, 5, device=tpu)
    assert c["compiles"] == 0


# ---- modules, training, saving ----
def small_net():
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(64, 10)
    )


def train(device, steps=5):
    model = small_net().to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-3)
    generator = torch.Generator().manual_seed(1)
    losses = []
    for _ in range(steps):
        x, y = torch.randn(16, 1, 8, 8, generator=generator), torch.randint(0, 10, (16,), generator=generator)
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x.to(device)), y.to(device))
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item())
    return model, optimizer, losses


def test_training_follows_the_cpu(tpu):
    ours, _, our_losses = train(tpu)
    theirs, _, their_losses = train("cpu")
    torch.testing.assert_close(torch.tensor(our_losses), torch.tensor(their_losses), rtol=1e-5, atol=1e-5)
    for (name, a), b in zip(ours.state_dict().items(), theirs.state_dict().values(), strict=True):
        torch.testing.assert_close(a.cpu(), b, rtol=1e-4, atol=1e-5, msg=lambda m, name=name: f"{name}: {m}")
    assert torch.tpu.counters()["fallbacks"] == 0


def test_a_second_step_compiles_nothing(tpu, counted):
    train(tpu, steps=2)
    with counted() as c:
        train(tpu, steps=3)
    assert c["compiles"] == 0


def test_state_saved_on_the_device_loads_anywhere(tpu, tmp_path):
    model, optimizer, _ = train(tpu, steps=1)
    path = tmp_path / "state.pt"
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, path)
    back = torch.load(path, weights_only=True)
    assert all(v.device.type == "tpu" for v in back["model"].values())
    host = torch.load(path, weights_only=True, map_location="cpu")
    for name, value in model.state_dict().items():
        assert torch.equal(host["model"][name], value.cpu())
    code = f"""
    import torch
    state = torch.load({str(path)!r}, map_location="cpu", weights_only=True)
    print(sum(v.double().sum().item() for v in state["model"].values()))
    """
    without = float(printed(code, TORCH_DEVICE_BACKEND_AUTOLOAD="0"))
    assert without == sum(v.double().sum().item() for v in host["model"].values())


def test_tied_weights_stay_tied(tpu):
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.a = nn.Linear(2, 5)
            self.w = self.a.weight

    model = Tied().to(tpu)
    assert model.w is model.a.weight
    assert copy.deepcopy(model).w.device.type == "tpu"
    buffer = io.BytesIO()
    torch.save([model.w, model.w[0]], buffer)
    buffer.seek(0)
    whole, row = torch.load(buffer)
    row.detach().fill_(3)
    assert whole[0].tolist() == [3.0, 3.0]


def test_a_non_contiguous_batch_norm_input(tpu):
    x = torch.randn(4, 3, 5, 5)
    ours = F.batch_norm(x.to(tpu)[1:], None, None, training=True)
    torch.testing.assert_close(ours.cpu(), F.batch_norm(x[1:].clone(), None, None, training=True))


def test_memory_is_given_back(tpu):
    before = torch.tpu.memory_allocated()
    x = torch.zeros(2**20, device=tpu)
    assert torch.tpu.memory_allocated() == before + 4 * 2**20
    assert torch.accelerator.memory.memory_allocated() == before + 4 * 2**20
    del x
    assert torch.tpu.memory_allocated() == before
    assert torch.tpu.max_memory_allocated() >= before + 4 * 2**20


def test_type_and_shape_errors_are_pytorchs_own(tpu):
    cases = [
        lambda d: torch.ones(2, 3, device=d) @ torch.ones(2, 3, device=d),
        lambda d: torch.ones(2, device=d) + torch.ones(3, device=d),
        lambda d: torch.cat([torch.ones(2, 2, device=d), torch.ones(3, 3, device=d)]),
        lambda d: torch.ones(3, device=d).view(2),
    ]
    for case in cases:
        errors = []
        for device in ("cpu", tpu):
            with pytest.raises(RuntimeError) as info:
                case(device)
            errors.append(str(info.value))
        assert errors[0] == errors[1]
    with pytest.raises(RuntimeError, match="same device"):
        torch.ones(2, device=tpu) + torch.ones(2)
