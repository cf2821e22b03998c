"""Every entry of the op database has the outcome that expectations.tsv says; what the table does not name must pass.

The table is data: entry, dtype, facet, kind ("unsupported" or "wrong"), reason. It is strict: a line whose entry passes fails the run
until the line goes. ``python tests/conformance/update.py`` writes it anew from a run, for a person to read and commit.
"""

import csv
import pathlib

import pytest
import torch

from conformance import runner

TABLE = pathlib.Path(__file__).with_name("expectations.tsv")
FACETS = [
    (torch.float32, "forward"),
    (torch.float32, "backward"),
    (torch.int64, "forward"),
    (torch.bfloat16, "forward"),
]


def expectations():
    with TABLE.open() as f:
        rows = csv.reader((line for line in f if not line.startswith("#")), delimiter="\t")
        return {(r[0], r[1], r[2]): (r[3], r[4]) for r in rows}


EXPECTED = expectations()


def cases():
    for dtype, facet in FACETS:
        for entry in runner.entries(dtype):
            if facet == "forward" or entry.supports_autograd:
                key = (runner.name_of(entry), str(dtype).removeprefix("torch."), facet)
                yield pytest.param(entry, dtype, facet, key, id="-".join(key))


@pytest.mark.slow
@pytest.mark.parametrize(("entry", "dtype", "facet", "key"), cases())
def test_entry(entry, dtype, facet, key):
    outcome = runner.outcome(entry, dtype, facet)
    kind, reason = EXPECTED.get(key, ("pass", ""))
    if kind == "pass":
        assert outcome == "pass"
    else:
        assert outcome != "pass", f"passes now: take its line out of {TABLE.name}"
        assert outcome.startswith(kind), f"expected {kind} ({reason}), got {outcome}"


def test_the_table_names_only_entries_that_exist():
    known = {p.values[3] for p in cases()}
    assert set(EXPECTED) <= known
