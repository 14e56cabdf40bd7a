"""The imports of a run and their order, as an experiment of the engine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from tfbench.arms.arm import Arm, create_repeat
from tfbench.engine.engine import RunProgress
from tfbench.engine.journal import Keep, Kinds
from tfbench.engine.schedule import create_random, draw_block_order, draw_padding
from tfbench.experiments.startup.launches import IMPORT, ImportLaunch, Launcher, Turn
from tfcore.comparisons.host import Host

SCHEMA = 1
KINDS: Kinds[ImportLaunch] = MappingProxyType({"import": ImportLaunch})


@dataclass(frozen=True, kw_only=True, slots=True)
class ImportSpec:
    """The settings of a run. The first arm is the baseline."""

    schema: int = SCHEMA
    host: Host
    arms: tuple[Arm, ...]
    rounds: int
    seed: int

    @property
    def lineup(self) -> tuple[Arm, ...]:
        """Return the arms, with the baseline followed by its repeat."""
        baseline, *other_arms = self.arms
        return baseline, create_repeat(baseline), *other_arms

    @property
    def turns(self) -> tuple[Turn, ...]:
        """List the turns: every arm twice in each round, mirrored."""
        turns: list[Turn] = []
        for block in range(self.rounds):
            chance = create_random(self.seed, IMPORT, len(self.host.affinity), block)
            turns += (
                Turn(arm=arm, block=block, position=position, padding=draw_padding(chance))
                for position, arm in enumerate(draw_block_order(self.lineup, chance))
            )
        return tuple(turns)


@dataclass(frozen=True, kw_only=True, slots=True)
class Imports:
    """The imports of a run as an experiment of the engine; an import that fails ends the run."""

    spec: ImportSpec
    launcher: Launcher
    listen: Callable[[int, int, str], None]

    def is_reusable(self, _: ImportLaunch) -> bool:
        return True

    def choose_next(self, launches: Sequence[ImportLaunch], _: RunProgress) -> Turn | None:
        done = {(launch.block, launch.position) for launch in launches}
        turns = self.spec.turns
        remaining = [turn for turn in turns if (turn.block, turn.position) not in done]
        if not remaining:
            return None
        self.listen(len(turns) - len(remaining), len(turns), remaining[0].arm.name)
        return remaining[0]

    def run_launch(self, turn: Turn, keep: Keep[ImportLaunch]) -> None:
        """Import once and record it. Raises WorkerError if the import fails, and DiskError."""
        keep(self.launcher.measure_import(turn))
