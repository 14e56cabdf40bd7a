"""A wheel with the same files in another archive."""

from __future__ import annotations

import zipfile
from pathlib import Path


def recompress(source: Path, target: Path, method: int = zipfile.ZIP_STORED) -> Path:
    """Write the members with this compression; `target` may be the same path."""
    with zipfile.ZipFile(source) as archive:
        members = [(info, archive.read(info)) for info in archive.infolist()]
    with zipfile.ZipFile(target, "w", method) as archive:
        for old, data in members:
            info = zipfile.ZipInfo(old.filename, old.date_time)
            info.compress_type = method
            info.create_system, info.external_attr = old.create_system, old.external_attr
            archive.writestr(info, data)
    return target
