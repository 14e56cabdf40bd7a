"""The stock wheel and TensorFlow's dependencies, so that hosts need no second index.

The dependencies are those of a lock in tfbuild/upstream/locks. pip downloads each wheel by its
hash, with the user's own index settings, or the wheels come from a folder without network access.
"""

from __future__ import annotations

import hashlib
import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from packaging.tags import compatible_tags, cpython_tags
from packaging.utils import canonicalize_name, parse_wheel_filename
from packaging.version import Version

from tfbuild.tools import pip
from tfbuild.tools.environment import OTHER_BYTES, fetch_stock
from tfbuild.tools.requirement import ExactRequirement
from tfbuild.upstream import lock_files, releases
from tfbuild.upstream.download import hash_file
from tfbuild.upstream.releases import Release
from tfcore import console, settings
from tfcore.errors import ChecksumError, CommandError, DownloadError, RecordError
from tfcore.records import write_atomic
from tfcore.settings import Paths

_BYTES = 300_000_000
"""Disk space for the dependencies, in bytes. The lock of 2.14.1 is 78 MB of wheels, and pip stores
each twice for a moment."""
_NEWEST_GLIBC = 28
"""The locks are resolved for manylinux_2_28."""
_LATE_PATCH = ".99"
"""pip reads 3.9 as 3.9.0, and some packages exclude exactly that version."""
_LOCKED = re.compile(
    r"(?P<name>[A-Za-z0-9._-]+)==(?P<version>\S+)(?P<hashes>(\s+--hash=sha256:[0-9a-f]{64})+)"
)


@dataclass(frozen=True, kw_only=True, slots=True)
class PinnedPackage:
    """A package of a lock, with the SHA-256 (hex) of its sources and wheels for all machines."""

    exact: ExactRequirement
    sha256s: frozenset[str]


@dataclass(frozen=True, kw_only=True, slots=True)
class WheelUse:
    """The Python ("3.11") and the machine ("x86_64") that wheels are for."""

    python: str
    machine: str

    def can_install(self, file: str) -> bool:
        """Return whether a wheel with this file name is for them."""
        try:
            tags = parse_wheel_filename(file)[3]
        except ValueError:
            return False
        return any(
            (tag.interpreter, tag.abi) in self._abis
            and (tag.platform == "any" or tag.platform.endswith(f"_{self.machine}"))
            for tag in tags
        )

    @property
    def _abis(self) -> frozenset[tuple[str, str]]:
        version = tuple(map(int, self.python.split(".")))
        name = releases.format_python_tag(self.python)
        tags = (
            *cpython_tags(version, [name], [self.machine]),
            *compatible_tags(version, name, [self.machine]),
        )
        return frozenset((tag.interpreter, tag.abi) for tag in tags)


def fetch_stock_and_dependencies(
    release: Release, package: str, use: WheelUse, paths: Paths, *, wheel_folder: Path | None = None
) -> tuple[Path, ...]:
    """Return the stock wheel of a release, then its dependencies.

    With `wheel_folder`, they come from that folder and nothing is downloaded. Raises PythonError,
    WheelError if there is no such stock wheel or lock, DownloadError, ChecksumError, DiskError.
    """
    tag = releases.format_python_tag(use.python)
    wheel = releases.require_stock_wheel(release, package, tag, use.machine)
    lock = lock_files.load_requirements(wheel)
    stock = fetch_stock(wheel, paths, wheel_folder)
    return (stock, *fetch_locked(lock, use, paths, wheel_folder=wheel_folder))


def fetch_locked(
    lock: str, use: WheelUse, paths: Paths, *, wheel_folder: Path | None = None
) -> tuple[Path, ...]:
    """Return the wheels of a lock, in its order.

    `lock` is its text. The wheels are cached in a folder per lock, which may have wheels of one
    package for several machines, and their hashes are checked each time. Raises the errors of
    `fetch_stock_and_dependencies`, and RecordError.
    """
    pinned = parse_lock(lock)
    if wheel_folder is not None:
        return _find_wheels(
            pinned, wheel_folder, use, hint="Add the wheel to the folder, or omit --dependencies"
        )
    folder = paths.downloads / hashlib.sha256(lock.encode()).hexdigest()[:16]
    if _find_absent(pinned, folder, use):
        settings.require_disk(paths.downloads, _BYTES, "downloading dependencies")
        with settings.lock_folder(folder, "downloading dependencies"):
            _remove_invalid(pinned, folder)
            _download(_find_absent(pinned, folder, use), folder, use)
    return _find_wheels(pinned, folder, use, hint="Run the same command again")


