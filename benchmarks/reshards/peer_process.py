"""The peers, in a process of their own: a request a line in, an answer a line out.

Some problems abort the process; whoever asks then starts another.
"""

import json
import os
import sys

os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=256"
os.environ["JAX_PLATFORMS"] = "cpu"

import jax

from shardwright.capture import from_sdy, meshes_of_module
from shardwright.jaxlib_bindings import (
    compile_module,
    compiled_text,
    find_main,
    operations,
    parse_module,
    run_passes,
)

REMATERIALIZED = "Involuntary full rematerialization"


def compiled(module: str, count: int, partitioner: str) -> str:
    """HLO after partitioning and the back end's own passes."""
    devices = jax.devices()[:count]
    return compiled_text(
        compile_module(module.encode(), devices, partitioner=partitioner)
    )


def collectives(module: str) -> list[tuple[str, str, bool]]:
    """Name of each collective that Shardy's pass puts in, its resulting layout, and
    whether that is on the target's mesh, where it has one of its own."""
    parsed = parse_module(module)
    run_passes(parsed, "func.func(sdy-reshard-to-collectives)")
    meshes = meshes_of_module(parsed)
    found: list[tuple[str, str, bool]] = []
    for op in operations(find_main(parsed).regions[0].blocks[0]):
        if op.name == "func.return":
            break
        if "out_sharding" not in op.attributes:
            raise ValueError(f"{op.name} is left in place")
        layout = from_sdy(op.attributes["out_sharding"], meshes).layout
        is_other = "@other" in str(op.attributes["out_sharding"])
        found.append((op.name, str(layout), is_other))
    return found


def main() -> None:
    log_path = sys.argv[1]
    with open(log_path, "wb") as log:
        os.dup2(log.fileno(), 2)
    for line in sys.stdin:
        request = json.loads(line)
        start = os.path.getsize(log_path)
        try:
            if request["peer"] == "pass":
                answer = {"steps": collectives(request["module"])}
            else:
                answer = {
                    "hlo": compiled(
                        request["module"], request["devices"], request["peer"]
                    )
                }
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {error}"[:300]}
        with open(log_path, "rb") as log:
            log.seek(start)
            answer["rematerialized"] = REMATERIALIZED.encode() in log.read()
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
