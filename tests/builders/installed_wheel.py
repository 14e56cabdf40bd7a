"""A wheel that was really built, and the environment that it is installed in."""

from __future__ import annotations

import dataclasses
import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from tfbuild.kernelbuild.pool import BuiltWheel
from tfbuild.planning.fleet import Fleet
from tfbuild.planning.plan import KernelsPlan
from tfbuild.tools.environment import Environment


@dataclass(frozen=True, kw_only=True, slots=True)
class Tried:
    fleet: Fleet[KernelsPlan]
    built: BuiltWheel
    arm: Environment

    @property
    def plan(self) -> KernelsPlan:
        return self.fleet.first


def own_arm(tried: Tried, folder: Path) -> Tried:
    """With an environment that a test may damage: a copy whose files are links, to be removed and
    written anew, never written into."""
    copy = folder / "arm"
    shutil.copytree(tried.arm.folder, copy, copy_function=os.link, symlinks=True)
    return dataclasses.replace(tried, arm=dataclasses.replace(tried.arm, folder=copy))
