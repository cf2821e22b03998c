"""PyTorch's own op database on the device, compared with the CPU: value, dtype, shape, stride, and gradients.

``outcome(entry, dtype, facet)`` gives one word: "pass", "unsupported: <overload>", or "wrong: <what>". The first difference
decides. Facets: "forward", "backward". Random ops are compared in dtype and shape only.
"""

import re
import warnings

import torch
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils._pytree import tree_flatten, tree_map

SAMPLES = 3
RANDOM = {
    "bernoulli", "cauchy", "exponential", "geometric", "log_normal", "multinomial", "normal", "normal.in_place",
    "normal.number_mean", "rand_like", "randint", "randint_like", "randn", "randn_like", "uniform", "nn.functional.dropout",
    "nn.functional.dropout2d", "nn.functional.dropout3d", "nn.functional.alpha_dropout", "nn.functional.feature_alpha_dropout",
    "nn.functional.rrelu", "nn.functional.fractional_max_pool2d", "nn.functional.fractional_max_pool3d", "svd_lowrank",
    "pca_lowrank", "torch.ops.aten._efficient_attention_forward", "torch.ops.aten._flash_attention_forward",
}  # fmt: skip
TIES = {"sort", "argsort", "topk", "msort"}  # which of equal elements comes first is not specified
UNINITIALISED = {"empty", "empty_like", "empty_strided", "empty_permuted", "new_empty", "new_empty_strided"}
# XLA reorders f32 sums; these bounds are op_db's usual ones for another device.
TOLERANCE = {torch.float32: (1e-4, 1e-5), torch.bfloat16: (3.2e-2, 1e-2), torch.int64: (0, 0)}


def name_of(entry):
    return f"{entry.name}.{entry.variant_test_name}" if entry.variant_test_name else entry.name


def entries(dtype):
    return [e for e in op_db if dtype in e.dtypes]


def to_device(value, grad=False):
    def move(x):
        if isinstance(x, torch.Tensor):
            moved = x.detach().to("tpu")
            return moved.requires_grad_(x.requires_grad) if grad else moved
        return torch.device("tpu") if isinstance(x, torch.device) else "tpu" if x == "cpu" and isinstance(x, str) else x

    return tree_map(move, value)


def tensors(result):
    return [x for x in tree_flatten(result)[0] if isinstance(x, torch.Tensor)]


def draws(sample):
    return (sample.kwargs.get("dropout_p") or 0) > 0


def difference(ours, theirs, entry, dtype):
    """None, or what differs first."""
    if len(ours) != len(theirs):
        return f"{len(ours)} results instead of {len(theirs)}"
    for i, (a, b) in enumerate(zip(ours, theirs, strict=True)):
        if a.dtype != b.dtype:
            return f"result {i} has dtype {a.dtype} instead of {b.dtype}"
        if a.shape != b.shape:
            return f"result {i} has shape {tuple(a.shape)} instead of {tuple(b.shape)}"
        if name_of(entry) in RANDOM or name_of(entry) in UNINITIALISED or entry.name in RANDOM:
            continue
        if entry.name in TIES and b.dtype == torch.int64:
            continue
        rtol, atol = TOLERANCE[dtype if b.dtype == dtype or dtype.is_floating_point else torch.float32]
        try:
            torch.testing.assert_close(
                a.detach().cpu(), b.detach(), rtol=rtol, atol=atol, equal_nan=True, check_stride=False
            )
        except AssertionError as error:
            return f"result {i}: {str(error).splitlines()[0]}"
        if a.numel() > 1 and a.stride() != b.stride():
            return f"result {i} has strides {a.stride()} instead of {b.stride()}"
    return None


def overload_in(error):
    found = re.search(r"aten::[\w.]+", str(error))
    return found.group(0) if found else str(error).splitlines()[0][:80]


def run_sample(entry, sample, dtype, facet):
    grad = facet == "backward"
    theirs = entry(sample.input, *sample.args, **sample.kwargs)
    args = to_device((sample.input, sample.args, sample.kwargs), grad)
    ours = entry(args[0], *args[1], **args[2])
    ours_t, theirs_t = tensors(ours), tensors(theirs)
    if draws(sample):
        same = [(t.shape, t.dtype) for t in ours_t] == [(t.shape, t.dtype) for t in theirs_t]
        return None if same else "another shape or dtype"
    if not grad:
        return difference(ours_t, theirs_t, entry, dtype)
    leaves_theirs = [t for t in tensors((sample.input, sample.args, sample.kwargs)) if t.requires_grad]
    leaves_ours = [t for t in tensors(args) if t.requires_grad]
    roots_theirs = [t for t in theirs_t if t.requires_grad]
    roots_ours = [t for t in ours_t if t.requires_grad]
    if not roots_theirs or not leaves_theirs or len(roots_ours) != len(roots_theirs):
        return None if len(roots_ours) == len(roots_theirs) else "another number of results requires gradients"
    g_theirs = torch.autograd.grad(
        roots_theirs, leaves_theirs, [torch.ones_like(t) for t in roots_theirs], allow_unused=True
    )
    g_ours = torch.autograd.grad(roots_ours, leaves_ours, [torch.ones_like(t) for t in roots_ours], allow_unused=True)
    if [g is None for g in g_ours] != [g is None for g in g_theirs]:
        return "gradients are missing"
    return difference([g for g in g_ours if g is not None], [g for g in g_theirs if g is not None], entry, dtype)


def samples_of(entry, dtype, facet):
    iterator = entry.sample_inputs("cpu", dtype, requires_grad=facet == "backward")
    chosen = []
    for sample in iterator:
        chosen.append(sample)
        if len(chosen) == SAMPLES:
            break
    return chosen


def outcome(entry, dtype, facet):
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for sample in samples_of(entry, dtype, facet):
            try:
                what = run_sample(entry, sample, dtype, facet)
            except NotImplementedError as error:
                return f"unsupported: {overload_in(error)}"
            except Exception as error:
                return f"wrong: {type(error).__name__}: {str(error).splitlines()[0][:120] if str(error) else ''}"
            if what:
                return f"wrong: {what}"
    return "pass"
