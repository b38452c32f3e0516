"""The examples run as the README says."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def run(path: Path, *words: str) -> str:
    done = subprocess.run(
        [sys.executable, str(path), *words],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_dot_reshard(examples: Path):
    out = run(examples / "dot_reshard.py", "--size", "256")
    assert "y: tile (64, 256)" in out
    assert "result: tile (128, 64)" in out
    assert "largest difference from numpy" in out
    assert "CPU 0" in out


def test_mlp_train(examples: Path):
    out = run(examples / "mlp_train.py", "--steps", "20")
    assert "ops on mesh (data=2,fsdp=2,tensor=2), 8 devices" in out
    table = out[out.index("step  loss") :].splitlines()[1:]
    losses = [line.split() for line in table if line[:4].strip().isdigit()]
    assert len(losses) == 20
    assert float(losses[-1][1]) < float(losses[0][1])
    for _, ours, theirs in losses:
        assert abs(float(ours) - float(theirs)) < 1e-5 * float(theirs)
