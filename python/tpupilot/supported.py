"""What tpupilot can be built for and run with: the one rule of the set-up, of the build, and of the import.

``python supported.py`` judges its own interpreter, without importing torch: exit code 1, and one sentence, if it is not supported.
Without torch, and with no more than Python's own library.
"""

import importlib.util
import os
import platform
import re
import runpy
import sys

OLDEST, NEWEST = (2, 11), (2, 15)
INSTALL = "install torch==2.13.0 from an index of CPU builds"


def public(version):
    """``"2.13.0"`` of ``"2.13.0+cpu"``."""
    return version.partition("+")[0]


def unsupported_platform(system, machine):
    """One sentence, or an empty text. `system` and `machine` as the platform module says them."""
    if system == "Linux" and machine.lower() in ("x86_64", "amd64", "aarch64"):
        return ""
    return (
        f"tpupilot runs on Linux, x86-64 or aarch64, where its CPU plugin (xla-cpu-pjrt) has a wheel; this is {system} {machine}. "
        "Use such a machine, or a Linux container on this one."
    )


def unsupported_torch(version, accelerator):
    """One sentence, or an empty text. `accelerator`: ``"CUDA 13.0"``, ``"ROCm 7.1"``, or an empty text for a CPU build."""
    if accelerator:
        return (
            f"torch {version} is built for {accelerator}; tpupilot needs a CPU build of torch, as Google's torch_tpu does: "
            f"uninstall torch, then {INSTALL}."
        )
    number = tuple(int(part) for part in re.findall(r"\d+", version)[:2])
    if OLDEST <= number <= NEWEST:
        return ""
    oldest, newest = (".".join(map(str, v)) for v in (OLDEST, NEWEST))
    return f"torch {version} is not in the range that tpupilot supports, {oldest} to {newest}: {INSTALL}."


def other_build(built_for, version):
    """One sentence, or an empty text: whether the native part fits the torch that runs it."""
    if public(built_for) == public(version):
        return ""
    return (
        f"tpupilot was built for torch {public(built_for)}, and this is torch {version}: "
        f"build it again for this torch (`pip install --no-build-isolation .` in its source folder), or install torch=={public(built_for)}."
    )


def accelerator_of(cuda, hip):
    return f"CUDA {cuda}" if cuda else f"ROCm {hip}" if hip else ""


def installed_torch():
    """(version, accelerator) of the torch that this interpreter would import; None if it has none."""
    spec = importlib.util.find_spec("torch")
    if spec is None or not spec.submodule_search_locations:
        return None
    found = runpy.run_path(os.path.join(spec.submodule_search_locations[0], "version.py"))
    return str(found["__version__"]), accelerator_of(found.get("cuda"), found.get("hip"))


def unsupported_here():
    sentence = unsupported_platform(platform.system(), platform.machine())
    if sentence:
        return sentence
    torch = installed_torch()
    if torch is None:
        return f"torch is not installed for {sys.executable}: {INSTALL}, then build again."
    return unsupported_torch(*torch)


if __name__ == "__main__":
    sys.path.pop(0)  # this file's own folder: nothing is to be imported from it
    wrong = unsupported_here()
    if wrong:
        print(wrong)
    sys.exit(1 if wrong else 0)
