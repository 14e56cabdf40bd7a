"""What a stock wheel holds of all that building kernels relies on."""

from __future__ import annotations

import hashlib
import json
import zipfile
from collections import Counter
from pathlib import Path, PurePosixPath
from typing import Any

_INCLUDE = "tensorflow/include/"
_DEPTH = 3
"""Of the folders that are counted, below include: external/onednn/include."""


def list_wheel(wheel: Path) -> dict[str, Any]:
    """List the files below each folder of headers, the libraries, and licences with SHA-256s."""
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


def format_listing(wheel: Path) -> str:
    """Return the listing of a wheel as JSON."""
    return json.dumps(list_wheel(wheel), indent=1) + "\n"
