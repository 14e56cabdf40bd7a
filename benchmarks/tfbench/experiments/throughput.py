"""Throughput: the examples per second of a net at each batch size, and their price."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tfbench import options
from tfbench.arms.installs import ArmChoice
from tfbench.commands import ThroughputOptions
from tfbench.costs import catalog
from tfbench.costs.cost import Amount, compute_images_per_usd, get_value
from tfbench.costs.prices import Price
from tfbench.experiments import speeds
from tfbench.experiments.cell import Cell, CellResult, Outcome
from tfbench.experiments.experiment import CellExperiment, ExperimentRun, Wheel, list_names
from tfbench.experiments.speeds import PrintedSpeed
from tfbench.experiments.table_page import TablePage, format_speed
from tfbench.inside import steps
from tfbench.inside.phases import TRAIN
from tfbench.inside.workloads import NAMES, PROGRAM, find_workload, set_sizes
from tfbench.reports import wording
from tfbench.reports.canvas import Drawing, create_drawing
from tfbench.reports.charts import ChartLine, plot_counts
from tfbench.reports.document import TextColumns
from tfcore import console
from tfcore.comparisons.host import Host
from tfcore.comparisons.interval import Interval
from tfcore.cpus.cpu import read_vcpus
from tfcore.errors import UsageError
from tfcore.records import format_now

KIND = "throughput"
SCHEMA = 1
WARM_UP = 10
"""Warm-up steps, as in tf_cnn_benchmarks."""
NEAR = 0.05
"""A batch is large enough if its speed is within this share of the fastest."""
AUGMENTATION = {"off": (False,), "on": (True,), "both": (False, True)}


# --- options and cells ----------------------------------------------------------------------------


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

    def list_cells(self, arms: Sequence[str], host: Host, _: Path) -> tuple[Cell, ...]:
        return tuple(
            Cell(
                arm=arm,
                place=(
                    *(("arm", arm), ("workload", workload)),
                    *(("batch", batch), ("augmented", augmented)),
                ),
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
                vcpus=host.affinity[: self.vcpus],
                env=((PROGRAM, self.program),) if self.program else (),
            )
            for launch in range(self.launches)
            for workload in self.workloads
            for batch in self.batches
            for augmented in self.augmentation
            for arm in arms
        )

    def describe(self, choices: Sequence[ArmChoice], processes: int) -> dict[str, str]:
        names = {augmentation: name for name, augmentation in AUGMENTATION.items()}
        return {
            "workloads": ", ".join(self.workloads),
            "batches": ", ".join(map(str, self.batches)),
            "augmentation": names[self.augmentation],
            "arms": ", ".join(list_names(choices)),
            "vCPUs": str(self.vcpus),
            "processes": f"{processes}, {self.steps} steps each",
        }


def parse_options(throughput_options: ThroughputOptions) -> ThroughputConfig:
    """Parse and check the options. Raises UsageError."""
    parse = _parse_own_model if throughput_options.workload else _parse_nets
    names, program, batches, augmentation = parse(throughput_options)
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


_Workloads = tuple[tuple[str, ...], str, tuple[int, ...], tuple[bool, ...]]
"""The names, the path of the user's own model, the batches and the augmentation."""


def _parse_own_model(throughput_options: ThroughputOptions) -> _Workloads:
    name, path = options.parse_model_file(throughput_options.workload)
    if throughput_options.augmentation != "off" or throughput_options.image:
        raise UsageError(
            "--workload cannot be combined with --image or --augmentation", hint="Remove them"
        )
    return (name,), str(path), (0,), (False,)


