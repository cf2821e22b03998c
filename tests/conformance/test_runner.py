"""The conformance runner itself: it sees what is wrong, its samples are spread, and its table names what exists."""

import os
import re
import signal
import sys
import time
import types

import pytest
import torch

from conformance import compare, database, decompositions, facets, plan, report, run, runner, table, trials, workers
from conformance.devices import LAYOUTS, to_device


def test_the_tables_name_only_cases_that_exist():
    known = set(plan.cases())
    for path in table.FOLDER.glob("expectations*.tsv"):
        plugin = path.name.removeprefix("expectations.").removesuffix("tsv").strip(".") or None
        assert set(table.read(plugin)) <= known
    for *_, text, reason in table.exclusions():
        assert re.compile(text) and reason.partition(": ")[2]


def test_a_kernel_that_harms_its_process_is_never_run():
    """torch.lu_unpack of a (0, 3, 5) tensor and (3, 3) pivots ends with signal 11 on the CPU, or harms a later case."""
    rules = table.exclusions()
    (case,) = plan.cases(["lu_unpack"], ["float32"], ["zero-size"])
    ((found, outcome, _),) = run.outcomes([case], types.SimpleNamespace(sample=None, samples=None, jobs=1), rules)
    assert found == case and outcome.kind == "not-applicable" and outcome.reason.startswith("cpu: ")
    assert table.complaint(case, outcome, table.read(), rules) is None
    (other,) = plan.cases(["lu_unpack"], ["float32"], ["forward"])
    assert table.not_run(other, rules) is None


def test_test_is_a_part_of_full():
    assert set(plan.cases(when="test")) < set(plan.cases())


@pytest.mark.parametrize("name", plan.facet_names())
def test_every_facet_has_cases_in_test(name):
    assert plan.cases(facets=[name], when="test")


def test_samples_are_spread():
    assert [i for i, _ in database.spread(range(100), 6)] == [0, 20, 40, 59, 79, 99]
    assert [i for i, _ in database.spread(range(3), 6)] == [0, 1, 2]


@pytest.mark.parametrize("samples", [1, 2, 4, 6, 12])
def test_every_form_and_every_sample_is_met(samples):
    met = runner.pieces(range(samples), ("a", "b", "c", "d"), samples)
    assert {form for _, _, form in met} == {("a",), ("b",), ("c",), ("d",)}
    assert {i for i, _, _ in met} == set(range(samples))


@pytest.mark.parametrize("name", LAYOUTS)
@pytest.mark.parametrize("shape", [(), (0, 2), (3,), (2, 3, 4)])
def test_a_layout_keeps_the_shape_and_the_device_has_it_too(name, shape):
    laid = LAYOUTS[name](torch.rand(shape))
    moved = to_device(laid)
    assert laid.shape == shape and moved.stride() == laid.stride()
    assert moved.storage_offset() == laid.storage_offset() and torch.equal(moved.cpu(), laid)


# ---- a difference is seen ----
BASE = torch.rand(40, 3)


@pytest.mark.parametrize(
    ("ours", "text"),
    [
        ([BASE], None),
        ([], "0 results instead of 1"),
        ([BASE.double()], "dtype torch.float64"),
        ([BASE[:5]], "shape (5, 3)"),
        ([BASE.t().contiguous().t()], "strides (1, 40)"),
    ],
)
def test_other_form(ours, text):
    found = compare.other_form(ours, [BASE])
    assert (text is None and found is None) or text in found


def test_other_values_and_the_f64_rule():
    exact = torch.rand(50, dtype=torch.float64)
    theirs = (exact + 1e-3).float()
    assert compare.other_values([theirs + 1e-3], [theirs], lambda: [], torch.float32)
    assert compare.other_values([exact.float() + 1.5e-3], [theirs], lambda: [exact], torch.float32) is None
    assert compare.other_values([exact.float() + 2.5e-3], [theirs], lambda: [exact], torch.float32)
    assert compare.other_values([torch.tensor([1])], [torch.tensor([2])], lambda: [], torch.int64)
    nan = torch.full((50,), float("nan"))
    assert compare.other_values([nan], [theirs], lambda: [exact], torch.float32)


@pytest.mark.parametrize("change", [lambda x: x + 0.5, lambda x: x * 3 - 1, torch.zeros_like])
def test_another_distribution_is_seen(change):
    torch.manual_seed(0)
    draws = [torch.rand(200), torch.rand(200)]
    assert compare.other_distribution([draws[0]], [draws[1]]) is None
    assert compare.other_distribution([change(draws[0])], [draws[1]])


