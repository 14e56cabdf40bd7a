"""A run that was recorded, computed again with the statistics of today."""

from __future__ import annotations

from pathlib import Path

from tfbench.engine.journal import PACKED, read_entries
from tfbench.measuring.comparison import KIND, ComparisonSetting, summarised
from tfbench.measuring.measurement import measured_of
from tfbench.measuring.samples import KINDS, Sample
from tfbuild.errors import RecordError, SampleError, UsageError
from tfbuild.measured.comparison import SCHEMA, Comparison
from tfbuild.records import decode_record, load, parse_json

_FOREIGN = (
    *(SampleError, UsageError, KeyError, IndexError, ValueError),
    *(TypeError, AttributeError, ArithmeticError),  # (facts of workers are of any kind)
)
OLDER = 2
"""The schema of runs whose samples say what they say today, and that cannot go on."""


def recorded(folder: Path) -> tuple[Comparison, tuple[Sample, ...]]:
    """The comparison that the run's samples make, and the samples.

    `folder` holds run.json and samples.jsonl, which may be packed (samples.jsonl.xz). Raises
    RecordError for a folder that does not, and for a damaged or foreign file.
    """
    path = _samples(folder)
    for each in (folder / KIND.spec, path):
        if not each.is_file():
            raise RecordError(
                f"{folder} holds no recorded run: {each.name} is not there",
                hint=f"A comparison leaves {KIND.spec} and {KIND.journal} in its folder",
            )
    setting = _setting(folder / KIND.spec)
    found = read_entries(path, KINDS)
    try:
        every = [measured_of(each, each.of(found)) for each in setting.specs]
        done = [each for each in every if each.starts]
        comparison = summarised(setting, done, made=_made(folder / KIND.result))
    except _FOREIGN as error:
        raise RecordError(f"{path} holds no comparison ({error})") from error
    return comparison, tuple(each for each in found if isinstance(each, Sample))


def _setting(path: Path) -> ComparisonSetting:
    try:
        fields = load(path, schema=OLDER)
    except RecordError:  # (of this version, or no run at all)
        fields = load(path, schema=SCHEMA)
    try:
        return decode_record(ComparisonSetting, fields)
    except (TypeError, ValueError, KeyError, UsageError) as error:
        raise RecordError(f"{path} is no question of a comparison ({error})") from error


def _samples(folder: Path) -> Path:
    packed = folder / f"{KIND.journal}{PACKED}"
    return packed if packed.is_file() else folder / KIND.journal


def _made(path: Path) -> str:
    """When the run was measured, as its own result says. Files are dated by who copies them."""
    try:
        return str(parse_json(path.read_bytes())["made"])
    except (OSError, ValueError, KeyError, TypeError):
        return ""
