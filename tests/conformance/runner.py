"""Runs one case: its samples, and the forms of each, until something differs from the CPU."""

import contextlib
import re
import typing
import warnings

import torch

from conformance import database, plan
from conformance.facets import Nothing


class Outcome(typing.NamedTuple):
    kind: str  # "pass", "unsupported", "wrong", or "not-applicable": the CPU has nothing to compare with
    reason: str = ""
    sample: int = -1  # that decided


def overload_in(error):
    found = re.search(r"aten::[\w.]+", str(error))
    return found.group(0) if found else first_line(error)


def first_line(error):
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0][:280].replace("\t", " ") if lines else ""


def pieces(items, forms, count):
    """(index, item, form): `count` of them, and each form, at least once as long as there are items."""
    if not forms:
        return [(i, item, ()) for i, item in database.spread(items, count)]
    chosen = database.spread(items, count)
    if not chosen:
        return []
    shift = len(chosen) % len(forms) == 0  # otherwise every sample meets one form only
    rounds = max(len(chosen), len(forms))
    return [(*chosen[i % len(chosen)], (forms[(i + shift * (i // len(chosen))) % len(forms)],)) for i in range(rounds)]


def outcome(case, count=None, only=None):
    """`only`: the index of the one sample to run, in all its forms."""
    source, facet = plan.database_of(case), plan.facet_of(case)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            items = source.items(case)
    except Exception as error:
        return Outcome("not-applicable", f"cpu: no samples: {type(error).__name__}: {first_line(error)}")
    if only is not None:
        chosen = [(only, items[only], (form,) if form else ()) for form in facet.forms or ("",)]
    else:
        chosen = pieces(items, facet.forms, count or facet.samples)
    entry, dtype = source.entries[case.entry], case.torch_dtype()
    return decided(chosen, lambda item, form: facet.function(entry, dtype, item, *form))


def _settle():
    """What an earlier case left to be raised is not this one's."""
    with contextlib.suppress(Exception):
        torch.tpu.synchronize()


def decided(chosen, function):
    """The outcome of (index, item, form) pieces: the first difference decides."""
    ran, nothing = 0, "the database has no sample"
    for index, item, form in chosen:
        prefix = f"{form[0]}: " if form else ""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            database.seed()
            _settle()
            fallbacks = torch.tpu.counters()["fallbacks"]
            try:
                what = function(item, form)
            except Nothing as why:
                nothing = first_line(why)
                continue
            except NotImplementedError as error:
                return Outcome("unsupported", overload_in(error), index)
            except Exception as error:
                return Outcome("wrong", f"{prefix}{type(error).__name__}: {first_line(error)}", index)
        ran += 1
        fell_back = torch.tpu.counters()["fallbacks"] - fallbacks
        if what or fell_back:
            return Outcome("wrong", prefix + first_line(what or f"{fell_back} fallbacks to the CPU"), index)
    return Outcome("pass") if ran else Outcome("not-applicable", f"cpu: {nothing}")
