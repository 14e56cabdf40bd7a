"""A wheel that was really built, and the environment that it is installed in."""

from __future__ import annotations

from dataclasses import dataclass

from tfbuild.assemble import Built
from tfbuild.environment import Environment
from tfbuild.fleet import Fleet
from tfbuild.plan import Plan


@dataclass(frozen=True, kw_only=True, slots=True)
class Tried:
    fleet: Fleet
    built: Built
    arm: Environment

    @property
    def plan(self) -> Plan:
        return self.fleet.first
