"""HLO's sharding strings to Layouts on one mesh, and back.

A tile assignment is an array of devices by tile. Along each of its dims the
device number is a sum of digits, each a (size, stride) pair, if the assignment
is an iota transposed. The strides at which all shardings of a program cut the
devices, sorted, are the boundaries of the mesh's axes, minor to major.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import re
import string
from collections.abc import Sequence
from typing import Any

import numpy as np

from shardwright.errors import InputError, LayoutError
from shardwright.jaxlib_bindings import HloSharding, canonical_hlo_sharding
from shardwright.program import Constraint, Layout, Mesh, SubAxis, ways

Digit = tuple[int, int]
"""(size, stride) of one factor of the device number."""

_NAMED_MESH = re.compile(r"mesh\[([^\]]*)\]")
_NAMED_AXIS = re.compile(r"'([^']+)'=(\d+)")
_NAMED_DIMS = re.compile(r"\[((?:\{[^{}]*\}(?:, ?)?)*)\]")


@dataclasses.dataclass(frozen=True)
class _Tiling:
    """One parsed sharding: the devices by tile, and what its last dims mean."""

    text: str
    what: str
    devices: np.ndarray
    rank: int
    kinds: tuple[str, ...]
    open_dims: tuple[bool, ...]


def from_hlo(
    text: str, rank: int, num_devices: int | None = None, what: str = "value"
) -> tuple[Mesh, Constraint | None]:
    """The layout that one sharding string says, on a mesh made for it.

    None for `{unknown}`. Raises LayoutError where it does not fit.
    """
    mesh, (constraint,) = layouts_from_hlo([text], [rank], num_devices, [what])
    return mesh, constraint


def layouts_from_hlo(
    texts: Sequence[str],
    ranks: Sequence[int],
    num_devices: int | None,
    what: Sequence[str] | None = None,
) -> tuple[Mesh, list[Constraint | None]]:
    """All shardings of a program as layouts on one mesh.

    Axes keep the names of a `mesh[...]` sharding where it has them, and are
    letters otherwise. Where a device list is no transposed iota, its order
    becomes the mesh's own. `what` names each value in errors. Raises
    LayoutError for a sharding that does not fit its rank or the device count,
    InputError for one that cannot be read or is not supported.
    """
    names = list(what or [f"value {i}" for i in range(len(texts))])
    parsed = [
        _parse(text, rank, name)
        for text, rank, name in zip(texts, ranks, names, strict=True)
    ]
    tilings = [t for t in parsed if t is not None]
    count = num_devices or max([1, *(t.devices.size for t in tilings)])
    for tiling in tilings:
        if tiling.devices.size not in (0, count):
            raise LayoutError(
                f"{tiling.what}: sharding {tiling.text} is for {tiling.devices.size} "
                f"devices, the program for {count}; give --devices or mend it"
            )
    order = _device_order(tilings)
    digits = [_digits(_ordered(t, order)) for t in tilings]
    mesh = _mesh(count, digits, tilings, order)
    found = iter(
        _constraint(mesh, tiling, digit)
        for tiling, digit in zip(tilings, digits, strict=True)
    )
    return mesh, [None if t is None else next(found) for t in parsed]


def to_hlo(layout: Layout, shape: Sequence[int]) -> str:
    """The string that XLA reads, in its canonical form.

    A strided view is a LayoutError.
    """
    if layout.view is not None:
        raise LayoutError(f"layout {layout} is strided; HLO cannot say it")
    if layout.is_replicated:
        return "{replicated}"
    mesh = layout.mesh
    atoms = _atoms(layout)
    partial = [axis for axis, _ in layout.partial]
    wanted = [*(axis for axes in layout.dims for axis in axes), *partial]
    order = [i for axis in wanted for i, a in enumerate(atoms) if a.overlaps(axis)]
    order += [i for i in range(len(atoms)) if i not in order]
    tiles = [ways(axes) for axes in layout.dims]
    kinds: list[str] = []
    rest = mesh.num_devices // math.prod(tiles)
    if partial:
        kinds.append("unreduced")
        tiles.append(ways(partial))
        rest //= ways(partial)
    if rest > 1:
        kinds.append("replicated")
        tiles.append(rest)
    if mesh.device_ids is None:
        sizes = ",".join(str(a.size) for a in atoms)
        devices = f"<=[{sizes}]T({','.join(map(str, order))})"
        if order == sorted(order):
            devices = f"<=[{mesh.num_devices}]"
    else:
        grid = np.array(mesh.device_ids).reshape([a.size for a in atoms])
        devices = ",".join(map(str, grid.transpose(order).ravel()))
    tail = f" last_tile_dims={{{', '.join(kinds)}}}" if kinds else ""
    return canonical_hlo_sharding(
        f"{{devices=[{','.join(map(str, tiles))}]{devices}{tail}}}"
    )


def _atoms(layout: Layout) -> list[SubAxis]:
    """The mesh's axes, major to minor, cut wherever the layout cuts them."""
    atoms: list[SubAxis] = []
    for name, size in layout.mesh.axes:
        cuts = {1, size}
        for axis in layout.used_axes:
            if axis.name == name:
                cuts |= {axis.pre, axis.end}
        ordered = sorted(cuts)
        atoms += [
            SubAxis(name, high // low, low) for low, high in itertools.pairwise(ordered)
        ]
    return atoms


# Parsing --------------------------------------------------------------------


_LISTED = re.compile(r"devices=\[[\d,]+\](-?\d[-\d,]*)")
"""The devices of a tile assignment that lists them."""


def _parse(text: str, rank: int, what: str) -> _Tiling | None:
    for listed in _LISTED.findall(text):  # jaxlib 0.12.1 aborts on such lists
        devices = listed.strip(",").split(",")
        if len(set(devices)) != len(devices) or any(d.startswith("-") for d in devices):
            raise LayoutError(
                f"{what}: sharding {text} does not list each of its "
                f"{len(devices)} devices once"
            )
    try:
        sharding: Any = HloSharding.from_string(text)
    except Exception as error:
        first = str(error).splitlines()[0]
        raise InputError(f"{what}: sharding {text!r} cannot be read: {first}") from None
    written = str(sharding)
    if written.startswith("{{"):
        elements = sharding.tuple_elements()
        if len(elements) != 1:
            raise InputError(
                f"{what}: sharding {text} is of a tuple; tuples are not supported yet"
            )
        return _parse(str(elements[0]), rank, what)
    if sharding.is_unknown():
        return None
    is_open = _open_dims(written, rank)
    if "mesh[" in written:
        sharding = sharding.v3_to_v2_sharding()
    if sharding.is_replicated():
        return _Tiling(text, what, np.empty(0, int), rank, (), is_open)
    if sharding.is_unreduced():
        return _Tiling(text, what, np.empty(0, int), rank, ("unreduced",), is_open)
    if sharding.is_manual() or sharding.is_maximal():
        kind = "manual" if sharding.is_manual() else "single-device"
        raise InputError(f"{what}: {kind} sharding {text} is not supported yet")
    return _tiling(sharding, text, rank, what, is_open)


def _tiling(
    sharding: Any, text: str, rank: int, what: str, is_open: tuple[bool, ...]
) -> _Tiling:
    kinds = tuple(str(t).rsplit(".", 1)[-1].lower() for t in sharding.subgroup_types())
    if sharding.replicate_on_last_tile_dim():
        kinds = ("replicated",)
    if "manual" in kinds:
        raise InputError(f"{what}: manual subgroups in {text} are not supported yet")
    dims = list(sharding.tile_assignment_dimensions())
    if len(dims) != rank + len(kinds):
        raise LayoutError(
            f"{what}: sharding {text} has {len(dims) - len(kinds)} dims, "
            f"the value {rank}"
        )
    listed = np.array(sharding.tile_assignment_devices(), int)
    if listed.size != math.prod(dims) or np.unique(listed).size != listed.size:
        raise LayoutError(
            f"{what}: sharding {text} does not list each of its {math.prod(dims)} "
            "devices once"
        )
    if listed.max(initial=0) >= listed.size:
        raise LayoutError(
            f"{what}: sharding {text} names device {listed.max()} of {listed.size}"
        )
    devices = listed.reshape(dims)
    return _Tiling(text, what, devices, rank, kinds, is_open)


def _open_dims(written: str, rank: int) -> tuple[bool, ...]:
    body = written.split("]", 1)[-1]
    found = _NAMED_DIMS.search(body) if "mesh[" in written else None
    if found is None:
        return (False,) * rank
    dims = re.findall(r"\{([^{}]*)\}", found[1])
    return tuple("?" in dim for dim in dims) if len(dims) == rank else (False,) * rank


# Device order and digits ------------------------------------------------------


def _device_order(tilings: Sequence[_Tiling]) -> np.ndarray | None:
    """The device list of the first sharding that is no transposed iota, if any."""
    for tiling in tilings:
        if tiling.devices.size and _try_digits(tiling.devices) is None:
            return tiling.devices.ravel()
    return None


def _ordered(tiling: _Tiling, order: np.ndarray | None) -> _Tiling:
    if order is None or not tiling.devices.size:
        return tiling
    position = np.empty_like(order)
    position[order] = np.arange(order.size)
    return dataclasses.replace(tiling, devices=position[tiling.devices])


def _digits(tiling: _Tiling) -> list[list[Digit]]:
    if not tiling.devices.size:
        return []
    found = _try_digits(tiling.devices)
    if found is None:
        raise LayoutError(
            f"{tiling.what}: sharding {tiling.text} lists devices in another order "
            "than the program's other shardings; use one device order"
        )
    return found


def _try_digits(devices: np.ndarray) -> list[list[Digit]] | None:
    """Per dim the digits, major to minor; None if the device is no sum of them."""
    digits: list[list[Digit]] = []
    for dim, size in enumerate(devices.shape):
        index: list[Any] = [0] * devices.ndim
        index[dim] = slice(None)
        line = devices[tuple(index)]
        digits.append(_line_digits(line - line[0]) if size > 1 else [])
    total = np.zeros(devices.shape, int)
    for dim, parts in enumerate(digits):
        line = _digits_line(parts)
        total += line.reshape([-1 if i == dim else 1 for i in range(devices.ndim)])
    return digits if np.array_equal(total, devices) else None


def _line_digits(line: np.ndarray) -> list[Digit]:
    minor: list[Digit] = []
    while len(line) > 1:
        stride = int(line[1])
        run = 2
        while run < len(line) and line[run] == run * stride:
            run += 1
        while len(line) % run:
            run -= 1
        minor.append((run, stride))
        line = line[::run]
        if run == 1:
            return [(0, 0)]
    return minor[::-1]


def _digits_line(parts: Sequence[Digit]) -> np.ndarray:
    line = np.zeros(1, int)
    for size, stride in parts:
        line = (line[:, None] + np.arange(size) * stride).ravel()
    return line


# The mesh ---------------------------------------------------------------------


def _mesh(
    count: int,
    digits: Sequence[list[list[Digit]]],
    tilings: Sequence[_Tiling],
    order: np.ndarray | None,
) -> Mesh:
    cuts = {1, count}
    for size, stride in (d for dims in digits for parts in dims for d in parts):
        cuts |= {stride, size * stride}
    bounds = sorted(cuts)
    for low, high in itertools.pairwise(bounds):
        if high % low:
            raise LayoutError(
                f"the shardings cut the {count} devices in runs of {low} and of "
                f"{high}; no one mesh has both: use sizes that divide each other"
            )
    if count == 1:
        return Mesh(())
    spans = list(itertools.pairwise(bounds))[::-1]
    names = _axis_names(spans, tilings)
    axes = tuple(
        (name, high // low) for name, (low, high) in zip(names, spans, strict=True)
    )
    ids = None if order is None else tuple(map(int, order))
    return Mesh(axes, ids)


def _axis_names(
    spans: Sequence[tuple[int, int]], tilings: Sequence[_Tiling]
) -> list[str]:
    """Names from `mesh[...]` shardings where an axis is theirs, letters otherwise."""
    known: dict[tuple[int, int], str] = {}
    for tiling in tilings:
        found = _NAMED_MESH.search(tiling.text)
        stride = 1
        for name, size in reversed(_NAMED_AXIS.findall(found[1]) if found else []):
            known.setdefault((stride, stride * int(size)), name)
            stride *= int(size)
    letters = (
        c
        for n in range(1, 3)
        for c in (a * n for a in string.ascii_lowercase)
        if c not in known.values()
    )
    return [known.get(span) or next(letters) for span in spans]


def _constraint(mesh: Mesh, tiling: _Tiling, digits: list[list[Digit]]) -> Constraint:
    if not digits:
        partial = (
            tuple((axis, "sum") for axis in mesh.whole_axes()) if tiling.kinds else ()
        )
        layout = Layout(mesh, ((),) * tiling.rank, partial)
        return Constraint(layout, tiling.open_dims)
    axes = [_axes(mesh, parts) for parts in digits]
    partial = tuple(
        (axis, "sum")
        for kind, found in zip(tiling.kinds, axes[tiling.rank :], strict=True)
        if kind == "unreduced"
        for axis in found
    )
    layout = Layout(mesh, tuple(axes[: tiling.rank]), partial)
    return Constraint(layout, tiling.open_dims)


def _axes(mesh: Mesh, parts: Sequence[Digit]) -> tuple[SubAxis, ...]:
    """The mesh axes that the digits cover, major to minor."""
    return tuple(
        axis
        for size, stride in parts
        for axis in mesh.whole_axes()
        if stride <= mesh.stride(axis) < stride * size
    )
