"""Values of arguments that ATen refuses on the CPU: the device raises the same type in the same words, and names the op, when
the host next waits for it; nothing is clamped in silence."""

import os
import subprocess
import sys

import pytest
import torch
import torch.nn.functional as F
from torch.fx import symbolic_trace
from tpupilot.compiler import record


class On:
    def __init__(self, device):
        self.device = device

    def t(self, values, **options):
        return torch.tensor(values, device=self.device, **options)

    @property
    def vector(self):
        return self.t([1.0, 2.0, 3.0])

    @property
    def matrix(self):
        return torch.arange(6.0, device=self.device).view(2, 3)

    def ones(self, *sizes):
        return torch.ones(sizes, device=self.device)


REFUSED = {
    "index": lambda on: on.vector[on.t([1, 5])],
    "index, below": lambda on: on.vector[on.t([0, -4])],
    "index, two dims": lambda on: on.matrix[on.t([0]), on.t([7])],
    "index_put": lambda on: on.vector.index_put_((on.t([5]),), on.t([1.0])),
    "index_put, accumulate": lambda on: on.vector.index_put_((on.t([5]),), on.t([1.0]), accumulate=True),
    "index_select": lambda on: on.vector.index_select(0, on.t([5])),
    "index_select, below": lambda on: on.vector.index_select(0, on.t([-1])),
    "index_select, dim 1": lambda on: on.matrix.index_select(1, on.t([5])),
    "index_add": lambda on: on.vector.index_add(0, on.t([5]), on.t([1.0])),
    "index_add, dim 1": lambda on: on.matrix.index_add(1, on.t([5]), on.ones(2, 1)),
    "index_copy": lambda on: on.matrix.index_copy(1, on.t([5]), on.ones(2, 1)),
    "index_fill": lambda on: on.vector.index_fill(0, on.t([5]), 1.0),
    "index_reduce": lambda on: on.vector.index_reduce(0, on.t([5]), on.t([1.0]), "amax"),
    "gather": lambda on: on.matrix.gather(1, on.t([[0], [7]])),
    "gather, below": lambda on: on.vector.gather(0, on.t([-1])),
    "scatter": lambda on: on.vector.scatter(0, on.t([5]), on.t([1.0])),
    "scatter, below": lambda on: on.vector.scatter(0, on.t([-1]), on.t([1.0])),
    "scatter, value": lambda on: on.vector.scatter(0, on.t([5]), 2.0),
    "scatter_add": lambda on: on.vector.scatter_add(0, on.t([5]), on.t([1.0])),
    "scatter_reduce": lambda on: on.vector.scatter_reduce(0, on.t([5]), on.t([1.0]), "amax"),
    "take": lambda on: on.vector.take(on.t([5])),
    "take, below": lambda on: on.vector.take(on.t([-4])),
    "put": lambda on: on.vector.put_(on.t([5]), on.t([1.0])),
    "take_along_dim": lambda on: on.vector.take_along_dim(on.t([5])),
    "embedding": lambda on: F.embedding(on.t([0, 5]), on.ones(3, 2)),
    "embedding_bag": lambda on: F.embedding_bag(on.t([0, 5, 7]), on.ones(3, 2), on.t([0])),
    "embedding_bag, max": lambda on: F.embedding_bag(on.t([0, -5]), on.ones(3, 2), on.t([0]), mode="max"),
    "multi_margin_loss": lambda on: F.multi_margin_loss(on.ones(1, 3), on.t([5])),
    "multilabel_margin_loss": lambda on: F.multilabel_margin_loss(on.ones(1, 3), on.t([[0, -2, 0]])),
    "max_unpool1d": lambda on: F.max_unpool1d(on.ones(1, 1, 2), on.t([[[0, 9]]]), 2),
    "max_unpool3d": lambda on: F.max_unpool3d(on.ones(1, 1, 1, 1, 2), on.t([[[[[0, 99]]]]]), 2),
    "nll_loss": lambda on: F.nll_loss(on.ones(2, 3), on.t([0, 3])),
    "nll_loss, below": lambda on: F.nll_loss(on.ones(2, 3), on.t([0, -1])),
    "nll_loss, images": lambda on: F.nll_loss(on.ones(1, 3, 2, 2), on.t([[[0, 3], [1, 1]]])),
    "cross_entropy": lambda on: F.cross_entropy(on.ones(2, 3), on.t([0, 3])),
    "masked_scatter": lambda on: on.vector.masked_scatter(on.t([True, True, False]), on.t([1.0])),
    "binary_cross_entropy": lambda on: F.binary_cross_entropy(on.t([1.5]), on.t([1.0])),
    "binary_cross_entropy, target": lambda on: F.binary_cross_entropy(on.t([0.5]), on.t([1.5])),
    "floor_divide": lambda on: torch.floor_divide(on.t([2, 8]), 0),
    "floor_divide, uint8": lambda on: on.t([2], dtype=torch.uint8) // 0,
    "div, trunc": lambda on: torch.div(on.t([2, 8]), on.t([1, 0]), rounding_mode="trunc"),
    "remainder": lambda on: torch.remainder(on.t([2]), 0),
    "fmod": lambda on: torch.fmod(on.t([2]), on.t([0])),
    "normal": lambda on: torch.normal(0.0, on.t([-1.0])),
    "bernoulli": lambda on: torch.bernoulli(on.t([1.5])),
}


