"""The training program of a profile-guided build: train each workload and run inference.

    ARM_PYTHON training.py [STEPS [WORKLOAD…]]

Run by its path in the environment of an instrumented wheel, which records the profile.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from pathlib import Path

STEPS = 40
SEED = 1


def main(steps: int = STEPS, names: Sequence[str] = ()) -> None:
    sys.path.insert(0, str(Path(__file__).parents[2]))
    from tfbench.inside.worker import build_trainer
    from tfbench.inside.workloads import WORKLOADS

    tf = importlib.import_module("tensorflow")
    for name in names or WORKLOADS:
        trainer, _ = build_trainer(tf, name, SEED)
        result = trainer.check(steps)
        print(f"{name}: {steps} steps, loss {result['losses'][0]} to {result['losses'][-1]}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if sys.argv[1:] else STEPS, sys.argv[2:])
