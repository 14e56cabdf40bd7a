"""Handlers of the commands: they take options and return text."""

from __future__ import annotations

import dataclasses
import itertools
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from tfbench import options
from tfbench.arms import installs, lineup
from tfbench.arms.arm import Arm
from tfbench.arms.installs import ArmChoice
from tfbench.commands import CompareOptions, SelfcheckOptions
from tfbench.engine import folder
from tfbench.inside.phases import FIT, INFER, JUDGED, TRAIN
from tfbench.inside.workloads import (
    PROGRAM,
    format_label,
    list_fit_workloads,
    list_request_workloads,
)
from tfbench.measuring import selfcheck
from tfbench.measuring.comparing import (
    KIND,
    QUICK,
    THOROUGH,
    compare,
    make_setting,
)
from tfbench.measuring.selfcheck import SelfCheck
from tfbench.reports import selfcheck_text
from tfbench.reports.reporting import write_reports
from tfbench.result_table import format_result
from tfbench.tuning.trial import try_out
from tfbuild import handlers as builds
from tfbuild import host_cpu, missing_tools
from tfbuild.commands import Request
from tfbuild.tools import doctor
from tfbuild.upstream import releases
from tfcore import console, durations, settings
from tfcore.comparisons.comparison import Comparison
from tfcore.comparisons.effort import Effort
from tfcore.comparisons.host import read_host
from tfcore.cpus.cpu import read_vcpus
from tfcore.errors import HarnessError, UsageError
from tfcore.records import format_now, save, write_atomic
from tfcore.settings import Paths

