"""Running an FX graph as one program: its nodes are replayed once through the device's own kernels with a recorder on."""

import torch
from torch.fx import Interpreter

from tpupilot import _C


class _NamedInterpreter(Interpreter):
    def __init__(self, module, recorder):
        super().__init__(module)
        self._recorder = recorder

    def run_node(self, node):
        self._recorder.at_node(node.name)
        return super().run_node(node)


def record(graph_module, example_inputs):
    """Records ``graph_module`` with inputs shaped like ``example_inputs`` (tensors on the device) into one program.

    Returns a function of the same inputs that gives the graph's outputs as a list of tensors, each new and contiguous. Storages
    that the graph only captures (weights) are read, and written, as they are at each call. Raises RuntimeError with the node's
    name where the graph reads data, and NotImplementedError for an op without a kernel.
    """
    inputs = [i if isinstance(i, torch.Tensor) else torch.empty(0) for i in example_inputs]
    recorder = _C.Recorder(inputs)
    try:
        with torch.no_grad():
            outputs = _NamedInterpreter(graph_module, recorder).run(*example_inputs)
        outputs = [outputs] if isinstance(outputs, torch.Tensor) else list(outputs)
        program = recorder.finish([o for o in outputs if isinstance(o, torch.Tensor)])
    finally:
        del recorder

    def run(*args):
        tensors = iter(program([a if isinstance(a, torch.Tensor) else torch.empty(0) for a in args]))
        return [next(tensors) if isinstance(o, torch.Tensor) else o for o in outputs]

    run.program = program
    return run
