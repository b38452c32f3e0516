"""The command line: one verb a command, --json everywhere."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import click

from shardwright.errors import InputError, ShardwrightError, VerificationError

TARGET = click.argument("target", metavar="FILE")


def main() -> None:
    """Entry point; a fault of the input is one line on stderr and status 2."""
    try:
        cli(standalone_mode=False)
    except click.exceptions.Exit as stop:
        sys.exit(stop.exit_code)
    except click.ClickException as error:
        error.show()
        sys.exit(2)
    except click.Abort:
        sys.exit(130)
    except VerificationError as error:
        _fail(error, 1)
    except ShardwrightError as error:
        _fail(error, 2)
    except BrokenPipeError:
        sys.stderr.close()


def _fail(error: Exception, status: int) -> NoReturn:
    click.echo(f"shardwright: {error}", err=True)
    sys.exit(status)


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="shardwright")
def cli() -> None:
    """Partition JAX programs over many devices, every choice priced.

    FILE is HLO (text or proto), StableHLO (text or bytecode), or
    package.module:function, a function without arguments that returns
    (function, *arguments).
    """


def _planning(command: Callable[..., Any]) -> Callable[..., Any]:
    """Options of every command that makes a plan."""
    for option in (
        click.option("--json", "as_json", is_flag=True, help="Print JSON."),
        click.option(
            "--keep-op-shardings",
            is_flag=True,
            help="Treat shardings on ops as given, not as hints.",
        ),
        click.option(
            "--placement",
            type=click.Choice(["optimal", "shardy", "replicate"]),
            default="optimal",
            show_default=True,
            help="How layouts are chosen.",
        ),
        click.option("--topology", help="A preset; see `shardwright topologies`."),
        click.option("--devices", type=click.IntRange(1), help="Number of devices."),
    ):
        command = option(command)
    return command


def _plan(
    target: str,
    devices: int | None,
    topology: str | None,
    placement: str,
    keep_op_shardings: bool,
) -> Any:
    from shardwright.placement import place

    with _progress(f"planning {target}"):
        program = _program(target, devices, keep_op_shardings)
        return place(program, _topology(topology, program), placement)


def _progress(text: str) -> Any:
    """A spinner on a terminal's standard error, nothing elsewhere."""
    from rich.console import Console

    return Console(stderr=True).status(text)


def _program(target: str, devices: int | None, keep_op_shardings: bool) -> Any:
    from shardwright.capture import program_from_target

    sys.path.insert(0, str(Path.cwd()))
    return program_from_target(
        target, num_devices=devices, keep_op_shardings=keep_op_shardings
    )


def _topology(name: str | None, program: Any) -> Any:
    from shardwright.topology import preset

    return preset(name or f"cpu-{program.mesh.num_devices}")


def _use_virtual_devices(count: int) -> None:
    """Ask JAX for as many CPU devices, before its back end starts."""
    import jax

    if jax.config.jax_platforms is None:
        jax.config.update("jax_platforms", "cpu")
    try:
        jax.config.update("jax_num_cpu_devices", count)
    except RuntimeError:
        return  # started already, with what XLA_FLAGS asked for


@cli.command()
@TARGET
@_planning
@click.option(
    "--emit",
    type=click.Choice(["hlo", "stablehlo"]),
    default="hlo",
    show_default=True,
    help="Form of the per-device module.",
)
@click.option("-o", "--output", type=click.Path(dir_okay=False), help="Write here.")
def partition(
    target: str,
    devices: int | None,
    topology: str | None,
    placement: str,
    keep_op_shardings: bool,
    as_json: bool,
    emit: str,
    output: str | None,
) -> None:
    """Print the module that each device runs."""
    from shardwright.capture import to_hlo
    from shardwright.lowering import partitioned_text

    plan = _plan(target, devices, topology, placement, keep_op_shardings)
    text = partitioned_text(plan, emit)
    for warning in plan.warnings:
        click.echo(f"shardwright: warning: {warning}", err=True)
    if as_json:
        values = plan.program.values

        def strings(ids: Any, layouts: Any) -> list[str]:
            return [
                to_hlo(layout, values[v].shape)
                for v, layout in zip(ids, layouts, strict=True)
            ]

        text = json.dumps(
            {
                "module": text,
                "num_partitions": plan.program.mesh.num_devices,
                "inputs": strings(plan.program.inputs, plan.inputs),
                "outputs": strings(plan.program.outputs, plan.outputs),
            },
            indent=2,
        )
    _write(text, output)


@cli.command()
@TARGET
@_planning
def explain(
    target: str,
    devices: int | None,
    topology: str | None,
    placement: str,
    keep_op_shardings: bool,
    as_json: bool,
) -> None:
    """Print the plan: layouts, moves with prices, and why."""
    from shardwright.insight import explain as explain_plan
    from shardwright.insight import plan_to_dict

    plan = _plan(target, devices, topology, placement, keep_op_shardings)
    text = json.dumps(plan_to_dict(plan), indent=2) if as_json else explain_plan(plan)
    _write(text, None)


