"""What the task calls: imports of the stock and of the tuned wheel, measured."""

from __future__ import annotations

import statistics
import sys
import tempfile
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from tfbench import options
from tfbench.arms import installs, lineup
from tfbench.arms.arm import Arm, twin_of
from tfbench.measuring import gates
from tfbench.measuring.host import read_host
from tfbench.measuring.schedule import block_order, chance_of
from tfbench.startup.launches import IMPORT, Launch, Launcher
from tfbench.startup.library import read_library
from tfbench.startup.overhead import LIMIT, Imported, Loading, Startup, overhead, sorted_out
from tfbench.startup.text import describe
from tfbuild import settings, talk
from tfbuild.records import pretty, save

RESULT = "startup.json"
ROUNDS = 20
_FEWEST = 2  # for an interval
_TRIES = 5
"""Processes that load the kernel library; the median counts."""


def measure_startup(*, candidate: str, rounds: str, out: str, as_json: bool) -> tuple[Startup, str]:
    """Measure the imports of `candidate` and of the wheel that it was made from; the record, which
    is kept in `out`, and what to print of it. An empty option means the default."""
    places = settings.places()
    number = options.whole(rounds, "--rounds", least=_FEWEST) if rounds else ROUNDS
    choices = installs.choose(lineup.read_lineup(), candidate, places)
    made = datetime.now(UTC).isoformat(timespec="seconds")
    folder = Path(out) if out else places.new_report("startup")
    with settings.exclusive(places.cache, "a measurement"):
        arms = installs.install(choices, places)
        with talk.step(f"import TensorFlow, {number} rounds"):
            startup = measure(arms, number, seed=1, made=made)
    save(folder / RESULT, startup)
    talk.note(f"every launch: {folder / RESULT}")
    text = pretty(startup) if as_json else describe(startup, colour=sys.stdout.isatty())
    return startup, text


def measure(arms: Sequence[Arm], rounds: int, *, seed: int, made: str) -> Startup:
    """The first arm is the baseline and stands beside itself. Raises WorkerError, SampleError."""
    baseline, *others = arms
    twin = twin_of(baseline)
    host = read_host()
    vcpus = len(host.affinity)
    with tempfile.TemporaryDirectory(prefix="tensorwright-") as home:
        launcher = Launcher(home=Path(home), chance=chance_of(seed, IMPORT, vcpus, 0))
        libraries = {arm.name: launcher.library(arm) for arm in arms}
        launches = _launches(launcher, (baseline, twin, *others), rounds)
        loadings = [
            _loading(launcher, arm, found) for arm in others if (found := libraries[arm.name])
        ]
    measured = sorted_out(launches, vcpus)
    same = overhead(measured, baseline.name, twin.name, floor=0.0)
    return Startup(
        made=made,
        host=host,
        seed=seed,
        limit=LIMIT,
        rounds=rounds,
        dropped=gates.counted(measured.dropped),
        fair=measured.fair,
        arms=tuple(_imported(arm, launches) for arm in (baseline, twin, *others)),
        twin=same,
        overheads=tuple(
            overhead(measured, baseline.name, arm.name, floor=same.imported.reach) for arm in others
        ),
        loadings=tuple(loadings),
        launches=launches,
    )


def _launches(launcher: Launcher, arms: Sequence[Arm], rounds: int) -> tuple[Launch, ...]:
    """Every arm twice in each round, mirrored."""
    by_name = {arm.name: arm for arm in arms}
    done: list[Launch] = []
    with talk.counting("imports", rounds * 2 * len(arms)) as count:
        for block in range(rounds):
            for position, name in enumerate(block_order(list(by_name), launcher.chance)):
                count.advance(len(done), detail=name)
                done.append(launcher.launch(by_name[name], block=block, position=position))
    return tuple(done)


def _loading(launcher: Launcher, arm: Arm, library: Path) -> Loading:
    return Loading(
        arm=arm.name,
        library=read_library(library),
        load_s=statistics.median(launcher.load_s(arm, library) for _ in range(_TRIES)),
    )


def _imported(arm: Arm, launches: Sequence[Launch]) -> Imported:
    own = [launch for launch in launches if launch.arm == arm.name]
    return Imported(
        arm=arm.name,
        label=arm.label,
        wheel_sha256=arm.wheel_sha256,
        import_s=statistics.median(launch.import_s for launch in own),
        process_s=statistics.median(launch.process_s for launch in own),
    )
