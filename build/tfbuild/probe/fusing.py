"""Runs programs with a part of the fused ops, and without it.

TensorFlow reads TENSORWRIGHT_FUSE when it prepares a function, so one process can do both.
"""

from __future__ import annotations

import importlib
import os
import pkgutil
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any, TypeVar

import numpy as np

from tfbuild.native import ops
from tfbuild.probe.cases import Array

SWITCH = "TENSORWRIGHT_FUSE"

Tensor = Any  # a tensor or a variable of any release
State = list[Array]
"""All visible results of a program."""
Case = Callable[[ModuleType], State]
_Function = TypeVar("_Function", bound=Callable[..., Any])


def find_part(unit: str) -> str:
    """Return the part of TENSORWRIGHT_FUSE that a kernel group is; empty if it has no fused ops.

    The group fused/NAME is the part NAME, described in native/ops/NAME.
    """
    parts = {f"fused/{module.name}": module.name for module in pkgutil.iter_modules(ops.__path__)}
    return parts.get(unit, "")


def load_programs(part: str) -> ModuleType:
    """Load the conformance programs of a part: native/ops/PART/cases.py.

    `cases()` returns them by name. SETTINGS are environment variables for them. `difference`
    describes how two outcomes differ, `ulps` measures it, and RUNS is the counter of executions.
    """
    return importlib.import_module(f"{ops.__name__}.{part}.cases")


def in_graph(tf: ModuleType, **options: object) -> Callable[[_Function], _Function]:
    """Return tf.function with these options, typed so that a decorated function keeps its type."""
    decorator: Callable[[_Function], _Function] = tf.function(**options)
    return decorator


def draw_values(
    tf: ModuleType, shape: tuple[int, ...], seed: int, dtype: str = "float32"
) -> Tensor:
    """Draw values around zero; of sixteen values one is zero, one negative zero and one tiny."""
    rng = np.random.default_rng(seed)
    kinds = np.asarray(rng.integers(0, 16, shape))
    special_kinds = [kinds == kind for kind in range(3)]
    values = np.select(special_kinds, [0.0, -0.0, 1e-39], np.asarray(rng.standard_normal(shape)))
    return tf.cast(tf.constant(values), dtype)


def convert_to_arrays(values: Sequence[Tensor]) -> State:
    return [np.asarray(value) for value in values]


def run_with_switch(case: Callable[[], State], switch: str) -> State | str:
    """Run the case under this value of the switch, and return its state, or the error as text."""
    os.environ[SWITCH] = switch
    try:
        return case()
    except Exception as error:  # noqa: BLE001  (an error is an outcome to compare, too)
        return f"{type(error).__name__}: {error}"
    finally:
        del os.environ[SWITCH]
