"""Small wheels with a tuned.json."""

from __future__ import annotations

import dataclasses
import zipfile
from pathlib import Path

from tests.builders.index_wheels import tuned_for

from tfbuild.packing.tuned import (
    FILE,
    Tuned,
)

SOME = tuned_for(("haswell",))

(LIBRARY,) = SOME.libraries


def with_library(
    *,
    target: str = LIBRARY.target,
    required_features: tuple[str, ...] = LIBRARY.required_features,
    kernels: tuple[str, ...] = LIBRARY.kernels,
    compiler: str = SOME.compiler,
) -> Tuned:
    """SOME with another library, from another compiler."""
    library = dataclasses.replace(
        LIBRARY, target=target, required_features=required_features, kernels=kernels
    )
    return dataclasses.replace(SOME, compiler=compiler, libraries=(library,))


TAGS = "cp311-cp311-manylinux_2_17_x86_64"


def wheel(
    folder: Path,
    text: bytes | None,
    *,
    stem: str = "tensorflow_cpu-2.14.1+haswell",
    tags: str = TAGS,
) -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / f"{stem}-{tags}.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("tensorflow/__init__.py", "")
        if text is not None:
            archive.writestr(f"{stem}.dist-info/{FILE}", text)
    return path
