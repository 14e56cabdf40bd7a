"""`selfcheck --results`: random programs with the fused ops of a wheel and with stock kernels."""

from __future__ import annotations

import os
from pathlib import Path
from tempfile import TemporaryDirectory

from tfbench import options
from tfbench.arms import installs, lineup
from tfbench.commands import SelfcheckOptions
from tfbuild.kernelbuild import random_trials
from tfbuild.kernelbuild.random_trials import ResultSearch, SearchRequest
from tfbuild.planning.jobs import choose_jobs, read_available_mb
from tfbuild.terminal_tables import format_grid
from tfcore import console, durations, settings
from tfcore.cpus.cpu import read_cpu, read_vcpus
from tfcore.errors import UsageError
from tfcore.records import format_json, save

_BUDGET = "10m"
_FEW = 5
_PROCESS_MB = 3000
"""Memory that a process may need; on 2 vCPUs they had up to 1300 MB."""


def check_results(
    selfcheck_options: SelfcheckOptions, *, as_json: bool
) -> tuple[ResultSearch, str]:
    """Search for wrong results of a tuned wheel; return the result and its text.

    Raises UsageError, WheelError, HostError, WorkerError.
    """
    if selfcheck_options.quick:
        raise UsageError("--quick has no effect with --results", hint="Use --budget 1m")
    seconds = durations.parse_duration(selfcheck_options.budget or _BUDGET, "--budget")
    seed = options.parse_integer(selfcheck_options.seed, "--seed", least=0)
    paths = settings.paths()
    out = (
        settings.expand_home(selfcheck_options.out, "--out")
        if selfcheck_options.out
        else paths.choose_report_folder("results")
    )
    spec = lineup.make_spec(name=lineup.TUNED, wheel=lineup.TUNED)
    (arm,) = installs.install(installs.choose([spec], selfcheck_options.candidate, paths), paths)
    vcpus = read_vcpus().usable
    with (
        TemporaryDirectory() as folder,
        console.report_step("random programs"),
        console.track_progress("seconds", int(seconds)) as count,
    ):
        families = random_trials.search_results(
            SearchRequest(
                python=arm.python,
                folder=Path(folder),
                env=dict(os.environ) | dict(arm.env),
                seed=seed,
                seconds=seconds,
                threads=vcpus,
                processes=choose_jobs(vcpus, read_available_mb(), _PROCESS_MB).count,
            ),
            on_progress=lambda programs, spent: count.advance(
                min(spent, int(seconds)), detail=f"{programs} programs"
            ),
        )
    result = ResultSearch(
        seed=seed,
        seconds=seconds,
        wheel_sha256=arm.wheel_sha256,
        label=arm.label,
        cpu=read_cpu().name,
        families=families,
    )
    save(out / random_trials.FILE, result)
    text = format_json(result) if as_json else _describe(result, out / random_trials.FILE)
    return result, text


def _describe(result: ResultSearch, path: Path) -> str:
    rows = [
        (name, *map(str, (row.programs, row.fused, row.refused, len(row.found), len(row.crashed))))
        for name, row in result.families.items()
    ]
    head = ("family", "programs", "ran fused ops", "errors of TensorFlow", "wrong", "crashes")
    found = [
        f"{name} {list(wrong.numbers)}: {wrong.difference}"
        for name, row in result.families.items()
        for wrong in row.found[:_FEW]
    ]
    found += [
        f"{name} {list(numbers)}: TensorFlow crashed"
        for name, row in result.families.items()
        for numbers in row.crashed[:_FEW]
    ]
    lines = [f"{result.label} on {result.cpu}, seed {result.seed}", "", format_grid(head, rows)]
    return "\n".join([*lines, *found, f"result: {path}", ""])
