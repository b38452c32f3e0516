"""Shardy's shardings as layouts and back."""

from __future__ import annotations

import pytest

from shardwright.capture import from_sdy, meshes_of_module, to_sdy
from shardwright.jaxlib_bindings import find_main, ir, parse_module


@pytest.mark.parametrize(
    ("sharding", "layout", "open_dims"),
    [
        ('[{"x"}, {}]', "[x, -]", (False, False)),
        ('[{"y", "x"}, {?}]', "[y x, -]", (False, True)),
        ('[{"y":(1)2}, {"x"}]', "[y:(1)2, x]", (False, False)),
        ('[{"y":(2)2, "x", ?}, {"y":(1)2}]', "[y:(2)2 x, y:(1)2]", (True, False)),
        ('[{}, {}], replicated={"x"}', "[-, -]", (False, False)),
    ],
)
def test_round_trip(sharding: str, layout: str, open_dims: tuple[bool, ...]):
    module = parse_module(
        'sdy.mesh @m = <["x"=2, "y"=4]>\n'
        f"func.func @main(%a: tensor<8x8xf32> {{sdy.sharding = #sdy.sharding<@m, "
        f"{sharding}>}}) {{\n  return\n}}"
    )
    attrs = ir.ArrayAttr(find_main(module).attributes["arg_attrs"])[0]
    attr = ir.DictAttr(attrs)["sdy.sharding"]
    constraint = from_sdy(attr, meshes_of_module(module))
    assert str(constraint.layout) == layout
    assert constraint.open_dims == open_dims
    with module.context:
        again = from_sdy(
            to_sdy(constraint, "m", module.context), meshes_of_module(module)
        )
    assert again == constraint
