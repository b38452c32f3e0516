"""`jit`: jax.jit's signature; the plan decides layouts, JAX compiles and runs."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Hashable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from shardwright.capture import Traced, program_from_function, to_partition_spec
from shardwright.errors import PlanError
from shardwright.jaxlib_bindings import (
    is_staged,
    key_impl,
    module_bytes,
    sharding_of,
)
from shardwright.lowering import lower
from shardwright.placement import Plan, place
from shardwright.program import Layout
from shardwright.runtime.call import sharded_call
from shardwright.topology import Topology, for_platform, preset


class Jitted:
    """A function that is planned once per kind of arguments, then run by JAX.

    Made by `jit`; called like the function itself. `plan(*args)` gives the
    plan, `lower(*args)` what `jax.jit(...).lower` gives, for the planned program.
    """

    def __init__(
        self,
        fun: Callable[..., Any],
        topology: Topology | str | None,
        placement: str,
        options: dict[str, Any],
    ) -> None:
        functools.update_wrapper(self, fun)
        self._fun = fun
        self._topology = topology
        self._placement = placement
        self._options = options
        self._jitted = jax.jit(fun, **{**options, "keep_unused": True})
        self._static = _static_positions(fun, options)
        self._planned: dict[Hashable, tuple[Plan | None, Any]] = {}

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        tracers = (
            x for x in jax.tree.leaves((args, kwargs)) if isinstance(x, jax.core.Tracer)
        )
        if not all(map(is_staged, tracers)):
            # Differentiated or mapped from outside: JAX transforms the function itself.
            return self._jitted(*args, **kwargs)
        return self._planned_for(args, kwargs)[1](*args, **kwargs)

    def lower(self, *args: Any, **kwargs: Any) -> Any:
        """What `jax.jit(f).lower(*args)` gives: `.compile()`, `.as_text()`, ..."""
        return self._planned_for(args, kwargs)[1].lower(*args, **kwargs)

    def trace(self, *args: Any, **kwargs: Any) -> Any:
        """What `jax.jit(f).trace(*args)` gives."""
        return self._planned_for(args, kwargs)[1].trace(*args, **kwargs)

    def eval_shape(self, *args: Any, **kwargs: Any) -> Any:
        """What `jax.jit(f).eval_shape(*args)` gives."""
        return self._jitted.eval_shape(*args, **kwargs)

    def clear_cache(self) -> None:
        """Forget all plans and compiled programs."""
        self._planned.clear()
        self._jitted.clear_cache()

    def plan(self, *args: Any, **kwargs: Any) -> Plan:
        """The plan for these arguments; a PlanError where no mesh is involved."""
        plan = self._planned_for(args, kwargs)[0]
        if plan is None:
            raise PlanError(
                "nothing to plan: no argument, in_shardings or constraint names a mesh"
            )
        return plan

    def traced(self, *args: Any, **kwargs: Any) -> Traced:
        """Trace and read the function for these arguments."""
        shardings = (self._options["in_shardings"], self._options["out_shardings"])
        return program_from_function(self._jitted, args, kwargs, shardings=shardings)

    def _planned_for(
        self, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[Plan | None, Any]:
        key = self._key(args, kwargs)
        found = self._planned.get(key)
        if found is None:
            found = self._make(args, kwargs)
            self._planned[key] = found
        return found

    def _make(
        self, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[Plan | None, Any]:
        traced = self.traced(*args, **kwargs)
        if traced.mesh is None:
            return None, self._jitted
        topology = resolve_topology(self._topology, traced.mesh)
        plan = place(traced.program, topology, self._placement)
        return plan, self._build(traced, plan, has_kwargs=bool(kwargs))

    def _build(self, traced: Traced, plan: Plan, *, has_kwargs: bool) -> Any:
        run = bind_plan(traced, plan)
        static = self._static

        def planned(*args: Any, **kwargs: Any) -> Any:
            positional = [a for i, a in enumerate(args) if i not in static[0]]
            named = {k: v for k, v in kwargs.items() if k not in static[1]}
            return run(*jax.tree.leaves((positional, named)))

        functools.update_wrapper(planned, self._fun, updated=())
        options = {**self._options, "keep_unused": True}
        results, tree = jax.tree.flatten(traced.out_info)
        options["out_shardings"] = jax.tree.unflatten(
            tree, _shardings(traced.mesh, plan.outputs, results)
        )
        options.pop("in_shardings")
        if not has_kwargs:
            shardings = _shardings(traced.mesh, plan.inputs, traced.in_avals)
            options["in_shardings"] = jax.tree.unflatten(traced.in_tree, shardings)[0]
        return jax.jit(planned, **options)

    def _key(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Hashable:
        """What a plan depends on: trees, types, committed shardings, static values."""
        positions, names = self._static
        static = tuple(args[i] for i in sorted(positions) if i < len(args))
        static += tuple((k, kwargs[k]) for k in sorted(names) if k in kwargs)
        dynamic = [a for i, a in enumerate(args) if i not in positions]
        named = {k: v for k, v in kwargs.items() if k not in names}
        leaves, tree = jax.tree.flatten((dynamic, named))
        return tree, tuple(map(_leaf_key, leaves)), static


def jit(
    fun: Callable[..., Any] | None = None,
    *,
    in_shardings: Any = None,
    out_shardings: Any = None,
    static_argnums: int | Sequence[int] | None = None,
    static_argnames: str | Sequence[str] | None = None,
    donate_argnums: int | Sequence[int] | None = None,
    donate_argnames: str | Sequence[str] | None = None,
    keep_unused: bool = False,
    inline: bool = False,
    compiler_options: dict[str, Any] | None = None,
    topology: Topology | str | None = None,
    placement: str = "optimal",
) -> Any:
    """`jax.jit` with the layouts chosen by price.

    Takes jax.jit's arguments with their meaning and defaults. `topology` names
    a preset (see `shardwright topologies`); by default that of the devices.
    `placement` is "optimal", "shardy" or "replicate" (see `placement.place`).
    Without any mesh the function is plain `jax.jit(fun)`.
    """
    options = {
        "in_shardings": in_shardings,
        "out_shardings": out_shardings,
        "static_argnums": static_argnums,
        "static_argnames": static_argnames,
        "donate_argnums": donate_argnums,
        "donate_argnames": donate_argnames,
        "keep_unused": keep_unused,
        "inline": inline,
        "compiler_options": compiler_options,
    }
    if fun is None:
        return lambda f: Jitted(f, topology, placement, options)
    return Jitted(fun, topology, placement, options)


def bind_plan(traced: Traced, plan: Plan) -> Callable[..., Any]:
    """The planned program as a JAX function of flat arrays, on the traced mesh."""
    module = module_bytes(lower(plan))
    program = plan.program
    in_specs = tuple(map(to_partition_spec, plan.inputs))
    out_specs = tuple(map(to_partition_spec, plan.outputs))
    tiles = tuple(
        (layout.tile_shape(program.values[v].shape), program.values[v].dtype)
        for v, layout in zip(program.outputs, plan.outputs, strict=True)
    )
    call = sharded_call(module, traced.mesh, in_specs, out_specs, tiles)
    results, tree = jax.tree.flatten(traced.out_info)

    def run(*leaves: Any) -> Any:
        plain = [jax.random.key_data(x) if _is_key(x) else x for x in leaves]
        made = [
            jax.random.wrap_key_data(x, impl=key_impl(r.dtype)) if _is_key(r) else x
            for x, r in zip(call(*plain), results, strict=True)
        ]
        return jax.tree.unflatten(tree, made)

    return run


def _is_key(x: Any) -> bool:
    """Whether an array or type is of PRNG keys, which are integers to the module."""
    return (
        jnp.issubdtype(x.dtype, jax.dtypes.prng_key) if hasattr(x, "dtype") else False
    )


def resolve_topology(topology: Topology | str | None, mesh: Any) -> Topology:
    """The topology asked for, by default that of the mesh's devices."""
    if isinstance(topology, str):
        return preset(topology)
    if topology is not None:
        return topology
    if isinstance(mesh, Mesh):
        device = mesh.devices.flat[0]
        return for_platform(device.platform, device.device_kind, mesh.size)
    backend = jax.default_backend()
    return for_platform(backend, "", mesh.size)


