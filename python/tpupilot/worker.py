"""The recorder that runs a user's job in one environment and leaves evidence. It records; it never judges.

One file, so that it can be copied to an old machine: Python >= 3.9, torch >= 2.1, and nothing else (no NumPy, no safetensors,
no pickle for evidence, no tpupilot). What it is asked and what it writes: docs/worker-protocol.md.

    python -u worker.py --request REQUEST.json
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import dataclasses
import hashlib
import importlib
import importlib.metadata
import importlib.util
import json
import math
import os
import platform
import random
import shutil
import signal
import sys
import time
import traceback

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

PROTOCOL = 1
ROOT_MODULE = "(root)"


# ---- tensors as bytes ---------------------------------------------------------------------------------------------------

SAFE_DTYPES = {
    torch.float64: "F64", torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16",
    torch.int64: "I64", torch.int32: "I32", torch.int16: "I16", torch.int8: "I8", torch.uint8: "U8", torch.bool: "BOOL",
}  # fmt: skip
TORCH_DTYPES = {name: dtype for dtype, name in SAFE_DTYPES.items()}


def on_host(tensor):
    """A dense CPU copy (or the tensor itself, if it is one)."""
    return tensor.detach().to("cpu").resolve_conj().resolve_neg().contiguous()


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


def write_safetensors(path, tensors, metadata=None):
    """Writes and syncs. Raises FileExistsError rather than overwrite."""
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
    with open(path, "xb") as f:
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
        raise JobError("load", f"{path} is not a safetensors file ({error})") from error
    metadata = header.pop("__metadata__", {})
    body, tensors = data[8 + length :], {}
    for name, entry in header.items():
        begin, end = entry["data_offsets"]
        if end > len(body):
            raise JobError("load", f"{path} is cut short: '{name}' ends at byte {end}, the data has {len(body)}")
        tensor = torch.empty(entry["shape"], dtype=TORCH_DTYPES[entry["dtype"]])
        if end > begin:
            ctypes.memmove(tensor.data_ptr(), body[begin:end], end - begin)
        if name.endswith("#complex"):
            name, tensor = name[: -len("#complex")], torch.view_as_complex(tensor)
        tensors[name] = tensor
    return tensors, metadata


# ---- nests of values ------------------------------------------------------------------------------------------------------


def leaves(value, path=""):
    """(path, leaf) of every leaf in nested dicts, sequences and dataclasses, in order."""

    def join(key):
        return f"{path}/{key}" if path else str(key)

    if isinstance(value, dict):
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
    if isinstance(value, dict):
        return type(value)((k, map_tensors(v, change)) for k, v in value.items())
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(map_tensors(v, change) for v in value))
    if isinstance(value, (list, tuple)):
        return type(value)(map_tensors(v, change) for v in value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.replace(
            value, **{f.name: map_tensors(getattr(value, f.name), change) for f in dataclasses.fields(value)}
        )
    return value


def tensors_in(value):
    return {path: leaf for path, leaf in leaves(value) if isinstance(leaf, torch.Tensor)}


def nest_sha256(value):
    digest = hashlib.sha256()
    for path, leaf in leaves(value):
        digest.update(f"{path}=".encode())
        digest.update((tensor_sha256(leaf) if isinstance(leaf, torch.Tensor) else repr(leaf)).encode())
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
                importlib.import_module("tpupilot" if importlib.util.find_spec("tpupilot") else "torch_tpu")
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

    def peak_memory(self):
        peak = self.call("max_memory_allocated")
        return (None, "unknown") if peak is None else (int(peak), f"torch.{self.type}.max_memory_allocated")


# ---- random numbers -------------------------------------------------------------------------------------------------------


def seed_everything(seed):
    random.seed(seed)
    torch.manual_seed(seed)
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed(seed % 2**32)


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
        self.unmatched, self.untracked = [], []

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if self.mode != "native":
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


def open_draws(request, dtype_is_f64):
    draws = request.get("draws") or {"mode": "native"}
    if draws["mode"] != "replay":
        return Draws(draws["mode"])
    entries, metadata = read_safetensors(draws["file"])
    return Draws("replay", entries, json.loads(metadata["draws"]))


# ---- what ops run where ---------------------------------------------------------------------------------------------------


class OpTrace(TorchDispatchMode):
    """Counts every ATen op by device and dtype of its result, and follows data that leaves the device."""

    def __init__(self, device_type):
        super().__init__()
        self.device_type = device_type
        self.ops, self.cpu_on_device_data, self.host_counters = {}, {}, {}
        self.from_device = set()
        self.alive = []  # so that no id is used twice

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        inputs = tensors_in([args, kwargs or {}]).values()
        outputs = list(tensors_in([result]).values())
        name = str(func)
        where = outputs[0].device if outputs else next((t.device for t in inputs), torch.device("cpu"))
        dtype = dtype_name(outputs[0].dtype) if outputs else ""
        key = (name, str(where), dtype)
        self.ops[key] = self.ops.get(key, 0) + 1
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
        return {"ops": ops, "cpu_ops_on_device_data": on_cpu, "host_counters": self.host_counters}


# ---- the job --------------------------------------------------------------------------------------------------------------


class Job:
    """The user's file of plain functions."""

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
        for name in ("model", "batch", "loss", "optimizer"):
            if not callable(getattr(module, name, None)):
                raise JobError(
                    "import",
                    f"{os.path.basename(path)} has no function {name}(); a job needs model, batch, loss and optimizer",
                )

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


