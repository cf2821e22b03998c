"""What is looked at in an op: each facet is a function of (entry, dtype, sample) that says what differs from the CPU, or None.

A facet that looks at several forms of a sample (layouts, zero-sized dims) gets the form's name as well. trials.py has the facets of
which the error is a part.
`Nothing` says that the CPU does not accept the form either, so that there is nothing to compare with.
"""

import torch
from torch.autograd.gradcheck import GradcheckError

from conformance import compare, database, decompositions
from conformance.devices import LAYOUTS, call_of, copied_to, mapped, tensors, to_device, to_double


class Nothing(Exception):
    pass


# ---- calls ----
def on_device(entry, call):
    if entry.name in database.ON_THE_HOST:
        return (to_device(call[0]), *call[1:])
    return mapped(call, to_device, "tpu")


def results_of(entry, call):
    return tensors(entry(call[0], *call[1], **call[2]))


def by_the_cpu(function, *arguments):
    try:
        return function(*arguments)
    except Exception as error:
        raise Nothing(f"{type(error).__name__}: {error}") from error


def other_results(ours, theirs, exact, entry, dtype, sample):
    """compare's questions in their order, as far as this entry's results are determined at all."""
    different = compare.other_form(ours, theirs)
    if different or database.draws(entry, sample):
        return different
    if database.is_random(entry):
        known = {entry.name, database.name_of(entry)} & database.INDEPENDENT
        return compare.other_distribution(ours, theirs) if known else None
    ours, theirs = (database.written(entry, sample, results) for results in (ours, theirs))
    ours, theirs = decompositions.canonical(entry, ours), decompositions.canonical(entry, theirs)
    ignored = (torch.int64,) if entry.name in database.TIES else ()
    return compare.other_values(ours, theirs, exact, dtype, ignored)


def in_double(function, call):
    """The results of the same call in f64, or none where the op, or an argument of it, knows no f64."""

    def exact():
        try:
            return function(mapped(call, to_double))
        except Exception:
            return []

    return exact


def forward_of(entry, dtype, sample, call):
    theirs = by_the_cpu(results_of, entry, call)
    device = on_device(entry, call)
    ours = results_of(entry, device)

    def wide(call):
        return decompositions.canonical(entry, [r.detach() for r in results_of(entry, call)])

    as_called = type(sample)(call[0], args=call[1], kwargs=call[2])
    different = other_results(ours, theirs, in_double(wide, call), entry, dtype, as_called)
    return different or other_aliases(ours, device, theirs, call)


def other_aliases(ours, device, theirs, host):
    """Whether a result lies in the storage of an argument is part of what an op does."""

    def aliases(results, call):
        storages = {t.untyped_storage()._cdata for t in tensors(call) if t.layout == torch.strided}
        return [r.layout == torch.strided and r.untyped_storage()._cdata in storages for r in results]

    for i, (a, b) in enumerate(zip(aliases(ours, device), aliases(theirs, host), strict=True)):
        if a != b:
            return f"result {i} " + ("shares an argument's storage" if a else "is a copy instead of a view")
    return None


# ---- forward, layouts, zero-size ----
def forward(entry, dtype, sample):
    return forward_of(entry, dtype, sample, call_of(sample))


def noncontiguous(entry, dtype, sample, form):
    return forward_of(entry, dtype, sample, call_of(sample, LAYOUTS[form]))


EMPTIED = {"first dim": (0, False), "last dim": (-1, False), "first dim of the input": (0, True)}


def zero_size(entry, dtype, sample, form):
    dim, input_only = EMPTIED[form]

    def emptied(x):
        return x.detach().narrow(dim, 0, 0).clone() if x.dim() else x

    call = call_of(sample)
    call = (mapped(call[0], emptied), *call[1:]) if input_only else mapped(call, emptied)
    if not any(t.dim() for t in tensors(call)):
        raise Nothing("no tensor has a dim")
    return forward_of(entry, dtype, sample, call)


# ---- gradients ----
def processed(entry, sample, call):
    """The results that gradients are taken of: the database says which part of a decomposition is unique."""
    return tensors(sample.output_process_fn_grad(entry.gradcheck_wrapper(entry.op, call[0], *call[1], **call[2])))


