"""`selfcheck --results`: random programs with the fused ops of a wheel and with stock kernels."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

from tfbench import options
from tfbench.arms import installs, lineup
from tfbench.arms.arm import Arm
from tfbench.commands import SelfcheckOptions
from tfbuild.kernelbuild import random_trials
from tfbuild.kernelbuild.random_trials import FamilyCount, ResultSearch, SearchRequest
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
    found = ResultSearch(
        seed=seed,
        seconds=0,
        wheel_sha256=arm.wheel_sha256,
        label=arm.label,
        cpu=read_cpu().name,
    )
    with (
        TemporaryDirectory() as folder,
        console.report_step("random programs"),
        console.track_progress("seconds", int(seconds)) as count,
    ):

        def follow(families: Mapping[str, FamilyCount], spent: int) -> None:
            nonlocal found
            found = dataclasses.replace(found, families=families, seconds=spent)
            programs = sum(row.programs for row in families.values())
            count.advance(min(spent, int(seconds)), detail=f"{programs} programs")

        request = _make_request(arm, Path(folder), seed, seconds)
        try:
            random_trials.search_results(request, on_progress=follow)
        finally:
            # A search that is stopped keeps what it has found.
            if found.families:
                save(out / random_trials.FILE, found)
    text = format_json(found) if as_json else _describe(found, out / random_trials.FILE)
    return found, text


def _make_request(arm: Arm, folder: Path, seed: int, seconds: float) -> SearchRequest:
    """Return a search on all vCPUs, with as many processes as fit into memory."""
    vcpus = read_vcpus().usable
    return SearchRequest(
        python=arm.python,
        folder=folder,
        env=dict(os.environ) | dict(arm.env),
        seed=seed,
        seconds=seconds,
        threads=vcpus,
        processes=choose_jobs(vcpus, read_available_mb(), _PROCESS_MB).count,
    )


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
