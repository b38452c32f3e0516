"""Count what each device receives, from HLO text after partitioning.

One counter for every compiler's output, ours and the peers', so that figures
compare. Receiving is counted as rings do it: all-gather (n-1)/n of its result,
all-to-all (n-1)/n, all-reduce 2 (n-1)/n, reduce-scatter (n-1) times its result,
a permute its result where source and target differ.
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections import Counter

import numpy as np
from numpy.typing import NDArray

from shardwright.insight.hlo_text import (
    Instruction,
    computations,
    device_groups,
    permute_pairs,
    type_bytes,
)
from shardwright.program import TensorType

_COLLECTIVES = (
    "all-gather",
    "all-to-all",
    "collective-permute",
    "all-reduce",
    "reduce-scatter",
    "collective-broadcast",
    "ragged-all-to-all",
)
_CONTRACTED = re.compile(r"lhs_contracting_dims=\{([\d,]*)\}")


@dataclasses.dataclass(frozen=True, slots=True)
class Traffic:
    """Bytes that the busiest device receives, and how many of each collective.

    A loop's body counts once. `dots` are local matmul shapes, operands first, and
    `dot_flops` their arithmetic together.
    """

    bytes_received: int
    collectives: tuple[tuple[str, int], ...]
    dots: tuple[str, ...]
    dot_flops: float = 0.0

    @property
    def num_collectives(self) -> int:
        return sum(count for _, count in self.collectives)


def count_traffic(hlo: str, num_devices: int) -> Traffic:
    """Read the collectives and matmuls of one module's text."""
    received = np.zeros(num_devices)
    kinds: Counter[str] = Counter()
    dots: list[str] = []
    flops = 0.0
    for _, body in computations(hlo):
        types = {op.name: op.types for op in body}
        for op in body:
            if op.opcode == "dot":
                found = [types.get(name, ()) for name in op.operands]
                dots.append(" x ".join(str(t[0]) for t in found if t))
                flops += _dot_flops(op, found[0])
            elif kind := collective_kind(op):
                kinds[kind] += 1
                received += device_bytes(op, num_devices)
    return Traffic(
        bytes_received=math.ceil(received.max(initial=0.0)),
        collectives=tuple(sorted(kinds.items())),
        dots=tuple(dots),
        dot_flops=flops,
    )


def collective_kind(op: Instruction) -> str | None:
    """Which collective this starts, or None for anything else."""
    kind = op.opcode.removesuffix("-start")
    return kind if kind in _COLLECTIVES else None


def result_types(op: Instruction) -> tuple[TensorType, ...]:
    """Tensors that arrive; of an async start, which lists operands first, the rest.

    Scalars that a permute's start carries for the runtime are no data.
    """
    types = op.types
    if not op.opcode.endswith("-start") or len(types) < 2:
        return types
    if collective_kind(op) == "collective-permute":
        types = types[:2]
    return types[len(types) // 2 :]


def device_bytes(op: Instruction, num_devices: int) -> NDArray[np.float64]:
    """Bytes that each device receives for one collective."""
    received = np.zeros(num_devices)
    size = sum(map(type_bytes, result_types(op)))
    kind = collective_kind(op)
    if kind == "collective-permute":
        for source, target in permute_pairs(op.attributes):
            if source != target:
                received[target] += size
        return received
    groups = device_groups(op.attributes, num_devices)
    n = groups.shape[1]
    if kind == "all-reduce":
        size *= 2 * (n - 1) / n
    elif kind == "reduce-scatter":
        size *= n - 1
    elif kind != "collective-broadcast":
        size *= (n - 1) / n
    received[groups.ravel()] += size
    return received


def _dot_flops(op: Instruction, left: tuple[TensorType, ...]) -> float:
    """Two for each element of the result and each value contracted."""
    dims = left[0].shape if left else ()
    found = _CONTRACTED.search(op.attributes)
    contracted = [int(d) for d in found[1].split(",") if d] if found else []
    depth = math.prod(dims[d] for d in contracted if d < len(dims))
    return 2.0 * op.types[0].num_elements * depth
