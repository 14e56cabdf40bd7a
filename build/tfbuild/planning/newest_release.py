"""The default release: the newest one whose kernels can be built on this machine."""

from __future__ import annotations

from collections.abc import Sequence

from tfbuild.interpreters import is_here
from tfbuild.planning.plan import list_source_pins
from tfbuild.upstream import download
from tfbuild.upstream.releases import Release, list_kernel_releases
from tfcore import packages
from tfcore.settings import Paths


def find_newest_release(paths: Paths, pythons: Sequence[str] = ()) -> tuple[Release, str]:
    """Return the newest release that can be built here, and why it is not a newer one.

    Its sources are available, and it has wheels for all of `pythons` (as in --python) or, if
    none are named, for one that is installed. The reason is empty for the newest of all.

    Sources are available if they were downloaded before or are on the mirror, if the home of the
    newest release answers, or if Debian has them and this machine has apt. If no release fits,
    the newest of all is returned: the download of its sources then reports the error.
    """
    requested = [] if list(pythons) == ["all"] else list(pythons)
    requirement = f"Python {' and '.join(requested)}" if requested else "an installed Python"
    first, *older_releases = reversed(list_kernel_releases())
    home = download.probe_url(first.archive.url)
    missing: list[str] = []
    unserved: list[str] = []
    for release in (first, *older_releases):
        origin = _describe_sources(release, paths, home)
        serves = (
            {*requested} <= {*release.pythons} if requested else any(map(is_here, release.pythons))
        )
        if origin and serves:
            return release, "; ".join([*missing, *unserved, *([origin] if missing else [])])
        if origin:
            unserved.append(f"{release.version} has no wheel for {requirement}")
        elif release is first:
            missing.append(f"the sources of {release.version} cannot be downloaded ({home})")
    return (
        first,
        f"the newest; no release fits, as {'; '.join([*missing, *unserved])}" if unserved else "",
    )


def _describe_sources(release: Release, paths: Paths, home: str) -> str:
    """Describe where the release's sources are available; empty for nowhere.

    `home` is the reason why the home does not answer.
    """
    if not home or _has_nearby_sources(release, paths):
        return f"those of {release.version} are available"
    debian = release.debian is not None and packages.has_apt()
    return f"Debian has those of {release.version}" if debian else ""


def _has_nearby_sources(release: Release, paths: Paths) -> bool:
    """Return whether the release's sources were downloaded before, or are on the mirror."""
    names = [pin.file.name for pin in list_source_pins(release)]
    if any((paths.downloads / name).is_file() for name in names):
        return True
    mirror = paths.mirror
    return bool(mirror) and any(
        not download.probe_url(download.build_mirror_url(mirror, name)) for name in names
    )
