"""The entries of PyTorch's op database, their samples, and what of them needs another treatment than comparing values."""

import fnmatch
import random

import numpy
import torch
from torch.testing._internal.common_methods_invocations import op_db

SAMPLES = 6  # of each entry, spread over its list
RANDOM = {
    "bernoulli", "cauchy", "exponential", "geometric", "log_normal", "multinomial", "normal", "normal.in_place",
    "normal.number_mean", "rand_like", "randint", "randint_like", "randn", "randn_like", "uniform", "nn.functional.dropout",
    "nn.functional.dropout2d", "nn.functional.dropout3d", "nn.functional.alpha_dropout", "nn.functional.feature_alpha_dropout",
    "nn.functional.rrelu", "nn.functional.fractional_max_pool2d", "nn.functional.fractional_max_pool3d", "svd_lowrank",
    "pca_lowrank", "torch.ops.aten._efficient_attention_forward", "torch.ops.aten._flash_attention_forward",
}  # fmt: skip
INDEPENDENT = {  # of RANDOM: each element is drawn by itself, so that two draws can be compared as sets
    "bernoulli", "cauchy", "exponential", "geometric", "log_normal", "normal", "normal.in_place", "normal.number_mean",
    "rand_like", "randint", "randint_like", "randn", "randn_like", "uniform", "nn.functional.dropout",
    "nn.functional.alpha_dropout",
}  # fmt: skip
UNINITIALISED = {"empty", "empty_like", "empty_strided", "empty_permuted", "new_empty", "new_empty_strided"}
RESIZED = {"resize_", "resize_as_"}
TIES = {"sort", "argsort", "topk", "msort", "kthvalue"}  # which of equal elements comes first is not specified
ON_THE_HOST = {"tensor_split"}  # takes its tensor of indices from the CPU only, whatever the device of its input


def name_of(entry):
    return f"{entry.name}.{entry.variant_test_name}" if entry.variant_test_name else entry.name


def _named():
    """Some entries share a name (several references of one op): the later ones get a number."""
    named = {}
    for entry in op_db:
        if entry.name.startswith("jiterator"):  # those refuse the CPU too: there is nothing to compare with
            continue
        name, n = name_of(entry), 2
        while name in named:
            name, n = f"{name_of(entry)}#{n}", n + 1
        named[name] = entry
    return named


ENTRIES = _named()


def matching(names, patterns):
    return [n for n in names if not patterns or any(fnmatch.fnmatchcase(n, p) for p in patterns)]


def is_random(entry):
    return entry.name in RANDOM or name_of(entry) in RANDOM


def written(entry, sample, results):
    """What of the results an op wrote or kept. The rest is memory that nobody wrote: no two runs need have the same values there."""
    if entry.name in UNINITIALISED:
        return []
    if entry.name in RESIZED:  # the old elements stay first in the storage
        old = sample.input.numel()
        return [r.as_strided((min(old, r.numel()),), (1,)) for r in results]
    return results


def draws(entry, sample):
    """Whether this sample of an entry that is not random as such is random."""
    attention = entry.name == "nn.functional.multi_head_attention_forward" and sample.kwargs.get("training")
    return attention or (sample.kwargs.get("dropout_p") or 0) > 0


def seed():
    random.seed(0)
    numpy.random.seed(0)
    torch.manual_seed(0)


def spread(items, count):
    """(index, item) of `count` items from the first to the last, all of them if there are fewer."""
    n = len(items)
    if n <= count:
        return list(enumerate(items))
    indices = sorted({round(i * (n - 1) / (count - 1)) for i in range(count)}) if count > 1 else [n // 2]
    return [(i, items[i]) for i in indices]


def samples_of(entry, dtype, requires_grad=False):
    """The whole list. The database seeds the generators before each sample."""
    seed()
    return list(entry.sample_inputs("cpu", dtype, requires_grad=requires_grad))