PROGRAM_SHA256 = f"{PROGRAM}_SHA256"
"""Hash of the user's file, so that a run does not continue with a changed file."""
QUICK_WORKLOADS = ("mnist_mlp", "lstm_text")
QUICKSTART = Effort(precision=0.015, budget_s=60.0)
QUICK_MARGIN = "5"
"""Percent. Two minutes on a noisy machine often detect no smaller difference."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CompareConfig:
    """The checked options of `invoke compare`. Nothing is installed yet."""

    choices: tuple[ArmChoice, ...]
    workloads: tuple[str, ...]
    program: Path | None
    vcpus: tuple[int, ...]
    effort: Effort
    threshold: float
    margin: float
    seed: int


def compare_wheels(
    compare_options: CompareOptions, *, as_json: bool = False, effort: Effort | None = None
) -> tuple[Comparison, str]:
    """Measure, and write samples, comparison and reports; return the comparison and its text."""
    paths = settings.paths()
    config = read_config(compare_options, paths, effort)
    with settings.lock_folder(paths.cache, "a comparison"):
        setting = make_setting(
            _install_arms(config, paths),
            config.workloads,
            config.vcpus,
            effort=config.effort,
            threshold=config.threshold,
            margin=config.margin,
            seed=config.seed,
        )
        out = folder.choose_folder(KIND, setting, compare_options.out, paths)
        console.print_note(f"samples and results: {out}")
        with (
            console.report_step(f"compare {', '.join(map(format_label, config.workloads))}"),
            console.track_progress("launches", 1) as count,
        ):
            comparison = compare(setting, out, count.advance)
    return comparison, write_reports(comparison, out, paths, as_json=as_json)


def _install_arms(config: CompareConfig, paths: Paths) -> tuple[Arm, ...]:
    """Install the arms and return them.

    A user's model file is passed to the processes of every arm, and tried in the baseline first.
    Raises UsageError for a file that cannot be trained.
    """
    arms = installs.install(config.choices, paths)
    if config.program is None:
        return arms
    program_env = (
        (PROGRAM, str(config.program)),
        (PROGRAM_SHA256, options.hash_path(config.program)),
    )
    arms = tuple(dataclasses.replace(arm, env=(*arm.env, *program_env)) for arm in arms)
    with (
        console.report_step(f"try {config.program.name}"),
        TemporaryDirectory(prefix="tensorwright-") as logs,
    ):
        vcpus = read_host().affinity[: config.vcpus[0]]
        try_out(arms[0], config.workloads[0], vcpus, config.seed, Path(logs))
    return arms


def describe_comparison(compare_options: CompareOptions) -> str:
    """Describe what would be compared; nothing is installed."""
    paths = settings.paths()
    config = read_config(compare_options, paths, None)
    budget = (
        console.format_duration(config.effort.budget_s) if config.effort.budget_s else "no limit"
    )
    return (
        f"{installs.describe(config.choices)}"
        f"workloads  {', '.join(map(format_label, config.workloads))}\n"
        f"vCPUs      {', '.join(map(str, config.vcpus))}\n"
        f"duration   until ±{config.effort.precision:.1%} or {budget}, per workload and number "
        f"of vCPUs\nout        {compare_options.out or paths.choose_report_folder()}\n"
    )


def read_config(
    compare_options: CompareOptions, paths: Paths, effort: Effort | None
) -> CompareConfig:
    """Read and check the options of a comparison.

    Raises UsageError for options that make no sense, WheelError and HostError for wheels.
    """
    names, program = _read_workloads(compare_options)
    usable = read_vcpus().usable
    vcpus = options.parse_vcpus(compare_options.vcpus, usable) or (usable,)
    phase = _read_phase(compare_options)
    if phase == INFER:
        variants = (list_request_workloads(name, count) for name in names for count in vcpus)
        names = tuple(dict.fromkeys(itertools.chain.from_iterable(variants)))
    elif phase == FIT:
        names = tuple(itertools.chain.from_iterable(map(list_fit_workloads, names)))
    specs = lineup.read_lineup(compare_options.arms, baseline=compare_options.baseline)
    lineup.require_phase(specs, phase)
    return CompareConfig(
        choices=installs.choose(specs, compare_options.candidate, paths),
        workloads=names,
        program=program,
        vcpus=vcpus,
        effort=effort or _read_effort(compare_options),
        threshold=options.parse_percent(compare_options.threshold, "--threshold"),
        margin=options.parse_percent(compare_options.margin, "--margin"),
        seed=options.parse_integer(compare_options.seed, "--seed", least=0),
    )


def _read_workloads(compare_options: CompareOptions) -> tuple[tuple[str, ...], Path | None]:
    if not compare_options.workload:
        return options.parse_workloads(compare_options.workloads), None
    name, path = options.parse_model_file(compare_options.workload)
    return (name,), path


def _read_phase(compare_options: CompareOptions) -> str:
    phase = options.parse_phase(compare_options.phase, JUDGED)
    if phase != TRAIN and compare_options.thorough:
        raise UsageError(
            f"--thorough times a whole training run, so it needs --phase {TRAIN}, not {phase}",
            hint="Use --budget and --precision instead",
        )
    return phase


def _read_effort(compare_options: CompareOptions) -> Effort:
    effort = THOROUGH if compare_options.thorough else QUICK
    if compare_options.budget:
        effort = replace(
            effort, budget_s=durations.parse_duration(compare_options.budget, "--budget")
        )
    if compare_options.precision:
        effort = replace(
            effort, precision=options.parse_percent(compare_options.precision, "--precision")
        )
    return effort


# --- self-check of the harness --------------------------------------------------------------------


def check_harness(selfcheck_options: SelfcheckOptions, *, as_json: bool) -> tuple[SelfCheck, str]:
    """Run the self-check; return it and its text."""
    for option, value in (
        ("--candidate", selfcheck_options.candidate),
        ("--budget", selfcheck_options.budget),
    ):
        if value:
            raise UsageError(f"{option} needs --results")
    paths = settings.paths()
    trials_folder = (
        Path(selfcheck_options.out)
        if selfcheck_options.out
        else paths.choose_report_folder(selfcheck.KIND.prefix)
    )
    parts = selfcheck.QUICK if selfcheck_options.quick else selfcheck.FULL
    number = options.parse_integer(selfcheck_options.seed, "--seed", least=0)
    host = read_host()
    with settings.lock_folder(paths.cache, "a self-check"):
        specs = [lineup.make_spec(name=lineup.STOCK, wheel=lineup.STOCK)]
        (arm,) = installs.install(installs.choose(specs, "", paths), paths)
        console.print_note(f"trials: {trials_folder}")
        with console.report_step("self-check"), console.track_progress("trials", 1) as count:
            trials = selfcheck.run_trials(
                arm, host, parts, seed=number, out=trials_folder, on_progress=count.advance
            )
    check = selfcheck.summarise_trials(trials, arm, host, format_now())
    save(trials_folder / selfcheck.KIND.result, check)
    write_atomic(trials_folder / "selfcheck.md", selfcheck_text.render_markdown(check))
    return check, format_result(check, selfcheck_text.build_table(check), as_json=as_json)


def require_passed(check: SelfCheck) -> None:
    """Raise HarnessError for too many false positives."""
    if not check.passed:
        raise HarnessError(
            selfcheck_text.format_conclusion(check),
            hint="Compare on a quieter machine, or with more launches (--thorough)",
        )


def describe_quickstart() -> str:
    """Describe what quickstart would install, build and compare; nothing is done."""
    paths = settings.paths()
    lacking, complete = missing_tools.report_needs(paths, tests=False, as_json=False)
    plan = builds.describe_plan(Request(), "", as_json=False)
    nothing = "nothing to install\n"
    models = " and ".join(map(format_label, QUICK_WORKLOADS))
    return (
        f"{nothing if complete else lacking}\n{plan}"
        f"compare   stock with the new wheel on {models}, "
        f"{console.format_duration(QUICKSTART.budget_s or 0)} each\n"
    )


def quickstart() -> None:
    """Set up, detect the CPU, build the hot kernels, compare two workloads and report."""
    paths = settings.paths()
    request = Request()
    with console.report_step("set-up"):
        doctor.prepare(paths, releases.read_kernels_bazel(), install=True)
    console.print_message(host_cpu.describe_cpu(as_json=False).rstrip())
    (built,) = builds.build_wheel(request)
    console.print_message(builds.describe_built([built], as_json=False).rstrip())
    compare_options = CompareOptions(
        candidate=str(built.wheel), workloads=",".join(QUICK_WORKLOADS), margin=QUICK_MARGIN
    )
    _, text = compare_wheels(compare_options, effort=QUICKSTART)
    print(text, end="")
