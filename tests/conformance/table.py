"""expectations.tsv: the cases that do not pass, each with its kind and reason. What the table does not name must pass.

Columns: entry, dtype, facet, kind, reason. Kinds: "unsupported" (NotImplementedError; the reason is the overload), "wrong" (the reason says
what differs), "not-applicable" (a reason that begins with "cpu:" says that the CPU has nothing to compare with; another one comes
from exclusions.tsv, which people write). The table is strict: a case that passes although it has a line fails the run. It has lines of
what has been run: as of now the cases of ./test. Those of ./test full only are not in it yet.

The table is of the default plugin. expectations.PLUGIN.tsv has the lines in which another CPU plugin differs; its kind may be "pass".
"""

import csv
import fnmatch
import pathlib
import re

FOLDER = pathlib.Path(__file__).parent
TABLE = FOLDER / "expectations.tsv"
EXCLUSIONS = FOLDER / "exclusions.tsv"
NOT_RUN = (
    "not run"  # in place of a text: torch's own CPU kernel may end its process, or leave it damaged for a later case
)
HEADER = "# entry\tdtype\tfacet\tkind\treason. Written by update.py; table.py says what it means.\n"


def _rows(path):
    with path.open() as f:
        lines = (line for line in f if line.strip() and not line.startswith("#"))
        return list(csv.reader(lines, delimiter="\t", quoting=csv.QUOTE_NONE))


def _read(path):
    return {tuple(row[:3]): (row[3], row[4]) for row in _rows(path)} if path.exists() else {}


def path_of(plugin):
    return TABLE.with_suffix(f".{plugin}.tsv") if plugin else TABLE


def read(plugin=None):
    return _read(TABLE) | (_read(path_of(plugin)) if plugin else {})


def update(found, known, plugin=None):
    """Writes what was found of some cases, {case: (kind, reason)}; other lines stay as long as their case is `known`."""
    base = _read(TABLE) if plugin else {}
    kept = {case: value for case, value in _read(path_of(plugin)).items() if case in known and case not in found}
    default = ("pass", "")
    new = {case: value for case, value in found.items() if value[0] != base.get(case, default)[0]}
    lines = ["\t".join((*case, *value)) + "\n" for case, value in sorted((kept | new).items())]
    path_of(plugin).write_text(HEADER + "".join(lines))


def exclusions():
    return _rows(EXCLUSIONS)


def _rules_of(case, rules):
    """(text, reason) of the exclusions that name this case."""
    for *patterns, text, reason in rules:
        if all(fnmatch.fnmatchcase(a, b) for a, b in zip(case, patterns, strict=True)):
            yield text, reason


def not_run(case, rules):
    """Why a case must not even be tried, or None."""
    return next((reason for text, reason in _rules_of(case, rules) if text == NOT_RUN), None)


def classified(case, outcome, rules):
    """(kind, reason) of a case that does not pass, for the table."""
    if outcome.kind in ("unsupported", "wrong"):
        for text, reason in _rules_of(case, rules):
            if re.search(text, outcome.reason):
                return "not-applicable", reason
    return outcome.kind, outcome.reason


def complaint(case, outcome, expected, rules):
    """What is not as the table says, or None."""
    kind, reason = expected.get(tuple(case), ("pass", ""))
    now = classified(case, outcome, rules)
    if now[0] == kind:
        return None
    if outcome.kind == "pass":
        return f"passes now; the table says {kind}: {reason}"
    return f"{now[0]}: {now[1]}" + (f" (the table says {kind}: {reason})" if kind != "pass" else "")
