"""An inference job with custom operators that are written out of PyTorch's own, so that they run on every device.

FAULTS names what tests make wrong, one operator for each, and on the device alone: a kernel that ignores where its input
begins, a gradient that lacks a factor, an empty input whose result is not empty, an error that the CPU does not raise, and
an operator without a kernel for the device.
"""

import torch

FAULTS = []


def swish(x, weight):
    return x * torch.sigmoid(x * weight)


def setup_context(ctx, inputs, output):
    ctx.save_for_backward(*inputs)


def declare(name, fault=""):
    """Registers tests::<name>; faults show on the device alone."""

    @torch.library.custom_op(f"tests::{name}", mutates_args=(), device_types="cpu" if fault == "no_kernel" else None)
    def operator(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        wrong = fault if x.device.type != "cpu" else ""
        if wrong == "offset":
            return swish(x.as_strided(x.shape, x.stride(), 0), weight)
        if wrong == "empty" and x.numel() == 0:
            return x.new_zeros(1, x.shape[-1])
        if wrong == "raises" and not x.is_contiguous():
            raise ValueError("this kernel wants contiguous input")
        return swish(x, weight)

    @operator.register_fake
    def _(x, weight):
        return torch.empty_like(x)

    def backward(ctx, gradient):
        x, weight = ctx.saved_tensors
        s = torch.sigmoid(x * weight)
        slope = gradient * x * s * (1 - s)
        factor = 0.9 if fault == "gradient" and x.device.type != "cpu" else 1
        return gradient * s + slope * weight * factor, (slope * x).sum(0)

    operator.register_autograd(backward, setup_context=setup_context)
    return operator


custom_swish = declare("swish")
for fault in FAULTS:
    declare(fault, fault)


def pair(values, index):
    """A plain function, of a nest: named as custom_ops() may name one."""
    return {"chosen": values["table"][index], "count": len(index)}


def custom_ops():
    generator = torch.Generator().manual_seed(3)
    x, weight = torch.randn(4, 6, generator=generator), torch.rand(6, generator=generator)
    table = torch.randn(5, 3, generator=generator)
    return {
        "tests::swish": [(x, weight), (x.bfloat16(), weight.bfloat16())],
        "pair": [({"table": table}, torch.tensor([0, 4, 2]))],
        **{f"tests::{fault}": [(x, weight)] for fault in FAULTS},
    }


def model():
    return torch.nn.Linear(6, 6)


def batch(step):
    return torch.randn(4, 6, generator=torch.Generator().manual_seed(step))


def forward(model, batch):
    return custom_swish(model(batch), torch.ones(6, device=batch.device))
