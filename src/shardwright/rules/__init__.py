"""What is known of each op: one entry an op, by family, with its samples."""

from shardwright.rules import (  # noqa: F401 - filling the table
    contraction,
    creation,
    elementwise,
    passing,
    reduction,
    shape,
)
from shardwright.rules.emitter import Emitter
from shardwright.rules.reduction import identity_text, zero_text
from shardwright.rules.registry import (
    Call,
    Entry,
    Local,
    Sample,
    call_of,
    entries,
    flops_of,
    has_rule,
    localize,
    rule_of,
)

__all__ = [
    "Call",
    "Emitter",
    "Entry",
    "Local",
    "Sample",
    "call_of",
    "entries",
    "flops_of",
    "has_rule",
    "identity_text",
    "localize",
    "rule_of",
    "zero_text",
]
