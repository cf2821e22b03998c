"""Other plugins than the default one: found by name, refused in a sentence where they cannot run, right where they can."""

import importlib.util
import os
import pathlib
import shutil
import subprocess
import sys
import textwrap

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
FAKE = ROOT / "build" / "tests" / "fake_plugin.so"
FILES = {"cuda": "jax_plugins/xla_cuda13/xla_cuda_plugin.so", "tpu": "libtpu/libtpu.so"}
PACKAGES = {"cuda": "jax-cuda13-pjrt", "tpu": "libtpu"}
HARDWARE = {"cuda": "needs an NVIDIA GPU", "tpu": "needs a TPU"}
DEVICES = {"cuda": ("/dev/nvidia0", "/dev/nvmap", "/dev/dxg"), "tpu": ("/dev/accel0", "/dev/vfio/0")}


def last_line(plugin, code="import torch; torch.ones(1).sum().item(); torch.ones(1, device='tpu')", **environment):
    """What a user reads who asks for a plugin that cannot be used: the last line of the traceback, which must be a Python error."""
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        env={**os.environ, "TPUPILOT_PLUGIN": plugin, **environment},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 1, (done.returncode, done.stderr)
    return done.stderr.splitlines()[-1]


def without_hardware(name):
    present = [path for path in DEVICES[name] if os.path.exists(path)]
    if present:
        pytest.skip(f"this machine has {present[0]}")


def package_file(name):
    """Where the real package's plugin lies; None if it is not installed."""
    first, rest = FILES[name].split("/", 1)
    spec = importlib.util.find_spec(first)
    places = spec.submodule_search_locations if spec else []
    return next((p for p in (pathlib.Path(place) / rest for place in places) if p.exists()), None)


@pytest.mark.parametrize("name", ["cuda", "tpu"])
def test_a_package_that_is_not_installed_says_what_to_install(name):
    if package_file(name):
        pytest.skip(f"{PACKAGES[name]} is installed here")
    for spelling in (name, PACKAGES[name]):
        line = last_line(spelling)
        assert f"the plugin {PACKAGES[name]} is not installed; `pip install {PACKAGES[name]}` installs it" in line


@pytest.mark.parametrize("name", ["cuda", "tpu"])
def test_a_plugin_without_its_hardware_is_not_opened(name, tmp_path):
    without_hardware(name)
    file = tmp_path / FILES[name]
    file.parent.mkdir(parents=True)
    shutil.copy(__file__, file)  # opening it would be another error
    line = last_line(name, PYTHONPATH=str(tmp_path))
    assert HARDWARE[name] in line and "TPUPILOT_PLUGIN=cpu" in line
    assert HARDWARE[name] in last_line(str(file))  # by path too
    code = "import sys, torch; sys.exit(f'available: {torch.tpu.is_available()}')"
    assert last_line(str(file), code) == "available: False"


@pytest.mark.parametrize("name", ["cuda", "tpu"])
def test_the_real_package_without_its_hardware(name):
    without_hardware(name)
    if not package_file(name):
        pytest.skip(f"{PACKAGES[name]} is not installed (several hundred MB): pip install --no-deps {PACKAGES[name]}")
    assert HARDWARE[name] in last_line(name, PYTHONPATH=os.pathsep.join(sys.path))


def test_a_name_that_nobody_knows_lists_the_known_ones():
    line = last_line("gpu")
    assert "no plugin is called 'gpu'" in line and "jax-cuda13-pjrt (short: cuda)" in line


def test_a_client_that_cannot_be_made_is_an_error(tmp_path):
    line = last_line(str(FAKE), FAKE_PJRT_FAIL="Client_Create:1:9", TPUPILOT_CACHE_DIR=str(tmp_path))
    assert "fault in Client_Create" in line


def test_more_devices_than_the_plugin_has(tmp_path):
    line = last_line(
        str(FAKE),
        TPUPILOT_DEVICES="3",
        FAKE_PJRT_UNKNOWN_CLIENT_OPTION="asynchronous,cpu_device_count",  # as a GPU's or a TPU's plugin
        TPUPILOT_CACHE_DIR=str(tmp_path),
    )
    assert "TPUPILOT_DEVICES is 3" in line and "has 1 device(s)" in line


# ---- the other CPU plugins: a slice of the quick suite; CONTRIBUTING has the command for all of it ----
def other_cpu_plugins():
    lines = (ROOT / "requirements-plugins.txt").read_text().splitlines()
    return [line.partition("==")[0] for line in lines if line and not line.startswith("#")]


def path_of(plugin):
    code = "import torch; print(torch.tpu.plugin()['path'])"
    environment = {**os.environ, "TPUPILOT_PLUGIN": plugin}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.strip(), f"{plugin} is not installed; scripts/setup dev installs it"
    return done.stdout.strip()


@pytest.mark.slow
@pytest.mark.parametrize("room", ["pjrt", "quirks"])
@pytest.mark.parametrize("plugin", other_cpu_plugins())
def test_a_room_on_another_cpu_plugin(plugin, room):
    environment = {**os.environ, "TPUPILOT_TEST_PLUGIN": path_of(plugin)}
    program = ROOT / "build" / "tests" / f"{room}_test"
    done = subprocess.run([program, "--gtest_brief=1"], env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0 and "[  PASSED  ]" in done.stdout, done.stdout[-3000:]


@pytest.mark.slow
@pytest.mark.parametrize("plugin", other_cpu_plugins())
def test_training_and_regions_on_another_cpu_plugin(plugin):
    files = [ROOT / "tests" / "python" / f"test_{name}.py" for name in ("recorder", "training")]
    chosen = ["-m", "not slow", "-k", "not recurrent"]
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *chosen, *files]
    environment = {**os.environ, "TPUPILOT_PLUGIN": plugin}
    done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, timeout=300)
    summary = done.stdout.splitlines()[-1]
    assert done.returncode == 0 and int(summary.split(" passed")[0].split()[-1]) > 20, done.stdout[-3000:]
