"""What an environment is told that cannot work, and the wheel: built, repaired, installed elsewhere, and the same each time."""

import hashlib
import os
import pathlib
import runpy
import subprocess
import sys
import textwrap
import zipfile

import pytest
import torch
from tpupilot import supported

ROOT = pathlib.Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(
    ("version", "accelerator", "said"),
    [
        ("2.11.0+cpu", "", ""),
        ("2.15.1", "", ""),
        ("2.10.1+cpu", "", "torch 2.10.1+cpu is not in the range that tpupilot supports, 2.11 to 2.15"),
        ("2.16.0", "", "not in the range"),
        ("3.0", "", "not in the range"),
        ("2.13.0+cu130", "CUDA 13.0", "torch 2.13.0+cu130 is built for CUDA 13.0; tpupilot needs a CPU build"),
        ("2.13.0+rocm7.1", "ROCm 7.1", "is built for ROCm 7.1"),
    ],
)
def test_which_torch_is_supported(version, accelerator, said):
    sentence = supported.unsupported_torch(version, accelerator)
    assert said in sentence and bool(said) == bool(sentence)
    assert not sentence or "install torch==2.13.0" in sentence


@pytest.mark.parametrize(
    ("system", "machine", "good"),
    [
        ("Linux", "x86_64", True),
        ("Linux", "aarch64", True),
        ("Linux", "riscv64", False),
        ("Darwin", "arm64", False),
        ("Windows", "AMD64", False),
    ],
)
def test_which_platform_is_supported(system, machine, good):
    sentence = supported.unsupported_platform(system, machine)
    assert good == (sentence == "")
    assert good or (f"this is {system} {machine}" in sentence and "container" in sentence)


def test_this_interpreter_is_supported_and_its_torch_is_read_without_importing_it():
    assert supported.installed_torch() == (torch.__version__, "")
    done = subprocess.run(
        [sys.executable, "-X", "importtime", ROOT / "python/tpupilot/supported.py"], capture_output=True, text=True
    )
    assert (done.returncode, done.stdout) == (0, "") and "torch._C" not in done.stderr


@pytest.fixture
def site(tmp_path):
    """A folder whose torch is another: only what says its version."""
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").touch()

    def torch_of(version, cuda):
        (tmp_path / "torch" / "version.py").write_text(f"__version__ = {version!r}\ncuda = {cuda!r}\nhip = None\n")
        return {**os.environ, "PYTHONPATH": str(tmp_path)}

    return torch_of


def test_the_build_is_refused_before_it_compiles(site, tmp_path):
    """CMake, as pip runs it, on an interpreter whose torch is a CUDA build; and the hook that names a wheel's dependencies."""
    environment = site("2.13.0+cu130", "13.0")
    configure = ["cmake", "-S", ROOT, "-B", tmp_path / "b", "-G", "Ninja", f"-DPython3_EXECUTABLE={sys.executable}"]
    done = subprocess.run(configure, env=environment, capture_output=True, text=True)
    said = " ".join(done.stderr.split())
    assert done.returncode != 0 and "tpupilot cannot be built here: torch 2.13.0+cu130 is built for CUDA 13.0" in said

    hook = f"import runpy; runpy.run_path({str(ROOT / 'scripts/wheel_dependencies.py')!r})['dynamic_metadata']({{'also': []}}, {{}})"
    done = subprocess.run([sys.executable, "-c", hook], env=environment, capture_output=True, text=True)
    assert done.returncode == 1 and done.stderr.startswith("tpupilot cannot be built here: torch 2.13.0+cu130")


def test_a_wheel_depends_on_the_torch_of_its_build():
    hook = runpy.run_path(str(ROOT / "scripts/wheel_dependencies.py"))["dynamic_metadata"]
    torch_of_build = f"torch=={torch.__version__.partition('+')[0]}"
    assert hook({"also": ["other==1"]}, {}) == {"dependencies": [torch_of_build, "other==1"]}


PATCHES = {
    "built for torch 1.2.3, and this is torch": "sys.modules['tpupilot.built_for'] = types.SimpleNamespace(TORCH='1.2.3')",
    "tpupilot runs on Linux": "import platform; platform.machine = lambda: 'riscv64'",
    "is built for CUDA 13.0": "os.environ['TORCH_DEVICE_BACKEND_AUTOLOAD'] = '0'; import torch; torch.version.cuda = '13.0'; import tpupilot",
}


