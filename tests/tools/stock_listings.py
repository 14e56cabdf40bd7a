"""What stock wheels hold of all that building kernels relies on, recorded from the published files.

`python -m tests.tools.stock_listings WHEEL…` writes tests/data/stock/RELEASE.json.
"""

from __future__ import annotations

import hashlib
import json
import sys
import zipfile
from collections import Counter
from pathlib import Path, PurePosixPath
from typing import Any

from tfbuild.packing.wheel import read_identity
from tfbuild.upstream.releases import Release
from tfcore.settings import ROOT

DATA = ROOT / "tests" / "data" / "stock"
_INCLUDE = "tensorflow/include/"
_DEPTH = 3
"""Of the folders that are counted, below include: external/onednn/include."""


def listing(wheel: Path) -> dict[str, Any]:
    """Files below each folder of the headers, the libraries, and the licences with SHA-256s."""
    with zipfile.ZipFile(wheel) as archive:
        names = [name for name in archive.namelist() if not name.endswith("/")]
        licences = [
            name
            for name in names
            if PurePosixPath(name).name == "LICENSE"
            and name.startswith(("tensorflow_cpu", f"{_INCLUDE}LICENSE", f"{_INCLUDE}external/com"))
        ]
        hashes = {name: hashlib.sha256(archive.read(name)).hexdigest() for name in licences}
    folders = Counter(
        "/".join(parts[:depth])
        for name in names
        if name.startswith(_INCLUDE)
        for parts in [name.removeprefix(_INCLUDE).split("/")[:-1]]
        for depth in range(1, min(len(parts), _DEPTH) + 1)
        if parts[0] == "external" or depth == 1
    )
    return {
        "wheel": wheel.name,
        "folders": dict(sorted(folders.items())),
        "libraries": sorted(n for n in names if n.startswith("tensorflow/lib") and ".so" in n),
        "licences": dict(sorted(hashes.items())),
        "eigen_version": f"{_INCLUDE}Eigen/Version" in names,
    }


def recorded(release: Release) -> dict[str, Any]:
    """What was recorded of the release's wheel for CPython 3.11."""
    text = (DATA / f"{release.version}.json").read_text(encoding="utf-8")
    return dict(json.loads(text))


if __name__ == "__main__":
    for word in sys.argv[1:]:
        path = DATA / f"{read_identity(Path(word)).version}.json"
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps(listing(Path(word)), indent=1) + "\n", encoding="utf-8")
