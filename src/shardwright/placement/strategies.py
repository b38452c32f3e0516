"""Strategies of one op: derived from a layout of one of its tensors, or all.

A strategy is derived by reading each dim's cuts as cuts of the factors the dim
carries. What a factor cannot take (it must stay whole, or the cut does not
divide it) is dropped, so that a derived strategy is always legal; the layout it
then needs differs from the one asked for, and a schedule takes care of that.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from functools import lru_cache

from shardwright.program import (
    Dims,
    Layout,
    Mesh,
    PartialRow,
    Piece,
    Rule,
    Strategy,
    SubAxis,
    ways,
)

MAX_ENUMERATED = 4096
"""Above this many assignments an op is tried with derived strategies alone."""


@lru_cache(maxsize=65536)
def derive(
    rule: Rule, index: int, is_result: bool, shape: tuple[int, ...], layout: Layout
) -> Strategy:
    """The strategy by which operand or result `index` lies as in `layout`."""
    dims = (rule.results if is_result else rule.operands)[index]
    cuts: dict[str, tuple[Piece, ...]] = {}
    for factors, pieces in zip(dims, layout.pieces(shape), strict=True):
        for factor, cut in _split_pieces(rule, factors, pieces):
            if any(axes for _, axes in cut) and factor not in cuts:
                cuts[factor] = cut
    partial = _derive_partial(rule, index, is_result, layout)
    return _legal(rule, Strategy(tuple(cuts.items()), partial))


def merge(rule: Rule, first: Strategy, second: Strategy) -> Strategy:
    """`first`, with what `second` says of factors and axes that `first` leaves free."""
    cuts = dict(first.cuts)
    for factor, pieces in second.cuts:
        axes = [a for _, axes in pieces for a in axes]
        taken = _taken(rule, factor, Strategy(tuple(cuts.items()), first.partial))
        if factor in cuts or any(a.overlaps(b) for a in axes for b in taken):
            continue
        cuts[factor] = pieces
    used = list(used_axes(Strategy(tuple(cuts.items()), first.partial)))
    partial = list(first.partial)
    reducers = {row.result for row, _ in partial}
    for row, axes in second.partial:
        if reducers and row.result not in reducers:
            continue
        kept = tuple(a for a in axes if not any(a.overlaps(b) for b in used))
        if kept:
            partial.append((row, kept))
            used += kept
    return _legal(rule, Strategy(tuple(cuts.items()), tuple(partial)))


def _taken(rule: Rule, factor: str, strategy: Strategy) -> tuple[SubAxis, ...]:
    """Axes that `factor` may no longer be cut by.

    All that are in use; where tensors do not meet, those of its own tensors.
    """
    if not rule.independent:
        return used_axes(strategy)
    tensors = [
        {f for factors in dims for f in factors}
        for dims in (*rule.operands, *rule.results)
    ]
    near = {f for factors in tensors if factor in factors for f in factors}
    cuts = tuple((f, pieces) for f, pieces in strategy.cuts if f in near)
    return used_axes(Strategy(cuts, strategy.partial))


def used_axes(strategy: Strategy) -> tuple[SubAxis, ...]:
    """Every axis that the strategy cuts a factor by or leaves partial."""
    cut = [a for _, pieces in strategy.cuts for _, axes in pieces for a in axes]
    return (*cut, *(a for _, axes in strategy.partial for a in axes))


@lru_cache(maxsize=4096)
def enumerate_cuts(rule: Rule, mesh: Mesh) -> tuple[Strategy, ...]:
    """Every assignment of whole axes to the rule's free factors, in every order.

    Only cuts that divide the factor; the uncut strategy comes first.
    """
    axes = mesh.whole_axes()
    factors = rule.free_factors
    if (len(factors) + 1) ** len(axes) > MAX_ENUMERATED:
        return (Strategy(),)
    found: dict[Strategy, None] = {}
    for choice in itertools.product((None, *factors), repeat=len(axes)):
        groups = {
            f: [a for a, c in zip(axes, choice, strict=True) if c == f] for f in factors
        }
        if any(rule.size(f) % ways(g) for f, g in groups.items()):
            continue
        for assignment in _orders(groups):
            strategy = _legal(rule, Strategy.of(rule, assignment))
            found.setdefault(strategy)
    return tuple(found)


def _orders(
    groups: dict[str, list[SubAxis]],
) -> Iterator[dict[str, tuple[SubAxis, ...]]]:
    names = list(groups)
    options = [list(itertools.permutations(groups[name])) for name in names]
    for chosen in itertools.product(*options):
        yield dict(zip(names, chosen, strict=True))


def _split_pieces(
    rule: Rule, factors: tuple[str, ...], pieces: Sequence[Piece]
) -> Iterator[tuple[str, tuple[Piece, ...]]]:
    """Share a dim's pieces out among the dim's factors, major to minor."""
    if len(factors) == 1:
        yield factors[0], tuple(pieces)
        return
    queue = list(pieces)
    for factor in factors:
        need = rule.size(factor)
        taken: list[Piece] = []
        while need > 1 and queue:
            size, axes = queue.pop(0)
            head, tail = _cut_piece(size, axes, need)
            if head is None:
                return
            taken.append(head)
            need //= head[0]
            if tail is not None:
                queue.insert(0, tail)
        yield factor, tuple(taken) or ((1, ()),)


def _cut_piece(
    size: int, axes: tuple[SubAxis, ...], need: int
) -> tuple[Piece | None, Piece | None]:
    """Split a piece in a head of at most `need` elements and the rest."""
    if size <= need:
        return ((size, axes), None) if need % size == 0 else (None, None)
    if size % need:
        return None, None
    head: list[SubAxis] = []
    rest = list(axes)
    left = need
    while rest and left > 1:
        axis = rest.pop(0)
        if left % axis.size == 0:
            head.append(axis)
            left //= axis.size
        elif axis.size % left == 0:
            head.append(SubAxis(axis.name, left, axis.pre))
            rest.insert(0, SubAxis(axis.name, axis.size // left, axis.pre * left))
            left = 1
        else:
            return None, None
    if rest and left > 1:
        return None, None
    return (need, tuple(head)), (size // need, tuple(rest))


def _derive_partial(
    rule: Rule, index: int, is_result: bool, layout: Layout
) -> tuple[tuple[PartialRow, tuple[SubAxis, ...]], ...]:
    found: dict[PartialRow, list[SubAxis]] = {}
    for axis, reducer in layout.partial:
        for row in rule.partial:
            matches = row.result == reducer if is_result else row.reducer == reducer
            if matches and (is_result or index in row.operands):
                found.setdefault(row, []).append(axis)
                break
    return tuple((row, tuple(axes)) for row, axes in found.items())


def _legal(rule: Rule, strategy: Strategy) -> Strategy:
    """Drop cuts of whole factors, uneven cuts, and cuts that a compound dim forbids."""
    sizes = dict(rule.sizes)
    cuts = {
        factor: pieces
        for factor, pieces in strategy.cuts
        if factor not in rule.whole
        and all(size % ways(axes) == 0 for size, axes in pieces)
        and any(axes for _, axes in pieces)
        and sizes[factor] > 1
    }
    kept = tuple((f, cuts[f]) for f, _ in rule.sizes if f in cuts)
    return Strategy(kept, strategy.partial)


def layouts(
    rule: Rule, strategy: Strategy, mesh: Mesh
) -> tuple[tuple[Layout, ...], tuple[Layout, ...]]:
    """Layouts of all operands and of all results under the strategy."""
    operands: Sequence[Dims] = rule.operands
    return (
        tuple(strategy.operand_layout(rule, mesh, i) for i in range(len(operands))),
        tuple(strategy.result_layout(rule, mesh, i) for i in range(len(rule.results))),
    )
