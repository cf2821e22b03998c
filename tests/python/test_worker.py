"""The one-file worker: what it records, on the CPU and on the device. It judges nothing; that is C++'s."""

import ast
import json
import pathlib
import subprocess
import sys

import pytest
import torch
from safetensors.torch import load_file

ROOT = pathlib.Path(__file__).resolve().parents[2]
WORKER = ROOT / "python/tpupilot/worker.py"
SMALL = ROOT / "tests/jobs/small/job.py"


class Side:
    """One side's folder; runs tasks and reads what they left."""

    def __init__(self, folder, device="cpu", job=SMALL):
        self.folder, self.device, self.job = folder, device, job

    def run(self, *tasks, expect=0, **request):
        self.folder.mkdir(exist_ok=True)
        path = self.folder / "request.json"
        text = {
            "protocol": 1,
            "side": "candidate",
            "out": str(self.folder),
            "job": str(self.job),
            "device": self.device,
            **request,
        }
        path.write_text(json.dumps({**text, "seed": 0, "steps_per_epoch": 4, "tasks": list(tasks)}))
        done = subprocess.run(
            [sys.executable, "-u", WORKER, "--request", path], capture_output=True, text=True, cwd=self.job.parent
        )
        assert done.returncode == expect, done.stderr
        return done

    def events(self, task, kind):
        lines = map(json.loads, (self.folder / "events.jsonl").read_text().splitlines())
        return [e for e in lines if e["task"] == task and e["event"] == kind]

    def tensors(self, task, what, step):
        (event,) = [e for e in self.events(task, "tensors") if e["what"] == what and e["step"] == step]
        return load_file(self.folder / event["file"])

    def draws(self, task):
        return str(self.folder / self.events(task, "draws")[-1]["file"])

    def states(self, task):
        return {e["step"]: e["state_sha256"] for e in self.events(task, "step")}


def run(name, steps=3, **fields):
    return {"task": "run", "name": name, "steps": steps, **fields}


RECORD = {"mode": "record"}


@pytest.fixture
def side(tmp_path):
    return Side(tmp_path / "side")


def test_it_keeps_to_the_oldest_python():
    ast.parse(WORKER.read_text(), feature_version=(3, 9))


def test_a_replayed_run_is_the_recorded_one_bit_for_bit(side):
    side.run(run("a", hash_state="all", record_steps=[0, 2], draws=RECORD))
    replay = {"mode": "replay", "file": side.draws("a")}
    side.run(run("b", hash_state="all", record_steps=[0, 2], draws=replay), run("native", hash_state="all"))
    for part in ("model", "optimizer", "scheduler"):
        assert side.states("a")[2][part] == side.states("b")[2][part]
    assert side.events("b", "draws")[0]["replayed"] == 3 and side.events("b", "draws")[0]["unmatched"] == []
    a, b = (side.tensors(t, "gradients", 0) for t in "ab")
    assert a.keys() == b.keys() and all(torch.equal(a[k], b[k]) for k in a)
    assert {"loss", "output/0", "dict/logits"} == set(side.tensors("a", "forward", 0))


def test_a_draw_that_was_not_recorded_is_named(side):
    side.run(run("a", steps=1, draws=RECORD))
    side.run(run("b", steps=2, draws={"mode": "replay", "file": side.draws("a")}))
    draws = side.events("b", "draws")[0]
    assert draws["replayed"] == 1 and draws["unmatched"][0]["function"] == "dropout"


def test_a_resumed_run_has_the_straight_runs_state(side, tmp_path):
    saved = str(tmp_path / "side" / "checkpoints" / "mid")
    side.run(run("straight", 10, hash_state="all"))
    side.run(run("until", 6, save=[{"after_step": 5, "path": saved}]))
    side.run(
        run("resumed", 10, hash_state="all", resume_from=saved), {"task": "load", "name": "load", "checkpoint": saved}
    )
    straight, resumed = side.states("straight"), side.states("resumed")
    assert list(resumed) == [6, 7, 8, 9] and all(resumed[s] == straight[s] for s in resumed)
    assert side.events("load", "state")[0]["state_sha256"] == side.events("until", "checkpoint")[0]["state_sha256"]
    state = json.loads((pathlib.Path(saved) / "state.json").read_text())
    assert state["format"] == 2 and state["step"] == 6 and state["data"] == {"step": 6, "epoch": 1}


