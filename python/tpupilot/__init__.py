"""tpupilot: a native PyTorch device ``tpu`` over any PJRT plugin, and the recorder of the migration pilot.

``import torch`` is enough: PyTorch loads this package through its ``torch.backends`` entry point, and ``torch.device("tpu")``
works. ``import tpupilot`` does the same. Importing loads no plugin; the first operation on the device does.
"""

import os
import warnings

__version__ = "0.1.0"
__all__ = ["__version__", "owner"]

_state = {"owner": None, "error": None}


def owner():
    """Who provides the device name ``tpu`` in this process: ``"tpupilot"``, ``"torch_tpu"``, or None if nobody does."""
    return _state["owner"]


def _autoload():
    """Entry point for PyTorch. Never raises: a broken build warns once, and ``import torch`` goes on without the device."""
    if _state["owner"] is not None or _state["error"] is not None:
        return
    try:
        _register()
    except Exception as error:
        _state["error"] = error
        warnings.warn(
            f"tpupilot: the device 'tpu' is not available: {type(error).__name__}: {error}. "
            "Run `tpupilot doctor` for the reason; torch itself is not affected.",
            RuntimeWarning,
            stacklevel=2,
        )


def _register():
    import importlib.util

    if importlib.util.find_spec("torch_tpu") is not None:
        _state["owner"] = "torch_tpu"  # Google's backend owns the device name; ours stands aside
        return
    import torch

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
    from tpupilot import device

    device.configure(os.environ)
    torch._register_device_module("tpu", device)
    torch.utils.generate_methods_for_privateuse1_backend(unsupported_dtype=[torch.complex32])
    _state["owner"] = "tpupilot"


import torch  # noqa: E402, F401  (after _autoload is defined: importing torch calls it)

_autoload()
