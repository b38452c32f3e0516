"""Random changes of layout: our schedules beside the peers' and the lower bound.

    python benchmarks/redistribution.py                    # 5,000 problems, 20 minutes
    python benchmarks/redistribution.py --problems 300 --json out.json

Six classes of problems in turn (`reshards/problems.py`). The peers are Shardy's pass
`sdy-reshard-to-collectives`, XLA with GSPMD and XLA with Shardy, in a process that may
abort; what they do is counted and priced by the functions that count and price ours.
Every schedule of ours is checked exactly by index sets, and the first 600 problems of
at most 12 devices are run, in small, with every bit compared. Volumes are those of the
candidate that receives fewest bytes; times are those of plans for each machine. Volume,
collectives and peak memory are per device; peak is over the larger of the two tiles.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import json
import math
import multiprocessing
import os
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=12")

from reshards.on_devices import MAX_DEVICES, run
from reshards.ours import BYTES, MACHINES, Ours, ends, machines, our_answer
from reshards.peers import PEERS, Answer, PeerProcess
from reshards.problems import CLASSES, Problem, problems
from rich.console import Console
from rich.progress import track
from rich.table import Table

from shardwright.redistribution.ordered import ROOM_BYTES

NAMES = {
    "ours": "ours",
    "pass": "Shardy's pass",
    "gspmd": "XLA, GSPMD",
    "shardy": "XLA, Shardy",
}
_peers: list[PeerProcess] = []


@dataclasses.dataclass(frozen=True)
class Result:
    """One problem, our figures and the peers'."""

    problem: Problem
    ours: Ours
    peers: dict[str, Answer]


def solve(task: tuple[Problem, bool]) -> Result:
    """Everything about one problem; run on devices, too, if it says so."""
    problem, is_run = task
    if not _peers:
        _peers.append(PeerProcess())
    where = machines(problem.num_devices)
    found = {peer: _peers[0].answer(problem, peer, where) for peer in PEERS}
    ours = our_answer(problem, where)
    if is_run:
        run(problem, [BYTES, where[-1]])
    for peer, answer in found.items():
        # Shardy in XLA replaces layouts that do not divide; where tiles do not show
        # it, as for one element over many devices, its bytes do.
        least = max(1, ours.lower_bound - 8) if ours.lower_bound else 0
        if answer.status == "planned" and answer.bytes_received < least:
            found[peer] = Answer("other layout")
    return Result(problem, ours, found)


# Figures ----------------------------------------------------------------------


def spread(values: Sequence[float]) -> dict[str, float]:
    """Geometric mean, 90th percentile and worst."""
    if not values:
        return {}
    ordered = sorted(values)
    mean = math.exp(sum(map(math.log, ordered)) / len(ordered))
    return {
        "geometric_mean": mean,
        "p90": ordered[int(0.9 * (len(ordered) - 1))],
        "worst": ordered[-1],
    }


def volume_figures(results: Sequence[Result], who: str) -> dict[str, Any]:
    """Bytes over the bound, and what else is counted, of one planner."""
    ratios, at_bound, peaks, collectives = [], 0, [], []
    statuses: defaultdict[str, int] = defaultdict(int)
    rematerialized = 0
    for result in results:
        answer = result.ours if who == "ours" else result.peers[who]
        bound = result.ours.lower_bound
        if isinstance(answer, Answer):
            statuses[answer.status] += 1
            if answer.status != "planned":
                continue
            rematerialized += answer.rematerialized
            peaks.append(answer.peak_bytes / ends(result.problem))
        else:
            peaks.append(answer.peak_ratio)
        collectives.append(answer.collectives)
        at_bound += answer.bytes_received <= bound
        if bound:
            ratios.append(answer.bytes_received / bound)
    planned = len(collectives)
    return {
        "problems": len(results),
        "planned": planned,
        **{key: n for key, n in statuses.items() if key != "planned"},
        "volume": spread(ratios),
        "share_at_bound": at_bound / planned if planned else 0.0,
        "full_rematerializations": rematerialized,
        "collectives": sum(collectives) / planned if planned else 0.0,
        "peak": max(peaks, default=0.0),
    }


def time_figures(results: Iterable[Result], peer: str, machine: str) -> dict[str, Any]:
    """Our modelled seconds over the peer's."""
    ratios, above = [], 0
    for result in results:
        theirs = result.peers[peer].seconds.get(machine)
        ours = result.ours.seconds.get(machine)
        if theirs is None or ours is None:
            continue
        above += ours > theirs * (1 + 1e-9)
        if theirs > 0 and ours > 0:
            ratios.append(ours / theirs)
    return {"ratio": spread(ratios), "above": above, "problems": len(ratios)}


