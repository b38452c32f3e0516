"""The machines that are known, their figures and where these come from."""

from __future__ import annotations

from typing import Any

from shardwright.topology import Switched, Topology, Torus, presets


def machines_text() -> str:
    """One block a preset: arithmetic, memory, links, source."""
    return "\n\n".join(_machine_text(topology) for topology in presets())


def machines_dict() -> list[dict[str, Any]]:
    """The presets as JSON-ready data; bytes and flops a second, seconds."""
    return [_machine_dict(topology) for topology in presets()]


def _machine_dict(topology: Topology) -> dict[str, Any]:
    network = topology.network
    return {
        "name": topology.name,
        "num_devices": topology.num_devices,
        "flops": dict(topology.flops),
        "memory_bandwidth": topology.memory_bandwidth,
        "memory_bytes": topology.memory_bytes,
        "network": {"kind": type(network).__name__.lower()}
        | {name: getattr(network, name) for name in network.__dataclass_fields__},
        "source": topology.source,
    }


def _machine_text(topology: Topology) -> str:
    flops = ", ".join(f"{dtype} {rate / 1e12:g}" for dtype, rate in topology.flops)
    count = "any number of" if topology.num_devices is None else topology.num_devices
    return "\n".join(
        (
            f"{topology.name}: {count} devices",
            f"  Tflop/s   {flops}",
            f"  memory    {topology.memory_bytes / 2**30:g} GiB at "
            f"{topology.memory_bandwidth / 1e9:g} GB/s",
            f"  network   {_network_text(topology.network)}",
            f"  source    {topology.source}",
        )
    )


def _network_text(network: Torus | Switched) -> str:
    if isinstance(network, Torus):
        dims = "x".join(map(str, network.shape))
        closed = [
            str(n) for n, wrap in zip(network.shape, network.wrap, strict=True) if wrap
        ]
        rings = f"rings of {', '.join(closed)}" if closed else "no dim closed to a ring"
        return (
            f"torus {dims}, {rings}; link {network.link_bandwidth / 1e9:g} GB/s one "
            f"way, {network.hop_seconds * 1e6:g} us a hop"
        )
    return (
        f"switch, islands of {network.island}: "
        f"{network.device_bandwidth / 1e9:g} GB/s a device, "
        f"{network.island_bandwidth / 1e9:g} GB/s between islands, "
        f"{network.launch_seconds * 1e6:g} us a collective"
    )
