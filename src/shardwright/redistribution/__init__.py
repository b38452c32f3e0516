"""Take a tensor from one layout to another: at what least cost, by which steps."""

from shardwright.redistribution.across import plan_redistribution
from shardwright.redistribution.bound import lower_bound
from shardwright.redistribution.check import check_schedule
from shardwright.redistribution.choose import plan_schedule
from shardwright.redistribution.estimate import cheapest_seconds
from shardwright.redistribution.simulate import simulate

__all__ = [
    "cheapest_seconds",
    "check_schedule",
    "lower_bound",
    "plan_redistribution",
    "plan_schedule",
    "simulate",
]