def cotangent(i, like, entry, wide=None):
    """Of result `i`, the same on each device; ones where the order of the results' elements is not determined."""
    ties = entry.name in database.TIES and (wide or like.dtype) in (torch.bfloat16, torch.float16)
    if ties or entry.name in decompositions.CANONICAL:
        return torch.ones_like(like)
    generator = torch.Generator().manual_seed(i)
    dtype = wide or like.dtype
    on_cpu = torch.complex128 if like.is_complex() else torch.float64
    return torch.randn(like.shape, dtype=on_cpu, generator=generator).to(dtype).to(like.dtype).to(like.device)


def gradients(entry, results, call, dtype=None):
    """Of every leaf that requires one; None where there is none."""
    roots, leaves = ([t for t in ts if t.requires_grad] for ts in (results, tensors(call)))
    if not roots or not leaves:
        return []
    directions = [cotangent(i, t, entry, dtype) for i, t in enumerate(roots)]
    return torch.autograd.grad(roots, leaves, directions, allow_unused=True)


def backward(entry, dtype, sample):
    host = call_of(sample)
    theirs = by_the_cpu(processed, entry, sample, host)
    g_theirs = by_the_cpu(gradients, entry, theirs, host)
    if not g_theirs:
        raise Nothing("no result requires a gradient")
    device = on_device(entry, host)
    ours = processed(entry, sample, device)
    if [t.requires_grad for t in ours] != [t.requires_grad for t in theirs]:
        return "other results require gradients"
    g_ours = gradients(entry, ours, device)
    if [g is None for g in g_ours] != [g is None for g in g_theirs]:
        return "gradients are missing"
    g_ours, g_theirs = ([g for g in gs if g is not None] for gs in (g_ours, g_theirs))
    if database.is_random(entry) or database.draws(entry, sample):
        return compare.other_form(g_ours, g_theirs)

    def wide(call):
        return [g for g in gradients(entry, processed(entry, sample, call), call, dtype) if g is not None]

    return compare.other_form(g_ours, g_theirs) or compare.other_values(g_ours, g_theirs, in_double(wide, host), dtype)


def _checked(check, entry, sample, device, **options):
    """gradcheck over the leaves that require gradients; `device` moves the call."""
    call = device(call_of(sample))
    leaves = [t for t in tensors(call) if t.requires_grad]

    def function(*values):
        given = dict(zip(map(id, leaves), values, strict=True))
        whole = mapped(call, lambda t: given.get(id(t), t))
        return tuple(t for t in processed(entry, sample, whole) if t.is_floating_point() or t.is_complex())

    torch.manual_seed(0)
    return check(function, leaves, nondet_tol=entry.gradcheck_nondet_tol, fast_mode=True, **options)


def _gradients_by_differences(check, entry, sample, **options):
    if not any(t.requires_grad and t.numel() for t in tensors(call_of(sample))):
        raise Nothing("no gradient to check")
    try:
        _checked(check, entry, sample, lambda call: on_device(entry, call), **options)
    except GradcheckError as error:
        by_the_cpu(_checked, check, entry, sample, lambda call: mapped(call, lambda t: copied_to(t, "cpu")))
        return str(error).strip().splitlines()[0]
    return None


def gradcheck(entry, dtype, sample):
    return _gradients_by_differences(torch.autograd.gradcheck, entry, sample, check_undefined_grad=False)


def gradgradcheck(entry, dtype, sample):
    return _gradients_by_differences(torch.autograd.gradgradcheck, entry, sample, check_undefined_grad=False)


# ---- a second run ----
def again(entry, dtype, sample):
    """Forward, and backward where there is one: the second time nothing is compiled."""

    def run():
        call = on_device(entry, call_of(sample))
        results = results_of(entry, call)
        if any(t.requires_grad for t in results):
            gradients(entry, results, call)
        torch.tpu.synchronize()
        return torch.tpu.counters()["compiles"]

    by_the_cpu(results_of, entry, call_of(sample))
    once = run()
    compiled = run() - once
    return f"the second run compiles {compiled} programs" if compiled else None
