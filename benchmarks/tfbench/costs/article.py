"""The 2017 article on Cloud CPUs: its logs per epoch, and its results computed again from them.

Max Woolf, "Benchmarking TensorFlow on Cloud CPUs", minimaxir.com/2017/07/cpu-or-gpu; raw logs in
minimaxir/deep-learning-cpu-gpu-benchmark. An epoch's seconds include its validation pass. Each cell
was run once, so nothing here has an interval.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tfbench.costs.cost import CostedRun, Relative, offer, relative
from tfbench.costs.prices import Mode, PriceBook
from tfbuild import console
from tfbuild.errors import SampleError, UsageError

TOTALS = Path(__file__).parent / "data" / "cloud_cpu_2017_totals.csv"
PRICES = "2017-07-gce"
"""The price book that the article's machines stand in, under the names of its platforms."""
BASELINE = "gpu"
PIP, COMPILED = "pip", "compiled"

_FIRST_EPOCHS = (0, 1)
_LOG_HINT = "Write MODEL/BUILD/PLATFORM=PATH, or MODEL/PLATFORM=PATH for a GPU"


@dataclass(frozen=True, kw_only=True, slots=True)
class EpochTime:
    number: int
    seconds: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Total:
    """One training run. `platform` is a name in the price book; a GPU's vCPUs are not counted."""

    model: str
    build: str
    platform: str
    vcpus: int | None
    epochs: int
    seconds: float


@dataclass(frozen=True, kw_only=True, slots=True)
class ArticleRow:
    """A model on a number of vCPUs: the speedup of compiling, and both builds over the GPU."""

    model: str
    vcpus: int
    speedup: float
    pip: Relative
    compiled: Relative


def read_epochs(path: Path) -> tuple[EpochTime, ...]:
    """A log with the columns `epoch` and `elapsed` (seconds), and any others, from epoch 0 or 1 on.

    Raises UsageError for a file that cannot be read, SampleError for none or missing epochs and for
    times that are not positive numbers.
    """
    epochs: list[EpochTime] = []
    for line, row in _rows(path, ("epoch", "elapsed")):
        where = f"{path}, line {line}"
        epoch = EpochTime(
            number=_whole(row["epoch"], "epoch", where),
            seconds=_seconds(row["elapsed"], where),
        )
        due = (epochs[-1].number + 1,) if epochs else _FIRST_EPOCHS
        if epoch.number not in due:
            wanted = " or ".join(map(str, due))
            raise SampleError(f"{where}: epoch {epoch.number} stands where {wanted} is due")
        epochs.append(epoch)
    if not epochs:
        raise SampleError(f"{path} has no epochs")
    return tuple(epochs)


def total_of(
    epochs: Sequence[EpochTime], *, model: str, build: str, platform: str, vcpus: int | None
) -> Total:
    seconds = math.fsum(epoch.seconds for epoch in epochs)
    return Total(
        model=model,
        build=build,
        platform=platform,
        vcpus=vcpus,
        epochs=len(epochs),
        seconds=seconds,
    )


def read_log(text: str, book: PriceBook, *, region: str = "", mode: Mode | None = None) -> Total:
    """One log as it is named on a command line: MODEL/BUILD/PLATFORM=PATH, such as
    mnist_mlp/compiled/cpu8=logs/mlp.csv, or MODEL/PLATFORM=PATH for an accelerator, whose vCPUs are
    not counted: mnist_mlp/gpu=logs/gpu.csv.

    A platform is a machine of the price book, which also says how many vCPUs it has. Raises
    UsageError for another form, a platform that the book lacks and one without a whole number of
    vCPUs, SampleError as `read_epochs` does.
    """
    place, equals, path = text.partition("=")
    match [part.strip() for part in place.split("/")]:
        case [model, build, platform] if equals and path and model and build and platform:
            vcpus: int | None = _vcpus(platform, book, region, mode)
        case [model, platform] if equals and path and model and platform:
            book.price(platform, region=region, mode=mode)
            build, vcpus = platform, None
        case _:
            raise UsageError(f"{text!r} does not name a log", hint=_LOG_HINT)
    epochs = read_epochs(Path(path).expanduser())
    return total_of(epochs, model=model, build=build, platform=platform, vcpus=vcpus)


