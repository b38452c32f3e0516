"""Legal moves of the sequence family, on digits.

A state says on which atom each digit lies now. Digit by atom, for one value of p
(S(d) = digit d cut, R = free, P = partial), a move over an atom x does

    slice           R    -> S(d)    x was idle           receives 0
    all_gather      S(d) -> R       x becomes idle       (p - 1) tiles
    all_to_all      S(d) -> S(e)                         (p - 1) / p of the tile
    permute         S(d) on x -> S(d) on y, any number   one tile
    reduce_scatter  P    -> S(d)                         (p - 1) / p of the tile
    all_reduce      P    -> R       x becomes idle       2 (p - 1) / p of the tile

Following each digit from the atom it wants to the atom it has, the change falls into
chains and rings of atoms of one size, `free <- y1 <- y2 ... <- free`, which tell what
is needed: a chain of one atom between two free ends is an all-to-all, one that ends
in an idle atom is a slice, one that starts at an atom the target does not use is a
gather, all else permutes. Slices cost nothing, so they are always done first; then
tiles are smallest, and never larger than the larger of source and target.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence

import numpy as np

from shardwright.program.schedule import (
    AllGather,
    AllReduce,
    AllToAll,
    Permute,
    ReduceScatter,
    Slice,
    Step,
)
from shardwright.redistribution.grouping import (
    FRONT,
    Groups,
    find_run,
    place_run,
    put,
    shuffle,
    source_groups,
    split_at,
    without,
)
from shardwright.redistribution.project import FREE, Problem


@dataclasses.dataclass(frozen=True, slots=True)
class State:
    """The atom each digit lies on, the atoms still to reduce, the tile's dims."""

    cut: tuple[int, ...]
    owed: tuple[int, ...]
    groups: Groups

    def is_idle(self, atom: int) -> bool:
        return atom not in self.cut and atom not in self.owed


Move = tuple[tuple[Step, ...], State]


def start(problem: Problem) -> Move:
    """The source, after every slice that the target wants and that is free."""
    state = State(
        tuple(d.source for d in problem.digits),
        tuple(atom for atom, _ in problem.owed),
        source_groups(problem),
    )
    return settle(problem, (), state)


def wanted(problem: Problem) -> dict[int, int]:
    """The digit that each atom cuts in the target."""
    return {d.target: i for i, d in enumerate(problem.digits) if d.target != FREE}


def settle(problem: Problem, steps: tuple[Step, ...], state: State) -> Move:
    """Add the slices that the target wants and that are free by now."""
    ready = [
        (i, d.target)
        for i, d in enumerate(problem.digits)
        if d.target != FREE and state.cut[i] == FREE and state.is_idle(d.target)
    ]
    return slices(problem, steps, state, ready)


def slices(
    problem: Problem,
    steps: tuple[Step, ...],
    state: State,
    pairs: Sequence[tuple[int, int]],
) -> Move:
    """Cut free digits by idle atoms; slices of one dim are joined."""
    result = list(steps)
    for digit, atom in pairs:
        groups, g = _front_of(state.groups, digit)
        result += shuffle(problem.sizes, state.groups, groups)
        axes = problem.axes([atom])
        last = result[-1] if result else None
        if isinstance(last, Slice) and last.dim == g:
            result[-1] = Slice(g, last.axes + axes)
        else:
            result.append(Slice(g, axes))
        state = State(
            _replace(state.cut, [(digit, atom)]), state.owed, without(groups, [digit])
        )
    return tuple(result), state


def _front_of(groups: Groups, digit: int) -> tuple[Groups, int]:
    spot = find_run(groups, [digit])
    assert spot is not None, "a free digit lies in some group"
    return split_at(groups, spot)


def _replace(cut: Sequence[int], changes: Sequence[tuple[int, int]]) -> tuple[int, ...]:
    result = list(cut)
    for digit, atom in changes:
        result[digit] = atom
    return tuple(result)


# All-to-all ---------------------------------------------------------------


def all_to_alls(problem: Problem, state: State) -> Iterator[Move]:
    """Bring atoms straight to where the target wants them, jointly and apart."""
    goal = wanted(problem)
    ready = [
        (digit, goal[atom])
        for digit, atom in enumerate(state.cut)
        if atom in goal and goal[atom] != digit and state.cut[goal[atom]] == FREE
    ]
    if not ready:
        return
    runs = list(_runs(problem, state, ready))
    for run in runs:
        yield all_to_all(problem, state, run)
    if len(runs) > 1:
        yield all_to_all(problem, state, ready)
        by_split = sorted(ready, key=lambda pair: pair[1])
        if by_split != ready:
            yield all_to_all(problem, state, by_split)


