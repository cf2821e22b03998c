"""Makes the dated profile of a release of Google's torch_tpu: what it registers, refuses and gets wrong.

    python scripts/target_profile.py registered > registered.txt
        In an environment with that release: every overload that its dispatcher has a kernel for.
    python scripts/target_profile.py build NAME==VERSION REGISTERED OBSERVED --date YYYY-MM-DD > data/targets/NAME-VERSION.json
        Here: both lists, with what torch's own dispatcher says of them. OBSERVED has a JSON object a line for each entry of
        op_db that did not pass: "op_db", "mode" (forward, backward, out, inplace, noncontig), "dtype", "status" (unsupported,
        error, wrong, crash), "missing" (the overload that an error names, or null), "from_cpu_plugin" (the fault is the
        plugin's). Lines that begin with # are remarks.
    python scripts/target_profile.py holes [--check] [PROFILE]
        What the release registers, and this backend neither has nor reaches through core: data/targets/*-holes.tsv. --check
        compares only. The reasons are in REASONS.

A new profile is embedded by two lines of CMakeLists.txt and found by one of src/pilot/target_ops.cpp.
"""

import argparse
import collections
import json
import pathlib
import re
import sys

import torch
from torch.utils._python_dispatch import TorchDispatchMode

ROOT = pathlib.Path(__file__).resolve().parents[1]
PROFILES = ROOT / "data/targets"
COMPOSITES = ["CompositeImplicitAutograd", "CompositeExplicitAutograd", "CompositeExplicitAutogradNonFunctional"]

# Why an overload that a release registers is not here. The first pattern that fits counts; what none fits is to be done.
REASONS = [
    (r"_scaled_(grouped_)?mm.*", "fp8 products: the CPU has no kernel whose numbers could be compared"),
    (r"_nested_.*|_jagged_.*|_padded_dense_to_jagged.*", "nested tensors: their own dispatch key serves torch.jagged"),
    (r"_scaled_dot_product_cudnn.*", "called by CUDA's choice of a kernel alone"),
    (r"_native_multi_head_attention|_transformer_encoder_layer_fwd|_masked_softmax.*", "torch.nn's fast path, which it takes on CPU, CUDA and XPU alone"),
    (r"_fused_moving_avg_obs_fq_helper|fake_quantize_.*|_add_relu.*", "quantisation"),
    (r"linear_backward", "called by MPS and MKL-DNN alone: others get linear's parts"),
    (r"(addmm|baddbmm|bmm|mm)\.dtype(_out)?", "f32 results of 16-bit products: CUDA's own overloads, which the CPU has not"),
    (r"_fused_dropout", "called by CUDA alone: others get native_dropout"),
    (r"_weight_norm_interface", "called by CPU and CUDA alone: others get norm and a product"),
]  # fmt: skip


def has(name, *keys):
    return any(torch._C._dispatch_has_kernel_for_dispatch_key(name, key) for key in keys)


def overloads(key=None):
    names = [n for n in torch._C._dispatch_get_all_op_names() if key is None or has(n, key)]
    return sorted(n[6:] if n.startswith("aten::") else n for n in names)


def twins():
    """{overload: overloads of the same op with the same inputs}, in place and out= ones too."""
    groups = collections.defaultdict(list)
    for name in overloads():
        if "::" in name:
            continue
        base, _, overload = name.partition(".")
        packet = getattr(torch.ops.aten, base, None)
        schema = getattr(packet, overload or "default")._schema if packet else None
        if schema:
            inputs = tuple((a.name, str(a.type)) for a in schema.arguments if not a.is_out)
            groups[base.rstrip("_") or base, inputs].append(name)
    return {name: group for group in groups.values() for name in group}


def absent(registered):
    """Overloads of ATen that neither the release nor core serves there: no kernel, or one of core's that only calls a twin
    which has none."""
    same = twins()

    def served(name):
        if name in registered or has("aten::" + name, COMPOSITES[0]):
            return True
        of_twins = has("aten::" + name, COMPOSITES[2]) or name.endswith("out") or name.partition(".")[0].endswith("_")
        if has("aten::" + name, *COMPOSITES[1:]) and of_twins:
            return any(
                t in registered
                or (t != name and has("aten::" + t, COMPOSITES[0], COMPOSITES[1]) and not t.endswith("out"))
                for t in same.get(name, ())
            )
        return has("aten::" + name, COMPOSITES[1])

    return [n for n in overloads() if "::" not in n and not served(n)]


