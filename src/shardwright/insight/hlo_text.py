"""HLO text as instructions: what is computed, on which tensors, by which devices."""

from __future__ import annotations

import dataclasses
import itertools
import math
import re
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from shardwright.program import TensorType

_ITEM_BITS = {"pred": 8, "c64": 64, "c128": 128}
_WIDTH = re.compile(r"\d+")
_HEAD = re.compile(r"^\s*(?P<root>ROOT )?%?(?P<name>[\w.-]+) = ")
_OPCODE = re.compile(r"\s*([\w-]+)\(")
_SHAPE = re.compile(r"(\w+)\[([\d,]*)\]")
_NAME = re.compile(r"%?([\w.-]+)$")
_PAIR = re.compile(r"\{(\d+),(\d+)\}")
_GROUP_LIST = re.compile(r"replica_groups=\{((?:\{[\d,]*\},?)*)\}")
_GROUP_IOTA = re.compile(r"replica_groups=(\[\d+,\d+\]<=\[[\d,]+\](?:T\([\d,]+\))?)")
_GROUP_MESH = re.compile(
    r"replica_groups=mesh\[(?P<axes>[^\]]*)\]"
    r"(?:, device_ids=\((?P<ids>.*?\)?)\))? \{(?P<over>[^}]*)\}"
)
_IOTA = re.compile(r"(?:\[([\d,]+)\]<=)?\[([\d,]+)\](?:T\(([\d,]+)\))?")
_MESH_AXIS = re.compile(r"'([^']+)'=(\d+)")
_OVER_AXIS = re.compile(r"'([^']+)'(?::\((\d+)\)(\d+))?")


@dataclasses.dataclass(frozen=True, slots=True)
class Instruction:
    """One line: its result's tensors, its operation, operands by name, the rest."""

    name: str
    types: tuple[TensorType, ...]
    opcode: str
    operands: tuple[str, ...]
    attributes: str
    is_root: bool


def type_bits(dtype: str) -> int:
    """Bits of one element of an HLO type."""
    if dtype in _ITEM_BITS:
        return _ITEM_BITS[dtype]
    width = _WIDTH.search(dtype)
    return int(width[0]) if width and dtype not in ("token", "opaque") else 0


def type_bytes(type_: TensorType) -> float:
    """Bytes of one tensor."""
    return type_.num_elements * type_bits(type_.dtype) / 8


def computations(hlo: str) -> Iterator[tuple[bool, list[Instruction]]]:
    """The instructions of each computation, and whether it is the entry."""
    is_entry, body = False, []
    for line in hlo.splitlines():
        if line.startswith("}"):
            yield is_entry, body
            is_entry, body = False, []
        elif line.rstrip().endswith("{") and " = " not in line.split("(")[0]:
            is_entry, body = line.startswith("ENTRY"), []
        elif found := instruction(line):
            body.append(found)
    if body:
        yield is_entry, body


def instruction(line: str) -> Instruction | None:
    """The instruction on one line, if there is one."""
    head = _HEAD.match(line)
    if head is None:
        return None
    start = head.end()
    end = _closing(line, start) if line[start] == "(" else line.find(" ", start)
    opcode = _OPCODE.match(line, end)
    if end < 0 or opcode is None:
        return None
    stop = _closing(line, opcode.end() - 1)
    operands = (_NAME.search(o) for o in _split(line[opcode.end() : stop - 1]))
    return Instruction(
        head["name"],
        tuple(_tensor(*shape) for shape in _SHAPE.findall(line[start:end])),
        opcode[1],
        tuple(o[1] for o in operands if o),
        line[stop:],
        bool(head["root"]),
    )


def _tensor(dtype: str, dims: str) -> TensorType:
    return TensorType(tuple(int(d) for d in dims.split(",") if d), dtype)


def _closing(text: str, start: int) -> int:
    """Just past the bracket that closes the one at `start`; -1 where none does."""
    depth = 0
    for i in range(start, len(text)):
        depth += {"(": 1, ")": -1}.get(text[i], 0)
        if depth == 0:
            return i + 1
    return -1


def _split(text: str) -> Iterator[str]:
    """Operands, between the commas that stand in no bracket."""
    depth, start = 0, 0
    for i, c in enumerate(text):
        depth += (c in "([{") - (c in ")]}")
        if c == "," and depth == 0:
            yield text[start:i].strip()
            start = i + 1
    yield text[start:].strip()


# Who takes part -----------------------------------------------------------------


def permute_pairs(attributes: str) -> list[tuple[int, int]]:
    """(source, target) of a collective permute."""
    body = attributes.split("source_target_pairs=", 1)[1].split("}}", 1)[0] + "}"
    return [(int(s), int(t)) for s, t in _PAIR.findall(body)]


def device_groups(attributes: str, num_devices: int) -> NDArray[np.int64]:
    """Devices by [group, member], in whichever way the text writes the groups."""
    if found := _GROUP_MESH.search(attributes):
        return _mesh_groups(found, num_devices)
    if found := _GROUP_IOTA.search(attributes):
        return _iota(found[1])
    if (found := _GROUP_LIST.search(attributes)) and found[1]:
        rows = re.findall(r"\{([\d,]*)\}", found[1])
        return np.array([[int(d) for d in row.split(",")] for row in rows])
    return np.arange(num_devices)[None]


def _iota(text: str) -> NDArray[np.int64]:
    """`[2,4]<=[8]`, `[4,2]<=[2,4]T(1,0)`, or without the shape."""
    found = _IOTA.fullmatch(text)
    assert found is not None, text
    dims = _integers(found[2])
    devices = np.arange(math.prod(dims)).reshape(dims)
    if found[3]:
        devices = devices.transpose(_integers(found[3]))
    return devices.reshape(_integers(found[1]) if found[1] else -1)


def _integers(text: str) -> list[int]:
    return [int(n) for n in text.split(",")]


def _mesh_groups(found: re.Match[str], num_devices: int) -> NDArray[np.int64]:
    """`mesh['x'=2,'y'=4], device_ids=(...) {'y':(2)2}`: groups along these axes."""
    axes = [(name, int(n)) for name, n in _MESH_AXIS.findall(found["axes"])]
    devices = np.arange(num_devices)
    if ids := found["ids"]:
        devices = _iota(ids) if ids.startswith("[") else np.array(_integers(ids))
    over = [
        (name, int(pre or 1), int(size or dict(axes)[name]))
        for name, pre, size in _OVER_AXIS.findall(found["over"])
    ]
    digits: list[tuple[str, int, int]] = []
    for name, n in axes:
        mine = [o for o in over if o[0] == name]
        cuts = sorted({1, n, *(o[1] for o in mine), *(o[1] * o[2] for o in mine)})
        digits += [(name, a, b // a) for a, b in itertools.pairwise(cuts)]
    grid = devices.reshape([size for _, _, size in digits])
    members = [digits.index(o) for o in over if o[2] > 1]
    rest = [i for i in range(len(digits)) if i not in members]
    size = math.prod(digits[i][2] for i in members)
    return grid.transpose([*rest, *members]).reshape(-1, size)
