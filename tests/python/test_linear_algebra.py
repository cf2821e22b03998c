"""Factorisations and solvers: what op_db's small, well-behaved matrices do not see."""

import pytest
import torch

SIZES = [1, 31, 32, 33, 65, 100]  # around the width of a block, and above what the plugin solves by itself
DTYPES = [torch.float64, torch.complex128]


def matrices(*shape, dtype=torch.float64):
    return torch.randn(*shape, dtype=dtype, generator=torch.Generator().manual_seed(1))


def positive(n, batch=(), dtype=torch.float64):
    x = matrices(*batch, n, n, dtype=dtype)
    return x @ x.mH + n * torch.eye(n, dtype=dtype)


def on_device(x):
    return x.to("tpu") if isinstance(x, torch.Tensor) else x


def assert_as_cpu(function, *args, **kwargs):
    theirs = function(*args, **kwargs)
    ours = function(*map(on_device, args), **kwargs)
    pairs = zip(ours, theirs, strict=True) if isinstance(theirs, tuple) else [(ours, theirs)]
    for a, b in pairs:
        torch.testing.assert_close(a.cpu(), b, rtol=1e-8, atol=1e-8)
        assert a.stride() == b.stride()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n", SIZES)
def test_factorisations_of_every_size(n, dtype):
    assert_as_cpu(torch.linalg.cholesky_ex, positive(n, (2,), dtype))
    assert_as_cpu(torch.linalg.lu_factor_ex, matrices(2, n, n, dtype=dtype))
    assert_as_cpu(torch.linalg.solve, positive(n, (), dtype), matrices(n, 3, dtype=dtype))


@pytest.mark.parametrize("shape", [(40, 70), (70, 40), (33, 2), (2, 33), (64, 96)])
def test_lu_of_rectangles(shape):
    assert_as_cpu(torch.linalg.lu_factor_ex, matrices(*shape))
    assert_as_cpu(torch.linalg.lu, matrices(3, *shape))


@pytest.mark.parametrize("upper", [False, True])
@pytest.mark.parametrize("left", [False, True])
@pytest.mark.parametrize("unitriangular", [False, True])
def test_triangular_systems_read_one_triangle(upper, left, unitriangular):
    n = 70
    a = matrices(n, n) / n + torch.eye(n)
    other = torch.triu if not upper else torch.tril
    spoiled = a + other(torch.full((n, n), float("nan"), dtype=a.dtype), 1 if not upper else -1)
    rhs = matrices(n, n)
    expected = torch.linalg.solve_triangular(a, rhs, upper=upper, left=left, unitriangular=unitriangular)
    solved = torch.linalg.solve_triangular(
        spoiled.to("tpu"), rhs.to("tpu"), upper=upper, left=left, unitriangular=unitriangular
    )
    torch.testing.assert_close(solved.cpu(), expected, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("upper", [False, True])
@pytest.mark.parametrize("n, failing", [(5, 3), (70, 1), (70, 40), (70, 70)])
def test_info_is_the_order_of_the_leading_minor(upper, n, failing):
    a = positive(n)
    a[failing - 1, failing - 1] = -1
    info = torch.linalg.cholesky_ex(torch.stack([a, positive(n)]).to("tpu"), upper=upper).info
    assert info.tolist() == [failing, 0]


def test_nan_is_not_positive_definite():
    a = positive(4)
    a[2, 2] = float("nan")
    assert torch.linalg.cholesky_ex(a.to("tpu")).info.item() == 3


@pytest.mark.parametrize("n, zero", [(4, 2), (70, 1), (70, 50)])
def test_info_is_the_first_zero_pivot(n, zero):
    a = torch.eye(n)
    a[zero - 1, zero - 1] = 0
    a[n - 1, n - 1] = 0
    assert torch.linalg.lu_factor_ex(a.to("tpu")).info.item() == torch.linalg.lu_factor_ex(a).info.item() == zero


def raised(function, *args, **kwargs):
    with pytest.raises(RuntimeError) as error:
        function(*args, **kwargs)
    return type(error.value), str(error.value)


@pytest.mark.parametrize(
    "function",
    [
        torch.linalg.cholesky,
        torch.cholesky,
        torch.linalg.inv,
        torch.linalg.lu_factor,
        lambda a: torch.linalg.solve(a, a),
        lambda a: torch.linalg.cholesky_ex(a, check_errors=True),
        lambda a: torch.linalg.inv_ex(a, check_errors=True),
        lambda a: torch.linalg.lu_factor_ex(a, check_errors=True),
        lambda a: torch.linalg.solve_ex(a, a, check_errors=True),
        lambda a: torch.linalg.lu_factor(a, pivot=False),
        lambda a: torch.linalg.lu(a, pivot=False),
    ],
)
@pytest.mark.parametrize("batch", [(), (2,)])
def test_failures_are_reported_as_on_the_cpu(function, batch):
    a = torch.diag(torch.tensor([1.0, 0.0, -1.0])).expand(*batch, 3, 3)
    theirs = raised(function, a)
    for _ in range(2):  # the second call's program is known
        kind, text = raised(function, a.to("tpu"))
        assert kind is theirs[0]
        assert theirs[1].splitlines()[0] in text


@pytest.mark.parametrize("shape", [(0, 0), (0, 3, 3), (2, 0, 0)])
def test_zero_sizes(shape):
    a = torch.zeros(shape)
    for function in (
        torch.linalg.det,
        torch.linalg.slogdet,
        torch.linalg.inv,
        torch.linalg.cholesky_ex,
        torch.matrix_exp,
    ):
        assert_as_cpu(function, a)
    assert_as_cpu(torch.linalg.lu_factor_ex, a)
    assert_as_cpu(torch.linalg.lu, a)
    assert_as_cpu(torch.linalg.solve, a, a)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("scale", [0, 1e-9, 1e-3, 1, 10, 200])
def test_exponential_over_norms(scale, dtype):
    x = matrices(3, 4, 4, dtype=dtype)
    x = (x - x.mH) * scale  # bounded: the exponential is unitary
    theirs, ours = torch.matrix_exp(x), torch.matrix_exp(x.to("tpu")).cpu()
    torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-10)


