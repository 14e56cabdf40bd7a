"""The kit's file: the modules that run inside an arm, as a zip that Python executes (PEP 441)."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterator
from pathlib import Path

from tfbench import inside

NAME = "tensorwright-kit.pyz"
_START = "from tfbench.inside.kit import main\n\nmain()\n"
_FIRST_DAY = (1980, 1, 1, 0, 0, 0)  # the earliest date of the zip format
_SUFFIXES = (".py", ".csv")
_NOT_NEEDED = ("call_sites", "timing", "profiling", "importing", "training")
"""Modules that time single ops and imports, or train for a profile-guided build."""


def build_archive() -> bytes:
    """Build the kit as a zip file. Equal sources give equal bytes."""
    buffer = io.BytesIO()
    buffer.write(b"#!/usr/bin/env python3\n")
    with zipfile.ZipFile(buffer, "a", zipfile.ZIP_DEFLATED) as packed:
        for name, content in _list_members():
            member = zipfile.ZipInfo(name, _FIRST_DAY)
            member.compress_type = zipfile.ZIP_DEFLATED
            member.external_attr = 0o644 << 16
            packed.writestr(member, content)
    return buffer.getvalue()


def _list_members() -> Iterator[tuple[str, bytes]]:
    folder = Path(inside.__path__[0])
    yield "__main__.py", _START.encode()
    yield "tfbench/__init__.py", (folder.parent / "__init__.py").read_bytes()
    for path in sorted(folder.iterdir()):
        if path.suffix in _SUFFIXES and path.stem not in _NOT_NEEDED:
            yield f"tfbench/inside/{path.name}", path.read_bytes()
