"""Handler of `invoke tune`: search for the best settings of one workload and save them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tfbench import options
from tfbench.arms import installs, lineup
from tfbench.arms.arm import Arm
from tfbench.arms.installs import ArmChoice
from tfbench.arms.lever_table import BF16, SEARCHED
from tfbench.arms.levers import suggest
from tfbench.commands import TuneOptions
from tfbench.engine import folder
from tfbench.inside.phases import INFER
from tfbench.inside.workload_name import parse_name
from tfbench.inside.workloads import set_sizes
from tfbench.measuring.stopping import FEWEST_LAUNCHES
from tfbench.result_table import format_result
from tfbench.tuning import running, search, text
from tfbench.tuning.changes import Setup
from tfbench.tuning.results import Tuning
from tfbench.tuning.running import TuningSetting
from tfcore import console, durations, settings
from tfcore.comparisons.host import read_host
from tfcore.cpus.cpu import read_vcpus
from tfcore.errors import HostError, UsageError, WheelError
from tfcore.records import save, write_atomic
from tfcore.settings import Paths

ENV, PAGE = "tune.env", "tune.md"


@dataclass(frozen=True, kw_only=True, slots=True)
class TuningConfig:
    """The checked options of `invoke tune`; nothing is installed yet."""

    workload: str
    program: Path | None
    choices: tuple[ArmChoice, ...]
    vcpus: int
    budget_s: float
    seed: int
    levers: tuple[str, ...]

    def create_setting(self, arms: Sequence[Arm]) -> TuningSetting:
        program = self.program
        return TuningSetting(
            host=read_host(),
            workload=self.workload,
            program=str(program or ""),
            program_sha256=options.hash_path(program) if program else "",
            wheels=tuple((arm.name, arm) for arm in arms),
            vcpus=self.vcpus,
            budget_s=self.budget_s,
            seed=self.seed,
            levers=self.levers,
        )

    def plan_setups(self) -> tuple[TuningSetting, tuple[Setup, ...]]:
        """Return what may be tried, before anything is installed.

        Raises UsageError if there is nothing.
        """
        setting = self.create_setting([_create_placeholder(choice) for choice in self.choices])
        return setting, running.list_candidates(setting, None)


def tune(tune_options: TuneOptions, *, as_json: bool = False) -> tuple[Tuning, str]:
    """Search, and write tune.json, tune.env and tune.md; return the result and its text.

    Raises UsageError, WheelError, HostError, WorkerError, DiskError.
    """
    paths = settings.paths()
    config = read_config(tune_options, paths)
    with settings.lock_folder(paths.cache, "a tuning"):
        setting = config.create_setting(installs.install(config.choices, paths))
        out = folder.choose_folder(running.KIND, setting, tune_options.out, paths)
        console.print_note(f"samples and results: {out}")
        tuning = running.tune(setting, out)
    write_atomic(out / ENV, text.render_env_file(tuning))
    write_atomic(out / PAGE, text.render_markdown(tuning))
    save(out / running.KIND.result, tuning)  # (last: it completes the run)
    console.print_note(f"settings to source: {out / ENV}")
    return tuning, format_result(tuning, text.build_table(tuning), as_json=as_json)


def describe(tune_options: TuneOptions) -> str:
    """Describe what would be tried. Nothing is installed, and the workload is not read."""
    paths = settings.paths()
    config = read_config(tune_options, paths)
    setting, setups = config.plan_setups()
    groups = search.split_groups(setups)
    names = (setting.build_arm(setup).name for setup in setups)
    return (
        f"workload   {setting.title}\n"
        f"baseline   {installs.describe(config.choices[:1]).strip()}\n"
        f"step 1     measure each change alone: {', '.join(names)}\n"
        f"step 2     measure the faster half again, combine the fastest, confirm the result\n"
        f"vCPUs      {setting.vcpus}\n"
        f"budget     {console.format_duration(setting.budget_s)}, or longer for {FEWEST_LAUNCHES} "
        f"launches in each of {len(groups) + 2} or more comparisons\n"
        f"out        {tune_options.out or paths.choose_report_folder(running.KIND.prefix)}\n"
    )


def read_config(tune_options: TuneOptions, paths: Paths) -> TuningConfig:
    """Read and check the options. Raises UsageError if they do not fit, and WheelError and
    HostError for wheels.
    """
    workload, program = options.parse_subject(tune_options.workload)
    if options.parse_phase(tune_options.phase) == INFER:
        workload = set_sizes(workload, batch=parse_name(workload).batch or 1, clients=1)
    config = TuningConfig(
        workload=workload,
        program=program,
        choices=_choose_wheels(tune_options, paths),
        vcpus=options.parse_vcpu_count(tune_options.vcpus, read_vcpus().usable),
        budget_s=durations.parse_duration(tune_options.budget, "--budget"),
        seed=options.parse_integer(tune_options.seed, "--seed", least=0),
        levers=_parse_levers(tune_options),
    )
    config.plan_setups()
    return config


def _choose_wheels(tune_options: TuneOptions, paths: Paths) -> tuple[ArmChoice, ...]:
    """Choose the wheels, the baseline first: by default stock, and the tuned one if any."""
    if tune_options.arms:
        return installs.choose(
            _parse_specs(tune_options.arms.split(",")), tune_options.candidate, paths
        )
    specs = _parse_specs((lineup.STOCK, lineup.TUNED))
    try:
        return installs.choose(specs, tune_options.candidate, paths)
    except (WheelError, HostError) as error:
        if tune_options.candidate:
            raise
        console.print_note(f"searching without a tuned wheel: {error.message}")
        return installs.choose(specs[:1], "", paths)


def _parse_specs(wheels: Sequence[str]) -> tuple[lineup.ArmSpec, ...]:
    specs = tuple(lineup.parse_arm(words) for words in wheels)
    if any(spec.settings for spec in specs):
        raise UsageError("--arms takes wheels only", hint="Remove the settings: tune searches them")
    names = [spec.name for spec in specs]
    if len({*names}) < len(names):
        raise UsageError(
            f"two wheels have the same name ({', '.join(names)})", hint="Write NAME=WHEEL"
        )
    return specs


def _create_placeholder(choice: ArmChoice) -> Arm:
    return Arm(name=choice.spec.name, python=Path(), label=choice.source.title)


def _parse_levers(tune_options: TuneOptions) -> tuple[str, ...]:
    """Parse the levers, in the order of SEARCHED; a lever's name in line-ups is accepted, too.

    Raises UsageError if one is unknown or not allowed.
    """
    if not tune_options.levers:
        return tuple(name for name in SEARCHED if name != BF16 or tune_options.allow_bf16)
    words = {word.strip() for word in tune_options.levers.split(",") if word.strip()}
    names = {word: name for name, lever in SEARCHED.items() for word in (name, lever.name)}
    for word in sorted(words - {*names}):
        raise UsageError(f"unknown lever {word!r}", hint=suggest(word, SEARCHED))
    if BF16 in words and not tune_options.allow_bf16:
        raise UsageError(f"{BF16} changes results", hint="Add --allow-bf16 to allow it")
    chosen = {names[word] for word in words} | ({BF16} if tune_options.allow_bf16 else set())
    return tuple(name for name in SEARCHED if name in chosen)