def _parse_nets(throughput_options: ThroughputOptions) -> _Workloads:
    image = throughput_options.image and options.parse_integer(throughput_options.image, "--image")
    names = tuple(
        options.parse_workload(set_sizes(name, image=int(image)) if image else name)
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
    if throughput_options.augmentation not in AUGMENTATION:
        raise UsageError(
            f"--augmentation {throughput_options.augmentation} is unknown",
            hint=f"Use {console.format_choices(tuple(AUGMENTATION))}",
        )
    augmentation = AUGMENTATION[throughput_options.augmentation]
    for name in names:
        if any(augmentation) and find_workload(name).image is None:
            nets = ", ".join(net for net in NAMES if find_workload(net).image is not None)
            raise UsageError(f"{name} has no images to augment", hint=f"Use one of {nets}")
    return names, "", batches, augmentation


# --- results --------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, slots=True)
class ThroughputRow:
    """One arm at one batch size. `speed` is in examples per second; `printed` is what
    tf_cnn_benchmarks would have printed for the first launch. Without a result both are
    None, and `outcome` and `reason` explain it.
    """

    arm: str
    workload: str
    batch: int
    augmented: bool
    outcome: Outcome
    reason: str
    launches: int
    speed: Amount | None
    printed: PrintedSpeed | None
    peak_mb: float | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Throughput:
    """The result of `invoke throughput`. `price` is the machine's; None without a price book."""

    schema: int = SCHEMA
    made: str
    host: Host
    device: str
    vcpus: int
    seed: int
    steps: int
    wheels: tuple[Wheel, ...]
    rows: tuple[ThroughputRow, ...]
    price: Price | None


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
        rows=build_rows(measured),
        price=config.price,
    )


def build_rows(cell_results: Iterable[CellResult]) -> tuple[ThroughputRow, ...]:
    return tuple(map(_build_row, cell_results))


def _build_row(cell_result: CellResult) -> ThroughputRow:
    place = cell_result.place
    ok = cell_result.outcome is Outcome.OK
    answer = cell_result.answers[0] if ok else None
    return ThroughputRow(
        arm=str(place["arm"]),
        workload=str(place["workload"]),
        batch=int(place["batch"]) or (answer["batch"] if answer else 0),
        augmented=bool(place["augmented"]),
        outcome=cell_result.outcome,
        reason=cell_result.reason,
        launches=len(cell_result.answers),
        speed=speeds.compute_speed(cell_result.answers) if ok else None,
        printed=speeds.compute_printed_speed(answer["step_s"], answer["batch"]) if answer else None,
        peak_mb=max(launch["peak_mb"] for launch in cell_result.answers) if ok else None,
    )


def group_rows(throughput: Throughput) -> dict[tuple[str, str, bool], tuple[ThroughputRow, ...]]:
    """Group the rows by arm, workload and augmentation, sorted by batch size."""
    groups: dict[tuple[str, str, bool], list[ThroughputRow]] = {}
    for row in throughput.rows:
        groups.setdefault((row.arm, row.workload, row.augmented), []).append(row)
    return {key: tuple(sorted(group, key=lambda row: row.batch)) for key, group in groups.items()}


def choose_batch(rows: Sequence[ThroughputRow]) -> ThroughputRow | None:
    """Return the row of the smallest batch that is nearly as fast as the fastest; None if
    nothing was measured.
    """
    timed = [(get_value(row.speed), row) for row in rows if row.speed is not None]
    fastest = max((speed for speed, _ in timed), default=0.0)
    return next((row for speed, row in timed if speed >= fastest * (1 - NEAR)), None)


def is_distinct(amount: Amount, other_amount: Amount) -> bool:
    """Return whether the two intervals do not overlap. Plain numbers from a single launch are
    never distinct.
    """
    if not (isinstance(amount, Interval) and isinstance(other_amount, Interval)):
        return False
    return amount.high < other_amount.low or other_amount.high < amount.low


# --- text and figures -----------------------------------------------------------------------------


def format_title(throughput: Throughput) -> str:
    where = throughput.host.cpu.name if throughput.device == "CPU" else throughput.device
    return f"training on {console.format_vcpus(throughput.vcpus)} of {where}"


def list_columns(throughput: Throughput) -> TextColumns[ThroughputRow]:
    price = throughput.price
    return {
        "arm": lambda row: row.arm,
        "workload": lambda row: row.workload,
        "#batch": lambda row: str(row.batch),
        "augmented": lambda row: "yes" if row.augmented else "no",
        "#examples/s": lambda row: format_speed(row.outcome, row.speed)[0],
        "#interval": lambda row: format_speed(row.outcome, row.speed)[1],
        "tf_cnn_benchmarks": _format_printed,
        **({"#per $/h": lambda row: _format_per_usd(row.speed, price)} if price else {}),
        "#MB": lambda row: wording.format_optional(row.peak_mb, ".0f"),
    }


def _format_printed(row: ThroughputRow) -> str:
    if row.printed is None:
        return ""
    mean, uncertainty = row.printed.mean, row.printed.uncertainty
    return f"{mean:.1f} +/- {uncertainty:.1f} (jitter = {row.printed.jitter:.1f})"


