"""What is staged of a source tree."""

from __future__ import annotations

from tfbuild.upstream.source import (
    Staging,
)

STAGING = Staging(
    prefixes=("tensorflow/core/", "third_party/eigen3/"), suffixes=(".h", ".cc", ".inc")
)
