from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tfbuild import missing_tools, terminal_tables
from tfbuild.upstream.releases import load_releases
from tfcore.cpus.cpu import read_cpu
from tfcore.cpus.targets import find_missing_features, list_targets, parse_target
from tfcore.errors import UsageError
from tfcore.settings import ROOT, Paths


def column(text: str, number: int) -> list[str]:
    """A column's words; no cell of the first columns holds a space."""
    return [line.split()[number] for line in text.splitlines()[1:]]


@pytest.mark.parametrize("family", [None, "x86_64", "aarch64"])
def test_every_target_stands_in_the_table_once(family: str | None) -> None:
    text = terminal_tables.format_targets(family, as_json=False)
    assert column(text, 0) == [target.name for target in list_targets(family)]
    assert set(column(text, 1)) == ({family} if family else {"x86_64", "aarch64"})
    assert all(parse_target(name).name == name for name in column(text, 0))


def test_the_table_says_what_this_cpu_can_run() -> None:
    cpu = read_cpu()
    rows = terminal_tables.format_targets(None, as_json=False).splitlines()[1:]
    fields = {row.split()[0]: row.split()[-1] for row in rows}
    assert fields == {
        target.name: "no" if find_missing_features(target, cpu) else "yes"
        for target in list_targets(None)
    }
    other_text = "aarch64" if os.uname().machine == "x86_64" else "x86_64"
    assert fields[os.uname().machine] == "yes"
    assert fields[other_text] == "no"


def test_targets_as_json() -> None:
    rows = json.loads(terminal_tables.format_targets("aarch64", as_json=True))
    assert [row["name"] for row in rows] == [target.name for target in list_targets("aarch64")]


def test_an_unknown_family_is_refused() -> None:
    with pytest.raises(UsageError, match="--family riscv64") as caught:
        terminal_tables.format_targets("riscv64", as_json=False)
    assert "x86_64" in caught.value.hint


def test_every_release_stands_in_the_table_with_what_was_verified() -> None:
    text = terminal_tables.format_releases(as_json=False)
    assert column(text, 0) == [release.version for release in load_releases()]
    assert all(release.verified in text for release in load_releases())
    rows = json.loads(terminal_tables.format_releases(as_json=True))
    assert [row["version"] for row in rows] == column(text, 0)


def test_lines_are_whole_and_have_no_trailing_space() -> None:
    for text in (
        terminal_tables.format_releases(as_json=False),
        terminal_tables.format_targets(None, as_json=False),
    ):
        assert text.endswith("\n")
        assert all(line == line.rstrip() for line in text.splitlines())
        assert "…" not in text


def test_what_is_missing_is_listed_with_the_commands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = Paths(root=ROOT, cache=tmp_path / "cache", pool=tmp_path / "pool")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert (
        "system's package manager"
        in missing_tools.report_needs(paths, tests=False, as_json=False)[0]
    )
    (tmp_path / "apt-get").symlink_to("/bin/true")
    text, complete = missing_tools.report_needs(paths, tests=False, as_json=False)
    assert not complete
    assert "missing" in text
    assert "apt-get install -y" in text.splitlines()[-1]
    text, complete = missing_tools.report_needs(paths, tests=False, as_json=True)
    answer = json.loads(text)
    assert not complete
    assert {need["present"] for need in answer["needs"]} == {""}
    assert answer["commands"][-1] == text_command(paths)


def text_command(paths: Paths) -> str:
    text, _ = missing_tools.report_needs(paths, tests=False, as_json=False)
    return text.splitlines()[-1].strip()
