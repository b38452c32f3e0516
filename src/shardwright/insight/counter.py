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

_ITEM_BITS = {
    "pred": 8, "s2": 2, "u2": 2, "s4": 4, "u4": 4, "s8": 8, "u8": 8, "s16": 16,
    "u16": 16, "f16": 16, "bf16": 16, "s32": 32, "u32": 32, "f32": 32, "s64": 64,
    "u64": 64, "f64": 64, "c64": 64, "c128": 128,
}  # fmt: skip

_COLLECTIVE = re.compile(
    r"= (?P<type>\(.*?\)|\S+) (?P<kind>all-gather|all-to-all|collective-permute|"
    r"all-reduce|reduce-scatter|collective-broadcast|ragged-all-to-all)"
    r"(?P<start>-start)?\("
)
_SHAPE = re.compile(r"(\w+)\[([\d,]*)\]")
_PAIR = re.compile(r"\{(\d+),(\d+)\}")
_GROUP_LIST = re.compile(r"replica_groups=\{\{([\d,]+)\}")
_GROUP_IOTA = re.compile(r"replica_groups=\[(\d+),(\d+)\]")
_DOT = re.compile(
    r"%?(?P<name>[\w.-]+) = (?P<type>\S+) dot\((?P<lhs>[^,)]+), (?P<rhs>[^,)]+)\), "
)
_CONTRACTED = re.compile(r"lhs_contracting_dims=\{([\d,]*)\}")
_DEFINITION = re.compile(r"^\s*(?:ROOT )?%?(?P<name>[\w.-]+) = (?P<type>\S+) ")


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
    shapes: dict[str, str] = {}
    dots: list[str] = []
    flops = 0.0
    for line in hlo.splitlines():
        definition = _DEFINITION.match(line)
        if definition:
            shapes[definition["name"]] = definition["type"]
        dot = _DOT.search(line)
        if dot:
            dots.append(_dot_str(dot, shapes))
            flops += _dot_flops(dot, line, shapes)
        found = _COLLECTIVE.search(line)
        if found:
            kinds[found["kind"]] += 1
            _add(received, found, line)
    return Traffic(
        bytes_received=math.ceil(received.max(initial=0.0)),
        collectives=tuple(sorted(kinds.items())),
        dots=tuple(dots),
        dot_flops=flops,
    )


def _add(received: np.ndarray, found: re.Match[str], line: str) -> None:
    size = _type_bytes(found["type"], is_pair=bool(found["start"]))
    n = _group_size(line, len(received))
    match found["kind"]:
        case "collective-permute":
            pairs = line.split("source_target_pairs=")[1]
            for source, target in _PAIR.findall(pairs):
                if source != target:
                    received[int(target)] += size
        case "all-reduce":
            received += 2 * size * (n - 1) / n
        case "reduce-scatter":
            received += size * (n - 1)
        case "collective-broadcast":
            received += size
        case _:
            received += size * (n - 1) / n


def _type_bytes(text: str, *, is_pair: bool) -> float:
    """Bytes of a type, or of a tuple's elements; an async pair's second half."""
    shapes = _SHAPE.findall(text)
    if is_pair and text.startswith("("):
        shapes = shapes[len(shapes) // 2 :]  # operands come first, then results
    bits = 0.0
    for dtype, dims in shapes:
        count = math.prod(int(d) for d in dims.split(",") if d)
        bits += count * (_ITEM_BITS.get(dtype) or (8 if dtype.startswith("f8") else 0))
    return bits / 8


def _group_size(line: str, num_devices: int) -> int:
    if found := _GROUP_LIST.search(line):
        return len(found[1].split(","))
    if found := _GROUP_IOTA.search(line):
        return int(found[2])
    return num_devices


def _dot_flops(dot: re.Match[str], line: str, shapes: dict[str, str]) -> float:
    """Two for each element of the result and each value contracted."""
    left = dot["lhs"].split(" ")[-1].lstrip("%")
    dims = _dims(shapes.get(left, dot["lhs"]))
    found = _CONTRACTED.search(line)
    contracted = [int(d) for d in found[1].split(",") if d] if found else []
    depth = math.prod(dims[d] for d in contracted if d < len(dims))
    return 2.0 * math.prod(_dims(dot["type"])) * depth


def _dims(type_text: str) -> list[int]:
    found = _SHAPE.search(type_text)
    return [int(d) for d in found[2].split(",") if d] if found else []


def _dot_str(dot: re.Match[str], shapes: dict[str, str]) -> str:
    operands = [dot[side].split(" ")[-1].lstrip("%") for side in ("lhs", "rhs")]
    typed = [shapes.get(name, name) for name in operands]
    return " x ".join(t.split("{")[0] for t in typed)
