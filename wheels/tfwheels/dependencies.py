"""What an index carries beside tuned wheels, so that pip can be told to ask nothing else.

The stock wheel, and what TensorFlow depends on, as tfbuild/upstream/locks has it: each wheel by its
hash, through pip and the user's own index settings, or from a folder without any network.
"""

from __future__ import annotations

import hashlib
import itertools
import platform
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from packaging.utils import canonicalize_name
from packaging.version import Version

from tfbuild import console, settings
from tfbuild.errors import ChecksumError, CommandError, DownloadError, RecordError
from tfbuild.records import write_atomic
from tfbuild.settings import Paths
from tfbuild.tools import pip
from tfbuild.tools.environment import OTHER_BYTES, fetch_stock
from tfbuild.tools.requirement import ExactRequirement
from tfbuild.upstream import locked, releases
from tfbuild.upstream.download import hash_file
from tfbuild.upstream.releases import Release

_BYTES = 300_000_000
"""The lock of 2.14.1 is 78 MB of wheels, and pip keeps each twice for a moment."""
_NEWEST_GLIBC = 28
"""The locks are resolved for manylinux_2_28."""
_LATE_PATCH = ".99"
"""Of a bare 3.9 pip makes 3.9.0, and some packages exclude just that."""
_LOCKED = re.compile(
    r"(?P<name>[A-Za-z0-9._-]+)==(?P<version>\S+)(?P<hashes>(\s+--hash=sha256:[0-9a-f]{64})+)"
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Pinned:
    """A package of a lock and the SHA-256 (hex) of its files: of any machine, sources too."""

    exact: ExactRequirement
    sha256s: frozenset[str]


def stock_and_dependencies(
    release: Release, package: str, python: str, paths: Paths, *, given: Path | None = None
) -> tuple[Path, ...]:
    """The stock wheel of a release for "3.11" on this kind of machine, then all that it needs.

    With `given` they are taken from that folder and nothing is fetched. Raises PythonError,
    WheelError where none is published or locked, DownloadError, ChecksumError, DiskError.
    """
    tag = releases.format_python_tag(python)
    wheel = releases.require_stock_wheel(release, package, tag, platform.machine())
    lock = locked.load_requirements(wheel)
    stock = fetch_stock(wheel, paths, given)
    return (stock, *locked_wheels(lock, python, paths, given=given))


def locked_wheels(
    lock: str, python: str, paths: Paths, *, given: Path | None = None
) -> tuple[Path, ...]:
    """The wheels of the text of a lock, in its order, for "3.11" on this kind of machine.

    They are kept in a folder of the lock's own and checked each time. Raises as
    `stock_and_dependencies`, and RecordError.
    """
    pinned = read_lock(lock)
    if given is not None:
        return _complete(pinned, given, hint="Put it there, or let pip fetch all of them")
    folder = paths.downloads / hashlib.sha256(lock.encode()).hexdigest()[:16]
    if _absent(pinned, folder):
        settings.require_disk(paths.downloads, _BYTES, "downloading dependencies")
        with settings.lock_folder(folder, "downloading dependencies"):
            _remove_others(pinned, folder)
            _fetch(_absent(pinned, folder), folder, python)
    return _complete(pinned, folder, hint="Run the same command again")


def read_lock(text: str) -> tuple[Pinned, ...]:
    """The packages of a hashed list of requirements, as uv and pip-compile write it.

    Raises RecordError for a line that is not NAME==VERSION with SHA-256s.
    """
    bare = re.sub(r"(?m)^\s*#.*$", "", text.replace("\\\n", " "))
    return tuple(_pinned(line) for line in bare.splitlines() if line.strip())


def _pinned(line: str) -> Pinned:
    found = _LOCKED.fullmatch(line.strip())
    if found is None:
        raise RecordError(f"a lock has the line {line.strip()[:60]!r}, which pins no file")
    exact = ExactRequirement(
        name=canonicalize_name(found["name"]), version=str(Version(found["version"]))
    )
    return Pinned(exact=exact, sha256s=frozenset(re.findall(r"[0-9a-f]{64}", found["hashes"])))


def _absent(pinned: Iterable[Pinned], folder: Path) -> tuple[Pinned, ...]:
    there = _hashed(folder)
    return tuple(each for each in pinned if not each.sha256s & there.keys())


def _remove_others(pinned: Iterable[Pinned], folder: Path) -> None:
    """What went bad, or was cut short: pip would not replace it."""
    locked = frozenset(sha256 for each in pinned for sha256 in each.sha256s)
    for sha256, path in _hashed(folder).items():
        if sha256 not in locked:
            console.warn(f"{path} is not what the lock says; it is removed and fetched again")
            path.unlink()


def _complete(pinned: Sequence[Pinned], folder: Path, *, hint: str) -> tuple[Path, ...]:
    """The wheel of each. Raises DownloadError naming the first few that the folder has not."""
    there = _hashed(folder)
    absent = [str(each.exact) for each in pinned if not each.sha256s & there.keys()]
    if absent:
        shown = ", ".join(absent[:5]) + (f" and {len(absent) - 5} more" if absent[5:] else "")
        raise DownloadError(f"{folder} has no wheel with a locked hash of {shown}", hint=hint)
    return tuple(there[min(each.sha256s & there.keys())] for each in pinned)


def _hashed(folder: Path) -> dict[str, Path]:
    return {hash_file(path): path for path in sorted(folder.glob("*.whl"))}


def _fetch(absent: Sequence[Pinned], folder: Path, python: str) -> None:
    """Through pip, into the folder. Raises DownloadError, ChecksumError."""
    wanted = folder / "requirements.txt"
    write_atomic(wanted, "".join(map(_line, absent)))
    choice = (
        *("--only-binary=:all:", "--python-version", f"{python}{_LATE_PATCH}"),
        *("--implementation", "cp"),
        *_platforms(platform.machine()),
    )
    with console.track_progress("packages", len(absent)) as count:

        def listen(line: str) -> None:
            if line.startswith("Collecting "):
                count.advance(count.done + 1, detail=line.split()[1])

        try:
            pip.download(wanted, folder, *choice, on_line=listen)
        except CommandError as error:
            raise _refused(error) from error


def _line(pinned: Pinned) -> str:
    hashes = "".join(f" --hash=sha256:{sha256}" for sha256 in sorted(pinned.sha256s))
    return f"{pinned.exact}{hashes}\n"


def _platforms(machine: str) -> Iterator[str]:
    """Options that name the platforms of wheels, for pip cannot count them down by itself."""
    newest = (f"manylinux_2_{minor}" for minor in range(_NEWEST_GLIBC, 4, -1))
    for name in (*newest, "manylinux2014", "linux"):
        yield from ("--platform", f"{name}_{machine}")


def _refused(error: CommandError) -> ChecksumError | DownloadError:
    lines = [line.strip() for line in error.message.splitlines() if line.strip()]
    wrong = [after for line, after in itertools.pairwise(lines) if OTHER_BYTES in line]
    if wrong:
        return ChecksumError(
            f"other bytes than the locked ones: {wrong[0].rstrip(':')}",
            hint="Look at pip's index settings: they serve another file than the one locked",
        )
    return DownloadError(
        f"pip could not fetch the dependencies ({error.last_line})",
        hint="Check the network and pip's index settings, or give a folder that has them",
    )
