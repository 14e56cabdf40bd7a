"""Handler of `invoke throughput`: throughput at each batch size."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tfbench import options
from tfbench.cells import experiment
from tfbench.cells.cell import Cell, CellResult, Outcome
from tfbench.cells.experiment import CellExperiment, ExperimentRun
from tfbench.commands import ThroughputOptions
from tfbench.costs import catalog
from tfbench.costs.prices import Price
from tfbench.inside import steps
from tfbench.inside.phases import TRAIN
from tfbench.inside.workloads import NAMES, PROGRAM, find_workload, set_sizes
from tfbench.throughput import results, text
from tfbench.throughput.results import Throughput
from tfbuild import settings
from tfbuild.cpus.cpu import read_vcpus
from tfbuild.errors import UsageError
from tfbuild.measured.host import Host, read_host
from tfbuild.records import format_now

KIND = "throughput"
WARM_UP = 10
"""That of tf_cnn_benchmarks."""
_AUGMENTATION = {"off": (False,), "on": (True,), "both": (False, True)}


@dataclass(frozen=True, kw_only=True, slots=True)
class ThroughputConfig:
    """The same, read and checked. `program` is the path of a user's own workload; 0 stands for the
    batch that is its own."""

    workloads: tuple[str, ...]
    program: str
    batches: tuple[int, ...]
    augmentation: tuple[bool, ...]
    vcpus: int
    steps: int
    launches: int
    seed: int
    price: Price | None = None

    def cells(self, arms: Sequence[str], host: Host) -> tuple[Cell, ...]:
        cpus = host.affinity[: self.vcpus]
        return tuple(
            self._cell(arm, workload, batch, augmented, launch, cpus)
            for launch in range(self.launches)
            for workload in self.workloads
            for batch in self.batches
            for augmented in self.augmentation
            for arm in arms
        )

    def _cell(
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


def describe(wanted: ThroughputOptions) -> str:
    """What would be measured. Nothing is installed."""
    paths = settings.paths()
    config, arms = read(wanted), experiment.names(experiment.choose_arms(wanted.arms, paths))
    count = len(config.cells(arms, read_host()))
    return (
        f"workloads    {', '.join(config.workloads)}\n"
        f"batches      {', '.join(map(str, config.batches))}\n"
        f"augmentation {wanted.augmentation}\n"
        f"arms         {', '.join(arms)}\n"
        f"vCPUs        {config.vcpus}\n"
        f"processes    {count}, {config.steps} steps each\n"
        f"out          {wanted.out or paths.choose_report_folder(KIND)}\n"
    )


def read(wanted: ThroughputOptions) -> ThroughputConfig:
    """Raises UsageError."""
    if wanted.workload:
        return _read_own(wanted)
    image = options.parse_integer(wanted.image, "--image") if wanted.image else None
    names = tuple(
        options.parse_workload(set_sizes(name, image=image) if image else name)
        for name in options.parse_workloads(wanted.workloads)
    )
    batches = options.parse_counts(wanted.batches, "--batches")
    if not batches or 0 in batches:
        raise UsageError(f"--batches {wanted.batches} names no batch", hint="Try --batches 16,32")
    for name in names:
        for batch in batches:
            options.parse_workload(set_sizes(name, batch=batch))
    if wanted.augmentation not in _AUGMENTATION:
        raise UsageError(
            f"--augmentation {wanted.augmentation} is unknown",
            hint=f"Use {', '.join(_AUGMENTATION)}",
        )
    augmentation = _AUGMENTATION[wanted.augmentation]
    _need_images(names, augmentation)
    return _config(wanted, names, batches, augmentation)


def _read_own(wanted: ThroughputOptions) -> ThroughputConfig:
    name, path = options.parse_model_file(wanted.workload)
    if wanted.augmentation != "off" or wanted.image:
        raise UsageError(
            "a workload of one's own is trained as it is", hint="Leave --image, --augmentation out"
        )
    return _config(wanted, (name,), (0,), (False,), str(path))


def _config(
    wanted: ThroughputOptions,
    names: tuple[str, ...],
    batches: tuple[int, ...],
    augmentation: tuple[bool, ...],
    program: str = "",
) -> ThroughputConfig:
    vcpus = options.parse_vcpu_count(wanted.vcpus, read_vcpus().usable)
    return ThroughputConfig(
        workloads=names,
        program=program,
        batches=batches,
        augmentation=augmentation,
        vcpus=vcpus,
        steps=options.parse_integer(wanted.steps, "--steps"),
        launches=options.parse_integer(wanted.launches, "--launches"),
        seed=options.parse_integer(wanted.seed, "--seed", least=0),
        price=catalog.resolve_price(
            wanted.prices,
            wanted.machine,
            region=wanted.region,
            mode=wanted.mode,
            vcpus=vcpus,
        ),
    )


def _need_images(names: tuple[str, ...], augmentation: tuple[bool, ...]) -> None:
    for name in names:
        if any(augmentation) and find_workload(name).image is None:
            nets = ", ".join(each for each in NAMES if find_workload(each).image is not None)
            raise UsageError(f"{name} takes no images to augment", hint=f"Use one of {nets}")


def _cells(config: ThroughputConfig, run: ExperimentRun) -> tuple[Cell, ...]:
    return config.cells(run.names, run.host)


def _result(
    config: ThroughputConfig, run: ExperimentRun, measured: Sequence[CellResult]
) -> Throughput:
    answers = [answer for each in measured if each.outcome is Outcome.OK for answer in each.answers]
    return Throughput(
        made=format_now(),
        host=run.host,
        device=answers[0]["device"] if answers else "CPU",
        vcpus=config.vcpus,
        seed=config.seed,
        steps=config.steps,
        wheels=run.wheels,
        rows=results.rows(measured),
        price=config.price,
    )


THROUGHPUT = CellExperiment(kind=KIND, read=read, cells=_cells, result=_result, text=text)
