"""Complex tensors: what the op database does not see (lazy bits, special values, views of parts, compile counts)."""

import math

import pytest
import torch


@pytest.fixture
def pair():
    torch.manual_seed(0)
    return torch.randn(3, 3, dtype=torch.complex64), torch.randn(3, 3, dtype=torch.complex64)


@pytest.mark.parametrize("product", ["mm", "addmm", "dot", "vdot"])
def test_products_read_the_conjugate_bit(pair, product):
    def call(x, y):
        if product == "addmm":
            return torch.addmm(x.mH, x.conj(), y.mH)
        if product == "mm":
            return x.mH @ y.conj()
        return getattr(torch, product)(x[0].conj(), y[1])

    torch.testing.assert_close(call(*(t.to("tpu") for t in pair)).cpu(), call(*pair))


def test_a_product_writes_through_the_conjugate_bit(pair):
    results = []
    for x, y in (pair, [t.to("tpu") for t in pair]):
        out = torch.zeros_like(x)
        torch.mm(x, y, out=out.conj())
        out.conj().addmm_(x, y)
        results.append(out.cpu())
    torch.testing.assert_close(results[1], results[0])


def test_bits_are_kept_by_reads_writes_and_copies(pair):
    results = []
    for x, y in (pair, [t.to("tpu") for t in pair]):
        z = x.clone()
        z.conj().copy_(y)  # on one device
        z.imag[0] = 7
        z.conj().imag[1] = 5  # through the negative bit
        z.conj()[2].copy_(pair[0][0])  # from the host
        z.conj()[2, 2] = 1 + 2j
        results.append([z.cpu(), z.conj().cpu(), z.conj().imag.cpu(), z.mH.clone().cpu(), z.conj().imag.exp().cpu()])
        results[-1].append(torch.tensor([z.conj()[0, 0].item(), z.conj().imag[0, 0].item()]))
    torch.testing.assert_close(results[1], results[0])


def test_a_copy_with_a_bit_is_one_program(pair):
    x, y = (t.to("tpu") for t in pair)
    x.copy_(y.conj())
    before = torch.tpu.counters()["executions"]
    x.copy_(y.conj())
    assert torch.tpu.counters()["executions"] == before + 1


@pytest.mark.parametrize(
    ("dims", "norm", "dtype"),
    [
        ((0,), "forward", torch.float64),
        ((1, 0), "ortho", torch.float32),
        ((3, 1, 0, 2), None, torch.float64),
        ((0, 1, 2, 3, 4), "ortho", torch.float32),
    ],
)
def test_transforms_over_any_dims(dims, norm, dtype):
    torch.manual_seed(0)
    x = torch.randn(2, 3, 4, 5, 3, dtype=dtype)
    options = {"dim": dims, "norm": norm}
    for name in ("fftn", "ifftn", "rfftn", "irfftn"):
        expected = getattr(torch.fft, name)(x, **options)
        torch.testing.assert_close(getattr(torch.fft, name)(x.to("tpu"), **options).cpu(), expected)


def test_transforms_without_elements_and_in_place_of_another():
    x = torch.zeros(0, 4, dtype=torch.complex64, device="tpu")
    assert torch.fft.fft(x).shape == (0, 4)
    assert torch.fft.irfft(x).shape == (0, 6)
    with pytest.raises(RuntimeError, match="Invalid number of data points"):
        torch.fft.fft(x, dim=0)
    y = torch.randn(4, 6)
    out = torch.empty(0, dtype=torch.complex64, device="tpu")
    torch.fft.rfft(y.to("tpu"), out=out)
    torch.testing.assert_close(out.cpu(), torch.fft.rfft(y))


def test_a_real_signal_has_a_symmetric_two_sided_spectrum():
    y = torch.fft.fftn(torch.randn(3, 4, 5).to("tpu")).cpu()
    mirrored = y.roll((-1, -1, -1), (0, 1, 2)).flip((0, 1, 2)).conj()
    assert torch.equal(y[..., 3:], mirrored[..., 3:])


PARTS = [0.0, -0.0, 1.0, -1.0, 0.5, -2.0, 1e-20, 1e20, -100.0, math.inf, -math.inf, math.nan]
FUNCTIONS = (
    "abs acos acosh angle asin asinh atan atanh cos cosh exp exp2 expm1 log log10 log2 reciprocal rsqrt sgn sigmoid sinh sqrt"
    " square tan tanh"
).split()


def parts(x):
    return torch.view_as_real(x) if x.is_complex() else x


@pytest.mark.parametrize("name", FUNCTIONS)
def test_special_values_are_those_of_the_cpu(name):
    x = torch.tensor([complex(a, b) for a in PARTS for b in PARTS])
    ours, theirs = parts(getattr(torch, name)(x.to("tpu")).cpu()), parts(getattr(torch, name)(x))
    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-30, equal_nan=True)


def test_branch_cuts_follow_the_sign_of_zero():
    x = torch.tensor([complex(-2.0, 0.0), complex(-2.0, -0.0), complex(2.0, 0.0), complex(2.0, -0.0)])
    for name in ("sqrt", "log", "acos", "asin", "acosh", "atanh"):
        ours, theirs = getattr(torch, name)(x.to("tpu")).cpu(), getattr(torch, name)(x)
        assert torch.equal(torch.signbit(parts(ours)), torch.signbit(parts(theirs))), name


def test_exponents_that_aten_computes_by_other_means_need_no_program_of_their_own():
    x = torch.tensor([complex(a, b) for a in PARTS[:6] for b in PARTS[:6]])
    y = x.to("tpu")
    torch.pow(y, 1.5)
    before = torch.tpu.counters()["compiles"]
    for exponent in (0.0, 1.0, 0.5, 2.0, 3.0, -0.5, -1.0, -2.0, 2.5):
        ours = parts(torch.pow(y, exponent).cpu())
        torch.testing.assert_close(ours, parts(torch.pow(x, exponent)), rtol=1e-4, atol=1e-30, equal_nan=True)
    assert torch.tpu.counters()["compiles"] == before


def test_sums_of_logarithms_near_minus_infinity():
    x = torch.tensor([[complex(-math.inf, 1), complex(-math.inf, -2), 1 + 2j, complex(math.inf, 1)]])
    torch.testing.assert_close(parts(x.to("tpu").logcumsumexp(1).cpu()), parts(x.logcumsumexp(1)), equal_nan=True)


def test_zero_tensors_are_zeros_that_nobody_writes():
    zeros = torch._efficientzerotensor((3,), device="tpu")
    assert zeros.cpu().tolist() == [0, 0, 0]
    assert (zeros + torch.ones(3, device="tpu")).cpu().tolist() == [1, 1, 1]
    assert torch.dot(zeros, torch.ones(3, device="tpu")).item() == 0
    with pytest.raises(RuntimeError, match="ZeroTensors are immutable"):
        zeros.add_(1)
    x = torch.randn(4, device="tpu", requires_grad=True)
    (gradient,) = torch.autograd.grad(torch.sgn(x).sum(), x)
    assert gradient.cpu().tolist() == [0, 0, 0, 0]


def test_half_complex_is_refused_with_its_name():
    with pytest.raises((RuntimeError, NotImplementedError), match="no element type for ComplexHalf"):
        torch.zeros(2, dtype=torch.complex64, device="tpu").to(torch.complex32)
