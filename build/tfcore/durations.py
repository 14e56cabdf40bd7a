"""Durations in options, `90s`, `20m`, `1h30m`, or as the console prints them."""

from __future__ import annotations

import re

from tfcore.errors import UsageError

_NUMBER = r"([0-9]+(?:\.[0-9]+)?)"
_FORM = re.compile(rf"(?:{_NUMBER}\s*h)?\s*(?:{_NUMBER}\s*m(?:in)?)?\s*(?:{_NUMBER}\s*s)?")
_BARE = re.compile(_NUMBER)
_LONGEST_S = 30 * 24 * 3600


def parse_duration(text: str, option: str) -> float:
    """Return the seconds of a duration with units, up to 30 days.

    Raises UsageError for any other text: a bare number could mean seconds or minutes.
    """
    typed = text.strip()
    if _BARE.fullmatch(typed):
        example = typed if float(typed) else "20"
        raise UsageError(f"{option} {text} has no unit", hint=f"Write {example}s or {example}m")
    match = _FORM.fullmatch(typed)
    if match is None or not any(match.groups()):
        raise UsageError(
            f"{option} {text} is not a duration", hint="Write for example 90s, 20m or 1h30m"
        )
    hours, minutes, remainder = (float(group or 0) for group in match.groups())
    total = 3600 * hours + 60 * minutes + remainder
    if not 0 < total <= _LONGEST_S:
        raise UsageError(
            f"{option} {text} is not above 0 and at most 30 days", hint="Write for example 20m"
        )
    return total
