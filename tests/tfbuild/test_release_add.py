"""releases --add: what is checked first, and what pip's answers become."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tfbuild import release_add
from tfbuild.release_add import check_request, find_wheels
from tfbuild.tools import pip
from tfcore.errors import CommandError, DownloadError, ReleaseError, UsageError

SHA = "a" * 64


@pytest.mark.parametrize("version", ["2.22", "2.22.0rc1", "newest", "../2"])
def test_what_is_no_version_is_refused(version: str) -> None:
    with pytest.raises(UsageError, match="is not a version"):
        check_request(version, SHA)


@pytest.mark.parametrize("sha256", ["", "abc", "A" * 64])
def test_the_hash_of_the_sources_is_needed(sha256: str) -> None:
    with pytest.raises(UsageError, match="SHA-256"):
        check_request("2.99.0", sha256)


def answer(requirement: str, report: Path, *choice: str, target: Path) -> None:
    """An index with wheels for one Python."""
    assert target.name == "none"
    package, _, version = requirement.partition("==")
    python = choice[choice.index("--python-version") + 1]
    platforms = [word for word in choice if word.startswith("manylinux")]
    machine = platforms[0].partition("_27_")[2] or platforms[0].split("_", 3)[3]
    if python != "3.14" or (package, machine) == ("tensorflow-cpu", "aarch64"):
        raise CommandError("ERROR: No matching distribution found for x")
    file = f"{package.replace('-', '_')}-{version}-cp314-cp314-manylinux_2_28_{machine}.whl"
    info = {
        "url": f"https://index.example/a%2Bb/{file}?x=1#sha256=0",
        "archive_info": {"hashes": {"sha256": SHA}},
    }
    report.write_text(json.dumps({"version": "1", "install": [{"download_info": info}]}))


def test_every_python_and_machine_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pip, "resolve", answer)
    found = find_wheels("2.99.0")
    assert [(wheel.package, wheel.machine, wheel.python) for wheel in found] == [
        ("tensorflow-cpu", "x86_64", "3.14"),
        ("tensorflow-cpu-aws", "x86_64", "3.14"),
        ("tensorflow", "x86_64", "3.14"),
        ("tensorflow-cpu-aws", "aarch64", "3.14"),
        ("tensorflow", "aarch64", "3.14"),
    ]
    assert found[0].file == "tensorflow_cpu-2.99.0-cp314-cp314-manylinux_2_28_x86_64.whl"
    assert found[0].sha256 == SHA


def test_an_index_without_the_release_is_told_from_one_that_fails(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(message: str) -> None:
        def resolve(*_: object, **__: object) -> None:
            raise CommandError(message)

        monkeypatch.setattr(pip, "resolve", resolve)

    refuse("ERROR: No matching distribution found for tensorflow-cpu==2.99.0")
    with pytest.raises(ReleaseError, match=r"no wheels of TensorFlow 2\.99\.0"):
        find_wheels("2.99.0")
    refuse("ERROR: Could not connect")
    with pytest.raises(DownloadError, match="Could not connect"):
        find_wheels("2.99.0")


def test_the_real_index_has_no_release_of_tomorrow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(release_add, "PYTHONS", ("3.11",))
    with pytest.raises(ReleaseError, match="no wheels"):
        find_wheels("2.99.0")
