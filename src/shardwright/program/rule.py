"""What is known of one operation: its factors, and what a strategy makes of them.

A factor is an index of the op, as in einsum: cutting it cuts every dim that
carries it. The notation writes a dim's factors, with compound dims in brackets:

    m k, k n -> m n          with sum="k": a matmul
    (a b) c -> a b c         a reshape
    i j -> i                 with whole="j": a sort's shape, j may not be cut
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence

from shardwright.errors import RuleError
from shardwright.program.layout import Layout, Piece
from shardwright.program.mesh import Mesh, SubAxis, ways

Dims = tuple[tuple[str, ...], ...]
"""Factors of each dim of one tensor, major to minor; () for a dim of one element."""

_TOKEN = re.compile(r"\(([^()]*)\)|([A-Za-z_]\w*)|(1)|(\S)")


@dataclasses.dataclass(frozen=True, slots=True)
class PartialRow:
    """One row of an op's algebra: partial operands give partial results.

    If every operand in `operands` is partial over an axis with `reducer`, and
    the others are replicated over it, then so is every result with `result`.
    """

    reducer: str
    operands: tuple[int, ...]
    result: str


@dataclasses.dataclass(frozen=True, slots=True)
class Rule:
    """Factors of an op's operands and results, stated for one mesh axis.

    `reduced` names the factors that results no longer carry and the reducer
    that joins their pieces. A factor in `whole` must not be cut. `partial` are
    the rows of algebra by which partial operands pass through. The tensors of an
    `independent` rule do not meet: one axis may cut factors of different tensors.
    """

    operands: tuple[Dims, ...]
    results: tuple[Dims, ...]
    sizes: tuple[tuple[str, int], ...]
    reduced: tuple[tuple[str, str], ...] = ()
    whole: frozenset[str] = frozenset()
    partial: tuple[PartialRow, ...] = ()
    independent: bool = False

    @classmethod
    def parse(
        cls,
        notation: str,
        operand_shapes: Sequence[Sequence[int]],
        result_shapes: Sequence[Sequence[int]],
        *,
        sizes: Mapping[str, int] | None = None,
        reduced: Mapping[str, str] | None = None,
        whole: Sequence[str] = (),
        partial: Sequence[PartialRow] = (),
        independent: bool = False,
    ) -> Rule:
        """Read the notation against the shapes; each misuse is a RuleError.

        `sizes` is needed for the factors of compound dims alone.
        """
        left, arrow, right = notation.partition("->")
        if not arrow:
            raise RuleError(f"rule {notation!r} has no '->'")
        operands = _parse_side(notation, left, len(operand_shapes))
        results = _parse_side(notation, right, len(result_shapes))
        known = dict(sizes or {})
        sides = (
            ("operand", operands, operand_shapes),
            ("result", results, result_shapes),
        )
        for kind, tensors, shapes in sides:
            if len(tensors) != len(shapes):
                raise RuleError(
                    f"rule {notation!r} names {len(tensors)} {kind}s; "
                    f"the op has {len(shapes)}"
                )
            for i, (dims, shape) in enumerate(zip(tensors, shapes, strict=True)):
                _read_sizes(notation, f"{kind} {i}", dims, shape, known)
        for kind, tensors, shapes in sides:
            for i, (dims, shape) in enumerate(zip(tensors, shapes, strict=True)):
                _check_tensor(notation, f"{kind} {i}", dims, shape, known)
        rule = cls(
            operands,
            results,
            tuple(known.items()),
            tuple((reduced or {}).items()),
            frozenset(whole),
            tuple(partial),
            independent,
        )
        rule.check(notation)
        return rule

    def check(self, notation: str = "") -> None:
        """Raise a RuleError unless each factor's fate is stated."""
        text = notation or str(self)
        known = {name for name, _ in self.sizes}
        carried = {f for dims in self.results for fs in dims for f in fs}
        stated = {f for f, _ in self.reduced} | self.whole
        for factor in sorted(stated - known):
            raise RuleError(f"rule {text!r}: no dim carries factor {factor!r}")
        for factor, _ in self.reduced:
            if factor in carried:
                raise RuleError(
                    f"rule {text!r}: factor {factor!r} is reduced but a result has it"
                )
        lost = known - carried - stated
        if lost:
            raise RuleError(
                f"rule {text!r}: factor {min(lost)!r} is in no result; "
                "say how it is reduced, or that it must stay whole"
            )

    def size(self, factor: str) -> int:
        return dict(self.sizes)[factor]

    @property
    def factors(self) -> tuple[str, ...]:
        return tuple(name for name, _ in self.sizes)

    @property
    def free_factors(self) -> tuple[str, ...]:
        """Factors that may be cut."""
        return tuple(f for f, n in self.sizes if f not in self.whole and n > 1)

    def __str__(self) -> str:
        left = ", ".join(map(_dims_str, self.operands))
        right = ", ".join(map(_dims_str, self.results))
        text = f"{left} -> {right}"
        for factor, reducer in self.reduced:
            text += f" {reducer}={factor}"
        if self.whole:
            text += f" whole={','.join(sorted(self.whole))}"
        return text