def _runs(
    problem: Problem, state: State, pairs: Sequence[tuple[int, int]]
) -> Iterator[list[tuple[int, int]]]:
    """Longest runs that one all-to-all serves without a transpose."""
    run: list[tuple[int, int]] = []
    for pair in pairs:
        longer = [*run, pair]
        split, concat = [j for _, j in longer], [i for i, _ in longer]
        fits = find_run(state.groups, split) is not None
        if run and not (fits and place_run(problem, state.groups, concat)):
            yield run
            longer = [pair]
        run = longer
    yield run


def all_to_all(
    problem: Problem, state: State, pairs: Sequence[tuple[int, int]]
) -> Move:
    """Free the first digit of each pair and cut the second, over the same atom."""
    concat, split = [i for i, _ in pairs], [j for _, j in pairs]
    atoms = [state.cut[i] for i in concat]
    groups = state.groups
    spot = find_run(groups, split)
    if spot is None:
        groups, g = ((FRONT, tuple(split)), *without(groups, split)), 0
    else:
        groups, g = split_at(groups, spot)
    groups, after, g, c = _open_for(problem, groups, g, split, concat)
    local = shuffle(problem.sizes, state.groups, groups)
    step = AllToAll(g, c, problem.axes(atoms))
    cut = _replace(state.cut, [(i, FREE) for i in concat])
    cut = _replace(cut, list(zip(split, atoms, strict=True)))
    return settle(
        problem, (*local, step), State(cut, state.owed, put(after, c, concat))
    )


def _open_for(
    problem: Problem,
    groups: Groups,
    g: int,
    split: Sequence[int],
    concat: Sequence[int],
) -> tuple[Groups, Groups, int, int]:
    """Make room for `concat`: groups before and after, split dim and concat dim."""
    after = without(groups, split)
    spot = place_run(problem, after, concat)
    if spot is None and after[g] == (FRONT, ()):
        return groups, after, g, g
    if spot is None:
        front = ((FRONT, ()),)
        return front + groups, front + after, g + 1, 0
    c, p = spot
    if p == 0:
        return groups, after, g, c
    before, _ = split_at(groups, (c, p + len(split) if c == g else p))
    after, _ = split_at(after, spot)
    return before, after, g + (c < g), c + 1


# Gather -------------------------------------------------------------------


def all_gathers(problem: Problem, state: State) -> Iterator[Move]:
    """Free digits from atoms that the target does not use, jointly and apart."""
    goal = wanted(problem)
    ready = [d for d, atom in enumerate(state.cut) if atom != FREE and atom not in goal]
    runs: list[list[int]] = []
    for digit in ready:
        if runs and place_run(problem, state.groups, [*runs[-1], digit]) is not None:
            runs[-1].append(digit)
        else:
            runs.append([digit])
    for run in runs:
        yield all_gather(problem, state, run)
    if len(runs) > 1:
        yield all_gather(problem, state, ready)


def all_gather(problem: Problem, state: State, digits: Sequence[int]) -> Move:
    """Free the digits by one gather over all their atoms."""
    spot = place_run(problem, state.groups, digits)
    if spot is None:
        groups, g = ((FRONT, ()), *state.groups), 0
    elif spot[1] == 0:
        groups, g = state.groups, spot[0]
    else:
        groups, g = split_at(state.groups, spot)
    local = shuffle(problem.sizes, state.groups, groups)
    step = AllGather(g, problem.axes(state.cut[d] for d in digits))
    cut = _replace(state.cut, [(d, FREE) for d in digits])
    return settle(
        problem, (*local, step), State(cut, state.owed, put(groups, g, digits))
    )


# Reduce -------------------------------------------------------------------


def reductions(problem: Problem, state: State) -> Iterator[Move]:
    """Reduce what is owed: scattered onto a digit, or whole.

    Reducers do not commute with each other, so those listed first go first.
    """
    if not state.owed:
        return
    reducers = dict(problem.owed)
    reducer = next(r for a, r in problem.owed if a in state.owed)
    ready = [a for a in state.owed if reducers[a] == reducer]
    goal = wanted(problem)
    yield _all_reduce(problem, state, ready, reducer)
    lost = [a for a in ready if a not in goal]
    if lost and lost != ready:
        yield _all_reduce(problem, state, lost, reducer)
    scatter = sorted((goal[a], a) for a in ready if a in goal)
    scatter = [(j, a) for j, a in scatter if state.cut[j] == FREE]
    run: list[tuple[int, int]] = []
    for pair in scatter:
        longer = [*run, pair]
        if run and find_run(state.groups, [j for j, _ in longer]) is None:
            yield _reduce_scatter(problem, state, run, reducer)
            longer = [pair]
        run = longer
    if run:
        yield _reduce_scatter(problem, state, run, reducer)
    for atom in ready:
        yield from _scatter_aside(problem, state, atom, reducer, goal)


