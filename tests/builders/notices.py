"""Sources that are compiled into a wheel."""

from __future__ import annotations

from tfbuild.packing.notices import (
    APACHE,
    MPL,
    HeaderLibrary,
)

COMPILED = (
    HeaderLibrary(
        name="Eigen",
        version="3.4.90",
        purl="pkg:generic/eigen@3.4.90",
        licence=MPL,
        folders=("tensorflow/include/Eigen", "tensorflow/include/unsupported/Eigen"),
    ),
    HeaderLibrary(
        name="Abseil",
        version="20230125.2",
        purl="pkg:github/abseil/abseil-cpp@20230125.2",
        licence=APACHE,
        folders=("tensorflow/include/absl",),
    ),
)
