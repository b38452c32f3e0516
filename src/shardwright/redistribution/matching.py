"""Who sends whom a tile as it is: arrangements of equal tiles, pairs of devices."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment

Dims = tuple[tuple[int, ...], ...]
"""The atoms that cut each dim, by number."""


def begun_alike(
    sizes: Sequence[int], cuts: Sequence[int], wanted: Sequence[Sequence[int]]
) -> tuple[list[tuple[int, ...]], list[int]]:
    """For each dim the wanted atoms that fit its cuts, and the cuts that remain."""
    fronts: list[tuple[int, ...]] = []
    left: list[int] = []
    for total, atoms in zip(cuts, wanted, strict=True):
        ways = total
        front: list[int] = []
        for atom in atoms:
            if ways % sizes[atom]:
                break
            ways //= sizes[atom]
            front.append(atom)
        fronts.append(tuple(front))
        left.append(ways)
    return fronts, left


def arrangements(
    sizes: Sequence[int], ways: Sequence[int], atoms: frozenset[int]
) -> Iterator[Dims]:
    """All ordered choices of atoms that cut the dims in so many ways."""
    if not ways:
        yield ()
        return
    for first in _orders(sizes, ways[0], atoms):
        for rest in arrangements(sizes, ways[1:], atoms - set(first)):
            yield (first, *rest)


def _orders(
    sizes: Sequence[int], ways: int, atoms: frozenset[int]
) -> Iterator[tuple[int, ...]]:
    if ways == 1:
        yield ()
        return
    for atom in sorted(atoms):
        if ways % sizes[atom] == 0:
            for rest in _orders(sizes, ways // sizes[atom], atoms - {atom}):
                yield (atom, *rest)


def matches(
    held: Sequence[Hashable],
    wanted: Sequence[Hashable],
    distances: NDArray[np.int64] | None = None,
    ids: Sequence[int] | None = None,
) -> Iterator[tuple[tuple[int, int], ...]]:
    """Ways to pair senders with receivers of equal tiles, themselves where they can.

    Where `distances` are given by [sender, receiver]: the least distance in all first,
    then the shortest longest way; then in turn, and in the order of the devices' ids.
    None where a tile is wanted by more members than have one to spare.
    """
    same = [
        (member, member)
        for member, (old, new) in enumerate(zip(held, wanted, strict=True))
        if old == new
    ]
    stays = {member for member, _ in same}
    groups = _groups(held, wanted, stays)
    if any(len(holders) < len(members) for holders, members in groups):
        return
    everyone = _groups(held, wanted, set())
    found: list[list[tuple[int, int]]] = []
    if distances is not None:
        far = distances.astype(np.float64) ** 4
        found.append([*same, *(p for g in groups for p in _nearest(*g, distances))])
        found.append([*same, *(p for g in groups for p in _nearest(*g, far))])
        found.append([p for g in everyone for p in _nearest(*g, far)])
    found.append([*same, *(p for g in groups for p in zip(*g, strict=False))])
    if ids is not None:
        for some, kept in ((groups, same), (everyone, [])):
            by_id = ([sorted(side, key=ids.__getitem__) for side in g] for g in some)
            found.append([*kept, *(p for g in by_id for p in zip(*g, strict=False))])
    done = (tuple(sorted(pairs, key=lambda p: p[1])) for pairs in found)
    yield from dict.fromkeys(done)


def _groups(
    held: Sequence[Hashable], wanted: Sequence[Hashable], without: set[int]
) -> list[tuple[list[int], list[int]]]:
    """Of each tile that is wanted, who holds it and who wants it."""
    spare: dict[Hashable, list[int]] = {}
    asking: dict[Hashable, list[int]] = {}
    for member, (old, new) in enumerate(zip(held, wanted, strict=True)):
        if member not in without:
            spare.setdefault(old, []).append(member)
            asking.setdefault(new, []).append(member)
    return [(spare.get(cell, []), members) for cell, members in asking.items()]


def _nearest(
    holders: Sequence[int],
    members: Sequence[int],
    distances: NDArray[np.int64] | NDArray[np.float64],
) -> Iterator[tuple[int, int]]:
    """A holder of its own for each member, at the least distance in all."""
    if len(holders) == 1:
        yield holders[0], members[0]
        return
    rows, columns = linear_sum_assignment(distances[np.ix_(holders, members)])
    for row, column in zip(rows.tolist(), columns.tolist(), strict=True):
        yield holders[row], members[column]
