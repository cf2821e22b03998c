"""Another value is not another program: what may change from call to call without a compile."""

import pytest
import torch
import torch.nn.functional as F

N = 12


def x_of(device, **options):
    return torch.arange(1.0, 1 + N * 4, device=device, **options).view(N, 4)


# Each takes a tensor and a number of 0, 1, 2, ..., which changes a value and no shape.
CHANGES = {
    "a Python float": lambda x, i: x + 0.3 * i,
    "a Python int": lambda x, i: x * (3 + i),
    "a float that may be whole": lambda x, i: x * (1.5 + 0.5 * i),
    "the other side": lambda x, i: (2.0 + i) / x,
    "a comparison": lambda x, i: x > 3.5 * i,
    "a condition's value": lambda x, i: torch.where(x > 3, x, 0.5 + i),
    "a pow exponent": lambda x, i: x.pow(2.25 + i),
    "a pow base": lambda x, i: torch.pow(1.5 + i, x / 64),
    "clamp's bounds": lambda x, i: x.clamp(1.5 + i, 20.5 + i),
    "clamp_min": lambda x, i: x.clamp_min(2.5 * i),
    "a fill": lambda x, i: x.clone().fill_(1.25 * i),
    "full": lambda x, i: torch.full((3, 3), 1.5 + i, device=x.device),
    "masked_fill": lambda x, i: x.masked_fill(x > 7, 2.5 + i),
    "a slice's start": lambda x, i: x[i : i + 3] + 1,
    "a slice's start, columns": lambda x, i: x[:, i % 3 : i % 3 + 2] * 2,
    "narrow": lambda x, i: x.narrow(0, i, 2).sum(),
    "a selected row": lambda x, i: x[i] + 1,
    "a selected column": lambda x, i: x[:, i % 4] + 1,
    "a row written": lambda x, i: x.clone()[i].add_(5),
    "a slice written": lambda x, i: x.clone()[i : i + 2].zero_(),
    "roll's amount": lambda x, i: x.roll(i, 0),
    "roll's amounts": lambda x, i: x.roll((i, 2 * i), (0, 1)),
    "add's alpha": lambda x, i: torch.add(x, x, alpha=2.5 + i),
    "addcmul's value": lambda x, i: torch.addcmul(x, x, x, value=0.5 + i),
    "addmm's alpha and beta": lambda x, i: torch.addmm(x, x, x[:4], alpha=0.5 + i, beta=1.5 + i),
    "lerp's weight": lambda x, i: x.lerp(x * 2, 0.1 + 0.1 * i),
    "leaky_relu's slope": lambda x, i: F.leaky_relu(x, 0.01 + 0.1 * i),
    "elu's alpha": lambda x, i: F.elu(x, 0.5 + i),
    "softplus's beta": lambda x, i: F.softplus(x, 0.5 + i),
    "threshold": lambda x, i: F.threshold(x, 1.5 + i, 2.5 + i),
    "hardtanh's bounds": lambda x, i: F.hardtanh(x, -1.5 - i, 2.5 + i),
    "layer_norm's eps": lambda x, i: F.layer_norm(x, (4,), eps=1e-5 * (i + 1)),
    "batch_norm's momentum": lambda x, i: F.batch_norm(
        x, x[0].clone(), x[1].clone(), training=True, momentum=0.1 + 0.1 * i
    ),
    "dropout's probability": lambda x, i: F.dropout(x, 0.1 + 0.1 * i),
    "a seed": lambda x, i: (torch.manual_seed(i), torch.randn(4, 4, device=x.device))[1],
    "uniform's bounds": lambda x, i: torch.empty(5, device=x.device).uniform_(-0.5 - i, 1.5 + i),
    "normal's mean": lambda x, i: torch.empty(5, device=x.device).normal_(0.5 + i, 1.5 + i),
    "randint's bounds": lambda x, i: torch.randint(i, 10 + i, (5,), device=x.device),
    "bernoulli's p": lambda x, i: torch.empty(5, device=x.device).bernoulli_(0.1 + 0.1 * i),
    "smooth_l1's beta": lambda x, i: F.smooth_l1_loss(x, x * 2, beta=0.5 + i),
    "huber's delta": lambda x, i: F.huber_loss(x, x * 2, delta=0.5 + i),
    "a 0-d tensor on the CPU": lambda x, i: x * torch.tensor(1.5 + i),
    "an index tensor": lambda x, i: x[torch.tensor([i, 0], device=x.device)],
    "nan_to_num": lambda x, i: x.nan_to_num(nan=0.5 + i, posinf=3.5 + i),
    "floor division": lambda x, i: x // (1.5 + i),
    "remainder": lambda x, i: x % (1.5 + i),
    "arange's start": lambda x, i: torch.arange(i, i + 5, device=x.device),
    "linspace's ends": lambda x, i: torch.linspace(0.5 * i, 1.5 + i, 7, device=x.device),
}


@pytest.mark.parametrize("name", CHANGES)
def test_another_value_compiles_nothing(name, tpu, counted):
    change = CHANGES[name]
    x = x_of(tpu)
    change(x, 1), change(x, 2)
    with counted() as c:
        results = [change(x, i) for i in range(3, 8)]
    assert c["compiles"] == 0
    assert c["disk_hits"] == 0  # nor is another program fetched
    deterministic = not any(
        word in name for word in ("seed", "probability", "uniform", "normal", "randint", "bernoulli")
    )
    for i, result in enumerate(results, 3):
        expected = change(x_of("cpu"), i)
        assert result.dtype == expected.dtype and result.shape == expected.shape
        if deterministic:
            torch.testing.assert_close(result.cpu(), expected, rtol=1e-4, atol=1e-5)


OPTIMIZERS = {
    "sgd": lambda p, lr: torch.optim.SGD(p, lr, momentum=0.9, weight_decay=0.1),
    "adam": lambda p, lr: torch.optim.Adam(p, lr),
    "adamw": lambda p, lr: torch.optim.AdamW(p, lr),
    "fused adamw": lambda p, lr: torch.optim.AdamW(p, lr, fused=True),
    "rmsprop": lambda p, lr: torch.optim.RMSprop(p, lr),
    "adagrad": lambda p, lr: torch.optim.Adagrad(p, lr),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_another_learning_rate_compiles_nothing(name, tpu, counted):
    parameter = torch.nn.Parameter(x_of(tpu))
    optimizer = OPTIMIZERS[name]([parameter], 0.1)

    def step(rate):
        optimizer.param_groups[0]["lr"] = rate
        optimizer.zero_grad()
        parameter.square().mean().backward()
        optimizer.step()

    step(0.1), step(0.05), step(0.04)
    with counted() as c:
        step(0.03), step(0.021), step(0.0123)
    assert c["compiles"] == 0 and c["disk_hits"] == 0
