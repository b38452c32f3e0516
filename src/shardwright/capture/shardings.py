"""Shardings of sdy and of JAX, to Layouts and back. HLO's are in hlo_shardings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jax.sharding import NamedSharding, PartitionSpec

from shardwright.errors import InputError, LayoutError
from shardwright.jaxlib_bindings import ir, sdy
from shardwright.program import Constraint, Layout, Mesh, SubAxis

# sdy ------------------------------------------------------------------------


def mesh_from_sdy(attr: ir.Attribute) -> Mesh | None:
    """The mesh of a `#sdy.mesh` attribute, None for one that is a single device."""
    mesh = sdy.MeshAttr(attr)
    axes = tuple((a.name, a.size) for a in map(sdy.MeshAxisAttr, mesh.axes))
    ids = tuple(mesh.device_ids) or None
    return None if ids and not axes else Mesh(axes, ids)


def from_sdy(attr: ir.Attribute, meshes: Mapping[str, Mesh | None]) -> Constraint:
    """The layout and open dims of a `#sdy.sharding` attribute.

    `meshes` are the module's, by symbol. Unreduced axes become partial sums;
    priorities are not kept.
    """
    sharding = sdy.TensorShardingAttr(attr)
    mesh = _mesh_of(sharding.mesh_or_ref, meshes)
    dims: list[tuple[SubAxis, ...]] = []
    is_open: list[bool] = []
    for dim in map(sdy.DimensionShardingAttr, sharding.dimension_shardings):
        dims.append(_axes_from_sdy(mesh, dim.axes))
        is_open.append(not dim.is_closed)
    unreduced = _axes_from_sdy(mesh, sharding.unreduced_axes)
    partial = tuple((axis, "sum") for axis in unreduced)
    return Constraint(Layout(mesh, tuple(dims), partial), tuple(is_open))


def _mesh_of(mesh_or_ref: ir.Attribute, meshes: Mapping[str, Mesh | None]) -> Mesh:
    if isinstance(mesh_or_ref, ir.FlatSymbolRefAttr):
        name = mesh_or_ref.value
        if name not in meshes:
            known = ", ".join(f"@{n}" for n in meshes) or "none"
            raise InputError(f"unknown mesh @{name}; the module declares {known}")
        mesh = meshes[name]
    else:
        mesh = mesh_from_sdy(mesh_or_ref)
    if mesh is None:
        raise InputError(
            "a sharding on a single device is not supported yet; replicate the value "
            "or split it over a mesh"
        )
    return mesh


def _axes_from_sdy(mesh: Mesh, axes: Any) -> tuple[SubAxis, ...]:
    found: list[SubAxis] = []
    for axis in map(sdy.AxisRefAttr, axes):
        if axis.sub_axis_info is None:
            found.append(mesh.axis(axis.name))
            continue
        info = sdy.SubAxisInfoAttr(axis.sub_axis_info)
        found.append(SubAxis(axis.name, info.size, info.pre_size))
    return tuple(found)


def to_sdy(constraint: Constraint, mesh_name: str, context: ir.Context) -> ir.Attribute:
    """The `#sdy.sharding` attribute of a layout and its open dims.

    Partial values must be sums; a strided view is a LayoutError.
    """
    layout = constraint.layout
    if layout.view is not None:
        raise LayoutError(f"layout {layout} is strided; sdy cannot say it")
    if any(reducer != "sum" for _, reducer in layout.partial):
        raise LayoutError(f"layout {layout}: sdy knows partial sums alone")
    dims = [
        "{"
        + ", ".join([_axis_sdy(layout.mesh, a) for a in axes] + ["?"] * is_open)
        + "}"
        for axes, is_open in zip(layout.dims, constraint.open_dims, strict=True)
    ]
    text = f"#sdy.sharding<@{mesh_name}, [{', '.join(dims)}]"
    if layout.partial:
        axes = ", ".join(_axis_sdy(layout.mesh, axis) for axis, _ in layout.partial)
        text += f", unreduced={{{axes}}}"
    return ir.Attribute.parse(text + ">", context)


def _axis_sdy(mesh: Mesh, axis: SubAxis) -> str:
    suffix = "" if mesh.is_whole(axis) else f":({axis.pre}){axis.size}"
    return f'"{axis.name}"{suffix}'


def to_sdy_mesh(mesh: Mesh, context: ir.Context) -> ir.Attribute:
    """The `#sdy.mesh` attribute of a mesh."""
    axes = ", ".join(f'"{name}"={size}' for name, size in mesh.axes)
    text = f"#sdy.mesh<[{axes}]"
    if mesh.device_ids is not None:
        text += f", device_ids=[{', '.join(map(str, mesh.device_ids))}]"
    return ir.Attribute.parse(text + ">", context)


# JAX ------------------------------------------------------------------------


def mesh_from_jax(mesh: Any) -> Mesh:
    """The mesh of a `jax.sharding.Mesh` or `AbstractMesh`.

    Logical devices are positions on the mesh, so it has no order of its own.
    """
    return Mesh(tuple((str(name), size) for name, size in mesh.shape.items()))


def from_named_sharding(sharding: NamedSharding, rank: int) -> Constraint:
    """The layout of a NamedSharding for an array of this rank."""
    mesh = mesh_from_jax(sharding.mesh)
    # A spec with unreduced axes refuses to be iterated over.
    spec = tuple(getattr(sharding.spec, "partitions", sharding.spec))
    if len(spec) > rank:
        raise LayoutError(f"{sharding.spec} has {len(spec)} dims, the array {rank}")
    dims: list[tuple[SubAxis, ...]] = []
    is_open: list[bool] = []
    for entry in (*spec, *(None,) * (rank - len(spec))):
        is_open.append(entry is PartitionSpec.UNCONSTRAINED)
        if entry is None or entry is PartitionSpec.UNCONSTRAINED:
            dims.append(())
            continue
        names = entry if isinstance(entry, tuple) else (entry,)
        dims.append(tuple(mesh.axis(str(name)) for name in names))
    unreduced = getattr(sharding.spec, "unreduced", frozenset())
    partial = tuple((mesh.axis(str(name)), "sum") for name in sorted(unreduced))
    return Constraint(Layout(mesh, tuple(dims), partial), tuple(is_open))


def to_partition_spec(layout: Layout) -> PartitionSpec:
    """The PartitionSpec of a layout; sub-axes, views and partial are LayoutErrors."""
    mesh = layout.mesh
    if layout.view is not None or layout.partial:
        raise LayoutError(f"layout {layout} cannot be said as a PartitionSpec")
    entries: list[Any] = []
    for axes in layout.dims:
        if not all(mesh.is_whole(axis) for axis in axes):
            raise LayoutError(
                f"layout {layout} cuts part of an axis; a PartitionSpec cannot say it"
            )
        names = tuple(axis.name for axis in axes)
        entries.append(names[0] if len(names) == 1 else names or None)
    return PartitionSpec(*entries)
