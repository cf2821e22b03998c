"""The recorder that runs a user's job in one environment and leaves evidence. It records; it never judges.

One file, so that it can be copied to an old machine: Python >= 3.9, torch >= 2.1, and nothing else (no NumPy, no safetensors,
no pickle for evidence, no tpupilot). What it is asked and what it writes: docs/worker-protocol.md.

    python -u worker.py --request REQUEST.json

On a machine without tpupilot, a copy that was exported for a job records by itself:

    python worker.py --record job.py --out FOLDER
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import copy
import ctypes
import dataclasses
import enum
import errno
import gc
import glob
import hashlib
import importlib
import importlib.metadata
import importlib.util
import json
import math
import numbers
import os
import platform
import random
import shutil
import signal
import subprocess
import sys
import time
import traceback


@contextlib.contextmanager
def importing():
    """No garbage collection meanwhile, nor later of what is there by then: hundreds of thousands of objects and no garbage among them.
    Going through them again and again, and once more at exit, is a third of the time of a short task."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if collects:
            gc.enable()


with importing():
    import torch
    from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook
    from torch.overrides import TorchFunctionMode
    from torch.utils._python_dispatch import TorchDispatchMode

PROTOCOL = 1
RECORDING = None  # `tpupilot worker --export FILE JOB` puts the plan of a recording here
ROOT_MODULE = "(root)"


# ---- tensors as bytes ---------------------------------------------------------------------------------------------------

SAFE_DTYPES = {
    torch.float64: "F64", torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16",
    torch.int64: "I64", torch.int32: "I32", torch.int16: "I16", torch.int8: "I8", torch.uint8: "U8", torch.bool: "BOOL",
}  # fmt: skip
TORCH_DTYPES = {name: dtype for dtype, name in SAFE_DTYPES.items()}


def on_host(tensor):
    """A dense CPU copy (or the tensor itself, if it is one)."""
    tensor = tensor.detach()
    if tensor.layout != torch.strided:
        tensor = tensor.to_dense()
    return tensor.to("cpu").resolve_conj().resolve_neg().contiguous()


def tensor_bytes(tensor):
    host = on_host(tensor)
    count = host.numel() * host.element_size()
    return ctypes.string_at(host.data_ptr(), count) if count else b""


def tensor_sha256(tensor):
    digest = hashlib.sha256(f"{dtype_name(tensor.dtype)}{list(tensor.shape)}".encode())
    digest.update(tensor_bytes(tensor))
    return digest.hexdigest()


def dtype_name(dtype):
    return str(dtype).replace("torch.", "")


def json_sha256(value):
    return hashlib.sha256(json.dumps(value, sort_keys=True, default=str).encode()).hexdigest()


def file_sha256(path):
    digest = hashlib.sha256()
    with open(path, "rb") as f:
        for block in iter(lambda: f.read(1 << 20), b""):
            digest.update(block)
    return digest.hexdigest()


def storable(tensors):
    """Complex tensors as real ones with a last dim of 2, named <name>#complex: the file format has no complex type."""
    result = {}
    for name, tensor in tensors.items():
        if tensor.is_complex():
            result[name + "#complex"] = torch.view_as_real(on_host(tensor))
        elif tensor.dtype in SAFE_DTYPES:
            result[name] = tensor
        else:
            raise JobError("save", f"tensor '{name}' has dtype {tensor.dtype}, which cannot be recorded")
    return result


NO_ROOM = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


class CannotWrite(Exception):
    """A file of the evidence that cannot be written: exit code 3. The sentence names it and says what to do."""

    where, code = "write", 3

    def __init__(self, path, error):
        room = ""
        with contextlib.suppress(OSError):
            room = f" ({shutil.disk_usage(os.path.dirname(path)).free} bytes are free there)"
        super().__init__(
            f"cannot write {path}: {os.strerror(error.errno)}{room}; free space there, or raise the limit."
        )


@contextlib.contextmanager
def writing(path, unfinished=None):
    """An OSError inside names `path`. `unfinished`, a file or folder that is no evidence yet, then goes: that makes room
    for the event that says so."""
    try:
        yield
    except (OSError, CannotWrite) as error:
        if unfinished:
            with contextlib.suppress(OSError):
                shutil.rmtree(unfinished) if os.path.isdir(unfinished) else os.unlink(unfinished)
        if isinstance(error, CannotWrite):
            raise
        raise CannotWrite(path, error) from error


def write_safetensors(path, tensors, metadata=None):
    """Writes and syncs. Raises FileExistsError rather than overwrite, CannotWrite if there is no room."""
    tensors = storable(tensors)
    header, offset = {}, 0
    if metadata:
        header["__metadata__"] = metadata
    for name, tensor in tensors.items():
        size = tensor.numel() * tensor.element_size()
        header[name] = {
            "dtype": SAFE_DTYPES[tensor.dtype],
            "shape": list(tensor.shape),
            "data_offsets": [offset, offset + size],
        }
        offset += size
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    if os.path.exists(path):
        raise FileExistsError(errno.EEXIST, "nothing is overwritten", path)
    with writing(path, path), open(path, "xb") as f:
        f.write(len(text).to_bytes(8, "little"))
        f.write(text)
        for tensor in tensors.values():
            f.write(tensor_bytes(tensor))
        f.flush()
        os.fsync(f.fileno())


def read_safetensors(path):
    """(tensors by name, metadata). Raises JobError for a file that is cut short or damaged in its frame."""
    with open(path, "rb") as f:
        data = f.read()
    try:
        length = int.from_bytes(data[:8], "little")
        header = json.loads(data[8 : 8 + length])
    except ValueError as error:
        raise JobError("load", f"{path} is not a safetensors file ({error})", 1) from error
    metadata = header.pop("__metadata__", {})
    body, tensors = data[8 + length :], {}
    for name, entry in header.items():
        begin, end = entry["data_offsets"]
        if end > len(body):
            raise JobError("load", f"{path} is cut short: '{name}' ends at byte {end}, the data has {len(body)}", 1)
        tensor = torch.empty(entry["shape"], dtype=TORCH_DTYPES[entry["dtype"]])
        if end > begin:
            ctypes.memmove(tensor.data_ptr(), body[begin:end], end - begin)
        if name.endswith("#complex"):
            name, tensor = name[: -len("#complex")], torch.view_as_complex(tensor)
        tensors[name] = tensor
    return tensors, metadata


# ---- nests of values ------------------------------------------------------------------------------------------------------


def leaves(value, path=""):
    """(path, leaf) of every leaf in nested mappings, sequences and dataclasses, in order."""

    def join(key):
        return f"{path}/{key}" if path else str(key)

    if isinstance(value, collections.abc.Mapping):
        for key, item in value.items():
            yield from leaves(item, join(key))
    elif isinstance(value, (list, tuple)):
        for i, item in enumerate(value):
            yield from leaves(item, join(i))
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        for field in dataclasses.fields(value):
            yield from leaves(getattr(value, field.name), join(field.name))
    else:
        yield path or "0", value


