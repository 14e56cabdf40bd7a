"""The recorded runs, and a run with few samples."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.builders.journals import HOST, STOCK, TUNED, entries, paces

from tfbench.engine.journal import open_journal
from tfbench.measuring.comparing import KIND, ComparisonSetting
from tfbench.measuring.samples import KINDS, Entry
from tfcore import records
from tfcore.comparisons.effort import Effort
from tfcore.settings import ROOT

RECORDINGS = ROOT / "tests" / "data" / "recordings"

SETTING = ComparisonSetting(
    host=HOST,
    arms=(STOCK, TUNED),
    workloads=("mnist_mlp", "lstm_text"),
    vcpus=(2,),
    effort=Effort(looks=(3, 6)),
    threshold=0.0,
    seed=1,
)

CELLS = [
    entries(paces(speedup), workload=name, spread=0.004, jitter=0.004)
    for name, speedup in (("mnist_mlp", 1.25), ("lstm_text", 1.1))
]

EVERY = [entry for cell in CELLS for entry in cell]


def run(
    folder: Path,
    actual: Sequence[Entry] = EVERY,
    **changed: Any,
) -> Path:
    """A folder as a run leaves it."""
    (folder / KIND.spec).write_text(
        json.dumps(records.convert_record(SETTING) | changed), encoding="utf-8"
    )
    with open_journal(folder / KIND.journal, KINDS) as (_, keep):
        for entry in actual:
            keep(entry)
    return folder
