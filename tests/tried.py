"""A wheel that was really built, and the environment that it is installed in."""

from __future__ import annotations

from dataclasses import dataclass

from tfbuild.kernelbuild.pool import Built
from tfbuild.planning.fleet import Fleet
from tfbuild.planning.plan import Plan
from tfbuild.tools.environment import Environment


@dataclass(frozen=True, kw_only=True, slots=True)
class Tried:
    fleet: Fleet
    built: Built
    arm: Environment

    @property
    def plan(self) -> Plan:
        return self.fleet.first
