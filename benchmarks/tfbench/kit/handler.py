"""Handler of `invoke kit`: the kit as a file, and what it brought."""

from __future__ import annotations

from pathlib import Path

from tfbench import options
from tfbench.costs import kit_runs
from tfbench.kit import archive
from tfbench.kit.phases import Phase, phases
from tfbench.reports import wording
from tfbench.sheet import ResultTable, format_result
from tfbuild import console
from tfbuild.errors import UsageError
from tfbuild.records import write_atomic

_HEADINGS = (
    *("arm", "device", "backend", "workload", "phase", "#examples/s", "#interval", "#launches"),
)


def write_kit(out: str) -> str:
    """Write the file; what to do with it. Raises DiskError."""
    path = Path(out or archive.NAME)
    content = archive.archive()
    write_atomic(path, content)
    return (
        f"{path} ({console.format_size(len(content))})\n"
        "Copy it to a Linux machine with Python 3.10 or newer, NumPy, and TensorFlow or Keras 3:\n"
        f"  python {path.name} --arm NAME                          # the six models of 2017\n"
        f"  python {path.name} --workloads resnet50 --phases train\n"
        f"  KERAS_BACKEND=jax python {path.name}                   # or torch\n"
        "Bring samples.jsonl back, and read it:\n"
        "  invoke kit --read samples.jsonl\n"
        "  invoke report --prices BOOK --machines … --kit samples.jsonl=MACHINE "
        "--relative-to NAME\n"
    )


def read_kit(text: str, *, as_json: bool) -> str:
    """What stands in the files, with commas between. Raises UsageError, RecordError."""
    paths = options.parse_paths(text)
    for path in paths:
        if not path.is_file():
            raise UsageError(f"there is no file {path}")
    found = phases([each for path in paths for each in kit_runs.read_launches(path)])
    return format_result(found, sheet(found), as_json=as_json)


def sheet(found: tuple[Phase, ...]) -> ResultTable:
    rows = tuple(
        (
            *(each.arm, each.device, each.backend, each.workload, each.phase),
            *(("", "") if each.speed is None else wording.rates(each.speed)),
            str(each.launches),
        )
        for each in found
    )
    lines = tuple(
        f"{each.workload}, {each.phase}, {each.arm}: {each.reason}" for each in found if each.reason
    )
    return ResultTable(title="measured by the kit", headings=_HEADINGS, rows=rows, lines=lines)
