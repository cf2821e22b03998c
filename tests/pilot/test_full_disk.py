"""A disk that fills up: the file is named, nothing gained is lost, and with room the same command goes on."""

import contextlib
import json
import os
import subprocess
import sys

import pytest
from conftest import BINARY, JOBS, ROOT

SMALL = JOBS / "small"
QUICK = ("--set", "job.steps=4", "--set", "job.steps_per_epoch=2")


class Disk:
    """A real file system of a few kilobytes."""

    def __init__(self, folder):
        self.folder = folder

    def resize(self, kilobytes):
        subprocess.run(["mount", "-o", f"remount,size={kilobytes}k", self.folder], check=True)

    def free(self):
        return os.statvfs(self.folder).f_bavail * os.statvfs(self.folder).f_frsize


@pytest.fixture
def disk(tmp_path):
    folder = tmp_path / "disk"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"a file system of its own needs root: {done.stderr.strip()}")
    yield Disk(folder)
    subprocess.run(["umount", "-l", folder], check=True)


def manifest_of(folder):
    with contextlib.suppress(OSError):
        return json.loads((folder / "manifest.json").read_text())
    return {"tasks": {}}


def starts(folder):
    """{side/task: number of attempts}."""
    counts = {}
    for side in ("reference", "candidate"):
        with contextlib.suppress(OSError):
            for line in (folder / side / "events.jsonl").read_text().splitlines():
                with contextlib.suppress(ValueError):  # a torn line
                    event = json.loads(line)
                    if event["event"] == "task.start":
                        counts[f"{side}/{event['task']}"] = event["attempt"]
    return counts


@pytest.mark.slow
def test_a_run_on_a_disk_that_is_full_again_and_again_goes_on(pilot, disk):
    pilot.out = disk.folder / "run"
    pilot.environment["OMP_NUM_THREADS"] = "1"
    command = pilot.run_arguments(SMALL, *QUICK)
    size, named, ended, started = 60, [], set(), {}
    for _ in range(40):
        disk.resize(size)
        done = pilot.call(*command)
        if done.returncode == 0:
            break
        assert done.returncode == 3, done.stderr
        message = json.loads(done.stdout)["error"]["message"]
        assert "cannot write " + str(disk.folder) in message and "No space left on device" in message, message
        assert "free space there" in message.lower() and "the same command" in message, message
        named.append(message.split("cannot write ")[1].split(": No space")[0].removeprefix(str(pilot.out) + "/"))
        assert not list(pilot.out.glob("**/*.tmp")), "nothing half written is left"
        for task in ended:
            assert starts(pilot.out)[task] == started[task], f"{task} had ended and was repeated"
        ended, started = set(manifest_of(pilot.out)["tasks"]), starts(pilot.out)
        size = int(size * 1.4)
    print(f"full {len(named)} times, at: {', '.join(named)}; {size} KiB in the end")
    assert done.returncode == 0, done.stderr
    sheet = json.loads(done.stdout)
    assert sheet["verdict"] == "pass" and sheet["passed_gates"] == [0, 1]
    assert json.loads((pilot.out / "sheet.json").read_text()) == sheet and (pilot.out / "report.html").exists()
    assert len(named) > 4 and len(set(named)) > 3, named
    for name, file in manifest_of(pilot.out)["files"].items():
        assert (pilot.out / name).stat().st_size >= file["bytes"], name


@pytest.mark.slow
def test_the_last_file_of_a_run_is_no_exception(pilot, disk):
    """Everything is judged, and only the sheet or the report has no room: the same command writes it."""
    pilot.out = disk.folder / "run"
    pilot.environment["OMP_NUM_THREADS"] = "1"
    disk.resize(8000)
    command = pilot.run_arguments(SMALL, *QUICK, "--gate", "0")
    filler = disk.folder / "filler"
    code, _, errors = pilot.run(SMALL, *QUICK, "--gate", "0")
    assert code == 0, errors
    manifest = manifest_of(pilot.out)
    (pilot.out / "manifest.json").write_text(json.dumps({**manifest, "finished": False}))
    sizes = {name: (pilot.out / name).stat().st_size for name in ("sheet.json", "report.html")}
    for name in sizes:
        (pilot.out / name).unlink()
    assert sizes["report.html"] > 16_000
    filler.write_bytes(b"x" * (disk.free() - sizes["sheet.json"] - 8192))
    done = pilot.call(*command)
    assert done.returncode == 3 and "report.html: No space left" in done.stderr, done.stderr
    assert manifest_of(pilot.out)["finished"] is False
    filler.unlink()
    done = pilot.call(*command)
    assert done.returncode == 0 and (pilot.out / "report.html").exists() and manifest_of(pilot.out)["finished"] is True
    assert starts(pilot.out) == {"reference/environment": 1, "candidate/environment": 1}


def test_a_file_size_limit_is_like_a_full_disk(pilot):
    """RLIMIT_FSIZE also sends a signal, which by default ends the process."""
    command = [str(BINARY), *map(str, pilot.run_arguments(SMALL, "--gate", "0"))]
    done = subprocess.run(
        ["bash", "-c", 'ulimit -f 16; exec "$@"', "bash", *command],  # 16 KiB
        capture_output=True, text=True, timeout=120, env=pilot.environment,
    )  # fmt: skip
    assert done.returncode == 3 and "worker.py: File too large" in done.stderr, done.stderr
    code, _, errors = pilot.run(SMALL, "--gate", "0")
    assert code == 0, errors


