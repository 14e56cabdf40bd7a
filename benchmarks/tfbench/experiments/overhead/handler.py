"""Handler of `invoke overhead`: time forms of fit, and solve for the terms of the cost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tfbench import options
from tfbench.commands import OverheadOptions
from tfbench.experiments import experiment
from tfbench.experiments.cell import Cell, CellResult, Outcome
from tfbench.experiments.experiment import CellExperiment, ExperimentRun
from tfbench.experiments.overhead import results, terms, text
from tfbench.experiments.overhead.results import Overhead
from tfbench.inside import fitting
from tfbench.inside.fitting import Form
from tfbench.inside.workload import BATCHES
from tfbench.inside.workload_name import parse_name
from tfbench.inside.workloads import PROGRAM
from tfbench.measuring.statistics import FEWEST_LAUNCHES
from tfcore import settings
from tfcore.comparisons.host import Host
from tfcore.cpus.cpu import read_vcpus
from tfcore.errors import WorkerError
from tfcore.records import convert_record, format_now

KIND = "overhead"
WORKLOAD = "iris_mlp"
EPOCHS, STEPS = 20, 6
"""Epochs, and steps per epoch, of the article's script: 105 irises in batches of 20. Other
workloads have BATCHES steps."""
ROUNDS = 5


@dataclass(frozen=True, kw_only=True, slots=True)
class OverheadConfig:
    """The checked options of `invoke overhead`. `forms` are the forms of fit to time, the
    script's own first.
    """

    workload: str
    program: str
    device: str
    forms: tuple[Form, ...]
    vcpus: int
    launches: int
    seed: int

    def list_cells(self, arms: Sequence[str], host: Host) -> tuple[Cell, ...]:
        return tuple(
            Cell(
                arm=arm,
                place=(("arm", arm), ("device", self.device or "CPU")),
                launch=launch,
                module=fitting.__name__,
                request={
                    "workload": self.workload,
                    "seed": self.seed + launch,
                    "rounds": ROUNDS,
                    "device": self.device,
                    "forms": convert_record(self.forms),
                },
                vcpus=host.affinity[: self.vcpus],
                env=self._build_env(),
            )
            for launch in range(self.launches)
            for arm in arms
        )

    def _build_env(self) -> tuple[tuple[str, str], ...]:
        program_env = ((PROGRAM, self.program),) if parse_name(self.workload).own else ()
        # Other experiments set an empty list, which hides every GPU.
        visible = (("CUDA_VISIBLE_DEVICES", "0"),) if "GPU" in self.device.upper() else ()
        return (*program_env, *visible)


def describe_plan(overhead_options: OverheadOptions) -> str:
    """Describe what would be timed. Nothing is installed."""
    paths = settings.paths()
    config, arms = (
        parse_options(overhead_options),
        experiment.list_names(experiment.choose_arms(overhead_options.arms, paths)),
    )
    forms = "".join(
        f"  epochs={form.epochs}, repeat({form.repeat}), "
        f"steps_per_execution={form.steps_per_execution}\n"
        for form in config.forms
    )
    return (
        f"workload   {config.workload}\n"
        f"arms       {', '.join(arms)}\n"
        f"vCPUs      {config.vcpus}\n"
        f"launches   {config.launches}, each with {ROUNDS} rounds of these calls of fit():\n{forms}"
        f"out        {overhead_options.out or paths.choose_report_folder(KIND)}\n"
    )


def parse_options(overhead_options: OverheadOptions) -> OverheadConfig:
    """Parse and check the options. Raises UsageError."""
    workload, program = options.parse_subject(overhead_options.workload)
    steps = STEPS if workload == WORKLOAD else BATCHES
    return OverheadConfig(
        workload=workload,
        program=str(program or ""),
        device=overhead_options.device,
        forms=tuple(
            terms.list_forms(
                options.parse_integer(overhead_options.epochs, "--epochs", least=2), steps
            )
        ),
        vcpus=options.parse_vcpu_count(overhead_options.vcpus, read_vcpus().usable),
        launches=options.parse_integer(
            overhead_options.launches, "--launches", least=FEWEST_LAUNCHES
        ),
        seed=options.parse_integer(overhead_options.seed, "--seed", least=0),
    )


def _build_mark(measured: CellResult) -> tuple[str, str]:
    return str(measured.place["arm"]), f"{measured.outcome.value}: {measured.reason}"


def _build_result(
    config: OverheadConfig, run: ExperimentRun, measured: Sequence[CellResult]
) -> Overhead:
    """Build the result. Raises WorkerError if no fit could be timed."""
    overhead = Overhead(
        made=format_now(),
        host=run.host,
        workload=config.workload,
        vcpus=config.vcpus,
        seed=config.seed,
        wheels=run.wheels,
        answers=tuple(
            results.build_answer(cell, config.forms)
            for cell in measured
            if cell.outcome is Outcome.OK
        ),
        marks=tuple(_build_mark(cell) for cell in measured if cell.outcome is not Outcome.OK),
    )
    if not overhead.answers:
        raise WorkerError(f"no fit could be timed: {overhead.marks[0][1]}")
    return overhead


OVERHEAD = CellExperiment(
    kind=KIND,
    read=parse_options,
    cells=lambda config, run: config.list_cells(run.names, run.host),
    result=_build_result,
    text=text,
)