class Objects:
    """The live objects of one run: model, optimizer, scheduler, on their device."""

    def __init__(self, job, device, seed, double=False, fault=None):
        self.job, self.device, self.double = job, device, double
        seed_everything(seed)
        with stage("model"):
            self.model = job.module.model()
            if not isinstance(self.model, torch.nn.Module):
                raise JobError("model", f"model() returned a {type(self.model).__name__}, not a torch.nn.Module")
        self.weights = {name: tensor_sha256(t) for name, t in self.model_entries().items()}
        if fault and fault["kind"] == "scale-weight":
            with torch.no_grad():
                dict(self.model.named_parameters())[self.fault_parameter(fault)].mul_(fault.get("factor", 1.01))
        if double:
            self.model.double()
        self.model.to(device.torch)
        with stage("optimizer"):
            self.optimizer = job.module.optimizer(self.model)
            if not isinstance(self.optimizer, torch.optim.Optimizer):
                raise JobError(
                    "optimizer",
                    f"optimizer(model) returned a {type(self.optimizer).__name__}, not a torch.optim.Optimizer",
                )
        with stage("scheduler"):
            make = job.get("scheduler")
            self.scheduler = make(self.optimizer) if callable(make) else None
        self.next_step = 0
        self.names = {id(p): name for name, p in self.model.named_parameters()}
        for group in self.optimizer.param_groups:
            for p in group["params"]:
                self.names.setdefault(id(p), f"unnamed.{len(self.names)}")

    def fault_parameter(self, fault):
        if fault.get("parameter", "auto") != "auto":
            return fault["parameter"]
        return next(name for name, p in self.model.named_parameters() if p.dim() > 1)

    def model_entries(self):
        return {**dict(self.model.named_parameters()), **dict(self.model.named_buffers())}

    def optimizer_entries(self):
        """(tensors by "<parameter>/<key>", other values alike)."""
        tensors, others = {}, {}
        for group in self.optimizer.param_groups:
            for p in group["params"]:
                for key, value in self.optimizer.state.get(p, {}).items():
                    target = tensors if isinstance(value, torch.Tensor) else others
                    target[f"{self.names[id(p)]}/{key}"] = value
        return tensors, others

    def groups(self):
        """The optimizer's param groups without their parameters; tensors in them (a capturable lr) as numbers."""
        plain = []
        for group in self.optimizer.param_groups:
            plain.append({k: v.item() if isinstance(v, torch.Tensor) else v for k, v in group.items() if k != "params"})
        return plain

    def state_tensors(self):
        tensors = {f"model/{name}": t for name, t in self.model_entries().items()}
        tensors.update({f"optimizer/{name}": t for name, t in self.optimizer_entries()[0].items()})
        return tensors

    def rng_tensors(self):
        tensors = {"rng/torch": torch.get_rng_state()}
        device_state = self.device.rng_state()
        if device_state is not None:
            tensors["rng/device"] = device_state
        return tensors

    def data_position(self, steps_per_epoch):
        return {"step": self.next_step, "epoch": self.next_step // steps_per_epoch}

    def scheduler_state(self):
        return self.scheduler.state_dict() if self.scheduler is not None else {}

    def state_sha256(self, steps_per_epoch):
        """One hash for each part of all live state."""
        optimizer_tensors, optimizer_others = self.optimizer_entries()
        rng = {name: tensor_sha256(t) for name, t in self.rng_tensors().items()}
        return {
            "model": json_sha256({n: tensor_sha256(t) for n, t in self.model_entries().items()}),
            "optimizer": json_sha256(
                [{n: tensor_sha256(t) for n, t in optimizer_tensors.items()}, optimizer_others, self.groups()]
            ),
            "scheduler": json_sha256(self.scheduler_state()),
            "rng": json_sha256([rng, python_rng(), numpy_rng()]),
            "data": json_sha256(self.data_position(steps_per_epoch)),
        }

    def hyper(self):
        return {
            "optimizer": type(self.optimizer).__qualname__,
            "defaults": {k: v for k, v in self.optimizer.defaults.items()},
            "groups": self.groups(),
            "scheduler": type(self.scheduler).__qualname__ if self.scheduler is not None else None,
            "accumulate": self.job.get("accumulate", 1),
            "clip": self.job.get("clip"),
        }


# ---- checkpoints ----------------------------------------------------------------------------------------------------------


def save_checkpoint(objects, path, steps_per_epoch, pause=0.0):
    """Writes the pilot's own format beside `path` and renames it there. Returns {file: sha256}.

    A checkpoint that is there already is moved to <path>.old for the moment between the two renames; load_checkpoint finds it.
    """
    fresh = f"{path}.saving-{os.getpid()}"
    shutil.rmtree(fresh, ignore_errors=True)
    os.makedirs(fresh)
    tensors_file, json_file = os.path.join(fresh, "state.safetensors"), os.path.join(fresh, "state.json")
    write_safetensors(tensors_file, {**objects.state_tensors(), **objects.rng_tensors()})
    time.sleep(pause)
    state = {
        "format": 1,
        "step": objects.next_step,
        "scheduler": objects.scheduler_state(),
        "optimizer": {"groups": objects.groups(), "values": objects.optimizer_entries()[1]},
        "rng": {"python": python_rng(), "numpy": numpy_rng()},
        "data": objects.data_position(steps_per_epoch),
        "other": {},
        "tensors_sha256": file_sha256(tensors_file),
    }
    try:
        text = json.dumps(state, sort_keys=True, indent=1)
    except TypeError as error:
        raise JobError(
            "save", f"the state of the optimizer or scheduler cannot be written as JSON: {error}", 1
        ) from error
    with open(json_file, "x", encoding="utf-8") as f:
        f.write(text)
        f.flush()
        os.fsync(f.fileno())
    hashes = {name: file_sha256(os.path.join(fresh, name)) for name in ("state.safetensors", "state.json")}
    if os.path.exists(path):
        shutil.rmtree(path + ".old", ignore_errors=True)
        os.rename(path, path + ".old")
    os.rename(fresh, path)
    shutil.rmtree(path + ".old", ignore_errors=True)
    folder = os.open(os.path.dirname(path), os.O_RDONLY)
    os.fsync(folder)
    os.close(folder)
    return hashes


def load_checkpoint(objects, path, lose=()):
    """Puts everything back. `lose` leaves parts out on purpose: "optimizer", "rng"."""
    if not os.path.exists(path) and os.path.exists(path + ".old"):
        path = path + ".old"
    tensors_file = os.path.join(path, "state.safetensors")
    with open(os.path.join(path, "state.json"), encoding="utf-8") as f:
        state = json.load(f)
    if file_sha256(tensors_file) != state["tensors_sha256"]:
        raise JobError(
            "load", f"{tensors_file} does not have the hash that state.json recorded: the checkpoint is damaged", 1
        )
    tensors, _ = read_safetensors(tensors_file)
    with torch.no_grad():
        for name, target in objects.model_entries().items():
            target.copy_(tensors[f"model/{name}"])
    if "optimizer" not in lose:
        load_optimizer(objects, tensors, state["optimizer"])
    if objects.scheduler is not None:
        objects.scheduler.load_state_dict(state["scheduler"])
    objects.next_step = state["step"]
    if "rng" not in lose:
        set_host_rng(state["rng"])
        torch.set_rng_state(tensors["rng/torch"])
        if "rng/device" in tensors:
            objects.device.call("set_rng_state", tensors["rng/device"])


def load_optimizer(objects, tensors, saved):
    current = objects.optimizer.state_dict()
    index = {}
    for group, live in zip(current["param_groups"], objects.optimizer.param_groups):
        index.update({objects.names[id(p)]: i for i, p in zip(group["params"], live["params"])})
    state = {}
    entries = {k[len("optimizer/") :]: v for k, v in tensors.items() if k.startswith("optimizer/")}
    for path, value in [*entries.items(), *saved["values"].items()]:
        name, key = path.rsplit("/", 1)
        state.setdefault(index[name], {})[key] = value
    groups = [{**new, "params": old["params"]} for new, old in zip(saved["groups"], current["param_groups"])]
    for group in groups:  # JSON has no tuples
        group.update({k: tuple(v) for k, v in group.items() if isinstance(v, list) and k != "params"})
    objects.optimizer.load_state_dict({"state": state, "param_groups": groups})


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
    """Inputs and outputs of every module of one forward pass, in the order in which the modules end."""

    def __init__(self, model):
        self.tensors, self.handles, self.order = {}, [], 0
        for name, module in model.named_modules():
            self.handles.append(module.register_forward_hook(self._hook(name or ROOT_MODULE)))

    def _hook(self, name):
        def hook(module, inputs, output):
            prefix = f"{self.order:05d}/{name}"
            self.order += 1
            for part, value in (("in", inputs), ("out", output)):
                for path, t in tensors_in(value).items():
                    self.tensors[f"{prefix}/{part}/{path}"] = on_host(t).clone()

        return hook

    def remove(self):
        for handle in self.handles:
            handle.remove()


class RootOutputs:
    """What the root module returned, call by call."""

    def __init__(self, model):
        self.tensors, self.calls = {}, 0
        self.handle = model.register_forward_hook(self._hook)

    def _hook(self, module, inputs, output):
        self.calls += 1
        prefix = "output" if self.calls == 1 else f"output#{self.calls}"
        for path, t in tensors_in(output).items():
            self.tensors[f"{prefix}/{path}"] = t.detach()


class Run:
    """The task "run": trains for some steps and records what it is asked to."""

    def __init__(self, worker, request, name):
        self.worker, self.request, self.name = worker, request, name
        self.job, self.device, self.events = worker.job, worker.device, worker.events
        self.recorder = Recorder(self.events, worker.out, name)
        self.double = request.get("dtype") == "float64"
        self.fault = request.get("fault") or {"kind": None}
        self.draws = open_draws(request, self.double)
        self.updates = 0

    def __call__(self):
        deterministic = self.request.get("deterministic", False)
        torch.use_deterministic_algorithms(deterministic)
        self.objects = Objects(self.job, self.device, self.worker.seed, self.double, self.fault)
        self.objects.optimizer.register_step_post_hook(lambda *_: setattr(self, "updates", self.updates + 1))
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
            self._export(self.request["export_torch"])
        self.recorder.draws(self.draws)
        self._emit_counters()
        return self.request["steps"] - first

    # ---- before the first step ----
    def _batch(self, step):
        with stage("batch"):
            batch = self.job.module.batch(step)
            if not tensors_in(batch):
                raise JobError("batch", f"batch({step}) returned no tensor")
            return batch

    def _micro_batches(self, batch):
        return list(batch) if self.job.get("accumulate", 1) > 1 else [batch]

    def _check_batches(self):
        """{signature: steps}; raises if one step does not give one batch."""
        first, again = nest_sha256(self._batch(0)), nest_sha256(self._batch(0))
        if first != again:
            raise JobError(
                "batch",
                "batch(0) gives another batch when it is called again; batch(step) must depend on step alone (use a torch.Generator seeded with it)",
            )
        signatures = {}
        if self.request.get("record_signatures"):
            sizes = {}
            for step in range(self.request["steps"]):
                batch = self._batch(step)
                signatures.setdefault(signature_of(batch), []).append(step)
                sizes[signature_of(batch)] = sum(t.numel() for t in tensors_in(batch).values())
            by_size = sorted(signatures, key=lambda s: (sizes[s], s))
            frequent = max(signatures, key=lambda s: len(signatures[s]))
            chosen = {by_size[0], by_size[len(by_size) // 2], by_size[-1], frequent}
            self.signature_steps = {signatures[s][0] for s in chosen}
        else:
            self.signature_steps = set()
        return signatures

    def _emit_inputs(self, signatures):
        rng = {
            "torch": tensor_sha256(torch.get_rng_state()),
            "python": json_sha256(python_rng()),
            "numpy": json_sha256(numpy_rng()),
        }
        self.events.emit(
            "inputs", weights=self.objects.weights, hyper=self.objects.hyper(), rng=rng,
            parameters=sum(p.numel() for p in self.objects.model.parameters()),
            signatures=[{"signature": s, "steps": steps} for s, steps in signatures.items()],
        )  # fmt: skip

    # ---- a step ----
    def _step(self, step):
        begun = time.perf_counter()
        batch = self._batch(step)
        batch_sha256, signature = nest_sha256(batch), signature_of(batch)
        recorded = step in self.request.get("record_steps", ())
        forward = recorded or step in self.signature_steps
        moved = map_tensors(batch, self._to_device)
        if self.fault["kind"] == "swap-labels":
            moved = roll_labels(moved)
        outputs = RootOutputs(self.objects.model)
        trace = ModuleTrace(self.objects.model) if recorded and self.request.get("record_modules") else None
        ops = OpTrace(self.device.type) if step in self.request.get("trace_ops", ()) else contextlib.nullcontext()
        self.updates = 0
        learning_rate = self.objects.groups()[0].get("lr")
        with ops, self.draws:
            loss, extras = self._forward_backward(step, moved)
        loss = on_host(loss).double().reshape(())
        if trace is not None:
            trace.remove()
            self.recorder.tensors("modules", step, trace.tensors)
        outputs.handle.remove()
        self.device.synchronize()
        if forward:
            tensors = {"loss": loss, **outputs.tensors, **{f"dict/{k}": v for k, v in tensors_in(extras).items()}}
            self.recorder.tensors("forward", step, tensors, signature_sample=step in self.signature_steps)
        gradients = {n: p.grad for n, p in self.objects.model.named_parameters() if p.grad is not None}
        if recorded:
            self.recorder.tensors("gradients", step, gradients)
        grad_norm, nonfinite = self._gradient_figures(loss, gradients)
        with ops, self.draws:
            self._update(step)
        self.objects.next_step = step + 1
        self.device.synchronize()
        seconds = time.perf_counter() - begun
        if recorded:
            self.recorder.tensors("state", step, self.objects.state_tensors())
        if isinstance(ops, OpTrace):
            self.events.emit("ops", step=step, **ops.report())
        self.events.emit(
            "step", step=step, loss=loss.item(), grad_norm=grad_norm, lr=learning_rate, batch_sha256=batch_sha256, signature=signature,
            updated=self.updates > 0, seconds=seconds, nonfinite=nonfinite, scalars=scalars_of(extras), state_sha256=self._state(step),
        )  # fmt: skip
        self._save_if_asked(step)

    def _to_device(self, tensor):
        if self.double and tensor.is_floating_point():
            tensor = tensor.double()
        return tensor.to(self.device.torch)

    def _autocast(self):
        dtype = self.worker.request.get("autocast")
        if not dtype or self.double:
            return contextlib.nullcontext()
        return torch.autocast(self.device.type, dtype=getattr(torch, dtype))

    def _forward_backward(self, step, batch):
        objects = self.objects
        objects.model.train()
        objects.optimizer.zero_grad()
        micro, total, extras = self._micro_batches(batch), None, {}
        for part in micro:
            with stage("loss"), self._autocast():
                result = self.job.module.loss(objects.model, part)
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
                torch.nn.utils.clip_grad_norm_(objects.model.parameters(), clip)
            hook = self.job.get("before_update")
            if callable(hook):
                hook(objects.model, objects.optimizer, step)
        if self.fault["kind"] == "drop-gradient":
            dict(objects.model.named_parameters())[objects.fault_parameter(self.fault)].grad.zero_()
        return total, extras

    def _update(self, step):
        objects = self.objects
        if not (self.fault["kind"] == "skip-update" and step == self.fault.get("step", 0)):
            with stage("step"):
                objects.optimizer.step()
        if objects.scheduler is not None:
            with stage("scheduler"):
                objects.scheduler.step()
        hook = self.job.get("after_update")
        if callable(hook):
            with stage("after_update"):
                hook(objects.model, step)

    def _gradient_figures(self, loss, gradients):
        """(norm over all gradients in f64, number of NaN and Inf in loss and gradients)."""
        squares = sum(torch.linalg.vector_norm(g.detach()).item() ** 2 for g in gradients.values())
        norm = math.sqrt(squares) if math.isfinite(squares) else squares
        if math.isfinite(norm) and math.isfinite(loss.item()):
            return norm, 0
        return norm, sum(int((~torch.isfinite(on_host(t))).sum()) for t in [loss, *gradients.values()])

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

    def _export(self, path):
        os.makedirs(os.path.dirname(path), exist_ok=True)
        o = self.objects
        with open(path, "xb") as f:
            torch.save(
                {
                    "model": o.model.state_dict(),
                    "optimizer": o.optimizer.state_dict(),
                    "scheduler": o.scheduler_state(),
                },
                f,
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
    return (
        {path: v for path, v in leaves(extras) if isinstance(v, (int, float)) and not isinstance(v, bool)}
        if extras
        else {}
    )


# ---- the other tasks ------------------------------------------------------------------------------------------------------

ENVIRONMENT_VARIABLES = ("TORCH", "TPUPILOT_", "LIBTPU", "TPU_", "PJRT", "OMP_", "MKL_")
ENVIRONMENT_NAMES = {"XLA_FLAGS", "NPROC", "CUDA_VISIBLE_DEVICES", "PYTHONHASHSEED"}


def installed_packages():
    packages = {}
    for distribution in importlib.metadata.distributions():
        record = distribution.read_text("RECORD")
        name = distribution.metadata["Name"]
        if name:
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


def load_task(worker, request):
    objects = Objects(worker.job, worker.device, worker.seed)
    with stage("load"):
        if request.get("torch_file"):
            state = torch.load(request["torch_file"], map_location="cpu", weights_only=True)
            objects.model.load_state_dict(state["model"])
            objects.optimizer.load_state_dict(state["optimizer"])
            if objects.scheduler is not None:
                objects.scheduler.load_state_dict(state["scheduler"])
        else:
            load_checkpoint(objects, request["checkpoint"])
    emit_state(worker, objects)
    if request.get("save_to"):
        os.makedirs(os.path.dirname(request["save_to"]), exist_ok=True)
        files = save_checkpoint(objects, request["save_to"], worker.steps_per_epoch)
        hashes = objects.state_sha256(worker.steps_per_epoch)
        worker.events.emit(
            "checkpoint", step=objects.next_step, path=request["save_to"], files=files, state_sha256=hashes
        )
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

    def run(self):
        """Exit code: 0 all tasks ended, 1 the job raised, 2 the request or the job's form is wrong."""
        if self.request.get("threads"):
            torch.set_num_threads(self.request["threads"])
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
        kind = task["task"]
        if kind == "environment":
            self.events.emit("environment", **environment(self))
            return 0
        if not self.device.available():
            raise JobError("device", f"the device '{self.device.name}' is not available: {self.device.import_error}", 1)
        if kind == "run":
            return Run(self, task, task["name"])()
        if kind == "load":
            return load_task(self, task)
        if kind == "crash-save":
            return crash_save_task(self, task)
        raise JobError("request", f"there is no task '{kind}'")

    def _report(self, error):
        where = error.where if isinstance(error, JobError) else getattr(error, "tpupilot_where", "worker")
        frames = self.job.frames(error) if self.job else frames_of_import(error, self.request["job"])
        self.events.emit("error", where=where, type=type(error).__name__, message=str(error), frames=frames, step=None)
        traceback.print_exception(type(error), error, error.__traceback__)
        return error.code if isinstance(error, JobError) else 1


def frames_of_import(error, path):
    unloaded = Job.__new__(Job)
    unloaded.path = os.path.abspath(path)
    return unloaded.frames(error)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--request", required=True, help="a JSON file, see docs/worker-protocol.md")
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    with open(arguments.request, encoding="utf-8") as f:
        request = json.load(f)
    if request.get("protocol") != PROTOCOL:
        print(f"worker: this is protocol {PROTOCOL}, the request speaks {request.get('protocol')}", file=sys.stderr)
        return 2
    return Worker(request).run()


if __name__ == "__main__":
    sys.exit(main())
