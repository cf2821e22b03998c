"""Time of rows as a ratio to CPU torch at three sizes, and what a cached call of each element-wise row costs with one element.

A figure is the best of several rounds, the two sides in turn, so that a busy machine hurts both alike. "m" is the number of elements.
"""

import fnmatch
import time

import torch
import torch.nn.functional as F
from torch.testing._internal.opinfo.core import BinaryUfuncInfo, UnaryUfuncInfo

from conformance import database, report

SIZES = (2**10, 2**16, 2**20)
SLOW = 3.0  # a ratio at the largest size that needs a reason
DISPATCH_US = 3.0


def _square(m):
    n = int(m**0.5)
    return torch.rand(n, n)


def _images(m, channels=16):
    side = max(int((m / (4 * channels)) ** 0.5), 4)
    return torch.rand(4, channels, side, side)


def _indices(m, bound):
    return torch.randint(bound, (m,))


# The rows that training uses most beside the element-wise ones: name -> (inputs of m elements, call).
USED = {
    "mm": (lambda m: (_square(m), _square(m)), torch.mm),
    "addmm": (lambda m: (_square(m)[0], _square(m), _square(m)), torch.addmm),
    "bmm": (lambda m: (torch.rand(4, *_square(m // 4).shape),) * 2, torch.bmm),
    "mv": (lambda m: (_square(m), _square(m)[0]), torch.mv),
    "conv2d": (lambda m: (_images(m), torch.rand(16, 16, 3, 3)), lambda x, w: F.conv2d(x, w, padding=1)),
    "conv2d.input_gradient": (
        lambda m: (_images(m), torch.rand(16, 16, 3, 3)),
        lambda x, w: torch.nn.grad.conv2d_input(x.shape, w, x, padding=1),
    ),
    "conv2d.weight_gradient": (
        lambda m: (_images(m),),
        lambda x: torch.nn.grad.conv2d_weight(x, (16, 16, 3, 3), x, padding=1),
    ),
    "max_pool2d": (lambda m: (_images(m),), lambda x: F.max_pool2d(x, 2)),
    "avg_pool2d": (lambda m: (_images(m),), lambda x: F.avg_pool2d(x, 2)),
    "interpolate": (lambda m: (_images(m),), lambda x: F.interpolate(x, scale_factor=2, mode="nearest")),
    "batch_norm": (lambda m: (_images(m),), lambda x: F.batch_norm(x, None, None, training=True)),
    "layer_norm": (lambda m: (_square(m),), lambda x: F.layer_norm(x, x.shape[-1:])),
    "group_norm": (lambda m: (_images(m),), lambda x: F.group_norm(x, 4)),
    "softmax": (lambda m: (_square(m),), lambda x: x.softmax(-1)),
    "log_softmax": (lambda m: (_square(m),), lambda x: x.log_softmax(-1)),
    "cross_entropy": (lambda m: (_square(m), _indices(*[int(m**0.5)] * 2)), F.cross_entropy),
    "attention": (
        lambda m: (torch.rand(2, 4, max(m // 512, 4), 64),),
        lambda x: F.scaled_dot_product_attention(x, x, x),
    ),
    "embedding": (lambda m: (_indices(m // 64, 1000), torch.rand(1000, 64)), F.embedding),
    "sum": (lambda m: (_square(m),), torch.sum),
    "sum.dim0": (lambda m: (_square(m),), lambda x: x.sum(0)),
    "sum.dim1": (lambda m: (_square(m),), lambda x: x.sum(1)),
    "mean.dim1": (lambda m: (_square(m),), lambda x: x.mean(1)),
    "var.dim1": (lambda m: (_square(m),), lambda x: x.var(1)),
    "amax.dim1": (lambda m: (_square(m),), lambda x: x.amax(1)),
    "argmax.dim1": (lambda m: (_square(m),), lambda x: x.argmax(1)),
    "max.dim1": (lambda m: (_square(m),), lambda x: x.max(1)),
    "norm": (lambda m: (_square(m),), torch.linalg.vector_norm),
    "prod.dim1": (lambda m: (_square(m),), lambda x: x.prod(1)),
    "logsumexp": (lambda m: (_square(m),), lambda x: x.logsumexp(1)),
    "cumsum": (lambda m: (_square(m),), lambda x: x.cumsum(1)),
    "sort": (lambda m: (_square(m),), lambda x: x.sort(1)),
    "topk": (lambda m: (_square(m),), lambda x: x.topk(8, 1)),
    "any": (lambda m: (_square(m) > 0.5,), torch.any),
    "where": (lambda m: (_square(m) > 0.5, _square(m), _square(m)), torch.where),
    "masked_fill": (lambda m: (_square(m), _square(m) > 0.5), lambda x, mask: x.masked_fill(mask, 0.0)),
    "gather": (lambda m: (_square(m), _indices(m, int(m**0.5)).view(_square(m).shape)), lambda x, i: x.gather(1, i)),
    "scatter_add": (
        lambda m: (_square(m), _indices(m, int(m**0.5)).view(_square(m).shape)),
        lambda x, i: torch.zeros_like(x).scatter_add(1, i, x),
    ),
    "index_select": (lambda m: (_square(m), _indices(*[int(m**0.5)] * 2)), lambda x, i: x.index_select(0, i)),
    "index": (lambda m: (_square(m), _indices(*[int(m**0.5)] * 2)), lambda x, i: x[i]),
    "index_put": (
        lambda m: (_square(m), _indices(*[int(m**0.5)] * 2)),
        lambda x, i: x.index_put((i,), x, accumulate=True),
    ),
    "cat": (lambda m: (_square(m // 2), _square(m // 2)), lambda a, b: torch.cat([a, b], 1)),
    "stack": (lambda m: (_square(m // 2), _square(m // 2)), lambda a, b: torch.stack([a, b])),
    "transpose.contiguous": (lambda m: (_square(m),), lambda x: x.t().contiguous()),
    "clone": (lambda m: (_square(m),), torch.clone),
    "flip": (lambda m: (_square(m),), lambda x: x.flip(0)),
    "roll": (lambda m: (_square(m),), lambda x: x.roll(3, 1)),
    "tril": (lambda m: (_square(m),), torch.tril),
    "repeat": (lambda m: (_square(m // 4),), lambda x: x.repeat(2, 2)),
    "pad": (lambda m: (_square(m),), lambda x: F.pad(x, (1, 1, 1, 1))),
    "to_bfloat16": (lambda m: (_square(m),), lambda x: x.bfloat16()),
    "dropout": (lambda m: (_square(m),), lambda x: F.dropout(x, 0.1)),
    "addcmul": (lambda m: (_square(m),) * 3, lambda a, b, c: torch.addcmul(a, b, c, value=0.5)),
    "addcdiv": (lambda m: (_square(m),) * 3, lambda a, b, c: torch.addcdiv(a, b, c + 1, value=0.5)),
    "lerp": (lambda m: (_square(m),) * 2, lambda a, b: torch.lerp(a, b, 0.1)),
    "clamp": (lambda m: (_square(m),), lambda x: x.clamp(0.2, 0.8)),
    "add_.alpha": (lambda m: (_square(m),) * 2, lambda a, b: a.add_(b, alpha=1e-6)),
    "mul_.scalar": (lambda m: (_square(m),), lambda a: a.mul_(1.0)),
    "binary_cross_entropy_with_logits": (lambda m: (_square(m),) * 2, F.binary_cross_entropy_with_logits),
    "mse_loss": (lambda m: (_square(m),) * 2, F.mse_loss),
}


def _elementwise():
    """The database's element-wise ops: name -> (inputs of m elements, call)."""
    rows = {}
    for name, entry in database.ENTRIES.items():
        if torch.float32 not in entry.dtypes or not isinstance(entry, UnaryUfuncInfo | BinaryUfuncInfo):
            continue
        if name.startswith("_refs"):
            continue
        count = 1 if isinstance(entry, UnaryUfuncInfo) else 2
        keywords = entry.sample_kwargs("cpu", torch.float32, None)[0] if count == 1 else {}

        def inputs(m, count=count):
            return tuple(torch.rand(m) * 0.8 + 0.1 for _ in range(count))

        rows[name] = (inputs, lambda *xs, op=entry.op, keywords=keywords: op(*xs, **keywords))
    return rows


def _seconds(call, inputs, count, ready):
    begun = time.perf_counter()
    for _ in range(count):
        call(*inputs)
    ready()
    return (time.perf_counter() - begun) / count


def _pair(make, call, m, budget=0.03, rounds=5):
    """(device's, CPU's) best seconds of one call of m elements."""
    host = make(m)
    device = tuple(x.to("tpu") for x in host)
    sides = ((device, torch.tpu.synchronize), (host, lambda: None))
    counts = []
    for inputs, ready in sides:
        _seconds(call, inputs, 1, ready)
        counts.append(max(1, min(2000, int(budget / _seconds(call, inputs, 2, ready)))))
    best = [float("inf")] * 2
    for _ in range(rounds):
        for i, (inputs, ready) in enumerate(sides):
            best[i] = min(best[i], _seconds(call, inputs, counts[i], ready))
    return best


def _row(name, make, call, with_dispatch):
    cells, slow = [], False
    if with_dispatch:
        ours, _ = _pair(make, call, 1)
        cells.append(f"{ours * 1e6:.1f}")
        slow = ours * 1e6 > DISPATCH_US
    else:
        cells.append("")
    for m in SIZES:
        ours, theirs = _pair(make, call, m)
        cells.append(f"{ours / theirs:.2f}")
    marks = [*(["dispatch"] if slow else []), *(["slow"] if float(cells[-1]) > SLOW else [])]
    return (name, *cells, " ".join(marks))


def main(patterns):
    torch.set_grad_enabled(False)
    rows = []
    for group, with_dispatch in ((_elementwise(), True), (USED, False)):
        for name, (make, call) in group.items():
            if patterns and not any(fnmatch.fnmatchcase(name, p) for p in patterns):
                continue
            try:
                rows.append(_row(name, make, call, with_dispatch))
            except NotImplementedError as error:
                rows.append((name, "", "", "", "", f"unsupported: {error!s:.60}"))
    report.print_table(("row", "1 element, us", *(f"ratio at {m}" for m in SIZES), "over a bound"), rows)
    print(
        f"bounds: {DISPATCH_US} us a call (each call of an entry, Python included), {SLOW} x CPU torch at {SIZES[-1]} elements"
    )
    return 0
