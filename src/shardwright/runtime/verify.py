"""Run the partitioned program on devices against the unpartitioned one."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from shardwright.capture import to_partition_spec
from shardwright.errors import PlanError, VerificationError
from shardwright.jaxlib_bindings import (
    module_bytes,
    parse_module,
)
from shardwright.lowering import lower
from shardwright.mlir import (
    strip_shardings,
)
from shardwright.placement import Plan
from shardwright.program import Program, TensorType
from shardwright.runtime.call import sharded_call
from shardwright.runtime.dtypes import jax_dtype

_ULPS = 64
"""Rounding steps of the result's scale that a reordered sum may cost."""


@dataclasses.dataclass(frozen=True, slots=True)
class ResultCheck:
    """One result: its type, the largest difference, and what is allowed."""

    type: str
    max_difference: float
    allowed: float

    @property
    def is_equal(self) -> bool:
        return self.max_difference <= self.allowed


@dataclasses.dataclass(frozen=True, slots=True)
class Verification:
    """The outcome for all results of one program on random inputs."""

    num_devices: int
    results: tuple[ResultCheck, ...]

    def __str__(self) -> str:
        lines = [f"verified on {self.num_devices} devices"]
        for i, result in enumerate(self.results):
            state = "equal" if result.is_equal else "DIFFERENT"
            lines.append(
                f"  result {i} {result.type}: {state}, largest difference "
                f"{result.max_difference:.3g} (allowed {result.allowed:.3g})"
            )
        return "\n".join(lines)


def verify(plan: Plan, *, seed: int = 0) -> Verification:
    """Run plan and program on the same random inputs and compare all results.

    Integers, predicates and moved floats must be equal; floats may differ by
    rounding (64 ulps of the result's largest value). Raises VerificationError
    where a result differs, PlanError where too few devices are there.
    """
    program = plan.program
    count = program.mesh.num_devices
    devices = jax.devices()
    if len(devices) < count:
        raise PlanError(
            f"the program needs {count} devices, there are {len(devices)}; on the CPU "
            f"set XLA_FLAGS=--xla_force_host_platform_device_count={count}"
        )
    rng = np.random.default_rng(seed)
    inputs = [_random(rng, program.values[v]) for v in program.inputs]
    want = _run_whole(program, inputs, devices[0])
    got = run_partitioned(plan, inputs, devices[:count])
    checks = tuple(
        _compare(program.values[v], a, b)
        for v, a, b in zip(program.outputs, want, got, strict=True)
    )
    outcome = Verification(count, checks)
    if not all(check.is_equal for check in checks):
        raise VerificationError(str(outcome))
    return outcome


def run_partitioned(
    plan: Plan, inputs: list[np.ndarray], devices: Sequence[Any]
) -> list[jax.Array]:
    """Run the per-device program on whole arrays, cut as the plan says."""
    program = plan.program
    mesh = _mesh(plan, devices)
    in_specs = tuple(map(to_partition_spec, plan.inputs))
    out_specs = tuple(map(to_partition_spec, plan.outputs))
    tiles = tuple(
        (layout.tile_shape(program.values[v].shape), program.values[v].dtype)
        for v, layout in zip(program.outputs, plan.outputs, strict=True)
    )
    call = sharded_call(module_bytes(lower(plan)), mesh, in_specs, out_specs, tiles)
    placed = [
        jax.device_put(x, NamedSharding(mesh, spec))
        for x, spec in zip(inputs, in_specs, strict=True)
    ]
    return list(jax.jit(call)(*placed))


def _mesh(plan: Plan, devices: Sequence[Any]) -> Mesh:
    mesh = plan.program.mesh
    order = [mesh.device_id(p) for p in range(mesh.num_devices)]
    grid = np.array([devices[i] for i in order], dtype=object).reshape(mesh.sizes)
    return Mesh(grid, mesh.names)


def _run_whole(
    program: Program, inputs: list[np.ndarray], device: Any
) -> list[jax.Array]:
    module = parse_module(module_bytes(program.source.module))
    strip_shardings(module)
    tiles = tuple(
        (program.values[v].shape, program.values[v].dtype) for v in program.outputs
    )
    mesh = Mesh(np.array([device]), ("one",))
    specs = (PartitionSpec(),)
    call = sharded_call(
        module_bytes(module), mesh, specs * len(inputs), specs * len(tiles), tiles
    )
    placed = [jax.device_put(x, NamedSharding(mesh, PartitionSpec())) for x in inputs]
    return list(jax.jit(call)(*placed))


def _random(rng: np.random.Generator, type_: TensorType) -> np.ndarray:
    dtype = jax_dtype(type_.dtype)
    if jnp.issubdtype(dtype, jnp.bool_):
        return rng.integers(0, 2, type_.shape).astype(bool)
    if jnp.issubdtype(dtype, jnp.integer):
        return rng.integers(0, 7, type_.shape).astype(dtype)
    if jnp.issubdtype(dtype, jnp.complexfloating):
        real, imaginary = rng.standard_normal((2, *type_.shape), np.float32)
        return (real + 1j * imaginary).astype(dtype)
    return rng.standard_normal(type_.shape, np.float32).astype(dtype)


def _compare(type_: TensorType, want: jax.Array, got: jax.Array) -> ResultCheck:
    a, b = np.asarray(want), np.asarray(got)
    if a.shape != b.shape or a.dtype != b.dtype:
        raise VerificationError(
            f"a result should be {type_}; it came out as {b.dtype}{list(b.shape)}"
        )
    if not jnp.issubdtype(a.dtype, jnp.inexact):
        return ResultCheck(str(type_), float(np.count_nonzero(a != b)), 0.0)
    if a.size == 0:
        return ResultCheck(str(type_), 0.0, 0.0)
    wide = np.complex128 if np.iscomplexobj(a) else np.float64
    a, b = a.astype(wide), b.astype(wide)
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    difference = np.abs(np.where(same, 0, a - b))
    scale = np.abs(np.where(np.isfinite(a), a, 0)).max()
    allowed = _ULPS * float(jnp.finfo(want.dtype).eps) * float(scale)
    worst = np.inf if np.isnan(difference).any() else float(difference.max())
    return ResultCheck(str(type_), worst, allowed)
