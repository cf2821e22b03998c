"""Parts of training loops that choose kernels of their own on this device: recurrent cells, fused optimizers, gradient scalers."""

import copy

import pytest
import torch
from torch import nn


# ---- recurrent modules ----
@pytest.mark.parametrize("module", [nn.LSTM, nn.GRU])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("bidirectional", [True, False])
def test_recurrent_modules(module, bias, bidirectional, tpu):
    torch.manual_seed(0)
    original = module(5, 7, 2, bias=bias, bidirectional=bidirectional)
    x = torch.randn(4, 3, 5)

    def outcome(device):
        net, inputs = copy.deepcopy(original).to(device), x.to(device).requires_grad_()
        y, state = net(inputs)
        state = state if isinstance(state, tuple) else (state,)
        (y.sin().sum() + sum((s * s).sum() for s in state)).backward()
        return [t.detach().cpu() for t in (y, *state, inputs.grad, *(p.grad for p in net.parameters()))]

    for ours, theirs in zip(outcome(tpu), outcome("cpu"), strict=True):
        torch.testing.assert_close(ours, theirs)


# ---- fused optimizers ----
OPTIMIZERS = {
    "adam": (torch.optim.Adam, {"weight_decay": 0.1}),
    "adam-amsgrad": (torch.optim.Adam, {"amsgrad": True, "maximize": True}),
    "adamw": (torch.optim.AdamW, {"weight_decay": 0.1, "betas": (0.8, 0.99)}),
    "adamw-tensor-lr": (torch.optim.AdamW, {"lr": torch.tensor(0.01)}),
    "sgd": (torch.optim.SGD, {"lr": 0.1}),
    "sgd-nesterov": (torch.optim.SGD, {"lr": 0.1, "momentum": 0.9, "nesterov": True, "weight_decay": 0.01}),
    "sgd-dampening": (torch.optim.SGD, {"lr": 0.1, "momentum": 0.9, "dampening": 0.5, "maximize": True}),
    "adagrad": (torch.optim.Adagrad, {"lr": 0.1, "lr_decay": 0.01, "weight_decay": 0.01}),
}

REFUSED = {
    ("adagrad", "fused"): "torch.optim.Adagrad offers its fused form on the CPU only",
    ("adamw-tensor-lr", "foreach"): "torch.optim refuses a tensor lr with foreach unless capturable",
}


def trained(make, options, device, form, steps=4):
    generator = torch.Generator().manual_seed(0)
    shapes = [(3, 4), (5,), (), (2, 3, 2)]
    parameters = [torch.randn(s, generator=generator).to(device).requires_grad_() for s in shapes]
    options = {k: v.clone() if isinstance(v, torch.Tensor) else v for k, v in options.items()}
    optimizer = make(parameters, **options, **form)
    for _ in range(steps):
        for p in parameters:
            p.grad = torch.randn(p.shape, generator=generator).to(device)
        optimizer.step()
    return [p.detach().cpu() for p in parameters]


@pytest.mark.parametrize("form", ["fused", "foreach"])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_optimizers_in_every_form(name, form, tpu):
    make, options = OPTIMIZERS[name]
    if (name, form) in REFUSED:
        pytest.skip(REFUSED[name, form])
    for ours, theirs in zip(
        trained(make, options, tpu, {form: True}), trained(make, options, "cpu", {"foreach": False}), strict=True
    ):
        torch.testing.assert_close(ours, theirs)


def test_a_fused_step_is_one_program(tpu):
    trained(*OPTIMIZERS["adamw"], tpu, {"fused": True})
    p = [torch.ones(8, device=tpu, requires_grad=True) for _ in range(6)]
    optimizer = torch.optim.AdamW(p, fused=True)
    for q in p:
        q.grad = torch.ones_like(q)
    optimizer.step()
    before = torch.tpu.counters()["executions"]
    optimizer.step()
    assert torch.tpu.counters()["executions"] - before <= 1 + len(p)  # the step counters are a foreach of their own


def test_parameters_that_share_a_storage_are_all_updated(tpu):
    def outcome(device):
        flat = torch.arange(6.0, device=device)
        parts = [flat[:2], flat[2:5]]
        gradients = [torch.ones_like(p) for p in parts]
        torch._fused_sgd_(
            parts, gradients, [], weight_decay=0.0, momentum=0.0, lr=1.0, dampening=0.0, nesterov=False, maximize=False,
            is_first_step=False,
        )  # fmt: skip
        return flat.tolist()

    assert outcome(tpu) == outcome("cpu") == [-1.0, 0.0, 1.0, 2.0, 3.0, 5.0]


@pytest.mark.parametrize("apart_first", [True, False])
def test_results_that_share_a_storage_or_not_are_two_programs(apart_first, tpu):
    n = 5 if apart_first else 7  # a program of its own for each case
    x = torch.arange(float(n)) - 2

    def outcome(device, apart):
        source = x.to(device)
        buffers = [torch.full((2,), 9.0, device=device) for _ in range(2 if apart else 1)]
        low, high = buffers[0][:1], buffers[-1][1:]
        torch.aminmax(source, dim=0, out=(low.squeeze(0), high.squeeze(0)))
        return [b.tolist() for b in buffers]

    for apart in (apart_first, not apart_first):
        assert outcome(tpu, apart) == outcome("cpu", apart)


