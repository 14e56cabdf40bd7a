"""A release that is added: its row, and the markers of its lock."""

from __future__ import annotations

import tomllib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from packaging.markers import Marker

from tfbuild.upstream import releases
from tfbuild.upstream.lock_files import LOCKS, describe_environment, filter_requirements
from tfbuild.upstream.release_rows import (
    MACHINES,
    PublishedWheel,
    add_row,
    order_wheels,
    record_verification,
    require_new,
    simplify_lock,
    simplify_marker,
)
from tfcore.errors import ReleaseError

TABLE = releases.TABLE.read_text("utf-8")
SHA = "a" * 64
PYTHONS = ("3.10", "3.11", "3.12", "3.13")


def wheel(package: str, python: str, machine: str = "x86_64") -> PublishedWheel:
    tag = releases.format_python_tag(python)
    file = f"{package.replace('-', '_')}-2.99.0-{tag}-{tag}-manylinux_2_27_{machine}.whl"
    return PublishedWheel(package=package, python=python, machine=machine, file=file, sha256=SHA)


WHEELS = [
    *(wheel("tensorflow-cpu", python) for python in ("3.13", "3.14")),
    *(wheel("tensorflow", "3.13", machine) for machine in MACHINES),
]


def rows(table: str) -> list[dict[str, Any]]:
    return list(tomllib.loads(table)["release"])


def test_a_new_release_stands_last_and_takes_over_what_is_not_known() -> None:
    added = add_row(TABLE, "2.99.0", WHEELS, SHA)
    assert added.startswith(TABLE.rstrip("\n"))
    *before, last, row = rows(added)
    assert [*before, last] == rows(TABLE)
    assert row["pythons"] == ["3.13", "3.14"]
    assert [each["file"] for each in row["wheels"]] == [each.file for each in WHEELS]
    assert (row["verified_kernels"], row["source_sha256"]) == ("", SHA)
    assert row["verified_full"] == f"settings of {last['version']}, not checked; nothing was built"
    for key in ("bazel", "compiler", "repo_env", "configure_env", "options"):
        assert row[key] == last[key]
        assert f"# as {last['version']}, not checked" in added


def test_a_patch_release_stands_where_it_belongs() -> None:
    versions = [row["version"] for row in rows(add_row(TABLE, "2.17.99", WHEELS, SHA))]
    place = versions.index("2.17.99")
    assert versions[place - 1].startswith("2.17.")
    assert versions[place + 1].startswith("2.18.")


@pytest.mark.parametrize(
    ("version", "message"), [("2.20.0", "in the table already"), ("1.15.0", "older than")]
)
def test_what_cannot_be_added_is_said(version: str, message: str) -> None:
    with pytest.raises(ReleaseError, match=message):
        require_new(TABLE, version)
    require_new(TABLE, "2.99.0")


def test_what_was_verified_is_recorded_for_one_release() -> None:
    text = 'six groups on "a CPU"'
    before, after = rows(TABLE), rows(record_verification(TABLE, "2.20.0", text))
    changed = [row["version"] for row, other in zip(before, after, strict=True) if row != other]
    assert changed == ["2.20.0"]
    assert next(row for row in after if row["version"] == "2.20.0")["verified_kernels"] == text


def test_wheels_are_ordered_as_in_the_table() -> None:
    assert order_wheels(reversed(WHEELS)) == WHEELS


LINUX = "sys_platform == 'linux'"


@pytest.mark.parametrize(
    ("marker", "simple"),
    [
        (LINUX, ""),
        (f"(platform_machine == 'aarch64' or platform_machine == 'x86_64') and {LINUX}", ""),
        (f"python_full_version < '3.11' and {LINUX}", "python_full_version < '3.11'"),
        ("python_version >= '3.12'", "python_full_version >= '3.12'"),
        ("python_version == '3.11'", "python_full_version == '3.11.*'"),
        (
            "python_version >= '3.11' and python_version < '3.13'",
            "python_full_version >= '3.11' and python_full_version < '3.13'",
        ),
        ("platform_machine == 'x86_64'", "platform_machine == 'x86_64'"),
        (
            "platform_machine == 'x86_64' and python_version < '3.11'",
            "platform_machine == 'x86_64' and python_full_version < '3.11'",
        ),
        (
            "platform_machine == 'x86_64' or python_version < '3.11'",
            (
                "(platform_machine == 'x86_64') or (platform_machine == 'aarch64' and "
                "python_full_version < '3.11')"
            ),
        ),
    ],
)
def test_a_marker_says_only_what_tells_apart(marker: str, simple: str) -> None:
    assert simplify_marker(marker, PYTHONS) == simple


@given(st.sampled_from(PYTHONS), st.sampled_from(PYTHONS), st.sampled_from(["", *MACHINES, "i686"]))
def test_a_simple_marker_holds_where_the_other_one_does(
    first: str, last: str, machine: str
) -> None:
    marker = f"python_version >= '{first}' and python_version <= '{last}' and {LINUX}"
    marker += f" and platform_machine == '{machine}'" if machine else ""
    places = [describe_environment(python, name) for python in PYTHONS for name in MACHINES]
    expected = [Marker(marker).evaluate(dict(place)) for place in places]
    if not any(expected):
        with pytest.raises(ReleaseError, match="no Python"):
            simplify_marker(marker, PYTHONS)
        return
    simple = simplify_marker(marker, PYTHONS)
    assert [not simple or Marker(simple).evaluate(dict(place)) for place in places] == expected


def test_a_lock_keeps_its_hashes_and_what_each_python_gets() -> None:
    shipped = (LOCKS / "2.21.0.txt").read_text("utf-8")
    simple = simplify_lock(shipped, PYTHONS)
    assert simple == shipped
    with_markers = shipped.replace(" \\\n", f" ; {LINUX} \\\n", 1)
    assert with_markers != shipped
    assert simplify_lock(with_markers, PYTHONS) == shipped
    for python in PYTHONS:
        assert filter_requirements(with_markers, python, "x86_64") == filter_requirements(
            shipped, python, "x86_64"
        )
