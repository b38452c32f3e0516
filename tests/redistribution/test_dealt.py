"""Reductions dealt out: the least load, the schedule that has it, and its check."""

from __future__ import annotations

import dataclasses
import math
import random

import pytest

from shardwright.errors import PlanError
from shardwright.program import Exchange, Fold, Layout, Mesh, Round, Schedule, Step
from shardwright.redistribution import check_schedule
from shardwright.redistribution.check_pieces import check_pieces, follows_units
from shardwright.redistribution.choose import plan_schedule
from shardwright.redistribution.dealt import dealt
from shardwright.redistribution.shares import cheapest_shares, least_load, work_of
from tests.redistribution.problems import BYTES

CUBE = Mesh((("a", 2), ("b", 2), ("c", 2)))
FOUR = Mesh((("a", 4), ("b", 2)))

CASES = (
    (CUBE, (24, 4), "b a, - | sum c", "a b, c", 5 / 3),
    (CUBE, (48,), "b a | sum c", "a b c", 5 / 3),
    (CUBE, (8, 8), "-, - | sum a | sum b", "a b, c", 3),
    (CUBE, (220, 46, 94), "-, -, b | sum a | sum c", "c b, -, a", 3.5),
    (FOUR, (24,), "b | sum a", "a b", 3.5),
)


def schedule_of(mesh: Mesh, shape: tuple[int, ...], old: str, new: str) -> Schedule:
    """The schedule that deals the reduction out, whatever else there is."""
    source, target = Layout.parse(mesh, old), Layout.parse(mesh, new)
    work = work_of(shape, source, target)
    shares = work and cheapest_shares(work)
    assert work is not None
    assert shares is not None
    steps = dealt(work, shares, 1 << 40)
    assert steps is not None
    plan = plan_schedule(shape, "f32", source, target, BYTES)
    return dataclasses.replace(plan, steps=steps, alternatives=())


@pytest.mark.parametrize(("mesh", "shape", "old", "new", "load"), CASES)
def test_the_least_load(mesh, shape, old, new, load):
    source, target = Layout.parse(mesh, old), Layout.parse(mesh, new)
    work = work_of(shape, source, target)
    assert work is not None
    shares = cheapest_shares(work)
    assert shares is not None
    assert math.isclose(shares.load, load)


def test_who_wants_a_total_and_holds_a_part_may_add_it_last():
    """Who does not want an element then gathers all parts of it but one."""
    source, target = Layout.parse(FOUR, "b | sum a"), Layout.parse(FOUR, "a")
    work = work_of((8,), source, target)
    assert work is not None
    shares = cheapest_shares(work)
    assert shares is not None
    assert math.isclose(shares.load, 2.2)
    assert math.isclose(least_load(work, shares), 2.0)


@pytest.mark.parametrize(("mesh", "shape", "old", "new", "load"), CASES)
def test_some_candidate_has_the_least_load(mesh, shape, old, new, load):
    source, target = Layout.parse(mesh, old), Layout.parse(mesh, new)
    plan = plan_schedule(shape, "f32", source, target, BYTES)
    work = work_of(shape, source, target)
    assert work is not None
    assert plan.lower_bound == 4 * math.ceil(load * work.unit - 1e-6)
    least = min((plan, *plan.alternatives), key=lambda c: c.bytes_received)
    # A unit that the pieces do not divide leaves single elements, some one too many.
    assert 0 <= least.bytes_received - plan.lower_bound <= 4 * 2
    check_schedule(dataclasses.replace(plan, steps=least.steps))


@pytest.mark.parametrize(("mesh", "shape", "old", "new", "load"), CASES)
def test_both_checks_pass_it(mesh, shape, old, new, load):
    schedule = schedule_of(mesh, shape, old, new)
    check_schedule(schedule)
    assert is_followed(schedule)
    by_pieces(schedule)


@pytest.mark.parametrize("seed", range(60))
def test_a_fault_is_found_by_both_checks(seed):
    rng = random.Random(seed)
    schedule = schedule_of(*rng.choice(CASES[:3])[:4])
    steps = list(schedule.steps)
    spots = [i for i, step in enumerate(steps) if isinstance(step, Exchange)]
    spot = rng.choice(spots)
    exchange = steps[spot]
    assert isinstance(exchange, Exchange)
    steps[spot] = spoiled(exchange, rng)
    wrong = dataclasses.replace(schedule, steps=tuple(steps))
    messages = []
    for check in (check_schedule, by_pieces):
        try:
            check(wrong)
        except PlanError as error:
            messages.append(str(error))
    assert len(messages) in (0, 2)
    assert all("wrong schedule" in message for message in messages)


def test_most_faults_are_faults():
    found = 0
    for seed in range(60):
        rng = random.Random(seed)
        schedule = schedule_of(*CASES[0][:4])
        steps: list[Step] = []
        for step in schedule.steps:
            is_exchange = isinstance(step, Exchange)
            steps.append(spoiled(step, rng) if is_exchange else step)
        try:
            by_pieces(dataclasses.replace(schedule, steps=tuple(steps)))
        except PlanError:
            found += 1
    assert found > 50


def test_what_does_not_deal_units_out_is_not_followed():
    source, target = Layout.parse(CUBE, "a, -"), Layout.parse(CUBE, "-, a")
    plan = plan_schedule((8, 8), "f32", source, target, BYTES)
    assert not is_followed(plan)
    folded = schedule_of(*CASES[0][:4])
    without = tuple(s for s in folded.steps if not isinstance(s, Exchange | Fold))
    assert is_followed(folded)
    assert not is_followed(dataclasses.replace(folded, steps=without[1:]))


def is_followed(schedule: Schedule) -> bool:
    tiles = (x.tile_shape(schedule.shape) for x in (schedule.source, schedule.target))
    return follows_units(schedule.steps, *tiles)


def by_pieces(schedule: Schedule) -> None:
    source, target = schedule.source, schedule.target
    owed = [axis for axis, _ in source.partial]
    bare = source.without_partial()
    check_pieces(bare, target, schedule.shape, schedule.steps, owed)


def spoiled(step: Exchange, rng: random.Random) -> Exchange:
    """One round with a sender changed, a place moved, or left out."""
    rounds = list(step.rounds)
    i = rng.randrange(len(rounds))
    r = rounds[i]
    kind = rng.randrange(3)
    if kind == 0:
        del rounds[i]
        return dataclasses.replace(step, rounds=tuple(rounds))
    at = rng.randrange(len(r.pairs))
    sender, receiver = r.pairs[at]
    pairs, read = list(r.pairs), list(r.read)
    if kind == 1:
        other = rng.randrange(len(read))
        pairs[at] = (other, receiver)
        read[other] = r.read[sender]
    else:
        place = read[sender]
        read[sender] = (*place[:-1], max(0, place[-1] - 1))
    rounds[i] = Round(r.shape, tuple(pairs), tuple(read), r.write)
    return dataclasses.replace(step, rounds=tuple(rounds))
