"""Facets that compare what a call does, its error and its warnings included: `out=`, in-place forms, and calls that must raise."""

import dataclasses
import re
import warnings

import torch

from conformance import decompositions
from conformance.devices import call_of, mapped, strided, tensors, to_device, to_double, whole_storage
from conformance.facets import Nothing, by_the_cpu, on_device, other_results, results_of


@dataclasses.dataclass
class Trial:
    results: list = dataclasses.field(default_factory=list)
    error: Exception | None = None
    warned: bool = False  # that an output was resized


def trial(function):
    done = Trial()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            done.results = function()
        except Exception as error:
            done.error = error
    done.warned = any("was resized" in str(w.message) for w in caught)
    return done


def text_of(error):
    """With the device's name taken for the CPU's."""
    text = re.sub(r"\btorch\.tpu\.(?=\w+Tensor)", "torch.", str(error))  # the name of a legacy tensor type
    text = re.sub(r"\b(tpu|privateuseone)(:0)?\b", "cpu", text)
    return re.sub(r"TPU|PrivateUse1", "CPU", text)


def other_error(ours, theirs):
    """What differs between two trials of which one at least has an error; an error of ours alone goes on as it is."""
    if theirs is None or (isinstance(ours, NotImplementedError) and "aten::" in str(ours)):
        raise ours
    what = f"{type(theirs).__name__}: {shown(theirs)}"
    if ours is None:
        return f"raises nothing instead of {what}"
    if type(ours) is not type(theirs):
        return f"raises {type(ours).__name__}: {shown(ours)} instead of {what}"
    if text_of(ours) != text_of(theirs):
        return f"says {shown(ours)} instead of {shown(theirs)}"
    return None


def shown(error):
    """The first line, and whether there are more."""
    first, *rest = text_of(error).splitlines() or [""]
    return f"'{first[:110]}'" + (f" and {len(rest)} more lines" if rest else "")


def other_trial(ours, theirs, exact, entry, dtype, sample):
    if ours.error or theirs.error:
        return other_error(ours.error, theirs.error)
    if ours.warned != theirs.warned:
        return "no warning that an output was resized" if theirs.warned else "warns of a resized output"
    return other_results(ours.results, theirs.results, exact, entry, dtype, sample)


def gaps(x):
    """The elements of the storage under `x` that are not of `x`: a write must leave them."""
    whole = whole_storage(x).cpu()
    others = torch.ones(whole.shape, dtype=torch.bool)
    others.as_strided(x.shape, x.stride(), x.storage_offset()).fill_(False)
    return whole[others]


# ---- errors ----
def errors(entry, dtype, sample):
    """`sample` is an ErrorInput."""
    call = call_of(sample.sample_input)

    def tried(call):
        return trial(
            lambda: [r.cpu() for r in results_of(entry, call)]
        )  # a check of the data may come when they are read

    theirs = tried(call)
    if theirs.error is None:
        raise Nothing("raises nothing on the CPU")
    return other_error(tried(on_device(entry, call)).error, theirs.error)


# ---- out= ----
def _of_other_strides(x):
    """Of `x`'s shape in another order, with gaps: order and gaps stay."""
    base = torch.zeros((*reversed(x.shape), 2), dtype=x.dtype)
    return base[..., 0].permute(*reversed(range(x.dim()))) if x.dim() else base[0]


def _of_other_dtype(x):
    return torch.zeros(x.shape, dtype=torch.int64 if x.is_floating_point() or x.is_complex() else torch.bool)


OUTS = {
    "right size": torch.zeros_like,
    "other strides": _of_other_strides,
    "empty": lambda x: x.new_empty(0),
    "wrong size": lambda x: x.new_ones((*x.shape, 2)),
    "wrong dtype": _of_other_dtype,
}


def out(entry, dtype, sample, form):
    host = call_of(sample)
    plain = by_the_cpu(lambda: entry(host[0], *host[1], **host[2]))
    single = isinstance(plain, torch.Tensor)

    def outs(make=lambda x: x):
        made = tuple(make(OUTS[form](x.detach())) for x in tensors(plain))
        return made[0] if single else made

    def tried(call, outs):
        def function():
            given = entry(call[0], *call[1], **{**call[2], "out": outs})
            if any(a is not b for a, b in zip(tensors(given), tensors(outs), strict=True)):
                raise AssertionError("what is returned is not `out`")
            kept = form in ("right size", "other strides") and entry.name not in decompositions.CANONICAL
            return [*tensors(outs), *(gaps(x) for x in tensors(outs) if kept)]

        return trial(function)

    def wide(call):
        return decompositions.canonical(entry, results_of(entry, call))

    theirs = tried(host, outs())
    if theirs.error and (form != "wrong dtype" or "failed to match any schema" in str(theirs.error)):
        raise Nothing(f"{type(theirs.error).__name__}: {theirs.error}")
    ours = tried(on_device(entry, host), outs(to_device))
    return other_trial(ours, theirs, in_double(wide, host, len(theirs.results)), entry, dtype, sample)


# ---- in place ----
TARGETS = {"whole": lambda x: x.detach().clone(), "view": lambda x: strided(x.detach().clone())}


def in_place(entry, dtype, sample, form):
    if not isinstance(sample.input, torch.Tensor):
        raise Nothing("the input is no tensor")
    _, args, kwargs = call_of(sample)

    def written(call):
        entry.inplace_variant(call[0], *call[1], **call[2])
        return [call[0]]

    def tried(call):
        return trial(lambda: [*written(call), gaps(call[0])])

    host = (TARGETS[form](sample.input), args, kwargs)
    device = on_device(entry, host)
    exact = in_double(written, (sample.input.detach(), args, kwargs), 2)
    return other_trial(tried(device), tried(host), exact, entry, dtype, sample)


def in_double(function, call, length):
    """As facets.in_double; the gaps have no exact value."""

    def exact():
        try:
            wide = function(mapped(call, to_double))
        except Exception:
            return []
        return [*wide, *(torch.zeros(()) for _ in range(length - len(wide)))]

    return exact
