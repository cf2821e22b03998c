"""An FX graph of rows that exist runs as one program, through the same kernels."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.fx import symbolic_trace
from tpupilot.compiler import record


def test_a_network_is_one_program_and_one_execution(tpu, counted):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(64, 10)).to(
        tpu
    )
    x = torch.randn(8, 1, 8, 8).to(tpu)
    run = record(symbolic_trace(net), [x])
    eager = net(x)
    with counted() as c:
        (y,) = run(x)
    assert c["executions"] == 1 and c["compiles"] == 0
    torch.testing.assert_close(y.cpu(), eager.cpu())
    with torch.no_grad():
        net[4].bias.add_(1)  # captured storages are read as they are at each call
    torch.testing.assert_close(run(x)[0].cpu(), eager.cpu() + 1)


def test_arc_tangents_of_many_doubles(tpu):
    """A CPU plugin miscompiles long vectors of them where the divisor is a constant, as it may become in a region."""
    x = torch.linspace(-9.9, 9.9, 1003, dtype=torch.float64)

    def arcs(x):
        return torch.atan(x), torch.atan2(x, torch.ones_like(x)), torch.complex(torch.ones_like(x), x).angle()

    d = x.to(tpu)
    for ours in (arcs(d), record(symbolic_trace(arcs), [d])(d)):
        for a, b in zip(ours, arcs(x), strict=True):
            torch.testing.assert_close(a.cpu(), b)


def test_writes_to_inputs_and_captured_storages_last(tpu):
    weight = torch.ones(3, device=tpu)

    class Step(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("total", torch.zeros(3, device=tpu))

        def forward(self, w, x):
            w.mul_(2)
            w[:2].add_(x[:2])
            self.total.add_(x)
            return w + 1, (w * x).t()

    step = Step()
    x = torch.arange(3.0).to(tpu)
    run = record(symbolic_trace(step), [weight, x])
    assert weight.tolist() == [1, 1, 1] and step.total.tolist() == [0, 0, 0]  # recording runs nothing
    out, _ = run(weight, x)
    assert weight.tolist() == [2, 3, 2] and out.tolist() == [3, 4, 3]
    run(weight, x)
    assert weight.tolist() == [4, 7, 4] and step.total.tolist() == [0, 2, 4]


def test_reading_data_is_refused_with_the_nodes_name(tpu):
    class Reads(nn.Module):
        def forward(self, x):
            y = x * 2
            return x + y.sum().item()

    graph = symbolic_trace(Reads())
    with pytest.raises(RuntimeError, match=r"at node 'item'"):
        record(graph, [torch.ones(2, device=tpu)])
    assert (torch.ones(2, device=tpu) + 1).tolist() == [2, 2]  # the recording is over


def test_random_ops_draw_anew_at_each_run(tpu):
    class Noise(nn.Module):
        def forward(self, x):
            return F.dropout(x, 0.5, True), F.dropout(x, 0.5, True)

    x = torch.ones(1000, device=tpu)
    run = record(symbolic_trace(Noise()), [x])
    torch.manual_seed(0)
    a, b = run(x)
    c, _ = run(x)
    assert not torch.equal(a, b) and not torch.equal(a, c)
    torch.manual_seed(0)
    assert torch.equal(run(x)[0], a)


def test_another_signature_is_refused(tpu):
    run = record(symbolic_trace(nn.ReLU()), [torch.ones(4, device=tpu)])
    with pytest.raises(RuntimeError, match="another dtype, shape"):
        run(torch.ones(5, device=tpu))