@cli.command()
@TARGET
@_planning
def verify(
    target: str,
    devices: int | None,
    topology: str | None,
    placement: str,
    keep_op_shardings: bool,
    as_json: bool,
) -> None:
    """Run the plan on virtual devices against the unpartitioned program."""
    import dataclasses

    from shardwright.runtime.verify import verify as verify_plan

    plan = _plan(target, devices, topology, placement, keep_op_shardings)
    _use_virtual_devices(plan.program.mesh.num_devices)
    with _progress(f"running {target} on {plan.program.mesh.num_devices} devices"):
        outcome = verify_plan(plan)
    _write(
        json.dumps(dataclasses.asdict(outcome)) if as_json else str(outcome),
        None,
    )


@cli.command()
@TARGET
@click.option("--devices", type=click.IntRange(1), help="Number of devices.")
@click.option("--topology", help="A preset; see `shardwright topologies`.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def compare(
    target: str, devices: int | None, topology: str | None, as_json: bool
) -> None:
    """Count what each device receives: our placements, and XLA's partitioners."""
    import jax

    from shardwright.insight import compare as compare_program
    from shardwright.insight import rows_to_dict, table

    program = _program(target, devices, keep_op_shardings=False)
    _use_virtual_devices(program.mesh.num_devices)
    with _progress(f"compiling {target} with every partitioner"):
        rows = compare_program(program, _topology(topology, program), jax.devices())
    if as_json:
        _write(json.dumps(rows_to_dict(rows), indent=2), None)
        return
    _write_table(table(rows))


@cli.command()
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def topologies(as_json: bool) -> None:
    """List the machines that can be priced, with the sources of their figures."""
    from shardwright.insight.machines import machines_dict, machines_text

    if as_json:
        _write(json.dumps(machines_dict(), indent=2), None)
        return
    _write(machines_text(), None)


@cli.command()
@click.option("--shape", required=True, help="As 8192x8192.")
@click.option("--dtype", default="f32", show_default=True, help="As f32, bf16, i8.")
@click.option("--mesh", "mesh_text", required=True, help="As a=2,b=2,c=2.")
@click.option("--from", "source", required=True, help="As 'a b, c'.")
@click.option("--to", "target", required=True, help="As 'a, b c'.")
@click.option("--to-mesh", help="As 'a=4,b=2', 'a=2 @ 1 0', '@ 3'; else --mesh.")
@click.option("--max-bytes", type=int, help="Most bytes a device beside its tiles.")
@click.option("--topology", help="A preset; see `shardwright topologies`.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def redistribute(
    shape: str,
    dtype: str,
    mesh_text: str,
    source: str,
    target: str,
    to_mesh: str | None,
    max_bytes: int | None,
    topology: str | None,
    as_json: bool,
) -> None:
    """Plan how one array goes from a layout to another."""
    from shardwright.insight.schedules import schedule_dict, schedule_text
    from shardwright.program import Layout
    from shardwright.redistribution import plan_redistribution
    from shardwright.topology import check_fits, preset

    mesh = _parse_mesh("--mesh", mesh_text)
    other = mesh if to_mesh is None else _parse_mesh("--to-mesh", to_mesh)
    sizes = _parse_shape(shape)
    layouts = Layout.parse(mesh, source), Layout.parse(other, target)
    for layout in layouts:
        layout.check_rank(sizes)
    ids = [m.device_id(p) for m in (mesh, other) for p in range(m.num_devices)]
    count = max(ids) + 1
    machine = preset(topology or f"cpu-{count}")
    check_fits(machine, count)
    schedule = plan_redistribution(sizes, dtype, *layouts, machine, max_bytes)
    if as_json:
        _write(json.dumps(schedule_dict(schedule), indent=2), None)
        return
    _write(schedule_text(schedule, machine), None)


def _parse_mesh(option: str, text: str) -> Any:
    from shardwright.program import Mesh

    text, _, order = text.partition("@")
    if not all(word.isdigit() for word in order.split()):
        raise InputError(f"{option}: write device numbers after @, as 'a=2 @ 1 0'")
    axes: list[tuple[str, int]] = []
    for part in text.split(",") if text.strip() or not order else ():
        name, _, size = part.partition("=")
        if not name.strip() or not size.strip().isdigit():
            raise InputError(f"{option} {text!r}: write axes as a=2,b=4")
        axes.append((name.strip(), int(size)))
    ids = tuple(map(int, order.split())) or None
    return Mesh(tuple(axes), ids)


def _parse_shape(text: str) -> tuple[int, ...]:
    parts = [part for part in text.split("x") if part]
    if not all(part.isdigit() for part in parts):
        raise InputError(f"--shape {text!r}: write dims as 8192x8192")
    return tuple(map(int, parts))


def _write(text: str, output: str | None) -> None:
    if output is None:
        click.echo(text.rstrip("\n"))
        return
    try:
        Path(output).write_text(text)
    except OSError as error:
        raise InputError(f"{output}: cannot be written: {error.strerror}") from None


def _write_table(rows: list[tuple[str, ...]]) -> None:
    """Aligned columns; ruled and wrapped on a terminal."""
    if sys.stdout.isatty():
        from rich.console import Console
        from rich.table import Table

        table = Table()
        for title in rows[0]:
            table.add_column(title, overflow="fold")
        for row in rows[1:]:
            table.add_row(*row)
        Console().print(table)
        return
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=True)]
        click.echo("  ".join(cells).rstrip())
