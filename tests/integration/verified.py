"""Runs inside TensorFlow: random programs, whose fused ops may be verified (TENSORWRIGHT_VERIFY).

python verified.py OUT FIRST LAST FAMILIES LIBRARY...

Writes for each family the counters, and the numbers of the programs with wrong results.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path

import tensorflow as tf

from tfbuild.probe.choices import Choices
from tfbuild.probe.random_programs import FAMILIES
from tfbuild.probe.random_search import run_program
from tfbuild.probe.registry import Library


def count(libraries: list[Library]) -> Counter[str]:
    return sum((Counter(library.count_fused_events()) for library in libraries), Counter())


def main(out: str, first: str, last: str, families: str, *paths: str) -> None:
    libraries = [Library(Path(path)) for path in paths]
    found = {}
    for name in families.split(","):
        family, before, wrong = FAMILIES[name], count(libraries), []
        for number in range(int(first), int(last)):
            program = family.make(Choices(seed=f"{name} {number}"))
            if run_program(tf, program, family, is_stock=False)[0]:
                wrong.append(number)
        after = count(libraries)
        executions = sum(
            after[event] - before[event]
            for event in after
            if event.endswith("executions") and event != "verified executions"
        )
        found[name] = {
            "executions": executions,
            "verified": after["verified executions"] - before["verified executions"],
            "differing": after["stock: results differ"] - before["stock: results differ"],
            "wrong": wrong,
        }
    Path(out).write_text(json.dumps(found), "utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
