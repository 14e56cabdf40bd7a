"""A wheel that was really built, and the environment that it is installed in."""

from __future__ import annotations

import dataclasses
import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from tfbuild.cpus.cpu import read_cpu
from tfbuild.cpus.targets import resolve
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


def own_arm(tried: Tried, folder: Path) -> Tried:
    """With an environment that a test may damage: a copy whose files are links, to be removed and
    written anew, never written into."""
    copy = folder / "arm"
    shutil.copytree(tried.arm.folder, copy, copy_function=os.link, symlinks=True)
    return dataclasses.replace(tried, arm=dataclasses.replace(tried.arm, folder=copy))


def two_targets() -> str:
    """A fleet that every CPU with AVX2 can show whole: what it is itself, and one that is older
    and that QEMU has."""
    own = resolve("native", read_cpu())
    return "native,x86_64_v3" if own.name == "haswell" else "native,haswell"
