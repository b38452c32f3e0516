"""Read-only questions on a plan: explain, count, compare."""

from shardwright.insight.compare import Row, compare, table, traffic_of
from shardwright.insight.compare import to_dict as rows_to_dict
from shardwright.insight.counter import Traffic, count_traffic
from shardwright.insight.explain import bytes_str, explain, seconds_str, step_str
from shardwright.insight.explain import to_dict as plan_to_dict
from shardwright.insight.hlo_cost import HloCost, hlo_cost

__all__ = [
    "HloCost",
    "Row",
    "Traffic",
    "bytes_str",
    "compare",
    "count_traffic",
    "explain",
    "hlo_cost",
    "plan_to_dict",
    "rows_to_dict",
    "seconds_str",
    "step_str",
    "table",
    "traffic_of",
]
