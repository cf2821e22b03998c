"""Inputs on the device that lie in memory as the CPU's do, and inputs in other layouts."""

import torch
from torch.testing._internal.common_utils import noncontiguous_like
from torch.utils._pytree import tree_flatten, tree_map


def tensors(result):
    return [x for x in tree_flatten(result)[0] if isinstance(x, torch.Tensor)]


def mapped(value, tensor_function, device=None):
    """`value` with each tensor replaced, and with each mention of the CPU replaced by `device`."""

    def one(x):
        if isinstance(x, torch.Tensor):
            return tensor_function(x)
        if device and (x == "cpu" if isinstance(x, str) else isinstance(x, torch.device)):
            return torch.device(device)
        return x

    return tree_map(one, value)


def whole_storage(x):
    """All elements of the storage under `x`, in order, as a 1-d tensor on the same storage."""
    x = x.detach()
    return x.as_strided((x.untyped_storage().nbytes() // x.element_size(),), (1,), 0)


def _plain(x):
    return (
        x.layout == torch.strided
        and not x.is_conj()
        and not x.is_neg()
        and type(x) in (torch.Tensor, torch.nn.Parameter)
    )


def copied_to(x, device):
    """A leaf on `device`, at the same place in a copy of the same storage."""
    if _plain(x) and (not x.is_contiguous() or x.storage_offset() or x.untyped_storage().nbytes() != x.nbytes):
        moved = whole_storage(x).to(device, copy=True).as_strided(x.shape, x.stride(), x.storage_offset())
    else:
        moved = x.detach().to(device, copy=True)
    return moved.detach().requires_grad_(x.requires_grad)


def to_device(x):
    return copied_to(x, "tpu")


def to_double(x):
    wide = torch.complex128 if x.is_complex() else torch.float64 if x.is_floating_point() else x.dtype
    return x.detach().to(wide).requires_grad_(x.requires_grad)


# ---- layouts: each gives the same shape; `expanded` other values ----
def strided(x):
    return noncontiguous_like(x) if _plain(x) else x


def transposed(x):
    if not _plain(x) or x.dim() < 2:
        return strided(x)
    return x.detach().mT.contiguous().mT.requires_grad_(x.requires_grad)


def offset(x):
    if not _plain(x):
        return x
    room = x.new_zeros(x.numel() + 5)
    return room[3 : 3 + x.numel()].view(x.shape).copy_(x.detach()).requires_grad_(x.requires_grad)


def expanded(x):
    if not _plain(x) or not x.dim() or not x.numel():
        return offset(x)
    return x.detach()[:1].clone().expand_as(x).requires_grad_(x.requires_grad)


LAYOUTS = {f.__name__: f for f in (strided, transposed, offset, expanded)}


def call_of(sample, tensor_function=None):
    """(input, args, kwargs) of a sample, each tensor replaced."""
    whole = (sample.input, sample.args, sample.kwargs)
    return mapped(whole, tensor_function) if tensor_function else whole
