"""The printed module, HLO or StableHLO, is one that XLA compiles and runs."""

from __future__ import annotations

from pathlib import Path

import jax
import numpy as np
import pytest
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from shardwright.capture import program_from_target
from shardwright.errors import PlanError
from shardwright.jaxlib_bindings import (
    compile_module,
    hlo_text_to_module,
    module_bytes,
    parse_module,
)
from shardwright.lowering import partitioned_text
from shardwright.placement import place
from shardwright.topology import preset


@pytest.fixture
def program(examples: Path, tmp_path: Path):
    text = (examples / "dot_reshard.hlo").read_text().replace("8192", "64")
    (tmp_path / "small.hlo").write_text(text)
    return program_from_target(str(tmp_path / "small.hlo"))


@pytest.mark.parametrize("emit", ["hlo", "stablehlo"])
@pytest.mark.parametrize("placement", ["optimal", "shardy", "replicate"])
@pytest.mark.parametrize("topology", ["cpu-8", "h100-8"])
def test_printed_module_runs(program, emit: str, placement: str, topology: str):
    text = partitioned_text(place(program, preset(topology), placement), emit)
    module = hlo_text_to_module(text) if emit == "hlo" else parse_module(text)
    devices = jax.devices()[:8]
    executable = compile_module(module_bytes(module), devices, partitioner=None)
    y, z = np.random.default_rng(0).integers(-4, 5, (2, 64, 64)).astype(np.float32)
    grid = np.array(devices, dtype=object).reshape(2, 2, 2)
    mesh = Mesh(grid, ("a", "b", "c"), axis_types=(AxisType.Auto,) * 3)
    placed = jax.device_put(
        (y, z), (NamedSharding(mesh, P(("a", "b"))), NamedSharding(mesh, P(None, "c")))
    )
    results = executable.execute_sharded(list(placed))
    (tiles,) = results.disassemble_into_single_device_arrays()
    want = y @ z
    for device, tile in enumerate(tiles):
        a, bc = divmod(device, 4)
        box = want[a * 32 : (a + 1) * 32, bc * 16 : (bc + 1) * 16]
        np.testing.assert_array_equal(np.asarray(tile), box)


def test_unknown_form_is_refused(program):
    with pytest.raises(PlanError, match="use hlo or stablehlo"):
        partitioned_text(place(program, preset("cpu-8")), "llvm")
