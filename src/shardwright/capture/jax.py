"""JAX function -> Program: traced and lowered by JAX, then read as StableHLO."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
from jax.sharding import AbstractMesh, Mesh, NamedSharding

from shardwright.capture.stablehlo import program_from_module
from shardwright.errors import InputError
from shardwright.jaxlib_bindings import (
    jaxpr_shardings,
    module_bytes,
    parse_module,
    sharding_of,
)
from shardwright.program import Program

AnyMesh = Mesh | AbstractMesh


@dataclasses.dataclass(frozen=True)
class Traced:
    """A function traced by JAX for some arguments, and read as a Program.

    `mesh` is the mesh of its shardings, None where it has none. `in_tree` is
    the tree of (args, kwargs) without static ones, `in_avals` its leaves' types.
    """

    program: Program
    mesh: AnyMesh | None
    in_tree: Any
    in_avals: tuple[Any, ...]
    out_info: Any


def program_from_function(
    jitted: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    *,
    shardings: tuple[Any, ...] = (),
    keep_op_shardings: bool = False,
) -> Traced:
    """Trace `jitted` (a `jax.jit` with keep_unused) and read it as a Program.

    Arguments may be arrays or `jax.ShapeDtypeStruct`s with shardings, on a
    concrete or an abstract mesh; no device is needed for the latter.
    `shardings` are further trees in which to look for the mesh. Raises
    InputError where the shardings name several meshes.
    """
    traced = jitted.trace(*args, **kwargs)
    mesh = find_mesh((args, kwargs, *shardings), traced.jaxpr)
    if isinstance(mesh, AbstractMesh):
        lowered = traced.lower(lowering_platforms=(jax.default_backend(),))
    else:
        lowered = traced.lower()
    module = parse_module(module_bytes(lowered.compiler_ir("stablehlo")))
    program = program_from_module(
        module,
        num_devices=None if mesh is None else mesh.size,
        explicit=mesh is not None and _is_explicit(mesh),
        keep_op_shardings=keep_op_shardings,
    )
    avals = tuple(traced.jaxpr.in_avals)
    return Traced(program, mesh, lowered.in_tree, avals, lowered.out_info)


def find_mesh(trees: Any, jaxpr: Any = None) -> AnyMesh | None:
    """The one mesh that shardings in the trees and in the jaxpr use.

    A concrete mesh is taken before an abstract one of the same shape.
    """
    leaves = jax.tree.leaves(trees, is_leaf=lambda x: isinstance(x, NamedSharding))
    found: dict[AnyMesh, None] = {}
    for leaf in leaves:
        sharding = leaf if isinstance(leaf, NamedSharding) else _sharding_of(leaf)
        if isinstance(sharding, NamedSharding) and sharding.mesh.size:
            found[sharding.mesh] = None
    for sharding in jaxpr_shardings(jaxpr) if jaxpr is not None else ():
        if sharding.mesh.size:
            found[sharding.mesh] = None
    concrete = [mesh for mesh in found if isinstance(mesh, Mesh)]
    abstract = [mesh for mesh in found if not isinstance(mesh, Mesh)]
    for other in concrete[1:]:
        if other.devices.tolist() != concrete[0].devices.tolist() or (
            other.axis_names != concrete[0].axis_names
        ):
            raise InputError(
                f"the arguments and constraints use two meshes, {concrete[0]} and "
                f"{other}; put all of them on one"
            )
    return next(iter(concrete or abstract), None)


def _sharding_of(leaf: Any) -> Any:
    if isinstance(leaf, jax.core.Tracer):
        return None
    return sharding_of(leaf)


def _is_explicit(mesh: AnyMesh) -> bool:
    return any(t == jax.sharding.AxisType.Explicit for t in mesh.axis_types)


def example_function(target: str) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """Resolve `package.module:name`, a callable that returns (function, *args)."""
    import importlib

    module_name, _, name = target.partition(":")
    try:
        module = importlib.import_module(module_name)
        made = getattr(module, name)()
    except Exception as error:
        raise InputError(f"{type(error).__name__}: {error}") from error
    if not isinstance(made, tuple) or not made or not callable(made[0]):
        raise InputError(
            f"{name} must be a function without arguments that returns a tuple "
            "(function, *arguments); the arguments may be jax.ShapeDtypeStructs"
        )
    return made[0], made[1:]
