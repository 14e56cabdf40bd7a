"""Handler of `invoke kit`: write the kit's file, and show its results."""

from __future__ import annotations

from pathlib import Path

from tfbench.costs import kit_runs
from tfbench.kit import archive
from tfbench.kit.phases import Phase, group_launches
from tfbench.reports import wording
from tfbench.result_table import ResultTable, format_result
from tfcore import console
from tfcore.errors import UsageError
from tfcore.records import write_atomic
from tfcore.settings import expand_paths

_HEADINGS = (
    *("arm", "device", "backend", "workload", "phase", "#examples/s", "#interval", "#launches"),
)


def write_kit(out: str) -> str:
    """Write the kit's file and return a text on its use. Raises DiskError."""
    path = Path(out or archive.NAME)
    content = archive.build_archive()
    write_atomic(path, content)
    return (
        f"{path} ({console.format_size(len(content))})\n"
        "Copy it to a Linux machine with Python 3.10 or newer, NumPy, and TensorFlow or Keras 3:\n"
        f"  python {path.name} --arm NAME                          # the six default models\n"
        f"  python {path.name} --workloads resnet50 --phases train\n"
        f"  KERAS_BACKEND=jax python {path.name}                   # or torch\n"
        "Copy samples.jsonl back and show the results:\n"
        "  invoke kit --read samples.jsonl\n"
        "  invoke report --prices BOOK --machines … --kit samples.jsonl=MACHINE "
        "--relative-to NAME\n"
    )


def read_kit(text: str, *, as_json: bool) -> str:
    """Return the results in the comma-separated files. Raises UsageError, RecordError."""
    paths = expand_paths(text)
    for path in paths:
        if not path.is_file():
            raise UsageError(f"file not found: {path}")
    measured = group_launches([launch for path in paths for launch in kit_runs.read_launches(path)])
    return format_result(measured, build_table(measured), as_json=as_json)


def build_table(phases: tuple[Phase, ...]) -> ResultTable:
    rows = tuple(
        (
            *(phase.arm, phase.device, phase.backend, phase.workload, phase.phase),
            *(("", "") if phase.speed is None else wording.format_rate_interval(phase.speed)),
            str(phase.launches),
        )
        for phase in phases
    )
    lines = tuple(
        f"{phase.workload}, {phase.phase}, {phase.arm}: {phase.reason}"
        for phase in phases
        if phase.reason
    )
    return ResultTable(title="measured by the kit", headings=_HEADINGS, rows=rows, lines=lines)
