"""Decompositions on the host (src/hostcalls/), where op_db does not look: errors, empty matrices, NaN, compiles."""

import pytest
import torch

NAN = float("nan")


def batch_with_nan():
    return torch.stack([torch.eye(3), torch.full((3, 3), NAN)])


@pytest.mark.parametrize(
    "function",
    [torch.linalg.eigh, torch.linalg.eigvalsh, torch.linalg.svd, torch.linalg.svdvals, torch.linalg.eig],
    ids=lambda f: f.__name__,
)
def test_what_is_not_finite_is_refused_as_on_the_cpu(function):
    def error_on(device):
        with pytest.raises(RuntimeError) as caught:
            results = function(batch_with_nan().to(device))
            results = results if isinstance(results, tuple) else (results,)
            [r.cpu() for r in results]
        return type(caught.value), str(caught.value).split("(error code")[0]

    assert error_on("tpu") == error_on("cpu")


def test_one_triangle_is_read():
    a = torch.tensor([[2.0, NAN], [1.0, 2.0]])
    torch.testing.assert_close(torch.linalg.eigvalsh(a.to("tpu")).cpu(), torch.tensor([1.0, 3.0]))
    torch.testing.assert_close(torch.linalg.eigvalsh(a.T.to("tpu"), UPLO="U").cpu(), torch.tensor([1.0, 3.0]))


@pytest.mark.parametrize("shape", [(0, 0), (0, 3), (3, 0), (0, 2, 2), (2, 0, 3)])
def test_empty_matrices(shape):
    a = torch.ones(shape)
    calls = [
        lambda x: torch.linalg.qr(x, mode="complete"),
        torch.linalg.qr,
        lambda x: torch.linalg.svd(x, full_matrices=True),
        lambda x: torch.linalg.svd(x, full_matrices=False),
        lambda x: (torch.linalg.svdvals(x),),
        torch.geqrf,
    ]
    if shape[-1] == shape[-2]:
        calls += [torch.linalg.eigh, torch.linalg.eig, lambda x: (torch.linalg.eigvals(x),), torch.linalg.ldl_factor_ex]
    for call in calls:
        for ours, theirs in zip(call(a.to("tpu")), call(a), strict=True):
            torch.testing.assert_close(ours.cpu(), theirs)
            assert ours.stride() == theirs.stride() or theirs.numel() == 0


def test_a_singular_matrix_has_an_ldl_with_its_info():
    zero = torch.zeros(3, 3, device="tpu")
    ours, theirs = torch.linalg.ldl_factor_ex(zero), torch.linalg.ldl_factor_ex(zero.cpu())
    assert all(torch.equal(a.cpu(), b) for a, b in zip(ours, theirs, strict=True))
    with pytest.raises(RuntimeError, match="ldl_factor_ex"):
        torch.linalg.ldl_factor_ex(zero, check_errors=True).info.cpu()


def test_residuals_of_lstsq_are_there_only_where_the_rank_is_full():
    b = torch.arange(8.0).reshape(4, 2)
    for a in [torch.ones(4, 3), torch.eye(4)[:, :3] + 1]:
        ours = torch.linalg.lstsq(a.to("tpu"), b.to("tpu"), driver="gelsd")
        theirs = torch.linalg.lstsq(a, b, driver="gelsd")
        for x, y in zip(ours, theirs, strict=True):
            torch.testing.assert_close(x.cpu(), y, rtol=1e-4, atol=1e-5)
    assert theirs.residuals.numel() == 2


def test_another_rcond_compiles_nothing():
    a, b = torch.randn(4, 3).to("tpu"), torch.randn(4, 2).to("tpu")
    torch.linalg.lstsq(a, b, rcond=1e-3, driver="gelsd")
    torch.linalg.pinv(a, rtol=1e-3)
    before = torch.tpu.counters()["compiles"]
    torch.linalg.lstsq(a, b, rcond=1e-2, driver="gelsd")
    torch.linalg.pinv(a, rtol=1e-2)
    assert torch.tpu.counters()["compiles"] == before


def test_large_matrices():
    torch.manual_seed(0)
    a = torch.randn(2, 130, 100)
    u, s, vh = (x.cpu() for x in torch.linalg.svd(a.to("tpu"), full_matrices=False))
    torch.testing.assert_close(u * s.unsqueeze(-2) @ vh, a, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(s, torch.linalg.svdvals(a), rtol=1e-4, atol=1e-4)
    q, r = (x.cpu() for x in torch.linalg.qr(a.to("tpu")))
    torch.testing.assert_close(q @ r, a, rtol=1e-4, atol=1e-4)