class Dispatched(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.seen = set()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.seen.add(func.name().removeprefix("aten::"))
        return func(*args, **(kwargs or {}))


def dispatched(entry, dtype, mode):
    """Overloads that the first three samples of an entry dispatch; those of the backward alone for that mode."""
    with_gradients = mode == "backward"
    seen, forward = Dispatched(), set()
    for i, sample in enumerate(entry.sample_inputs("cpu", dtype, requires_grad=with_gradients)):
        if i == 3:
            break
        with seen:
            op = entry.inplace_variant if mode == "inplace" and entry.inplace_variant else entry
            result = op(sample.input.clone() if op is not entry else sample.input, *sample.args, **sample.kwargs)
            if with_gradients:
                forward |= seen.seen
                seen.seen = set()
                leaves = [
                    t
                    for t in torch.utils._pytree.tree_leaves(result)
                    if isinstance(t, torch.Tensor) and t.requires_grad
                ]
                torch.autograd.backward(leaves, [torch.ones_like(t) for t in leaves])
    return seen.seen


def named_like(overload, entry):
    """Four letters in common: "replication_pad2d" and "pad.replicate_negative"."""
    letters = re.sub(r"[^a-z]", "", entry.removeprefix("nn.functional."))
    mine = re.sub(r"[^a-z]", "", overload.partition(".")[0])
    return any(letters[i : i + 4] in mine for i in range(max(1, len(letters) - 3)))


def faults(observed, lacking):
    """What a release has and gets wrong, refuses or dies of: [{"entry", "mode", "dtype", "status", "overloads"}]. The overloads
    are those that the entry dispatches, that are named like it, and that no passing entry of that dtype dispatches."""
    from torch.testing._internal.common_methods_invocations import op_db

    entries = {f"{e.name}.{e.variant_test_name}" if e.variant_test_name else e.name: e for e in op_db}
    kinds = collections.defaultdict(dict)
    for line in observed:
        kinds[line["mode"], line["dtype"]][line["op_db"]] = line
    found = []
    passing = collections.defaultdict(set)
    for (mode, dtype), lines in kinds.items():
        for name, entry in entries.items():
            if name in lines or getattr(torch, dtype) not in entry.dtypes:
                continue
            try:
                passing[dtype] |= dispatched(entry, getattr(torch, dtype), mode)
            except Exception as error:  # an entry that the CPU itself cannot do says nothing
                print(f"{name} {mode} {dtype}: {error}", file=sys.stderr)
    for (mode, dtype), lines in kinds.items():
        for name, line in lines.items():
            if line["from_cpu_plugin"] or line["status"] not in ("wrong", "error", "crash") or name not in entries:
                continue
            seen = dispatched(entries[name], getattr(torch, dtype), mode) - passing[dtype]
            suspects = sorted(n for n in seen if n not in lacking and named_like(n, name))
            found.append({"entry": name, "mode": mode, "dtype": dtype, "status": line["status"], "overloads": suspects})
    return found


def lines_of(path):
    return [line.strip() for line in pathlib.Path(path).read_text().splitlines() if line.strip() and line[0] != "#"]


def build(name, registered_file, observed_file, date):
    registered = [n.removeprefix("aten::") for n in lines_of(registered_file)]
    observed = [json.loads(line) for line in lines_of(observed_file)]
    own = [n for n in registered if "::" not in n]
    lacking = absent(set(own))
    profile = {
        "target": name,
        "date": date,
        "torch": torch.__version__.partition("+")[0],
        "source": "registrations: the dispatcher of torch with the release's wheel. Observations: the first 3 samples of each entry of "
        "op_db, over a CPU PJRT plugin through an unsupported shim; faults of that plugin are left out",
        "registered": own,
        "other_namespaces": [n for n in registered if "::" in n],
        "absent": lacking,
        "faults": faults(observed, set(lacking)),
        "refused": sorted({line["missing"].removeprefix("aten::") for line in observed if line["missing"]}),
    }
    rows = [
        f"  {json.dumps(k)}: "
        + ("[\n    " + ",\n    ".join(map(json.dumps, v)) + "\n  ]" if k == "faults" else json.dumps(v))
        for k, v in profile.items()
    ]
    print("{\n" + ",\n".join(rows) + "\n}")


def holes(profile):
    """[(overload, reason)]: registered there, and here neither a kernel nor one of core's composites."""
    known = set(overloads())
    open_ones = [n for n in profile["registered"] if n in known and not has("aten::" + n, "PrivateUse1", *COMPOSITES)]
    reason = {n: next((why for pattern, why in REASONS if re.fullmatch(pattern, n)), "not done yet") for n in open_ones}
    return sorted(reason.items())


def unused_reasons(profile):
    names = [name for name, _ in holes(profile)]
    return [pattern for pattern, _ in REASONS if not any(re.fullmatch(pattern, name) for name in names)]


def holes_text(profile):
    return "# Made by scripts/target_profile.py holes: registered there, not here. overload, reason\n" + "".join(
        f"{name}\t{why}\n" for name, why in holes(profile)
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("registered")
    builder = commands.add_parser("build")
    for argument in ("name", "registered", "observed", "--date"):
        builder.add_argument(argument)
    lister = commands.add_parser("holes")
    lister.add_argument("profile", nargs="?", default=str(PROFILES / "torch_tpu-0.2.0.json"))
    lister.add_argument("--check", action="store_true")
    arguments = parser.parse_args()
    if arguments.command == "registered":
        print(
            f"# {len(overloads('PrivateUse1'))} overloads, torch {torch.__version__}",
            *overloads("PrivateUse1"),
            sep="\n",
        )
    elif arguments.command == "build":
        build(arguments.name, arguments.registered, arguments.observed, arguments.date)
    else:
        torch.empty(0, device="tpu")  # the rows of this backend are there once it is loaded
        path = pathlib.Path(arguments.profile)
        table, text = path.with_name(path.stem + "-holes.tsv"), holes_text(json.loads(path.read_text()))
        if arguments.check and table.read_text() != text:
            print(f"{table} is not up to date: run python scripts/target_profile.py holes")
            return 1
        if not arguments.check:
            table.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
