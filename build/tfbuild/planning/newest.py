"""Which release is taken where none is named: the newest whose kernels can be built here."""

from __future__ import annotations

import shutil

from tfbuild.planning.plan import source_pins
from tfbuild.settings import Paths
from tfbuild.upstream import download
from tfbuild.upstream.releases import Release, with_kernels


def newest(paths: Paths) -> tuple[Release, str]:
    """The newest release whose sources can be had, and a line that says why it is no newer one,
    which is empty if it is the newest of all.

    Sources that were fetched before, or that the mirror has, can be had; those of all releases if
    the home of the newest answers; and Debian's, where apt is. If none can be had, it is the newest
    of all: what fetches the sources says then what is wrong.
    """
    first, *others = reversed(with_kernels())
    home = download.refusal(first.archive.url)
    if not home or _is_near(first, paths):
        return first, ""
    for release in others:
        where = "they are here" if _is_near(release, paths) else ""
        if not where and release.debian is not None and shutil.which("apt-get"):
            where = "Debian has them"
        if where:
            missing = f"the sources of {first.version} cannot be had here ({home})"
            return release, f"{missing}; of {release.version}, {where}"
    return first, ""


def _is_near(release: Release, paths: Paths) -> bool:
    """Whether its sources were fetched before, or the mirror has them."""
    names = [pin.file.name for pin in source_pins(release)]
    if any((paths.downloads / name).is_file() for name in names):
        return True
    mirror = paths.mirror
    return bool(mirror) and any(
        not download.refusal(download.mirrored(mirror, name)) for name in names
    )