@pytest.mark.parametrize("said", PATCHES)
def test_import_torch_goes_on_and_warns_once(said):
    code = f"""
        import os, sys, types
        {PATCHES[said]}
        import torch, tpupilot
        tpupilot._autoload()
        print(torch.ones(2).sum().item(), tpupilot.owner(), hasattr(torch, "tpu"), tpupilot.error())
        """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True)
    assert done.returncode == 0 and done.stdout.startswith("2.0 None False "), done.stderr
    assert said in done.stdout and done.stderr.count("the device 'tpu' is not available") == 1 and said in done.stderr


# ---- the wheel ----
def build_wheel(folder, build):
    environment = {**os.environ, "TPUPILOT_WHEEL_BUILD": str(build)}
    done = subprocess.run(
        [ROOT / "scripts/build_wheel", folder], env=environment, capture_output=True, text=True, timeout=1500
    )
    assert done.returncode == 0, done.stderr
    path, tag = done.stdout.splitlines()
    return pathlib.Path(path), tag.removeprefix("tag: ")


def contents(wheel):
    with zipfile.ZipFile(wheel) as archive:
        return {i.filename: (hashlib.sha256(archive.read(i)).hexdigest(), i.external_attr) for i in archive.infolist()}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """Compiles in build-wheel/ of the checkout, so that only the first run of all is long."""
    return build_wheel(tmp_path_factory.mktemp("wheel"), ROOT / "build-wheel")


@pytest.mark.slow
def test_the_wheel_says_what_it_needs(wheel):
    path, tag = wheel
    python = f"cp{sys.version_info.major}{sys.version_info.minor}"
    assert tag.startswith(f"{python}-{python}-manylinux_2_") and tag.endswith("_x86_64"), tag
    names = list(contents(path))
    assert not [n for n in names if ".libs/" in n], "libraries were copied in: all that is not torch's is linked in"
    with zipfile.ZipFile(path) as archive:
        metadata = archive.read(next(n for n in names if n.endswith(".dist-info/METADATA"))).decode()
    assert f"Requires-Dist: torch=={torch.__version__.partition('+')[0]}\n" in metadata
    assert "Requires-Dist: xla-cpu-pjrt==" in metadata


@pytest.mark.slow
def test_two_wheels_have_the_same_content(wheel, tmp_path):
    other, tag = build_wheel(tmp_path / "dist", tmp_path / "another-build-folder")
    assert tag == wheel[1] and contents(other) == contents(wheel[0])


@pytest.fixture(scope="module")
def elsewhere(wheel, tmp_path_factory):
    """A new virtual environment with the wheel; torch and the plugin come from this interpreter's packages, tpupilot does not."""
    venv = tmp_path_factory.mktemp("venv")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", venv], check=True)
    here = pathlib.Path(torch.__file__).parents[1]
    site = next(venv.glob("lib/python*/site-packages"))
    borrowed = venv / "borrowed"
    borrowed.mkdir()
    for entry in here.iterdir():
        if not entry.name.startswith(("tpupilot", "__editable__")) and entry.suffix != ".pth":
            (borrowed / entry.name).symlink_to(entry)
    (site / "borrowed.pth").write_text(f"{borrowed}\n")
    install = ["install", "-q", "--no-deps", "--no-index", "--disable-pip-version-check", str(wheel[0])]
    subprocess.run([sys.executable, "-m", "pip", "--python", venv / "bin" / "python", *install], check=True)
    return venv


def run_elsewhere(venv, *command):
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("TPUPILOT_", "PYTHON", "VIRTUAL_ENV"))}
    environment["TPUPILOT_CACHE_DIR"] = "off"
    return subprocess.run(
        [venv / "bin" / command[0], *command[1:]],
        env=environment,
        cwd=venv,
        capture_output=True,
        text=True,
        timeout=300,
    )


@pytest.mark.slow
def test_the_device_of_the_installed_wheel(elsewhere):
    code = (
        "import torch, tpupilot; a = torch.rand(64, 64); print(tpupilot.__file__, tpupilot.owner(), "
        "torch.allclose((a.to('tpu') @ a.to('tpu')).cpu(), a @ a, atol=1e-4))"
    )
    done = run_elsewhere(elsewhere, "python", "-c", code)
    file, owner, equal = done.stdout.split() if done.stdout else ("", "", "")
    assert file.startswith(str(elsewhere)) and (owner, equal) == ("tpupilot", "True"), done.stderr


@pytest.mark.slow
def test_the_command_of_the_installed_wheel(elsewhere):
    done = run_elsewhere(elsewhere, "tpupilot", "doctor")
    assert done.returncode == 0, done.stdout + done.stderr
    assert str(elsewhere) in run_elsewhere(elsewhere, "tpupilot", "doctor", "--json").stdout
    assert "env.smoke" in done.stdout and "stop" not in done.stdout
