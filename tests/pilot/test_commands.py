"""The commands that need no run."""

import json

from conftest import JOBS, ROOT


def test_first_screen_teaches(pilot):
    done = pilot.call()
    assert done.returncode == 0 and "tpupilot run JOB" in done.stdout and "Exit codes" in done.stdout


def test_version(pilot):
    assert pilot.call("--version").stdout.startswith("tpupilot 0.")


def test_usage_errors_exit_3(pilot):
    assert pilot.call("run").returncode == 3
    assert pilot.call("rnu").returncode == 3
    assert pilot.call("run", JOBS / "small", "--gate", "7").returncode == 3


def test_checks_as_json(pilot):
    rows = json.loads(pilot.call("checks", "--json").stdout)
    assert {"env.smoke", "par.loss", "ckpt.crash", "dist.start", "cmp.cost", "dec.stop"} <= {row["id"] for row in rows}


def test_worker_export(pilot, tmp_path):
    target = tmp_path / "worker.py"
    assert pilot.call("worker", "--export", target).returncode == 0
    assert target.read_bytes() == (ROOT / "python" / "tpupilot" / "worker.py").read_bytes()


def test_doctor(pilot):
    done = pilot.call("doctor", "--set", "candidate.device=cpu", "--json")
    document = json.loads(done.stdout)
    assert {entry["id"] for entry in document["checks"]} >= {"env.python", "env.smoke"}
    assert done.returncode == (1 if document["findings"] else 0)


def test_dry_run_starts_nothing(pilot):
    done = pilot.call("run", JOBS / "small", "--out", pilot.out, "--dry-run", "--set", "candidate.device=cpu", "--json")
    plan = json.loads(done.stdout)
    assert done.returncode == 0 and plan["plan"]
    assert not pilot.out.exists()


def test_report_of_nothing(pilot, tmp_path):
    done = pilot.call("report", tmp_path)
    assert done.returncode == 3 and "no sheet.json" in done.stderr
