"""Helpers of the end-to-end tests: they run the built program as a user would."""

import json
import os
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
JOBS = ROOT / "tests" / "jobs"
BINARY = pathlib.Path(os.environ.get("TPUPILOT_BIN", ROOT / "build" / "bin" / "tpupilot"))


class Pilot:
    """bin/tpupilot with one run folder, `out`."""

    def __init__(self, out):
        self.out = out
        self.environment = dict(
            os.environ, TPUPILOT_PYTHON=sys.executable, NO_COLOR="1", TORCH_DEVICE_BACKEND_AUTOLOAD="0"
        )

    def call(self, *arguments, timeout=300):
        return subprocess.run(
            [str(BINARY), *map(str, arguments)], capture_output=True, text=True, timeout=timeout, env=self.environment
        )

    def start(self, *arguments):
        command = [str(BINARY), *map(str, arguments)]
        return subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=self.environment
        )

    def run_arguments(self, job, *more, device="cpu"):
        return ["run", job, "--out", self.out, "--set", f"candidate.device={device}", "--json", *more]

    def run(self, job, *more, device="cpu"):
        """(exit code, sheet or None, stderr) of `run --json`."""
        done = self.call(*self.run_arguments(job, *more, device=device))
        document = json.loads(done.stdout)
        return done.returncode, document, done.stderr

    def folder(self):
        return self.out


def check(sheet, name):
    return next(entry for entry in sheet["checks"] if entry["id"] == name)


@pytest.fixture
def pilot(tmp_path):
    if not BINARY.exists():
        pytest.fail(f"{BINARY} is not built")
    return Pilot(tmp_path / "run")


@pytest.fixture(scope="module")
def shared_pilot(tmp_path_factory):
    if not BINARY.exists():
        pytest.fail(f"{BINARY} is not built")
    return Pilot(tmp_path_factory.mktemp("pilot") / "run")