def parse_lock(text: str) -> tuple[PinnedPackage, ...]:
    """Parse a list of requirements with hashes, as uv and pip-compile write it.

    Raises RecordError for a line that is not NAME==VERSION with SHA-256s.
    """
    bare = re.sub(r"(?m)^\s*#.*$", "", text.replace("\\\n", " "))
    return tuple(_parse_line(line) for line in bare.splitlines() if line.strip())


def _parse_line(line: str) -> PinnedPackage:
    match = _LOCKED.fullmatch(line.strip())
    if match is None:
        raise RecordError(f"a lock has a line without version or SHA-256: {line.strip()[:60]!r}")
    exact = ExactRequirement(
        name=canonicalize_name(match["name"]), version=str(Version(match["version"]))
    )
    return PinnedPackage(
        exact=exact, sha256s=frozenset(re.findall(r"[0-9a-f]{64}", match["hashes"]))
    )


def _find_absent(
    pinned: Iterable[PinnedPackage], folder: Path, use: WheelUse
) -> tuple[PinnedPackage, ...]:
    present = _hash_wheels(folder, use)
    return tuple(package for package in pinned if not package.sha256s & present.keys())


def _remove_invalid(pinned: Iterable[PinnedPackage], folder: Path) -> None:
    """Remove damaged or truncated wheels, because pip would not replace them."""
    locked = frozenset(sha256 for package in pinned for sha256 in package.sha256s)
    for sha256, path in _hash_wheels(folder).items():
        if sha256 not in locked:
            console.warn(f"{path} does not have a locked hash; removing it to download it again")
            path.unlink()


def _find_wheels(
    pinned: Sequence[PinnedPackage], folder: Path, use: WheelUse, *, hint: str
) -> tuple[Path, ...]:
    """Return the wheel of each package.

    Raises DownloadError, naming the first few, if the folder lacks some.
    """
    present = _hash_wheels(folder, use)
    absent = [str(package.exact) for package in pinned if not package.sha256s & present.keys()]
    if absent:
        shown = ", ".join(absent[:5]) + (f" and {len(absent) - 5} more" if absent[5:] else "")
        raise DownloadError(
            f"{folder} has no wheel for Python {use.python} on {use.machine} with a locked hash "
            f"for {shown}",
            hint=hint,
        )
    return tuple(present[min(package.sha256s & present.keys())] for package in pinned)


def _hash_wheels(folder: Path, use: WheelUse | None = None) -> dict[str, Path]:
    """Return the wheels of a folder by SHA-256; with `use`, those that can be installed there."""
    paths = sorted(folder.glob("*.whl"))
    return {hash_file(path): path for path in paths if not use or use.can_install(path.name)}


def _download(absent: Sequence[PinnedPackage], folder: Path, use: WheelUse) -> None:
    """Download the packages into the folder with pip.

    Raises DownloadError, ChecksumError.
    """
    requirements = folder / "requirements.txt"
    write_atomic(requirements, "".join(map(_format_line, absent)))
    options = (
        *("--only-binary=:all:", "--python-version", f"{use.python}{_LATE_PATCH}"),
        *("--implementation", "cp"),
        *_list_platform_options(use.machine),
    )
    with console.track_progress("packages", len(absent)) as count:

        def report_progress(line: str) -> None:
            if line.startswith("Collecting "):
                count.advance(count.done + 1, detail=line.split()[1])

        try:
            pip.download(requirements, folder, *options, on_line=report_progress)
        except CommandError as error:
            raise _convert_error(error) from error


def _format_line(pinned: PinnedPackage) -> str:
    hashes = "".join(f" --hash=sha256:{sha256}" for sha256 in sorted(pinned.sha256s))
    return f"{pinned.exact}{hashes}\n"


def _list_platform_options(machine: str) -> Iterator[str]:
    """Yield pip's --platform options, with the older platforms that pip does not derive."""
    newest = (f"manylinux_2_{minor}" for minor in range(_NEWEST_GLIBC, 4, -1))
    for name in (*newest, "manylinux2014", "linux"):
        yield from ("--platform", f"{name}_{machine}")


def _convert_error(error: CommandError) -> ChecksumError | DownloadError:
    lines = [line.strip() for line in error.message.splitlines() if line.strip()]
    mismatches = [after for line, after in itertools.pairwise(lines) if OTHER_BYTES in line]
    if mismatches:
        return ChecksumError(
            f"the hash is not the locked one: {mismatches[0].rstrip(':')}",
            hint="Check pip's index settings: the index serves another file than the locked one",
        )
    return DownloadError(
        f"pip cannot download the dependencies ({error.last_line})",
        hint="Check the network and pip's index settings, or pass a folder with --dependencies",
    )
