"""Runs random programs with fused ops and with stock kernels, inside an environment.

python -m tfbuild.probe.random_search REQUEST.json

`SearchTask` describes the request. The result is written after each program, and `.running` beside
it names the program that runs: TensorFlow may crash. With `replay`, only this program runs, with
stock kernels.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import os
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from tfbuild.probe.choices import Choices, Numbers, shrink
from tfbuild.probe.fusing import SWITCH, State, convert_to_arrays, load_programs
from tfbuild.probe.random_programs import FAMILIES, ProgramFamily, RandomProgram
from tfbuild.probe.registry import Library

_FARTHER = 4.0
_FLOOR = 2.0**-20
"""Relative to a tensor's largest value: the difference of two orders of many sums."""
_NUDGE = 2.0**-24
"""Half a unit in the last place of float32."""
_RUNS, _STEP = 8, 2.0**-21
"""Runs of stock, and how far apart their inputs are, relative to each input."""
_ATTEMPTS = 60
_MAPS = Path("/proc/self/maps")


@dataclass(frozen=True, kw_only=True)
class SearchTask:
    """What to run: programs `first` to `last` - 1 of each family, for at most `seconds`.

    `libraries` are libraries of fused ops to load into a stock TensorFlow; without any, TensorFlow
    is a tuned one. `replay` is a family and the numbers of one of its programs.
    """

    out: str
    threads: int
    seed: int
    families: tuple[str, ...]
    first: int = 0
    last: int = 1 << 31
    seconds: float = 600.0
    libraries: tuple[str, ...] = ()
    replay: tuple[str, tuple[int, ...]] | None = None


@dataclass
class FamilyResult:
    """What came of the programs of a family.

    `programs` ran; `fused` of them executed fused ops; `refused` of them are errors of stock
    kernels and of fused ops alike. `found` are programs with wrong results: their numbers, shrunk,
    and the difference.
    """

    programs: int = 0
    fused: int = 0
    refused: int = 0
    found: list[dict[str, Any]] = field(default_factory=list)


def compare(
    exact: State, nudged: State, stock: State, fused: State, errors: Sequence[float] = ()
) -> str:
    """Describe the first value of `fused` that is too far from float64; empty if there is none.

    A value may be as far as four times stock's error, as a difference of two summation orders, or
    as four times what half a unit in the last place of the inputs changes in float64 (`nudged`).
    `errors` are the largest errors of each value in other runs of stock. Where stock is not finite,
    fused must be the same.
    """
    for number, (right, moved, expected, actual) in enumerate(
        zip(*map(_as_float64, (exact, nudged, stock, fused)), strict=True)
    ):
        if expected.shape != actual.shape:
            return f"value {number}: shape {actual.shape} instead of {expected.shape}"
        finite = np.isfinite(expected)
        if not np.array_equal(expected[~finite], actual[~finite], equal_nan=True):
            return f"value {number}: NaN or infinity where stock kernels have another value"
        if not np.isfinite(actual[finite]).all():
            return f"value {number}: NaN or infinity where stock kernels have a number"
        usable = finite & np.isfinite(right) & np.isfinite(moved)
        error, stock_error, natural = (
            float(np.max(np.abs(item - right)[usable], initial=0))
            for item in (actual, expected, moved)
        )
        stock_error = max([stock_error, *errors[number : number + 1]])
        largest = float(np.max(np.abs(right)[usable], initial=0))
        if error > max(_FARTHER * stock_error, _FLOOR * largest, _FARTHER * natural):
            return (
                f"value {number} of shape {expected.shape}: {error:.3g} from float64, stock "
                f"kernels {stock_error:.3g}, rounded inputs {natural:.3g}, largest {largest:.3g}"
            )
    return ""


def is_close(stock: State, fused: State) -> bool:
    """Return True if `compare` finds no difference, whatever the results in float64 are.

    If d is the largest difference of a value and stock's error is at least d / 3, the error of
    fused is at most four times as large. If stock's error is smaller, that of fused is below
    4/3 d, which is at most two thirds of `_FLOOR` of the largest value.
    """
    for expected, actual in zip(_as_float64(stock), _as_float64(fused), strict=True):
        if expected.shape != actual.shape:
            return False
        finite = np.isfinite(expected)
        if not np.array_equal(expected[~finite], actual[~finite], equal_nan=True):
            return False
        largest = np.max(np.abs(expected)[finite], initial=0)
        difference = np.abs(actual[finite] - expected[finite])
        if not np.all(difference <= _FLOOR / 2 * largest):
            return False
    return True


def _as_float64(state: State) -> list[Any]:
    return [np.asarray(value).astype("float64") for value in state]


def run_program(
    tf: ModuleType, program: RandomProgram, family: ProgramFamily, *, is_stock: bool
) -> tuple[str, bool]:
    """Return how a program's results differ, and whether it is an error of all kernels.

    With `is_stock`, all kernels but fused ops are TensorFlow's own, so that bits can be compared.
    """
    stock = _run(tf, program, "0", "float32", 0.0)
    fused = _run(tf, program, ",".join(family.parts), "float32", 0.0)
    if isinstance(stock, str) or isinstance(fused, str):
        both = isinstance(stock, str) and isinstance(fused, str)
        return ("" if both else f"stock {str(stock)[:200]}, fused {str(fused)[:200]}"), both
    if family.exact and is_stock:
        return load_programs("updates").difference(stock, fused), False
    if is_close(stock, fused):
        return "", False
    exact = _run(tf, program, "0", "float64", 0.0)
    if isinstance(exact, str):
        return "", True
    if not compare(exact, exact, stock, fused):
        return "", False
    nudged = _run(tf, program, "0", "float64", _NUDGE)
    if isinstance(nudged, str):
        return "", True
    difference = compare(exact, nudged, stock, fused)
    if difference:
        errors = _measure_stock(tf, program)
        difference = compare(exact, nudged, stock, fused, errors)
    return difference, False