def read_totals(path: Path = TOTALS) -> tuple[Total, ...]:
    """Raises UsageError for a file that cannot be read, SampleError for bad or repeated rows."""
    columns = ("benchmark", "build", "platform", "vcpus", "epochs", "total_s")
    totals = []
    for line, row in _rows(path, columns):
        where = f"{path}, line {line}"
        total = Total(
            model=row["benchmark"],
            build=row["build"],
            platform=row["platform"],
            vcpus=_whole(row["vcpus"], "vcpus", where) if row["vcpus"] else None,
            epochs=_whole(row["epochs"], "epochs", where),
            seconds=_seconds(row["total_s"], where),
        )
        totals.append(total)
    _by_cell(totals)
    return tuple(totals)


def models(totals: Iterable[Total]) -> tuple[str, ...]:
    """In the order in which they come."""
    return tuple(dict.fromkeys(total.model for total in totals))


def offers(totals: Iterable[Total], book: PriceBook, model: str) -> tuple[CostedRun, ...]:
    """The model's runs, priced: `compiled cpu8` and so on, the GPU as `gpu`. Raises UsageError for
    a platform that the book lacks."""
    return tuple(_priced(total, book) for total in totals if total.model == model)


def table(totals: Sequence[Total], book: PriceBook) -> tuple[ArticleRow, ...]:
    """Every model and number of vCPUs. Raises SampleError for a model without its GPU and for a
    build without the other one, UsageError for a platform that the book lacks."""
    cells = _by_cell(totals)
    return tuple(
        _row(total, cells, book)
        for total in totals
        if total.vcpus is not None and total.build in (PIP, COMPILED)
        if total.build == PIP or (total.model, PIP, total.vcpus) not in cells
    )


def _vcpus(platform: str, book: PriceBook, region: str, mode: Mode | None) -> int:
    price = book.price(platform, region=region, mode=mode)
    if price.vcpus is None or not price.vcpus.is_integer():
        raise UsageError(
            f"the price book {book.name} says no whole number of vCPUs for {price}",
            hint="Give its vcpus there, or leave out the build if it is a GPU",
        )
    return int(price.vcpus)


_Key = tuple[str, str, int | None]


def _by_cell(totals: Iterable[Total]) -> dict[_Key, Total]:
    cells: dict[_Key, Total] = {}
    for total in totals:
        key = (total.model, total.build, total.vcpus)
        if key in cells:
            raise SampleError(f"{_name(total)} of {total.model} is there twice")
        cells[key] = total
    return cells


def _row(total: Total, cells: Mapping[_Key, Total], book: PriceBook) -> ArticleRow:
    assert total.vcpus is not None  # noqa: S101  (a GPU has no row)
    gpu = _cell(cells, (total.model, BASELINE, None))
    pip = _cell(cells, (total.model, PIP, total.vcpus))
    compiled = _cell(cells, (total.model, COMPILED, total.vcpus))
    baseline = _priced(gpu, book)
    return ArticleRow(
        model=total.model,
        vcpus=total.vcpus,
        speedup=pip.seconds / compiled.seconds,
        pip=relative(_priced(pip, book), baseline),
        compiled=relative(_priced(compiled, book), baseline),
    )


def _cell(cells: Mapping[_Key, Total], key: _Key) -> Total:
    if key not in cells:
        model, build, vcpus = key
        where = "" if vcpus is None else f" at {console.vcpus(vcpus)}"
        raise SampleError(f"{model} has no run of {build}{where} to compare with")
    return cells[key]


def _priced(total: Total, book: PriceBook) -> CostedRun:
    return offer(_name(total), total.seconds, book.price(total.platform))


def _name(total: Total) -> str:
    return total.build if total.build == total.platform else f"{total.build} {total.platform}"


def _rows(path: Path, columns: Sequence[str]) -> list[tuple[int, dict[str, str]]]:
    """Line numbers and the named cells of a CSV, whatever else it has."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.DictReader(file, strict=True)
            missing = [name for name in columns if name not in (reader.fieldnames or ())]
            if missing:
                raise SampleError(f"{path}: the header lacks {', '.join(missing)}")
            return [
                (reader.line_num, {name: (row[name] or "").strip() for name in columns})
                for row in reader
            ]
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from error
    except (UnicodeDecodeError, csv.Error) as error:
        raise SampleError(f"{path} is not a CSV file ({error})") from error


def _seconds(text: str, where: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not (math.isfinite(seconds) and seconds > 0):
        raise SampleError(f"{where}: {text!r} is not a time in seconds")
    return seconds


def _whole(text: str, what: str, where: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise SampleError(f"{where}: {what} is {text!r}, which is not a whole number") from None