def map_tensors(value, change):
    """The same nest with every tensor changed."""
    if isinstance(value, torch.Tensor):
        return change(value)
    if isinstance(value, collections.abc.Mapping):
        changed = {k: map_tensors(v, change) for k, v in value.items()}
        if type(value) is dict:
            return changed
        same = copy.copy(value)  # keeps what else its type holds: a default factory, attributes
        for k, v in changed.items():
            same[k] = v
        return same
    if isinstance(value, torch.Size):
        return value
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(map_tensors(v, change) for v in value))
    if isinstance(value, (list, tuple)):
        return type(value)(map_tensors(v, change) for v in value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        same = copy.copy(value)
        for field in dataclasses.fields(value):  # a frozen one too, and fields that its constructor does not take
            object.__setattr__(same, field.name, map_tensors(getattr(value, field.name), change))
        return same
    return value


def tensors_in(value):
    return {path: leaf for path, leaf in leaves(value) if isinstance(leaf, torch.Tensor)}


def outputs_in(value):
    """{path: tensor} of every tensor and number in a nest of outputs; a number as a tensor without dims."""
    found = {}
    for path, leaf in leaves(value):
        if isinstance(leaf, (bool, int, float)):
            leaf = torch.tensor(float(leaf) if abs(leaf) >= 2**63 else leaf)
        if isinstance(leaf, torch.Tensor):
            found[path] = leaf.detach()
    return found


def leaf_text(path, leaf):
    """What a hash takes of a leaf. JobError for a thing whose text is another in each process."""
    if isinstance(leaf, torch.Tensor):
        return tensor_sha256(leaf)
    if leaf is None or isinstance(leaf, (str, bytes, numbers.Number, enum.Enum, torch.dtype, torch.device)):
        return repr(leaf)
    if hasattr(leaf, "__array__"):
        return tensor_sha256(torch.as_tensor(leaf))
    raise JobError(
        "batch",
        f"'{path}' is a {type(leaf).__module__}.{type(leaf).__qualname__}; give tensors, numbers and texts, or nests of "
        "them (dict, list, tuple, dataclass)",
    )


def nest_sha256(value):
    digest = hashlib.sha256()
    for path, leaf in leaves(value):
        digest.update(f"{path}={leaf_text(path, leaf)}".encode())
    return digest.hexdigest()


def signature_of(batch):
    """Shapes and dtypes of a batch's tensors: "float32[64,1,8,8] int64[64]"."""
    return " ".join(f"{dtype_name(t.dtype)}[{','.join(map(str, t.shape))}]" for t in tensors_in(batch).values())


# ---- events ---------------------------------------------------------------------------------------------------------------


class JobError(Exception):
    """Something in the job or the request does not fit. `where` names the part."""

    def __init__(self, where, message, code=2):
        super().__init__(message)
        self.where, self.code = where, code


class Events:
    """events.jsonl of one side: appended, one object a line, flushed at once."""

    def __init__(self, folder):
        os.makedirs(folder, exist_ok=True)
        self._path = os.path.join(folder, "events.jsonl")
        self._attempts = {}
        torn = False
        if os.path.exists(self._path):
            with open(self._path, "rb") as f:
                data = f.read()
            torn = bool(data) and not data.endswith(b"\n")
            for line in data.splitlines():
                with contextlib.suppress(ValueError):
                    event = json.loads(line)
                    if event.get("event") == "task.start":
                        self._attempts[event["task"]] = event["attempt"]
        with writing(self._path):
            self._file = open(self._path, "a", encoding="utf-8")  # noqa: SIM115  (open as long as the process lives)
        if torn:
            self._file.write("\n")
        self.task, self.attempt = None, 0

    def start(self, name, request):
        self.task, self.attempt = name, self._attempts.get(name, 0) + 1
        self._attempts[name] = self.attempt
        self.emit("task.start", request=request, pid=os.getpid(), torch=torch.__version__)

    def emit(self, event, **fields):
        line = {"event": event, "task": self.task, "attempt": self.attempt, "time": time.time(), **fields}
        with writing(self._path):
            self._file.write(json.dumps(line, default=str, allow_nan=True) + "\n")
            self._file.flush()


# ---- the device -----------------------------------------------------------------------------------------------------------


class Device:
    """The device of a request, with what generic code needs of its module. The CPU has no module."""

    def __init__(self, name):
        self.name = name
        self.type = name.split(":")[0]
        self.import_error = None
        try:
            if self.type == "tpu" and not hasattr(torch, "tpu"):
                backend = importlib.import_module("tpupilot" if importlib.util.find_spec("tpupilot") else "torch_tpu")
                failure = getattr(backend, "error", lambda: None)()  # torch only knows that there is no device "tpu"
                if failure:
                    raise failure
            elif self.type == "xla":
                importlib.import_module("torch_xla")
            self.torch = torch.device(name)
        except Exception as error:
            self.import_error = f"{type(error).__name__}: {error}"
            self.torch = None
        self.module = None if self.type == "cpu" else getattr(torch, self.type, None)

    def available(self):
        if self.torch is None:
            return False
        if self.type == "cpu":
            return True
        try:
            torch.empty(1, device=self.torch)
            return True
        except Exception as error:
            self.import_error = f"{type(error).__name__}: {error}"
            return False

    def call(self, name, *args):
        """module.name(*args), or None where there is no such function."""
        function = getattr(self.module, name, None)
        return function(*args) if function else None

    def synchronize(self):
        self.call("synchronize")

    def rng_state(self):
        return self.call("get_rng_state")

    def counters(self):
        return self.call("counters")

    def rehearse(self, passes, always):
        """f32 products in so many passes of bf16. False where the device cannot be told."""
        able = hasattr(self.module, "rehearse_passes")
        if able:
            self.module.rehearse_passes(passes, always)
        return able

    def peak_memory(self):
        peak = self.call("max_memory_allocated")
        return (None, "unknown") if peak is None else (int(peak), f"torch.{self.type}.max_memory_allocated")


# ---- random numbers -------------------------------------------------------------------------------------------------------


def seed_everything(seed):
    random.seed(seed)
    torch.manual_seed(seed)
    with contextlib.suppress(ImportError):  # now, or a job that imports it later finds its generator unseeded
        importlib.import_module("numpy").random.seed(seed % 2**32)


def python_rng():
    version, words, gauss = random.getstate()
    return [version, list(words), gauss]


def numpy_rng():
    numpy = sys.modules.get("numpy")
    if numpy is None:
        return None
    name, keys, position, has_gauss, cached = numpy.random.get_state()
    return [name, [int(k) for k in keys], int(position), int(has_gauss), float(cached)]


def set_host_rng(state):
    version, words, gauss = state["python"]
    random.setstate((version, tuple(words), gauss))
    numpy = sys.modules.get("numpy")
    if state["numpy"] is not None and numpy is not None:
        name, keys, *rest = state["numpy"]
        numpy.random.set_state((name, keys, *rest))


@contextlib.contextmanager
def host_rng_kept():
    """What runs inside leaves the host's generators as they were: importing a library may draw from them."""
    before = {"python": python_rng(), "numpy": numpy_rng()}
    torch_state = torch.get_rng_state()
    try:
        yield
    finally:
        set_host_rng(before)
        torch.set_rng_state(torch_state)


FUNCTIONAL = torch.nn.functional
DROPOUTS = {  # function -> dims of the mask, by the rank of the input; None = the input's own shape
    FUNCTIONAL.dropout: None,
    torch.dropout: None,
    FUNCTIONAL.dropout1d: 1,
    FUNCTIONAL.dropout2d: 2,
    FUNCTIONAL.dropout3d: 3,
}
DRAWS = {
    getattr(torch, n): n
    for n in (
        "rand",
        "randn",
        "randint",
        "randperm",
        "rand_like",
        "randn_like",
        "randint_like",
        "bernoulli",
        "normal",
        "multinomial",
        "poisson",
    )
}
IN_PLACE_DRAWS = {
    getattr(torch.Tensor, n): n
    for n in ("uniform_", "normal_", "bernoulli_", "random_", "exponential_", "geometric_", "log_normal_", "cauchy_")
}
# Random functions that are neither recorded nor replayed: their draws are listed, so that nobody takes them for equal.
UNTRACKED = {FUNCTIONAL.alpha_dropout, FUNCTIONAL.feature_alpha_dropout, FUNCTIONAL.rrelu, FUNCTIONAL.gumbel_softmax}
UNTRACKED |= {FUNCTIONAL.fractional_max_pool2d, FUNCTIONAL.fractional_max_pool3d}


class Draws(TorchFunctionMode):
    """Random draws of the step, function by function: recorded on one side, replayed on the other in the same order.

    Dropout is computed from its keep mask in one canonical way on both sides, since devices dispatch different ops for it.
    Draws of Python's and NumPy's generators are not replayed: both sides start them from the same state.
    """

    def __init__(self, mode, entries=None, kinds=None):
        super().__init__()
        self.mode = mode
        self.entries, self.kinds = entries or {}, kinds or []
        self.index = 0
        self.replayed = 0
        self.paused = False  # while the worker itself computes
        self.unmatched, self.untracked = [], []

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if self.mode != "native" and not self.paused:
            if func in DROPOUTS:
                return self._dropout(func, *args, **kwargs)
            if func is FUNCTIONAL.scaled_dot_product_attention:
                return self._attention(*args, **kwargs)
            if func in DRAWS:
                return self._value(DRAWS[func], lambda: func(*args, **kwargs))
            if func in IN_PLACE_DRAWS:
                return self._in_place(IN_PLACE_DRAWS[func], func, *args, **kwargs)
            if func in UNTRACKED:
                self.untracked.append(func.__name__)
        return func(*args, **kwargs)

    def _draw(self, kind, shape, native):
        """The tensor of this draw: the recorded one, or a native one (which is recorded)."""
        index, name = self.index, f"{self.index:06d}"
        self.index += 1
        if self.mode == "record":
            value = native()
            self.entries[name] = on_host(value).clone()
            self.kinds.append([kind, list(value.shape)])
            return value
        if name in self.entries and self.kinds[index] == [kind, list(shape)]:
            self.replayed += 1
            return self.entries[name]
        found = self.kinds[index] if index < len(self.kinds) else None
        why = "nothing was recorded" if found is None else f"recorded was {found[0]} of shape {found[1]}"
        self.unmatched.append({"index": index, "function": kind, "why": f"{why}, wanted {kind} of shape {list(shape)}"})
        return native()

    def _keep_mask(self, kind, x, p, shape):
        def native():
            return torch.empty(shape, device=x.device, dtype=torch.float32).bernoulli_(1 - p).bool()

        return self._draw(kind, shape, native).to(x.device)

    def _dropout(self, func, input, p=0.5, training=True, inplace=False, train=None):
        if func is torch.dropout and train is not None:
            training = train
        if not training or p == 0:
            return func(input, p, training)
        channels = DROPOUTS[func]
        shape = list(input.shape)
        if channels is not None:
            kept = input.dim() - channels
            shape = shape[:kept] + [1] * channels
        if p == 1:
            result = input * 0
        else:
            mask = self._keep_mask(func.__name__, input, p, shape)
            result = input * mask.to(input.dtype) * (1 / (1 - p))
        return input.copy_(result) if inplace else result

    def _attention(
        self, query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, enable_gqa=False
    ):
        attention = FUNCTIONAL.scaled_dot_product_attention
        extra = {"enable_gqa": True} if enable_gqa else {}
        if dropout_p == 0:
            return attention(query, key, value, attn_mask, dropout_p, is_causal, scale=scale, **extra)
        if enable_gqa:
            repeat = query.size(-3) // key.size(-3)
            key, value = key.repeat_interleave(repeat, -3), value.repeat_interleave(repeat, -3)
        scores = query @ key.transpose(-2, -1) * (scale if scale is not None else 1 / math.sqrt(query.size(-1)))
        if is_causal:
            allowed = torch.ones(scores.shape[-2:], dtype=torch.bool, device=query.device).tril()
            scores = scores.masked_fill(~allowed, -math.inf)
        if attn_mask is not None:
            scores = scores.masked_fill(~attn_mask, -math.inf) if attn_mask.dtype == torch.bool else scores + attn_mask
        weights = scores.softmax(-1)
        mask = self._keep_mask("scaled_dot_product_attention", weights, dropout_p, list(weights.shape))
        return (weights * mask.to(weights.dtype) * (1 / (1 - dropout_p))) @ value

    def _value(self, kind, native):
        if self.mode == "record":
            return self._draw(kind, None, native)
        like = native()  # for its shape, dtype and device
        value = self._draw(kind, like.shape, lambda: like)
        return value.to(device=like.device, dtype=like.dtype)

    def _in_place(self, kind, func, tensor, *args, **kwargs):
        value = self._draw(kind, tensor.shape, lambda: func(tensor, *args, **kwargs))
        if value is not tensor:
            with torch.no_grad():
                tensor.copy_(value)
        return tensor


def open_draws(request):
    draws = request.get("draws") or {"mode": "native"}
    if draws["mode"] != "replay":
        return Draws(draws["mode"])
    if not draws["file"]:  # nothing was drawn
        return Draws("replay")
    entries, metadata = read_safetensors(draws["file"])
    return Draws("replay", entries, json.loads(metadata["draws"]))


# ---- what ops run where ---------------------------------------------------------------------------------------------------


BACKEND_KEYS = {"cpu": "CPU", "cuda": "CUDA", "xla": "XLA"}  # other devices are torch's PrivateUse1
COMPOSITES = ["CompositeImplicitAutograd", "CompositeExplicitAutograd", "CompositeExplicitAutogradNonFunctional"]


def kernel_of(op, device_type):
    """How torch's dispatcher serves an overload on a device: "native", by a kernel of the backend's; "derived", by one that
    core makes of the backend's out= overload; "composite", by core's own; "none"."""

    def has(name, *keys):
        return any(torch._C._dispatch_has_kernel_for_dispatch_key(name, key) for key in keys)

    def inputs(schema):
        return [(a.name, str(a.type)) for a in schema.arguments if not a.is_out]

    backend = BACKEND_KEYS.get(device_type, "PrivateUse1")
    if has(op.name(), backend):
        return "native"
    if has(op.name(), COMPOSITES[2]):
        base = op.name().partition("::")[2].partition(".")[0]
        packet = getattr(getattr(torch.ops, op.namespace), base.rstrip("_") if base.endswith("_") else base)
        twins = [getattr(packet, o) for o in packet.overloads()]
        same = [t for t in twins if t._schema.is_mutable and inputs(t._schema) == inputs(op._schema)]
        if any(has(t.name(), backend) for t in same):
            return "derived"
    return "composite" if has(op.name(), *COMPOSITES) else "none"


class OpTrace(TorchDispatchMode):
    """Counts every ATen op by device and dtype of its result, and follows data that leaves the device."""

    def __init__(self, device_type):
        super().__init__()
        self.device_type = device_type
        self.paused = False  # while the worker itself computes
        self.ops, self.cpu_on_device_data, self.host_counters = {}, {}, {}
        self.overloads = {}
        self.from_device = set()
        self.alive = []  # so that no id is used twice

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        if self.paused:
            return result
        inputs = tensors_in([args, kwargs or {}]).values()
        outputs = list(tensors_in([result]).values())
        name = str(func)
        where = outputs[0].device if outputs else next((t.device for t in inputs), torch.device("cpu"))
        dtype = dtype_name(outputs[0].dtype) if outputs else ""
        key = (name, str(where), dtype)
        self.ops[key] = self.ops.get(key, 0) + 1
        self.overloads[name] = func
        if self.device_type != "cpu":
            self._follow(name, list(inputs), outputs)
        return result

    def _follow(self, name, inputs, outputs):
        on_device = any(t.device.type == self.device_type for t in inputs)
        tainted = any(id(t) in self.from_device for t in inputs)
        stays = all(t.device.type == self.device_type for t in outputs)
        if outputs and not stays:
            if tainted and not on_device and "copy" not in name:
                self.cpu_on_device_data[name] = self.cpu_on_device_data.get(name, 0) + 1
            elif not tainted and not on_device and all(t.dim() == 0 for t in outputs):
                self.host_counters[name] = self.host_counters.get(name, 0) + 1
            if on_device or tainted:
                for t in outputs:
                    if t.device.type == "cpu":
                        self.from_device.add(id(t))
                        self.alive.append(t)

    def report(self):
        ops = [{"op": o, "device": d, "dtype": t, "count": n} for (o, d, t), n in sorted(self.ops.items())]
        on_cpu = [{"op": o, "count": n} for o, n in sorted(self.cpu_on_device_data.items())]
        kernels = {
            name: {"name": f.name(), "kernel": kernel_of(f, self.device_type)} for name, f in self.overloads.items()
        }
        return {"ops": ops, "kernels": kernels, "cpu_ops_on_device_data": on_cpu, "host_counters": self.host_counters}


# ---- the job --------------------------------------------------------------------------------------------------------------


class Job:
    """The user's file of functions, in one of three forms: the plain one (model, batch, loss, optimizer), whose step is the
    worker's own; inference (model, batch, forward); and the whole step (state, batch, step)."""

    def __init__(self, path):
        self.path = os.path.abspath(path)
        if not os.path.exists(self.path):
            raise JobError("import", f"the job file {path} does not exist")
        sys.path.insert(0, os.path.dirname(self.path))
        spec = importlib.util.spec_from_file_location("job", self.path)
        module = importlib.util.module_from_spec(spec)
        sys.modules["job"] = module
        spec.loader.exec_module(module)
        self.module = module
        self.whole_step = self.has("state") or self.has("step")
        self.inference = not self.whole_step and not self.has("optimizer") and self.has("forward")
        self._check_form(os.path.basename(path))
        self.own_format = self.has("checkpoint") and self.has("restore")

    def form(self):
        return "whole-step" if self.whole_step else "inference" if self.inference else "training"

    def _check_form(self, file):
        needed, form = {
            "whole-step": (("state", "step"), "a job that gives its whole step"),
            "inference": (("model", "forward"), "an inference job"),
            "training": (("model", "loss", "optimizer"), "a job"),
        }[self.form()]
        missing = [name for name in needed if not self.has(name)]
        if not self.has("batch") and not self.has("data"):
            missing.insert(min(1, len(missing)), "batch")
        if missing:
            wanted = ", ".join(needed[:-1] + ("batch",)) + f" and {needed[-1]}"
            other = "; an inference job has forward(model, batch) instead of loss and optimizer"
            raise JobError(
                "import",
                f"{file} has no function {missing[0]}(); {form} needs {wanted}" + other * (self.form() == "training"),
            )
        # A lone checkpoint() is no mistake if it was imported: torch.utils.checkpoint has that name.
        own = [n for n in ("checkpoint", "restore") if self.has(n) and getattr(self.get(n), "__module__", "") == "job"]
        for name, other in (("checkpoint", "restore"), ("restore", "checkpoint")):
            if name in own and not self.has(other):
                raise JobError(
                    "import",
                    f"{file} has {name}() but no {other}(); a format of its own needs both checkpoint(state, path) and "
                    "restore(path)",
                )

    def has(self, name):
        return callable(getattr(self.module, name, None))

    def get(self, name, default=None):
        return getattr(self.module, name, default)

    def compiled_modules(self):
        """Libraries with compiled parts that the job file imported: a build for another torch shows here."""
        found = []
        for name in (
            "torchvision",
            "torchaudio",
            "torchtext",
            "xformers",
            "flash_attn",
            "bitsandbytes",
            "apex",
            "deepspeed",
        ):
            if name in sys.modules:
                found.append(
                    {"module": name, "version": getattr(sys.modules[name], "__version__", None), "import_error": None}
                )
        return found

    def frames(self, error):
        """The job's own frames of an error, innermost last."""
        folder, result = os.path.dirname(self.path), []
        for frame in traceback.extract_tb(error.__traceback__):
            if os.path.abspath(frame.filename).startswith(folder + os.sep):
                file = os.path.relpath(frame.filename, folder)
                result.append({"file": file, "line": frame.lineno, "function": frame.name, "source": frame.line})
        if isinstance(error, SyntaxError) and error.filename and not result:
            result.append(
                {
                    "file": os.path.basename(error.filename),
                    "line": error.lineno,
                    "function": "<module>",
                    "source": (error.text or "").strip(),
                }
            )
        return result


@contextlib.contextmanager
def stage(where):
    """Errors inside are the job's, raised in this part of it."""
    try:
        yield
    except JobError:
        raise
    except Exception as error:
        if not hasattr(error, "tpupilot_where"):
            error.tpupilot_where = where
        raise


class Batches:
    """The job's data: a pure batch(step), or data(), an iterator whose position is part of the state. A job with a batch()
    may have a helper of its own that is called data()."""

    def __init__(self, job):
        self.job = job
        self.iterator = None if job.has("batch") else self._open()

    def _open(self):
        with stage("data"):
            iterator = self.job.module.data()
            for name in ("__next__", "state_dict", "load_state_dict"):
                if not hasattr(iterator, name):
                    raise JobError(
                        "data",
                        f"data() returned a {type(iterator).__name__} without {name}; it must return an iterator with "
                        "state_dict and load_state_dict, so that its position can be saved",
                    )
            return iterator

    def take(self, step):
        """The batch of this step; from an iterator, the next one."""
        with stage("batch" if self.iterator is None else "data"):
            batch = self.job.module.batch(step) if self.iterator is None else next(self.iterator)
            if not tensors_in(batch):
                source = f"batch({step})" if self.iterator is None else "the iterator of data()"
                raise JobError("batch", f"{source} returned no tensor")
            return batch

    def first(self, count):
        """The batches of the first steps, without moving this object's position."""
        source = self if self.iterator is None else Batches(self.job)
        for step in range(count):
            yield source.take(step)

    def state(self):
        return {} if self.iterator is None else {"iterator": encoded(self.iterator.state_dict())}

    def load(self, state):
        if self.iterator is not None:
            self.iterator.load_state_dict(decoded(state["iterator"]))


# ---- the parts of its state -----------------------------------------------------------------------------------------------


def encoded(value):
    """Any nest of plain values as JSON that `decoded` turns back into equal ones, of equal types."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, torch.Tensor):
        return {"#tensor": [dtype_name(value.dtype), encoded(on_host(value).tolist())]}
    if isinstance(value, collections.Counter):
        return {"#counter": [[encoded(k), v] for k, v in value.items()]}
    if isinstance(value, dict):
        if all(isinstance(k, str) and not k.startswith("#") for k in value):
            return {k: encoded(v) for k, v in value.items()}
        return {"#dict": [[encoded(k), encoded(v)] for k, v in value.items()]}
    if isinstance(value, tuple):
        return {"#tuple": [encoded(v) for v in value]}
    if isinstance(value, (set, frozenset)):
        return {"#set": sorted((encoded(v) for v in value), key=repr)}
    if isinstance(value, list):
        return [encoded(v) for v in value]
    raise JobError(
        "save", f"a {type(value).__module__}.{type(value).__qualname__} in the state cannot be written as JSON", 1
    )


def decoded(value):
    if isinstance(value, list):
        return [decoded(v) for v in value]
    if not isinstance(value, dict):
        return value
    if len(value) == 1:
        ((tag, items),) = value.items()
        if tag == "#tensor":
            return torch.tensor(decoded(items[1]), dtype=getattr(torch, items[0]))
        if tag == "#tuple":
            return tuple(decoded(v) for v in items)
        if tag == "#set":
            return {decoded(v) for v in items}
        if tag == "#counter":
            return collections.Counter({decoded(k): v for k, v in items})
        if tag == "#dict":
            return {decoded(k): decoded(v) for k, v in items}
    return {k: decoded(v) for k, v in value.items()}


class ModulePart:
    def __init__(self, module):
        self.module = module

    def tensors(self):
        return {**dict(self.module.named_parameters()), **dict(self.module.named_buffers())}

    def values(self):
        return {}

    def load(self, tensors, values):
        for name, target in self.tensors().items():
            target.copy_(tensors[name])

    def move(self, device, double):
        if double:
            self.module.double()
        self.module.to(device)


class OptimizerPart:
    """Its state by the names of its parameters."""

    def __init__(self, optimizer, names):
        self.optimizer, self.names = optimizer, names
        for group in optimizer.param_groups:
            for p in group["params"]:
                names.setdefault(id(p), f"unnamed.{len(names)}")

    def parameters(self):
        """(name, parameter) in the optimizer's order."""
        return [(self.names[id(p)], p) for group in self.optimizer.param_groups for p in group["params"]]

    def _entries(self):
        """(tensors by "<parameter>/<key>", other values alike)."""
        tensors, others = {}, {}
        for name, p in self.parameters():
            for key, value in self.optimizer.state.get(p, {}).items():
                target = tensors if isinstance(value, torch.Tensor) else others
                target[f"{name}/{key}"] = value
        return tensors, others

    def groups(self):
        """The param groups without their parameters; tensors in them (a capturable lr) as numbers."""
        plain = []
        for group in self.optimizer.param_groups:
            plain.append({k: v.item() if isinstance(v, torch.Tensor) else v for k, v in group.items() if k != "params"})
        return plain

    def tensors(self):
        return self._entries()[0]

    def values(self):
        return {"groups": self.groups(), "values": self._entries()[1]}

    def load(self, tensors, values):
        current = self.optimizer.state_dict()
        index = {}
        for group, live in zip(current["param_groups"], self.optimizer.param_groups):
            index.update({self.names[id(p)]: i for i, p in zip(group["params"], live["params"])})
        state = {}
        for path, value in [*tensors.items(), *values["values"].items()]:
            name, key = path.rsplit("/", 1)
            state.setdefault(index[name], {})[key] = value
        groups = [{**new, "params": old["params"]} for new, old in zip(values["groups"], current["param_groups"])]
        self.optimizer.load_state_dict({"state": state, "param_groups": groups})

    def move(self, device, double):
        """State that was made with the optimizer (Adagrad's sums) goes where the parameters are."""
        if self.optimizer.state:
            self.optimizer.load_state_dict(self.optimizer.state_dict())

    def hyper(self):
        return {
            "optimizer": type(self.optimizer).__qualname__,
            "defaults": dict(self.optimizer.defaults),
            "groups": self.groups(),
        }


class TensorPart:
    def __init__(self, tensor):
        self.tensor = tensor

    def tensors(self):
        return {"tensor": self.tensor}

    def values(self):
        return {}

    def load(self, tensors, values):
        self.tensor.copy_(tensors["tensor"])

    def move(self, device, double):
        data = self.tensor.data.to(device)
        self.tensor.data = (
            data.double() if double and data.is_floating_point() else data
        )  # the same object: others hold it


class GeneratorPart:
    """A generator stays on its device: its draws are the same wherever the job runs."""

    def __init__(self, generator):
        self.generator = generator

    def tensors(self):
        return {"state": self.generator.get_state()}

    def values(self):
        return {}

    def load(self, tensors, values):
        self.generator.set_state(tensors["state"])

    def move(self, device, double):
        pass


class StatefulPart:
    """Anything else with state_dict and load_state_dict: schedulers, scalers, samplers."""

    def __init__(self, value):
        self.value = value

    def tensors(self):
        return {}

    def values(self):
        return {"state_dict": self.value.state_dict()}

    def load(self, tensors, values):
        self.value.load_state_dict(values["state_dict"])

    def move(self, device, double):
        pass


def part_of(name, value, names):
    if isinstance(value, torch.nn.Module):
        return ModulePart(value)
    if isinstance(value, torch.optim.Optimizer):
        return OptimizerPart(value, names)
    if isinstance(value, torch.Tensor):
        return TensorPart(value)
    if isinstance(value, torch.Generator):
        return GeneratorPart(value)
    if hasattr(value, "state_dict") and hasattr(value, "load_state_dict"):
        return StatefulPart(value)
    raise JobError(
        "state",
        f"state()['{name}'] is a {type(value).__name__}; a part is a module, an optimizer, a tensor, a generator, or "
        "anything with state_dict and load_state_dict",
    )


FAULTS_OF_TRAINING = {"drop-gradient", "nan-gradient", "skip-update", "lose-optimizer-state"}


class Objects:
    """The live objects of one run, on their device: named parts. Those of the plain form are "model", "optimizer" and, if
    there is one, "scheduler"; a whole-step job names its own."""

    def __init__(self, job, device, seed, double=False, fault=None):
        self.job, self.device, self.double = job, device, double
        self.parts, self.names = {}, {}  # names: id of a parameter -> its name
        seed_everything(seed)
        self.state = self._build_state() if job.whole_step else {"model": self._build_model()}
        for name, value in self.state.items():
            self.name_parameters(name, value, self.names)
        for name, value in self.state.items():
            self.parts[name] = part_of(name, value, self.names)
        self.weights = {n: tensor_sha256(t) for n, t in self.state_tensors().items()}
        self.fault = self._possible_fault(fault)
        if self.fault["kind"] == "scale-weight":
            with torch.no_grad():
                self.fault_parameter(self.fault).mul_(self.fault.get("factor", 1.01))
        for kind in (ModulePart, TensorPart, OptimizerPart):  # the state of an optimizer follows its parameters
            for part in self.parts.values():
                if isinstance(part, kind):
                    part.move(device.torch, double)
        if job.form() == "training":
            self._build_optimizer()
        self.batches = Batches(job)
        self.next_step = 0

    def _build_model(self):
        with stage("model"):
            model = self.job.module.model()
            if not isinstance(model, torch.nn.Module):
                raise JobError("model", f"model() returned a {type(model).__name__}, not a torch.nn.Module")
            return model

    def _build_state(self):
        with stage("state"):
            state = self.job.module.state()
            if not isinstance(state, dict) or not state or not all(isinstance(k, str) and "/" not in k for k in state):
                raise JobError("state", "state() must return a dict of named parts; a name is text without '/'")
            for name in ("rng", "data"):
                if name in state:
                    raise JobError("state", f"state() names a part '{name}', which the pilot keeps itself")
            return state

    def _build_optimizer(self):
        with stage("optimizer"):
            optimizer = self.job.module.optimizer(self.state["model"])
            if not isinstance(optimizer, torch.optim.Optimizer):
                raise JobError(
                    "optimizer",
                    f"optimizer(model) returned a {type(optimizer).__name__}, not a torch.optim.Optimizer",
                )
        self.state["optimizer"] = optimizer
        if self.job.has("scheduler"):
            with stage("scheduler"):
                self.state["scheduler"] = self.job.module.scheduler(optimizer)
        for name in ("optimizer", "scheduler"):
            if name in self.state:
                self.parts[name] = part_of(name, self.state[name], self.names)

    def _possible_fault(self, fault):
        """The fault of a request; where the job has no optimizer, the one that stands in for it."""
        fault = fault or {"kind": None}
        trains = bool(self.optimizers()) if self.job.whole_step else not self.job.inference
        if trains or fault["kind"] not in FAULTS_OF_TRAINING:
            return fault
        if fault.get("without_optimizer"):
            return {**fault, "kind": fault["without_optimizer"]}
        raise JobError("request", f"the fault {fault['kind']} needs an optimizer, and this job has none")

    def name_parameters(self, name, value, names):
        prefix = f"{name}/" if self.job.whole_step else ""
        if isinstance(value, torch.nn.Module):
            for path, p in value.named_parameters():
                names.setdefault(id(p), prefix + path)
        elif isinstance(value, torch.Tensor):
            names.setdefault(id(value), name)

    def modules(self):
        """(prefix of its outputs' names, prefix of its modules' names, module)."""
        for name, part in self.parts.items():
            if isinstance(part, ModulePart):
                yield ("output", "", part.module) if not self.job.whole_step else (f"output/{name}", name, part.module)

    def optimizers(self):
        return {name: part for name, part in self.parts.items() if isinstance(part, OptimizerPart)}

    def trainable(self):
        """{name: parameter or bare tensor} that training may change."""
        tensors = {}
        for name, part in self.parts.items():
            if isinstance(part, ModulePart):
                tensors.update({self.names[id(p)]: p for p in part.module.parameters()})
            elif isinstance(part, TensorPart):
                tensors[name] = part.tensor
        return tensors

    def fault_parameter(self, fault):
        parameters = self.trainable()
        if fault.get("parameter", "auto") != "auto":
            return parameters[fault["parameter"]]
        chosen = next((p for p in parameters.values() if p.dim() > 1), next(iter(parameters.values()), None))
        if chosen is None:
            raise JobError("request", f"the fault {fault['kind']} needs a parameter, and this job has none", 1)
        return chosen

    def state_tensors(self):
        return {f"{name}/{key}": t for name, part in self.parts.items() for key, t in part.tensors().items()}

    def values(self):
        return {name: encoded(part.values()) for name, part in self.parts.items()}

    def rng_tensors(self):
        tensors = {"rng/torch": torch.get_rng_state()}
        device_state = self.device.rng_state()
        if device_state is not None:
            tensors["rng/device"] = device_state
        return tensors

    def data_position(self, steps_per_epoch):
        return {"step": self.next_step, "epoch": self.next_step // steps_per_epoch, **self.batches.state()}

    def state_sha256(self, steps_per_epoch):
        """One hash for each part of all live state."""
        rng = {name: tensor_sha256(t) for name, t in self.rng_tensors().items()}
        hashes = {
            name: json_sha256([{n: tensor_sha256(t) for n, t in part.tensors().items()}, encoded(part.values())])
            for name, part in self.parts.items()
        }
        hashes["rng"] = json_sha256([rng, python_rng(), numpy_rng()])
        hashes["data"] = json_sha256(self.data_position(steps_per_epoch))
        return hashes

    def hyper(self):
        others = {n: type(p.value).__qualname__ for n, p in self.parts.items() if isinstance(p, StatefulPart)}
        return {
            "optimizers": {name: part.hyper() for name, part in self.optimizers().items()},
            "others": others,
            "accumulate": self.job.get("accumulate", 1),
            "clip": self.job.get("clip"),
        }


# ---- checkpoints ----------------------------------------------------------------------------------------------------------


def save_checkpoint(objects, path, steps_per_epoch, pause=0.0):
    """Writes the pilot's own format beside `path` and renames it there. Returns {file: sha256}.

    A checkpoint that is there already is moved to <path>.old for the moment between the two renames; load_checkpoint finds it.
    """
    fresh = f"{path}.saving-{os.getpid()}"
    for left in glob.glob(glob.escape(path) + ".saving-*"):  # by a process that was killed: one process a side saves
        shutil.rmtree(left, ignore_errors=True)
    with writing(path, fresh):
        hashes = write_checkpoint_files(objects, fresh, steps_per_epoch, pause)
    if os.path.exists(path):
        shutil.rmtree(path + ".old", ignore_errors=True)
        os.rename(path, path + ".old")
    os.rename(fresh, path)
    shutil.rmtree(path + ".old", ignore_errors=True)
    folder = os.open(os.path.dirname(path), os.O_RDONLY)
    os.fsync(folder)
    os.close(folder)
    return hashes


def write_checkpoint_files(objects, folder, steps_per_epoch, pause):
    os.makedirs(folder)
    tensors_file, json_file = os.path.join(folder, "state.safetensors"), os.path.join(folder, "state.json")
    write_safetensors(tensors_file, {**objects.state_tensors(), **objects.rng_tensors()})
    time.sleep(pause)
    state = {
        "format": 2,
        "step": objects.next_step,
        "parts": objects.values(),
        "rng": {"python": python_rng(), "numpy": numpy_rng()},
        "data": objects.data_position(steps_per_epoch),
        "tensors_sha256": file_sha256(tensors_file),
    }
    with open(json_file, "x", encoding="utf-8") as f:
        f.write(json.dumps(state, sort_keys=True, indent=1))
        f.flush()
        os.fsync(f.fileno())
    if objects.job.own_format:
        save_own(objects, os.path.join(folder, "own"), steps_per_epoch)
    files = [os.path.join(root, name) for root, _, names in os.walk(folder) for name in names]
    return {os.path.relpath(file, folder): file_sha256(file) for file in sorted(files)}


def load_checkpoint(objects, path, lose=(), own=True):
    """Puts everything back, through the job's own format where it has one and `own` is not False. `lose` leaves kinds of
    state out on purpose: "optimizer", "rng"."""
    if not os.path.exists(path) and os.path.exists(path + ".old"):
        path = path + ".old"
    tensors_file = os.path.join(path, "state.safetensors")
    with open(os.path.join(path, "state.json"), encoding="utf-8") as f:
        state = json.load(f)
    if state.get("format") != 2:
        raise JobError("load", f"{path} has format {state.get('format')}; this worker reads format 2", 1)
    if file_sha256(tensors_file) != state["tensors_sha256"]:
        raise JobError(
            "load", f"{tensors_file} does not have the hash that state.json recorded: the checkpoint is damaged", 1
        )
    if own and objects.job.own_format:
        objects.next_step = state["step"]  # a pure batch(step) is counted by the pilot
        load_own(objects, os.path.join(path, "own"), lose)
        return
    tensors, _ = read_safetensors(tensors_file)
    with torch.no_grad():
        for name, part in objects.parts.items():
            if "optimizer" in lose and isinstance(part, OptimizerPart):
                continue
            own = {k[len(name) + 1 :]: t for k, t in tensors.items() if k.startswith(name + "/")}
            part.load(own, decoded(state["parts"][name]))
    objects.next_step = state["step"]
    objects.batches.load(state["data"])
    if "rng" not in lose:
        set_host_rng(state["rng"])
        torch.set_rng_state(tensors["rng/torch"])
        if "rng/device" in tensors:
            objects.device.call("set_rng_state", tensors["rng/device"])


# The job's own format, by its checkpoint(state, path) and restore(path). Beside the job's parts, `state` holds what the pilot
# keeps for it: "rng" (the global generators) and "data" (the position), both of plain values and tensors.


def save_own(objects, folder, steps_per_epoch):
    os.makedirs(folder)
    rng = {name[len("rng/") :]: t for name, t in objects.rng_tensors().items()}
    state = {
        **objects.state,
        "rng": {**rng, "python": python_rng(), "numpy": numpy_rng()},
        "data": objects.data_position(steps_per_epoch),
    }
    with stage("checkpoint"):
        objects.job.module.checkpoint(state, os.path.join(folder, "checkpoint"))
        if not os.listdir(folder):
            raise JobError("checkpoint", "checkpoint(state, path) wrote nothing at its path")


def load_own(objects, folder, lose=()):
    """A part that restore() leaves out stays as it was built: that is what a job that forgets one would go on with."""
    with stage("restore"):
        found = objects.job.module.restore(os.path.join(folder, "checkpoint"))
        known = [*objects.parts, "rng", "data"]
        if not isinstance(found, dict) or not set(found) <= set(known):
            got = (
                f"a dict with {', '.join(map(repr, found))}" if isinstance(found, dict) else f"a {type(found).__name__}"
            )
            raise JobError(
                "restore",
                f"restore(path) returned {got}; it must return a dict of what checkpoint() got: {', '.join(known)}",
            )
        names = {}
        for name, value in found.items():
            objects.name_parameters(name, value, names)
        with torch.no_grad():
            for name, part in objects.parts.items():
                if name in found and not ("optimizer" in lose and isinstance(part, OptimizerPart)):
                    take_over(objects, name, found[name], names)
        if "data" in found:
            objects.next_step = found["data"]["step"]
            objects.batches.load(found["data"])
        if "rng" in found and "rng" not in lose:
            set_host_rng(found["rng"])
            torch.set_rng_state(found["rng"]["torch"])
            if "device" in found["rng"] and objects.device.rng_state() is not None:
                objects.device.call("set_rng_state", found["rng"]["device"])


def take_over(objects, name, value, names):
    """One part from what restore() returned for it: its state_dict, or a part of the same kind."""
    part, live = objects.parts[name], objects.state[name]
    if isinstance(value, dict) and hasattr(live, "load_state_dict"):
        live.load_state_dict(value)
    elif isinstance(part, GeneratorPart) and isinstance(value, torch.Tensor):
        part.load({"state": value}, {})
    elif type(part_of(name, value, names)) is type(part):
        restored = part_of(name, value, names)
        part.load(restored.tensors(), decoded(encoded(restored.values())))
    else:
        raise JobError(
            "restore", f"restore(path) returned a {type(value).__name__} for '{name}', a {type(live).__name__}"
        )


# The everyday format of jobs: one torch.save of all state dicts.


class DeviceTag:
    """Reads back as a torch.device, which an interpreter without that device refuses to make: a fault to inject."""

    def __init__(self, name):
        self.name = name

    def __reduce__(self):
        return torch.device, (self.name,)


class Sink:
    """A file for torch.save, which hides why a write failed behind an error of its own."""

    def __init__(self, file):
        self.file, self.error = file, None

    def write(self, data):
        try:
            return self.file.write(data)
        except OSError as error:
            self.error = error
            raise

    def flush(self):
        self.file.flush()


def save_torch_file(objects, path, fault):
    """All state dicts by torch.save: beside `path`, then renamed there."""
    state = {}
    for name, value in objects.state.items():
        state[name] = value.state_dict() if hasattr(value, "state_dict") else objects.parts[name].tensors()
    if fault["kind"] == "device-tag":
        state["device"] = DeviceTag(objects.device.name if objects.device.type != "cpu" else "tpu")
    fresh = path + ".saving"
    with writing(path, fresh):
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(fresh, "wb") as f:
            sink = Sink(f)
            try:
                torch.save(state, sink)
            except Exception:
                if sink.error:
                    raise sink.error from None
                raise
        os.replace(fresh, path)


def load_torch_file(objects, path):
    state = torch.load(path, map_location="cpu", weights_only=True)
    for name, tensor in tensors_in(state).items():
        if tensor.device.type != "cpu":
            raise JobError("load", f"'{name}' of {path} comes back on {tensor.device} with map_location='cpu'", 1)
    with torch.no_grad():
        for name, value in objects.state.items():
            if hasattr(value, "load_state_dict"):
                value.load_state_dict(state[name])
            else:
                objects.parts[name].load(state[name], {})


# ---- one run --------------------------------------------------------------------------------------------------------------


class Recorder:
    """Writes tensor files of one task, and the events that name them."""

    def __init__(self, events, folder, task):
        self.events, self.folder, self.task = events, folder, task
        os.makedirs(os.path.join(folder, "tensors"), exist_ok=True)

    def free_name(self, stem):
        for number in range(1, 1000):
            name = f"tensors/{self.task}.{stem}" + (f".{number}" if number > 1 else "") + ".safetensors"
            if not os.path.exists(os.path.join(self.folder, name)):
                return name
        raise JobError("save", f"there are 1000 attempts of {self.task}.{stem}")

    def tensors(self, what, step, tensors, **fields):
        name = self.free_name(f"{what}.{step}")
        write_safetensors(os.path.join(self.folder, name), tensors)
        self.events.emit("tensors", step=step, what=what, file=name, names=list(tensors), **fields)

    def draws(self, draws):
        name = None
        if draws.mode == "record":
            name = self.free_name("draws")
            write_safetensors(os.path.join(self.folder, name), draws.entries, {"draws": json.dumps(draws.kinds)})
        self.events.emit(
            "draws", mode=draws.mode, recorded=len(draws.kinds) if draws.mode == "record" else 0, replayed=draws.replayed,
            unmatched=draws.unmatched, native_untracked=sorted(set(draws.untracked)), file=name,
        )  # fmt: skip


class ModuleTrace:
    """Inputs and outputs of every module of one step, in the order in which the modules end."""

    def __init__(self, modules, unobserved):
        self.tensors, self.handles, self.order, self.unobserved = {}, [], 0, unobserved
        for _, prefix, root in modules:
            for name, module in root.named_modules():
                path = ".".join(part for part in (prefix, name) if part)
                self.handles.append(module.register_forward_hook(self._hook(path or ROOT_MODULE)))

    def _hook(self, name):
        def hook(module, inputs, output):
            prefix = f"{self.order:05d}/{name}"
            self.order += 1
            with self.unobserved():
                for part, value in (("in", inputs), ("out", output)):
                    for path, t in tensors_in(value).items():
                        self.tensors[f"{prefix}/{part}/{path}"] = on_host(t).clone()

        return hook

    def remove(self):
        for handle in self.handles:
            handle.remove()


class RootOutputs:
    """What the root modules returned, call by call."""

    def __init__(self, modules, unobserved):
        self.tensors, self.calls, self.unobserved = {}, {}, unobserved
        self.handles = [module.register_forward_hook(self._hook(prefix)) for prefix, _, module in modules]

    def _hook(self, prefix):
        def hook(module, inputs, output):
            self.calls[prefix] = self.calls.get(prefix, 0) + 1
            stem = prefix if self.calls[prefix] == 1 else f"{prefix}#{self.calls[prefix]}"
            with self.unobserved():
                for path, t in outputs_in(output).items():
                    self.tensors[f"{stem}/{path}"] = t.clone()

        return hook

    def remove(self):
        for handle in self.handles:
            handle.remove()


SPOILED = {"drop-gradient": 0.0, "nan-gradient": math.nan}  # fault -> what the gradient of one parameter becomes


class Gradients:
    """What every optimizer is about to use, taken from torch's global hooks around its step."""

    def __init__(self, objects, unobserved, fault):
        self.objects, self.unobserved, self.fault = objects, unobserved, fault
        self.by_optimizer = {id(part.optimizer): part for part in objects.optimizers().values()}
        self.handles = [
            register_optimizer_step_pre_hook(self._before),
            register_optimizer_step_post_hook(self._after),
        ]
        self.begin(0, False)

    def begin(self, step, keep):
        """A new step; `keep`: its gradients are wanted whole, not only their figures."""
        self.step, self.keep = step, keep
        self.tensors, self.calls, self.updates = {}, {}, 0
        self.squares, self.nonfinite = 0.0, 0

    def _before(self, optimizer, args, kwargs):
        part = self.by_optimizer.get(id(optimizer))
        if part is None:
            raise JobError(
                "step",
                f"a {type(optimizer).__name__} that is not a part of state() made a step; add it, or its state is lost "
                "on resume",
                1,
            )
        call = self.calls[id(optimizer)] = self.calls.get(id(optimizer), 0) + 1
        with self.unobserved(), torch.no_grad():
            if self.fault["kind"] in SPOILED and self.step == self.fault.get("step", 0):
                self._spoil(SPOILED[self.fault["kind"]])
            for name, p in part.parameters():
                if p.grad is not None:
                    self._take(name if call == 1 else f"{name}#{call}", p.grad.detach())
                if self._is_skipped():
                    p.grad = None  # every optimizer leaves such a parameter alone

    def _after(self, optimizer, args, kwargs):
        self.updates += not self._is_skipped()

    def _is_skipped(self):
        return self.fault["kind"] == "skip-update" and self.step == self.fault.get("step", 0)

    def _spoil(self, value):
        gradient = self.objects.fault_parameter(self.fault).grad
        if gradient is not None:
            gradient.fill_(value)

    def _take(self, name, gradient):
        norm = torch.linalg.vector_norm(gradient.to_dense() if gradient.is_sparse else gradient).item()
        if not math.isfinite(norm):
            self.nonfinite += int((~torch.isfinite(on_host(gradient))).sum())
        self.squares += norm**2
        if self.keep:
            self.tensors[name] = gradient.clone()

    def norm(self):
        """Over all gradients of the step."""
        return math.sqrt(self.squares) if math.isfinite(self.squares) else self.squares

    def remove(self):
        for handle in self.handles:
            handle.remove()


class Run:
    """The task "run": trains for some steps and records what it is asked to."""

    def __init__(self, worker, request, name):
        self.worker, self.request, self.name = worker, request, name
        self.job, self.device, self.events = worker.job, worker.device, worker.events
        self.recorder = Recorder(self.events, worker.out, name)
        self.double = request.get("dtype") == "float64"
        self.fault = request.get("fault") or {"kind": None}
        self.draws = open_draws(request)
        self.ops = None

    def __call__(self):
        passes = self.request.get("passes")
        if passes is None:
            return self._run()
        able = self.device.rehearse(passes, True)
        try:
            return self._run() if able else 0
        finally:
            self.device.rehearse(self.worker.default_passes, False)
            job_asks = torch.get_float32_matmul_precision()
            self.events.emit("precision", passes=passes, able=able, matmul_precision=job_asks)

    def _run(self):
        deterministic = self.request.get("deterministic", False)
        torch.use_deterministic_algorithms(deterministic)
        self.objects = Objects(self.job, self.device, self.worker.seed, self.double, self.fault)
        self.fault = self.objects.fault
        self.gradients = Gradients(self.objects, self._unobserved, self.fault)
        try:
            return self._train()
        finally:
            self.gradients.remove()

    def _train(self):
        with host_rng_kept():
            signatures = self._check_batches()
        self._emit_inputs(signatures)
        self.device.call("reset_peak_memory_stats")
        self.counters_before = self.device.counters()
        if self.request.get("resume_from"):
            lose = {"lose-optimizer-state": ["optimizer"], "lose-rng-state": ["rng"]}.get(self.fault["kind"], ())
            with stage("load"):
                load_checkpoint(self.objects, self.request["resume_from"], lose)
        self._save_if_asked(-1)
        first = self.objects.next_step
        for step in range(first, self.request["steps"]):
            self._step(step)
        if self.request.get("export_torch"):
            save_torch_file(self.objects, self.request["export_torch"], self.fault)
            if self.job.own_format:
                save_own(self.objects, self.request["export_torch"] + ".own", self.worker.steps_per_epoch)
        self.recorder.draws(self.draws)
        self._emit_counters()
        return self.request["steps"] - first

    @contextlib.contextmanager
    def _default_dtype(self):
        """In the f64 run, tensors that a step makes for itself (noise, targets) are f64 too."""
        before = torch.get_default_dtype()
        if self.double:
            torch.set_default_dtype(torch.float64)
        try:
            yield
        finally:
            torch.set_default_dtype(before)

    @contextlib.contextmanager
    def _unobserved(self):
        """What the worker itself computes inside a step is no op and no draw of the job."""
        observers = [mode for mode in (self.ops, self.draws) if mode is not None]
        for mode in observers:
            mode.paused = True
        try:
            yield
        finally:
            for mode in observers:
                mode.paused = False

    # ---- before the first step ----
    def _micro_batches(self, batch):
        return list(batch) if self.job.get("accumulate", 1) > 1 else [batch]

    def _check_batches(self):
        """{signature: steps}; raises if one step does not give one batch."""
        batches = self.objects.batches
        first, again = (nest_sha256(next(batches.first(1))) for _ in range(2))
        if first != again:
            source = "batch(0) gives another" if batches.iterator is None else "data() gives another first"
            raise JobError(
                "batch",
                f"{source} batch when it is called again; a batch must depend on its step alone (use a torch.Generator "
                "seeded with it)",
            )
        signatures, self.signature_steps = {}, set()
        if self.request.get("record_signatures"):
            sizes = {}
            for step, batch in enumerate(batches.first(self.request["steps"])):
                signatures.setdefault(signature_of(batch), []).append(step)
                sizes[signature_of(batch)] = sum(t.numel() for t in tensors_in(batch).values())
            by_size = sorted(signatures, key=lambda s: (sizes[s], s))
            frequent = max(signatures, key=lambda s: len(signatures[s]))
            chosen = {by_size[0], by_size[len(by_size) // 2], by_size[-1], frequent}
            self.signature_steps = {signatures[s][0] for s in chosen}
        return signatures

    def _emit_inputs(self, signatures):
        rng = {
            "torch": tensor_sha256(torch.get_rng_state()),
            "python": json_sha256(python_rng()),
            "numpy": json_sha256(numpy_rng()),
        }
        self.events.emit(
            "inputs", weights=self.objects.weights, hyper=self.objects.hyper(), rng=rng,
            parameters=sum(p.numel() for p in self.objects.trainable().values()), form=self.job.form(),
            optimizers=list(self.objects.optimizers()), own_format=self.job.own_format, fault=self.fault["kind"],
            signatures=[{"signature": s, "steps": steps} for s, steps in signatures.items()],
        )  # fmt: skip

    # ---- a step ----
    def _step(self, step):
        begun = time.perf_counter()
        objects = self.objects
        stale = self.fault["kind"] == "stale-data" and self.request.get("resume_from")
        batch = objects.batches.take(step - 1 if stale else step)
        batch_sha256, signature = nest_sha256(batch), signature_of(batch)
        recorded = step in self.request.get("record_steps", ())
        forward = recorded or step in self.signature_steps
        moved = map_tensors(batch, self._to_device)
        if self.fault["kind"] == "swap-labels":
            moved = roll_labels(moved)
        outputs = RootOutputs(objects.modules() if forward else (), self._unobserved)
        traced = recorded and self.request.get("record_modules")
        trace = ModuleTrace(objects.modules() if traced else (), self._unobserved)
        self.ops = OpTrace(self.device.type) if step in self.request.get("trace_ops", ()) else None
        self.gradients.begin(step, recorded)
        learning_rate = next((part.groups()[0].get("lr") for part in objects.optimizers().values()), None)
        by_hand = not objects.optimizers() and not self.job.inference  # updates that no optimizer makes
        before = nest_sha256(objects.trainable()) if by_hand else None
        with self.ops or contextlib.nullcontext(), self.draws, self._default_dtype():
            loss, extras = self._steps[self.job.form()](self, step, moved)
        objects.next_step = step + 1
        self.device.synchronize()
        seconds = time.perf_counter() - begun
        outputs.remove()
        trace.remove()
        loss = None if loss is None else on_host(loss).double().reshape(())
        if self.job.inference:
            results = {f"forward/{k}": on_host(v) for k, v in outputs_in(extras).items()}
            nonfinite = sum(int((~torch.isfinite(t)).sum()) for t in results.values())
        else:
            results = {"loss": loss, **{f"dict/{k}": v for k, v in outputs_in(extras).items()}}
            nonfinite = self.gradients.nonfinite + (not math.isfinite(loss.item()))
        updated = self.gradients.updates > 0 if before is None else nest_sha256(objects.trainable()) != before
        if traced:
            self.recorder.tensors("modules", step, trace.tensors)
        if forward:
            sample = step in self.signature_steps
            self.recorder.tensors("forward", step, {**results, **outputs.tensors}, signature_sample=sample)
        if recorded:
            if objects.optimizers():
                self.recorder.tensors("gradients", step, self.gradients.tensors)
            self.recorder.tensors("state", step, objects.state_tensors())
        if self.ops is not None:
            self.events.emit("ops", step=step, fallbacks=self.device.call("fallbacks"), **self.ops.report())
        self.events.emit(
            "step", step=step, loss=None if loss is None else loss.item(),
            grad_norm=self.gradients.norm() if objects.optimizers() else None, lr=learning_rate, batch_sha256=batch_sha256,
            signature=signature, updated=updated, seconds=seconds, nonfinite=nonfinite, scalars=scalars_of(extras),
            outputs_sha256=nest_sha256(results) if self.job.inference else None, state_sha256=self._state(step),
        )  # fmt: skip
        self._save_if_asked(step)

    def _to_device(self, tensor):
        if self.double and tensor.is_floating_point():
            tensor = tensor.double()
        return tensor.to(self.device.torch)

    def _autocast(self):
        dtype = "bfloat16" if self.fault["kind"] == "bfloat16" else self.worker.request.get("autocast")
        if not dtype or self.double:
            return contextlib.nullcontext()
        return torch.autocast(self.device.type, dtype=getattr(torch, dtype))

    def _plain_step(self, step, batch):
        """The stock step of the plain form. Returns (the loss, the other values of its dict)."""
        model, optimizer = self.objects.state["model"], self.objects.state["optimizer"]
        model.train()
        optimizer.zero_grad()
        micro, total, extras = self._micro_batches(batch), None, {}
        for part in micro:
            with stage("loss"), self._autocast():
                result = self.job.module.loss(model, part)
            loss, extras = result if isinstance(result, tuple) else (result, {})
            if not isinstance(loss, torch.Tensor) or loss.numel() != 1:
                got = (
                    f"a tensor of shape {list(loss.shape)}"
                    if isinstance(loss, torch.Tensor)
                    else f"a {type(loss).__name__}"
                )
                raise JobError(
                    "loss",
                    f"loss(model, batch) returned {got}; it must return a tensor of one element, or (that, a dict)",
                )
            share = loss / len(micro)
            with stage("backward"):
                share.backward()
            total = share.detach() if total is None else total + share.detach()
        with stage("before_update"):
            clip = self.job.get("clip")
            if clip:
                torch.nn.utils.clip_grad_norm_(model.parameters(), clip)
            if self.job.has("before_update"):
                self.job.module.before_update(model, optimizer, step)
        with stage("step"):
            optimizer.step()
        if "scheduler" in self.objects.state:
            with stage("scheduler"):
                self.objects.state["scheduler"].step()
        if self.job.has("after_update"):
            with stage("after_update"):
                self.job.module.after_update(model, step)
        return total, extras

    def _whole_step(self, step, batch):
        """The job's own step. Its loss is the value named "loss", else the first one."""
        with stage("step"), self._autocast():
            result = self.job.module.step(self.objects.state, batch)
        values = {}
        for name, value in result.items() if isinstance(result, dict) else ():
            is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
            if is_number or (isinstance(value, torch.Tensor) and value.numel() == 1):
                values[name] = torch.tensor(float(value)) if is_number else value.detach().reshape(())
        if not values or len(values) != len(result):
            raise JobError(
                "step", "step(state, batch) must return a dict of scalars: numbers or tensors of one element"
            )
        return values.get("loss", next(iter(values.values()))), values

    def _inference_step(self, step, batch):
        """Returns (no loss, what forward() returned)."""
        model = self.objects.state["model"]
        model.eval()
        with stage("forward"), torch.no_grad(), self._autocast():
            outputs = self.job.module.forward(model, batch)
        if not outputs_in(outputs):
            raise JobError(
                "forward",
                f"forward(model, batch) returned a {type(outputs).__name__} without a tensor or a number; it must return the "
                "outputs to compare, in any nest",
            )
        return None, outputs

    _steps = {"training": _plain_step, "inference": _inference_step, "whole-step": _whole_step}

    def _state(self, step):
        wanted = self.request.get("hash_state", ())
        if wanted == "all" or step in wanted:
            return self.objects.state_sha256(self.worker.steps_per_epoch)
        return None

    # ---- after steps ----
    def _save_if_asked(self, step):
        for save in self.request.get("save", ()):
            if save["after_step"] != step:
                continue
            os.makedirs(os.path.dirname(save["path"]), exist_ok=True)
            files = save_checkpoint(self.objects, save["path"], self.worker.steps_per_epoch)
            hashes = self.objects.state_sha256(self.worker.steps_per_epoch)
            self.events.emit(
                "checkpoint", step=self.objects.next_step, path=save["path"], files=files, state_sha256=hashes
            )

    def _emit_counters(self):
        now, before = self.device.counters(), self.counters_before
        difference = {k: v - before.get(k, 0) for k, v in now.items()} if now is not None else None
        peak, source = self.device.peak_memory()
        self.events.emit("counters", counters=difference, peak_memory_bytes=peak, peak_memory_source=source)


def roll_labels(batch):
    """The batch with its last integer tensor rolled by one along its first dim."""
    integers = [path for path, t in tensors_in(batch).items() if not t.is_floating_point() and t.dim() > 0]
    if not integers:
        raise JobError("request", "the fault swap-labels needs an integer tensor in the batch")
    target = tensors_in(batch)[integers[-1]]
    return map_tensors(batch, lambda t: t.roll(1, 0) if t is target else t)


def scalars_of(extras):
    return {path: v for path, v in leaves(extras) if isinstance(v, (int, float)) and not isinstance(v, bool)}


# ---- custom operators -----------------------------------------------------------------------------------------------------

LARGER = 4099  # elements of the first tensor of the larger input, at least


def operator_named(job, name):
    """The callable behind "namespace::operator", "namespace::operator.overload", or a function's name."""
    namespace, separator, rest = name.partition("::")
    if separator:
        packet, _, overload = rest.partition(".")
        with contextlib.suppress(AttributeError):
            found = getattr(getattr(torch.ops, namespace), packet)
            return getattr(found, overload) if overload else found
        raise JobError(
            "custom_ops",
            f"custom_ops() names '{name}', which is not registered; import the library that does so in the job file",
        )
    found = getattr(job.module, name, None)
    if found is None and "." in name:
        module, _, attribute = name.rpartition(".")
        with contextlib.suppress(ImportError):
            found = getattr(importlib.import_module(module), attribute, None)
    if not callable(found):
        raise JobError(
            "custom_ops",
            f"custom_ops() names '{name}', which is neither namespace::operator nor a function of the job file",
        )
    return found


def custom_operators(job, seed):
    """{name: its common inputs, a list of tuples of arguments} of the job's custom_ops()."""
    if not job.has("custom_ops"):
        return {}
    seed_everything(seed)
    with stage("custom_ops"):
        named = job.module.custom_ops()
        whole = isinstance(named, dict) and all(
            isinstance(n, str)
            and isinstance(inputs, list)
            and inputs
            and all(isinstance(args, tuple) for args in inputs)
            for n, inputs in named.items()
        )
        if not whole:
            raise JobError(
                "custom_ops",
                "custom_ops() must return {operator's name: [(its arguments), ...]}, at least one tuple of arguments for each",
            )
        return named


@dataclasses.dataclass
class OperatorInput:
    what: str  # "common" or "boundary"
    label: str
    arguments: tuple
    layout: str = ""  # how the tensors lie in memory: "", "transposed", "every second", "offset"


def operator_inputs(common):
    """The job's inputs, and the boundary inputs that are made from the first of them."""
    yield from (OperatorInput("common", str(i), arguments) for i, arguments in enumerate(common))
    arguments = common[0]
    tensors = list(tensors_in(arguments).values())
    first = next((t for t in tensors if t.dim() > 0 and t.numel() > 0), None)
    if first is not None:
        yield from sized_inputs(arguments, tensors, first)
    for layout, label in (
        ("transposed", "non-contiguous, transposed"),
        ("every second", "non-contiguous, every second element"),
        ("offset", "sliced with an offset"),
    ):
        if any(t.numel() > 0 and t.dim() > (layout == "transposed") for t in tensors):
            yield OperatorInput("boundary", label, arguments, layout)
    yield from valued_inputs(arguments, tensors)


def sized_inputs(arguments, tensors, first):
    """Other sizes of the leading dim, of all tensors that share the first one's. Whole numbers may be indices or labels:
    they are never made larger, and go where there is nothing to point at."""
    leading, row = first.size(0), first.numel() // first.size(0)
    whole = {id(t) for t in tensors if not (t.is_floating_point() or t.is_complex() or t.dtype == torch.bool)}

    def with_rows(t, rows):
        if t.dim() == 0 or t.size(0) != leading:
            return t
        return t.repeat(-(-rows // leading), *[1] * (t.dim() - 1))[:rows]

    def made(label, change):
        return OperatorInput("boundary", label, map_tensors(arguments, change))

    def without_rows(t):
        return t[:0] if t.dim() and (t.size(0) == leading or id(t) in whole) else t

    def one_element(t):
        one = t[(slice(0, 1),) * t.dim()]
        return torch.zeros_like(one) if id(t) in whole else one

    yield made("empty", without_rows)
    yield made("one element", one_element)
    yield made("odd size", lambda t: with_rows(t, 13 if leading == 7 else 7))
    yield made("larger", lambda t: with_rows(t, max(2 * leading + 1, LARGER // row + 1)))
    last = first.size(-1)
    if first.dim() > 1 and last > 1 and not whole:
        odd = last - 1 if last % 2 == 0 else max(last - 2, 1)
        yield made("odd last dim", lambda t: t[..., :odd] if t.dim() and t.size(-1) == last else t)


def valued_inputs(arguments, tensors):
    """Values at the edge, in the first floating point tensor; without one, in the first of whole numbers."""
    numbers_ = [t for t in tensors if t.numel() > 0 and t.dtype != torch.bool]
    floating = [t for t in numbers_ if t.is_floating_point() or t.is_complex()]
    if not numbers_:
        return
    target = (floating or numbers_)[0]
    limits = torch.finfo(target.dtype) if floating else torch.iinfo(target.dtype)
    edges = {
        "NaN": (math.nan,),
        "Inf": (math.inf, -math.inf),
        "largest value of the dtype": (limits.max,),
        "smallest values of the dtype": (limits.smallest_normal, -0.0, limits.eps),
    } if floating else {"largest value of the dtype": (limits.max,), "smallest value of the dtype": (limits.min,)}  # fmt: skip
    for label, values in edges.items():
        changed = target.detach().clone().reshape(-1)
        for place, value in zip(range(0, changed.numel(), max(1, changed.numel() // len(values))), values):
            changed[place] = value
        changed = changed.reshape(target.shape)
        changed = map_tensors(arguments, lambda t, changed=changed: changed if t is target else t)
        yield OperatorInput("boundary", label, changed)


def laid_out(t, layout):
    """The same values with other strides or another offset; what lies between them is never theirs."""
    if layout == "transposed" and t.dim() > 1:
        return t.transpose(0, -1).contiguous().transpose(0, -1)
    if layout not in ("every second", "offset") or t.numel() == 0:
        return t
    flat = t.reshape(-1)
    whole = not (t.is_floating_point() or t.is_complex() or t.dtype == torch.bool)
    other = flat.roll(1) if whole else ~flat if t.dtype == torch.bool else torch.full_like(flat, 7)
    if layout == "every second":
        return torch.stack([flat, other], -1).reshape(*t.shape, 2)[..., 0]
    return torch.cat([other[:1], other[-1:], other[:1], flat])[3:].view(t.shape)


class OperatorCall:
    """One operator on one input: forward, and backward where it has one. The tensors, and the error that ended it."""

    def __init__(self, operator, given, device, seed, double=False):
        self.operator, self.given, self.device, self.double = operator, given, device, double
        self.tensors, self.error, self.phase, self.devices = {}, None, "forward", set()
        try:
            seed_everything(seed)
            self._forward()
            self.phase = "backward"
            self._backward()
        except Exception as error:
            self.error = {"type": type(error).__name__, "message": str(error)[:2000], "phase": self.phase}

    def arguments(self, gradients):
        asked = any(t.requires_grad for t in tensors_in(self.given.arguments).values())

        def place(t):
            wanted = gradients and (t.requires_grad if asked else t.is_floating_point() or t.is_complex())
            t = t.detach()
            if self.double and (t.is_floating_point() or t.is_complex()):
                t = t.to(torch.complex128 if t.is_complex() else torch.float64)
            t = laid_out(t.to(self.device.torch), self.given.layout)
            if t.device.type == "cpu" and not self.given.layout:
                t = t.clone()  # an operator that writes into its input does not write into the job's
            return t.detach().requires_grad_(wanted)

        return map_tensors(self.given.arguments, place)

    def _keep(self, kind, tensors):
        for path, t in tensors.items():
            self.tensors[f"{kind}/{path}"] = on_host(t).clone()

    def _forward(self):
        arguments = self.arguments(False)
        versions = {path: t._version for path, t in tensors_in(arguments).items()}
        with torch.no_grad():
            result = self.operator(*arguments)
        self.devices = {t.device.type for t in tensors_in(result).values()}
        self._keep("out", outputs_in(result))
        written = {path: t for path, t in tensors_in(arguments).items() if t._version != versions[path]}
        self._keep("written", written)
        self.writes = bool(written)

    def _backward(self):
        if self.writes:
            return
        arguments = self.arguments(True)
        inputs = {path: t for path, t in tensors_in(arguments).items() if t.requires_grad}
        if not inputs:
            return
        outputs = [t for t in tensors_in(self.operator(*arguments)).values() if t.requires_grad]
        if not outputs:
            return
        found = torch.autograd.grad(outputs, list(inputs.values()), [cotangent(t) for t in outputs], allow_unused=True)
        self._keep("gradient", {path: g for path, g in zip(inputs, found) if g is not None})


def cotangent(output):
    """What flows back into an output: small eighths, exact in every dtype."""
    values = (torch.arange(output.numel()) % 7 - 3) / 4 + 0.125
    return values.reshape(output.shape).to(output.dtype).to(output.device)


def operator_registration(operator, arguments):
    """{test: "passed", "failed: ..." or "unavailable: ..."} of torch.library.opcheck."""
    check = getattr(torch.library, "opcheck", None)
    registered = isinstance(operator, (torch._ops.OpOverload, torch._ops.OpOverloadPacket)) or hasattr(
        operator, "_opoverload"
    )
    if check is None or not registered:
        why = (
            f"torch {torch.__version__} has no torch.library.opcheck"
            if registered
            else "a function, not a registered operator"
        )
        return {"opcheck": f"unavailable: {why}"}
    try:
        found = check(operator, arguments, raise_exception=False)
    except Exception as error:
        return {"opcheck": f"unavailable: {type(error).__name__}: {str(error)[:500]}"}
    words = {}
    for test, outcome in found.items():
        text = f"{type(outcome).__name__}: {str(outcome)[:500]}"
        unknown = isinstance(outcome, NotImplementedError) and "NYI" in text
        words[test] = "passed" if outcome == "SUCCESS" else f"unavailable: {text}" if unknown else f"failed: {text}"
    return words


class OperatorTask:
    """The task "custom-ops": every operator that the job names, on its common and on boundary inputs."""

    def __init__(self, worker, request, name):
        self.worker, self.events = worker, worker.events
        self.recorder = Recorder(worker.events, worker.out, name)
        self.tensors, self.exact, self.checked = {}, {}, {}
        self.float64 = Device("cpu") if request.get("float64") else None

    def __call__(self):
        named = custom_operators(self.worker.job, self.worker.seed)
        count = 0
        for name, common in named.items():
            operator = self._operator(name)
            for given in operator_inputs(common):
                self._one(name, operator, given)
                count += 1
        self.events.emit("operators", names=list(named), opcheck=self.checked)
        if named:
            self.recorder.tensors("operators", 0, self.tensors)
            if self.float64:
                self.recorder.tensors("operators-float64", 0, self.exact)
        return count

    def _operator(self, name):
        """What is not registered on the candidate is a finding; in the old environment the job itself is wrong."""
        try:
            return operator_named(self.worker.job, name)
        except JobError as error:
            if self.worker.request["side"] != "candidate":
                raise
            message = str(error)

            def missing(*_):
                raise NotImplementedError(message)

            return missing

    def _one(self, name, operator, given):
        label = f"{given.what} {given.label}"
        self.events.emit("progress", message=f"operator {name} on the input `{label}`")
        call = OperatorCall(operator, given, self.worker.device, self.worker.seed)
        self.tensors.update({f"{name}/{label}/{path}": t for path, t in call.tensors.items()})
        why = None
        if self.float64:
            exact = OperatorCall(operator, given, self.float64, self.worker.seed, double=True)
            self.exact.update({f"{name}/{label}/{path}": t for path, t in exact.tensors.items()})
            why = f"{exact.error['type']}: {exact.error['message']}" if exact.error else None
        self.events.emit(
            "operator", operator=name, what=given.what, input=label, signature=signature_of(given.arguments),
            inputs_sha256=nest_sha256(given.arguments), error=call.error, devices=sorted(call.devices), float64_error=why,
        )  # fmt: skip
        if given.what == "common" and name not in self.checked and call.error is None:
            self.checked[name] = operator_registration(operator, call.arguments(not call.writes))


# ---- the other tasks ------------------------------------------------------------------------------------------------------

ENVIRONMENT_VARIABLES = ("TORCH", "TPUPILOT_", "LIBTPU", "TPU_", "PJRT", "OMP_", "MKL_")
ENVIRONMENT_NAMES = {"XLA_FLAGS", "NPROC", "CUDA_VISIBLE_DEVICES", "PYTHONHASHSEED"}


def installed_packages():
    packages = {}
    for distribution in importlib.metadata.distributions():
        record = distribution.read_text("RECORD")
        name = distribution.metadata["Name"]
        if name and name not in packages:  # the first one on sys.path is the one that is imported
            sha256 = hashlib.sha256(record.encode()).hexdigest() if record else None
            packages[name] = {"name": name, "version": distribution.version, "record_sha256": sha256}
    return sorted(packages.values(), key=lambda p: p["name"].lower())


def backend_of(device):
    """Who made the device: vendor, plugin file, its hash, its API version. Unknown is null."""
    unknown = {
        "vendor": None,
        "plugin": None,
        "plugin_sha256": None,
        "pjrt_api": None,
        "platform_name": None,
        "platform_version": None,
    }
    if device.type == "cpu":
        return {**unknown, "vendor": "PyTorch", "platform_name": "cpu"}
    if device.type == "cuda":
        return {**unknown, "vendor": "PyTorch", "platform_name": "cuda", "platform_version": torch.version.cuda}
    if device.type != "tpu":
        return unknown
    plugin = device.call("plugin")
    if plugin is None:
        return {**unknown, "vendor": "Google torch_tpu" if "torch_tpu" in sys.modules else None}
    path = plugin.get("path")
    return {
        "vendor": "tpupilot",
        "plugin": path,
        "plugin_sha256": file_sha256(path) if path and os.path.exists(path) else None,
        "pjrt_api": plugin.get("pjrt_api"),
        "platform_name": plugin.get("platform_name"),
        "platform_version": plugin.get("platform_version"),
    }


def smoke(device):
    """A matrix product on the device, copied back, against the CPU's."""
    generator = torch.Generator().manual_seed(0)
    a, b = (torch.rand(64, 64, generator=generator) for _ in range(2))
    expected = (a.double() @ b.double()).float()
    x, y = a.to(device.torch), b.to(device.torch)
    trace = OpTrace(device.type)
    with trace:
        z = x @ y
    result = on_host(z)
    ran = sorted({op["op"] for op in trace.report()["ops"] if op["device"].startswith(device.type)})
    return {
        "shape": list(result.shape),
        "sum": result.double().sum().item(),
        "cpu_sum": expected.double().sum().item(),
        "max_abs_difference": (result.double() - expected.double()).abs().max().item(),
        "ops": ran,
        "device_of_result": str(z.device),
    }


def environment(worker):
    device = worker.device
    available = device.available()
    properties = None
    if available and device.type != "cpu":
        properties = str(device.call("get_device_properties"))
    count = device.call("device_count") if device.type != "cpu" else 1
    variables = {k: v for k, v in os.environ.items() if k.startswith(ENVIRONMENT_VARIABLES) or k in ENVIRONMENT_NAMES}
    return {
        "python": platform.python_version(),
        "executable": sys.executable,
        "prefix": sys.prefix,
        "base_prefix": sys.base_prefix,
        "platform": platform.platform(),
        "cpu": cpu_name(),
        "working_directory": os.getcwd(),
        "arguments": sys.argv,
        "packages": installed_packages(),
        "torch": {
            "version": torch.__version__, "git": torch.version.git_version, "cuda": torch.version.cuda,
            "threads": torch.get_num_threads(), "cxx11_abi": torch.compiled_with_cxx11_abi(),
        },
        "environment_variables": variables,
        "settings": {
            "float32_matmul_precision": torch.get_float32_matmul_precision(),
            "deterministic": torch.are_deterministic_algorithms_enabled(),
            "default_dtype": dtype_name(torch.get_default_dtype()),
            "grad_enabled": torch.is_grad_enabled(),
            "autoload": os.environ.get("TORCH_DEVICE_BACKEND_AUTOLOAD", "1") != "0",
        },
        "device": {
            "name": device.name, "available": available, "count": count, "properties": properties, "holders": None,
            "backend": backend_of(device), "import_error": device.import_error,
        },
        "smoke": smoke(device) if available else None,
        "build": worker.job.compiled_modules(),
    }  # fmt: skip


def cpu_name():
    with contextlib.suppress(OSError), open("/proc/cpuinfo", encoding="utf-8") as f:
        for line in f:
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or None


def emit_state(worker, objects):
    entries = {n: tensor_sha256(t) for n, t in {**objects.state_tensors(), **objects.rng_tensors()}.items()}
    worker.events.emit(
        "state", step=objects.next_step, state_sha256=objects.state_sha256(worker.steps_per_epoch), entries=entries
    )


def emit_own_state(worker, request):
    """What the job's own format gives back in this interpreter. That it cannot be loaded is evidence, not a failure."""
    folder = request["torch_file"] + ".own" if request.get("torch_file") else os.path.join(request["checkpoint"], "own")
    objects = Objects(worker.job, worker.device, worker.seed)
    try:
        load_own(objects, folder)
    except Exception as error:
        worker.events.emit("own_state", state_sha256=None, error=f"{type(error).__name__}: {error}")
    else:
        worker.events.emit("own_state", state_sha256=objects.state_sha256(worker.steps_per_epoch), error=None)


def load_task(worker, request):
    objects = Objects(worker.job, worker.device, worker.seed)
    with stage("load"):
        if request.get("torch_file"):
            load_torch_file(objects, request["torch_file"])
        else:
            load_checkpoint(objects, request["checkpoint"], own=request.get("format") != "pilot")
    emit_state(worker, objects)
    if request.get("save_to"):
        os.makedirs(os.path.dirname(request["save_to"]), exist_ok=True)
        files = save_checkpoint(objects, request["save_to"], worker.steps_per_epoch)
        hashes = objects.state_sha256(worker.steps_per_epoch)
        worker.events.emit(
            "checkpoint", step=objects.next_step, path=request["save_to"], files=files, state_sha256=hashes
        )
    if worker.job.own_format and (request.get("torch_file") or request.get("format") == "pilot"):
        emit_own_state(worker, request)
    return 0


def crash_save_task(worker, request):
    """Saves over and over until the pilot kills it inside a save."""
    objects = Objects(worker.job, worker.device, worker.seed)
    with stage("load"):
        load_checkpoint(objects, request["resume_from"])
    path = request["checkpoint"]
    os.makedirs(os.path.dirname(path), exist_ok=True)
    for number in range(1, 10_000):
        worker.events.emit("save.begin", number=number, path=path)
        save_checkpoint(objects, path, worker.steps_per_epoch, pause=0.05)
        worker.events.emit("save.end", number=number, path=path)
    return 0


class Worker:
    def __init__(self, request):
        self.request = request
        self.out, self.seed = request["out"], request.get("seed", 0)
        self.steps_per_epoch = request.get("steps_per_epoch") or 8
        self.events = Events(self.out)
        self.job = None
        self.device = Device(request["device"])
        self.default_passes = (
            1 if request.get("numerics") == "tpu" else 0
        )  # of f32 products, where the job asks for none

    def run(self):
        """Exit code: 0 all tasks ended, 1 the job raised, 2 the request or the job's form is wrong, 3 a file cannot be written."""
        if self.request.get("threads"):
            torch.set_num_threads(self.request["threads"])
        if self.request["tasks"][0]["task"] != "environment":  # which says it itself
            self.events.emit("packages", python=platform.python_version(), packages=installed_packages())
        for task in self.request["tasks"]:
            self.events.start(task["name"], task)
            begun = time.perf_counter()
            try:
                steps = self._task(task)
            except Exception as error:
                return self._report(error)
            self.events.emit("task.end", seconds=time.perf_counter() - begun, steps=steps)
        return 0

    def _task(self, task):
        if self.job is None:
            with stage("import"):
                self.job = Job(self.request["job"])
            # The first optimizer or dispatch mode would import it. After the job, whose file may set what it reads of the environment.
            with importing(), contextlib.suppress(Exception):
                import torch._dynamo  # noqa: F401
        kind = task["task"]
        if self.default_passes:  # a device that cannot be told is a TPU itself
            self.device.rehearse(self.default_passes, False)
        if kind == "environment":
            self.events.emit("environment", **environment(self))
            return 0
        if not self.device.available():
            raise JobError("device", f"the device '{self.device.name}' is not available: {self.device.import_error}", 1)
        if kind == "run":
            return Run(self, task, task["name"])()
        if kind == "custom-ops":
            return OperatorTask(self, task, task["name"])()
        if kind == "load":
            return load_task(self, task)
        if kind == "crash-save":
            return crash_save_task(self, task)
        raise JobError("request", f"there is no task '{kind}'")

    def _report(self, error):
        if isinstance(error, OSError) and error.errno in NO_ROOM:
            error = CannotWrite(error.filename or os.path.join(self.out, "(a log, or a file of the job's)"), error)
        where = (
            error.where if isinstance(error, (JobError, CannotWrite)) else getattr(error, "tpupilot_where", "worker")
        )
        frames = self.job.frames(error) if self.job else frames_of_import(error, self.request["job"])
        with contextlib.suppress(CannotWrite):  # the exit code says it then
            self.events.emit(
                "error", where=where, type=type(error).__name__, message=str(error), frames=frames, step=None
            )
        with contextlib.suppress(OSError):
            traceback.print_exception(type(error), error, error.__traceback__)
        return error.code if isinstance(error, (JobError, CannotWrite)) else 1


def frames_of_import(error, path):
    unloaded = Job.__new__(Job)
    unloaded.path = os.path.abspath(path)
    return unloaded.frames(error)


# ---- a recording without tpupilot -------------------------------------------------------------------------------------------


def recorded_draws(side):
    """The file of draws that the task "base" recorded, or ""."""
    with open(os.path.join(side, "events.jsonl"), encoding="utf-8") as f:
        events = [json.loads(line) for line in f]
    files = [e["file"] for e in events if e["event"] == "draws" and e["task"] == "base" and e["file"]]
    return os.path.join(side, files[-1]) if files else ""


def placed(value, places):
    """The nest with "@..." names at the beginning of texts replaced."""
    if isinstance(value, dict):
        return {k: placed(v, places) for k, v in value.items()}
    if isinstance(value, list):
        return [placed(v, places) for v in value]
    for name, place in places.items():
        if isinstance(value, str) and (value == name or value.startswith(name + "/")):
            return place + value[len(name) :]
    return value


def record(job, out, device):
    """Runs the plan of this copy, process by process, and writes the manifest that makes it evidence. Returns an exit code."""
    if RECORDING is None:
        print("worker: this copy holds no plan; make one with: tpupilot worker --export FILE JOB", file=sys.stderr)
        return 2
    out, job = os.path.abspath(out), os.path.abspath(job)
    if os.path.exists(out) and os.listdir(out):
        print(f"worker: {out} is not empty; nothing is overwritten, name another folder", file=sys.stderr)
        return 2
    if not os.path.exists(job) or file_sha256(job) != RECORDING["manifest"]["job"]["sha256"]:
        print(f"worker: {job} is not the job file that this copy was made for", file=sys.stderr)
        return 2
    side = os.path.join(out, "reference")
    os.makedirs(os.path.join(side, "requests"))
    tasks = []
    for request in RECORDING["requests"]:
        name = request["tasks"][0]["name"]
        draws = recorded_draws(side) if "base" in tasks else ""
        request = placed(request, {"@out": out, "@reference/base": draws})
        request.update(job=job, device=device or request["device"])
        path = os.path.join(side, "requests", name + ".json")
        with open(path, "w", encoding="utf-8") as f:
            json.dump(request, f, indent=1)
        print(f"recording {name} ...", file=sys.stderr)
        environment = {**os.environ, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
        command = [sys.executable, "-u", os.path.abspath(__file__), "--request", path]
        code = subprocess.call(command, env=environment, cwd=os.path.dirname(job))
        if code:
            return code
        tasks += [task["name"] for task in request["tasks"]]
    settings = RECORDING["manifest"]["settings"]
    if device:
        settings = {**settings, "reference": {**settings["reference"], "device": device}}
    files = {}
    for folder, _, names in os.walk(side):
        for name in names:
            path = os.path.join(folder, name)
            files[os.path.relpath(path, out)] = {"sha256": file_sha256(path), "bytes": os.path.getsize(path)}
    manifest = {
        **RECORDING["manifest"],
        "created": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "settings": settings,
        "finished": True,
        "tasks": {f"reference/{name}": {"state": "done", "attempt": 1} for name in tasks},
        "files": files,
    }
    with open(os.path.join(out, "manifest.json"), "x", encoding="utf-8") as f:
        json.dump(manifest, f, indent=1, sort_keys=True)
    print(f"recorded in {out}", file=sys.stderr)
    return 0


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--request", help="a JSON file, see docs/worker-protocol.md")
    parser.add_argument("--record", metavar="JOB", help="record this job file; for a copy that holds its plan")
    parser.add_argument("--out", help="with --record: the folder to make")
    parser.add_argument("--device", default="", help="with --record: another device than the plan's")
    arguments = parser.parse_args()
    if not arguments.request and not (arguments.record and arguments.out):
        parser.error("give --request, or --record and --out")
    try:
        if arguments.record:
            return record(arguments.record, arguments.out, arguments.device)
        return work(arguments.request)
    except OSError as error:
        if error.errno not in NO_ROOM:
            raise
        return say_no_room(CannotWrite(error.filename or arguments.out or arguments.request, error))
    except CannotWrite as error:
        return say_no_room(error)


def say_no_room(error):
    with contextlib.suppress(OSError):  # the log may lie on the same full disk
        print(f"worker: {error}", file=sys.stderr)
    return error.code


def work(request_file):
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    with open(request_file, encoding="utf-8") as f:
        request = json.load(f)
    if request.get("protocol") != PROTOCOL:
        print(f"worker: this is protocol {PROTOCOL}, the request speaks {request.get('protocol')}", file=sys.stderr)
        return 2
    return Worker(request).run()


if __name__ == "__main__":
    sys.exit(main())
