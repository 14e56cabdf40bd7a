"""Which release is taken where none is named: the newest whose kernels can be built here."""

from __future__ import annotations

from collections.abc import Sequence

from tfbuild import packages
from tfbuild.interpreters import is_here
from tfbuild.planning.plan import source_pins
from tfbuild.settings import Paths
from tfbuild.upstream import download
from tfbuild.upstream.releases import Release, with_kernels


def newest(paths: Paths, pythons: Sequence[str] = ()) -> tuple[Release, str]:
    """The newest release whose sources can be had and that has wheels for all of `pythons`, as
    --python has them, else for one that is here. The line says why it is no newer one; it is empty
    for the newest of all.

    Sources that were fetched before, or that the mirror has, can be had; those of all releases if
    the home of the newest answers; and Debian's, where apt is. If none fits, it is the newest of
    all: what fetches the sources says then what is wrong.
    """
    named = [] if list(pythons) == ["all"] else list(pythons)
    asked = f"Python {' and '.join(named)}" if named else "a Python that is here"
    first, *others = reversed(with_kernels())
    home = download.probe_url(first.archive.url)
    missing: list[str] = []
    unserved: list[str] = []
    for release in (first, *others):
        where = _sources(release, paths, home)
        serves = {*named} <= {*release.pythons} if named else any(map(is_here, release.pythons))
        if where and serves:
            return release, "; ".join([*missing, *unserved, *([where] if missing else [])])
        if where:
            unserved.append(f"{release.version} has no wheel for {asked}")
        elif release is first:
            missing.append(f"the sources of {release.version} cannot be had here ({home})")
    return first, "; ".join([*missing, *unserved]) if unserved else ""


def _sources(release: Release, paths: Paths, home: str) -> str:
    """Where its sources can be had; empty for nowhere. `home` is why the home does not answer."""
    if not home or _is_near(release, paths):
        return f"those of {release.version} can"
    debian = release.debian is not None and packages.has_apt()
    return f"Debian has those of {release.version}" if debian else ""


def _is_near(release: Release, paths: Paths) -> bool:
    """Whether its sources were fetched before, or the mirror has them."""
    names = [pin.file.name for pin in source_pins(release)]
    if any((paths.downloads / name).is_file() for name in names):
        return True
    mirror = paths.mirror
    return bool(mirror) and any(
        not download.probe_url(download.build_mirror_url(mirror, name)) for name in names
    )