def _measure_stock(tf: ModuleType, program: RandomProgram) -> list[float]:
    """Return the largest error of each value of stock kernels over some inputs nearby.

    The error of one run may be small by chance, where much cancels out.
    """
    largest: list[float] = []
    for step in range(1, _RUNS + 1):
        nudge = step * _STEP
        stock, exact = (_run(tf, program, "0", dtype, nudge) for dtype in ("float32", "float64"))
        if isinstance(stock, str) or isinstance(exact, str):
            continue
        errors = [
            float(np.max(np.abs(actual - right)[np.isfinite(actual - right)], initial=0))
            for actual, right in zip(*map(_as_float64, (stock, exact)), strict=True)
        ]
        largest = [max(pair) for pair in zip(errors, largest or errors, strict=True)]
    return largest


def _run(
    tf: ModuleType, program: RandomProgram, switch: str, dtype: str, nudge: float
) -> State | str:
    os.environ[SWITCH] = switch
    try:
        return convert_to_arrays(program(tf, dtype, nudge))
    except Exception as error:  # noqa: BLE001  (an error is an outcome to compare, too)
        return f"{type(error).__name__}: {error}"
    finally:
        del os.environ[SWITCH]


def replay(tf: ModuleType, name: str, numbers: Sequence[int], *, is_stock: bool) -> str:
    """Return how the results of the program from these numbers differ."""
    family = FAMILIES[name]
    program = family.make(Choices(replay=numbers))
    return run_program(tf, program, family, is_stock=is_stock)[0]


def _fails(tf: ModuleType, name: str, is_stock: bool, numbers: Numbers) -> bool:
    try:
        return bool(replay(tf, name, numbers, is_stock=is_stock))
    except Exception:  # noqa: BLE001  (shorter numbers may make no program)
        return False


def search(tf: ModuleType, task: SearchTask, libraries: Sequence[Library]) -> None:
    """Run random programs of the families in turn, and write the results."""
    results = {name: FamilyResult() for name in task.families}
    began = time.monotonic()
    for number in range(task.first, task.last):
        if time.monotonic() - began >= task.seconds:
            break
        for name in task.families:
            _search_one(tf, task, libraries, number, name, results[name])
            _write(Path(task.out), results)
    _get_running(task).unlink(missing_ok=True)


def _search_one(
    tf: ModuleType,
    task: SearchTask,
    libraries: Sequence[Library],
    number: int,
    name: str,
    result: FamilyResult,
) -> None:
    family, is_stock = FAMILIES[name], bool(task.libraries)
    choices = Choices(seed=f"{task.seed} {name} {number}")
    program = family.make(choices)
    running = {"family": name, "number": number, "numbers": choices.drawn}
    _get_running(task).write_text(json.dumps(running), "utf-8")
    before = _count_executions(libraries)
    difference, refused = run_program(tf, program, family, is_stock=is_stock)
    result.programs += 1
    result.refused += refused
    result.fused += _count_executions(libraries) > before
    if difference:
        fails = functools.partial(_fails, tf, name, is_stock)
        numbers = shrink(choices.drawn, fails, _ATTEMPTS)
        shrunk = replay(tf, name, numbers, is_stock=is_stock) or difference
        result.found.append({"numbers": numbers, "difference": shrunk})


def _get_running(task: SearchTask) -> Path:
    return Path(task.out).with_suffix(".running")


def _count_executions(libraries: Sequence[Library]) -> int:
    return sum(
        count
        for library in libraries
        for event, count in library.count_fused_events().items()
        if event.endswith("executions")
    )


def _write(out: Path, results: Mapping[str, FamilyResult]) -> None:
    part = out.with_suffix(".part")
    part.write_text(json.dumps({name: dataclasses.asdict(row) for name, row in results.items()}))
    part.replace(out)


def find_library() -> Path:
    """Return the kernel library that TensorFlow has loaded. Raises LookupError."""
    for line in _MAPS.read_text("utf-8").splitlines():
        path = line.split(maxsplit=5)[-1]
        if Path(path).name.startswith("libtensorwright_kernels"):
            return Path(path)
    raise LookupError("TensorFlow has loaded no kernel library of Tensorwright")


def main(request: str) -> None:
    task = SearchTask(**json.loads(Path(request).read_text("utf-8")))
    os.environ.update(load_programs("products").SETTINGS)
    import tensorflow as tf

    tf.get_logger().setLevel("ERROR")
    tf.config.threading.set_intra_op_parallelism_threads(task.threads)
    tf.constant(1.0)
    if task.replay is not None:
        name, numbers = task.replay
        program = FAMILIES[name].make(Choices(replay=numbers))
        for dtype in ("float32", "float64"):
            _run(tf, program, "0", dtype, 0.0)
        return
    libraries = [Library(Path(path)) for path in task.libraries] or [Library(find_library())]
    search(tf, task, libraries)


if __name__ == "__main__":
    main(sys.argv[1])
