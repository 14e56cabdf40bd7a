"""Handler of `invoke startup`: measure the imports of the stock and the tuned wheel."""

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
from tfbench.experiments.startup.imports import KINDS, Imports, ImportSpec
from tfbench.experiments.startup.launches import ImportLaunch, Launcher
from tfbench.experiments.startup.overhead import (
    LIMIT,
    ImportTimes,
    Startup,
    compute_overhead,
    select_blocks,
)
from tfbench.experiments.startup.text import build_table
from tfbench.measuring import gates
from tfbench.measuring.statistics import FEWEST_LAUNCHES
from tfbench.result_table import format_result
from tfcore import console, settings
from tfcore.comparisons.host import read_host
from tfcore.records import format_now, save

KIND = RunKind(name="startup", prefix="startup", result="startup.json")


def measure_startup(startup_options: StartupOptions, *, as_json: bool) -> tuple[Startup, str]:
    """Measure the imports of the candidate and of the stock wheel that it was built from.

    Returns the record, which is saved in --out or in a new report, and the text to print.
    """
    paths = settings.paths()
    number = options.parse_integer(startup_options.rounds, "--rounds", least=FEWEST_LAUNCHES)
    choices = installs.choose(lineup.read_lineup(), startup_options.candidate, paths)
    with settings.lock_folder(paths.cache, "a measurement"):
        spec = ImportSpec(
            host=read_host(), arms=installs.install(choices, paths), rounds=number, seed=1
        )
        out_dir = folder.choose_folder(KIND, spec, startup_options.out, paths)
        folder.begin(KIND, spec, out_dir)
        folder.require_unfinished(KIND, out_dir)
        with console.report_step(f"import TensorFlow, {number} rounds"):
            startup = measure(spec, out_dir)
    save(out_dir / KIND.result, startup)
    console.print_note(f"every launch: {out_dir / KIND.result}")
    return startup, format_result(startup, build_table(startup), as_json=as_json)


def measure(spec: ImportSpec, out: Path) -> Startup:
    """Measure the imports of each arm. The first arm is the baseline; its repeat is timed, too.

    Raises WorkerError if an import fails, and SampleError if there are too few rounds.
    """
    baseline, *other_arms = spec.arms
    with tempfile.TemporaryDirectory(prefix="tensorwright-") as home:
        launcher = Launcher(home=Path(home))
        for arm in spec.arms:
            launcher.warm_caches(arm)
        launches = _run_launches(spec, launcher, out)
    measured = select_blocks(launches)
    repeat = create_repeat(baseline)
    control = compute_overhead(measured, baseline.name, repeat.name, floor=0.0)
    return Startup(
        made=format_now(),
        host=spec.host,
        seed=spec.seed,
        limit=LIMIT,
        rounds=spec.rounds,
        dropped=gates.count_reasons(measured.dropped),
        fair=measured.fair,
        arms=tuple(_summarise_arm(arm, launches) for arm in spec.lineup),
        twin=control,
        overheads=tuple(
            compute_overhead(measured, baseline.name, arm.name, floor=control.imported.reach)
            for arm in other_arms
        ),
        launches=launches,
    )


def _run_launches(spec: ImportSpec, launcher: Launcher, out: Path) -> tuple[ImportLaunch, ...]:
    with (
        open_journal(out / KIND.journal, KINDS) as (known, keep),
        console.track_progress("imports", len(spec.turns)) as count,
    ):
        return engine.run(Imports(spec=spec, launcher=launcher, listen=count.advance), known, keep)


def _summarise_arm(arm: Arm, launches: Sequence[ImportLaunch]) -> ImportTimes:
    arm_launches = [launch for launch in launches if launch.arm == arm.name]
    return ImportTimes(
        arm=arm.name,
        label=arm.label,
        wheel_sha256=arm.wheel_sha256,
        import_s=statistics.median(launch.import_s for launch in arm_launches),
        process_s=statistics.median(launch.process_s for launch in arm_launches),
    )
