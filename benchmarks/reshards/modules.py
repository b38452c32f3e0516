"""A problem as the modules that the peers take."""

from __future__ import annotations

from collections.abc import Sequence

from reshards.problems import Problem
from shardwright.capture import to_hlo
from shardwright.program import Layout, Mesh, SubAxis, ways


def xla_module(problem: Problem, partitioner: str) -> str:
    """The problem as a whole-array module, with shardings as the partitioner reads.

    What is partial is one dim in front, cut by the axes that hold the parts: those
    to reduce are summed over, those that stay are a batch.
    """
    kept, owed = partial_axes(problem)
    front = [axes for axes in (kept, owed) if axes]
    shape = (*(ways(a) for a in front), *problem.shape)
    result = (*((ways(kept),) if kept else ()), *problem.shape)
    source = Layout(problem.source.mesh, (*front, *problem.source.dims))
    target = Layout(
        problem.target.mesh, (*((kept,) if kept else ()), *problem.target.dims)
    )
    given, wanted = _tensor(shape), _tensor(result)
    body = f"  return %x : {given}\n"
    if owed:
        dim = 1 if kept else 0
        body = (
            "  %zero = stablehlo.constant dense<0.0> : tensor<f32>\n"
            "  %sum = stablehlo.reduce(%x init: %zero) applies stablehlo.add across "
            f"dimensions = [{dim}] : ({given}, tensor<f32>) -> {wanted}\n"
            f"  return %sum : {wanted}\n"
        )
    if partitioner == "gspmd":
        old = f'mhlo.sharding = "{to_hlo(source, shape)}"'
        new = f'mhlo.sharding = "{to_hlo(target, result)}"'
        meshes = ""
    else:
        old = f"sdy.sharding = #sdy.sharding<@m, {_sdy(source)}>"
        new = f"sdy.sharding = #sdy.sharding<@{_target_mesh(problem)}, {_sdy(target)}>"
        meshes = _meshes(problem)
    count = problem.num_devices
    return (
        f"module attributes {{mhlo.num_partitions = {count} : i32, "
        "mhlo.num_replicas = 1 : i32} {\n"
        f"{meshes}func.func @main(%x: {given} {{{old}}}) -> ({wanted} {{{new}}}) {{\n"
        f"{body}}}\n}}\n"
    )


def shardy_module(problem: Problem) -> str:
    """One `sdy.reshard`, for Shardy's own pass; what is partial is left out."""
    tensor = _tensor(problem.shape)
    source, target = _sdy(problem.source), _sdy(problem.target)
    return (
        f"{_meshes(problem)}"
        f"func.func @main(%x: {tensor} {{sdy.sharding = #sdy.sharding<@m, {source}>}}) "
        f"-> {tensor} {{\n"
        f"  %0 = sdy.reshard %x <@{_target_mesh(problem)}, {target}> : {tensor}\n"
        f"  return %0 : {tensor}\n}}"
    )


def partial_axes(
    problem: Problem,
) -> tuple[tuple[SubAxis, ...], tuple[SubAxis, ...]]:
    """Axes that stay partial, and axes to reduce."""
    kept = tuple(axis for axis, _ in problem.target.partial)
    owed = tuple(axis for axis, _ in problem.source.partial if axis not in kept)
    return kept, owed


def _tensor(shape: Sequence[int]) -> str:
    return f"tensor<{''.join(f'{n}x' for n in shape)}f32>"


def _target_mesh(problem: Problem) -> str:
    return "m" if problem.source.mesh == problem.target.mesh else "other"


def _meshes(problem: Problem) -> str:
    text = f"sdy.mesh @m = <[{_axes(problem.source.mesh)}]>\n"
    mesh = problem.target.mesh
    if mesh != problem.source.mesh:
        ids = ", ".join(str(mesh.device_id(p)) for p in range(mesh.num_devices))
        text += f"sdy.mesh @other = <[{_axes(mesh)}], device_ids=[{ids}]>\n"
    return text


def _axes(mesh: Mesh) -> str:
    return ", ".join(f'"{name}"={size}' for name, size in mesh.axes)


def _sdy(layout: Layout) -> str:
    dims = (
        "{" + ", ".join(_axis(layout.mesh, a) for a in axes) + "}"
        for axes in layout.dims
    )
    return f"[{', '.join(dims)}]"


def _axis(mesh: Mesh, axis: SubAxis) -> str:
    return (
        f'"{axis.name}"'
        if mesh.is_whole(axis)
        else f'"{axis.name}":({axis.pre}){axis.size}'
    )
