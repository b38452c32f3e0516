"""A machine as data: what its devices compute and how they are joined."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True, slots=True)
class Torus:
    """Devices on a grid, row-major; each dim a ring (wrap) or a line.

    `link_bandwidth` is bytes/s one way on one link; a ring has two directions.
    `hop_seconds` is the latency of one hop.
    """

    shape: tuple[int, ...]
    wrap: tuple[bool, ...]
    link_bandwidth: float
    hop_seconds: float


@dataclasses.dataclass(frozen=True, slots=True)
class Switched:
    """Islands of devices behind a switch, islands joined by a slower network.

    `device_bandwidth` is bytes/s that one device can send inside its island,
    `island_bandwidth` what one island can send to the others together.
    `launch_seconds` is paid by every collective.
    """

    island: int
    device_bandwidth: float
    island_bandwidth: float
    launch_seconds: float


Network = Torus | Switched


@dataclasses.dataclass(frozen=True, slots=True)
class Topology:
    """One machine. Bandwidths in bytes/s, flops in 1/s, memory in bytes.

    `num_devices` None fits any number. `flops` gives peak rates by element
    type; a type not listed computes at the rate of "f32".
    """

    name: str
    num_devices: int | None
    flops: tuple[tuple[str, float], ...]
    memory_bandwidth: float
    memory_bytes: float
    network: Network
    source: str

    def peak_flops(self, dtype: str) -> float:
        """Peak rate for an element type as MLIR spells it."""
        rates = dict(self.flops)
        return rates.get(dtype, rates["f32"])