def _format_per_usd(speed: Amount | None, price: Price) -> str:
    return wording.format_rate(get_value(compute_images_per_usd(speed, price))) if speed else ""


def list_lines(throughput: Throughput) -> Iterator[str]:
    """Yield the conclusions from the rows."""
    for (arm, workload, augmented), batches in group_rows(throughput).items():
        best = choose_batch(batches)
        if best is not None and len(batches) > 1:
            suffix = " with augmentation" if augmented else ""
            yield f"{workload} on {arm}{suffix}: {_describe_batch(best, batches)}"
    yield from _describe_augmentation(throughput)
    if throughput.price:
        price = throughput.price
        yield f"{price} costs {price.usd_hour:.4g} USD per hour, as of {price.as_of}."
    for row in throughput.rows:
        if row.outcome is not Outcome.OK:
            name = f"{row.workload}, batch {row.batch}, {row.arm}"
            yield f"{name}: {row.outcome.value}: {row.reason}"


def _describe_batch(best: ThroughputRow, rows: Sequence[ThroughputRow]) -> str:
    other_speeds = [row.speed for row in rows if row is not best and row.speed is not None]
    assert best.speed is not None  # noqa: S101  (only what was timed is large enough)
    text = (
        f"a batch of {best.batch} is large enough with "
        f"{wording.format_rate(get_value(best.speed))} examples/s: no other is faster by more "
        "than 5 %"
    )
    distinct = all(is_distinct(best.speed, speed) for speed in other_speeds)
    return f"{text}." if distinct else f"{text}. The intervals overlap: measure longer to be sure."


def _describe_augmentation(throughput: Throughput) -> Iterator[str]:
    """Yield the cost of augmentation at each batch that was measured with and without it."""
    plain = {(r.arm, r.workload, r.batch): r for r in throughput.rows if not r.augmented}
    for row in throughput.rows:
        plain_row = plain.get((row.arm, row.workload, row.batch))
        if row.augmented and row.speed and plain_row and plain_row.speed:
            share = 1 - get_value(row.speed) / get_value(plain_row.speed)
            text = f"reduces the speed by {share:.1%}"
            if not is_distinct(row.speed, plain_row.speed):
                text = "has no measurable cost here"
            yield f"{row.workload}, batch {row.batch}, {row.arm}: augmentation {text}."


def draw_figures(throughput: Throughput) -> Iterator[Drawing]:
    """Draw a figure per workload, with a line for each arm and augmentation."""
    groups = group_rows(throughput)
    for position, workload in enumerate(dict.fromkeys(name for _, name, _ in groups)):
        lines = [
            ChartLine(
                label=f"{arm}, augmented" if augmented else arm,
                series=number,
                amounts=tuple((row.batch, row.speed) for row in batches if row.speed is not None),
            )
            for number, ((arm, name, augmented), batches) in enumerate(groups.items())
            if name == workload
        ]
        lines = [line for line in lines if line.amounts]
        if lines:
            yield create_drawing(
                functools.partial(plot_counts, lines, "batch", "examples/s"),
                key=f"{KIND}-{position}",
                title=f"{workload}: examples per second",
                caption="Lines are 95% intervals over launches.",
                description="; ".join(map(_describe_line, lines)),
            )


def _describe_line(line: ChartLine) -> str:
    rates = (
        f"{wording.format_rate(get_value(amount))} at {batch}" for batch, amount in line.amounts
    )
    return f"{line.label}: {', '.join(rates)}"


THROUGHPUT = CellExperiment(
    kind=KIND,
    parse_options=parse_options,
    build_result=_build_result,
    text=TablePage(
        key=KIND,
        title="Throughput",
        heading="Throughput by batch size",
        caption="Examples per second",
        method=(
            "Training steps on synthetic data of the real shape, each timed to its end. The "
            "interval is Student's t over fresh processes. The column tf_cnn_benchmarks shows what "
            "that program would print for the first process: the mean, its standard error over "
            "steps, and the jitter, which is 1.4826 times the median absolute deviation. A "
            "standard error over the steps of one process does not include the differences between "
            "processes."
        ),
        format_title=format_title,
        list_columns=list_columns,
        list_items=lambda throughput: throughput.rows,
        list_lines=list_lines,
        draw_figures=draw_figures,
    ),
)
