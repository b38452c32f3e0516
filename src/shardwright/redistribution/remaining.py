"""What is left to do at least, for searches that look at the most promising first."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from shardwright.program.mesh import SubAxis
from shardwright.program.types import dtype_bits
from shardwright.redistribution.matching import Dims
from shardwright.redistribution.sequences import Prices
from shardwright.topology import fastest_bandwidth, launch_seconds


class Remaining:
    """Seconds that a change to `target` takes at least, from any arrangement of atoms.

    A device that lacks elements of its target tile takes part in one collective or
    more, and receives those elements over all its links at best.
    """

    def __init__(
        self,
        shape: Sequence[int],
        atoms: tuple[SubAxis, ...],
        target: Dims,
        prices: Prices,
    ) -> None:
        self._shape = shape
        self._sizes = sizes = [atom.size for atom in atoms]
        self._at = np.indices(sizes).reshape(len(sizes), -1)
        self._launch = launch_seconds(prices.topology)
        fastest = fastest_bandwidth(prices.topology, prices.mesh, atoms)
        self._per_element = dtype_bits(prices.dtype) / 8 / fastest
        self._starts, self._tile = self._boxes(target)
        self._known: dict[Dims, float] = {}

    def seconds(self, dims: Dims) -> float:
        """The least that is left to do from here."""
        found = self._known.get(dims)
        if found is None:
            missing = self._missing(dims)
            least = max(self._launch, missing * self._per_element)
            found = self._known[dims] = least if missing else 0.0
        return found

    def permute_seconds(self, dims: Dims) -> float:
        """The least that a permute of these tiles takes."""
        _, tile = self._boxes(dims)
        return max(self._launch, math.prod(tile) * self._per_element)

    def _missing(self, dims: Dims) -> int:
        """Elements that the device with most to receive lacks."""
        starts, tile = self._boxes(dims)
        overlap = np.ones((), np.int64)
        for mine, n, wanted, m in zip(
            starts, tile, self._starts, self._tile, strict=True
        ):
            common = np.minimum(mine + n, wanted + m) - np.maximum(mine, wanted)
            overlap = overlap * np.maximum(common, 0)
        return math.prod(self._tile) - int(overlap.min())

    def _boxes(self, dims: Dims) -> tuple[list[NDArray[np.int64]], list[int]]:
        """Where the tile of each position begins in each dim, and its shape."""
        starts: list[NDArray[np.int64]] = []
        tile: list[int] = []
        for n, axes in zip(self._shape, dims, strict=True):
            index = np.zeros((), np.int64)
            for atom in axes:
                index = index * self._sizes[atom] + self._at[atom]
            size = n // math.prod(self._sizes[atom] for atom in axes)
            starts.append(index * size)
            tile.append(size)
        return starts, tile