def test_a_worker_whose_log_has_no_room_either_says_it_by_its_exit_code():
    code = "import sys, worker; sys.exit(worker.say_no_room(worker.CannotWrite('/full/file', OSError(28, ''))))"
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "python" / "tpupilot"), "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
    command = [sys.executable, "-u", "-c", code]
    assert "cannot write /full/file" in subprocess.run(command, env=environment, capture_output=True, text=True).stderr
    with open("/dev/full", "w") as full:
        assert subprocess.run(command, env=environment, stderr=full).returncode == 3


@pytest.mark.parametrize("command", [["checks"], ["keys", "--json"], ["ops", "--json"]])
def test_a_result_that_cannot_be_written_is_an_error(pilot, command):
    with open("/dev/full", "w") as full:
        done = subprocess.run([BINARY, *command], stdout=full, stderr=subprocess.PIPE, text=True, env=pilot.environment)
    assert done.returncode == 3 and "[stdout]" in done.stderr, done.stderr


def test_a_reader_that_leaves_early_is_no_error(pilot):
    done = subprocess.run(
        ["bash", "-c", f"{BINARY} ops | head -n 1; exit ${{PIPESTATUS[0]}}"], capture_output=True, env=pilot.environment
    )
    assert done.returncode == 0 and not done.stderr


SAVE = """
import sys, torch
sys.path.insert(0, {folder!r})
import worker
job = worker.Job({job!r})
objects = worker.Objects(job, worker.Device("cpu"), 0)
path = {path!r}
print(worker.save_checkpoint(objects, path, 8))
print("SAVED", flush=True)
sys.stdin.readline()
with torch.no_grad():
    objects.state["model"][0].weight.add_(1)
try:
    worker.save_checkpoint(objects, path, 8)
except worker.CannotWrite as error:
    print("REFUSED", error)
try:
    worker.save_torch_file(objects, path + ".pt", {{"kind": None}})
except worker.CannotWrite as error:
    print("REFUSED", error)
fresh = worker.Objects(job, worker.Device("cpu"), 1)
worker.load_checkpoint(fresh, path)
print("EQUAL", fresh.state_sha256(8)["optimizer"] == objects.state_sha256(8)["optimizer"],
      (objects.state["model"][0].weight - fresh.state["model"][0].weight).mean().item())
sys.stdin.readline()
worker.save_checkpoint(objects, path, 8)
worker.save_torch_file(objects, path + ".pt", {{"kind": None}})
worker.load_checkpoint(fresh, path)
print("AGAIN", fresh.state_sha256(8) == objects.state_sha256(8))
"""


@pytest.mark.slow
def test_a_checkpoint_that_has_no_room_leaves_the_former_one_whole(disk):
    disk.resize(200)
    path = disk.folder / "checkpoint"
    code = SAVE.format(folder=str(ROOT / "python" / "tpupilot"), job=str(SMALL / "job.py"), path=str(path))
    worker = subprocess.Popen(
        [sys.executable, "-u", "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        env={**os.environ, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"},
    )  # fmt: skip
    while "SAVED" not in worker.stdout.readline():
        assert worker.poll() is None
    before = {name: (path / name).read_bytes() for name in os.listdir(path)}
    filler = disk.folder / "filler"
    filler.write_bytes(b"x" * (disk.free() - 4096))
    worker.stdin.write("\n")
    worker.stdin.flush()
    lines = [worker.stdout.readline()]
    while lines[-1] and not lines[-1].startswith("EQUAL"):
        lines.append(worker.stdout.readline())
    assert lines[0].startswith("REFUSED cannot write") and "checkpoint" in lines[0] and "No space left" in lines[0], (
        lines
    )
    assert (
        lines[1].startswith("REFUSED cannot write") and "checkpoint.pt" in lines[1] and "No space left" in lines[1]
    ), lines
    assert lines[2].startswith("EQUAL True 1.0"), lines
    assert {name: (path / name).read_bytes() for name in os.listdir(path)} == before
    assert sorted(os.listdir(disk.folder)) == ["checkpoint", "filler"], "what was half written is gone"
    filler.unlink()
    worker.stdin.write("\n")
    worker.stdin.flush()
    out, _ = worker.communicate(timeout=60)
    assert "AGAIN True" in out
    assert sorted(os.listdir(disk.folder)) == ["checkpoint", "checkpoint.pt"]


TRAIN = """
import torch, warnings
torch.manual_seed(0)
model = torch.nn.Linear(12, 4).to("tpu")
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(3):
    optimizer.zero_grad()
    loss = model(torch.ones(5, 12, device="tpu")).square().mean()
    loss.backward()
    optimizer.step()
print(loss.item(), torch.tpu.counters()["cache_write_failures"])
"""


@pytest.mark.slow
def test_an_executable_cache_on_a_full_disk_just_does_not_cache(disk):
    def train(folder):
        environment = {**os.environ, "TPUPILOT_CACHE_DIR": str(folder)}
        environment.pop("TORCH_DEVICE_BACKEND_AUTOLOAD", None)
        done = subprocess.run([sys.executable, "-c", TRAIN], capture_output=True, text=True, env=environment)
        assert done.returncode == 0, done.stderr
        loss, failures = done.stdout.split()
        return float(loss), int(failures), [line for line in done.stderr.splitlines() if line.startswith("tpupilot: ")]

    disk.resize(4000)
    right, failures, warnings = train(disk.folder / "roomy")
    assert (failures, warnings) == (0, [])
    (disk.folder / "filler").write_bytes(b"x" * (disk.free() - 20_000))
    loss, failures, warnings = train(disk.folder / "full")
    assert loss == right and failures == 1 and len(warnings) == 1, warnings
    assert str(disk.folder / "full") in warnings[0] and "No space left on device" in warnings[0]
    assert "TPUPILOT_CACHE_DIR" in warnings[0]
    assert train(disk.folder / "full")[0] == right, "what was stored before the disk was full is whole"
