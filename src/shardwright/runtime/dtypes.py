"""MLIR element types as JAX's."""

from __future__ import annotations

import re
from typing import Any

import jax.numpy as jnp
import numpy as np

_SIMPLE = {"i1": "bool", "bf16": "bfloat16", "complex<f32>": "complex64"}
_INTEGER = re.compile(r"(u?)i(\d+)")
_FLOAT8 = re.compile(r"f(\d)(E\w+?M\w+?)((?:FN|FNUZ|B11FNUZ)?)")


def jax_dtype(dtype: str) -> np.dtype[Any]:
    """The numpy (or ml_dtypes) type of an MLIR element type.

    >>> jax_dtype("ui8"), jax_dtype("f8E4M3FN")
    (dtype('uint8'), dtype(float8_e4m3fn))
    """
    if dtype == "complex<f64>":
        return jnp.dtype("complex128")
    if dtype in _SIMPLE:
        return jnp.dtype(_SIMPLE[dtype])
    if found := _INTEGER.fullmatch(dtype):
        return jnp.dtype(f"{'u' * bool(found[1])}int{found[2]}")
    if found := _FLOAT8.fullmatch(dtype):
        return jnp.dtype(f"float{found[1]}_{found[2].lower()}{found[3].lower()}")
    return jnp.dtype(f"float{dtype[1:]}")


def mlir_dtype(dtype: Any) -> str:
    """The MLIR spelling of a numpy or ml_dtypes element type.

    >>> mlir_dtype("bfloat16"), mlir_dtype("uint8"), mlir_dtype(bool)
    ('bf16', 'ui8', 'i1')
    """
    kind = jnp.dtype(dtype)
    name = kind.name
    if name == "bool":
        return "i1"
    if kind.kind == "c":
        return f"complex<f{kind.itemsize * 4}>"
    if name.startswith("float") and "_" in name:
        head, _, tail = name.partition("_")
        return f"f{head[5:]}{tail.upper()}"
    for word, short in (("bfloat", "bf"), ("uint", "ui"), ("float", "f"), ("int", "i")):
        if name.startswith(word):
            return short + name[len(word) :]
    return name
