"""The public verbs that join rooms: plan a function, explain, lower, verify it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
from jax.sharding import NamedSharding

from shardwright.capture import (
    Traced,
    program_from_function,
    program_from_target,
    to_partition_spec,
)
from shardwright.errors import PlanError
from shardwright.insight import (
    Row,
    explain,
    plan_to_dict,
    table,
)
from shardwright.insight import compare as compare_program
from shardwright.lowering import partitioned_text
from shardwright.placement import Plan, place
from shardwright.runtime.jit import Jitted, bind_plan, resolve_topology
from shardwright.runtime.verify import Verification
from shardwright.runtime.verify import verify as verify_plan
from shardwright.topology import Topology, preset


@dataclasses.dataclass(frozen=True)
class Lowered:
    """The per-device program of a plan. Call it on arrays, or read it as text."""

    planned: Planned

    def as_text(self, emit: str = "stablehlo") -> str:
        """The module that each device runs, as "hlo" or "stablehlo"."""
        return partitioned_text(self.planned.plan, emit)

    @property
    def in_shardings(self) -> list[NamedSharding]:
        """Sharding of each flat input, on the function's mesh."""
        return self._shardings(self.planned.plan.inputs)

    @property
    def out_shardings(self) -> list[NamedSharding]:
        """Sharding of each flat output, on the function's mesh."""
        return self._shardings(self.planned.plan.outputs)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run on arrays; needs a mesh of real devices."""
        traced = self.planned.traced
        if traced is None or traced.mesh is None:
            raise PlanError("this plan comes from a file; use verify to run it")
        run = jax.jit(bind_plan(traced, self.planned.plan))
        return run(*jax.tree.leaves((args, kwargs)))

    def _shardings(self, layouts: tuple[Any, ...]) -> list[NamedSharding]:
        traced = self.planned.traced
        if traced is None or traced.mesh is None:
            raise PlanError("this plan comes from a file; it has no JAX mesh")
        return [NamedSharding(traced.mesh, to_partition_spec(x)) for x in layouts]


@dataclasses.dataclass(frozen=True)
class Planned:
    """A plan with what was planned; see `plan.Plan` for the figures."""

    plan: Plan
    traced: Traced | None = None

    def explain(self) -> str:
        """The plan in words: layouts, moves with prices, and why."""
        return explain(self.plan)

    def to_dict(self) -> dict[str, Any]:
        """The same facts as JSON-ready data."""
        return plan_to_dict(self.plan)

    def lower(self) -> Lowered:
        """The program that each device runs."""
        return Lowered(self)

    def __str__(self) -> str:
        return self.explain()


def plan(
    fun: Callable[..., Any] | str,
    *args: Any,
    topology: Topology | str | None = None,
    placement: str = "optimal",
    **kwargs: Any,
) -> Planned:
    """Plan a function for arguments, or a file; no device is needed.

    Arguments are arrays or `jax.ShapeDtypeStruct`s with shardings. `fun` may be
    a plain function, a `jax.jit`ted or `sw.jit`ted one, or the path of an HLO or
    StableHLO file. `topology` names a preset, by default that of the devices.
    """
    if isinstance(fun, str):
        program = program_from_target(fun)
        machine = _machine(topology, program.mesh.num_devices)
        return Planned(place(program, machine, placement))
    traced = _trace(fun, args, kwargs)
    machine = resolve_topology(topology, traced.mesh)
    return Planned(place(traced.program, machine, placement), traced)


def verify(planned: Planned, *, seed: int = 0) -> Verification:
    """Run the plan against the unpartitioned program on random inputs.

    Raises VerificationError where a result differs.
    """
    return verify_plan(planned.plan, seed=seed)


def compare(
    fun: Callable[..., Any] | str,
    *args: Any,
    topology: Topology | str | None = None,
    **kwargs: Any,
) -> list[Row]:
    """What each device receives under our placements and under XLA's partitioners."""
    planned = plan(fun, *args, topology=topology, placement="shardy", **kwargs)
    rows = compare_program(planned.plan.program, planned.plan.topology, jax.devices())
    widths = [max(map(len, column)) for column in zip(*table(rows), strict=True)]
    for row in table(rows):
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=True)]
        print("  ".join(cells).rstrip())
    return rows


def _trace(
    fun: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Traced:
    if isinstance(fun, Jitted):
        traced = fun.traced(*args, **kwargs)
    else:
        jitted = fun if hasattr(fun, "trace") else jax.jit(fun, keep_unused=True)
        traced = program_from_function(jitted, args, kwargs)
    if traced.mesh is None:
        raise PlanError(
            "nothing to plan: give arguments with NamedShardings (arrays or "
            "jax.ShapeDtypeStructs), or constraints inside the function"
        )
    return traced


def _machine(topology: Topology | str | None, num_devices: int) -> Topology:
    if isinstance(topology, Topology):
        return topology
    return preset(topology or f"cpu-{num_devices}")
