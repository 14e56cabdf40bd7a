"""Handler of `invoke throughput`: throughput at each batch size."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tfbench import options
from tfbench.commands import ThroughputOptions
from tfbench.costs import catalog
from tfbench.costs.prices import Price
from tfbench.experiments import experiment
from tfbench.experiments.cell import Cell, CellResult, Outcome
from tfbench.experiments.experiment import CellExperiment, ExperimentRun
from tfbench.experiments.throughput import results, text
from tfbench.experiments.throughput.results import Throughput
from tfbench.inside import steps
from tfbench.inside.phases import TRAIN
from tfbench.inside.workloads import NAMES, PROGRAM, find_workload, set_sizes
from tfcore import console, settings
from tfcore.comparisons.host import Host, read_host
from tfcore.cpus.cpu import read_vcpus
from tfcore.errors import UsageError
from tfcore.records import format_now

KIND = "throughput"
WARM_UP = 10
"""Warm-up steps, as in tf_cnn_benchmarks."""
_AUGMENTATION = {"off": (False,), "on": (True,), "both": (False, True)}


@dataclass(frozen=True, kw_only=True, slots=True)
class ThroughputConfig:
    """The checked options of `invoke throughput`. `program` is the path of a user's own
    workload; a batch of 0 is that workload's own batch.
    """

    workloads: tuple[str, ...]
    program: str
    batches: tuple[int, ...]
    augmentation: tuple[bool, ...]
    vcpus: int
    steps: int
    launches: int
    seed: int
    price: Price | None = None

    def list_cells(self, arms: Sequence[str], host: Host) -> tuple[Cell, ...]:
        cpus = host.affinity[: self.vcpus]
        return tuple(
            self._build_cell(arm, workload, batch, augmented, launch, cpus)
            for launch in range(self.launches)
            for workload in self.workloads
            for batch in self.batches
            for augmented in self.augmentation
            for arm in arms
        )

    def _build_cell(
        self,
        arm: str,
        workload: str,
        batch: int,
        augmented: bool,
        launch: int,
        cpus: tuple[int, ...],
    ) -> Cell:
        place = (("arm", arm), ("workload", workload), ("batch", batch), ("augmented", augmented))
        return Cell(
            arm=arm,
            place=place,
            launch=launch,
            module=steps.__name__,
            request={
                "workload": set_sizes(workload, batch=batch) if batch else workload,
                "phase": TRAIN,
                "augmented": augmented,
                "seed": self.seed,
                "warm_up": min(WARM_UP, self.steps),
                "steps": self.steps,
            },
            vcpus=cpus,
            env=((PROGRAM, self.program),) if self.program else (),
        )


def describe_plan(throughput_options: ThroughputOptions) -> str:
    """Describe what would be measured. Nothing is installed."""
    paths = settings.paths()
    config, arms = (
        parse_options(throughput_options),
        experiment.list_names(experiment.choose_arms(throughput_options.arms, paths)),
    )
    count = len(config.list_cells(arms, read_host()))
    return (
        f"workloads    {', '.join(config.workloads)}\n"
        f"batches      {', '.join(map(str, config.batches))}\n"
        f"augmentation {throughput_options.augmentation}\n"
        f"arms         {', '.join(arms)}\n"
        f"vCPUs        {config.vcpus}\n"
        f"processes    {count}, {config.steps} steps each\n"
        f"out          {throughput_options.out or paths.choose_report_folder(KIND)}\n"
    )


def parse_options(throughput_options: ThroughputOptions) -> ThroughputConfig:
    """Parse and check the options. Raises UsageError."""
    if throughput_options.workload:
        return _parse_own_options(throughput_options)
    image = (
        options.parse_integer(throughput_options.image, "--image")
        if throughput_options.image
        else None
    )
    names = tuple(
        options.parse_workload(set_sizes(name, image=image) if image else name)
        for name in options.parse_workloads(throughput_options.workloads)
    )
    batches = options.parse_counts(throughput_options.batches, "--batches")
    if not batches or 0 in batches:
        raise UsageError(
            f"--batches {throughput_options.batches} is not a list of batch sizes",
            hint="Try --batches 16,32",
        )
    for name in names:
        for batch in batches:
            options.parse_workload(set_sizes(name, batch=batch))
    if throughput_options.augmentation not in _AUGMENTATION:
        raise UsageError(
            f"--augmentation {throughput_options.augmentation} is unknown",
            hint=f"Use {console.format_choices(tuple(_AUGMENTATION))}",
        )
    augmentation = _AUGMENTATION[throughput_options.augmentation]
    _require_images(names, augmentation)
    return _build_config(throughput_options, names, batches, augmentation)


def _parse_own_options(throughput_options: ThroughputOptions) -> ThroughputConfig:
    name, path = options.parse_model_file(throughput_options.workload)
    if throughput_options.augmentation != "off" or throughput_options.image:
        raise UsageError(
            "--workload cannot be combined with --image or --augmentation", hint="Remove them"
        )
    return _build_config(throughput_options, (name,), (0,), (False,), str(path))


def _build_config(
    throughput_options: ThroughputOptions,
    names: tuple[str, ...],
    batches: tuple[int, ...],
    augmentation: tuple[bool, ...],
    program: str = "",
) -> ThroughputConfig:
    vcpus = options.parse_vcpu_count(throughput_options.vcpus, read_vcpus().usable)
    return ThroughputConfig(
        workloads=names,
        program=program,
        batches=batches,
        augmentation=augmentation,
        vcpus=vcpus,
        steps=options.parse_integer(throughput_options.steps, "--steps"),
        launches=options.parse_integer(throughput_options.launches, "--launches"),
        seed=options.parse_integer(throughput_options.seed, "--seed", least=0),
        price=catalog.resolve_price(
            throughput_options.prices,
            throughput_options.machine,
            region=throughput_options.region,
            mode=throughput_options.mode,
            vcpus=vcpus,
        ),
    )


def _require_images(names: tuple[str, ...], augmentation: tuple[bool, ...]) -> None:
    for name in names:
        if any(augmentation) and find_workload(name).image is None:
            nets = ", ".join(net for net in NAMES if find_workload(net).image is not None)
            raise UsageError(f"{name} has no images to augment", hint=f"Use one of {nets}")


def _build_result(
    config: ThroughputConfig, run: ExperimentRun, measured: Sequence[CellResult]
) -> Throughput:
    answers = [answer for cell in measured if cell.outcome is Outcome.OK for answer in cell.answers]
    return Throughput(
        made=format_now(),
        host=run.host,
        device=answers[0]["device"] if answers else "CPU",
        vcpus=config.vcpus,
        seed=config.seed,
        steps=config.steps,
        wheels=run.wheels,
        rows=results.build_rows(measured),
        price=config.price,
    )


THROUGHPUT = CellExperiment(
    kind=KIND,
    read=parse_options,
    cells=lambda config, run: config.list_cells(run.names, run.host),
    result=_build_result,
    text=text,
)
