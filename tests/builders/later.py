"""Parameters of a test that the second tier alone tries."""

from __future__ import annotations

import pytest


def later(*values: object) -> list[object]:
    """Each a parameter, or several in a tuple, marked as slow."""
    return [
        pytest.param(*(value if isinstance(value, tuple) else (value,)), marks=pytest.mark.slow)
        for value in values
    ]
