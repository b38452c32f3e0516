"""The commands as a person types them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from shardwright.jaxlib_bindings import hlo_text_to_module, parse_module


def run(*words: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """A command in a process of its own, as from a shell."""
    env = {k: v for k, v in os.environ.items() if k != "XLA_FLAGS"}
    return subprocess.run(
        [sys.executable, "-c", "from shardwright.cli import main; main()", *words],
        capture_output=True,
        text=True,
        env=env,
        cwd=cwd,
        timeout=600,
        check=False,
    )


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The first case at a size that runs in a moment."""
    text = (Path(__file__).parent.parent / "examples" / "dot_reshard.hlo").read_text()
    path = tmp_path_factory.mktemp("files") / "small.hlo"
    path.write_text(text.replace("8192", "256"))
    return str(path)


def test_partition_prints_hlo(examples: Path):
    done = run("partition", str(examples / "dot_reshard.hlo"), "--topology", "h100-8")
    assert (done.returncode, done.stderr) == (0, "")
    hlo_text_to_module(done.stdout)
    entry = next(x for x in done.stdout.splitlines() if x.startswith("ENTRY"))
    assert "_spmd (" in entry
    assert "f32[2048,8192]" in entry
    assert "f32[8192,4096]" in entry
    assert entry.endswith("-> f32[4096,2048] {")
    parameters = [x for x in done.stdout.splitlines() if " parameter(" in x]
    assert all("sharding={devices=" in x and "metadata={" in x for x in parameters)
    (root,) = (x for x in done.stdout.splitlines() if "ROOT" in x)
    assert " = f32[4096,2048]{1,0} " in root


def test_partition_emits_stablehlo(examples: Path, tmp_path: Path):
    out = tmp_path / "out.mlir"
    target = str(examples / "dot_reshard.hlo")
    done = run("partition", target, "--emit", "stablehlo", "-o", str(out))
    assert (done.returncode, done.stdout) == (0, "")
    assert parse_module(out.read_text()).operation.verify()


def test_partition_json(examples: Path):
    done = run("partition", str(examples / "dot_reshard.hlo"), "--json")
    data = json.loads(done.stdout)
    assert data["num_partitions"] == 8
    assert data["inputs"] == [
        "{devices=[4,1,2]<=[8] last_tile_dim_replicate}",
        "{devices=[1,2,4]<=[4,2]T(1,0) last_tile_dim_replicate}",
    ]
    assert data["outputs"] == ["{devices=[2,4]<=[8]}"]
    hlo_text_to_module(data["module"])


def test_explain(examples: Path, golden):
    target = str(examples / "dot_reshard.hlo")
    done = run("explain", target, "--topology", "h100-8")
    assert (done.returncode, done.stderr) == (0, "")
    golden(done.stdout)


def test_explain_json_has_the_same_facts(examples: Path):
    done = run("explain", str(examples / "dot_reshard.hlo"), "--json")
    data = json.loads(done.stdout)
    assert data["bytes_received"] == data["lower_bound"] == 32 << 20
    (move,) = data["moves"]
    assert (move["source"], move["target"]) == ("[a b, c]", "[a, b c]")
    (decision,) = data["decisions"]
    by_name = {o["name"]: o["bytes_received"] for o in decision["options"]}
    assert by_name["move the result"] == 32 << 20
    name = "make the result as it is needed, move the operands"
    assert by_name[name] == 128 << 20


def test_verify(small: str):
    done = run("verify", small)
    assert done.returncode == 0, done.stderr
    assert "verified on 8 devices" in done.stdout
    assert "result 0 f32[256,256]: equal" in done.stdout


def test_compare_reproduces_the_table(examples: Path):
    done = run("compare", str(examples / "dot_reshard.hlo"), "--json")
    rows = {row["name"]: row for row in json.loads(done.stdout)}
    figures = {
        name: (row["bytes_received"] >> 20, row["dots"], row["flops_share"])
        for name, row in rows.items()
    }
    whole, half = "f32[8192,8192] x f32[8192,8192]", "f32[4096,8192] x f32[8192,2048]"
    assert figures == {
        "gather the operands (placement=replicate)": (320, [whole], 1.0),
        "Shardy's propagation (placement=shardy)": (128, [half], 0.125),
        "XLA today, GSPMD": (128, [half], 0.125),
        "XLA today, Shardy": (128, [half], 0.125),
        "Shardwright": (32, ["f32[2048,8192] x f32[8192,4096]"], 0.125),
    }


def test_redistribute(golden):
    words = ["--shape", "8192x8192", "--mesh", "a=2,b=2,c=2", "--topology", "h100-8"]
    done = run("redistribute", *words, "--from", "a b, c", "--to", "a, b c")
    assert (done.returncode, done.stderr) == (0, "")
    golden(done.stdout)


def test_topologies(golden):
    done = run("topologies")
    assert (done.returncode, done.stderr) == (0, "")
    golden(done.stdout)
    assert len(json.loads(run("topologies", "--json").stdout)) == 11


def test_function_target(tmp_path: Path):
    (tmp_path / "mine.py").write_text(
        "import jax, jax.numpy as jnp\n"
        "from jax.sharding import AbstractMesh, NamedSharding, PartitionSpec as P\n"
        "def step():\n"
        "    mesh = AbstractMesh((64,), ('x',))\n"
        "    x = jax.ShapeDtypeStruct((128, 8), jnp.float32,\n"
        "                             sharding=NamedSharding(mesh, P('x')))\n"
        "    return (lambda x: x.sum(0)), x\n"
    )
    done = run("explain", "mine:step", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "64 devices" in done.stdout


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("explain", "nothing.hlo"), "nothing.hlo: no such file"),
        (("explain", "{small}", "--topology", "abacus"), "unknown topology 'abacus'"),
        (("explain", "{small}", "--topology", "h100-4"), "has 8 devices, topology"),
        (
            ("partition", "{small}", "--devices", "4"),
            "8 devices, the program for 4",
        ),
        (("partition", "{small}", "-o", "/nowhere/out"), "cannot be written"),
        (("nonsense",), "No such command"),
        (
            ("redistribute", "--shape", "8", "--mesh", "a", "--from", "-", "--to", "-"),
            "write axes as a=2",
        ),
        (
            ("redistribute", "--shape", "8x8", "--mesh", "a=2", "--from", "z,-"),
            "Missing option '--to'",
        ),
    ],
)
def test_faults_are_one_line_and_status_2(
    words: tuple[str, ...], message: str, small: str
):
    done = run(*(word.format(small=small) for word in words))
    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""
