"""A file, or `package.module:function`, -> Program."""

from __future__ import annotations

from pathlib import Path

import jax

from shardwright.capture.hlo import refuse_elided_constants
from shardwright.capture.jax import example_function, program_from_function
from shardwright.capture.stablehlo import program_from_module
from shardwright.errors import InputError, ShardwrightError
from shardwright.jaxlib_bindings import (
    hlo_proto_to_module,
    hlo_text_to_module,
    ir,
    parse_module,
)
from shardwright.program import Program

_BYTECODE_MAGIC = b"ML\xefR"


def program_from_target(
    target: str,
    *,
    num_devices: int | None = None,
    keep_op_shardings: bool = False,
) -> Program:
    """Read a program by what the command line names.

    A path to HLO text or proto, StableHLO text or bytecode; or
    `package.module:function`, a function without arguments that returns
    (function, *arguments). Every fault is one InputError or LayoutError that
    starts with the target's name.
    """
    path = Path(target)
    try:
        if not path.exists() and ":" in target and "/" not in target:
            function, arguments = example_function(target)
            jitted = jax.jit(function, keep_unused=True)
            traced = program_from_function(
                jitted, arguments, {}, keep_op_shardings=keep_op_shardings
            )
            return traced.program
        module = module_from_bytes(_read(path))
        return program_from_module(
            module, num_devices=num_devices, keep_op_shardings=keep_op_shardings
        )
    except ShardwrightError as error:
        raise type(error)(f"{target}: {error}") from None


def module_from_bytes(data: bytes) -> ir.Module:
    """Tell the four formats apart by their first bytes and words, and parse."""
    if not data.strip():
        raise InputError("the file is empty")
    if data.startswith(_BYTECODE_MAGIC):
        return parse_module(data)
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return hlo_proto_to_module(data)
    if "\x00" in text or (not text.isascii() and "HloModule" not in text):
        return hlo_proto_to_module(data)
    if _first_words(text).startswith("HloModule"):
        refuse_elided_constants(text)
        return hlo_text_to_module(text)
    return parse_module(text)


def _first_words(text: str) -> str:
    """The text from its first line that is not a comment."""
    lines = text.lstrip().splitlines()
    while lines and (not lines[0].strip() or lines[0].lstrip().startswith("//")):
        lines.pop(0)
    return lines[0].lstrip() if lines else ""


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        raise InputError("no such file") from None
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}") from None
