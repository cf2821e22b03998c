"""PyTorch's own op database on the device, compared with the CPU: value, dtype, shape, stride, and gradients.

``outcome(entry, dtype, facet)`` gives one word: "pass", "unsupported: <overload>", or "wrong: <what>". The first difference
decides. Facets: "forward", "backward". Random ops are compared in dtype and shape only. A floating result that is not close to
the CPU's is held against the same call in f64: it may be no further from it than K times the CPU's own error, in RMSE and at the
99.9th percentile.
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
TIES = {"sort", "argsort", "topk", "msort", "kthvalue"}  # which of equal elements comes first is not specified
UNINITIALISED = {"empty", "empty_like", "empty_strided", "empty_permuted", "new_empty", "new_empty_strided"}
ON_THE_HOST = {"tensor_split"}  # takes its tensor of indices from the CPU only, whatever the device of its input
# XLA reorders f32 sums; these bounds are op_db's usual ones for another device.
TOLERANCE = {torch.float32: (1e-4, 1e-5), torch.bfloat16: (3.2e-2, 1e-2), torch.int64: (0, 0)}
K = {torch.float32: 2, torch.bfloat16: 3}


def name_of(entry):
    return f"{entry.name}.{entry.variant_test_name}" if entry.variant_test_name else entry.name


def entries(dtype):
    return [e for e in op_db if dtype in e.dtypes and not e.name.startswith("jiterator")]  # those refuse the CPU too


def mapped(value, tensor_function, device=None):
    """`value` with each tensor replaced, and with each mention of the CPU replaced by `device`."""

    def one(x):
        if isinstance(x, torch.Tensor):
            return tensor_function(x)
        if device and (x == "cpu" if isinstance(x, str) else isinstance(x, torch.device)):
            return torch.device(device)
        return x

    return tree_map(one, value)


def to_device(x):
    """The tensor on the device, as a leaf, at the same place in a copy of the same storage."""
    if x._is_view():
        moved = x._base.detach().to("tpu").as_strided(x.shape, x.stride(), x.storage_offset())
    else:
        moved = x.to("tpu")
    return moved.detach().requires_grad_(x.requires_grad)


def to_double(x):
    wide = torch.complex128 if x.is_complex() else torch.float64 if x.is_floating_point() else x.dtype
    return x.detach().to(wide).requires_grad_(x.requires_grad)


def tensors(result):
    return [x for x in tree_flatten(result)[0] if isinstance(x, torch.Tensor)]


def draws(entry, sample):
    attention = entry.name == "nn.functional.multi_head_attention_forward" and sample.kwargs.get("training")
    return attention or (sample.kwargs.get("dropout_p") or 0) > 0


def within_k(ours, theirs, exact, dtype):
    """The f64 rule for one tensor."""
    if dtype not in K or exact is None or exact.shape != theirs.shape or not bool(exact.isfinite().all()):
        return False

    def errors(x):
        distances = (x.to(exact.dtype) - exact).abs().flatten()
        return distances.square().mean().sqrt().item(), distances.quantile(0.999, interpolation="higher").item()

    return all(a <= K[dtype] * b for a, b in zip(errors(ours), errors(theirs), strict=True))  # a NaN compares as false


def difference(ours, theirs, exact, entry, dtype):
    """None, or what differs first. `exact()` gives the same tensors in f64, or none of them."""
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
        a, b = a.detach().cpu(), b.detach()
        rtol, atol = TOLERANCE[dtype if b.dtype == dtype or dtype.is_floating_point else torch.float32]
        try:
            torch.testing.assert_close(a, b, rtol=rtol, atol=atol, equal_nan=True, check_stride=False)
        except AssertionError as error:
            wide = exact()
            if len(wide) != len(theirs) or not within_k(a, b, wide[i], dtype):
                return f"result {i}: {str(error).splitlines()[0]}"
        if a.numel() > 1 and ours[i].stride() != b.stride():
            return f"result {i} has strides {ours[i].stride()} instead of {b.stride()}"
    return None


def overload_in(error):
    found = re.search(r"aten::[\w.]+", str(error))
    return found.group(0) if found else str(error).splitlines()[0][:80]


def call(entry, inputs):
    return tensors(entry(inputs[0], *inputs[1], **inputs[2]))


def gradients(results, inputs):
    """Of every leaf that requires one; None where there is none."""
    roots, leaves = ([t for t in ts if t.requires_grad] for ts in (results, tensors(inputs)))
    if not roots or not leaves:
        return []
    return torch.autograd.grad(roots, leaves, [torch.ones_like(t) for t in roots], allow_unused=True)


def run_sample(entry, sample, dtype, facet):
    host = (sample.input, sample.args, sample.kwargs)
    theirs = call(entry, host)
    if entry.name in ON_THE_HOST:
        device = (to_device(sample.input), sample.args, sample.kwargs)
    else:
        device = mapped(host, to_device, "tpu")
    ours = call(entry, device)
    if draws(entry, sample):
        same = [(t.shape, t.dtype) for t in ours] == [(t.shape, t.dtype) for t in theirs]
        return None if same else "another shape or dtype"

    def exact():
        try:
            wide = mapped(host, to_double)
            results = call(entry, wide)
            return results if facet == "forward" else [g for g in gradients(results, wide) if g is not None]
        except Exception:  # the op, or an argument of it, knows no f64
            return []

    if facet == "forward":
        return difference(ours, theirs, lambda: [r.detach() for r in exact()], entry, dtype)
    if [t.requires_grad for t in ours] != [t.requires_grad for t in theirs]:
        return "other results require gradients"
    g_ours, g_theirs = gradients(ours, device), gradients(theirs, host)
    if [g is None for g in g_ours] != [g is None for g in g_theirs]:
        return "gradients are missing"
    return difference([g for g in g_ours if g is not None], [g for g in g_theirs if g is not None], exact, entry, dtype)


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
