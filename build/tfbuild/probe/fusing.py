"""Programs that run with a part of the library fusing, and without it.

TENSORWRIGHT_FUSE is read when TensorFlow prepares a function, so that one process does both.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any, TypeVar

import numpy as np

from tfbuild.probe.cases import Array

SWITCH = "TENSORWRIGHT_FUSE"

Tensor = Any  # or a variable, of whichever release
State = list[Array]
"""All that can be seen of what a program did."""
Case = Callable[[ModuleType], State]
_Function = TypeVar("_Function", bound=Callable[..., Any])


def in_graph(tf: ModuleType, **options: object) -> Callable[[_Function], _Function]:
    """tf.function, which leaves the types that it has no words for."""
    decorator: Callable[[_Function], _Function] = tf.function(**options)
    return decorator


def drawn(tf: ModuleType, shape: tuple[int, ...], seed: int, dtype: str = "float32") -> Tensor:
    """Values around zero; of sixteen one is zero, one negative zero and one tiny."""
    rng = np.random.default_rng(seed)
    kinds = np.asarray(rng.integers(0, 16, shape))
    odd = [kinds == kind for kind in range(3)]
    values = np.select(odd, [0.0, -0.0, 1e-39], np.asarray(rng.standard_normal(shape)))
    return tf.cast(tf.constant(values), dtype)


def as_arrays(values: Sequence[Tensor]) -> State:
    return [np.asarray(each) for each in values]


def outcome(case: Callable[[], State], switch: str) -> State | str:
    """What comes out under this value of the switch; or the error, in words."""
    os.environ[SWITCH] = switch
    try:
        return case()
    except Exception as error:  # noqa: BLE001  (whatever it is, it is the other's, too)
        return f"{type(error).__name__}: {error}"
    finally:
        del os.environ[SWITCH]


def both(case: Callable[[], State], part: str) -> tuple[State | str, State | str]:
    """What comes out without this part, and with this part alone."""
    return outcome(case, f"-{part}"), outcome(case, part)
