"""The 2017 article on Cloud CPUs: its logs per epoch, and its results recomputed from them.

Max Woolf, "Benchmarking TensorFlow on Cloud CPUs", minimaxir.com/2017/07/cpu-or-gpu; raw logs in
minimaxir/deep-learning-cpu-gpu-benchmark. An epoch's seconds include its validation pass. Each cell
was run once, so no result has an interval.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Sequence
from pathlib import Path

from tfbench.costs.prices import Price, PriceBook
from tfbench.costs.runs import TrainingRun
from tfcore.errors import SampleError, UsageError
from tfcore.settings import expand_home

TOTALS = Path(__file__).parent / "data" / "cloud_cpu_2017_totals.csv"
PRICES = "2017-07-gce"
"""The price book of the article's machines, under the names of its platforms."""
BASELINE = "gpu"
PIP, COMPILED = "pip", "compiled"

_FIRST_EPOCHS = (0, 1)
_TOTALS = ("benchmark", "build", "platform", "vcpus", "epochs", "total_s")
_LOG_WORDS = (2, 3)
_LOG_HINT = "Write MODEL/BUILD/MACHINE=PATH, or MODEL/MACHINE=PATH for a GPU"


def read_epochs(path: Path) -> tuple[float, ...]:
    """Read the seconds of each epoch from a log with the columns `epoch`, counted from 0 or 1,
    and `elapsed`.

    Other columns are ignored. Raises UsageError if the file cannot be read, and SampleError
    if there are no epochs, one is missing, or a time is not a positive number.
    """
    seconds: list[float] = []
    last = None
    for line, row in _read_rows(path, ("epoch", "elapsed")):
        where = f"{path}, line {line}"
        epoch = _parse_integer(row["epoch"], "epoch", where)
        due = _FIRST_EPOCHS if last is None else (last + 1,)
        if epoch not in due:
            expected = " or ".join(map(str, due))
            raise SampleError(f"{where}: epoch is {epoch}, expected {expected}")
        seconds.append(_parse_seconds(row["elapsed"], where))
        last = epoch
    if not seconds:
        raise SampleError(f"{path} has no epochs")
    return tuple(seconds)


def read_log(text: str, book: PriceBook) -> TrainingRun:
    """Read one log from its name on the command line.

    The name is MODEL/BUILD/PLATFORM=PATH, such as mnist_mlp/compiled/cpu8=logs/mlp.csv, or
    MODEL/PLATFORM=PATH for an accelerator, whose vCPUs are not counted:
    mnist_mlp/gpu=logs/gpu.csv.

    A platform is a machine of the price book, which also gives its number of vCPUs. Raises
    UsageError if the name has another form, the book lacks the platform, or it has no whole
    number of vCPUs, and SampleError as `read_epochs` does.
    """
    key, equals, path = text.partition("=")
    words = [part.strip() for part in key.split("/")]
    if not (equals and path and all(words) and len(words) in _LOG_WORDS):
        raise UsageError(f"invalid log {text!r}", hint=_LOG_HINT)
    model, *build, platform = words
    price = book.find_price(platform)
    return TrainingRun(
        workload=model,
        vcpus=_require_whole_vcpus(price, book) if build else None,
        arm=build[0] if build else platform,
        seconds=math.fsum(read_epochs(expand_home(path))),
        price=price,
    )


def read_totals(book: PriceBook, path: Path = TOTALS) -> tuple[TrainingRun, ...]:
    """Read the training runs of machines in the book from a table of totals.

    Raises UsageError if the file cannot be read or the book lacks a platform, and SampleError
    if a row is invalid.
    """
    runs = []
    for line, row in _read_rows(path, _TOTALS):
        where = f"{path}, line {line}"
        _parse_integer(row["epochs"], "epochs", where)  # (checked only)
        run = TrainingRun(
            workload=row["benchmark"],
            vcpus=_parse_integer(row["vcpus"], "vcpus", where) if row["vcpus"] else None,
            arm=row["build"],
            seconds=_parse_seconds(row["total_s"], where),
            price=book.find_price(row["platform"]),
        )
        runs.append(run)
    return tuple(runs)


def _require_whole_vcpus(price: Price, book: PriceBook) -> int:
    if price.vcpus is None or not price.vcpus.is_integer():
        raise UsageError(
            f"the price book {book.name} has no whole number of vCPUs for {price}",
            hint="Add its vcpus to the book, or omit BUILD if it is a GPU",
        )
    return int(price.vcpus)


def _read_rows(path: Path, columns: Sequence[str]) -> list[tuple[int, dict[str, str]]]:
    """Read the line number and the named cells of each row of a CSV file, whatever else it has."""
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


def _parse_seconds(text: str, where: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not (math.isfinite(seconds) and seconds > 0):
        raise SampleError(f"{where}: {text!r} is not a time in seconds")
    return seconds


def _parse_integer(text: str, quantity: str, where: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise SampleError(f"{where}: {quantity} is {text!r}, which is not a whole number") from None
