"""Runs inside an arm: the examples in TensorFlow's own documentation, which its wheel brings.

python examples.py MODULE… prints {"module.name": whether its examples give what they say}
"""

from __future__ import annotations

import doctest
import importlib
import inspect
import json
import re
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import numpy as np
import tensorflow as tf

_NUMBER = re.compile(r"(?<![\w.])[-+]?(?:\d+\.\d*|\.\d+|\d+)(?:[eE][-+]?\d+)?(?!\w)")
_ADDRESS = re.compile(r"0x[0-9a-f]+|numpy=|\s+")


class Checker(doctest.OutputChecker):
    """Numbers may differ where they are printed to fewer digits; what stands between them may not,
    but for white space."""

    def check_output(self, want: str, got: str, optionflags: int) -> bool:
        if super().check_output(want, got, optionflags):
            return True
        message, actual = (_NUMBER.sub("#", _ADDRESS.sub("", text)) for text in (want, got))
        pattern = ".*".join(map(re.escape, message.split("...")))
        ours, theirs = (np.array(_NUMBER.findall(text), float) for text in (got, want))
        return bool(
            re.fullmatch(pattern, actual)
            and ours.shape == theirs.shape
            and np.allclose(ours, theirs, rtol=1e-4, atol=1e-4)
        )


def documented(module: ModuleType) -> Iterator[tuple[str, str]]:
    """Functions and classes that the module defines, with examples in what documents them."""
    for name, value in sorted(vars(module).items()):
        actual = inspect.unwrap(value) if callable(value) else None
        text = getattr(value, "__doc__", None) or ""
        if actual and getattr(actual, "__module__", "") == module.__name__ and ">>> " in text:
            yield name, text


def passes(name: str, text: str) -> bool:
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE | doctest.IGNORE_EXCEPTION_DETAIL
    runner = doctest.DocTestRunner(checker=Checker(), optionflags=flags, verbose=False)
    known: dict[str, Any] = {"tf": tf, "np": np, "v1": tf.compat.v1}
    try:
        test = doctest.DocTestParser().get_doctest(text, known, name, None, None)
    except ValueError:
        return False
    return runner.run(test, out=lambda _: None).failed == 0


def main() -> None:
    actual = {
        f"{path}.{name}": passes(name, text)
        for path in sys.argv[1:]
        for name, text in documented(importlib.import_module(path))
    }
    print(json.dumps(actual))


main()
