"""What op_db does not see of the neural-network ops: other scalars compile nothing, and the edges of ATen's semantics."""

import math

import pytest
import torch
import torch.nn.functional as F


def compiles(call, values):
    """How many programs the calls after the first compile."""
    call(values[0])
    before = torch.tpu.counters()["compiles"]
    for value in values[1:]:
        call(value)
    return torch.tpu.counters()["compiles"] - before


def same(op, *tensors):
    torch.testing.assert_close(op(*(t.to("tpu") for t in tensors)).cpu(), op(*tensors), equal_nan=True)


X = torch.linspace(-2, 3, 24).reshape(4, 6)


@pytest.mark.parametrize(
    "call",
    [
        lambda v: torch.cdist(X.to("tpu"), X.to("tpu")[:3], p=v),
        lambda v: F.pdist(X.to("tpu"), p=v),
        lambda v: F.multi_margin_loss(X.to("tpu"), torch.tensor([0, 1, 2, 5], device="tpu"), margin=v),
        lambda v: F.rrelu(X.to("tpu"), v / 10, v / 5),
        lambda v: F.interpolate(X.to("tpu")[None, None], scale_factor=2 + v / 100, mode="bicubic"),
    ],
    ids=["cdist", "pdist", "margin", "rrelu", "bicubic"],
)
def test_another_scalar_compiles_nothing(call):
    assert compiles(call, [1.5, 0.5, 3.0]) == 0


@pytest.mark.parametrize("p", [0.0, 0.5, 1.0, 2.0, 3.0, math.inf])
def test_distances_of_every_kind(p):
    y = X[:3] + 0.25
    same(lambda a, b: torch.cdist(a, b, p=p, compute_mode="donot_use_mm_for_euclid_dist"), X, y)
    same(lambda a: F.pdist(a, p=p), X)


def test_equal_rows_have_no_slope():
    for device in ("cpu", "tpu"):
        x = torch.ones(2, 3, device=device, requires_grad=True)
        torch.cdist(x, x.detach(), p=2.0).sum().backward()
        assert torch.equal(x.grad.cpu(), torch.zeros(2, 3))


@pytest.mark.parametrize("reduce", ["sum", "mean", "max", "min", "prod"])
def test_empty_segments_and_what_lies_behind_the_last(reduce):
    lengths = torch.tensor([2, 0, 3])
    same(lambda d, n: torch.segment_reduce(d, reduce, lengths=n, axis=0, unsafe=True), torch.arange(1.0, 6.0), lengths)
    same(
        lambda d, n: torch.segment_reduce(d, reduce, lengths=n, initial=2.0, unsafe=True),
        torch.arange(1.0, 6.0),
        lengths,
    )


def test_an_impossible_target_is_infinite_or_nothing():
    probs = torch.randn(2, 1, 4).log_softmax(2)
    target, lengths = torch.tensor([[1, 1, 1]]), ([2], [3])
    for zero in (False, True):
        grads = []
        for device in ("cpu", "tpu"):
            x = probs.to(device, copy=True).requires_grad_()
            loss = F.ctc_loss(x, target.to(device), *lengths, zero_infinity=zero, reduction="sum")
            assert loss.item() == (0 if zero else math.inf)
            loss.backward()
            grads.append(x.grad.cpu())
        torch.testing.assert_close(*grads, equal_nan=True)


def test_ctc_of_several_lengths_and_of_empty_targets():
    torch.manual_seed(0)
    probs, targets = torch.randn(7, 3, 5).log_softmax(2), torch.tensor([1, 1, 3, 2])
    grads = []
    for device in ("cpu", "tpu"):
        x = probs.to(device, copy=True).requires_grad_()
        F.ctc_loss(x, targets.to(device), [7, 5, 6], [3, 0, 1], reduction="sum").backward()
        grads.append(x.grad.cpu())
    torch.testing.assert_close(*grads)


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
@pytest.mark.parametrize("padding_idx", [None, 2])
def test_bags_that_are_empty_or_all_padding(mode, padding_idx):
    indices, offsets = torch.tensor([2, 2, 0, 1, 3, 3]), torch.tensor([0, 2, 2, 5, 6])
    grads = []
    for device in ("cpu", "tpu"):
        table = (X.to(device) - 1).requires_grad_()
        out = F.embedding_bag(indices.to(device), table, offsets.to(device), mode=mode, padding_idx=padding_idx,
                              include_last_offset=True)  # fmt: skip
        (out * torch.arange(1.0, 25.0, device=device).reshape(4, 6)).sum().backward()
        grads += [out.detach().cpu(), table.grad.cpu()]
    torch.testing.assert_close(grads[:2], grads[2:])


@pytest.mark.parametrize("mode", ["reflect", "replicate"])
def test_padding_that_cuts(mode):
    same(lambda x: F.pad(x, (-2, 3), mode=mode), X[None])
    same(lambda x: F.pad(x, (2, -1, 1, -1), mode=mode), X[None])


@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
def test_grids_far_outside(padding):
    image, grid = X[None, None], torch.tensor([[[[-9.0, 0.3], [1.0, 1.0], [7.3, -4.1]]]])
    for mode in ("bilinear", "nearest", "bicubic"):
        same(lambda x, g, mode=mode: F.grid_sample(x, g, mode, padding, align_corners=False), image, grid)


@pytest.mark.parametrize("narrow", [False, True])
def test_what_batch_norm_saves(narrow):
    dtype = torch.bfloat16 if narrow else torch.float32
    for training in (True, False):
        saved = []
        for device in ("cpu", "tpu"):
            x, one = torch.ones(2, 3, 4, dtype=dtype, device=device), torch.ones(3, dtype=dtype, device=device)
            out = torch.native_batch_norm(x, one, one, one.clone(), one.clone(), training, 0.1, 1e-5)
            saved.append([(t.shape, t.dtype) for t in out])
        assert saved[0] == saved[1]
