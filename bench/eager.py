"""Cost of eager calls, as ratios to CPU torch in the same process, and start-up times in fresh ones.

    .venv/bin/python bench/eager.py [--json] [--check]

--check exits with 1 if a figure misses its bound. Each figure is the best of several rounds (us), the two sides in turn, so that a
busy machine hurts both alike; the load average is printed with them.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time

import torch

BOUNDS = {
    "add_ratio": 2.2,  # cached one-element add, Python included, over CPU torch's
    "item_us": 5.0,
    "cpu_copy_us": 5.0,
    "upload_zero_copy": 1.0,  # share of aligned 4 MiB uploads that were taken over without a copy (at least)
    "autoload_seconds": 0.1,  # what torch's entry point adds to `import torch`
    "first_op_seconds": 0.3,
    "compile_add_cpu_ms": 18.0,  # processor time of the first 128x128 f32 add with an empty executable cache
    "load_add_cpu_ms": 1.0,  # the same call when the disk cache has the program
}
AT_LEAST = {"upload_zero_copy"}


def microseconds(call, count=5000):
    start = time.perf_counter()
    for _ in range(count):
        call()
    return (time.perf_counter() - start) / count * 1e6


def best_of(calls, rounds=9, count=5000):
    """The best time of each call, in microseconds; the calls take turns."""
    best = [float("inf")] * len(calls)
    for _ in range(rounds):
        for i, call in enumerate(calls):
            best[i] = min(best[i], microseconds(call, count))
    return best


def eager_figures():
    torch.set_grad_enabled(False)
    cpu, tpu = torch.ones(1), torch.ones(1, device="tpu")
    small = torch.ones(8, 8, device="tpu")
    (tpu + tpu).item()
    small.cpu()
    add_cpu, add_tpu, item, copy = best_of([lambda: cpu + cpu, lambda: tpu + tpu, tpu.item, small.cpu])
    sources = [torch.empty(2**20) for _ in range(32)]
    for s in sources:
        s.fill_(1)
    before = torch.tpu.counters()["zero_copy_uploads"]
    start = time.perf_counter()
    moved = [s.to("tpu") for s in sources]
    upload = (time.perf_counter() - start) / len(sources) * 1e6
    shared = torch.tpu.counters()["zero_copy_uploads"] - before
    del moved
    return {
        "add_cpu_us": add_cpu,
        "add_tpu_us": add_tpu,
        "add_ratio": add_tpu / add_cpu,
        "item_us": item,
        "cpu_copy_us": copy,
        "upload_4mib_us": upload,
        "upload_zero_copy": shared / len(sources),
    }


def seconds_in_fresh_process(code, **environment):
    out = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, **environment}, capture_output=True, text=True, check=True
    )
    return float(out.stdout)


IMPORT = "import time; t = time.perf_counter(); import torch; print(time.perf_counter() - t)"
AUTOLOAD = """
import torch, time
t = time.perf_counter()
torch._import_device_backends()
print(time.perf_counter() - t)
"""
FIRST = """
import torch, time
t = time.perf_counter()
(torch.ones(3, device="tpu") + 1).cpu()
print(time.perf_counter() - t)
"""
NEW_ADD = """
import torch, time
a, b = torch.rand(3, device="tpu"), torch.rand(128, 128).to("tpu")
(a + a).cpu()  # the plugin is up, and core has loaded what its Meta kernels need
t = time.process_time()
c = b + b
c.cpu()
print(time.process_time() - t)
"""


def start_figures():
    seconds_in_fresh_process(FIRST)
    with tempfile.TemporaryDirectory() as folder:
        fresh = [seconds_in_fresh_process(NEW_ADD, TPUPILOT_CACHE_DIR=f"{folder}/{i}") for i in range(5)]
        stored = [seconds_in_fresh_process(NEW_ADD, TPUPILOT_CACHE_DIR=f"{folder}/0") for _ in range(5)]
    alone = {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
    return {
        "import_seconds": min(seconds_in_fresh_process(IMPORT, **alone) for _ in range(3)),
        "autoload_seconds": min(seconds_in_fresh_process(AUTOLOAD, **alone) for _ in range(5)),
        "first_op_seconds": min(seconds_in_fresh_process(FIRST) for _ in range(3)),
        "compile_add_cpu_ms": min(fresh) * 1e3,
        "load_add_cpu_ms": min(stored) * 1e3,
    }


def misses(figures):
    bad = []
    for name, bound in BOUNDS.items():
        if figures[name] < bound if name in AT_LEAST else figures[name] > bound:
            bad.append(f"{name} is {figures[name]:.3g}, the bound is {bound:g}")
    return bad


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--check", action="store_true")
    args = parser.parse_args()
    figures = {**start_figures(), **eager_figures(), "load_average": os.getloadavg()[0]}
    if args.json:
        print(json.dumps(figures, indent=1))
    else:
        for name, value in figures.items():
            print(f"{name:20s} {value:10.3f}" + (f"   (bound {BOUNDS[name]:g})" if name in BOUNDS else ""))
    if args.check:
        bad = misses(figures)
        for line in bad:
            print(line, file=sys.stderr)
        return 1 if bad else 0
    return 0


if __name__ == "__main__":
    sys.exit(main())
