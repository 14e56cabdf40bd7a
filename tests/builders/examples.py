"""How many examples a property test draws."""

from __future__ import annotations

from hypothesis import settings


def at_most(count: int) -> settings:
    """Where an example takes long: as many as the tier draws, but no more than this."""
    return settings(max_examples=min(count, settings().max_examples))
