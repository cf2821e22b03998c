"""Whether results on the device are those of the CPU: value, dtype, shape, stride.

A floating result that is not close to the CPU's is held against the same call in f64: it may be no further from it than K times the
CPU's own error, in RMSE and at the 99.9th percentile. Random results are compared as draws from one distribution.
"""

import re

import torch

# XLA reorders f32 sums; these bounds are op_db's usual ones for another device. Integers and booleans are exact.
TOLERANCE = {
    torch.float64: (1e-7, 1e-7),
    torch.complex128: (1e-7, 1e-7),
    torch.float32: (1e-4, 1e-5),
    torch.complex64: (1e-4, 1e-5),
    torch.float16: (4e-3, 1e-3),
    torch.bfloat16: (3.2e-2, 1e-2),
}
K = {torch.float32: 2, torch.complex64: 2, torch.bfloat16: 3, torch.float16: 3}


def tolerance(of_result, of_input):
    """A result is no more exact than the input: an f32 result of bf16 inputs has bf16's bounds."""
    bounds = [TOLERANCE[d] for d in (of_result, of_input) if d in TOLERANCE]
    return max(bounds) if of_result in TOLERANCE else (0, 0)


def within_k(ours, theirs, exact, dtype):
    """The f64 rule for one tensor."""
    if dtype not in K or exact.shape != theirs.shape or not exact.numel() or not bool(exact.isfinite().all()):
        return False
    if not (exact.is_floating_point() or exact.is_complex()):
        return False

    def errors(x):
        distances = (x.to(exact.dtype) - exact).abs().flatten()
        return distances.square().mean().sqrt().item(), distances.quantile(0.999, interpolation="higher").item()

    return all(a <= K[dtype] * b for a, b in zip(errors(ours), errors(theirs), strict=True))  # a NaN compares as false


def other_form(ours, theirs):
    """What differs in number, dtype, shape or stride first."""
    if len(ours) != len(theirs):
        return f"{len(ours)} results instead of {len(theirs)}"
    for i, (a, b) in enumerate(zip(ours, theirs, strict=True)):
        if a.dtype != b.dtype:
            return f"result {i} has dtype {a.dtype} instead of {b.dtype}"
        if a.shape != b.shape:
            return f"result {i} has shape {tuple(a.shape)} instead of {tuple(b.shape)}"
        if a.layout == b.layout == torch.strided and a.numel() > 1 and a.stride() != b.stride():
            return f"result {i} has strides {a.stride()} instead of {b.stride()}"
    return None


def other_values(ours, theirs, exact, dtype, ignored=()):
    """What differs in value first. `exact()` gives the same tensors in f64, or none of them. `ignored`: dtypes not compared."""
    for i, (a, b) in enumerate(zip(ours, theirs, strict=True)):
        if b.dtype in ignored:
            continue
        a, b = a.detach().cpu(), b.detach()
        rtol, atol = tolerance(b.dtype, dtype)
        try:
            torch.testing.assert_close(a, b, rtol=rtol, atol=atol, equal_nan=True, check_stride=False)
        except AssertionError as error:
            wide = exact()
            if len(wide) != len(theirs) or not within_k(a, b, wide[i], dtype):
                return f"result {i}: {_summary(error)}"
    return None


def _summary(error):
    """The first line of assert_close's text, and the greatest difference, coarsely so that the text stays the same from run to run."""
    greatest = re.search(r"(Greatest absolute|Absolute) difference: ([\d.e+-]+|inf|nan)", str(error))
    return str(error).splitlines()[0] + (f" Greatest difference: {float(greatest[2]):.0e}" if greatest else "")


def other_distribution(ours, theirs):
    """Two draws as sets: Mann and Whitney's test of location, then of the distances from the median, both at 5 sigma."""
    for i, (a, b) in enumerate(zip(ours, theirs, strict=True)):
        if b.is_complex():
            a, b = torch.view_as_real(a.detach().cpu()), torch.view_as_real(b.detach())
        a, b = (x.detach().cpu().double().flatten().nan_to_num(nan=1e300) for x in (a, b))
        if min(a.numel(), b.numel()) < 20:
            continue
        sigma = ((a.numel() + b.numel() + 1) / (12 * a.numel() * b.numel())) ** 0.5
        middle = b.median()
        for what, x, y in (("location", a, b), ("spread", (a - middle).abs(), (b - middle).abs())):
            order = (x[:, None] < y).double() + 0.5 * (x[:, None] == y).double()
            if not abs(order.mean() - 0.5) <= 5 * sigma:
                return (
                    f"result {i} is drawn from another distribution ({what}: {float(order.mean()):.2f} instead of 0.5)"
                )
    return None
