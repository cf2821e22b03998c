"""What a run prints: unexpected outcomes with the command that repeats them, shares, the matrix, and JUnit's XML."""

import collections
import xml.etree.ElementTree as ET

from conformance import plan


def reproduction(case, outcome, plugin=None):
    plugin = f" --plugin {plugin}" if plugin else ""
    dtype = "" if case.dtype == "-" else f" --dtype {case.dtype}"
    sample = f" --sample {outcome.sample}" if outcome.sample >= 0 else ""
    return f"python tests/conformance/run.py parity --op {case.entry}{dtype} --facet {case.facet}{sample}{plugin}"


def shares(found):
    """{(database, facet, dtype): {kind: count}} of {case: (kind, reason)}; what the CPU has nothing for counts as "nothing"."""
    counts = collections.defaultdict(collections.Counter)
    for case, (kind, reason) in found.items():
        key = plan.database_name(case), case.facet, case.dtype
        counts[key]["nothing" if reason.startswith("cpu:") else kind] += 1
    return dict(sorted(counts.items(), key=lambda item: plan.order(*item[0])))


def share(count):
    """(passed, of, "98.2 %") of one of shares' counters."""
    run = count.total() - count["nothing"]
    return count["pass"], run, f"{100 * count['pass'] / run:.1f} %" if run else "-"


def print_table(head, rows):
    rows = [tuple(map(str, row)) for row in (head, *rows)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def junit(path, suite, done):
    """`done`: (case, seconds, complaint or None)."""
    failed = sum(complaint is not None for _, _, complaint in done)
    seconds = sum(t for _, t, _ in done)
    root = ET.Element("testsuite", name=suite, tests=str(len(done)), failures=str(failed), time=f"{seconds:.2f}")
    for case, t, complaint in done:
        node = ET.SubElement(root, "testcase", classname=suite, name="-".join(case), time=f"{t:.3f}")
        if complaint is not None:
            ET.SubElement(node, "failure", message=complaint)
    ET.ElementTree(root).write(path)


def print_shares(found, seconds):
    head = (
        "database",
        "facet",
        "dtype",
        "passed",
        "of",
        "share",
        "unsupported",
        "wrong",
        "left out",
        "nothing to compare",
    )
    rows = [
        (*key, *share(n), n["unsupported"], n["wrong"], n["not-applicable"], n["nothing"], f"{seconds[key]:.0f}")
        for key, n in shares(found).items()
    ]
    print_table((*head, "CPU seconds"), rows)


def print_matrix(found):
    """One line an entry: each facet with the dtypes that pass, then the ones that do not with their kind."""
    entries = collections.defaultdict(lambda: collections.defaultdict(list))
    for case, (kind, reason) in found.items():
        word = "nothing" if reason.startswith("cpu:") else kind
        entries[case.entry][case.facet].append(case.dtype if kind == "pass" else f"{case.dtype}={word}")
    rows = [(entry, facet, " ".join(words)) for entry, facets in entries.items() for facet, words in facets.items()]
    print_table(("entry", "facet", "dtypes"), rows)
