"""Handler of `invoke accuracy`: train to an accuracy, import a curve, recompute an article."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from pathlib import Path

from tfbench import options
from tfbench.arms import installs
from tfbench.arms.arm import Arm
from tfbench.arms.installs import ArmChoice
from tfbench.commands import AccuracyOptions
from tfbench.costs import catalog
from tfbench.costs.prices import Price
from tfbench.experiments import cell_schedule, experiment
from tfbench.experiments.accuracy import datasets, imported, results, text
from tfbench.experiments.accuracy.curve_file import read_curve
from tfbench.experiments.accuracy.datasets import CLASSES, DataSet, Examples
from tfbench.experiments.accuracy.imported import ImportedCurve, PricedArticle
from tfbench.experiments.accuracy.results import Accuracy, Goal
from tfbench.experiments.cell import Cell
from tfbench.experiments.experiment import CommandExperiment
from tfbench.inside.workloads import find_workload, set_sizes
from tfbench.result_table import format_result
from tfcore import console, settings
from tfcore.comparisons.host import read_host
from tfcore.cpus.cpu import read_vcpus
from tfcore.errors import UsageError
from tfcore.records import format_now, save
from tfcore.settings import Paths

KIND, CURVE = text.KEY, "curve"
MODULE = "tfbench.inside.convergence"
SEEDS = "5"
_MOST_SEEDS, _MOST_EPOCHS = 1000, 10_000
_START_S, _SLOWEST = 600.0, 50.0
"""The longest start in seconds, and the fewest images per second. A process that exceeds the time
limit computed from them counts as hung."""
_TRAINING = ("data", "data_file", "seeds", "epochs", "batch", "arms", "vcpus", "seed")
_PRICING = ("prices", "machine", "mode", "region")
_FORMS = "Write 0.97 or 97%"


@dataclass(frozen=True, kw_only=True, slots=True)
class AccuracyConfig:
    """The checked options of training, before anything is installed or fetched."""

    data: DataSet
    file: Path | None
    workload: str
    target: float
    epochs: int
    seeds: tuple[int, ...]
    vcpus: int
    price: Price | None

    @property
    def batch(self) -> int:
        return find_workload(self.workload).batch


def measure_accuracy(
    accuracy_options: AccuracyOptions, *, as_json: bool = False
) -> tuple[Accuracy | ImportedCurve | PricedArticle, str]:
    """Run `invoke accuracy` and return the result and what to print; files are written to --out
    or to a new report.

    Raises UsageError, SampleError, WheelError, HostError, DownloadError, DiskError and the
    errors of an installation.
    """
    _check_options(accuracy_options)
    if accuracy_options.article:
        priced = imported.read_article(accuracy_options.article)
        table = imported.build_article_table(priced)
        return priced, format_result(priced, table, as_json=as_json)
    if accuracy_options.import_:
        curve = import_curve(accuracy_options, settings.paths())
        return curve, format_result(curve, imported.build_table(curve), as_json=as_json)
    return ACCURACY.run(accuracy_options, as_json=as_json)


def describe_plan(accuracy_options: AccuracyOptions) -> str:
    """Describe what would be done. Nothing is installed or fetched, and no curve is read."""
    _check_options(accuracy_options)
    if accuracy_options.article or accuracy_options.import_:
        source = accuracy_options.import_ or imported.read_article(accuracy_options.article).name
        return experiment.format_plan({"read": source, "train": "nothing"})
    return ACCURACY.describe_plan(accuracy_options)


def import_curve(accuracy_options: AccuracyOptions, paths: Paths) -> ImportedCurve:
    """Import a curve that others measured; with --out write the result and a report there."""
    if not accuracy_options.reach:
        raise UsageError(
            "--import needs a target accuracy", hint="Add it, for example --reach 0.757"
        )
    target = _parse_target(accuracy_options.reach, chance=0.0)
    path = settings.expand_home(accuracy_options.import_, "--import")
    curve = read_curve(path, accuracy_options.column)
    result = imported.import_curve(curve, target, _find_price(accuracy_options, 0))
    if accuracy_options.out:
        folder, drawings = Path(accuracy_options.out), {text.KEY: imported.draw_curve(result)}
        page = imported.build_document(result)
        experiment.write_report(folder, page, paths.templates, drawings)
        save(folder / experiment.create_kind(CURVE).result, result)
    return result


# --- training -------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainingExperiment(CommandExperiment[AccuracyOptions, AccuracyConfig, Accuracy]):
    """Training to an accuracy: its cells are known once the examples are loaded."""

    def describe(
        self, config: AccuracyConfig, choices: tuple[ArmChoice, ...], paths: Paths
    ) -> dict[str, str]:
        data, price = config.data, config.price
        source = datasets.describe_source(data, config.file, paths, Path.home())
        epochs = console.format_count(config.epochs, "epoch")
        seeds = console.format_count(len(config.seeds), "training run")
        return {
            "data": f"{data.name}: {source}",
            "model": f"{config.workload}, batches of {config.batch}",
            "target": f"accuracy {config.target:g} on the test examples, within {epochs}",
            "arms": installs.describe(choices).strip(),
            "processes": f"{seeds} of each arm, in turn, on {console.format_vcpus(config.vcpus)}",
            "price": f"{price} at {price.usd_hour:.4g} USD/h" if price else "none",
        }

    def measure(
        self, config: AccuracyConfig, choices: tuple[ArmChoice, ...], wanted_out: str, paths: Paths
    ) -> Accuracy:
        """Train all seeds and return the result, and write it with its report.

        Raises DownloadError, UsageError if the examples are not those of the data set, and the
        errors of an installation.
        """
        examples = datasets.load_examples(config.data, config.file, paths, Path.home())
        return train(config, experiment.install_arms(choices, paths), examples, wanted_out, paths)


def train(
    config: AccuracyConfig,
    arms: Mapping[str, Arm],
    examples: Examples,
    wanted_out: str,
    paths: Paths,
) -> Accuracy:
    """Train every seed of every arm that has no result in `wanted_out`, and write the result,
    the report and the learning curves there. Raises UsageError, DiskError.
    """
    goal = _build_goal(config, examples, read_host().affinity[: config.vcpus])
    run = experiment.start_run(KIND, goal, arms, wanted_out, paths)
    cells = _list_cells(config, goal, tuple(arms), datasets.write_examples(examples, run.out))
    images = examples.training + examples.testing
    launches = cell_schedule.run_cells(
        cells,
        arms,
        run.out,
        seed=goal.seeds[0],
        limit_s=_START_S + goal.epochs * images / _SLOWEST,
    )
    runs = tuple(results.build_result(cell, launches[cell.key], goal.target) for cell in cells)
    result = Accuracy(
        schema=results.SCHEMA,
        made=format_now(),
        host=run.host,
        asked=goal,
        price=config.price,
        arms=run.wheels,
        runs=runs,
        summaries=tuple(
            results.summarise_arm(name, [run for run in runs if run.arm == name], config.price)
            for name in arms
        ),
    )
    drawings = {KIND: text.draw_figures(result)}
    experiment.finish_run(run, result, text.build_document(result), drawings, paths.templates)
    return result


def _build_goal(config: AccuracyConfig, examples: Examples, cpus: tuple[int, ...]) -> Goal:
    _check_batch(config.batch, examples.training)
    return Goal(
        data=config.data.name,
        source=config.data.source,
        workload=config.workload,
        batch=config.batch,
        training=examples.training,
        testing=examples.testing,
        examples_sha256=examples.sha256,
        target=config.target,
        epochs=config.epochs,
        seeds=config.seeds,
        cpus=cpus,
    )


def _list_cells(
    config: AccuracyConfig, goal: Goal, arms: Sequence[str], examples: Path
) -> tuple[Cell, ...]:
    """List the cells. The arms' processes with the same seed form one launch and run one after
    the other.
    """
    return tuple(
        Cell(
            arm=arm,
            place=(("arm", arm), ("seed", seed)),
            launch=launch,
            module=MODULE,
            request={
                "workload": goal.workload,
                "examples": str(examples),
                "sha256": goal.examples_sha256,
                "white": config.data.white,
                "target": goal.target,
                "epochs": goal.epochs,
                "seed": seed,
            },
            vcpus=goal.cpus,
        )
        for launch, seed in enumerate(goal.seeds)
        for arm in arms
    )


# --- options --------------------------------------------------------------------------------------


def parse_options(accuracy_options: AccuracyOptions) -> AccuracyConfig:
    """Parse and check the options. Raises UsageError."""
    data = datasets.find_set(accuracy_options.data or datasets.DIGITS)
    file = _parse_file(accuracy_options.data_file, data)
    workload = _choose_workload(accuracy_options, data)
    vcpus = options.parse_vcpu_count(accuracy_options.vcpus, read_vcpus().usable)
    first = options.parse_integer(accuracy_options.seed or "1", "--seed", least=0)
    seeds = options.parse_integer(accuracy_options.seeds or SEEDS, "--seeds", most=_MOST_SEEDS)
    epochs = accuracy_options.epochs or str(find_workload(workload).schedule.epochs)
    return AccuracyConfig(
        data=data,
        file=file,
        workload=workload,
        target=_parse_target(accuracy_options.reach or data.target, chance=1 / CLASSES),
        epochs=options.parse_integer(epochs, "--epochs", most=_MOST_EPOCHS),
        seeds=tuple(range(first, first + seeds)),
        vcpus=vcpus,
        price=_find_price(accuracy_options, vcpus),
    )


ACCURACY = TrainingExperiment(kind=KIND, parse_options=parse_options, text=text)


def _check_options(accuracy_options: AccuracyOptions) -> None:
    """Raise UsageError for options that do not belong to the requested mode."""
    if accuracy_options.article and accuracy_options.import_:
        raise UsageError("--article and --import exclude each other", hint="Give one of them")
    if accuracy_options.article:
        _refuse_options(
            accuracy_options, "--article", (*_TRAINING, *_PRICING, "reach", "column", "out")
        )
    elif accuracy_options.import_:
        _refuse_options(accuracy_options, "--import", _TRAINING)
    elif accuracy_options.column:
        raise UsageError("--column needs an imported curve", hint="Add --import FILE")


def _refuse_options(accuracy_options: AccuracyOptions, mode: str, names: Sequence[str]) -> None:
    for name in names:
        if getattr(accuracy_options, name):
            option = f"--{name.replace('_', '-')}"
            raise UsageError(
                f"{mode} does not train, so {option} has no effect", hint=f"Remove {option}"
            )


def _parse_file(typed: str, data: DataSet) -> Path | None:
    """Return the path of --data-file. Raises UsageError if the file does not exist or the data
    set takes none.
    """
    if not typed:
        return None
    if data.pin is None:
        raise UsageError(
            f"--data-file has no effect with --data {data.name}",
            hint="Remove it: an installed package has the data",
        )
    path = settings.expand_home(typed)
    if not path.is_file():
        raise UsageError(f"file not found: {path}")
    return path


def _parse_target(typed: str, *, chance: float) -> float:
    """Parse a share such as 0.97 or 97%. `chance` is the accuracy of guessing. Raises
    UsageError.
    """
    stripped = typed.strip()
    try:
        number = Decimal(stripped.removesuffix("%"))
    except InvalidOperation:
        number = Decimal("NaN")
    if not number.is_finite():
        raise UsageError(f"--reach {typed} is not an accuracy", hint=_FORMS)
    target = float(number / 100 if stripped.endswith("%") else number)
    if target >= 1:
        raise UsageError(
            f"--reach {typed} is too high: 1 is the accuracy of a perfect model", hint=_FORMS
        )
    if target <= chance:
        limit = f"{chance:g}, the accuracy of guessing" if chance else "0"
        raise UsageError(f"--reach {typed} is not above {limit}", hint=_FORMS)
    return target


def _choose_workload(accuracy_options: AccuracyOptions, data: DataSet) -> str:
    if not accuracy_options.batch:
        return data.workload
    batch = options.parse_integer(accuracy_options.batch, "--batch")
    if not accuracy_options.data_file:  # (the size of a file is known when it is read)
        _check_batch(batch, data.training)
    return set_sizes(data.workload, batch=batch)


def _check_batch(batch: int, training: int) -> None:
    if batch > training:
        raise UsageError(
            f"a batch of {batch} is larger than the data set, which has {training} training images",
            hint=f"Try --batch {min(32, training)}",
        )


def _find_price(accuracy_options: AccuracyOptions, vcpus: int) -> Price | None:
    """Return the machine's price. Raises UsageError."""
    return catalog.resolve_price(
        accuracy_options.prices,
        accuracy_options.machine,
        region=accuracy_options.region,
        mode=accuracy_options.mode,
        vcpus=vcpus,
    )
