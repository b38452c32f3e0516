"""Element types by their MLIR spelling, and tensor types."""

from __future__ import annotations

import dataclasses
import math
import re

_WIDTH = re.compile(r"\d+")


def dtype_bits(dtype: str) -> int:
    """Bits that one element takes in device memory.

    `dtype` is spelled as in MLIR: "f32", "bf16", "i1", "ui8", "complex<f32>",
    "f8E4M3FN". A predicate takes a byte, as XLA stores it.

    >>> dtype_bits("bf16"), dtype_bits("i1"), dtype_bits("complex<f32>")
    (16, 8, 64)
    """
    if dtype == "i1":
        return 8
    if dtype.startswith("complex<"):
        return 2 * dtype_bits(dtype[8:-1])
    width = _WIDTH.search(dtype)
    return int(width[0]) if width else 0  # tokens hold no data


@dataclasses.dataclass(frozen=True, slots=True)
class TensorType:
    """Shape and element type of a tensor; str() gives `f32[8,16]`."""

    shape: tuple[int, ...]
    dtype: str

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def num_elements(self) -> int:
        return math.prod(self.shape)

    def __str__(self) -> str:
        return f"{self.dtype}[{','.join(map(str, self.shape))}]"


def tile_bytes(shape: tuple[int, ...], dtype: str) -> int:
    """Bytes of a dense tile of this shape, sub-byte types packed."""
    return (math.prod(shape) * dtype_bits(dtype) + 7) // 8
