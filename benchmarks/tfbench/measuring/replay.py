"""Recomputation of a recorded run with the current statistics."""

from __future__ import annotations

from pathlib import Path

from tfbench.engine.journal import PACKED, read_entries
from tfbench.measuring.comparing import KIND, ComparisonSetting, summarise_run
from tfbench.measuring.measurement import create_observed_cell
from tfbench.measuring.samples import KINDS, Sample
from tfcore.comparisons.comparison import SCHEMA, Comparison
from tfcore.errors import RecordError, SampleError, UsageError
from tfcore.records import decode_record, load, parse_json

_FOREIGN = (
    *(SampleError, UsageError, KeyError, IndexError, ValueError),
    *(TypeError, AttributeError, ArithmeticError),  # (a worker's facts have any type)
)
OLDER = 2
"""Schema of older runs: their samples have the same meaning, but they cannot be resumed."""


def recompute_comparison(folder: Path) -> tuple[Comparison, tuple[Sample, ...]]:
    """Compute the comparison of a recorded run again; return it and the samples.

    `folder` holds run.json and samples.jsonl, which may be packed (samples.jsonl.xz). Raises
    RecordError if it does not, or if a file is damaged or foreign.
    """
    path = _find_samples(folder)
    for file in (folder / KIND.spec, path):
        if not file.is_file():
            raise RecordError(
                f"{folder} is not a recorded run: {file.name} is missing",
                hint=f"Give the folder of a comparison, with {KIND.spec} and {KIND.journal}",
            )
    setting = _read_setting(folder / KIND.spec)
    run_entries = read_entries(path, KINDS)
    try:
        cells = [
            create_observed_cell(spec, spec.filter_entries(run_entries)) for spec in setting.specs
        ]
        done = [cell for cell in cells if cell.starts or cell.failures]
        comparison = summarise_run(setting, done, timestamp=_read_date(folder / KIND.result))
    except _FOREIGN as error:
        raise RecordError(f"{path} is not a valid comparison ({error})") from error
    return comparison, tuple(entry for entry in run_entries if isinstance(entry, Sample))


def _read_setting(path: Path) -> ComparisonSetting:
    try:
        fields = load(path, schema=OLDER)
    except RecordError:  # (the current schema, or not a run)
        fields = load(path, schema=SCHEMA)
    try:
        return decode_record(ComparisonSetting, fields)
    except (TypeError, ValueError, KeyError, UsageError) as error:
        raise RecordError(f"{path} is not the setting of a comparison ({error})") from error


def _find_samples(folder: Path) -> Path:
    packed = folder / f"{KIND.journal}{PACKED}"
    return packed if packed.is_file() else folder / KIND.journal


def _read_date(path: Path) -> str:
    """Read when the run was measured from its own result: copying changes the date of a file."""
    try:
        return str(parse_json(path.read_bytes())["made"])
    except (OSError, ValueError, KeyError, TypeError):
        return ""
