"""What stock wheels hold of all that building kernels relies on, recorded from the published files.

`python -m tests.tools.stock_listings WHEEL…` writes tests/data/stock/RELEASE.json.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from tfbuild.packing.wheel import read_identity
from tfbuild.upstream.releases import Release
from tfbuild.upstream.stock_listing import format_listing
from tfcore.settings import ROOT

DATA = ROOT / "tests" / "data" / "stock"


def recorded(release: Release) -> dict[str, Any]:
    """What was recorded of the release's wheel for CPython 3.11."""
    text = (DATA / f"{release.version}.json").read_text(encoding="utf-8")
    return dict(json.loads(text))


if __name__ == "__main__":
    for word in sys.argv[1:]:
        path = DATA / f"{read_identity(Path(word)).version}.json"
        path.parent.mkdir(exist_ok=True)
        path.write_text(format_listing(Path(word)), encoding="utf-8")