@pytest.mark.parametrize("name", REFUSED)
@pytest.mark.filterwarnings("ignore:index_reduce")
def test_a_refusal_is_the_cpus(name, tpu):
    with pytest.raises((IndexError, RuntimeError)) as theirs:
        REFUSED[name](On("cpu"))
    REFUSED[name](On(tpu))  # runs to its end
    with pytest.raises(theirs.type) as ours:
        torch.tpu.synchronize()
    first_words = str(theirs.value).splitlines()[0].partition(", but got false.")[0]
    assert str(ours.value).startswith(first_words + " [")
    torch.tpu.synchronize()  # said once


def test_reading_any_result_raises_it(tpu):
    on = On(tpu)
    taken = on.vector[on.t([7])]
    with pytest.raises(IndexError, match=r"index 7 is out of bounds for dimension 0 with size 3 \[index.Tensor_out\]"):
        (taken + 1).sum().item()


def test_the_offender_is_the_first_in_order(tpu):
    on = On(tpu)
    on.matrix.gather(1, on.t([[0, 1, 2], [1, 9, -3]]))
    with pytest.raises(RuntimeError, match="index 9 is out"):
        torch.tpu.synchronize()


def test_what_is_allowed_is_not_refused(tpu):
    on = On(tpu)
    assert on.vector[on.t([-3, 2])].tolist() == [1, 3]
    assert on.vector.index_fill(0, on.t([-1]), 9.0).tolist() == [1, 2, 9]
    assert F.nll_loss(on.ones(2, 3), on.t([0, -100])).item() == -1
    assert F.embedding(on.t([], dtype=torch.long), on.ones(3, 2)).shape == (0, 2)
    assert (on.t([7.0]) // 0).item() == float("inf")
    torch.tpu.synchronize()


def test_one_refusal_among_many_calls_is_kept(tpu):
    on = On(tpu)
    x, good, bad = on.vector, on.t([2, 0]), on.t([2, 3])
    for i in range(1000):  # good verdicts are let go of on the way
        x.index_select(0, bad if i == 100 else good)
    with pytest.raises(IndexError, match="index out of range in self"):
        torch.tpu.synchronize()


def test_a_compiled_region_refuses_too(tpu):
    on = On(tpu)
    x, index = on.vector, on.t([0, 1])
    run = record(symbolic_trace(lambda a, i: a.index_select(0, i) * 2), [x, index])
    assert run(x, index)[0].tolist() == [2, 4]
    run(x, on.t([0, 4]))
    with pytest.raises(IndexError, match=r"index out of range in self \[index_select\]"):
        torch.tpu.synchronize()


def test_debug_mode_raises_in_the_call():
    program = (
        "import torch\n"
        "try:\n"
        "    torch.tensor([1.], device='tpu').take(torch.tensor([4], device='tpu'))\n"
        "except IndexError as error:\n"
        "    print('raised', error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], env={**os.environ, "TPUPILOT_DEBUG": "1"}, capture_output=True, text=True
    )
    assert done.stdout == "raised out of range: tried to access index 4 on a tensor of 1 elements. [take]\n", (
        done.stderr
    )


def test_an_error_of_a_shape_keeps_its_type_and_words(tpu):
    for device in ("cpu", tpu):
        with pytest.raises(RuntimeError, match=r"^kthvalue\(\): selected number k out of range for dimension 0"):
            torch.ones(3, device=device).kthvalue(7)
