"""Shardwright: an SPMD partitioner for JAX programs that prices every choice."""

from shardwright.api import Lowered, Planned, compare, plan, verify
from shardwright.errors import (
    InputError,
    LayoutError,
    PlanError,
    RuleError,
    ShardwrightError,
    VerificationError,
)
from shardwright.positional import PositionalSharding
from shardwright.runtime.jit import jit
from shardwright.runtime.redistribute import plan_redistribution, redistribute

__all__ = [
    "InputError",
    "LayoutError",
    "Lowered",
    "PlanError",
    "Planned",
    "PositionalSharding",
    "RuleError",
    "ShardwrightError",
    "VerificationError",
    "compare",
    "jit",
    "plan",
    "plan_redistribution",
    "redistribute",
    "verify",
]
