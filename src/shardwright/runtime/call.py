"""A per-device module as one JAX operation inside `jax.shard_map`.

So donation, async dispatch, ahead-of-time compilation, export, profiling and
multi-process runs stay JAX's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
from jax.sharding import PartitionSpec

from shardwright.jaxlib_bindings import module_primitive
from shardwright.runtime.dtypes import jax_dtype

_call_module = module_primitive("shardwright")


def sharded_call(
    module: bytes,
    mesh: Any,
    in_specs: Sequence[PartitionSpec],
    out_specs: Sequence[PartitionSpec],
    tiles: Sequence[tuple[tuple[int, ...], str]],
) -> Callable[..., tuple[Any, ...]]:
    """A function of whole arrays that runs `module` on their tiles.

    `tiles` are shape and MLIR element type of each result's tile. `mesh` may be
    abstract as long as the function is only traced.
    """
    results = tuple(jax.ShapeDtypeStruct(s, jax_dtype(d)) for s, d in tiles)

    def body(*operands: Any) -> tuple[Any, ...]:
        return tuple(_call_module.bind(*operands, module=module, results=results))

    return jax.shard_map(
        body,
        mesh=mesh,
        in_specs=tuple(in_specs),
        out_specs=tuple(out_specs),
        check_vma=False,
    )
