"""The one-file worker: what it records, on the CPU and on the device. It judges nothing; that is C++'s."""

import ast
import collections
import dataclasses
import gc
import json
import math
import pathlib
import re
import subprocess
import sys
import types
import typing

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


@pytest.mark.parametrize("collects", [True, False])
def test_importing_leaves_the_garbage_collector_as_the_job_set_it(collects):
    worker = import_worker()
    try:
        gc.enable() if collects else gc.disable()
        with pytest.raises(ImportError), worker.importing():
            assert not gc.isenabled()
            raise ImportError
        assert gc.isenabled() == collects
    finally:
        gc.unfreeze()
        gc.enable()


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


# ---- jobs without an optimizer, values in nests, a format of the job's own ----
JOBS = ROOT / "tests/jobs"


def import_worker():
    if str(WORKER.parent) not in sys.path:
        sys.path.insert(0, str(WORKER.parent))
    import worker

    return worker


def with_text(tmp_path, job, old, new):
    text = (JOBS / job / "job.py").read_text()
    assert text.count(old) == 1
    (tmp_path / "job.py").write_text(text.replace(old, new))
    return Side(tmp_path / "side", job=tmp_path / "job.py")


def test_an_inference_job_records_its_outputs_and_nothing_of_training(tmp_path):
    side = Side(tmp_path / "side", job=JOBS / "inference/job.py")
    side.run(run("a", 2, record_steps=[0], hash_state="all"), run("d", 1, record_steps=[0], dtype="float64"))
    forward = side.tensors("a", "forward", 0)
    assert forward.keys() == side.tensors("d", "forward", 0).keys() and "loss" not in forward
    assert forward["forward/answer/count"].item() == 3 and forward["forward/pair/1/0"].item() == 0.25
    assert side.tensors("d", "forward", 0)["forward/answer/logits"].dtype == torch.float64
    first, second = side.events("a", "step")
    assert first["loss"] is None and not first["updated"] and first["outputs_sha256"] != second["outputs_sha256"]
    assert first["state_sha256"]["model"] == second["state_sha256"]["model"]
    assert not [e for e in side.events("a", "tensors") if e["what"] == "gradients"]


@pytest.mark.parametrize(
    ("old", "new", "where", "text"),
    [
        ('return {"answer"', 'return {} and {"answer"', "forward", "without a tensor or a number"),
        ("[True, None]", "[True, object()]", "batch", "'mask/keep/1/1' is a builtins.object"),
    ],
)
def test_inference_jobs_that_do_not_fit(tmp_path, old, new, where, text):
    side = with_text(tmp_path, "inference", old, new)
    side.run(run("a", 1), expect=2)
    (error,) = side.events("a", "error")
    assert error["where"] == where and text in error["message"]


@pytest.mark.parametrize(
    ("functions", "text"),
    [
        ("model batch predict", "an inference job has forward(model, batch) instead"),
        ("model forward", "no function batch()"),
        ("model batch forward restore", "restore() but no checkpoint()"),
        ("model batch forward checkpoint", "checkpoint() but no restore()"),
    ],
)
def test_forms_that_lack_something(tmp_path, monkeypatch, functions, text):
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "job.py").write_text("".join(f"def {name}(*_): ...\n" for name in functions.split()))
    worker = import_worker()
    with pytest.raises(worker.JobError, match=re.escape(text)):
        worker.Job(tmp_path / "job.py")


