"""What a tuned wheel says of itself: dist-info/tuned.json."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tfbuild.cpu import Cpu
from tfbuild.errors import HostError, WheelError
from tfbuild.records import pretty
from tfbuild.wheel import opened, read_member

SCHEMA = 1
FILE = "tuned.json"


@dataclass(frozen=True, kw_only=True, slots=True)
class Tuned:
    """The wheel's target, what it was made from and how. No time and no path stands in it.

    `floors` are the newest versions of the runtime libraries that the kernels ask for;
    `stay_stock` gives a reason for each unit that was not admitted.
    """

    schema: int = SCHEMA
    plan_key: str
    release: str
    target: str
    required_features: tuple[str, ...]
    flags: tuple[str, ...]
    compiler: str
    bazel: str
    kernels: tuple[str, ...]
    registrations: int
    stay_stock: Mapping[str, str]
    floors: Mapping[str, str]
    source_sha256: str
    stock_sha256: str

    def to_bytes(self) -> bytes:
        return pretty(self).encode()


def read_tuned(wheel: Path) -> Tuned | None:
    """The record in a wheel; None for a wheel that is not tuned. Raises WheelError."""
    with opened(wheel) as archive:
        names = [name for name in archive.namelist() if name.endswith(f".dist-info/{FILE}")]
    if not names:
        return None
    try:
        fields = json.loads(read_member(wheel, names[0]))
        seen = fields.pop("schema")
        if seen != SCHEMA:
            raise WheelError(
                f"{wheel.name} has {FILE} of schema {seen}, this version reads {SCHEMA}"
            )
        tuples = ("required_features", "flags", "kernels")
        return Tuned(**(fields | {name: tuple(fields[name]) for name in tuples}))
    except (ValueError, KeyError, TypeError, AttributeError, zipfile.BadZipFile) as error:
        raise WheelError(f"{wheel.name} has a {FILE} that cannot be read ({error})") from error


def lacking(tuned: Tuned, cpu: Cpu) -> tuple[str, ...]:
    """The features that the wheel's kernels need and the CPU has not."""
    return tuple(sorted(set(tuned.required_features) - cpu.features))


def need_runnable(wheel: Path, tuned: Tuned, cpu: Cpu) -> None:
    """Raises HostError that names what this CPU lacks."""
    absent = lacking(tuned, cpu)
    if absent:
        raise HostError(
            f"{wheel.name} is built for {tuned.target}, and this CPU lacks {', '.join(absent)}",
            hint="Compare it on a machine that has them, or build one for this CPU: --arch native",
        )
