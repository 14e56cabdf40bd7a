from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from tfbuild.commands import NEWEST, Request
from tfbuild.planning import newest_release as newests
from tfbuild.planning.newest_release import find_newest_release
from tfbuild.planning.plan import list_source_pins
from tfbuild.planning.request import resolve_release
from tfbuild.upstream import download
from tfbuild.upstream.releases import Release, find_release, list_kernel_releases, load_releases
from tfcore.errors import TargetError, TensorwrightError, UsageError
from tfcore.settings import Paths

NOWHERE = "https://nowhere.invalid/"
"""RFC 2606: a name that no server has."""


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    return Paths(root=tmp_path, cache=tmp_path / "cache", pool=tmp_path / "pool")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Every release's home is a file, which is not there yet; and Debian's apt is not here."""

    def moved(release: Release) -> Release:
        url = (tmp_path / "home" / f"{release.version}.tar.gz").as_uri()
        return dataclasses.replace(
            release, archive=dataclasses.replace(release.archive, url=url), debian=release.debian
        )

    monkeypatch.setattr(
        newests, "list_kernel_releases", lambda: tuple(map(moved, list_kernel_releases()))
    )
    monkeypatch.setenv("PATH", str(tmp_path))
    return tmp_path / "home"


def test_the_newest_of_all_is_taken_where_its_home_answers(paths: Paths, home: Path) -> None:
    home.mkdir()
    (home / f"{list_kernel_releases()[-1].version}.tar.gz").touch()
    assert find_newest_release(paths)[0].version == load_releases()[-1].version
    assert find_newest_release(paths)[1] == ""


def test_what_was_fetched_before_is_taken_and_the_reason_said(paths: Paths, home: Path) -> None:
    paths.downloads.mkdir(parents=True)
    (paths.downloads / list_source_pins(find_release("2.17"))[0].file.name).touch()
    release, reason = find_newest_release(paths)
    assert release.version == "2.17.1"
    assert reason.startswith(
        f"the sources of {list_kernel_releases()[-1].version} cannot be downloaded ("
    )
    assert reason.endswith("); those of 2.17.1 are available")


def test_what_the_mirror_has_is_taken(paths: Paths, home: Path, tmp_path: Path) -> None:
    (tmp_path / "mirror").mkdir()
    (tmp_path / "mirror" / list_source_pins(find_release("2.20"))[0].file.name).touch()
    mirrored = dataclasses.replace(paths, mirror=str(tmp_path / "mirror"))
    assert find_newest_release(mirrored)[0].version == "2.20.0"


def test_debian_has_the_sources_of_one(paths: Paths, home: Path, tmp_path: Path) -> None:
    (tmp_path / "apt-get").write_text("#!/bin/sh\n", encoding="utf-8")
    (tmp_path / "apt-get").chmod(0o755)
    release, reason = find_newest_release(paths)
    assert release.version == "2.14.1"
    assert reason.endswith("); Debian has those of 2.14.1")


def test_without_any_sources_the_newest_is_tried_and_says_what_is_wrong(
    paths: Paths, home: Path
) -> None:
    release, reason = find_newest_release(paths)
    assert (release.version, reason) == (list_kernel_releases()[-1].version, "")


def test_a_release_without_a_wheel_for_a_python_that_is_here_is_passed_over(
    paths: Paths, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on Debian 13, which has Python 3.13 alone."""
    monkeypatch.setattr(newests, "is_here", lambda version: version == "3.13")
    paths.downloads.mkdir(parents=True)
    for version in ("2.14", "2.20"):
        (paths.downloads / list_source_pins(find_release(version))[0].file.name).touch()
    assert find_newest_release(paths)[0].version == "2.20.0"
    assert find_newest_release(paths, ["3.10"])[0].version == "2.20.0"
    (paths.downloads / list_source_pins(find_release("2.20"))[0].file.name).unlink()
    release, reason = find_newest_release(paths)
    assert release.version == list_kernel_releases()[-1].version
    assert reason.endswith("); 2.14.1 has no wheel for an installed Python")
    assert find_newest_release(paths, ["3.11"])[0].version == "2.14.1"
    assert find_newest_release(paths, ["3.9", "3.13"])[1].endswith(
        "2.14.1 has no wheel for Python 3.9 and 3.13"
    )


def test_a_host_that_nobody_knows_is_named(paths: Paths, monkeypatch: pytest.MonkeyPatch) -> None:
    def moved(release: Release) -> Release:
        return dataclasses.replace(
            release, archive=dataclasses.replace(release.archive, url=f"{NOWHERE}x.tar.gz")
        )

    monkeypatch.setattr(
        newests, "list_kernel_releases", lambda: tuple(map(moved, list_kernel_releases()))
    )
    paths.downloads.mkdir(parents=True)
    (paths.downloads / list_source_pins(find_release("2.14"))[0].file.name).touch()
    assert "(nowhere.invalid: " in find_newest_release(paths)[1]


def test_a_release_that_is_named_stays(paths: Paths) -> None:
    request = Request(release="2.16")
    assert resolve_release(request, paths) is request


def test_the_users_own_default_is_taken(paths: Paths, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TENSORWRIGHT_RELEASE", "2.17")
    assert Request().release == "2.17"
    monkeypatch.delenv("TENSORWRIGHT_RELEASE")
    assert Request().release == NEWEST


def test_newest_becomes_a_version_and_says_which(
    paths: Paths, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    paths.downloads.mkdir(parents=True)
    (paths.downloads / list_source_pins(find_release("2.17"))[0].file.name).touch()
    assert resolve_release(Request(release=NEWEST), paths).release == "2.17.1"
    output = capsys.readouterr().err
    assert "release 2.17.1: the sources of" in output
    full = resolve_release(Request(release=NEWEST, scope="full"), paths)
    assert full.release == load_releases()[-1].version
    assert "the newest" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arch", "error", "text"),
    [("haswell,skylak", TargetError, "skylak"), (" , ", UsageError, "--arch names no target")],
)
def test_a_wrong_target_is_named_before_the_network_is_asked(
    paths: Paths,
    monkeypatch: pytest.MonkeyPatch,
    arch: str,
    error: type[TensorwrightError],
    text: str,
) -> None:
    asked: list[str] = []
    monkeypatch.setattr(download, "probe_url", asked.append)
    with pytest.raises(error, match=text):
        resolve_release(Request(release=NEWEST, arch=arch), paths)
    assert asked == []
