"""The per-device module as text: HLO in the style of XLA's dumps, or StableHLO."""

from __future__ import annotations

import re

from shardwright.errors import PlanError
from shardwright.jaxlib_bindings import (
    hlo_print_options,
    module_text,
    module_to_hlo,
)
from shardwright.lowering.module import lower
from shardwright.mlir import (
    drop_result_attributes,
)
from shardwright.placement import Plan

_ENTRY = re.compile(r"^ENTRY (%?)([\w.-]+)", re.MULTILINE)


def partitioned_text(plan: Plan, emit: str = "hlo") -> str:
    """The program that each device runs; `emit` is "hlo" or "stablehlo".

    The HLO's entry is named `..._spmd`; parameters have the shape of tiles and
    carry the sharding of the whole array.
    """
    if emit not in ("hlo", "stablehlo"):
        raise PlanError(f"cannot emit {emit!r}; use hlo or stablehlo")
    module = lower(plan, annotate=True)
    if emit == "stablehlo":
        return module_text(module)
    drop_result_attributes(module)
    text: str = module_to_hlo(module).to_string(hlo_print_options())
    return _ENTRY.sub(r"ENTRY \1\2_spmd", text)
