"""Share the files of environments as hard links.

Tools replace the files of an environment and never write into them, so no environment changes
another.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from tfbuild.packing import wheel
from tfbuild.packing.wheel import RecordLine

_INSTALLER = "tensorwright"


def locate_packages(folder: Path, python: str) -> Path:
    """Return the site-packages folder of an environment of this Python, such as 3.11."""
    return folder / "lib" / f"python{python}" / "site-packages"


def link_packages(source: Path, target: Path, *, compiled: bool) -> None:
    """Link all files of `source` into `target`; with `compiled`, also Python's compiled files."""
    ignore = None if compiled else shutil.ignore_patterns("__pycache__")
    shutil.copytree(source, target, copy_function=_link_file, ignore=ignore, dirs_exist_ok=True)


def _link_file(name: str, target: str) -> None:
    try:
        os.link(name, target)
    except OSError:  # (a file system without links)
        shutil.copy2(name, target)


def replace_wheel(old: Path, new: Path, folder: Path) -> bool:
    """Replace the installed wheel `old` in a folder of packages with the wheel `new`.

    Files that both have stay; files that differ are unpacked. Scripts are not created. Returns
    False and changes nothing if some files of a wheel belong elsewhere: only an installer can
    place them.

    The hashes of both wheels must have been verified. Raises WheelError, DiskError.
    """
    before, after = _read_record(old), _read_record(new)
    if any(_is_outside(name) for name in (*before, *after)):
        return False
    unchanged = {
        name for name, line in after.items() if _is_unchanged(folder, line, before.get(name))
    }
    with wheel.convert_os_errors(folder):
        for name in before.keys() - unchanged:
            _remove_file(folder / name)
        shutil.rmtree(folder / f"{wheel.read_stem(old)}.dist-info")
        with wheel.open_wheel(new) as archive:
            record = wheel.find_record_name(archive)
            for name in (*(after.keys() - unchanged), record):
                path = folder / name
                path.parent.mkdir(parents=True, exist_ok=True)
                with archive.open(name) as source, path.open("wb") as sink:
                    shutil.copyfileobj(source, sink, wheel.BLOCK)
        (folder / record).with_name("INSTALLER").write_text(f"{_INSTALLER}\n", encoding="utf-8")
    return True


def _read_record(path: Path) -> dict[str, RecordLine]:
    return {line.name: line for line in wheel.read_record(path)}


def _is_outside(name: str) -> bool:
    return name.partition("/")[0].endswith(".data")


def _is_unchanged(folder: Path, line: RecordLine, before: RecordLine | None) -> bool:
    """Return whether the old wheel has the same file, and its size on disk is unchanged."""
    path = folder / line.name
    return line == before and path.is_file() and str(path.stat().st_size) == line.size


def _remove_file(path: Path) -> None:
    """Remove a file and its compiled files."""
    path.unlink(missing_ok=True)
    for compiled in (path.parent / "__pycache__").glob(f"{path.stem}.*.pyc"):
        compiled.unlink()