def test_exponential_overflows_and_keeps_nan():
    x = torch.stack([torch.eye(2) * 100, torch.eye(2), torch.full((2, 2), float("nan"))])
    result = torch.matrix_exp(x.to("tpu")).cpu()
    assert result[0, 0, 0] == float("inf")
    torch.testing.assert_close(result[1], torch.matrix_exp(x[1]))
    assert result[2].isnan().all()


@pytest.mark.parametrize("contiguous", [True, False])
def test_derivatives_hold_for_either_layout(contiguous):
    a = matrices(2, 5, 5)  # neither symmetric nor free of swaps
    a = a if contiguous else a.mT
    b = matrices(2, 5, 2)

    def gradient(a, b):
        a, b = a.detach().requires_grad_(), b.detach().requires_grad_()
        total = torch.linalg.det(a).sum() + torch.linalg.solve(a, b).sum() + torch.linalg.slogdet(a)[1].sum()
        return torch.autograd.grad(total, (a, b))

    for ours, theirs in zip(gradient(a.to("tpu"), b.to("tpu")), gradient(a, b), strict=True):
        torch.testing.assert_close(ours.cpu(), theirs)


def test_out_tensors_of_another_size_and_layout():
    a = positive(4)
    out = torch.empty(2, dtype=a.dtype, device="tpu")
    torch.linalg.inv(a.to("tpu"), out=out)
    torch.testing.assert_close(out.cpu(), torch.linalg.inv(a))
    rows = torch.empty(4, 4, dtype=a.dtype, device="tpu")
    torch.linalg.cholesky(a.to("tpu"), out=rows)
    torch.testing.assert_close(rows.cpu(), torch.linalg.cholesky(a))
    torch.cholesky(a.to("tpu"), out=out)
    torch.testing.assert_close(out.cpu(), torch.cholesky(a))


def test_lazily_conjugated_operands():
    a, b = positive(3, (), torch.complex128), matrices(3, 2, dtype=torch.complex128)
    x, y = a.to("tpu"), b.to("tpu")
    torch.testing.assert_close(torch.mm(x.mH, y).cpu(), torch.mm(a.mH, b))
    solved = torch.linalg.solve_triangular(x.mH, y, upper=True).cpu()
    torch.testing.assert_close(solved, torch.linalg.solve_triangular(a.mH, b, upper=True))