@dataclasses.dataclass(frozen=True, slots=True)
class Strategy:
    """Which axes cut which factor of one op, and which are partial throughout.

    `cuts` gives a factor's pieces: usually one, (size, axes); several where the
    factor is cut in strides. `partial` names rows of the rule's algebra.
    """

    cuts: tuple[tuple[str, tuple[Piece, ...]], ...] = ()
    partial: tuple[tuple[PartialRow, tuple[SubAxis, ...]], ...] = ()

    @classmethod
    def of(
        cls,
        rule: Rule,
        axes: Mapping[str, tuple[SubAxis, ...]],
        partial: Sequence[tuple[PartialRow, tuple[SubAxis, ...]]] = (),
    ) -> Strategy:
        """Cut factors in one contiguous piece each, in the rule's factor order."""
        cuts = tuple((f, ((n, tuple(axes[f])),)) for f, n in rule.sizes if axes.get(f))
        return cls(cuts, tuple((row, tuple(a)) for row, a in partial if a))

    def pieces(self, rule: Rule, factor: str) -> tuple[Piece, ...]:
        """The factor's pieces; one uncut piece where the strategy says nothing."""
        for name, pieces in self.cuts:
            if name == factor:
                return pieces
        return ((rule.size(factor), ()),)

    def axes(self, factor: str) -> tuple[SubAxis, ...]:
        """All axes that cut the factor, major to minor."""
        return tuple(
            axis
            for name, ps in self.cuts
            if name == factor
            for _, a in ps
            for axis in a
        )

    def operand_layout(self, rule: Rule, mesh: Mesh, index: int) -> Layout:
        """Layout in which the strategy needs operand `index`."""
        partial = tuple(
            (axis, row.reducer)
            for row, axes in self.partial
            if index in row.operands
            for axis in axes
        )
        return self._layout(rule, mesh, rule.operands[index], partial)

    def result_layout(self, rule: Rule, mesh: Mesh, index: int) -> Layout:
        """Layout in which the strategy makes result `index`."""
        partial = tuple(
            (axis, row.result) for row, axes in self.partial for axis in axes
        )
        partial += tuple(
            (axis, reducer)
            for factor, reducer in rule.reduced
            for axis in self.axes(factor)
        )
        return self._layout(rule, mesh, rule.results[index], partial)

    def ways(self) -> int:
        """Number of devices that share the work."""
        return ways([a for _, ps in self.cuts for _, axes in ps for a in axes])

    def _layout(
        self,
        rule: Rule,
        mesh: Mesh,
        dims: Dims,
        partial: tuple[tuple[SubAxis, str], ...],
    ) -> Layout:
        pieces = [
            [piece for f in factors for piece in self.pieces(rule, f)] or [(1, ())]
            for factors in dims
        ]
        return Layout.from_pieces(mesh, pieces, partial)


def _parse_side(notation: str, text: str, count: int) -> tuple[Dims, ...]:
    """Tensors of one side; nothing written is no tensor, or one scalar."""
    if not text.strip() and not count:
        return ()
    return tuple(_parse_tensor(notation, part) for part in text.split(","))


def _parse_tensor(notation: str, text: str) -> Dims:
    dims: list[tuple[str, ...]] = []
    for compound, factor, one, stray in _TOKEN.findall(text):
        if stray:
            raise RuleError(f"rule {notation!r}: unexpected {stray!r} in {text!r}")
        if factor:
            dims.append((factor,))
        elif one:
            dims.append(())
        else:
            dims.append(tuple(compound.split()))
    return tuple(dims)


def _read_sizes(
    notation: str,
    what: str,
    dims: Dims,
    shape: Sequence[int],
    sizes: dict[str, int],
) -> None:
    """Learn the sizes of factors that have a dim of their own."""
    if len(dims) != len(shape):
        raise RuleError(
            f"rule {notation!r}: {what} has {len(dims)} dims, its shape {tuple(shape)}"
        )
    for factors, n in zip(dims, shape, strict=True):
        if len(factors) == 1:
            sizes.setdefault(factors[0], n)


def _check_tensor(
    notation: str,
    what: str,
    dims: Dims,
    shape: Sequence[int],
    sizes: Mapping[str, int],
) -> None:
    for factors, n in zip(dims, shape, strict=True):
        product = 1
        for factor in factors:
            if factor not in sizes:
                raise RuleError(
                    f"rule {notation!r}: factor {factor!r} appears in compound dims "
                    "alone; give its size"
                )
            product *= sizes[factor]
        if product != n:
            raise RuleError(
                f"rule {notation!r}: {what} has a dim ({' '.join(factors)}) of "
                f"{product} elements, but its shape is {tuple(shape)}"
            )


def _dims_str(dims: Dims) -> str:
    words = [
        fs[0] if len(fs) == 1 else f"({' '.join(fs)})" if fs else "1" for fs in dims
    ]
    return " ".join(words)
