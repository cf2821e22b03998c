"""Evidence of one side comes from one environment: a package that changes on the way is named, with both versions."""

import json
import pathlib
import signal
import sysconfig
import time
import venv

import pytest
from conftest import JOBS, Pilot, check

pytestmark = pytest.mark.slow

SMALL = JOBS / "small"


class Environment:
    """An interpreter of its own with this torch, and one package that is installed in it as pip leaves one."""

    def __init__(self, folder):
        venv.create(folder, with_pip=False)
        self.python = folder / "bin" / "python"
        site = sysconfig.get_path("purelib", "venv", {"base": folder, "installed_base": folder})
        self.site = pathlib.Path(site)
        (self.site / "borrowed.pth").write_text(sysconfig.get_path("purelib") + "\n")

    def install(self, version, extra=""):
        for old in self.site.glob("tinydata-*.dist-info/*"):
            old.unlink()
        for old in self.site.glob("tinydata-*.dist-info"):
            old.rmdir()
        if version:
            info = self.site / f"tinydata-{version}.dist-info"
            info.mkdir()
            (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: tinydata\nVersion: {version}\n")
            (info / "RECORD").write_text(
                f"tinydata.py,sha256=0{extra},1\n{info.name}/METADATA,,\n{info.name}/RECORD,,\n"
            )


@pytest.fixture(scope="module")
def environment(tmp_path_factory):
    return Environment(tmp_path_factory.mktemp("candidate") / "venv")


def interrupted_run(pilot, environment, *more):
    """Arguments of a run that was stopped inside gate 1."""
    arguments = pilot.run_arguments(SMALL, "--set", f"candidate.python={environment.python}", *more)
    process = pilot.start(*arguments)
    end = time.monotonic() + 120
    while time.monotonic() < end and not list(pilot.out.glob("*/tensors/*")):
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    assert process.returncode == 2
    return arguments


def test_a_resumed_run_in_another_environment_is_refused_until_it_is_put_back(pilot, environment):
    environment.install("1.0")
    arguments = interrupted_run(pilot, environment)
    before = json.loads((pilot.out / "manifest.json").read_text())["tasks"]
    for version, extra, text in [
        ("2.0", "", "tinydata 1.0 -> 2.0"),
        (None, "", "tinydata 1.0 -> not installed"),
        ("1.0", "1", "tinydata 1.0 -> 1.0 (other files)"),
    ]:
        environment.install(version, extra)
        done = pilot.call(*arguments)
        assert done.returncode == 3, done.stderr
        message = json.loads(done.stdout)["error"]["message"]
        assert "[env.pinned] the candidate's environment changed" in message and text + "." in message, message
        assert "put the former back" in message and "--fresh" in message
        now = json.loads((pilot.out / "manifest.json").read_text())
        assert before.items() <= now["tasks"].items() and now["finished"] is False
    environment.install("1.0")
    done = pilot.call(*arguments)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["verdict"] == "pass"


def test_a_rerun_names_the_package_that_is_its_one_variable(pilot, environment, tmp_path):
    def run(out, *more):
        run = Pilot(out)
        settings = ("--gate", "0", "--set", f"candidate.python={environment.python}", *more)
        return run.run(SMALL, *settings)

    environment.install("1.0")
    parent = tmp_path / "parent"
    code, _, errors = run(parent)
    assert code == 0, errors
    environment.install("2.0")
    code, sheet, errors = run(tmp_path / "one", "--parent", parent)
    assert code == 0, errors
    assert "the candidate changed: tinydata 1.0 -> 2.0" in check(sheet, "env.pinned")["why"]
    one = check(sheet, "dec.one-variable")
    assert one["verdict"] == "pass" and list(one["measured"]["changed"]) == ["candidate.environment_sha256"]
    code, document, _ = run(tmp_path / "two", "--parent", parent, "--set", "job.seed=3")
    message = document["error"]["message"]
    assert code == 3 and "changes 2: candidate.environment_sha256 (tinydata 1.0 -> 2.0), job.seed" in message, message
    assert not (tmp_path / "two" / "sheet.json").exists()


def test_one_interpreter_for_both_sides_is_one_variable(environment, tmp_path):
    def run(out, *more):
        sides = [f"--set={side}.python={environment.python}" for side in ("reference", "candidate")]
        return Pilot(out).run(SMALL, "--gate", "0", *sides, *more)

    environment.install("1.0")
    assert run(tmp_path / "parent")[0] == 0
    environment.install("2.0")
    code, sheet, errors = run(tmp_path / "rerun", "--parent", tmp_path / "parent")
    assert code == 0, errors
    assert list(check(sheet, "dec.one-variable")["measured"]["changed"]) == ["candidate.environment_sha256"]
