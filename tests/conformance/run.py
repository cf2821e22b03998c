"""The conformance runner: PyTorch's databases of ops, optimizers and modules on the device, against the CPU.

    python tests/conformance/run.py parity  [--op NAME|glob] [--dtype ...] [--facet ...] [--samples N] [--sample I]
    python tests/conformance/run.py grad    the same with f64 gradcheck and gradgradcheck
    python tests/conformance/run.py support runs the cases, and prints entry x dtype x facet
    python tests/conformance/run.py perf    time of rows, as a ratio to CPU torch

Without --op, --dtype and --facet everything runs; --when test takes what ./test runs, --every N each N-th entry. An outcome that is not
the one of expectations.tsv is printed with the command that repeats it, and the exit code is 1. --update writes the table.
"""

import argparse
import collections
import os
import pathlib
import sys
import warnings

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from conformance import plan, report, runner, table, workers  # noqa: E402

GRADIENT_FACETS = ("gradcheck", "gradgradcheck")


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("mode", choices=["parity", "grad", "support", "perf"])
    parser.add_argument(
        "--op", nargs="+", default=[], help="entries by name or pattern: add, 'linalg.*', 'optim.*', 'nn.*'"
    )
    parser.add_argument("--dtype", nargs="+", default=[], help=f"of {', '.join(plan.ALL)}; - is of none")
    parser.add_argument("--facet", nargs="+", default=[], help=f"of {', '.join(plan.facet_names())}")
    parser.add_argument("--when", choices=["test", "full"], default="full", help="the part that ./test runs, or all")
    parser.add_argument("--every", type=int, default=1, help="each N-th entry only")
    parser.add_argument(
        "--samples", type=int, help="of each entry, spread over its list (the table is of the usual number)"
    )
    parser.add_argument("--sample", type=int, help="only the sample of this index, in this process")
    parser.add_argument("--jobs", "-j", type=int, default=2, help="processes")
    parser.add_argument("--plugin", help="another PJRT plugin, by the name of its package; it has a table of its own")
    parser.add_argument("--junit", type=pathlib.Path, help="write results as JUnit's XML")
    parser.add_argument("--update", action="store_true", help="write these cases' outcomes to expectations.tsv")
    options = parser.parse_args()
    if options.plugin:
        os.environ["TPUPILOT_PLUGIN"] = options.plugin  # read when the device is first used, here and in the workers
    for given, known in ((options.dtype, (*plan.ALL, "-")), (options.facet, plan.facet_names())):
        for word in given:
            if word not in known:
                parser.error(f"{word!r} is not one of {', '.join(known)}")
    return options


def chosen_cases(options):
    facets = options.facet or (GRADIENT_FACETS if options.mode == "grad" else ())
    cases = plan.cases(options.op, options.dtype, facets, options.when)
    names = list(dict.fromkeys(c.entry for c in cases))[:: options.every]
    return [c for c in cases if c.entry in set(names)]


def _run(job):
    return runner.outcome(*job)


def _lost(exit_code):
    how = f"signal {-exit_code}" if exit_code and exit_code < 0 else f"exit code {exit_code}"
    return runner.Outcome("wrong", f"the process ended ({how})")


def outcomes(cases, options, rules):
    """(case, outcome, seconds), as they come."""
    harmful = {case: table.not_run(case, rules) for case in cases}
    for case, reason in harmful.items():
        if reason:
            yield case, runner.Outcome("not-applicable", reason), 0.0
    cases = [case for case in cases if not harmful[case]]
    if options.sample is not None:
        for case in cases:
            yield case, runner.outcome(case, None, options.sample), 0.0
        return
    groups = {}
    for case in cases:
        groups.setdefault(case.entry, []).append((case, options.samples, None))
    for job, outcome, seconds in workers.results(groups.values(), _run, _lost, min(options.jobs, len(groups))):
        yield job[0], outcome, seconds


def shown(case, outcome, complaint, plugin):
    if complaint:
        print(f"{' '.join(case)}: {complaint}\n    {report.reproduction(case, outcome, plugin)}", flush=True)


def main():
    options = arguments()
    warnings.simplefilter("ignore")
    if options.mode == "perf":
        from conformance import perf

        return perf.main(options.op)
    cases = chosen_cases(options)
    if not cases:
        print("no case has these names, dtypes and facets")
        return 2
    expected, rules, known = table.read(options.plugin), table.exclusions(), set(plan.cases())
    found, done, seconds_of = {}, [], collections.defaultdict(float)
    for case, outcome, seconds in outcomes(cases, options, rules):
        found[case] = table.classified(case, outcome, rules)
        complaint = None if options.update else table.complaint(case, outcome, expected, rules)
        if options.sample is not None:  # a reproduction shows what there is, whatever the table expects
            complaint = None if outcome.kind == "pass" else f"{outcome.kind}: {outcome.reason}"
        shown(case, outcome, complaint, options.plugin)
        done.append((case, seconds, complaint))
        key = plan.database_name(case), case.facet, case.dtype
        seconds_of[key] += seconds
        if options.update and len(found) % 200 == 0:
            table.update(found, known, options.plugin)
    if options.mode == "support":
        report.print_matrix(found)
    report.print_shares(found, seconds_of)
    if options.junit:
        report.junit(options.junit, "-".join(["conformance", *filter(None, [options.plugin])]), done)
    if options.update:
        table.update(found, known, options.plugin)
    failed = sum(complaint is not None for _, _, complaint in done)
    print(f"{len(done) - failed} as expected, {failed} not")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
