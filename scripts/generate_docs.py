"""Writes the generated pages of docs/: the support matrix and the table of checks. --check only compares, and fails on a difference."""

import collections
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
TPUPILOT = ROOT / "build/bin/tpupilot"
MATRIX_INTRO = """# Support matrix

PyTorch's own databases of ops, optimizers and modules on the device, the CPU being the reference. Made from
`tests/conformance/expectations.tsv`, which `./test` holds against results: only the cases that it runs are counted here (all entries in
some facets and dtypes, each second to twelfth in others; `tests/conformance/plan.py`). `./test full` runs the others too.

## Shares

Passed of those that run on the CPU, of `op_db` unless the facet names another database. A case that is left out for good counts as one
that does not pass. Where the CPU accepts nothing (no sample has a zero-sized form, say), there is no case.

"""
HOLES_INTRO = """
## Entries with holes

*unsupported* raises NotImplementedError with the overload's name; *wrong* differs from the CPU, and says how; *left out* says why. All
other entries pass in every facet and dtype that `./test` runs of them.

| entry | hole | facets and dtypes | reason |
|---|---|---|---|
"""
OVERLOADS_INTRO = """
## Overloads

Made by `tpupilot ops --markdown`: the ATen overloads that the backend has a row for.
"""


def output_of(*arguments):
    return subprocess.run([str(TPUPILOT), *arguments], capture_output=True, text=True, check=True).stdout


def tested_cases():
    """{case: (kind, reason)} of every case that ./test runs of the conformance runner, by its table."""
    sys.path.insert(0, str(ROOT / "tests"))
    from conformance import plan, table

    expected = table.read()
    return {case: expected.get(tuple(case), ("pass", "")) for case in plan.cases(when="test")}


def share_table(found):
    from conformance import plan, report

    shares = report.shares(found)
    dtypes = [d for d in (*plan.ALL, "-") if any(key[2] == d for key in shares)]
    lines = [
        f"| facet | {' | '.join(d if d != '-' else 'no dtype' for d in dtypes)} |",
        "|---" * (len(dtypes) + 1) + "|",
    ]
    for database, facet in dict.fromkeys(key[:2] for key in shares):
        counts = [shares.get((database, facet, d)) for d in dtypes]
        cells = ["{} of {}: {}".format(*report.share(n)) if n else "" for n in counts]
        lines.append(f"| {facet}{'' if database == 'op_db' else f' ({database})'} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def hole_table(found):
    """One line for an entry, kind and reason."""
    holes = collections.defaultdict(lambda: collections.defaultdict(list))
    for case, (kind, reason) in found.items():
        if kind != "pass" and not reason.startswith("cpu:"):
            holes[case.entry, kind, reason][case.facet].append(case.dtype)
    lines = []
    for (entry, kind, reason), facets in sorted(holes.items()):
        where = "; ".join(
            f"{facet} {' '.join(d for d in dtypes if d != '-')}".rstrip() for facet, dtypes in facets.items()
        )
        word = "left out" if kind == "not-applicable" else kind
        lines.append(f"| {entry} | {word} | {where} | {reason.replace('|', chr(92) + '|')} |\n")
    return "".join(lines)


def support_matrix():
    found = tested_cases()
    overloads = output_of("ops", "--markdown").partition("\n|")[1:]
    return MATRIX_INTRO + share_table(found) + HOLES_INTRO + hole_table(found) + OVERLOADS_INTRO + "".join(overloads)


def pages():
    return {
        ROOT / "docs/checks.md": output_of("checks", "--markdown"),
        ROOT / "docs/pilot-file.md": output_of("keys", "--markdown"),
        ROOT / "docs/support-matrix.md": support_matrix(),
    }


def main():
    stale = []
    for path, text in pages().items():
        if path.exists() and path.read_text() == text:
            continue
        stale.append(path.relative_to(ROOT))
        if "--check" not in sys.argv:
            path.write_text(text)
    for path in stale:
        print(
            f"{path} "
            + ("is not up to date: run python scripts/generate_docs.py" if "--check" in sys.argv else "written")
        )
    return 1 if stale and "--check" in sys.argv else 0


if __name__ == "__main__":
    sys.exit(main())
