"""Values are moved bit for bit, whatever they are."""

from __future__ import annotations

import jax
import ml_dtypes
import numpy as np
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

import shardwright as sw

DTYPES = [
    "bool",
    "int8",
    "uint8",
    "int32",
    "uint32",
    "float16",
    "bfloat16",
    "float32",
    "float8_e4m3fn",
    "float8_e5m2",
    "complex64",
]


def every_bit_pattern(dtype: str, shape: tuple[int, ...]) -> np.ndarray:
    """Random bits: NaN payloads, -0.0, denormals, integers at their limits."""
    kind = np.dtype(getattr(ml_dtypes, dtype, dtype))
    rng = np.random.default_rng(0)
    if dtype == "bool":
        return rng.integers(0, 2, shape).astype(bool)
    bits = rng.integers(0, 256, (*shape, kind.itemsize), np.uint8)
    return bits.view(kind).reshape(shape)


@pytest.mark.parametrize("topology", ["cpu-8", "h100-8", "tpu-v5e-2x4"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_bits(make_mesh, dtype: str, topology: str):
    mesh = make_mesh(a=2, b=2, c=2)
    x = every_bit_pattern(dtype, (16, 16))
    for source, target in [
        (P(("a", "b"), "c"), P("a", ("b", "c"))),
        (P("a", "b"), P("b", "a")),
        (P(("a", "b", "c")), P(None, ("c", "b"))),
        (P("a"), P()),
    ]:
        placed = jax.device_put(x, NamedSharding(mesh, source))
        moved = sw.redistribute(placed, NamedSharding(mesh, target), topology=topology)
        got = np.asarray(moved)
        assert got.dtype == x.dtype
        assert got.tobytes() == x.tobytes()