def test_an_imported_checkpoint_is_no_format(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", list(sys.path))
    text = (
        "from torch.utils.checkpoint import checkpoint\ndef model(): ...\ndef batch(s): ...\ndef forward(m, b): ...\n"
    )
    (tmp_path / "job.py").write_text(text)
    job = import_worker().Job(tmp_path / "job.py")
    assert job.inference and not job.own_format


def test_a_fault_of_training_needs_an_optimizer(tmp_path):
    side = Side(tmp_path / "side", job=JOBS / "inference/job.py")
    side.run(run("a", 1, fault={"kind": "skip-update"}), expect=2)
    assert "needs an optimizer, and this job has none" in side.events("a", "error")[0]["message"]
    side.run(run("b", 1, fault={"kind": "skip-update", "without_optimizer": "scale-weight"}))
    assert side.events("b", "inputs")[0]["fault"] == "scale-weight"


def test_restore_may_return_parts_or_their_states(tmp_path):
    parts = """    parts = {"model": model()}
    parts["optimizer"] = optimizer(parts["model"])
    for name in parts:
        parts[name].load_state_dict(found.pop(name))
    found.update(parts)
    return {**found, "data"
"""
    saved = str(tmp_path / "side/checkpoints/mid")
    side = with_text(tmp_path, "own_format", '    return {**found, "data"', parts.rstrip("\n"))
    side.run(run("straight", 8, hash_state="all"), run("until", 5, save=[{"after_step": 4, "path": saved}]))
    side.run(run("resumed", 8, hash_state="all", resume_from=saved))
    straight, resumed = side.states("straight"), side.states("resumed")
    assert list(resumed) == [5, 6, 7] and all(resumed[s] == straight[s] for s in resumed)
    (tmp_path / "job.py").write_text(
        (tmp_path / "job.py").read_text().replace("return {**found", 'return {"optim": 1, **found')
    )
    side.run(run("wrong", 8, resume_from=saved), expect=2)
    assert (
        "must return a dict of what checkpoint() got: model, optimizer" in side.events("wrong", "error")[0]["message"]
    )


def test_nests_keep_their_types():
    worker = import_worker()

    @dataclasses.dataclass(frozen=True)
    class Frozen:
        tensor: torch.Tensor
        doubled: torch.Tensor = dataclasses.field(init=False)

        def __post_init__(self):
            object.__setattr__(self, "doubled", self.tensor * 2)

    class Pair(typing.NamedTuple):
        left: torch.Tensor
        right: float

    ones = torch.ones(2)
    lists = collections.defaultdict(list, a=[ones])
    nest = {"frozen": Frozen(ones), "pair": Pair(ones, 0.5), "lists": lists, "user": collections.UserDict(x=ones)}
    moved = worker.map_tensors({**nest, "size": ones.shape}, lambda t: t + 1)
    assert {k: type(v) for k, v in nest.items()} == {k: type(moved[k]) for k in nest}
    assert moved["frozen"].doubled.tolist() == [3, 3] and moved["pair"] == Pair(moved["pair"].left, 0.5)
    assert moved["lists"]["b"] == [] and moved["user"]["x"].tolist() == [2, 2] and moved["size"] == (2,)
    assert ones.tolist() == [1, 1] and nest["frozen"].doubled.tolist() == [2, 2]
    assert set(worker.tensors_in(nest)) == {"frozen/tensor", "frozen/doubled", "pair/0", "lists/a/0", "user/x"}
    outputs = worker.outputs_in({"n": 3, "f": 0.5, "b": True, "text": "no", "none": None, "huge": 2**70})
    assert {k: v.dtype for k, v in outputs.items()} == {
        "n": torch.int64, "f": torch.float32, "b": torch.bool, "huge": torch.float32,
    }  # fmt: skip


# ---- custom operators ----


def boundary_inputs(*arguments):
    return {g.label: g for g in import_worker().operator_inputs([arguments]) if g.what == "boundary"}


def test_boundary_inputs_keep_what_belongs_together():
    x, weight, labels = torch.rand(4, 6), torch.rand(6), torch.tensor([0, 3, 1, 2])
    made = boundary_inputs(x, weight, labels, 0.5)
    shapes = {label: [tuple(t.shape) for t in g.arguments[:3]] for label, g in made.items()}
    assert shapes["empty"] == [(0, 6), (6,), (0,)] and shapes["one element"] == [(1, 1), (1,), (1,)]
    assert shapes["odd size"] == [(7, 6), (6,), (7,)] and shapes["larger"][0][0] * 6 >= 4099
    assert made["one element"].arguments[2].tolist() == [0]  # points at what is there
    assert "odd last dim" not in made and "odd last dim" in boundary_inputs(x, weight)
    assert made["Inf"].arguments[0].isinf().sum() == 2 and not made["Inf"].arguments[1].isinf().any()
    assert made["largest value of the dtype"].arguments[0].max() == torch.finfo(torch.float32).max
    assert torch.equal(made["NaN"].arguments[2], labels) and made["NaN"].arguments[3] == 0.5
    assert boundary_inputs(labels)["largest value of the dtype"].arguments[0].max() == 2**63 - 1


@pytest.mark.parametrize("device", ["cpu", "tpu"])
@pytest.mark.parametrize("shape", [(), (5,), (3, 4), (2, 3, 4)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.bool])
def test_layouts_keep_values_and_change_memory(device, shape, dtype):
    worker = import_worker()
    t = (torch.arange(math.prod(shape)).reshape(shape) % 3).to(dtype)
    for layout in ("transposed", "every second", "offset"):
        there = worker.laid_out(t.to(device), layout)
        assert torch.equal(there.cpu(), t) and there.shape == t.shape
        assert there.storage_offset() == (3 if layout == "offset" else 0)
        if len(shape) > 1 or (layout == "every second" and shape):
            assert there.is_contiguous() == (layout == "offset")


def test_what_is_recorded_of_an_operator(tmp_path):
    side = with_text(tmp_path, "operators", "FAULTS = []", 'FAULTS = ["no_kernel"]')
    side.run({"task": "custom-ops", "name": "a", "float64": True})
    events = side.events("a", "operator")
    assert {e["operator"] for e in events} == {"tests::swish", "pair", "tests::no_kernel"}
    assert all(e["error"] is None and e["float64_error"] is None and e["devices"] == ["cpu"] for e in events)
    tensors, exact = (side.tensors("a", what, 0) for what in ("operators", "operators-float64"))
    assert tensors.keys() == exact.keys()
    name = "tests::swish/boundary sliced with an offset/gradient/1"
    torch.testing.assert_close(tensors[name], tensors["tests::swish/common 0/gradient/1"], rtol=0, atol=0)
    torch.testing.assert_close(tensors[name].double(), exact[name], rtol=1e-5, atol=1e-6)
    assert side.events("a", "operators")[0]["opcheck"]["tests::swish"]["test_schema"] == "passed"


def test_an_operator_that_writes_and_one_that_raises():
    worker = import_worker()
    cpu = worker.Device("cpu")
    given = worker.OperatorInput("common", "0", (torch.ones(3), torch.tensor(2.0)))
    call = worker.OperatorCall(lambda x, y: x.mul_(y), given, cpu, 0)
    assert call.error is None and set(call.tensors) == {"out/0", "written/0"} and call.tensors["written/0"][0] == 2
    assert given.arguments[0].tolist() == [1, 1, 1]

    class Once(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, gradient):
            raise KeyError("no gradient")

    call = worker.OperatorCall(lambda x, y: Once.apply(x), given, cpu, 0)
    assert call.error["type"] == "KeyError" and call.error["phase"] == "backward" and set(call.tensors) == {"out/0"}


class FakeJob:
    """A job file that is not on disk."""

    def __init__(self, **functions):
        self.module = types.SimpleNamespace(**functions)

    def has(self, name):
        return hasattr(self.module, name)


@pytest.mark.parametrize("wrong", [[], {"a": []}, {"a": (1,)}, {"a": [torch.ones(1)]}, {3: [(1,)]}])
def test_custom_ops_of_another_form(wrong):
    worker = import_worker()
    with pytest.raises(worker.JobError, match="must return"):
        worker.custom_operators(FakeJob(custom_ops=lambda: wrong), 0)
    assert worker.custom_operators(FakeJob(), 0) == {}


def test_operators_by_their_names():
    worker = import_worker()
    job = FakeJob(own=len)
    assert worker.operator_named(job, "aten::add.Tensor") is torch.ops.aten.add.Tensor
    assert worker.operator_named(job, "aten::relu") is torch.ops.aten.relu
    assert worker.operator_named(job, "torch.nn.functional.gelu") is torch.nn.functional.gelu
    assert worker.operator_named(job, "own") is len
    for name, text in (("tests::swoosh", "not registered"), ("aten::relu.no", "not registered"), ("pear", "neither")):
        with pytest.raises(worker.JobError, match=text):
            worker.operator_named(job, name)
