"""PositionalSharding as scripts of former JAX versions use it."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import shardwright as sw


def grid(sharding: sw.PositionalSharding, shape: tuple[int, ...]) -> np.ndarray:
    """Which devices hold each tile of an array of the grid's shape."""
    x = jax.device_put(np.arange(int(np.prod(shape))).reshape(shape), sharding)
    table = np.zeros(shape, object)
    for shard in x.addressable_shards:
        table[shard.index] = table[shard.index] + (1 << shard.device.id)
    return table


def test_reshape_splits_in_row_major_order():
    sharding = sw.PositionalSharding(jax.devices()[:8])
    assert sharding.shape == (8,)
    assert sharding.reshape(4, 2).shape == (4, 2)
    table = grid(sharding.reshape(4, 2), (4, 2))
    np.testing.assert_array_equal(table, 1 << np.arange(8).reshape(4, 2))


@pytest.mark.parametrize("shape", [(3, 4), (4, 3), (2, 6), (6, 2), (2, 2, 3), (1, 12)])
def test_any_shape_of_twelve(shape):
    table = grid(sw.PositionalSharding(jax.devices()[:12]).reshape(shape), shape)
    np.testing.assert_array_equal(table, 1 << np.arange(12).reshape(shape))


def test_replicate_and_transpose():
    sharding = sw.PositionalSharding(jax.devices()[:8]).reshape(4, 2)
    assert sharding.replicate(1).shape == (4, 1)
    assert sharding.replicate(0, keepdims=False).shape == (2,)
    assert sharding.replicate().shape == (1, 1)
    assert sharding.T.shape == (2, 4)
    table = grid(sharding.T, (2, 4))
    np.testing.assert_array_equal(table, 1 << np.arange(8).reshape(4, 2).T)


def test_unknown_dim():
    assert sw.PositionalSharding(jax.devices()[:8]).reshape(-1, 2).shape == (4, 2)


def test_shardings_of_one_list_meet_in_our_jit():
    sharding = sw.PositionalSharding(jax.devices()[:8])
    x = np.random.default_rng(0).standard_normal((16, 16)).astype(np.float32)
    y = jax.device_put(x, sharding.reshape(4, 2).replicate(1))
    z = jax.device_put(x, sharding.reshape(4, 2).replicate(0))
    wanted = sharding.reshape(2, 4)

    def f(y, z):
        return jax.lax.with_sharding_constraint(jnp.dot(y, z), wanted)

    result = sw.jit(f)(y, z)
    np.testing.assert_allclose(result, x @ x, rtol=1e-4, atol=1e-4)
    assert result.sharding.is_equivalent_to(wanted, 2)
    np.testing.assert_allclose(jax.jit(f)(y, z), x @ x, rtol=1e-4, atol=1e-4)


def test_errors():
    sharding = sw.PositionalSharding(jax.devices()[:8])
    with pytest.raises(sw.LayoutError, match="over 8 devices to"):
        sharding.reshape(3, 2)
    with pytest.raises(sw.LayoutError, match="out of range"):
        sharding.replicate(3)
