"""Runs inside TensorFlow: the conformance programs of updates, with all fused ops loaded.

PROGRAM OUT LIBRARY...: writes, as JSON, how the results of each program differ from stock.
"""

from __future__ import annotations

import functools
import json
import sys
from pathlib import Path

import tensorflow as tf
from tests.integration import held

from tfbuild.probe import fusing
from tfbuild.probe.registry import Library


def main() -> None:
    out, *libraries = sys.argv[1:]
    loaded = [Library(Path(path)) for path in libraries]
    programs = fusing.load_programs("updates")
    cases = {name: case for name, case in programs.cases().items() if "adam" in name}
    answer = {
        name: programs.difference(*held.run_both(functools.partial(case, tf), "updates"))
        for name, case in cases.items()
    }
    runs = sum(library.count_fused_events().get(programs.RUNS, 0) for library in loaded)
    Path(out).write_text(json.dumps({"unlike": answer, "runs": runs}), "utf-8")


if __name__ == "__main__":
    main()
