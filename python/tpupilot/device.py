"""``torch.tpu``: what ``torch.cuda`` offers that makes sense on this device, under the same names.

Device arguments may be None (the current device), an index, a string, or a ``torch.device``, as in ``torch.cuda``.
"""

import sys

import torch
from torch._utils import _get_device_index as _torch_device_index

from tpupilot import _C

OutOfMemoryError = torch.OutOfMemoryError


def configure(environment):
    """Reads the ``TPUPILOT_*`` environment variables, once, at import. Loads nothing.

    Raises ValueError naming the variable whose value cannot be used.
    """
    try:
        count = int(environment.get("TPUPILOT_DEVICES", "1"))
    except ValueError:
        count = 0
    if not 1 <= count <= 64:
        raise ValueError(
            f"TPUPILOT_DEVICES={environment['TPUPILOT_DEVICES']!r} is not a number of devices from 1 to 64"
        )
    policy = environment.get("TPUPILOT_FALLBACK", "error")
    if policy not in ("error", "warn", "allow"):
        raise ValueError(f"TPUPILOT_FALLBACK={policy!r} is none of error, warn, allow")
    plugin = environment.get("TPUPILOT_PLUGIN", "")
    _C.configure("cpu" if plugin in ("", "auto") else plugin, [p for p in sys.path if p], count)
    _C.set_fallback(policy)


def _any_index(device):
    """The index that a device argument names; a negative integer stays as it is."""
    if isinstance(device, str):
        device = torch.device(device)
    if isinstance(device, torch.device) and device.type != "tpu":
        raise ValueError(f"expected a tpu device, but got: {device}")
    return _torch_device_index(device, optional=True)


def _index(device=None):
    index = current_device() if device is None else _any_index(device)
    if not 0 <= index < device_count():
        raise RuntimeError(f"there is no device tpu:{index}; {device_count()} exist(s)")
    return index


# ---- devices ----
def is_available():
    """True if the plugin's file is there, and a device for it. Loads nothing."""
    return _C.available()


def device_count():
    return _C.device_count()


def current_device():
    return torch._C._accelerator_getDeviceIndex()


def set_device(device):
    """Makes a device this thread's current one. A negative index leaves it, as in ``torch.cuda``."""
    index = _any_index(device)
    if index >= 0:
        torch._C._accelerator_setDeviceIndex(_index(index))


def synchronize(device=None):
    """Waits for all work on the device; raises the first error that it met."""
    _C.synchronize(_index(device))


def init():
    """Loads the plugin now, instead of at the first operation."""
    _C.initialize()


def is_initialized():
    return _C.initialized()


def _lazy_init():
    if _is_in_bad_fork():
        raise RuntimeError(
            "Cannot use the tpu device in a forked child of a process that had initialised it. "
            "Use the 'spawn' or 'forkserver' start method of multiprocessing."
        )
    init()


def _is_in_bad_fork():
    return _C.in_bad_fork()


class device:
    """Context manager that makes a device current, and the former one again at its end."""

    def __init__(self, device):
        self.idx = _any_index(device)
        self.prev_idx = -1

    def __enter__(self):
        if self.idx >= 0:
            self.prev_idx = torch._C._accelerator_exchangeDevice(self.idx)
        return self

    def __exit__(self, *exc_info):
        if self.idx >= 0:
            torch._C._accelerator_setDeviceIndex(self.prev_idx)
        return False


class device_of(device):
    """Like ``device``, with the device of a tensor; does nothing for tensors elsewhere."""

    def __init__(self, tensor):
        super().__init__(tensor.get_device() if tensor.device.type == "tpu" else -1)


class _DeviceProperties:
    """``name``, ``total_memory`` (bytes), ``platform``, ``plugin``: what the plugin says of a device."""

    def __init__(self, index, plugin):
        self.index = index
        self.platform = plugin.get("platform_name", "unknown")
        self.name = plugin.get("device_kind", self.platform)
        self.plugin = plugin["path"]
        self.total_memory = _C.memory_info(index)[1]

    def __repr__(self):
        return (
            f"_DeviceProperties(index={self.index}, name={self.name!r}, platform={self.platform!r}, "
            f"total_memory={self.total_memory // 2**20}MB)"
        )


def get_device_properties(device=None):
    index = _index(device)
    init()
    return _DeviceProperties(index, _C.plugin())


def get_device_name(device=None):
    return get_device_properties(device).name


def get_device_capability(device=None):
    """PJRT devices have no CUDA-like capability: always (0, 0)."""
    _index(device)
    return (0, 0)


def plugin():
    """The plugin's path and, once loaded, its platform, versions and hash."""
    return _C.plugin()


# ---- random numbers ----
def manual_seed(seed):
    default_generator().manual_seed(int(seed))


def manual_seed_all(seed):
    for index in range(device_count()):
        default_generator(index).manual_seed(int(seed))


def seed():
    default_generator().seed()


def seed_all():
    value = default_generator().seed()
    manual_seed_all(value)


def initial_seed():
    return default_generator().initial_seed()


