"""tpupilot: a native PyTorch device ``tpu`` over any PJRT plugin, and the recorder of the migration pilot.

``import torch`` is enough: PyTorch loads this package through its ``torch.backends`` entry point, and ``torch.device("tpu")``
works. ``import tpupilot`` does the same. Importing loads no plugin; the first operation on the device does.
"""

import atexit
import importlib
import importlib.util
import os
import platform
import time
import warnings

__version__ = "0.1.0"
__all__ = ["__version__", "error", "owner"]

_state = {"owner": None, "error": None}


def owner():
    """Who provides the device name ``tpu`` in this process: ``"tpupilot"``, ``"torch_tpu"``, or None if nobody does."""
    return _state["owner"]


def error():
    """Why this process has no device ``tpu``: the exception of its registration. None if it has one."""
    return _state["error"]


def _autoload():
    """Entry point for PyTorch. Never raises: a broken build warns once, and ``import torch`` goes on without the device."""
    if _state["owner"] is not None or _state["error"] is not None:
        return
    try:
        _register()
    except Exception as failure:
        _state["error"] = failure
        warnings.warn(
            f"tpupilot: the device 'tpu' is not available: {type(failure).__name__}: {str(failure).rstrip('.')}. "
            "Run `tpupilot doctor` for the reason; torch itself is not affected.",
            RuntimeWarning,
            stacklevel=2,
        )


def _register():
    torch = importlib.import_module("torch")  # noqa: F811  (if tpupilot is imported first, the module has no `torch` yet)
    if importlib.util.find_spec("torch_tpu") is not None:
        _state["owner"] = "torch_tpu"  # Google's backend owns the device name; ours stands aside
        return

    _check(torch)
    name = torch._C._get_privateuse1_backend_name()
    if name not in ("privateuseone", "tpu"):
        raise RuntimeError(f"the device type PrivateUse1 already belongs to another backend, '{name}'")
    try:
        from tpupilot import _C  # noqa: F401
    except ImportError as error:
        raise ImportError(
            f"the native part was not built for this interpreter and torch {torch.__version__} ({error}); build it again"
        ) from error
    torch.utils.rename_privateuse1_backend("tpu")
    from tpupilot import device, sharing

    device.configure(os.environ)
    torch._register_device_module("tpu", device)
    torch.utils.generate_methods_for_privateuse1_backend(for_storage=True, unsupported_dtype=[torch.complex32])
    sharing.install()
    atexit.register(_let_autograd_threads_finish)
    _state["owner"] = "tpupilot"


def _check(torch):  # noqa: F811  (the module below is the same one)
    """Raises RuntimeError, in one sentence that says what to do, where the native part could only fail or crash."""
    from tpupilot import supported

    accelerator = supported.accelerator_of(torch.version.cuda, torch.version.hip)
    wrong = supported.unsupported_platform(platform.system(), platform.machine())
    wrong = wrong or supported.unsupported_torch(torch.__version__, accelerator)
    try:
        from tpupilot import built_for
    except ImportError:  # not built: the native part's absence is told below
        built_for = None
    if not wrong and built_for:
        wrong = supported.other_build(built_for.TORCH, torch.__version__)
    if wrong:
        raise RuntimeError(wrong)


def _autograd_threads():
    """CPU time used so far by each of autograd's device threads, by thread id, and whether all of them sleep."""
    used, asleep = {}, True
    for task in os.listdir("/proc/self/task"):
        try:
            with open(f"/proc/self/task/{task}/stat") as f:
                name, _, fields = f.read().partition("(")[2].rpartition(")")
        except OSError:
            continue  # it ended
        if name.startswith("pt_autograd"):
            state, *rest = fields.split()
            used[task] = rest[10:12]
            asleep = asleep and state == "S"
    return used, asleep


def _let_autograd_threads_finish():
    """Gives autograd's device threads the GIL before the interpreter goes.

    After the last backward() such a thread still frees its graph, for which it takes the GIL. If the interpreter is already
    finalising then, CPython ends the thread inside a destructor, and the process aborts (CPython 3.11, torch 2.13).
    """
    before, _ = _autograd_threads()
    for _ in range(100) if before else ():
        time.sleep(0.001)  # lets the GIL go
        now, asleep = _autograd_threads()
        if asleep and now == before:
            return
        before = now


import torch  # noqa: E402, F401  (after _autoload is defined: importing torch calls it)

_autoload()