def test_lists_that_share_one_storage_across_arguments(tpu):
    def outcome(device, shared):
        flat = torch.arange(8.0, device=device)
        other = flat if shared else 10 + torch.arange(8.0, device=device)
        p, momentum = flat[:3], other[4:7]
        torch._fused_sgd_(
            [p], [torch.ones_like(p)], [momentum], weight_decay=0.0, momentum=0.5, lr=1.0, dampening=0.0, nesterov=False,
            maximize=False, is_first_step=False,
        )  # fmt: skip
        return flat.tolist(), other.tolist()

    for shared in (True, False, True):
        assert outcome(tpu, shared) == outcome("cpu", shared)


@pytest.mark.parametrize("lr", [0.1, torch.tensor(0.1)])
def test_fused_adagrad(lr, tpu):
    """torch.optim.Adagrad offers this on the CPU only; the op is called directly."""

    def outcome(device):
        generator = torch.Generator().manual_seed(0)
        p, g, s = (torch.rand(5, generator=generator).to(device) for _ in range(3))
        steps = [torch.tensor(3.0, device=device)]
        torch._fused_adagrad_(
            [p], [g], [s], steps, lr=lr, lr_decay=0.1, weight_decay=0.2, eps=1e-10, maximize=True,
        )  # fmt: skip
        return p.cpu(), s.cpu(), steps[0].cpu()

    for ours, theirs in zip(outcome(tpu), outcome("cpu"), strict=True):
        torch.testing.assert_close(ours, theirs)


# ---- gradient scaler ----
def test_gradient_scaler_skips_a_step_with_infinities(tpu):
    def outcome(device):
        p = torch.ones(3, device=device, requires_grad=True)
        optimizer = torch.optim.SGD([p], lr=0.1)
        scaler = torch.amp.GradScaler(device, init_scale=4.0, growth_interval=2)
        history = []
        for factor in (1.0, float("inf"), 1.0, 1.0, float("nan")):
            optimizer.zero_grad()
            scaler.scale((p * factor).sum()).backward()
            scaler.step(optimizer)
            scaler.update()
            history.append((p.detach().cpu().tolist(), scaler.get_scale()))
        return history

    assert outcome(tpu) == outcome("cpu")


@pytest.mark.parametrize("make", [torch.optim.AdamW, torch.optim.SGD])
def test_gradient_scaler_with_a_fused_optimizer(make, tpu):
    def outcome(device, fused):
        p = torch.ones(3, device=device, requires_grad=True)
        optimizer = make([p], lr=0.1, fused=fused)
        scaler = torch.amp.GradScaler(device, init_scale=4.0)
        for factor in (1.0, float("inf"), 2.0):
            optimizer.zero_grad()
            scaler.scale((p * factor).sum()).backward()
            scaler.step(optimizer)
            scaler.update()
        return p.detach().cpu()

    torch.testing.assert_close(outcome(tpu, True), outcome("cpu", False))


# ---- autocast ----
def test_autocast_lists(tpu):
    x, linear = torch.randn(4, 8, device=tpu), nn.Linear(8, 3).to(tpu)
    target = torch.zeros(4, dtype=torch.int64, device=tpu)
    with torch.autocast("tpu", dtype=torch.bfloat16):
        y = linear(x)
        assert y.dtype == (x @ x.t()).dtype == torch.bfloat16
        loss = nn.functional.cross_entropy(y, target)
        assert (
            loss.dtype
            == y.softmax(-1).dtype
            == y.sum().dtype
            == nn.functional.layer_norm(y, (3,)).dtype
            == torch.float32
        )
        assert (y + x[:, :3]).dtype == torch.cat([y, x[:, :3]]).dtype == torch.float32  # promoted
        assert (y + y).dtype == y.relu().dtype == torch.bfloat16  # not listed
        with torch.autocast("tpu", enabled=False):
            assert linear(x).dtype == torch.float32
        with pytest.raises(RuntimeError, match="binary_cross_entropy_with_logits"):
            nn.functional.binary_cross_entropy(y.sigmoid(), torch.ones_like(y))
    loss.backward()
    assert linear.weight.grad.dtype == torch.float32
    assert linear(x).dtype == torch.float32


@pytest.mark.parametrize("module", [nn.LSTM, nn.GRU])
def test_recurrent_modules_under_autocast(module, tpu):
    torch.manual_seed(0)
    net, x = module(5, 7), torch.randn(4, 3, 5)
    exact = net(x)[0].detach()
    net.to(tpu)
    with torch.autocast("tpu", dtype=torch.bfloat16):
        y, _ = net(x.to(tpu))
    assert y.dtype == torch.bfloat16
    torch.testing.assert_close(y.detach().cpu().float(), exact, rtol=1.6e-2, atol=2e-2)
    y.float().sum().backward()
    assert all(p.grad.dtype == torch.float32 and bool(p.grad.isfinite().all()) for p in net.parameters())