def get_rng_state(device="tpu"):
    return default_generator(_index(device)).get_state()


def set_rng_state(new_state, device="tpu"):
    default_generator(_index(device)).set_state(new_state)


def get_rng_state_all():
    return [get_rng_state(index) for index in range(device_count())]


def set_rng_state_all(new_states):
    for index, state in enumerate(new_states):
        set_rng_state(state, index)


def default_generator(device=None):
    return _C.default_generator(_index(device))


def _get_generator(device):
    return default_generator(device)


def __getattr__(name):
    if name == "default_generators":
        return tuple(_C.default_generator(index) for index in range(device_count()))
    if name == "_initialized":  # torch.utils.checkpoint keeps the device's random state only if it is there and true
        return is_initialized()
    text = f"module 'torch.tpu' has no attribute {name!r}"
    if not name.startswith("_") and hasattr(torch.cuda, name):
        text += f": torch.cuda.{name} has no counterpart here; docs/device.md says what this device offers, and why not more"
    raise AttributeError(text)


# ---- memory: bytes held by tensors. The plugin's own pools are not visible ----
def memory_stats(device=None):
    return torch.accelerator.memory.memory_stats(_index(device))


def memory_allocated(device=None):
    return torch.accelerator.memory.memory_allocated(_index(device))


def max_memory_allocated(device=None):
    return torch.accelerator.memory.max_memory_allocated(_index(device))


def memory_reserved(device=None):
    return torch.accelerator.memory.memory_reserved(_index(device))


def max_memory_reserved(device=None):
    return torch.accelerator.memory.max_memory_reserved(_index(device))


def reset_peak_memory_stats(device=None):
    torch.accelerator.memory.reset_peak_memory_stats(_index(device))


def reset_accumulated_memory_stats(device=None):
    torch.accelerator.memory.reset_accumulated_memory_stats(_index(device))


def mem_get_info(device=None):
    """(free, total) bytes; the host's memory where the plugin reports none."""
    return _C.memory_info(_index(device))


def empty_cache():
    """Gives freed memory back to the system: on a CPU plugin, malloc keeps it for the next tensors. A pool of the plugin's own stays."""
    torch.accelerator.memory.empty_cache()


# ---- streams and events: a device has one queue, and its streams are names for it ----
Stream = torch.Stream
Event = torch.Event


def current_stream(device=None):
    return torch.accelerator.current_stream(_index(device))


def default_stream(device=None):
    index = _index(device)
    return torch.Stream(stream_id=0, device_index=index, device_type=current_stream(index).device_type)


def set_stream(stream):
    """Makes a stream, and its device, current. None leaves both."""
    if stream is not None:
        torch.accelerator.set_stream(stream)


class StreamContext:
    """Context manager that makes a stream and its device current, and the former ones again at its end."""

    def __init__(self, stream):
        self.stream = stream
        self._before = None

    def __enter__(self):
        if self.stream is not None:
            self._before = (current_device(), current_stream(self.stream.device))
            set_stream(self.stream)
        return self

    def __exit__(self, *exc_info):
        if self._before is not None:
            index, stream = self._before
            set_stream(stream)
            set_device(index)


def stream(stream):
    """``with torch.tpu.stream(s):`` makes ``s`` current; None changes nothing."""
    return StreamContext(stream)


def is_current_stream_capturing():
    """There is no graph capture on this device: always False."""
    return False


# ---- automatic mixed precision ----
def get_amp_supported_dtype():
    return [torch.bfloat16, torch.float16]


def is_bf16_supported(including_emulation=True):
    return True


# ---- what this device did ----
def counters():
    """Totals since the start or the last ``reset_counters()``.

    Keys: ``compiles``, ``compile_seconds``, ``executions``, ``memory_hits``, ``disk_hits``, ``fallbacks``, ``host_syncs``,
    ``bytes_in_use``, ``bytes_peak``, ... All integers but the seconds.
    """
    return {k: v if k.endswith("seconds") else int(v) for k, v in _C.counters().items()}


def rehearse_passes(passes, always=False):
    """Makes f32 products as a TPU does, in 1, 3 or 6 passes of bf16, where ``torch.set_float32_matmul_precision`` says "highest",
    its default; with ``always`` whatever it says. 0 is the start: "highest" is plain f32 (on a TPU plugin its own HIGHEST).

    "medium" is one pass and "high" three without this. Raises ValueError for another number. Products: matmul, convolution
    and what is made of them, their gradients too; f32 and complex64, not f64, f16, bf16.
    """
    _C.rehearse_passes(passes, always)


def reset_counters():
    _C.reset_counters()


def fallbacks():
    """Overload name -> number of times that it ran on the CPU, since the last reset."""
    return dict(_C.fallbacks())


def signatures():
    """Overload name -> number of distinct signatures (programs) seen in this process."""
    return dict(_C.signatures())


def support_matrix():
    """[{"overload", "remark"}] of every row of the op table. Overloads that core composes from these are supported too."""
    return [{"overload": overload, "remark": remark} for overload, remark in _C.rows()]
