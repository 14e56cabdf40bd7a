"""Sources of examples: memory, the page cache, the disk, or a disk of a given speed."""

from __future__ import annotations

import re
from dataclasses import dataclass

from tfbench.inside.steps import FILES, MEMORY
from tfcore import console
from tfcore.errors import UsageError

CACHED, COLD = "cached", "cold"
KINDS = (MEMORY, CACHED, COLD)
_SLOW = re.compile(r"(\d+(?:\.\d+)?)MB/s(?:@(\d+)IOPS)?", re.IGNORECASE)
_HINT = f"Use {', '.join(KINDS)}, or a disk's speed such as 40MB/s or 40MB/s@500IOPS"


@dataclass(frozen=True, kw_only=True, slots=True)
class InputSource:
    """A source of examples. `mb_s` and `iops` limit the simulated disk, 0 for no limit."""

    name: str
    kind: str
    cold: bool = False
    mb_s: float = 0.0
    iops: float = 0.0

    def build_request(self, folder: str, sink: str, *, generate: int) -> dict[str, object]:
        """Build the request for `inside.steps`. `generate` is the number of examples to
        generate, 0 for a folder of the user's own.
        """
        if self.kind == MEMORY:
            return {"kind": MEMORY}
        return {
            "kind": FILES,
            "folder": folder,
            "sink": sink,
            "generate": generate,
            "mb_s": self.mb_s,
            "iops": self.iops,
            "cold": self.cold,
        }


def parse_source(text: str) -> InputSource:
    """Parse one of KINDS or a disk's speed. Raises UsageError."""
    if text in KINDS:
        kind = MEMORY if text == MEMORY else FILES
        return InputSource(name=text, kind=kind, cold=text == COLD)
    match = _SLOW.fullmatch(text)
    if not match:
        suggestion = console.suggest_spelling(text, KINDS)
        raise UsageError(f"unknown input {text!r}", hint=f"{suggestion} {_HINT}".strip())
    mb_s, iops = float(match[1]), float(match[2] or 0)
    if mb_s == 0 or (match[2] is not None and iops == 0):
        raise UsageError(f"the speed of {text} is 0", hint=_HINT)
    return InputSource(name=text, kind=FILES, mb_s=mb_s, iops=iops)
