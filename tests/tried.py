"""A wheel that was really built, and the environment that it is installed in."""

from __future__ import annotations

from dataclasses import dataclass

from tfbuild.assemble import Built
from tfbuild.environment import Environment
from tfbuild.plan import Plan


@dataclass(frozen=True, kw_only=True, slots=True)
class Tried:
    plan: Plan
    built: Built
    arm: Environment
