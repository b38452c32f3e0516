"""Machines by name. Every figure names its source in `Topology.source`."""

from __future__ import annotations

import math
import re
from functools import lru_cache

from shardwright.errors import InputError
from shardwright.topology.machine import Switched, Topology, Torus

_SCALING_BOOK = "How to Scale Your Model (jax-ml/scaling-book)"
_TPU_SOURCE = f"{_SCALING_BOOK}, TPU chapter: HBM, flops, ICI link; hop about 1 us"
_GPU_SOURCE = (
    f"{_SCALING_BOOK}, GPU chapter: NVLink egress, node egress; flops and HBM from "
    "NVIDIA's data sheets; launch 5 us estimated"
)
_CPU_SOURCE = "measured: 8 virtual devices sharing 2 cores, benchmarks/cpu_figures.py"

GIB = 2.0**30

# name: HBM B/s, HBM bytes, bf16 flop/s, one-way link B/s, wraps at, default shape
_TPUS = {
    "v4": (1.2e12, 32 * GIB, 2.75e14, 4.5e10, 4, (4, 4, 4)),
    "v5e": (8.1e11, 16 * GIB, 1.97e14, 4.5e10, 16, (16, 16)),
    "v5p": (2.8e12, 96 * GIB, 4.59e14, 9e10, 4, (4, 4, 4)),
    "v6e": (1.6e12, 32 * GIB, 9.2e14, 9e10, 16, (16, 16)),
    "7x": (7.4e12, 192 * GIB, 2.3e15, 9e10, 4, (4, 4, 4)),
}

# name: island, NVLink egress a GPU, island egress, HBM B/s, bytes, bf16, f32 (tf32)
_GPUS = {
    "a100": (8, 300e9, 200e9, 2.0e12, 80 * GIB, 3.12e14, 1.56e14),
    "h100": (8, 450e9, 400e9, 3.35e12, 80 * GIB, 9.9e14, 4.95e14),
    "b200": (8, 900e9, 400e9, 8.0e12, 192 * GIB, 2.25e15, 1.1e15),
    "gb200": (72, 900e9, 3600e9, 8.0e12, 192 * GIB, 2.5e15, 1.25e15),
}

_CPU_NAME = re.compile(r"cpu(?:-(\d+))?")
_TPU_NAME = re.compile(r"tpu-(v4|v5e|v5p|v6e|7x)(?:-(\d+(?:x\d+)*))?")
_GPU_NAME = re.compile(r"(a100|h100|b200)(?:-(\d+)|x(\d+)x(\d+))")

KNOWN = (
    "cpu-8",
    "tpu-v4-4x4x4",
    "tpu-v5e-16x16",
    "tpu-v5p-4x4x4",
    "tpu-v6e-16x16",
    "tpu-7x-4x4x4",
    "a100-8",
    "h100-8",
    "h100x8x8",
    "b200-8",
    "gb200-nvl72",
)


@lru_cache(maxsize=256)
def preset(name: str) -> Topology:
    """A machine by name, such as "h100x8x8" (8 nodes of 8) or "tpu-v5e-16x16".

    Numbers in names may be others. An unknown name is an InputError.
    """
    if found := _CPU_NAME.fullmatch(name):
        return _cpu(int(found[1]) if found[1] else None, name)
    if found := _TPU_NAME.fullmatch(name):
        shape = tuple(map(int, found[2].split("x"))) if found[2] else None
        return _tpu(found[1], shape)
    if found := _GPU_NAME.fullmatch(name):
        nodes = int(found[4]) if found[4] else 1
        return _gpu(found[1], int(found[2] or found[3]), nodes, name)
    if name == "gb200-nvl72":
        return _gpu("gb200", 72, 1, name)
    raise InputError(
        f"unknown topology {name!r}; known are {', '.join(KNOWN)}, and the same with "
        "other numbers"
    )


def presets() -> tuple[Topology, ...]:
    """One machine of each kind."""
    return tuple(preset(name) for name in KNOWN)


def for_platform(platform: str, device_kind: str, num_devices: int) -> Topology:
    """The machine that JAX's devices are, by platform and kind; else a CPU host."""
    kind = device_kind.lower()
    if platform in ("gpu", "cuda"):
        found = next(
            (n for n in ("gb200", "b200", "h100", "a100") if n in kind), "h100"
        )
        island = _GPUS[found][0]
        nodes = max(1, math.ceil(num_devices / island))
        return _gpu(found, min(island, num_devices), nodes, f"{found}x{island}x{nodes}")
    if platform == "tpu":
        return _tpu_of(kind, num_devices)
    return preset(f"cpu-{num_devices}")


def check_fits(topology: Topology, num_devices: int) -> None:
    """Raise an InputError for a mesh of more devices than the machine has."""
    limit = topology.num_devices
    if limit is not None and num_devices > limit:
        raise InputError(
            f"the mesh has {num_devices} devices, topology {topology.name} has "
            f"{limit}; name a larger one"
        )


def _cpu(count: int | None, name: str) -> Topology:
    network = Switched(
        island=count or 1 << 20,
        device_bandwidth=1e9,
        island_bandwidth=1e9,
        launch_seconds=2e-4,
    )
    flops = (("f32", 2e10), ("f64", 1e10), ("bf16", 1e10))
    return Topology(name, count, flops, 3e9, 2 * GIB, network, _CPU_SOURCE)


def _tpu(kind: str, shape: tuple[int, ...] | None) -> Topology:
    bandwidth, memory, bf16, link, wraps_at, default = _TPUS[kind]
    grid = shape or default
    wrap = tuple(n % wraps_at == 0 for n in grid)
    network = Torus(grid, wrap, link, 1e-6)
    flops = (("bf16", bf16), ("f32", bf16 / 2), ("i8", bf16 * 2))
    name = f"tpu-{kind}-{'x'.join(map(str, grid))}"
    count = math.prod(grid)
    return Topology(name, count, flops, bandwidth, memory, network, _TPU_SOURCE)


def _gpu(kind: str, island: int, nodes: int, name: str) -> Topology:
    _, egress, node, bandwidth, memory, bf16, f32 = _GPUS[kind]
    network = Switched(island, egress, node, 5e-6)
    flops = (("bf16", bf16), ("f16", bf16), ("f32", f32), ("i8", 2 * bf16))
    count = island * nodes
    return Topology(name, count, flops, bandwidth, memory, network, _GPU_SOURCE)


def _tpu_of(kind: str, num_devices: int) -> Topology:
    words = {"v5 lite": "v5e", "v5e": "v5e", "v5p": "v5p", "v5": "v5p", "v4": "v4"}
    words |= {"v6 lite": "v6e", "v6e": "v6e", "7x": "7x", "v7": "7x"}
    name = next((v for k, v in words.items() if k in kind), "v5e")
    dims = len(_TPUS[name][5])
    return _tpu(name, _near_square(num_devices, dims))


def _near_square(count: int, dims: int) -> tuple[int, ...]:
    """A grid of `dims` dims with `count` devices, as even as its factors allow."""
    grid = [1] * dims
    rest = count
    factor = 2
    factors: list[int] = []
    while rest > 1:
        while rest % factor == 0:
            factors.append(factor)
            rest //= factor
        factor += 1
    for f in sorted(factors, reverse=True):
        grid[grid.index(min(grid))] *= f
    return tuple(sorted(grid))
