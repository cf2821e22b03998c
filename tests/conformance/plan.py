"""Which databases there are, which facets an entry has, in which dtypes, and what of it runs when.

A case is (entry, dtype, facet). "test": in every ./test; "full": in ./test full only; a number n in place of "full" means that each n-th
entry runs in ./test as well. The table of expectations covers all of them. With an empty executable cache all of it takes about 35 minutes
of processor time, half of which is what ./test runs; forward costs about 2 minutes a dtype, backward 1 to 2.
"""

import typing
import zlib

import torch

from conformance import database, facets, modules, optimizers, trials
from conformance.devices import LAYOUTS

ALL = ("float32", "float64", "bfloat16", "float16", "int64", "int32", "uint8", "bool", "complex64")
FLOATING = ("float32", "float64", "bfloat16", "float16", "complex64")


class Facet(typing.NamedTuple):
    function: typing.Callable
    dtypes: dict  # dtype -> when it runs
    applies: typing.Callable = lambda entry, dtype: True
    forms: tuple = ()
    requires_grad: bool = False
    samples: int = database.SAMPLES


def takes(entry, dtype):
    return dtype in entry.dtypes


def differentiable(entry, dtype):
    return entry.supports_autograd and dtype in entry.supported_backward_dtypes("cpu")


OP_FACETS = {
    "forward": Facet(
        facets.forward,
        {d: "test" if d in ("float32", "bfloat16", "int64") else 2 for d in ALL},
        takes,
    ),
    "backward": Facet(
        facets.backward,
        {d: "test" if d == "float32" else 6 for d in FLOATING},
        differentiable,
        requires_grad=True,
    ),
    "out": Facet(
        trials.out,
        {"float32": "test", "int64": 4},
        lambda entry, dtype: entry.supports_out and dtype in entry.dtypes,
        tuple(trials.OUTS),
    ),
    "in-place": Facet(
        trials.in_place,
        {"float32": "test", "int64": 4},
        lambda entry, dtype: entry.inplace_variant is not None and dtype in entry.dtypes,
        tuple(trials.TARGETS),
    ),
    "noncontiguous": Facet(facets.noncontiguous, {"float32": 2, "int64": 8}, takes, tuple(LAYOUTS)),
    "zero-size": Facet(facets.zero_size, {"float32": "test", "int64": 4}, takes, tuple(facets.EMPTIED)),
    "errors": Facet(trials.errors, {"-": "test"}, lambda entry, dtype: entry.error_inputs_func is not None, samples=20),
    "again": Facet(facets.again, {"float32": "test"}, takes, requires_grad=True, samples=3),
    "gradcheck": Facet(facets.gradcheck, {"float64": 12}, differentiable, requires_grad=True, samples=2),
    "gradgradcheck": Facet(
        facets.gradgradcheck,
        {"float64": 12},
        lambda entry, dtype: entry.supports_gradgrad and differentiable(entry, dtype),
        requires_grad=True,
        samples=2,
    ),
}


class Case(typing.NamedTuple):
    entry: str
    dtype: str
    facet: str

    def torch_dtype(self):
        return None if self.dtype == "-" else getattr(torch, self.dtype)


def op_items(case):
    """The samples of a case; error inputs where those are what it runs."""
    entry, facet = database.ENTRIES[case.entry], OP_FACETS[case.facet]
    if case.facet == "errors":
        database.seed()
        return list(entry.error_inputs("cpu"))
    return database.samples_of(entry, case.torch_dtype(), facet.requires_grad and entry.supports_autograd)


OPTIMIZER_FACETS = {
    **{
        implementation: Facet(
            optimizers.steps_with(implementation),
            {"float32": "test", "float64": "full", "bfloat16": "full"},
            optimizers.supports(implementation),
            samples=20,
        )
        for implementation in ("for-loop", "foreach", "fused")
    },
    "state-dict": Facet(optimizers.state_dict, {"float32": "test"}, samples=20),
    "errors": Facet(optimizers.errors, {"-": "test"}, samples=20),
}
MODULE_FACETS = {
    "forward": Facet(modules.forward, {"float32": "test", "float64": "full"}),
    "backward": Facet(modules.backward, {"float32": "test", "float64": "full"}),
    "noncontiguous": Facet(modules.noncontiguous, {"float32": "full"}, forms=tuple(LAYOUTS)),
}


class Database(typing.NamedTuple):
    entries: dict
    facets: dict
    items: typing.Callable  # of a case: its samples


DATABASES = {
    "op_db": Database(database.ENTRIES, OP_FACETS, op_items),
    "optim_db": Database(optimizers.ENTRIES, OPTIMIZER_FACETS, optimizers.items_of),
    "module_db": Database(modules.ENTRIES, MODULE_FACETS, modules.items_of),
}


def database_name(case):
    return next(name for name, d in DATABASES.items() if case.entry in d.entries)


def database_of(case):
    return DATABASES[database_name(case)]


def order(name, facet, dtype):
    """A sort key of tables: by database, facet, dtype as they are listed here."""
    return list(DATABASES).index(name), list(DATABASES[name].facets).index(facet), (*ALL, "-").index(dtype)


def facet_of(case):
    return database_of(case).facets[case.facet]


def runs_in(case, when):
    """Whether "test" or "full" has this case."""
    turn = facet_of(case).dtypes[case.dtype]
    if when == "full" or turn == "test":
        return True
    return isinstance(turn, int) and zlib.crc32("-".join(case).encode()) % turn == 0


def cases(names=(), dtypes=(), facets=(), when="full"):
    """In the order of entries, so that what one facet compiled the next one finds."""
    found = []
    for d in DATABASES.values():
        for name in database.matching(d.entries, names):
            for dtype in (*ALL, "-"):
                for facet_name, facet in d.facets.items():
                    wanted = (not dtypes or dtype in dtypes) and (not facets or facet_name in facets)
                    case = Case(name, dtype, facet_name)
                    if wanted and dtype in facet.dtypes and facet.applies(d.entries[name], case.torch_dtype()):
                        found.append(case)
    return [case for case in found if runs_in(case, when)]


def facet_names():
    return tuple(dict.fromkeys(name for d in DATABASES.values() for name in d.facets))
