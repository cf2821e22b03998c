"""Time of an eager training step of an example on `tpu`, as a ratio to the same step on CPU torch in the same process.

    .venv/bin/python bench/step.py [EXAMPLE ...] [--steps 10] [--rounds 9] [--check] [--profile]

The examples are those in the plain form, with `loss` and `optimizer`. Both sides step in turn, each round ends with a synchronisation; the best round counts. --check exits with 1 if chargpt misses its
bound. --profile prints what the calls of one step cost on both sides, each waited for.
"""

import argparse
import collections
import importlib.util
import os
import pathlib
import sys
import time

import torch
from torch.utils._pytree import tree_map_only

BOUNDS = {"chargpt": 1.3}
EXAMPLES = pathlib.Path(__file__).resolve().parent.parent / "examples"


def load(name):
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / name / "job.py")
    job = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(job)
    return job


class Side:
    """One device's copy of the job, stepped as its author's loop does."""

    def __init__(self, job, device):
        torch.manual_seed(0)
        self.job = job
        self.net = job.model().to(device)
        self.opt = job.optimizer(self.net)
        self.schedule = job.scheduler(self.opt) if hasattr(job, "scheduler") else None
        self.batches = [tree_map_only(torch.Tensor, lambda x: x.to(device), job.batch(s)) for s in range(8)]
        self.step = 0

    def advance(self):
        batch = self.batches[self.step % len(self.batches)]
        self.opt.zero_grad()
        value = self.job.loss(self.net, batch)
        value = value[0] if isinstance(value, tuple) else value
        value.backward()
        if hasattr(self.job, "clip"):
            torch.nn.utils.clip_grad_norm_(self.net.parameters(), self.job.clip)
        self.opt.step()
        if self.schedule:
            self.schedule.step()
        self.step += 1
        return value

    def milliseconds(self, steps):
        start = time.perf_counter()
        for _ in range(steps):
            value = self.advance()
        value.item()
        return (time.perf_counter() - start) / steps * 1e3


def seconds_by_call(side):
    """Calls of one step: name -> [count, seconds], each call finished before the next begins."""
    from torch.utils._python_dispatch import TorchDispatchMode

    spent = collections.defaultdict(lambda: [0, 0.0])

    class Timed(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            start = time.perf_counter()
            out = func(*args, **(kwargs or {}))
            torch.accelerator.synchronize()
            row = spent[str(func)]
            row[0] += 1
            row[1] += time.perf_counter() - start
            return out

    with Timed():
        side.advance()
    return spent


def profile(sides, rows=30):
    """Prints what the calls of one step cost on each side, the fastest of five steps, the largest difference first."""
    best = []
    for side in sides:
        steps = [seconds_by_call(side) for _ in range(5)]
        best.append({name: (row[0], min(s[name][1] for s in steps) * 1e3) for name, row in steps[-1].items()})
    cpu, tpu = best
    both = {name: (*tpu[name], cpu.get(name, (0, 0.0))[1]) for name in tpu}
    print("    tpu ms    cpu ms  calls")
    for name, (calls, here, there) in sorted(both.items(), key=lambda item: item[1][2] - item[1][1])[:rows]:
        print(f"  {here:8.3f}  {there:8.3f}  {calls:5d}  {name}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("examples", nargs="*", default=["chargpt"])
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--profile", action="store_true")
    args = parser.parse_args()
    missed = False
    for name in args.examples:
        job = load(name)
        sides = [Side(job, "cpu"), Side(job, "tpu")]
        best = [float("inf")] * 2
        for side in sides:
            side.milliseconds(args.steps)  # compiles, and fills caches
        for _ in range(args.rounds):
            for i, side in enumerate(sides):
                best[i] = min(best[i], side.milliseconds(args.steps))
        ratio = best[1] / best[0]
        bound = BOUNDS.get(name)
        print(f"{name}: cpu {best[0]:.2f} ms, tpu {best[1]:.2f} ms a step, ratio {ratio:.2f}", end="")
        print(f" (bound {bound})" if bound else "", f"load {os.getloadavg()[0]:.1f}")
        missed = missed or bool(bound and ratio > bound)
        if args.profile:
            profile(sides)
    return 1 if missed and args.check else 0


if __name__ == "__main__":
    sys.exit(main())
