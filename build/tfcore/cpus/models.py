"""Identifies CPUs by model number. Features take precedence: virtual machines fake the number."""

from __future__ import annotations

import functools
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from archspec.cpu import TARGETS

from tfcore.cpus.cpu import Cpu

_ANY_STEPPING = (0, 0xFF)


@dataclass(frozen=True, kw_only=True, slots=True)
class CpuModel:
    """A line of CPUs: its name, archspec's nearest target and its model numbers."""

    name: str
    target: str
    vendor: str
    family: int
    models: tuple[tuple[int, int], ...]
    steppings: tuple[int, int] = _ANY_STEPPING

    def has_cpu(self, cpu: Cpu) -> bool:
        """Return True if the numbers of the CPU belong to this line."""
        low, high = self.steppings
        return (
            (self.vendor, self.family) == (cpu.vendor, cpu.family)
            and low <= cpu.stepping <= high
            and any(first <= cpu.model <= last for first, last in self.models)
        )


def find_model(cpu: Cpu) -> CpuModel | None:
    """Return the line that the CPU's numbers belong to; None if it is not in the table."""
    if cpu.architecture == "aarch64":
        return _find_part(cpu)
    return next((model for model in load_models() if model.has_cpu(cpu)), None)


@functools.cache
def load_models() -> tuple[CpuModel, ...]:
    path = Path(__file__).with_name("models.toml")
    rows = tomllib.loads(path.read_text(encoding="utf-8"))["model"]
    return tuple(_parse_model(row) for row in rows)


def _parse_model(row: Mapping[str, Any]) -> CpuModel:
    low, high = row.get("steppings", _ANY_STEPPING)
    return CpuModel(
        name=row["name"],
        target=row["target"],
        vendor=row["vendor"],
        family=row["family"],
        models=tuple((m, m) if isinstance(m, int) else (m[0], m[1]) for m in row["models"]),
        steppings=(low, high),
    )


def _find_part(cpu: Cpu) -> CpuModel | None:
    """Return the aarch64 core with this part number, from archspec's data."""
    part = f"0x{cpu.model:03x}"
    for name, target in TARGETS.items():
        if (target.vendor, target.cpu_part) == (cpu.vendor, part):
            numbers = ((cpu.model, cpu.model),)
            return CpuModel(
                name=name, target=name, vendor=cpu.vendor, family=cpu.family, models=numbers
            )
    return None
