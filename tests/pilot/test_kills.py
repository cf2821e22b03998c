"""SIGKILL at random moments, of the pilot, of a worker, of all: the same command goes on and ends at the same sheet."""

import contextlib
import json
import os
import pathlib
import random
import re
import signal
import subprocess
import time

import pytest
from conftest import BINARY, JOBS, Pilot

pytestmark = pytest.mark.slow

JOB = (JOBS / "small", "--set", "job.steps=4", "--set", "job.steps_per_epoch=2")
KILLS = 20
SEED = 20240


def events(out):
    found = []
    for side in ("reference", "candidate"):
        with contextlib.suppress(OSError):
            for line in (out / side / "events.jsonl").read_text().splitlines():
                with contextlib.suppress(ValueError):  # a torn line
                    found.append((side, json.loads(line)))
    return found


def ended_tasks(out):
    """{side/task: the attempt that the manifest recorded}."""
    with contextlib.suppress(OSError):
        return {name: t["attempt"] for name, t in json.loads((out / "manifest.json").read_text())["tasks"].items()}
    return {}


def finished(out):
    with contextlib.suppress(OSError):
        return json.loads((out / "manifest.json").read_text())["finished"]
    return False


def sheet_of(out):
    return json.loads((out / "sheet.json").read_text())


def attempts(out):
    return {f"{side}/{e['task']}": e["attempt"] for side, e in events(out) if e["event"] == "task.start"}


def start(pilot):
    """The run, with its output in files: a pipe that nobody reads would stop it."""
    with open(pilot.out.parent / "out.json", "w") as out, open(pilot.out.parent / "errors", "w") as errors:
        command = [BINARY, *map(str, pilot.run_arguments(*JOB))]
        return subprocess.Popen(command, stdout=out, stderr=errors, env=pilot.environment)


def children(pid):
    with contextlib.suppress(OSError):
        return [int(word) for word in pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return []


def phase(out, pids):
    """What was going on: the tasks that the given workers had begun and not ended."""
    doing = {}
    for side, event in events(out):
        if event["event"] == "task.start" and event["pid"] in pids:
            doing[side] = f"{side}/{event['task']}"
        elif event["event"] == "task.end" and doing.get(side) == f"{side}/{event['task']}":
            doing[side] = f"{side}/after {event['task']}"
    if doing:
        return " + ".join(sorted(doing.values()))
    return "workers starting" if pids else ("judging" if len(ended_tasks(out)) == 18 else "between processes")


def moment(kill, rng):
    """After how many more events; None: while the pilot judges. Without `kill`: never."""
    return rng.choice([None, *range(0, 40, 4)]) if kill else 10**6


def wait_for_the_moment(process, out, wanted, rng):
    """Until so many events were written since the start, or the pilot judges (wanted: None). False if it ended before."""
    before = len(events(out))
    while process.poll() is None:
        reached = len(ended_tasks(out)) == 18 if wanted is None else len(events(out)) - before >= wanted
        if reached:
            time.sleep(rng.random() * (0.1 if wanted is None else 0.3))
            return process.poll() is None
        time.sleep(0.01)
    return False


def kill(process, whom, rng):
    pids = children(process.pid)
    if whom == "worker" and pids:
        os.kill(rng.choice(pids), signal.SIGKILL)
        process.wait(timeout=120)  # it says that a worker was killed
        assert process.returncode in (0, 2)
    else:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGKILL)
            for pid in pids if whom == "all" else ():
                os.killpg(pid, signal.SIGKILL)
        process.wait()
    end = time.monotonic() + 20
    while time.monotonic() < end and any(os.path.exists(f"/proc/{pid}/maps") and alive(pid) for pid in pids):
        time.sleep(0.01)
    assert not any(alive(pid) for pid in pids), "a worker outlived its pilot"


def alive(pid):
    with contextlib.suppress(OSError):
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] not in ("Z", "X")
    return False


def without_times(sheet, out):
    """The sheet but for paths, numbers of attempts, and the moment at which it began."""
    text = json.dumps({k: v for k, v in sheet.items() if k != "files"}, sort_keys=True)
    text = text.replace(str(out), "OUT")
    text = re.sub(r'"thresholds_set_at": "[^"]*"', "", text)
    return re.sub(r"(\.\d+|\.draws|/environment)\.\d+\.(safetensors|json)", r"\1.\2", text)


def test_twenty_kills_at_random_moments(tmp_path):
    rng, landed, run = random.Random(SEED), [], 0
    straight = Pilot(tmp_path / "straight")
    straight.environment["OMP_NUM_THREADS"] = "1"
    code, sheet, errors = straight.run(*JOB)
    assert code == 0, errors
    right = without_times(sheet, straight.out)
    while len(landed) < KILLS or run < 2:
        run += 1
        pilot = Pilot(tmp_path / f"killed-{run}")
        pilot.environment["OMP_NUM_THREADS"] = "1"
        ended = {}
        while wait_for_the_moment(process := start(pilot), pilot.out, moment(len(landed) < KILLS * run / 2, rng), rng):
            for task, attempt in ended.items():
                assert attempts(pilot.out)[task] == attempt, f"{task} had ended and was repeated"
            whom = rng.choice(["pilot", "worker", "all"])
            where = phase(pilot.out, children(process.pid))
            kill(process, whom, rng)
            landed.append((run, whom, where))
            ended = ended_tasks(pilot.out)
            if finished(pilot.out):  # killed after its last write: the same command would say so, with exit code 3
                break
        else:
            assert process.wait() == 0, (tmp_path / "errors").read_text()
            assert json.loads((tmp_path / "out.json").read_text()) == sheet_of(pilot.out)
        assert without_times(sheet_of(pilot.out), pilot.out) == right
    print(f"seed {SEED}; {len(landed)} kills in {run} runs:")
    for number, whom, where in landed:
        print(f"  run {number}: {whom} killed at: {where}")
    assert {whom for _, whom, _ in landed} == {"pilot", "worker", "all"}
    assert len({where for *_, where in landed}) >= 5
