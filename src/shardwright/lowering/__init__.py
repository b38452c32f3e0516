"""Plan -> per-device StableHLO."""

from shardwright.lowering.module import lower
from shardwright.lowering.steps import emit_schedule

__all__ = ["emit_schedule", "lower"]
