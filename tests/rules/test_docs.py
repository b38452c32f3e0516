"""docs/ops.md lists the rule table as it is."""

from __future__ import annotations

from pathlib import Path

import pytest

from shardwright.rules import Entry, entries
from tests.rules.conformance import probe

PATH = Path(__file__).parents[2] / "docs" / "ops.md"
HEAD = """# Ops with a rule

Factors are named as in einsum, `(a b)` is a compound dim; `sum=k` says that factor k is
reduced by a sum, `whole=j` that j must not be cut. The second column is the rule of the
op's sample. Any other op is replicated, with a warning that says what it costs.

| op | rule | partial operands that pass through |
|---|---|---|
"""


def row(entry: Entry) -> str:
    if not entry.samples:
        return f"| `{entry.name}` | as its operand | every reducer |"
    rule = probe(entry, 0).rule
    rows = dict.fromkeys(
        f"{r.reducer} in {' and '.join(map(str, r.operands))} gives {r.result}"
        for r in rule.partial
    )
    return f"| `{entry.name}` | `{rule}` | {'; '.join(rows) or 'none'} |"


def test_ops_page_is_up_to_date(request: pytest.FixtureRequest):
    text = HEAD + "\n".join(map(row, entries())) + "\n"
    if request.config.getoption("--update-golden"):
        PATH.write_text(text)
    assert PATH.read_text() == text
