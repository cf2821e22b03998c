"""f32 products in one, three and six bf16 passes: what a TPU's matrix unit does, on the CPU plugin."""

import pytest
import torch
import torch.nn.functional as F

PASSES = {"medium": 1, "high": 3}


@pytest.fixture(autouse=True)
def settings():
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    yield
    torch.set_float32_matmul_precision(before)
    torch.tpu.rehearse_passes(0)


def rounded(x):
    return x.to(torch.bfloat16).to(x.dtype)


def by_hand(a, b, passes, product=torch.matmul):
    """The passes written out, sums in f32."""
    left, right = [], []
    for parts, x in ((left, a), (right, b)):
        for _ in range(3):
            parts.append(rounded(x))
            x = x - parts[-1]
    pairs = {
        1: [(0, 0)],
        3: [(1, 0), (0, 1), (0, 0)],
        6: [(2, 0), (1, 1), (0, 2), (1, 0), (0, 1), (0, 0)],
    }[passes]
    return sum(product(left[i], right[j]) for i, j in pairs)


def error(x, exact):
    return ((x.cpu().double() - exact).norm() / exact.norm()).item()


def matrices(n=512):
    generator = torch.Generator().manual_seed(0)
    return (torch.randn(n, n, generator=generator) for _ in range(2))


