"""The newest Bazel that can be had here: Debian sid's, in a folder with that system.

The folder (1.4 GB) is made once, in `roots/` of the project's cache, and is no part of a build:
`rm -r` it to have the space back, or to take a newer sid.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from tfbuild.upstream import source
from tfcore.errors import CommandError, DownloadError, TimeLimitError
from tfcore.run import run
from tfcore.settings import Paths

BAZEL = "/usr/bin/bazel"
"""Where it lies in that system. Its install base is /usr/share/bazel, as that of Debian's 4.2.3."""
_SUITE = "sid"
_FOLDER = "sid-bazel"
_SPACE_B = 3 << 30  # 2.2 GB while it is made
_LIMIT_S = 1200.0
# What is mounted in a namespace is gone with the process, however that ends.
_MOUNTED = 'mount -t proc proc "$0/proc" && exec chroot "$0" "$@"'
# A folder of this machine stands there under its own name, on a /tmp that is gone afterwards. The
# shell stays, as the namespace's first process, to which servers are left when their client ends.
_SHARED = """
set -e
mount -t tmpfs tmpfs "$0/tmp"
mkdir -p "$0$1"
mount --bind "$1" "$0$1"
mount -t proc proc "$0/proc"
shift
status=0
chroot "$0" "$@" || status=$?
exit "$status"
"""
_ALONE = ("unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-c")


def sid(paths: Paths) -> Path:
    """The folder with Debian sid and its Bazel. Skips without root's rights or debootstrap; fails
    when Debian's mirror does not give it."""
    folder = paths.cache / "roots" / _FOLDER
    if os.geteuid() != 0:
        pytest.skip("only root can make and enter the folder of another system")
    if not folder.is_dir() and shutil.which("debootstrap") is None:
        pytest.skip("debootstrap is not installed: apt-get install debootstrap")
    try:
        return source.create_folder(folder, _SPACE_B, "Debian sid with its Bazel", _install)
    except (CommandError, DownloadError, TimeLimitError) as error:
        # sid changes several times a day, and a mirror may be between two states.
        pytest.fail(
            f"Debian sid with bazel-bootstrap could not be installed: {error}\n"
            f"Run this again in some hours, or copy {folder} from a machine that has it",
            pytrace=False,
        )


def _install(fresh: Path) -> None:
    # Left to apt-get, with the rest, sid's ca-certificates may be set up before what it needs.
    words = ("debootstrap", "--variant=minbase", "--include=ca-certificates", _SUITE)
    run(["unshare", "--mount", *words, fresh, source._find_debian_mirror()], timeout_s=_LIMIT_S)
    command_prefix = ("env", "DEBIAN_FRONTEND=noninteractive", "LC_ALL=C")
    for step in (
        ("apt-get", "install", "--yes", "--no-install-recommends", "bazel-bootstrap"),
        ("apt-get", "clean"),
    ):
        run([*_ALONE, _MOUNTED, fresh, *command_prefix, *step], timeout_s=_LIMIT_S)


def inside(root: Path, shared: Path) -> tuple[str | Path, ...]:
    """The words before a command that runs in the system at `root`, and sees the folder `shared` of
    this one under its own name. No process that it starts outlives it."""
    return (*_ALONE, _SHARED, root, shared)
