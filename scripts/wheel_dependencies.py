"""What a wheel depends on: exactly the torch that it was built for, whose C++ interface it uses, and the packages of pyproject.toml.

Called by scikit-build-core before it configures anything, so an environment that cannot work is refused here first.
"""

import pathlib
import runpy

SUPPORTED = pathlib.Path(__file__).resolve().parents[1] / "python" / "tpupilot" / "supported.py"


def dynamic_metadata(settings, _project):
    supported = runpy.run_path(str(SUPPORTED))
    wrong = supported["unsupported_here"]()
    if wrong:
        raise SystemExit(f"tpupilot cannot be built here: {wrong}")
    version, _ = supported["installed_torch"]()
    return {"dependencies": [f"torch=={supported['public'](version)}", *settings["also"]]}
