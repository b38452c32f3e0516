"""Plan -> per-device StableHLO."""

from shardwright.lowering.merged import kind_of
from shardwright.lowering.module import lower, schedules_module
from shardwright.lowering.steps import emit_schedule
from shardwright.lowering.text import partitioned_text

__all__ = ["emit_schedule", "kind_of", "lower", "partitioned_text", "schedules_module"]
