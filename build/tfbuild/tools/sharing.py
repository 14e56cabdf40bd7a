"""Files that environments share: one on the disk, under a name in each. Tools replace files in an
environment but never write into them, so none of them meets what another did."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from tfbuild.packing import wheel
from tfbuild.packing.wheel import RecordLine

_INSTALLER = "tensorwright"


def packages(folder: Path, python: str) -> Path:
    """Where an environment of Python 3.11 has its packages."""
    return folder / "lib" / f"python{python}" / "site-packages"


def link(source: Path, target: Path, *, compiled: bool) -> None:
    """All that `source` holds in `target` as well; with `compiled` what Python compiled of it."""
    ignore = None if compiled else shutil.ignore_patterns("__pycache__")
    shutil.copytree(source, target, copy_function=_linked, ignore=ignore, dirs_exist_ok=True)


def _linked(name: str, target: str) -> None:
    try:
        os.link(name, target)
    except OSError:  # (a file system without links)
        shutil.copy2(name, target)


def replace(old: Path, new: Path, folder: Path) -> bool:
    """Make of the installed wheel `old` in a folder of packages the wheel `new`: what both have
    stays, what differs is unpacked. False, with nothing done, for a wheel of which some files go
    elsewhere, as only an installer knows. Scripts are not made.

    Both wheels' own hashes are known to be right. Raises WheelError, DiskError.
    """
    before, after = _record(old), _record(new)
    if any(_goes_elsewhere(name) for name in (*before, *after)):
        return False
    kept = {name for name, line in after.items() if _is_there(folder, line, before.get(name))}
    with wheel.convert_os_errors(folder):
        for name in before.keys() - kept:
            _remove(folder / name)
        shutil.rmtree(folder / f"{wheel.read_stem(old)}.dist-info")
        with wheel.open_wheel(new) as archive:
            record = wheel.find_record_name(archive)
            for name in (*(after.keys() - kept), record):
                path = folder / name
                path.parent.mkdir(parents=True, exist_ok=True)
                with archive.open(name) as source, path.open("wb") as sink:
                    shutil.copyfileobj(source, sink, wheel.BLOCK)
        (folder / record).with_name("INSTALLER").write_text(f"{_INSTALLER}\n", encoding="utf-8")
    return True


def _record(path: Path) -> dict[str, RecordLine]:
    return {line.name: line for line in wheel.read_record(path)}


def _goes_elsewhere(name: str) -> bool:
    return name.partition("/")[0].endswith(".data")


def _is_there(folder: Path, line: RecordLine, before: RecordLine | None) -> bool:
    """Whether the old wheel has the same file, and nobody has changed it since."""
    path = folder / line.name
    return line == before and path.is_file() and str(path.stat().st_size) == line.size


def _remove(path: Path) -> None:
    """A file, and what Python compiled of it."""
    path.unlink(missing_ok=True)
    for each in (path.parent / "__pycache__").glob(f"{path.stem}.*.pyc"):
        each.unlink()
