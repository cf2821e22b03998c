"""Writes the generated pages of docs/: the support matrix and the table of checks. --check only compares, and fails on a difference."""

import collections
import csv
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
TPUPILOT = ROOT / "build/bin/tpupilot"
EXPECTATIONS = ROOT / "tests/conformance/expectations.tsv"
TABLE_INTRO = """
## Entries of PyTorch's op database that do not pass yet

From `tests/conformance/expectations.tsv`: first three samples of each entry, the CPU is the reference. Everything else of the database passes.
*unsupported* raises NotImplementedError with the overload's name; *wrong* differs from the CPU, and says how.

| entry | float32 | float32 backward | int64 | bfloat16 |
|---|---|---|---|---|
"""
COLUMNS = [("float32", "forward"), ("float32", "backward"), ("int64", "forward"), ("bfloat16", "forward")]


def output_of(*arguments):
    return subprocess.run([str(TPUPILOT), *arguments], capture_output=True, text=True, check=True).stdout


def expectation_table():
    entries = collections.defaultdict(dict)
    with EXPECTATIONS.open() as f:
        for name, dtype, facet, kind, reason in csv.reader(
            (line for line in f if not line.startswith("#")), delimiter="\t"
        ):
            entries[name][dtype, facet] = f"{kind}: {reason}".replace("|", "\\|")
    return TABLE_INTRO + "".join(
        f"| {name} | " + " | ".join(found.get(column, "") for column in COLUMNS) + " |\n"
        for name, found in sorted(entries.items())
    )


def pages():
    return {
        ROOT / "docs/checks.md": output_of("checks", "--markdown"),
        ROOT / "docs/pilot-file.md": output_of("keys", "--markdown"),
        ROOT / "docs/support-matrix.md": output_of("ops", "--markdown") + expectation_table(),
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
