"""Views and in-place writes against the CPU: the same random program on both, compared after every step."""

import random

import pytest
import torch

STEPS = 2000


def slices(rng, size):
    start = rng.randrange(size) if size else 0
    stop = rng.randint(start, size)
    return slice(start, stop, rng.choice([1, 1, 2, 3]))


def make_view(rng, x):
    """Returns a function that makes the same view of any tensor shaped like x, and its name."""
    kind = rng.choice(
        [
            "index",
            "slice",
            "t",
            "permute",
            "view",
            "unsqueeze",
            "select",
            "narrow",
            "diagonal",
            "expand",
            "unfold",
            "as_strided",
            "flatten",
        ]
    )
    if kind == "slice" and x.dim():
        where = tuple(slices(rng, n) for n in x.shape)
        return lambda t: t[where]
    if kind in ("index", "select") and x.dim() and all(x.shape):
        d = rng.randrange(x.dim())
        i = rng.randrange(x.shape[d])
        return lambda t: t.select(d, i)
    if kind == "t" and x.dim() >= 2:
        a, b = rng.sample(range(x.dim()), 2)
        return lambda t: t.transpose(a, b)
    if kind == "permute":
        order = rng.sample(range(x.dim()), x.dim())
        return lambda t: t.permute(order)
    if kind == "view" and x.is_contiguous() and x.numel() % 2 == 0 and x.numel():
        return lambda t: t.view(2, -1)
    if kind == "unsqueeze" and x.dim() < 4:
        d = rng.randint(0, x.dim())
        return lambda t: t.unsqueeze(d)
    if kind == "narrow" and x.dim() and x.shape[0] > 1:
        n = rng.randint(1, x.shape[0])
        s = rng.randint(0, x.shape[0] - n)
        return lambda t: t.narrow(0, s, n)
    if kind == "diagonal" and x.dim() >= 2:
        return lambda t: t.diagonal()
    if kind == "expand" and x.dim() < 4:
        return lambda t: t.expand(3, *t.shape)
    if kind == "unfold" and x.dim() and x.shape[-1] >= 3:
        return lambda t: t.unfold(-1, 3, rng_step)
    if kind == "as_strided" and x.numel() >= 6:
        return lambda t: t.as_strided((2, 2), (3, 1), t.storage_offset()) if fits(t) else t
    return lambda t: t


rng_step = 2


def fits(t):
    return t.storage_offset() + 5 <= t.untyped_storage().size() // t.element_size()


def overlaps(x):
    return (
        any(n > 1 and s == 0 for n, s in zip(x.shape, x.stride(), strict=True))
        or torch._debug_has_internal_overlap(x) != 0
    )


def write(rng, value):
    kind = rng.choice(["add", "mul", "zero", "fill", "copy", "out", "masked", "set"])
    if kind == "add":
        return lambda t: t.add_(value)
    if kind == "mul":
        return lambda t: t.mul_(1.5)
    if kind == "zero":
        return lambda t: t.zero_()
    if kind == "fill":
        return lambda t: t.fill_(value)
    if kind == "copy":
        return lambda t: t.copy_(torch.full((), value, device=t.device).expand(t.shape))
    if kind == "out":
        return lambda t: torch.add(t, value, out=t)
    if kind == "masked":
        return lambda t: t.masked_fill_(t > value, value)
    return lambda t: t.sub_(t.clone())


@pytest.mark.parametrize("seed", range(4))
def test_random_walk(seed):
    rng = random.Random(seed)
    writes = 0
    cpu = tpu = base_cpu = base_tpu = None
    for step in range(STEPS // 4):
        if cpu is None or rng.random() < 0.12:
            shape = tuple(rng.choice([1, 2, 3, 4, 6]) for _ in range(rng.randint(1, 3)))
            base_cpu = torch.arange(float(torch.Size(shape).numel())).reshape(shape)
            base_tpu = base_cpu.to("tpu")
            cpu, tpu = base_cpu, base_tpu
        view = make_view(rng, cpu)
        cpu, tpu = view(cpu), view(tpu)
        assert cpu.shape == tpu.shape and cpu.stride() == tpu.stride() and cpu.storage_offset() == tpu.storage_offset()
        if not overlaps(cpu) and rng.random() < 0.6:
            change = write(rng, float(rng.choice([-2, 0.5, 3])))
            change(cpu)
            change(tpu)
            writes += 1
        assert torch.equal(cpu, tpu.cpu()), f"step {step}: the view differs"
        assert torch.equal(base_cpu, base_tpu.cpu()), f"step {step}: the base differs"
        if cpu.numel() == 0 or cpu.numel() > 500 or cpu.dim() > 4:
            cpu = None
    assert writes > 50
