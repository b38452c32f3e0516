"""Edge colouring: the fewest rounds in which nobody sends or receives twice.

Konig (1916): the edges of a bipartite multigraph can be coloured with as many
colours as its largest degree. Each edge takes a colour free at its sender; where
that is taken at its receiver, the path that alternates between it and a colour
free at the receiver is swapped first.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Protocol, TypeVar

Edge = tuple[int, int]


class Message(Protocol):
    """Something that one member sends another, or keeps."""

    @property
    def sender(self) -> int: ...
    @property
    def receiver(self) -> int: ...


M = TypeVar("M", bound=Message)


def max_degree(edges: Sequence[Edge]) -> int:
    """Most edges at any one sender or receiver."""
    sends: dict[int, int] = {}
    receives: dict[int, int] = {}
    for s, t in edges:
        sends[s] = sends.get(s, 0) + 1
        receives[t] = receives.get(t, 0) + 1
    return max([0, *sends.values(), *receives.values()])


def colour_edges(edges: Sequence[Edge]) -> list[int]:
    """A colour for each (sender, receiver), `max_degree` colours in all."""
    degree = max_degree(edges)
    sender: dict[int, list[int | None]] = {s: [None] * degree for s, _ in edges}
    receiver: dict[int, list[int | None]] = {t: [None] * degree for _, t in edges}
    colours = [0] * len(edges)
    for e, (s, t) in enumerate(edges):
        a = sender[s].index(None)
        if receiver[t][a] is not None:
            b = receiver[t].index(None)
            _swap(edges, colours, sender, receiver, (t, a, b))
        colours[e] = a
        sender[s][a] = receiver[t][a] = e
    return colours


def _swap(
    edges: Sequence[Edge],
    colours: list[int],
    sender: dict[int, list[int | None]],
    receiver: dict[int, list[int | None]],
    start: tuple[int, int, int],
) -> None:
    """Exchange colours a and b along the path from receiver t that begins with a."""
    t, a, b = start
    path: list[int] = []
    table, node, colour = receiver, t, a
    while (edge := table[node][colour]) is not None:
        path.append(edge)
        s, t = edges[edge]
        table, node = (sender, s) if table is receiver else (receiver, t)
        colour = b if colour == a else a
    for edge in path:
        s, t = edges[edge]
        sender[s][colours[edge]] = receiver[t][colours[edge]] = None
    for edge in path:
        s, t = edges[edge]
        colours[edge] = b if colours[edge] == a else a
        sender[s][colours[edge]] = receiver[t][colours[edge]] = edge


def in_rounds(messages: Sequence[M]) -> list[list[M]]:
    """Rounds in which each member sends once and receives once, local ones first.

    What stays travels in rounds that its member has no part in, where it costs no copy
    of its own; the rest of it is put in rounds without any moves.
    """
    moving = [p for p in messages if p.sender != p.receiver]
    colours = colour_edges([(p.sender, p.receiver) for p in moving])
    rounds: list[list[M]] = [[] for _ in range(max(colours, default=-1) + 1)]
    for p, colour in zip(moving, colours, strict=True):
        rounds[colour].append(p)
    busy = [{m for p in chosen for m in (p.sender, p.receiver)} for chosen in rounds]
    local: list[list[M]] = []
    count: defaultdict[int, int] = defaultdict(int)
    for p in (p for p in messages if p.sender == p.receiver):
        free = (i for i, members in enumerate(busy) if p.sender not in members)
        spot = next(free, None)
        if spot is not None:
            rounds[spot].append(p)
            busy[spot].add(p.sender)
            continue
        if count[p.sender] == len(local):
            local.append([])
        local[count[p.sender]].append(p)
        count[p.sender] += 1
    return local + rounds
