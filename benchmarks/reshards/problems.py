"""Seeded random changes of layout in six classes."""

from __future__ import annotations

import dataclasses
import math
import random
from collections.abc import Iterator, Sequence

from shardwright.program import Layout, Mesh, SubAxis, ways

CLASSES = ("powers of two", "mixed meshes", "uneven", "partial", "order", "large")
"""In turn: sizes of 2, 4, 8; sizes with 3 and 5; cuts that do not divide; sums still
to be reduced; the target on devices in another order; 64 to 256 devices."""

POWERS = ((2, 2, 2), (2, 4), (4, 2), (8,), (2, 2, 2, 2), (4, 4), (16,))
MIXED = ((2, 3), (6,), (2, 2, 3), (3, 4), (12,), (3, 2, 2), (5, 2), (3, 3), (2, 3, 4))
LARGE = ((8, 8), (4, 4, 4), (2, 4, 8), (16, 4), (2, 2, 2, 2, 4), (4, 8, 8), (16, 16))


@dataclasses.dataclass(frozen=True)
class Problem:
    """One change of a float32 array between two layouts over the same devices."""

    kind: str
    shape: tuple[int, ...]
    source: Layout
    target: Layout

    @property
    def num_devices(self) -> int:
        return self.source.mesh.num_devices


def problems(count: int, seed: int) -> Iterator[Problem]:
    """`count` problems that move something, the classes in turn."""
    rng = random.Random(seed)
    found = 0
    while found < count:
        problem = _problem(rng, CLASSES[found % len(CLASSES)])
        if problem.source != problem.target:
            found += 1
            yield problem


def _problem(rng: random.Random, kind: str) -> Problem:
    grids = {"powers of two": POWERS, "mixed meshes": MIXED, "large": LARGE}
    sizes = rng.choice(grids.get(kind, POWERS + MIXED))
    mesh = Mesh(tuple(zip("abcde", sizes, strict=False)))
    rank = rng.randint(1, 4)
    source = _layout(rng, mesh, rank, "sum" if kind == "partial" else None)
    other = mesh
    if kind == "order":
        other = _reordered(rng, mesh)
    target = _layout(rng, other, rank, None)
    if kind == "partial" and source.partial and rng.random() < 0.25:
        target = _still_partial(rng, source, target)
    shape = _uneven(rng, rank) if kind == "uneven" else _even(rng, source, target)
    return Problem(kind, shape, source, target)


def _layout(rng: random.Random, mesh: Mesh, rank: int, reducer: str | None) -> Layout:
    """Every axis, some cut in two, cuts a dim, is partial or is not used."""
    axes: list[SubAxis] = []
    for axis in mesh.whole_axes():
        if axis.size % 2 == 0 and axis.size > 2 and rng.random() < 0.3:
            axes += [SubAxis(axis.name, 2), SubAxis(axis.name, axis.size // 2, 2)]
        else:
            axes.append(axis)
    rng.shuffle(axes)
    dims: list[list[SubAxis]] = [[] for _ in range(rank)]
    partial: list[tuple[SubAxis, str]] = []
    for axis in axes:
        draw = rng.random()
        if reducer and draw < 0.4:
            partial.append((axis, reducer))
        elif draw < 0.8:
            dims[rng.randrange(rank)].append(axis)
    return Layout(mesh, tuple(map(tuple, dims)), tuple(partial))


def _reordered(rng: random.Random, mesh: Mesh) -> Mesh:
    """The mesh with its devices shuffled, or walked in another order of its axes."""
    count = mesh.num_devices
    order = list(range(count))
    if rng.random() < 0.5:
        rng.shuffle(order)
    else:
        sizes = list(mesh.sizes)
        rng.shuffle(sizes)
        order = [p * sizes[0] % count + p * sizes[0] // count for p in range(count)]
    return Mesh(mesh.axes, tuple(order))


def _still_partial(rng: random.Random, source: Layout, target: Layout) -> Layout:
    """The target partial over one of the source's axes, which then cuts nothing."""
    axis, reducer = rng.choice(source.partial)
    dims = tuple(tuple(a for a in axes if not a.overlaps(axis)) for axes in target.dims)
    return Layout(target.mesh, dims, ((axis, reducer),))


def _even(rng: random.Random, source: Layout, target: Layout) -> tuple[int, ...]:
    """A shape that all cuts divide, with tiles of 4 KiB to 16 MiB."""
    unit = [
        math.lcm(ways(a), ways(b))
        for a, b in zip(source.dims, target.dims, strict=True)
    ]
    elements = 2 ** rng.uniform(10, 22) * source.mesh.num_devices / math.prod(unit)
    grow = _shares(rng, elements, len(unit))
    return tuple(n * g for n, g in zip(unit, grow, strict=True))


def _uneven(rng: random.Random, rank: int) -> tuple[int, ...]:
    """Dims of any size, one element among them."""
    elements = 2 ** rng.uniform(10, 24)
    sizes = _shares(rng, elements, rank)
    return tuple(1 if rng.random() < 0.03 else n + rng.randint(0, 3) for n in sizes)


def _shares(rng: random.Random, elements: float, rank: int) -> Sequence[int]:
    """Sizes of about this product."""
    weights = [rng.uniform(0.3, 1.0) for _ in range(rank)]
    total = sum(weights)
    return [max(1, round(max(1.0, elements) ** (w / total))) for w in weights]
