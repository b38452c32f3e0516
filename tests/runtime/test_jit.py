"""shardwright.jit: jax.jit's values, signature and behaviour, our layouts."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

import shardwright as sw
from tests.redistribution.problems import BYTES


def put(mesh, spec, shape, seed=0, dtype=np.float32):
    x = np.random.default_rng(seed).standard_normal(shape).astype(dtype)
    return jax.device_put(x, NamedSharding(mesh, spec))


def constrain(mesh, x, *spec):
    return jax.lax.with_sharding_constraint(x, NamedSharding(mesh, P(*spec)))


def collectives(step, *args):
    text = step.lower(*args).compile().as_text()
    kinds = ("all-gather(", "all-reduce(", "all-to-all(", "collective-permute(")
    kinds += ("reduce-scatter(",)
    return {k[:-1]: text.count(f" {k}") for k in kinds if text.count(f" {k}")}


def test_the_first_case(make_mesh):
    mesh = make_mesh(a=2, b=2, c=2)
    y, z = put(mesh, P(("a", "b")), (64, 64)), put(mesh, P(None, "c"), (64, 64), 1)

    def f(y, z):
        return constrain(mesh, jnp.dot(y, z), "a", ("b", "c"))

    step = sw.jit(f, topology=BYTES)
    result = step(y, z)
    np.testing.assert_allclose(result, np.asarray(y) @ np.asarray(z), 1e-4, 1e-4)
    assert result.sharding.is_equivalent_to(NamedSharding(mesh, P("a", ("b", "c"))), 2)
    plan = step.plan(y, z)
    assert plan.bytes_received == plan.lower_bound == 16 * 32 * 4
    assert [move.value for move in plan.moves] == [2]


@pytest.mark.parametrize("axes", [{"x": 2, "y": 3}, {"x": 8}, {"x": 1, "y": 1}])
@pytest.mark.parametrize("dtype", [np.float32, jnp.bfloat16])
def test_mlp_gradient_on_several_meshes(make_mesh, axes, dtype):
    mesh = make_mesh(**axes)
    first, last = mesh.axis_names[0], mesh.axis_names[-1]
    x = put(mesh, P(first), (24, 48), 0, dtype)
    w = put(mesh, P(None, last), (48, 24), 1, dtype)

    def loss(w, x):
        return jnp.mean(jax.nn.relu(x @ w).astype(jnp.float32) ** 2)

    step = jax.value_and_grad(loss)
    got, want = sw.jit(step)(w, x), jax.jit(step)(np.asarray(w), np.asarray(x))
    tolerance = 2e-2 if dtype == jnp.bfloat16 else 1e-5
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(
            np.asarray(a, np.float32), np.asarray(b, np.float32), tolerance, tolerance
        ),
        got,
        want,
    )


def test_trees_keywords_and_static_arguments(make_mesh):
    mesh = make_mesh(x=4)
    tree = {"a": put(mesh, P("x"), (8,)), "b": (put(mesh, P(), (4,), 1), 2.0)}

    @sw.jit(static_argnames="power")
    def f(tree, *, power, scale=1.0):
        return {"r": tree["a"] ** power * scale + tree["b"][0].sum() * tree["b"][1]}

    for power, scale in ((2, 3.0), (3, 3.0)):
        got = f(tree, power=power, scale=scale)["r"]
        host = jax.tree.map(np.asarray, tree)
        want = host["a"] ** power * scale + host["b"][0].sum() * 2.0
        np.testing.assert_allclose(got, want, rtol=1e-5)


def test_in_and_out_shardings_place_host_arrays(make_mesh):
    mesh = make_mesh(x=2, y=2)
    shardings = NamedSharding(mesh, P("x")), NamedSharding(mesh, P(None, "y"))
    f = sw.jit(lambda x: x + 1, in_shardings=shardings[0], out_shardings=shardings[1])
    result = f(np.zeros((4, 4), np.float32))
    assert result.sharding.is_equivalent_to(shardings[1], 2)
    np.testing.assert_array_equal(result, np.ones((4, 4)))


def test_donated_buffers_are_given_up(make_mesh):
    mesh = make_mesh(x=4)
    x = put(mesh, P("x"), (8, 8))
    sw.jit(lambda x: x * 2, donate_argnums=0)(x)
    assert x.is_deleted()


def test_without_a_mesh_it_is_jax_jit():
    f = sw.jit(lambda x: x * 2)
    np.testing.assert_array_equal(f(np.arange(3)), [0, 2, 4])
    with pytest.raises(sw.PlanError, match="nothing to plan"):
        f.plan(np.arange(3))


def test_lower_gives_what_jax_gives(make_mesh):
    mesh = make_mesh(x=4)
    x = put(mesh, P("x"), (8, 8))
    compiled = sw.jit(lambda x: x @ x.T).lower(x).compile()
    assert "HloModule" in compiled.as_text()
    assert compiled.memory_analysis().output_size_in_bytes > 0
    assert compiled.cost_analysis()


def test_inside_an_outer_jit_and_twice(make_mesh):
    mesh = make_mesh(x=2, y=2)
    x = put(mesh, P("x", "y"), (8, 8))
    inner = sw.jit(lambda x: constrain(mesh, x @ x, "y", "x"))

    @jax.jit
    def outer(x):
        return inner(inner(constrain(mesh, x, "x", "y")) * 2)

    host = np.asarray(x)
    want = (2 * host @ host) @ (2 * host @ host)
    np.testing.assert_allclose(outer(x), want, rtol=1e-3, atol=1e-3)


def test_differentiated_and_mapped_from_outside(make_mesh):
    mesh = make_mesh(x=4)
    x = put(mesh, P("x"), (8, 4))
    f = sw.jit(lambda x: jnp.sum(x**2))
    np.testing.assert_allclose(jax.grad(f)(x), 2 * np.asarray(x), rtol=1e-6)
    mapped = jax.vmap(sw.jit(lambda row: row * row.sum()))(x)
    np.testing.assert_allclose(
        mapped, np.asarray(x) * np.asarray(x).sum(1, keepdims=True), rtol=1e-5
    )


def test_explicit_mesh():
    mesh = jax.make_mesh((2, 2), ("x", "y"), axis_types=(AxisType.Explicit,) * 2)
    x = put(mesh, P("x", "y"), (8, 16))
    w = put(mesh, P("y", None), (16, 8), 1)

    def f(x, w):
        return jax.nn.relu(jnp.dot(x, w, out_sharding=P("x", None))) + 1

    with jax.set_mesh(mesh):
        got = sw.jit(f)(x, w)
    want = np.maximum(np.asarray(x) @ np.asarray(w), 0) + 1
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)


def test_abstract_mesh_is_planned_without_devices():
    mesh = jax.sharding.AbstractMesh(
        (128, 128), ("x", "y"), axis_types=(AxisType.Auto,) * 2
    )
    shapes = [
        jax.ShapeDtypeStruct(
            (1 << 15, 1 << 15), jnp.bfloat16, sharding=NamedSharding(mesh, s)
        )
        for s in (P("x", None), P(None, "y"))
    ]
    planned = sw.plan(jnp.dot, *shapes, topology="tpu-v5e-128x128")
    assert planned.plan.program.mesh.num_devices == 16384
    assert planned.plan.bytes_received == 0
    assert "dot" in planned.lower().as_text()


def test_two_meshes_are_refused(make_mesh):
    x = put(make_mesh(x=4), P("x"), (8,))
    y = put(make_mesh(u=2, v=2), P("u"), (8,), 1)
    with pytest.raises(sw.InputError, match="two meshes"):
        sw.jit(lambda x, y: x + y)(x, y)


def test_op_without_a_rule_is_replicated_with_a_warning(make_mesh):
    mesh = make_mesh(x=4)
    x = put(mesh, P("x"), (8, 8))
    planned = sw.plan(lambda x: jnp.sort(x, axis=0) + 1, x)
    (warning,) = planned.plan.warnings
    assert "no rule for stablehlo.sort" in warning
    assert "192 bytes" in warning
    got = sw.jit(lambda x: jnp.sort(x, axis=0) + 1)(x)
    np.testing.assert_array_equal(got, np.sort(np.asarray(x), 0) + 1)


def test_slices_do_not_forget_to_clamp(make_mesh):
    # XLA joins slices and adds their starts; a start out of range is clamped first.
    mesh = make_mesh(x=2)
    x = put(mesh, P(None, "x"), (2, 8))

    def f(x, i):
        return jax.lax.dynamic_slice(x, (0, i), (2, 6))

    step = sw.jit(f, out_shardings=NamedSharding(mesh, P(None, "x")))
    np.testing.assert_array_equal(step(x, 7), np.asarray(x)[:, 2:])


def test_partial_sum_is_scattered_where_the_use_is_split(make_mesh):
    mesh = make_mesh(x=8)
    a = put(mesh, P(None, "x"), (1024, 64))
    b = put(mesh, P("x", None), (64, 1024), 1)
    wanted = NamedSharding(mesh, P("x", None))
    f = sw.jit(jnp.dot, out_shardings=wanted, topology="h100-8")
    assert set(collectives(f, a, b)) <= {"reduce-scatter", "all-gather", "all-to-all"}
    plan = f.plan(a, b)
    assert plan.bytes_received <= 1024 * 1024 * 4 * 7 // 8
    np.testing.assert_allclose(f(a, b), np.asarray(a) @ np.asarray(b), 1e-3, 1e-3)


def test_complex_constants(make_mesh):
    mesh = make_mesh(x=4)
    x = jax.device_put(
        np.arange(16, dtype=np.complex64).reshape(4, 4), NamedSharding(mesh, P("x"))
    )
    table = np.array([1j, 2, 3 - 1j, 4], np.complex64)

    def f(x):
        return (x * (1 + 2j) + table).sum()

    np.testing.assert_allclose(sw.jit(f)(x), f(np.asarray(x)), rtol=1e-5)


def test_random_keys_go_in_and_out(make_mesh):
    mesh = make_mesh(x=4)
    x = put(mesh, P("x"), (8, 8))

    def f(key, x):
        key, own = jax.random.split(key)
        return key, jnp.where(jax.random.bernoulli(own, 0.5, x.shape), x, 0)

    key, got = sw.jit(f)(jax.random.key(0), x)
    want_key, want = jax.jit(f)(jax.random.key(0), np.asarray(x))
    assert key.dtype == want_key.dtype
    bits, want_bits = map(jax.random.key_data, (key, want_key))
    np.testing.assert_array_equal(bits, want_bits)
    np.testing.assert_array_equal(got, want)


def test_loops_and_branches_run_replicated(make_mesh):
    mesh = make_mesh(x=4)
    x, w = put(mesh, P("x"), (8, 8)), put(mesh, P(None, "x"), (8, 8), 1)

    def f(x, w):
        def body(carry, row):
            return jnp.tanh(carry + row @ w), carry

        last, rows = jax.lax.scan(body, x[0], x)
        return jax.lax.cond(last.sum() > 0, lambda: rows * w, lambda: rows)

    np.testing.assert_allclose(
        sw.jit(f)(x, w), jax.jit(f)(np.asarray(x), np.asarray(w)), 1e-4, 1e-4
    )


def test_shard_map_inside_is_refused_clearly(make_mesh):
    mesh = make_mesh(x=4)
    x = put(mesh, P("x"), (8,))
    inner = jax.shard_map(
        lambda a: jax.lax.psum(a, "x"), mesh=mesh, in_specs=P("x"), out_specs=P()
    )
    with pytest.raises(sw.InputError, match=r"shard_map at .* is not supported yet"):
        sw.jit(lambda x: inner(x) + 1)(x)


def test_callbacks_are_refused_clearly(make_mesh):
    mesh = make_mesh(x=2)
    x = put(mesh, P("x"), (8,))

    @sw.jit
    def f(x):
        jax.debug.print("the sum is {}", x.sum())
        return x + 1

    with pytest.raises(sw.InputError, match="a callback to Python at"):
        f(x)