@pytest.mark.parametrize("name", sorted(decompositions.CANONICAL))
def test_a_decomposition_is_compared_up_to_signs(name):
    entry = database.ENTRIES[name]
    a = torch.rand(4, 3 if "svd" in name or "qr" in name else 4, dtype=torch.float64)
    results = entry(a + a.mT if name == "linalg.eigh" else a)
    results = [results] if isinstance(results, torch.Tensor) else list(results)
    want = decompositions.canonical(entry, results)
    where = {"linalg.eigvals": None, "linalg.eigh": [1], "linalg.eig": [1]}.get(name, [0, -1])
    turned = [r.clone() for r in results]
    for i in where or []:
        rows = name in ("linalg.svd", "qr", "linalg.qr") and i == -1
        turned[i][(0,) if rows else (slice(None), 0)] *= -1
    assert compare.other_values(decompositions.canonical(entry, turned), want, lambda: [], torch.float64) is None
    turned[0] = turned[0] * 1.01
    assert compare.other_values(decompositions.canonical(entry, turned), want, lambda: [], torch.float64)


def test_errors_are_compared_by_type_and_text():
    assert trials.other_error(ValueError("on tpu:0"), ValueError("on cpu")) is None
    assert "instead of ValueError" in trials.other_error(RuntimeError("a"), ValueError("a"))
    assert "'b'" in trials.other_error(ValueError("a"), ValueError("b"))
    assert "raises nothing" in trials.other_error(None, ValueError("b"))
    with pytest.raises(RuntimeError, match="ours"):
        trials.other_error(RuntimeError("ours"), None)


def test_gaps_are_what_a_write_must_leave():
    x = LAYOUTS["strided"](torch.rand(3))
    assert trials.gaps(x).isnan().all() and trials.gaps(x).shape == (3,)
    assert not trials.gaps(torch.rand(3)).numel()


class Wrong:
    """An entry whose device's values are not the CPU's, as runner.decided sees it."""

    name, variant_test_name, op = "exp", "", None

    def __call__(self, x):
        return x.exp() + (x.device.type != "cpu")


def test_a_wrong_entry_is_wrong_and_its_command_repeats_it():
    sample = database.samples_of(database.ENTRIES["exp"], torch.float32)[0]
    run = [(7, sample, ())]
    outcome = runner.decided(run, lambda item, form: facets.forward(Wrong(), torch.float32, item))
    assert (outcome.kind, outcome.sample) == ("wrong", 7)
    line = report.reproduction(plan.Case("exp", "float32", "forward"), outcome)
    assert line == "python tests/conformance/run.py parity --op exp --dtype float32 --facet forward --sample 7"


def test_a_second_compile_is_seen(monkeypatch):
    sizes = iter(range(1000, 1010))

    class Grows(Wrong):
        def __call__(self, x):
            return x.new_zeros(next(sizes)) if x.device.type != "cpu" else x

    sample = database.samples_of(database.ENTRIES["exp"], torch.float32)[0]
    monkeypatch.setenv("TPUPILOT_CACHE_DIR", os.devnull)
    assert "compiles" in (facets.again(Grows(), torch.float32, sample) or "nothing compiles")


def test_the_table_is_strict():
    case, rules = plan.Case("add", "float32", "forward"), [["add", "*", "*", "sparse", "sparse: none here"]]
    passed, wrong = runner.Outcome("pass"), runner.Outcome("wrong", "result 0")
    assert table.complaint(case, passed, {}, rules) is None
    assert "passes now" in table.complaint(case, passed, {case: ("wrong", "x")}, rules)
    assert table.complaint(case, wrong, {case: ("wrong", "x")}, rules) is None
    assert table.complaint(case, wrong, {}, rules) and table.complaint(case, wrong, {case: ("unsupported", "")}, rules)
    assert table.classified(case, runner.Outcome("unsupported", "aten::to_sparse"), rules)[0] == "not-applicable"


def _job(what):
    if what == "die":
        os.kill(os.getpid(), signal.SIGSEGV)
    if what == "hang":
        time.sleep(1000)
    return what


def test_a_process_that_dies_or_hangs_is_a_result(monkeypatch):
    monkeypatch.setattr(workers, "LIMIT", 3)
    groups = [["a", "die", "b"], ["hang", "c"]]
    found = {job: result for job, result, _ in workers.results(groups, _job, lambda code: f"lost {code}", 2)}
    assert found == {"a": "a", "die": "lost -11", "b": "b", "hang": "lost -9", "c": "c"}


def test_the_command_line(capsys, monkeypatch):
    from conformance import run

    monkeypatch.setattr(sys, "argv", "run.py parity --op exp --dtype float32 --facet forward --sample 0".split())
    assert run.main() == 0
    assert "100.0 %" in capsys.readouterr().out
    monkeypatch.setattr(sys, "argv", "run.py parity --op exp --facet forwards".split())
    with pytest.raises(SystemExit):
        run.main()
