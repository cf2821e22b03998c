"""Special functions and orthogonal polynomials where op_db does not look: borders, NaN, degrees, compile counts."""

import pytest
import torch
from torch import special

BORDERS = [0.0, -0.0, 1.0, -1.0, 2.0, 8.0, 1e-10, float("inf"), -float("inf"), float("nan")]
FUNCTIONS = """
i0 i0e i1 i1e ndtri log_ndtr erfcx airy_ai bessel_j0 bessel_j1 bessel_y0 bessel_y1 modified_bessel_k0 modified_bessel_k1
scaled_modified_bessel_k0 scaled_modified_bessel_k1 spherical_bessel_j0
""".split()
POLYNOMIALS = [f"{s}chebyshev_polynomial_{kind}" for s in ("", "shifted_") for kind in "tuvw"] + [
    "hermite_polynomial_h", "hermite_polynomial_he", "laguerre_polynomial_l", "legendre_polynomial_p",
]  # fmt: skip


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_special_function_at_its_borders(name):
    x, f = torch.tensor(BORDERS, dtype=torch.float64), getattr(special, name)
    torch.testing.assert_close(f(x.to("tpu")).cpu(), f(x), rtol=1e-12, atol=1e-15, equal_nan=True)


@pytest.mark.parametrize("f", [torch.igamma, torch.igammac])
@pytest.mark.parametrize(("dtype", "rtol"), [(torch.float64, 2e-8), (torch.float32, 2e-4)])  # ATen's pi is f32's
def test_the_incomplete_gamma_functions_at_borders_and_between_methods(f, dtype, rtol):
    values = torch.tensor([*BORDERS, 0.5, 1.1, 2.5, 19.0, 21.0, 25.0, 200.0, 210.0, 1000.0, 1030.0], dtype=dtype)
    a, x = (t.contiguous() for t in torch.meshgrid(values, values, indexing="ij"))
    torch.testing.assert_close(f(a.to("tpu"), x.to("tpu")).cpu(), f(a, x), rtol=rtol, atol=1e-6 * rtol, equal_nan=True)


@pytest.mark.parametrize("name", POLYNOMIALS)
def test_a_polynomial_of_each_degree(name):
    f = getattr(special, name)
    x = torch.tensor([*BORDERS, 0.3, -0.7, 0.99, -3.0], dtype=torch.float64)
    n = torch.tensor([-1.0, 0.0, 1.0, 2.0, 5.0, 7.0, 9.0, 30.0, 2.7, float("nan"), float("inf")], dtype=torch.float64)
    x, n = (t.contiguous() for t in torch.meshgrid(x, n, indexing="ij"))
    torch.testing.assert_close(f(x.to("tpu"), n.to("tpu")).cpu(), f(x, n), rtol=1e-10, atol=1e-12, equal_nan=True)


def test_another_degree_compiles_nothing(counted):
    x = torch.rand(5).to("tpu")
    special.legendre_polynomial_p(x, 3)
    with counted() as c:
        special.legendre_polynomial_p(x, 17)
    assert c["compiles"] == 0


def test_a_hash_of_bits():
    for x in (torch.randn(3, 4), torch.tensor([[-1, 7]], dtype=torch.int8), torch.tensor([True, True, True])):
        assert torch.hash_tensor(x.to("tpu")).cpu().item() == torch.hash_tensor(x).item()
