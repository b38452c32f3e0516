"""A program in any of its forms -> Program."""

from shardwright.capture.files import module_from_bytes, program_from_target
from shardwright.capture.hlo_shardings import from_hlo, layouts_from_hlo, to_hlo
from shardwright.capture.jax import Traced, find_mesh, program_from_function
from shardwright.capture.shardings import (
    from_named_sharding,
    from_sdy,
    mesh_from_jax,
    mesh_from_sdy,
    to_partition_spec,
    to_sdy,
)
from shardwright.capture.stablehlo import (
    Source,
    meshes_of_module,
    program_from_module,
)

__all__ = [
    "Source",
    "Traced",
    "find_mesh",
    "from_hlo",
    "from_named_sharding",
    "from_sdy",
    "layouts_from_hlo",
    "mesh_from_jax",
    "mesh_from_sdy",
    "meshes_of_module",
    "module_from_bytes",
    "program_from_function",
    "program_from_module",
    "program_from_target",
    "to_hlo",
    "to_partition_spec",
    "to_sdy",
]
