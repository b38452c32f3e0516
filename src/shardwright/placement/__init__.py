"""Where every operation computes and how every array moves: Program -> Plan."""

from shardwright.placement.plan import Decision, Move, Option, Plan
from shardwright.placement.solve import PLACEMENTS, place

__all__ = ["PLACEMENTS", "Decision", "Move", "Option", "Plan", "place"]
