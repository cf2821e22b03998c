"""PyTorch's database of modules: forward in training and in evaluation, buffers after it, and the gradients of inputs and parameters."""

import copy

import torch
from torch.testing._internal.common_modules import module_db

from conformance import compare, database
from conformance.devices import LAYOUTS, mapped, tensors, to_device, to_double
from conformance.facets import Nothing

ENTRIES = {info.name: info for info in module_db}


def items_of(case):
    """(training, ModuleInput), the two modes in turn so that a spread has both."""
    info = ENTRIES[case.entry]
    modes = []
    for training in (True, False):
        database.seed()
        arguments = {"device": "cpu", "dtype": case.torch_dtype(), "requires_grad": True, "training": training}
        modes.append([(training, i) for i in info.module_inputs_func(info, **arguments)])
    longest = max(map(len, modes), default=0)
    return [mode[i] for i in range(longest) for mode in modes if i < len(mode)]


class Run:
    """One module with its inputs on one device."""

    def __init__(self, module, inputs):
        self.module, self.inputs = module, inputs
        torch.manual_seed(0)
        args, kwargs = inputs
        self.results = [t for t in tensors(module(*args, **kwargs)) if isinstance(t, torch.Tensor)]

    def forward(self):
        return [*self.results, *self.module.buffers()]

    def gradients(self):
        generator = torch.Generator().manual_seed(0)
        roots = [t for t in self.results if t.requires_grad]
        leaves = [t for t in (*tensors(self.inputs), *self.module.parameters()) if t.requires_grad]
        if not roots or not leaves:
            raise Nothing("no result requires a gradient")
        directions = [
            torch.randn(t.shape, generator=generator, dtype=torch.float64).to(t.dtype).to(t.device) for t in roots
        ]
        found = torch.autograd.grad(roots, leaves, directions, allow_unused=True)
        return [g if g is not None else torch.zeros(()) for g in found]


def _made(entry, dtype, item):
    training, module_input = item
    constructor = module_input.constructor_input
    torch.manual_seed(0)
    module = entry.module_cls(*constructor.args, **constructor.kwargs).to(dtype).train(training)
    forward = module_input.forward_input
    inputs = (forward.args, forward.kwargs) if forward else ((), {})
    if entry.is_lazy:
        copied = mapped(inputs, lambda t: t.detach())
        module(*copied[0], **copied[1])
    return module, inputs


def _random(module, inputs):
    """Whether two runs with other seeds differ."""
    first, second = (copy.deepcopy(module) for _ in range(2))
    torch.manual_seed(1)
    one = tensors(first(*inputs[0], **inputs[1]))
    torch.manual_seed(2)
    two = tensors(second(*inputs[0], **inputs[1]))
    return not all(torch.equal(a, b) or not bool(a.isfinite().all()) for a, b in zip(one, two, strict=True))


def _compared(entry, dtype, item, what, layout=lambda t: t):
    module, inputs = _made(entry, dtype, item)
    inputs = mapped(inputs, layout)
    try:
        draws = _random(module, inputs)
        theirs = what(Run(copy.deepcopy(module), inputs))
    except Nothing:
        raise
    except Exception as error:
        raise Nothing(f"{type(error).__name__}: {error}") from error
    ours = what(Run(copy.deepcopy(module).to("tpu"), mapped(inputs, to_device, "tpu")))

    def exact():
        try:
            return what(Run(copy.deepcopy(module).double(), mapped(inputs, to_double)))
        except Exception:
            return []

    return compare.other_form(ours, theirs) or (None if draws else compare.other_values(ours, theirs, exact, dtype))


def forward(entry, dtype, item):
    return _compared(entry, dtype, item, Run.forward)


def backward(entry, dtype, item):
    return _compared(entry, dtype, item, Run.gradients)


def noncontiguous(entry, dtype, item, form):
    return _compared(entry, dtype, item, Run.forward, LAYOUTS[form])
