"""The table of small inputs that broke other back ends (views, dtypes, NaN and ties, empties, convolution, indexing): a function of
the device, run on the CPU first. Value, dtype, shape, stride and the raised error must be the CPU's."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

nan = float("nan")


def base_after_data(dev):
    x = torch.zeros(10, device=dev)
    old = x.view(2, 5)
    x.data = x.data + 1
    new = x.view(2, 5)
    x.data.add_(1)
    return x, old, new


def view_written_after_a_sync(dev):
    a = torch.zeros(1, 10, device=dev)
    v = a.view(10, 1)
    if dev == "tpu":
        torch.tpu.synchronize()
    v[0, 0] = 1
    return a


def copy_into_a_slice(dev):
    b = torch.zeros(4, 4, device=dev)
    b[:3, :3].copy_(torch.ones(3, 3, device=dev))
    b[0] = 2
    return b, b.sum()


def write_through_expanded(dev):
    x = torch.arange(6, device=dev)
    y = x.expand(2, 6)
    y[0, 0] = 5
    return x, y


def activation_zeroed_in_place(dev):
    torch.manual_seed(0)
    layer = nn.Linear(8, 16).to(dev)
    y = layer(torch.linspace(-1, 1, 32).view(4, 8).to(dev))
    y[:, :12] = 0
    y.sum().backward()
    return layer.weight.grad


def data_of_another_shape(dev):
    p = torch.zeros(4, device=dev, requires_grad=True)
    p.data = torch.zeros(1, device=dev)
    return p.detach()


def host_operand_with_an_offset(dev):
    return torch.full((2, 2), 4.0, device=dev) * torch.tensor([9.0, 2.0, 7.0])[1]


def batch_norm_of_a_slice(dev):
    x = torch.linspace(-2, 3, 300).view(4, 3, 5, 5).to(dev)
    return F.batch_norm(x[1:], None, None, training=True)


def masked_store_after_conversion(dev):
    a = torch.tensor([1, 2, 3, 4], device=dev).to(torch.float32)
    a[torch.tensor([True, False, False, True], device=dev)] = 0
    return a


def bf16_times_float(dev):
    x = torch.ones(3, dtype=torch.bfloat16, device=dev)
    x *= 0.5
    return x


def sine_of_int8(dev, dtype=None):
    old = torch.get_default_dtype()
    try:
        torch.set_default_dtype(dtype or old)
        return torch.sin(torch.tensor([1], dtype=torch.int8, device=dev))
    finally:
        torch.set_default_dtype(old)


def every_target_ignored(dev):
    x = torch.linspace(-1, 1, 6).view(2, 3).to(dev).requires_grad_()
    loss = F.nll_loss(x.log_softmax(1), torch.tensor([0, 0], device=dev), ignore_index=0)
    loss.backward()
    return loss.detach(), x.grad


def double_backward_of_a_strided_convolution(dev):
    torch.manual_seed(0)
    conv = nn.Conv2d(3, 4, 3, 2, 1).to(dev)
    x = torch.linspace(-1, 1, 2 * 3 * 8 * 8).view(2, 3, 8, 8).to(dev).requires_grad_()
    (g,) = torch.autograd.grad(conv(x).pow(2).sum(), x, create_graph=True)
    g.pow(2).sum().backward()
    return g.detach(), x.grad, conv.weight.grad


def depthwise_convolution(dev):
    x = torch.linspace(-1, 1, 512).view(2, 4, 8, 8).to(dev).requires_grad_()
    w = torch.linspace(1, -1, 36).view(4, 1, 3, 3).to(dev).requires_grad_()
    y = F.conv2d(x, w, groups=4)
    y.pow(2).sum().backward()
    return y.detach(), x.grad, w.grad


def t(dev, data, dtype=None):
    return torch.tensor(data, dtype=dtype, device=dev)


CASES = {
    1: base_after_data,
    2: view_written_after_a_sync,
    4: copy_into_a_slice,
    5: write_through_expanded,
    7: activation_zeroed_in_place,
    8: data_of_another_shape,
    10: host_operand_with_an_offset,
    11: batch_norm_of_a_slice,
    13: lambda dev: torch.arange(24.0, device=dev).view(2, 3, 4)[1].reshape(4, 3) + 1,
    14: lambda dev: torch.arange(24.0, device=dev).view(2, 3, 4).permute(2, 0, 1)[1:3, :, 1:],
    "16 strides": lambda dev: torch.eye(3, device=dev).nonzero(),
    "16 view": lambda dev: torch.eye(3, device=dev).nonzero().view(-1),
    17: lambda dev: torch.arange(6.0).view(3, 2).t().to(dev),
    19: lambda dev: (lambda x: torch.masked_select(x.t(), x.t() > 2))(torch.arange(6.0, device=dev).view(2, 3)),
    20: lambda dev: torch.linspace(0, 1, 256, device=dev).view(2, 8, 4, 4).transpose(1, 2).contiguous(),
    22: lambda dev: t(dev, [[0], [1]])
    .expand(2, 4)
    .clone()
    .masked_fill_(torch.eye(2, 4, dtype=torch.bool, device=dev), 3),
    23: lambda dev: torch.ones(4, dtype=torch.uint8, device=dev)[t(dev, [0, 1])],
    25: lambda dev: torch.arange(10, device=dev).bfloat16().pow(3.0),
    26: lambda dev: torch.pow(2.5, t(dev, [1, 2])),
    28: lambda dev: torch.addcmul(t(dev, [1.0]), t(dev, [2.0], torch.float64), t(dev, [3.0])),
    29: bf16_times_float,
    "31 f32": sine_of_int8,
    "31 f64": lambda dev: sine_of_int8(dev, torch.float64),
    32: masked_store_after_conversion,
    34: lambda dev: torch.clamp(t(dev, [nan]), 0, 1),
    35: lambda dev: torch.clamp(t(dev, [-1.0, 5.0]), max=3.4),
    37: lambda dev: (torch.ones(3, 3, device=dev).argmax(), torch.ones(3, 3, device=dev).argmin(1)),
    38: lambda dev: torch.maximum(t(dev, [nan, 1.0]), t(dev, [1.0, nan])),
    41: lambda dev: torch.div(t(dev, -47, torch.int16), t(dev, 47, torch.int16), rounding_mode="trunc"),
    44: lambda dev: torch.remainder(t(dev, [-7, 7]), t(dev, [3, -3])),
    46: every_target_ignored,
    47: lambda dev: torch.cov(t(dev, [1.0])),
    49: lambda dev: tuple(torch.cummax(torch.rand(0, device=dev), -1)),
    50: lambda dev: torch.linspace(0, 1, 24, device=dev).view(2, 3, 4)[:, 1:1],
    52: lambda dev: torch.cat([torch.empty(0, device=dev), torch.ones(2, 2, device=dev)], -1),
    53: lambda dev: torch.zeros(2, 3, 5, device=dev)[:, :, -1:0],
    56: double_backward_of_a_strided_convolution,
    58: depthwise_convolution,
    59: lambda dev: torch.masked_scatter(
        torch.zeros(1, 5, device=dev),
        torch.ones(5, 5, dtype=torch.bool, device=dev),
        torch.linspace(0, 1, 25).view(5, 5).to(dev),
    ),
    # Of the same kinds.
    "unique": lambda dev: torch.unique(t(dev, [3, 1, 3, 2, 1]), return_inverse=True, return_counts=True),
    "unique with NaN": lambda dev: torch.unique(t(dev, [2.0, nan, 1.0, nan]), return_counts=True),
    "unique of nothing": lambda dev: torch.unique(torch.zeros(0, 3, device=dev), return_inverse=True),
    "unique slices": lambda dev: torch.unique(
        t(dev, [[1, 2, 1], [0, 5, 0], [3, 3, 3]]), dim=1, return_inverse=True, return_counts=True
    ),
    "unique slices of no elements": lambda dev: torch.unique(torch.zeros(2, 0, device=dev), dim=0),
    "unique neighbours": lambda dev: torch.unique_consecutive(
        t(dev, [1, 1, 2, 2, 1]), return_inverse=True, return_counts=True
    ),
    "nonzero of a scalar": lambda dev: (t(dev, 2).nonzero(), t(dev, 0).nonzero()),
    "nonzero of NaN": lambda dev: t(dev, [[nan, 0.0], [0.0, -0.0], [1.0, 2.0]]).nonzero(),
    "nonzero out": lambda dev: torch.nonzero(
        torch.eye(3, device=dev), out=torch.zeros(1, dtype=torch.int64, device=dev)
    ),
    "nonzero out of another dtype": lambda dev: torch.nonzero(torch.eye(3, device=dev), out=torch.zeros(1, device=dev)),
    "nonzero static": lambda dev: torch.nonzero_static(torch.eye(3, device=dev), size=5, fill_value=-7),
    "masked select broadcasts": lambda dev: torch.masked_select(t(dev, [[1], [2]]), t(dev, [True, False, True])),
    "masked select without a mask": lambda dev: torch.masked_select(t(dev, [1, 2]), t(dev, [1, 0])),
    "bincount": lambda dev: torch.bincount(t(dev, [1, 4, 1]), minlength=3),
    "bincount with weights": lambda dev: torch.bincount(t(dev, [1, 4, 1]), t(dev, [0.5, 1.0, 2.0])),
    "bincount of negatives": lambda dev: torch.bincount(t(dev, [1, -4, 1])),
    "repeats": lambda dev: torch.repeat_interleave(t(dev, [0, 2, 3])),
    "negative repeats": lambda dev: torch.repeat_interleave(t(dev, [0, -2, 3])),
    "histogram": lambda dev: torch.histogram(t(dev, [0.0, 1.0, 2.0, 2.0, 3.0]), 3),
    "histc at its edges": lambda dev: torch.histc(t(dev, [0.0, 1.0, 2.0, 3.0, 4.0, nan]), 4, 1, 3),
    "too many samples": lambda dev: torch.multinomial(torch.ones(3, device=dev), 4),
    "samples of a 3-d tensor": lambda dev: torch.multinomial(torch.ones(1, 1, 3, device=dev), 1),
}


def seen(case, dev):
    try:
        result = case(dev)
    except Exception as error:
        return type(error), str(error).splitlines()[0]
    return result if isinstance(result, tuple) else (result,)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("row", CASES)
def test_case(tpu, row):
    theirs, ours = seen(CASES[row], "cpu"), seen(CASES[row], "tpu")
    assert len(ours) == len(theirs)
    for a, b in zip(ours, theirs, strict=True):
        if not isinstance(b, torch.Tensor):
            assert a == b
            continue
        assert isinstance(a, torch.Tensor), a
        assert a.device.type == "tpu" and a.stride() == b.stride()
        torch.testing.assert_close(a.cpu(), b, equal_nan=True)


def test_transposed_convolution_without_output_channels(tpu):  # row 55: an empty result or the CPU's error
    with torch.no_grad():
        y = nn.ConvTranspose1d(4, 0, 3, device="tpu")(torch.rand(2, 4, 5, device="tpu"))
    assert y.shape == (2, 0, 7)


def test_another_count_compiles_nothing(tpu):
    def all_of(x):
        torch.masked_select(x, x > 0)
        x.nonzero()
        torch.unique(x)

    all_of(torch.tensor([1.0, 0.0, 2.0, 3.0], device="tpu"))
    before = torch.tpu.counters()["compiles"]
    all_of(torch.tensor([0.0, 0.0, 2.0, 0.0], device="tpu"))
    assert torch.tpu.counters()["compiles"] == before


def test_one_read_for_each_result(tpu):
    x = torch.tensor([1.0, 0.0, 2.0], device="tpu")
    before = torch.tpu.counters()["host_syncs"]
    x.nonzero()
    assert torch.tpu.counters()["host_syncs"] == before + 1


@pytest.mark.parametrize("replacement", [False, True])
def test_multinomial_draws_what_the_weights_say(tpu, replacement):
    torch.manual_seed(0)
    weights = torch.tensor([0.0, 1.0, 2.0, 5.0, 0.0], device="tpu")
    rows = torch.multinomial(weights.expand(4000, 5).contiguous(), 2, replacement=replacement).cpu()
    share = torch.bincount(rows[:, 0], minlength=5) / 4000
    torch.testing.assert_close(share, torch.tensor([0, 1 / 8, 2 / 8, 5 / 8, 0]), atol=0.03, rtol=0)
    assert replacement or bool((rows[:, 0] != rows[:, 1]).all())
