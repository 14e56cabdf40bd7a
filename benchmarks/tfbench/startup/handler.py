"""Handler of `invoke startup`: imports of the stock and of the tuned wheel, measured."""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tfbench import options
from tfbench.arms import installs, lineup
from tfbench.arms.arm import Arm, create_repeat
from tfbench.commands import StartupOptions
from tfbench.engine import engine, folder
from tfbench.engine.folder import RunKind
from tfbench.engine.journal import open_journal
from tfbench.measuring import gates
from tfbench.measuring.statistics import FEWEST_LAUNCHES
from tfbench.sheet import format_result
from tfbench.startup.imports import KINDS, Imports, ImportSpec
from tfbench.startup.launches import ImportLaunch, Launcher
from tfbench.startup.overhead import LIMIT, ImportTimes, Startup, overhead, sorted_out
from tfbench.startup.text import sheet
from tfbuild import console, settings
from tfbuild.measured.host import read_host
from tfbuild.records import format_now, save

KIND = RunKind(name="startup", prefix="startup", result="startup.json")


def measure_startup(wanted: StartupOptions, *, as_json: bool) -> tuple[Startup, str]:
    """Measure the imports of the candidate and of the wheel that it was made from; the record, and
    what to print of it. It is kept in --out, or in a new report."""
    paths = settings.paths()
    number = options.parse_integer(wanted.rounds, "--rounds", least=FEWEST_LAUNCHES)
    choices = installs.choose(lineup.read_lineup(), wanted.candidate, paths)
    with settings.lock_folder(paths.cache, "a measurement"):
        spec = ImportSpec(
            host=read_host(), arms=installs.install(choices, paths), rounds=number, seed=1
        )
        there = folder.choose_folder(KIND, spec, wanted.out, paths)
        folder.begin(KIND, spec, there)
        folder.require_unfinished(KIND, there)
        with console.report_step(f"import TensorFlow, {number} rounds"):
            startup = measure(spec, there)
    save(there / KIND.result, startup)
    console.print_note(f"every launch: {there / KIND.result}")
    return startup, format_result(startup, sheet(startup), as_json=as_json)


def measure(spec: ImportSpec, out: Path) -> Startup:
    """The first arm is the baseline and stands beside itself. Raises WorkerError, SampleError."""
    baseline, *others = spec.arms
    with tempfile.TemporaryDirectory(prefix="tensorwright-") as home:
        launcher = Launcher(home=Path(home))
        for arm in spec.arms:
            launcher.warm(arm)
        launches = _launches(spec, launcher, out)
    measured = sorted_out(launches)
    repeat = create_repeat(baseline)
    same = overhead(measured, baseline.name, repeat.name, floor=0.0)
    return Startup(
        made=format_now(),
        host=spec.host,
        seed=spec.seed,
        limit=LIMIT,
        rounds=spec.rounds,
        dropped=gates.counted(measured.dropped),
        fair=measured.fair,
        arms=tuple(_imported(arm, launches) for arm in spec.lineup),
        twin=same,
        overheads=tuple(
            overhead(measured, baseline.name, arm.name, floor=same.imported.reach) for arm in others
        ),
        launches=launches,
    )


def _launches(spec: ImportSpec, launcher: Launcher, out: Path) -> tuple[ImportLaunch, ...]:
    with (
        open_journal(out / KIND.journal, KINDS) as (known, keep),
        console.track_progress("imports", len(spec.turns)) as count,
    ):
        return engine.run(Imports(spec=spec, launcher=launcher, listen=count.advance), known, keep)


def _imported(arm: Arm, launches: Sequence[ImportLaunch]) -> ImportTimes:
    own = [launch for launch in launches if launch.arm == arm.name]
    return ImportTimes(
        arm=arm.name,
        label=arm.label,
        wheel_sha256=arm.wheel_sha256,
        import_s=statistics.median(launch.import_s for launch in own),
        process_s=statistics.median(launch.process_s for launch in own),
    )
