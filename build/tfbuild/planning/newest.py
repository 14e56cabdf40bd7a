"""Which release is taken where none is named: the newest whose kernels can be built here."""

from __future__ import annotations

from tfbuild import packages
from tfbuild.interpreters import is_here
from tfbuild.planning.plan import source_pins
from tfbuild.settings import Paths
from tfbuild.upstream import download
from tfbuild.upstream.releases import Release, with_kernels


def newest(paths: Paths, pythons: str = "") -> tuple[Release, str]:
    """The newest release whose sources can be had and that has a wheel for a Python that is here,
    or for those that --python names. The line says why it is no newer one; it is empty for the
    newest of all.

    Sources that were fetched before, or that the mirror has, can be had; those of all releases if
    the home of the newest answers; and Debian's, where apt is. If none fits, it is the newest of
    all: what fetches the sources says then what is wrong.
    """
    first, *others = reversed(with_kernels())
    home, unserved = download.refusal(first.archive.url), False
    why: list[str] = []
    for release in (first, *others):
        where = _sources(release, paths, home)
        if where and _serves(release, pythons):
            return release, "; ".join([*why, f"of {release.version}, {where}"] if why else [])
        if where:
            unserved = True
            why.append(f"of {release.version}, {where}, but it has no wheel for {_asked(pythons)}")
        elif release is first:
            why.append(f"the sources of {release.version} cannot be had here ({home})")
    return first, "; ".join(why) if unserved else ""


def _sources(release: Release, paths: Paths, home: str) -> str:
    """Where its sources can be had; empty for nowhere. `home` is why the home does not answer."""
    if _is_near(release, paths):
        return "they are here"
    if not home:
        return "its home has them"
    return "Debian has them" if release.debian is not None and packages.has_apt() else ""


def _is_near(release: Release, paths: Paths) -> bool:
    """Whether its sources were fetched before, or the mirror has them."""
    names = [pin.file.name for pin in source_pins(release)]
    if any((paths.downloads / name).is_file() for name in names):
        return True
    mirror = paths.mirror
    return bool(mirror) and any(
        not download.refusal(download.mirrored(mirror, name)) for name in names
    )


def _serves(release: Release, pythons: str) -> bool:
    named = _named(pythons)
    return {*named} <= {*release.pythons} if named else any(map(is_here, release.pythons))


def _asked(pythons: str) -> str:
    named = _named(pythons)
    return f"Python {' and '.join(named)}" if named else "a Python that is here"


def _named(pythons: str) -> list[str]:
    words = [word.strip() for word in pythons.split(",") if word.strip()]
    return [] if words == ["all"] else words