def _shardings(
    mesh: Any, layouts: Sequence[Layout], avals: Sequence[Any]
) -> list[NamedSharding]:
    """A sharding for each leaf; the integers inside a PRNG key are not its dims."""
    return [
        NamedSharding(
            mesh, PartitionSpec(*to_partition_spec(layout)[: len(aval.shape)])
        )
        for layout, aval in zip(layouts, avals, strict=True)
    ]


def _leaf_key(leaf: Any) -> Hashable:
    aval = jax.typeof(leaf) if not isinstance(leaf, jax.ShapeDtypeStruct) else leaf
    committed = getattr(leaf, "_committed", True) and not isinstance(
        leaf, jax.core.Tracer
    )
    sharding = sharding_of(leaf) if committed else None
    weak = getattr(aval, "weak_type", False)
    return aval.shape, aval.dtype, weak, sharding


def _static_positions(
    fun: Callable[..., Any], options: dict[str, Any]
) -> tuple[frozenset[int], frozenset[str]]:
    """Static positions and names, each inferred from the other as jax.jit does."""
    numbers = _as_tuple(options["static_argnums"])
    names = _as_tuple(options["static_argnames"])
    try:
        parameters = list(inspect.signature(fun).parameters.values())
    except (TypeError, ValueError):
        return frozenset(numbers), frozenset(names)
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    positional = [p.name for p in parameters if p.kind in kinds]
    count = len(positional)
    positions = {n % count if n < 0 and count else n for n in numbers}
    if numbers and not names:
        names = tuple(positional[n] for n in positions if n < count)
    if names and not numbers:
        positions = {positional.index(n) for n in names if n in positional}
    return frozenset(positions), frozenset(names)


def _as_tuple(value: Any) -> tuple[Any, ...]:
    if value is None:
        return ()
    return tuple(value) if isinstance(value, (tuple, list)) else (value,)
