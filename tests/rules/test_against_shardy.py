"""Our factors beside Shardy's for every sample: the same, or a reason why not."""

from __future__ import annotations

import re

import pytest

from shardwright.jaxlib_bindings import find_main, operations, run_passes
from shardwright.program import Rule
from shardwright.rules import Entry, entries
from tests.rules.conformance import probe, sample_module

Factor = tuple[int, tuple[tuple[int, int, int], ...], bool]
"""Size, where it stands (tensor, dim, elements more minor in the dim), reduced."""

SLIDES = "Shardy cuts it and leaves the neighbours' elements to XLA; we keep it whole"
SLIDES_SINCE_12 = "jax 0.12's Shardy slides what is left between the dims"
UNKNOWN_REDUCER = "Shardy calls it a reduction, whose pieces no all-reduce can join"

DIFFERENCES = {
    ("stablehlo.dynamic_update_slice", 0): SLIDES,
    ("stablehlo.pad", 0): SLIDES,
    ("stablehlo.reshape", 2): SLIDES_SINCE_12,
    ("stablehlo.reshape", 3): SLIDES_SINCE_12,
    ("stablehlo.reverse", 0): SLIDES,
    ("stablehlo.slice", 0): SLIDES,
    ("stablehlo.reduce", 7): UNKNOWN_REDUCER,
}

WITHOUT_SHARDY_RULE = {
    "stablehlo.constant",
    "stablehlo.iota",
    "stablehlo.optimization_barrier",
}

SAMPLES = [
    pytest.param(entry, i, id=f"{entry.name}-{i}")
    for entry in entries()
    for i in range(len(entry.samples))
]

_TENSOR = re.compile(r"\[([^\]]*)\]")
_FACTOR = re.compile(r"[a-z](?:_\d+)?")


def shardy_text(entry: Entry, index: int) -> str | None:
    module = sample_module(entry, entry.samples[index])
    run_passes(module, "func.func(sdy-populate-op-sharding-rules)")
    op = next(operations(find_main(module).regions[0].blocks[0]))
    if "sdy.sharding_rule" not in op.attributes:
        return None
    return str(op.attributes["sdy.sharding_rule"])


def set_of(text: str, name: str) -> set[str]:
    found = re.search(rf"{name}=\{{([^}}]*)\}}", text)
    return set(found[1].split(", ")) if found else set()


def shardy_factors(text: str) -> set[Factor]:
    """The factors that Shardy may cut; those that slide are cut in its sense."""
    head, _, tail = text.partition("{")
    sizes = {
        name: int(n)
        for name, n in (item.split("=") for item in tail.split("}")[0].split(", "))
    }
    dims = [
        [_FACTOR.findall(dim) for dim in found.split(", ")] if found else []
        for found in _TENSOR.findall(head)
    ]
    whole = set_of(text, "need_replication")
    reduced = set_of(text, "reduction")
    return factors_of(dims, sizes, whole, reduced)


def our_factors(rule: Rule) -> set[Factor]:
    dims = [[list(fs) for fs in dims] for dims in (*rule.operands, *rule.results)]
    reduced = {f for f, _ in rule.reduced}
    return factors_of(dims, dict(rule.sizes), set(rule.whole), reduced)


def factors_of(
    tensors: list[list[list[str]]],
    sizes: dict[str, int],
    whole: set[str],
    reduced: set[str],
) -> set[Factor]:
    places: dict[str, list[tuple[int, int, int]]] = {f: [] for f in sizes}
    for t, dims in enumerate(tensors):
        for d, factors in enumerate(dims):
            minor = 1
            for factor in reversed(factors):
                places[factor].append((t, d, minor))
                minor *= sizes[factor]
    # A factor of one tensor alone, not reduced, says only that it need not be whole.
    return {
        (n, tuple(places[f]), f in reduced)
        for f, n in sizes.items()
        if n > 1 and f not in whole and (len(places[f]) > 1 or f in reduced)
    }


@pytest.mark.parametrize(("entry", "index"), SAMPLES)
def test_factors_are_shardys_or_differ_for_a_reason(entry: Entry, index: int):
    text = shardy_text(entry, index)
    if entry.name in WITHOUT_SHARDY_RULE or entry.name.startswith("chlo."):
        assert text is None
        return
    assert text is not None, "Shardy has no rule; list the op"
    ours, theirs = our_factors(probe(entry, index).rule), shardy_factors(text)
    reason = DIFFERENCES.get((entry.name, index))
    if reason is SLIDES_SINCE_12:
        assert ours == theirs or "permutation=" in text
    elif reason is None:
        assert ours == theirs, text
    else:
        assert ours < theirs, f"no longer so: {reason}"
