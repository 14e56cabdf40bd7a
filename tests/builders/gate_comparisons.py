"""Comparisons that speak for stand-in wheels."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from tests.builders import report_comparisons as made_up

from tfbuild.packing.tuned import Tuned, read_tuned
from tfbuild.upstream.download import hash_file
from tfcore.comparisons.comparison import FILE, save
from tfcore.comparisons.interval import Interval
from tfwheels.gate import Judgement, judge_comparisons

GAIN = Interval(value=1.3, low=1.2, high=1.4)
LOSS = Interval(value=0.8, low=0.7, high=0.9)


def compared(folder: Path, wheel: Path, *intervals: Interval) -> Judgement:
    """What the gate says of a tuned wheel with comparisons of its own in `folder`, in which its
    first library is 1.3 times as fast, or as fast as the intervals say."""
    tuned = read_tuned(wheel)
    assert tuned is not None
    paths = [
        _save_comparison(folder if index == 0 else folder / str(index), wheel, tuned, interval)
        for index, interval in enumerate(intervals or (GAIN,))
    ]
    return judge_comparisons(wheel.name, hash_file(wheel), tuned, paths)


def _save_comparison(folder: Path, wheel: Path, tuned: Tuned, interval: Interval) -> Path:
    library = tuned.libraries[0]
    comparison = made_up.single(interval)
    stock, own_arm = comparison.arms
    stock = dataclasses.replace(stock, wheel_sha256=tuned.stock_sha256, raised_kernels=0)
    own_arm = dataclasses.replace(
        own_arm,
        wheel_sha256=hash_file(wheel),
        kernel_library=library.file,
        raised_kernels=len(library.registrations),
    )
    features = frozenset(library.required_features)
    cpu = dataclasses.replace(comparison.host.cpu, name="a CPU", features=features)
    host = dataclasses.replace(comparison.host, cpu=cpu)
    (mean,) = comparison.overall
    mean = dataclasses.replace(mean, speedup=comparison.cells[0].speedups[0])
    path = folder / FILE
    save(path, dataclasses.replace(comparison, host=host, arms=(stock, own_arm), overall=(mean,)))
    return path
