"""Plan -> per-device StableHLO."""

from shardwright.lowering.module import lower, schedule_module
from shardwright.lowering.steps import emit_schedule
from shardwright.lowering.text import partitioned_text

__all__ = ["emit_schedule", "lower", "partitioned_text", "schedule_module"]
