"""PyTorch's database of optimizers: a few steps on the device against the same steps on the CPU, parameters and state alike."""

import io

import torch
from torch.testing._internal.common_optimizers import optim_db

from conformance import compare, trials
from conformance.devices import mapped, tensors
from conformance.facets import Nothing

ENTRIES = {f"optim.{info.name}": info for info in optim_db}
SHAPES = ((3, 4), (5, 2))  # every optimizer takes matrices; Muon nothing else
STEPS = 3


def supports(implementation):
    """A function of (entry, dtype): whether this implementation exists on the CPU."""

    def applies(entry, dtype):
        if entry.only_supports_sparse_grads:  # has one implementation
            return implementation == "for-loop"
        if entry.step_requires_closure and dtype == torch.bfloat16:  # branches on losses that are too coarse to agree
            return False
        here = implementation != "fused" or "cpu" in entry.supports_fused_on
        return implementation == "for-loop" or (implementation in entry.supported_impls and here)

    return applies


def items_of(case):
    info = ENTRIES[case.entry]
    if case.facet == "errors":
        return info.optim_error_inputs_func("cpu", torch.float32)
    return info.optim_inputs_func("cpu")


class Training:
    """Parameters on one device, with their optimizer."""

    def __init__(self, entry, config, dtype, device, implementation):
        generator = torch.Generator().manual_seed(0)
        values = [torch.randn(shape, generator=generator, dtype=torch.float64) for shape in SHAPES]
        self.sparse = entry.only_supports_sparse_grads
        self.closure = entry.step_requires_closure
        self.parameters = [v.to(dtype).to(device).requires_grad_() for v in values]
        options = {k: v.to(device) if isinstance(v, torch.Tensor) and v.dim() else v for k, v in config.kwargs.items()}
        flags = {f: f == implementation for f in ("foreach", "fused") if f in entry.supported_impls}
        if self.closure:
            options["max_iter"] = 4  # further on it follows rounding errors
        self.optimizer = entry.optim_cls(self.parameters, **{**options, **flags})

    def gradients(self, number):
        """Of a quadratic form with a curvature of its own per element, whose minimum moves with `number`. Returns its value."""
        generator = torch.Generator().manual_seed(number)
        loss = torch.zeros((), dtype=self.parameters[0].dtype, device=self.parameters[0].device)
        for p in self.parameters:
            slope = torch.randn(p.shape, generator=generator, dtype=torch.float64)
            curvature = torch.linspace(0.5, 2, p.numel(), dtype=torch.float64).reshape(p.shape)
            slope, curvature, value = slope.to(p.dtype).to(p.device), curvature.to(p.dtype).to(p.device), p.detach()
            p.grad = curvature * value + slope
            if self.sparse:
                p.grad = p.grad.to_sparse()
            loss = loss + (curvature * value.square() / 2 + slope * value).sum()
        return loss

    def step(self, number):
        if self.closure:  # a search along a line needs one function for all steps
            return self.optimizer.step(lambda: self.gradients(0))
        self.gradients(number)
        return self.optimizer.step()

    def all_tensors(self):
        if self.closure:  # its history holds differences of gradients near the minimum: all rounding
            return self.parameters
        states = [self.optimizer.state[p] for p in self.parameters]
        return [*self.parameters, *(t.detach() for state in states for t in tensors(state))]


def _difference(ours, theirs, dtype):
    ours, theirs = ours.all_tensors(), theirs.all_tensors()
    return compare.other_form(ours, theirs) or compare.other_values(ours, theirs, lambda: [], dtype)


def steps_with(implementation):
    def steps(entry, dtype, config):
        ours = Training(entry, config, dtype, "tpu", implementation)
        theirs = Training(entry, config, dtype, "cpu", implementation)
        for number in range(STEPS):
            theirs.step(number)
            ours.step(number)
        return _difference(ours, theirs, dtype)

    return steps


def state_dict(entry, dtype, config):
    """Saved on the device after some steps and loaded on the CPU, and the other way: both go on alike."""
    pairs = []
    for here, there in (("tpu", "cpu"), ("cpu", "tpu")):
        first, second = (Training(entry, config, dtype, device, "for-loop") for device in (here, there))
        for number in range(STEPS):
            first.step(number)
        stored = io.BytesIO()
        torch.save({"optimizer": first.optimizer.state_dict(), "parameters": first.parameters}, stored)
        stored.seek(0)
        saved = torch.load(stored, map_location=there, weights_only=False)
        with torch.no_grad():
            for p, value in zip(second.parameters, saved["parameters"], strict=True):
                p.copy_(value)
        second.optimizer.load_state_dict(saved["optimizer"])
        first.step(STEPS)
        second.step(STEPS)
        pairs.append((first, second) if here == "tpu" else (second, first))
    return _difference(*pairs[0], dtype) or _difference(*pairs[1], dtype)


def errors(entry, dtype, error_input):
    """Options that must be refused: the same type and text, whatever the device of the parameters."""
    config = error_input.optimizer_error_input

    def tried(device):
        def function():
            entry.optim_cls(mapped(config.params, lambda t: t.detach().to(device)), **config.kwargs).step()
            return []

        return trials.trial(function).error

    theirs = tried("cpu")
    if theirs is None:
        raise Nothing("raises nothing on the CPU")
    return trials.other_error(tried("tpu"), theirs)