def volume_table(by_class: dict[str, list[Result]], figures: dict[str, Any]) -> Table:
    table = Table(title="Bytes a device over the lower bound")
    for column in ("class", "planner", "planned", "geo. mean", "p90", "worst"):
        table.add_column(column)
    for column in ("at bound", "full remat.", "collectives", "peak"):
        table.add_column(column)
    for kind, results in by_class.items():
        for who, name in NAMES.items():
            row = figures[f"{kind}/{who}"] = volume_figures(results, who)
            volume = row["volume"]
            missing = ", ".join(
                f"{row[key]} {key}"
                for key in ("abort", "refused", "other layout")
                if row.get(key)
            )
            table.add_row(
                kind if who == "ours" else "",
                name,
                f"{row['planned']}" + (f" ({missing})" if missing else ""),
                *(f"{volume[k]:.4f}" if volume else "-" for k in volume or "123"),
                f"{row['share_at_bound']:.1%}",
                str(row["full_rematerializations"]),
                f"{row['collectives']:.2f}",
                f"{row['peak']:.2f}",
            )
    return table


def time_table(results: Sequence[Result], figures: dict[str, Any]) -> Table:
    table = Table(title="Our modelled time over the peer's")
    for column in ("machine", "peer", "problems", "geo. mean", "worst", "above 1"):
        table.add_column(column)
    for machine in ("bytes", *MACHINES):
        for peer in PEERS:
            row = figures[f"time/{machine}/{peer}"] = time_figures(
                results, peer, machine
            )
            ratio = row["ratio"]
            table.add_row(
                machine if peer == PEERS[0] else "",
                NAMES[peer],
                str(row["problems"]),
                f"{ratio['geometric_mean']:.4f}" if ratio else "-",
                f"{ratio['worst']:.4f}" if ratio else "-",
                str(row["above"]),
            )
    return table


def slower(results: Iterable[Result]) -> Iterable[str]:
    """The problems on which a peer's plan takes less time than ours."""
    for result in results:
        for peer, answer in result.peers.items():
            for machine, theirs in answer.seconds.items():
                ours = result.ours.seconds[machine]
                if ours > theirs * (1 + 1e-9):
                    p = result.problem
                    yield (
                        f"{p.kind}: {p.shape} {p.source.mesh} {p.source} -> {p.target} "
                        f"on {machine}: {ours:.3e} s, {NAMES[peer]} {theirs:.3e} s"
                    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--problems", type=int, default=5000)
    parser.add_argument("--run", type=int, default=600, help="run so many on devices")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", help="write the figures here")
    options = parser.parse_args()
    every = list(problems(options.problems, options.seed))
    small = (p.num_devices <= MAX_DEVICES for p in every)
    left = itertools.count(1)
    chosen = [is_small and next(left) <= options.run for is_small in small]
    console = Console(width=130)
    context = multiprocessing.get_context("spawn")
    with context.Pool(os.cpu_count()) as pool:
        solved = pool.imap(solve, zip(every, chosen, strict=True), chunksize=4)
        results = list(track(solved, "planning", len(every)))
    console.print(f"{sum(chosen)} problems run on devices, every bit equal")
    by_class = {k: [r for r in results if r.problem.kind == k] for k in CLASSES}
    figures: dict[str, Any] = {}
    console.print(volume_table(by_class, figures))
    console.print(time_table(results, figures))
    times = sorted(r.ours.planning for r in results)
    figures["planning"] = {
        "median": times[len(times) // 2],
        "p90": times[int(0.9 * (len(times) - 1))],
        "worst": times[-1],
    }
    console.print("planning, seconds a plan:", figures["planning"])
    peak = max(r.ours.peak_bytes / max(ends(r.problem), ROOM_BYTES) for r in results)
    figures["peak over tiles or room"] = peak
    console.print(
        f"largest peak of any machine's plan, over the larger tile or "
        f"{ROOM_BYTES >> 20} MiB: {peak:.2f}"
    )
    figures["unchecked"] = sum(r.ours.unchecked for r in results)
    console.print(f"{figures['unchecked']} schedules too large for the exact check")
    lines = list(slower(results))
    figures["slower"] = lines
    console.print(f"{len(lines)} plans slower than a peer's")
    for line in lines[:20]:
        console.print(f"  {line}", markup=False)
    if options.json:
        with open(options.json, "w") as file:
            json.dump(figures, file, indent=2)


if __name__ == "__main__":
    main()
