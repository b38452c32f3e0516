"""What each peer does with a problem: Shardy's pass, and XLA's two partitioners."""

from __future__ import annotations

import dataclasses
import json
import math
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from typing import Any

from reshards.modules import partial_axes, shardy_module, xla_module
from reshards.problems import Problem
from shardwright.insight import hlo_cost
from shardwright.program import (
    AllGather,
    AllReduce,
    AllToAll,
    Layout,
    Mesh,
    Permute,
    ReduceScatter,
    Shuffle,
    Slice,
    Step,
    SubAxis,
    count_collectives,
    step_result_shape,
    tile_bytes,
    ways,
)
from shardwright.topology import (
    Topology,
    copy_seconds,
    next_seconds,
    schedule_bytes,
)

PEERS = ("pass", "gspmd", "shardy")
"""Shardy's own pass; XLA with GSPMD; XLA with Shardy."""


@dataclasses.dataclass(frozen=True)
class Answer:
    """A peer's plan, or why there is none: "abort", "refused" or "other layout"."""

    status: str
    bytes_received: int = 0
    collectives: int = 0
    peak_bytes: int = 0
    seconds: dict[str, float] = dataclasses.field(default_factory=dict)
    rematerialized: bool = False
    note: str = ""


class PeerProcess:
    """The process that runs the peers; started again when it dies."""

    def __init__(self) -> None:
        handle, self._log = tempfile.mkstemp()
        os.close(handle)
        self._start()

    def _start(self) -> None:
        here = os.path.dirname(os.path.abspath(__file__))
        self._process = subprocess.Popen(
            [sys.executable, os.path.join(here, "peer_process.py"), self._log],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def _ask(self, request: dict[str, Any]) -> dict[str, Any] | None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        except BrokenPipeError:
            line = ""
        if line:
            return json.loads(line)
        self._process.wait()
        self._start()
        return None

    def answer(
        self, problem: Problem, peer: str, machines: Sequence[Topology]
    ) -> Answer:
        """What the peer plans, priced on each machine."""
        ask = shardy_module if peer == "pass" else lambda p: xla_module(p, peer)
        request = {
            "peer": peer,
            "module": ask(problem),
            "devices": problem.num_devices,
        }
        found = self._ask(request)
        if found is None:
            return Answer("abort")
        if "error" in found:
            return Answer("refused", note=found["error"])
        if peer == "pass":
            return _of_steps(problem, found["steps"], machines)
        return _of_hlo(problem, found, machines)


def _of_hlo(
    problem: Problem, found: dict[str, Any], machines: Sequence[Topology]
) -> Answer:
    hlo = found["hlo"]
    head = hlo.split("\n", 1)[0].replace(" ", "")
    tile = ",".join(map(str, problem.target.tile_shape(problem.shape)))
    kept = "1," if problem.target.partial else ""
    begin = _tile_in_front(problem)
    if f"(f32[{begin}]" not in head or f"->f32[{kept}{tile}]" not in head:
        return Answer("other layout", note=head[:200])
    costs = {m.name: hlo_cost(hlo, problem.num_devices, m) for m in machines}
    cost = costs[machines[0].name]
    return Answer(
        "planned",
        cost.bytes_received,
        cost.collectives,
        cost.peak_bytes,
        {name: c.seconds for name, c in costs.items()},
        found["rematerialized"],
    )


def _tile_in_front(problem: Problem) -> str:
    """The tile that goes in, its partial dims in front, one element of each."""
    kept, owed = partial_axes(problem)
    front = [1] * (bool(kept) + bool(owed))
    return ",".join(map(str, (*front, *problem.source.tile_shape(problem.shape))))


def _of_steps(
    problem: Problem, ops: Sequence[tuple[str, str, bool]], machines: Sequence[Topology]
) -> Answer:
    mesh = problem.target.mesh
    steps: list[tuple[Step, Mesh]] = []
    before = problem.source.without_partial()
    for name, text, is_other in ops:
        after = Layout.parse(mesh if is_other else problem.source.mesh, text)
        if not (before.is_even(problem.shape) and after.is_even(problem.shape)):
            return Answer("refused", note="its collectives do not say how to pad")
        found = to_steps(name, before, after, problem.shape)
        steps += [(step, after.mesh) for step in found]
        before = after
    steps = _reducing(problem, steps)
    tile = problem.source.tile_shape(problem.shape)
    received = schedule_bytes([step for step, _ in steps], tile, "f32")
    peak = tile_bytes(tile, "f32")
    seconds = {m.name: _seconds(m, steps, tile) for m in machines}
    for step, _ in steps:
        tile = step_result_shape(step, tile)
        peak = max(peak, tile_bytes(tile, "f32"))
    count = sum(count_collectives(step) for step, _ in steps)
    return Answer("planned", received, count, peak, seconds)


def _seconds(
    machine: Topology, steps: Sequence[tuple[Step, Mesh]], tile: tuple[int, ...]
) -> float:
    """Seconds of steps whose groups lie on meshes of their own."""
    total, pending = 0.0, False
    for step, mesh in steps:
        more, pending = next_seconds(machine, mesh, step, tile, "f32", pending)
        total += more
        tile = step_result_shape(step, tile)
    return total + (copy_seconds(machine, tile, "f32") if pending else 0.0)


def _reducing(
    problem: Problem, steps: list[tuple[Step, Mesh]]
) -> list[tuple[Step, Mesh]]:
    """An all-reduce in front, or a reduce-scatter where a slice of its axes follows."""
    kept = [axis for axis, _ in problem.target.partial]
    owed = [entry for entry in problem.source.partial if entry[0] not in kept]
    if not owed:
        return steps
    axes, reducer = tuple(axis for axis, _ in owed), owed[0][1]
    first = steps[0][0] if steps else None
    mesh = problem.source.mesh
    if isinstance(first, Slice) and set(first.axes) == set(axes):
        scatter = ReduceScatter(first.dim, first.axes, reducer)
        return [(scatter, mesh), *steps[1:]]
    return [(AllReduce(axes, reducer), mesh), *steps]


# Shardy's collectives as steps ----------------------------------------------------


def to_steps(
    name: str, before: Layout, after: Layout, shape: tuple[int, ...]
) -> Iterator[Step]:
    """One of Shardy's collectives in our terms, for counting and pricing alone."""
    lost = [_difference(b, a) for b, a in zip(before.dims, after.dims, strict=True)]
    won = [_difference(a, b) for b, a in zip(before.dims, after.dims, strict=True)]
    match name:
        case "sdy.all_slice":
            for dim, axes in enumerate(won):
                if axes:
                    yield Slice(dim, axes)
        case "sdy.all_gather":
            dims = [d for d, axes in enumerate(lost) if axes]
            yield AllGather(dims[0], sum(lost, ()))
            if len(dims) > 1:  # chunks of one gather over several dims are put in place
                yield _joined(after.tile_shape(shape))
        case "sdy.all_to_all":
            axes = sum(lost, ())
            dims = [[d for d, a in enumerate(side) if a] for side in (lost, won)]
            yield AllToAll(dims[1][0], dims[0][0], axes)
        case "sdy.collective_permute":
            yield Permute(before.mesh.whole_axes(), _senders(before, after, shape))
        case _:
            raise ValueError(f"unknown collective {name}")


def _senders(
    before: Layout, after: Layout, shape: tuple[int, ...]
) -> tuple[tuple[int, int], ...]:
    """Each device is sent its new tile by a holder, by itself where it has it.

    Devices are named by where they stand on the new mesh.
    """
    everyone = range(before.mesh.num_devices)
    devices = [after.mesh.device_id(p) for p in everyone]
    held = [before.tile_box(shape, before.mesh.position_of(d)) for d in devices]
    wanted = [after.tile_box(shape, p) for p in everyone]
    spare: dict[Any, list[int]] = {}
    for p in everyone:
        if held[p] != wanted[p]:
            spare.setdefault(held[p], []).append(p)
    return tuple(
        (p if held[p] == box else spare[box].pop(0), p) for p, box in enumerate(wanted)
    )


def _joined(tile: tuple[int, ...]) -> Step:
    """A transpose of the tile, for its price alone."""
    return Shuffle((tile[0], math.prod(tile[1:])), (1, 0), tile)


def _difference(
    one: tuple[SubAxis, ...], other: tuple[SubAxis, ...]
) -> tuple[SubAxis, ...]:
    """Axes past what the shorter, common prefix holds."""
    total, common = ways(one), ways(other)
    if total <= common:
        return ()
    left, found = common, []
    for axis in one:
        if left >= axis.size:
            left //= axis.size
            continue
        found.append(SubAxis(axis.name, axis.size // left, axis.pre * left))
        left = 1
    return tuple(found)