def _scatter_aside(
    problem: Problem, state: State, atom: int, reducer: str, goal: dict[int, int]
) -> Iterator[Move]:
    """Scatter onto a digit that the target cuts by another atom, to permute later."""
    for j, digit in enumerate(problem.digits):
        fits = digit.size == problem.atoms[atom].size and state.cut[j] == FREE
        if fits and digit.target not in (FREE, atom) and goal.get(atom) != j:
            yield _reduce_scatter(problem, state, [(j, atom)], reducer)


def _reduce_scatter(
    problem: Problem, state: State, pairs: Sequence[tuple[int, int]], reducer: str
) -> Move:
    digits = [j for j, _ in pairs]
    spot = find_run(state.groups, digits)
    assert spot is not None, "the digits lie side by side"
    groups, g = split_at(state.groups, spot)
    local = shuffle(problem.sizes, state.groups, groups)
    step = ReduceScatter(g, problem.axes(a for _, a in pairs), reducer)
    owed = tuple(a for a in state.owed if a not in {a for _, a in pairs})
    after = State(_replace(state.cut, pairs), owed, without(groups, digits))
    return settle(problem, (*local, step), after)


def _all_reduce(
    problem: Problem, state: State, atoms: Sequence[int], reducer: str
) -> Move:
    owed = tuple(a for a in state.owed if a not in atoms)
    step = AllReduce(problem.axes(atoms), reducer)
    return settle(problem, (step,), State(state.cut, owed, state.groups))


# Permute ------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, slots=True)
class Rearrangement:
    """What one permute can do, and what is left for all-to-alls after it.

    `fills` are slices that lend an idle atom to a free digit first, `cut` where
    the permute puts the atoms, `wraps` the (digit to free, digit to cut) that
    remain, whose atom is then in place for it.
    """

    fills: tuple[tuple[int, int], ...]
    cut: tuple[int, ...]
    wraps: tuple[tuple[int, int], ...]


def rearrangement(problem: Problem, state: State) -> Rearrangement:
    """Follow the chains and rings of atoms from every idle atom and free end."""
    goal = wanted(problem)

    def first(digit: int, cut: Sequence[int]) -> tuple[int, int]:
        """Walk towards the start of the digit's chain: its atom and digit."""
        atom = cut[digit]
        while True:
            before = goal.get(atom, FREE)
            if before == FREE or cut[before] == FREE:
                return atom, before
            atom = cut[before]

    fills: list[tuple[int, int]] = []
    for atom, digit in goal.items():
        if state.is_idle(atom) and state.cut[digit] != FREE:
            _, free = first(digit, state.cut)
            if free != FREE:
                fills.append((free, atom))
    cut = _replace(state.cut, fills)
    new = list(cut)
    wraps: list[tuple[int, int]] = []
    for i, digit in enumerate(problem.digits):
        if cut[i] == FREE:
            continue
        if digit.target != FREE and digit.target not in state.owed:
            new[i] = digit.target
            continue
        new[i], free = first(i, cut)
        if free != FREE:
            wraps.append((i, free))
    return Rearrangement(tuple(fills), tuple(new), tuple(wraps))


def permute(problem: Problem, state: State) -> Iterator[Move]:
    """Put all atoms where the target wants them that one permute can."""
    plan = rearrangement(problem, state)
    steps, filled = slices(problem, (), state, plan.fills)
    if plan.cut == filled.cut:
        return
    step = permutation(problem, filled.cut, plan.cut)
    after = State(plan.cut, state.owed, filled.groups)
    yield settle(problem, (*steps, step), after)


def senders(
    problem: Problem, old: Sequence[int], new: Sequence[int], also: Sequence[int] = ()
) -> tuple[list[int], dict[int, int]]:
    """The atoms over which devices exchange, and whose coordinate a sender has.

    In the map, x -> y says that the sender's coordinate along x is the target's
    along y. Atoms that cut nothing before, or nothing after, make up the rest.
    """
    feeds = {o: n for o, n in zip(old, new, strict=True) if o != n}
    atoms = sorted({*feeds, *feeds.values(), *also})

    def by_size(atom: int) -> int:
        return problem.atoms[atom].size

    spare = sorted((a for a in atoms if a not in feeds and a not in also), key=by_size)
    taken = set(feeds.values())
    loose = sorted((a for a in atoms if a not in taken and a not in also), key=by_size)
    feeds.update(zip(spare, loose, strict=True))
    for atom in also:
        feeds.setdefault(atom, atom)
    return atoms, feeds


def permutation(problem: Problem, old: Sequence[int], new: Sequence[int]) -> Permute:
    """The permute that takes each digit from its old atom to its new one."""
    atoms, feeds = senders(problem, old, new)
    sizes = [problem.atoms[a].size for a in atoms]
    at = dict(zip(atoms, np.indices(sizes).reshape(len(sizes), -1), strict=True))
    source = np.ravel_multi_index([at[feeds[a]] for a in atoms], sizes)
    pairs = zip(source.tolist(), range(len(source)), strict=True)
    return Permute(problem.axes(atoms), tuple(pairs))