@pytest.mark.parametrize("fault, part", [("lose-optimizer-state", "optimizer"), ("lose-rng-state", "rng")])
def test_what_a_fault_loses_on_resume(side, tmp_path, fault, part):
    saved = str(tmp_path / "side" / "checkpoints" / "mid")
    side.run(run("straight", 8, hash_state="all"), run("until", 6, save=[{"after_step": 5, "path": saved}]))
    side.run(run("resumed", 8, hash_state="all", resume_from=saved, fault={"kind": fault}))
    assert side.states("resumed")[6][part] != side.states("straight")[6][part]


def test_faults_of_a_step(side):
    side.run(
        run("good", 2, record_steps=[0], draws=RECORD),
        run("drop", 1, record_steps=[0], fault={"kind": "drop-gradient", "parameter": "auto"}, draws=RECORD),
        run("skip", 2, fault={"kind": "skip-update", "step": 1}),
        run("labels", 1, fault={"kind": "swap-labels"}, draws=RECORD),
        run("scale", 1, fault={"kind": "scale-weight", "factor": 1.01}, draws=RECORD),
    )
    good, drop = side.tensors("good", "gradients", 0), side.tensors("drop", "gradients", 0)
    assert good["0.weight"].any() and not drop["0.weight"].any() and torch.equal(good["4.weight"], drop["4.weight"])
    assert [e["updated"] for e in side.events("skip", "step")] == [True, False]
    losses = {t: side.events(t, "step")[0]["loss"] for t in ("good", "labels", "scale")}
    assert losses["labels"] != losses["good"] != losses["scale"]


def test_the_float64_run_starts_from_the_same_numbers(side):
    side.run(run("a", record_steps=[0], draws=RECORD))
    side.run(run("d", record_steps=[0], dtype="float64", draws={"mode": "replay", "file": side.draws("a")}))
    a, d = side.tensors("a", "gradients", 0), side.tensors("d", "gradients", 0)
    for name in a:
        assert d[name].dtype == torch.float64
        torch.testing.assert_close(a[name].double(), d[name], rtol=1e-4, atol=1e-6)


def test_modules_in_the_order_in_which_they_end(side):
    side.run(run("t", 1, record_steps=[0], record_modules=True))
    names = side.events("t", "tensors")[0]["names"]
    modules = list(dict.fromkeys(n.split("/")[1] for n in names))
    assert modules == ["0", "1", "2", "3", "4", "(root)"]


def test_complex_tensors_and_odd_dtypes_round_trip(tmp_path):
    sys.path.insert(0, str(WORKER.parent))
    import worker

    tensors = {
        "c": torch.tensor([1 + 2j, -3j]), "b": torch.tensor([True, False]), "h": torch.arange(3, dtype=torch.bfloat16),
        "e": torch.empty(0, 3), "s": torch.tensor(2.5, dtype=torch.float64), "t": torch.arange(6).reshape(2, 3).t(),
    }  # fmt: skip
    worker.write_safetensors(tmp_path / "x.safetensors", tensors)
    back, _ = worker.read_safetensors(tmp_path / "x.safetensors")
    assert all(torch.equal(back[k], v) and back[k].dtype == v.dtype for k, v in tensors.items())
    assert load_file(tmp_path / "x.safetensors")["t"].tolist() == tensors["t"].tolist()
    with pytest.raises(FileExistsError):
        worker.write_safetensors(tmp_path / "x.safetensors", tensors)


@pytest.mark.parametrize("job, code, where, text", [
    ("no_model", 2, "import", "no function model"),
    ("syntax_error", 1, "import", ""),
    ("impure_batch", 2, "batch", "another batch"),
])  # fmt: skip
def test_jobs_that_do_not_fit(tmp_path, job, code, where, text):
    side = Side(tmp_path / "side", job=ROOT / "tests/jobs" / job / "job.py")
    side.run(run("a"), expect=code)
    (error,) = side.events("a", "error")
    assert error["where"] == where and text in error["message"]


def test_a_job_that_raises_is_shown_by_its_own_frames(tmp_path):
    side = Side(tmp_path / "side", job=ROOT / "tests/jobs/raises/job.py")
    side.run(run("a"), expect=1)
    (error,) = side.events("a", "error")
    assert error["frames"] and all(f["file"] == "job.py" for f in error["frames"])


