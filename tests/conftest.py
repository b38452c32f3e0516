"""Twelve virtual CPU devices for all tests, goldens, and hypothesis profiles."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

FLAG = "--xla_force_host_platform_device_count"
if FLAG not in os.environ.get("XLA_FLAGS", ""):
    os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {FLAG}=12".strip()
os.environ.setdefault("JAX_PLATFORMS", "cpu")

import hypothesis
import jax
import numpy as np
import pytest
from jax.sharding import AxisType, Mesh

hypothesis.settings.register_profile(
    "ci", max_examples=100, deadline=None, derandomize=True
)
hypothesis.settings.load_profile("ci")

ROOT = Path(__file__).parent.parent


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden",
        action="store_true",
        help="rewrite the golden files from what the tests print",
    )


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str], None]:
    """Compare text with `golden/<test's name>.txt` beside the test."""
    name = request.node.name.replace("[", "-").rstrip("]")
    path = request.path.parent / "golden" / f"{name}.txt"

    def check(text: str) -> None:
        text = text.rstrip("\n") + "\n"
        if request.config.getoption("--update-golden"):
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)
        assert path.exists(), f"{path} is missing; run with --update-golden:\n{text}"
        assert text == path.read_text()

    return check


@pytest.fixture
def make_mesh() -> Callable[..., Mesh]:
    """A JAX mesh of Auto axes over the first devices: make_mesh(x=2, y=4)."""

    def make(**axes: int) -> Mesh:
        sizes = tuple(axes.values())
        devices = np.array(jax.devices()[: int(np.prod(sizes))], dtype=object)
        kinds = (AxisType.Auto,) * len(sizes)
        return Mesh(devices.reshape(sizes), tuple(axes), axis_types=kinds)

    return make


@pytest.fixture
def examples() -> Path:
    return ROOT / "examples"