def test_one_pass_is_a_bf16_split_by_hand_in_numpy():
    import numpy as np

    a, b = (x.numpy() for x in matrices())

    def bf16(x):  # round to nearest, ties to even, on the bits
        bits = x.view(np.uint32).astype(np.uint64)
        return ((bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000).astype(np.uint32).view(np.float32)

    exact = torch.from_numpy(a.astype(np.float64) @ b.astype(np.float64))
    theirs = error(torch.from_numpy(bf16(a) @ bf16(b)), exact)
    torch.set_float32_matmul_precision("medium")
    ours = error(torch.from_numpy(a).to("tpu") @ torch.from_numpy(b).to("tpu"), exact)
    assert theirs / 2 < ours < 2 * theirs
    assert 1e-3 < ours < 1e-2


def test_more_passes_are_nearer_and_highest_is_plain_f32():
    a, b = matrices()
    exact, x, y = a.double() @ b.double(), a.to("tpu"), b.to("tpu")
    plain = x @ y
    errors = []
    for passes in (1, 3, 6):
        torch.tpu.rehearse_passes(passes)
        errors.append(error(x @ y, exact))
        assert errors[-1] < 2 * error(by_hand(a, b, passes), exact) + 1e-7
    assert errors[0] > 50 * errors[1] > 100 * errors[2], errors
    torch.tpu.rehearse_passes(0)
    assert torch.equal(x @ y, plain)


def test_torch_s_setting_chooses_and_costs_one_program_a_setting():
    a, b = (x[:64, :32].contiguous().to("tpu") for x in matrices())
    results = {}
    for setting in ("highest", "high", "medium"):
        torch.set_float32_matmul_precision(setting)
        results[setting] = torch.mm(a, b.t()).cpu()
    assert len({tuple(r.flatten().tolist()) for r in results.values()}) == 3
    torch.tpu.reset_counters()
    for setting in ("medium", "high", "highest", "high"):
        torch.set_float32_matmul_precision(setting)
        assert torch.equal(torch.mm(a, b.t()).cpu(), results[setting])
    assert torch.tpu.counters()["compiles"] == 0


def products():
    """name -> (function, its tensors)."""
    generator = torch.Generator().manual_seed(1)

    def r(*shape):
        return torch.randn(shape, generator=generator)

    return {
        "mm": (torch.mm, r(16, 24), r(24, 8)),
        "bmm": (torch.bmm, r(3, 16, 24), r(3, 24, 8)),
        "addmm": (lambda x, y: torch.addmm(torch.ones(8, device=x.device), x, y), r(16, 24), r(24, 8)),
        "baddbmm": (lambda x, y: torch.baddbmm(torch.ones(3, 1, 8, device=x.device), x, y), r(3, 16, 24), r(3, 24, 8)),
        "addmv": (lambda x, y: torch.mv(x, y), r(16, 24), r(24)),
        "dot": (torch.dot, r(64), r(64)),
        "linear": (F.linear, r(2, 5, 24), r(8, 24)),
        "einsum": (lambda x, y: torch.einsum("bij,bkj->bik", x, y), r(3, 5, 24), r(3, 8, 24)),
        "conv1d": (F.conv1d, r(2, 4, 20), r(8, 4, 3)),
        "conv2d": (lambda x, w: F.conv2d(x, w, padding=1, stride=2), r(2, 4, 9, 9), r(8, 4, 3, 3)),
        "pointwise": (F.conv2d, r(2, 4, 9, 9), r(8, 4, 1, 1)),
        "depthwise": (lambda x, w: F.conv2d(x, w, groups=4), r(2, 4, 9, 9), r(4, 1, 3, 3)),
        "grouped": (lambda x, w: F.conv2d(x, w, groups=2), r(2, 4, 9, 9), r(8, 2, 3, 3)),
        "conv3d": (F.conv3d, r(1, 2, 5, 6, 6), r(3, 2, 2, 3, 3)),
        "transposed": (lambda x, w: F.conv_transpose2d(x, w, stride=2), r(2, 4, 5, 5), r(4, 3, 3, 3)),
    }


NO_PRODUCT = {"addmv": {1}, "dot": {1, 2}}  # gradients that are made element by element


@pytest.mark.parametrize("name", list(products()))
def test_products_and_their_gradients_follow(name):
    """Operands that bf16 holds are multiplied exactly by one pass; others are rounded first, in the backward too."""
    function, *operands = products()[name]

    def run(device, passes, tensors, cotangent=None):
        torch.tpu.rehearse_passes(passes)
        leaves = [t.detach().to(device).requires_grad_() for t in tensors]
        result = function(*leaves)
        cotangent = torch.ones_like(result) * 1.01 if cotangent is None else cotangent.to(device)
        return [result, *torch.autograd.grad(result, leaves, cotangent)]

    one = run("tpu", 1, operands)
    held = [rounded(t) for t in operands]
    cotangent = rounded(torch.full_like(one[0].detach().cpu(), 1.01))
    expected = run("cpu", 0, held, cotangent)
    for i, (ours, theirs) in enumerate(zip(one, expected, strict=True)):
        if i in NO_PRODUCT.get(name, ()):
            continue
        torch.testing.assert_close(ours.detach().cpu(), theirs.detach(), rtol=2e-5, atol=2e-5)
    full = run("tpu", 0, operands)
    assert any(not torch.allclose(a, b, rtol=1e-4, atol=1e-5) for a, b in zip(one, full, strict=True))


def test_attention_and_complex_products_follow():
    generator = torch.Generator().manual_seed(2)
    q, k, v = (torch.randn(1, 2, 16, 8, generator=generator) for _ in range(3))
    exact = F.scaled_dot_product_attention(q.double(), k.double(), v.double())
    z = torch.randn(32, 32, dtype=torch.complex64, generator=generator)
    square = z.to(torch.complex128) @ z.to(torch.complex128)
    errors = []
    for passes in (1, 3, 6):
        torch.tpu.rehearse_passes(passes)
        w = z.to("tpu")
        of_complex = ((w @ w).cpu().to(torch.complex128) - square).abs().norm() / square.abs().norm()
        out = F.scaled_dot_product_attention(q.to("tpu"), k.to("tpu"), v.to("tpu"))
        errors.append((error(out, exact), of_complex.item()))
    assert errors[0][0] > 10 * errors[1][0] and errors[0][1] > 10 * errors[1][1] > 10 * errors[2][1], errors


def test_other_types_and_other_ops_do_not_change():
    generator = torch.Generator().manual_seed(3)
    x = torch.randn(64, 64, generator=generator).to("tpu")
    before = [x.double() @ x.double(), x.bfloat16() @ x.bfloat16(), x.sum(1), x.exp(), F.layer_norm(x, (64,))]
    torch.set_float32_matmul_precision("medium")
    torch.tpu.reset_counters()
    after = [x.double() @ x.double(), x.bfloat16() @ x.bfloat16(), x.sum(1), x.exp(), F.layer_norm(x, (64,))]
    for a, b in zip(before, after, strict=True):
        assert torch.equal(a, b)


def test_infinities_stay():
    x = torch.tensor([[float("inf"), 1.0], [2.0, -float("inf")]]).to("tpu")
    eye = torch.tensor([[1.0, 1.0], [1.0, 1.0]]).to("tpu")
    plain = x @ eye
    for passes in (1, 3, 6):
        torch.tpu.rehearse_passes(passes)
        assert torch.equal(x @ eye, plain)


def test_the_override_and_its_errors():
    a, b = (x[:32, :32].contiguous().to("tpu") for x in matrices())
    torch.set_float32_matmul_precision("medium")
    one = a @ b
    torch.tpu.rehearse_passes(6)
    assert torch.equal(a @ b, one), "a job's own setting counts"
    torch.tpu.rehearse_passes(6, always=True)
    assert not torch.equal(a @ b, one)
    with pytest.raises(ValueError, match="2 is not a number of bf16 passes"):
        torch.tpu.rehearse_passes(2)


def test_a_contradiction_in_torch_s_settings_is_another_device_s_affair():
    a, b = (x[:32, :32].contiguous().to("tpu") for x in matrices())
    plain = a @ b
    before = torch.backends.cuda.matmul.fp32_precision
    try:
        torch.backends.cuda.matmul.fp32_precision = "tf32"
        assert torch.equal(a @ b, plain)
    finally:
        torch.backends.cuda.matmul.fp32_precision = before


def test_a_recorded_program_has_the_setting_of_its_recording():
    from tpupilot.compiler import record

    a, b = (x[:32, :32].contiguous().to("tpu") for x in matrices())
    torch.set_float32_matmul_precision("medium")
    graph = torch.fx.symbolic_trace(lambda x, y: torch.mm(x, y))
    program = record(graph, [a, b])
    assert torch.equal(program(a, b)[0], torch.mm(a, b))
    torch.set_float32_matmul_precision("highest")
    assert not torch.equal(program(a, b)[0], torch.mm(a, b))