def test_the_environment_of_the_device(tmp_path):
    side = Side(tmp_path / "side", device="tpu")
    side.run({"task": "environment", "name": "environment"})
    (e,) = side.events("environment", "environment")
    assert e["device"]["available"] and e["device"]["backend"]["vendor"] == "tpupilot"
    assert e["smoke"]["device_of_result"] == "tpu:0" and e["smoke"]["max_abs_difference"] < 1e-4
    assert len(e["device"]["backend"]["plugin_sha256"]) == 64 and e["packages"]


def test_placement_on_the_device(tmp_path):
    side = Side(tmp_path / "side", device="tpu")
    side.run(run("a", 2, trace_ops=[1]))
    (ops,) = side.events("a", "ops")
    assert ops["cpu_ops_on_device_data"] == []
    assert sum(o["count"] for o in ops["ops"] if o["device"].startswith("tpu")) > 20
    assert side.events("a", "counters")[0]["counters"]["fallbacks"] == 0


# ---- whole-step jobs ----
WHOLE = ROOT / "tests/jobs/whole/job.py"
HIDDEN_OPTIMIZER = (
    "        state[name].step()\n",
    '        torch.optim.SGD(state["head"].parameters(), lr=0.1).step()\n',
)


@pytest.mark.parametrize("device", ["cpu", "tpu"])
def test_a_whole_step_job_resumes_with_all_its_parts(device, tmp_path):
    side = Side(tmp_path / "side", device=device, job=WHOLE)
    saved = str(tmp_path / "side" / "checkpoints" / "mid")
    side.run(run("straight", 8, hash_state="all"))
    side.run(run("until", 4, save=[{"after_step": 3, "path": saved}]))
    side.run(run("resumed", 8, hash_state="all", resume_from=saved))
    straight, resumed = side.states("straight"), side.states("resumed")
    parts = {"encoder", "head", "temperature", "optimizer", "head_optimizer", "schedule", "sampler", "rng", "data"}
    assert set(straight[7]) == parts
    assert list(resumed) == [4, 5, 6, 7] and all(resumed[s] == straight[s] for s in resumed)
    assert side.events("resumed", "step")[-1]["lr"] == 0.1  # of the first optimizer
    state = json.loads((pathlib.Path(saved) / "state.json").read_text())
    assert state["data"]["iterator"] == {"given": 4}


def test_gradients_of_every_optimizer_are_recorded(tmp_path):
    side = Side(tmp_path / "side", job=WHOLE)
    side.run(
        run("a", 1, record_steps=[0], record_modules=True), run("lost", 1, fault={"kind": "skip-update", "step": 0})
    )
    gradients = side.tensors("a", "gradients", 0)
    assert set(gradients) == {"encoder/0.weight", "encoder/0.bias", "temperature", "head/weight", "head/bias"}
    assert {"loss", "dict/loss", "dict/scale", "output/encoder/0", "output/head/0"} == set(
        side.tensors("a", "forward", 0)
    )
    assert "optimizer/temperature/sum" in side.tensors("a", "state", 0)
    assert any("/encoder.1/out/" in name for name in side.tensors("a", "modules", 0))
    assert side.events("a", "step")[0]["updated"] and not side.events("lost", "step")[0]["updated"]
    assert side.events("a", "inputs")[0]["parameters"] == 6 * 8 + 8 + 8 * 3 + 3 + 1


@pytest.mark.parametrize(
    ("change", "where", "text"),
    [
        (("def step(", "def another("), "import", "has no function step()"),
        (("return Stream()", "return iter([])"), "data", "without state_dict"),
        (('return {"loss": loss, "scale": scale}', "return loss"), "step", "must return a dict of scalars"),
        (('"encoder": encoder,', '"encoder": encoder, "rng": encoder,'), "state", "keeps itself"),
        (('"encoder": encoder,', '"encoder": encoder, "other": 3,'), "state", "is a int"),
        (HIDDEN_OPTIMIZER, "step", "is not a part of state()"),
    ],
)
def test_whole_step_jobs_that_do_not_fit(tmp_path, change, where, text):
    job = tmp_path / "job.py"
    job.write_text(WHOLE.read_text().replace(*change))
    side = Side(tmp_path / "side", job=job)
    done = side.run(run("a", 1), expect=1 if change is HIDDEN_OPTIMIZER else 2)
    (error,) = side.events("a", "error")
    assert error["where"] == where and text in error["message"], done.stderr
