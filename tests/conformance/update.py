"""Writes expectations.tsv from a run over the whole op database: read the difference before you commit it.

Usage: python tests/conformance/update.py [name ...]     # only these entries; the other lines stay
"""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from conformance import runner, test_op_db  # noqa: E402

HEADER = "# entry\tdtype\tfacet\tkind\treason. Written by update.py; every line is a promise still to be kept.\n"


def main(names):
    table = {k: v for k, v in test_op_db.EXPECTED.items() if names and k[0] not in names}
    counts = {}
    for case in test_op_db.cases():
        entry, dtype, facet, key = case.values
        if names and key[0] not in names:
            continue
        outcome = runner.outcome(entry, dtype, facet)
        kind = outcome.partition(":")[0]
        counts[key[1:] + (kind,)] = counts.get(key[1:] + (kind,), 0) + 1
        if kind != "pass":
            table[key] = (kind, outcome.partition(": ")[2].replace("\t", " "))
    lines = ["\t".join((*key, *value)) + "\n" for key, value in sorted(table.items())]
    test_op_db.TABLE.write_text(HEADER + "".join(lines))
    for key, count in sorted(counts.items()):
        print(*key, count, sep="\t")


if __name__ == "__main__":
    main(set(sys.argv[1:]))
