"""The recorded /proc/cpuinfo texts in tests/data/cpuinfo."""

from __future__ import annotations

from tfcore.cpus.cpu import Cpu, parse_cpuinfo
from tfcore.settings import ROOT

FOLDER = ROOT / "tests" / "data" / "cpuinfo"
COMPLETE = sorted(
    path.name
    for path in FOLDER.iterdir()
    if path.suffix != ".md" and not path.name.startswith("truncated")
)
# The others are masked or lie.
HONEST = [name for name in COMPLETE if "-" not in name]


def text_of(name: str) -> str:
    return (FOLDER / name).read_text(encoding="utf-8")


def cpu_of(name: str) -> Cpu:
    return parse_cpuinfo(text_of(name))
