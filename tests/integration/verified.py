"""Runs inside TensorFlow: random programs, whose fused ops may be verified (TENSORWRIGHT_VERIFY).

python verified.py OUT PROGRAMS FAMILIES LIBRARY...

Writes for each family the counters, and the numbers of the programs with wrong results. The family
`repeated` is one program, a chain that is executed 7 times.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path

import tensorflow as tf

from tfbuild.probe.choices import Choices
from tfbuild.probe.fusing import Tensor, in_graph
from tfbuild.probe.random_programs import FAMILIES
from tfbuild.probe.random_search import run_program
from tfbuild.probe.registry import Library


def count(libraries: list[Library]) -> Counter[str]:
    return sum((Counter(library.count_fused_events()) for library in libraries), Counter())


def repeat_chain() -> None:
    @in_graph(tf)
    def run(x: Tensor) -> Tensor:
        return tf.tanh(x * 2 + 1) * x

    for _ in range(7):
        run(tf.ones([64, 64]))


def find_wrong(name: str, programs: int) -> list[int]:
    if name == "repeated":
        repeat_chain()
        return []
    family = FAMILIES[name]
    made = [family.make(Choices(seed=f"{name} {number}")) for number in range(programs)]
    return [
        number
        for number, program in enumerate(made)
        if run_program(tf, program, family, is_stock=True)[0]
    ]


def main(out: str, programs: str, families: str, *paths: str) -> None:
    libraries = [Library(Path(path)) for path in paths]
    found = {}
    for name in families.split(","):
        before = count(libraries)
        wrong = find_wrong(name, int(programs))
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
