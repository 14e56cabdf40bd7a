from __future__ import annotations

import json
import string
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.builders.locked_wheels import HERE
from tests.tools.locks import DEVELOPER

from tfbuild.interpreters import find_python
from tfbuild.tools import requirement
from tfbuild.tools.requirement import (
    ExactRequirement,
    LockedRequirement,
    PackageLock,
    list_constraints,
    parse_exact,
    parse_report,
    resolve_lock,
)
from tfbuild.upstream.releases import format_python_tag
from tfcore.errors import ChecksumError, DownloadError, RecordError, UsageError
from tfcore.settings import ROOT, Paths

TINY = ExactRequirement(name="tiny", version="1.0")

names = st.from_regex(r"[a-z][a-z0-9]{0,5}(-[a-z0-9]{1,5})?", fullmatch=True)
numbers = st.from_regex(r"[0-9]{1,3}(\.[0-9]{1,3}){0,2}(\+[a-z]{1,4})?", fullmatch=True)
hashes = st.text(alphabet=string.hexdigits[:16], min_size=64, max_size=64)
lines = st.builds(
    LockedRequirement, exact=st.builds(ExactRequirement, name=names, version=numbers), sha256=hashes
)
locks = st.builds(PackageLock, own=lines, needs=st.lists(lines, max_size=4).map(tuple))


@pytest.mark.parametrize(
    ("text", "name", "version"),
    [
        ("tensorflow-cpu==2.13.1", "tensorflow-cpu", "2.13.1"),
        (" TensorFlow_CPU == 2.13.1 ", "tensorflow-cpu", "2.13.1"),
        ("tensorflow==2.14.1+skylake", "tensorflow", "2.14.1+skylake"),
        ("a==1.0rc1", "a", "1.0rc1"),
    ],
)
def test_one_version_of_one_package_is_read(text: str, name: str, version: str) -> None:
    assert parse_exact(text) == ExactRequirement(name=name, version=version)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "tensorflow-cpu",
        "tensorflow-cpu>=2.13.1",
        "tensorflow-cpu~=2.13.1",
        "tensorflow-cpu===2.13.1",
        "tensorflow-cpu==2.13.*",
        "tensorflow-cpu==2.13.1,<3",
        "tensorflow-cpu==2.13.1,==2.13.1.0",
        "tensorflow-cpu==2.13.1 numpy==1.26.4",
        "tensorflow-cpu==2.13.1; python_version > '3'",
        "tensorflow[and-cuda]==2.14.1",
        "tensorflow @ https://example.org/tensorflow-1.0-py3-none-any.whl",
        "./tensorflow.whl",
        "--index-url=https://example.org tensorflow==1.0",
        "-r requirements.txt",
        "tensorflow==one",
        f"tensorflow=={'1' * 5000}",
    ],
)
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_exact(text)
    assert "tensorflow-cpu==2.13.1" in caught.value.hint
    assert len(str(caught.value).splitlines()) == 1


@given(st.text())
def test_no_text_is_a_traceback(text: str) -> None:
    try:
        exact = parse_exact(text)
    except UsageError:
        return
    assert parse_exact(str(exact)) == exact


@given(locks)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_lock_is_read_back(tmp_path: Path, lock: PackageLock) -> None:
    path = tmp_path / "lock.txt"
    path.write_text(requirement._render_lock(lock.own.exact, HERE, lock))
    assert requirement._read_lock(path, lock.own.exact) == lock
    assert lock.requirements.count("--hash=sha256:") == len(lock.needs)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "# tiny==1.0\n",
        f"other==1.0 --hash=sha256:{'0' * 64}\n",
        f"tiny==1.0 --hash=sha256:{'0' * 63}\n",
        f"tiny==1.0 --hash=sha256:{'0' * 64}\nnumpy==1.0\n",
        f"tiny==1.0 --hash=sha256:{'0' * 64} --hash=sha256:{'1' * 64}\n",
        f"tiny==1.0 --hash=sha256:{'0' * 64}\n--index-url https://example.org\n",
        "\xff\n",
    ],
)
def test_a_torn_or_changed_lock_is_refused(text: str, tmp_path: Path) -> None:
    path = tmp_path / "lock.txt"
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(RecordError, match=r"tiny==1\.0") as caught:
        requirement._read_lock(path, TINY)
    assert "Delete it" in caught.value.hint


def report(*items: tuple[str, str, dict[str, object]], version: str = "1") -> str:
    install = [
        {"metadata": {"name": name, "version": number}, "download_info": info}
        for name, number, info in items
    ]
    return json.dumps({"version": version, "install": install})


def hashed(letter: str) -> dict[str, object]:
    return {"url": "https://example.org/x", "archive_info": {"hashes": {"sha256": letter * 64}}}


def test_pips_report_becomes_a_lock_in_one_order() -> None:
    text = report(
        ("Zeta_Two", "2", hashed("a")), ("Tiny", "1.0", hashed("b")), ("al.pha", "3", hashed("c"))
    )
    lock = parse_report(text, TINY)
    assert lock.own.line == f"tiny==1.0 --hash=sha256:{'b' * 64}\n"
    assert [str(need.exact) for need in lock.needs] == ["al-pha==3", "zeta-two==2"]
    assert lock.requirements == "".join(need.line for need in lock.needs)


@pytest.mark.parametrize(
    "info",
    [
        {"url": "x"},
        {"url": "x", "archive_info": {}},
        {"url": "x", "archive_info": {"hashes": {"md5": "0"}}},
        {"url": "x", "vcs_info": {"vcs": "git"}},
    ],
)
def test_a_file_without_a_hash_is_not_trusted(info: dict[str, object]) -> None:
    with pytest.raises(DownloadError, match="SHA-256 of need 3"):
        parse_report(report(("tiny", "1.0", hashed("a")), ("need", "3", info)), TINY)


def test_another_form_of_report_is_not_guessed_at() -> None:
    with pytest.raises(RecordError, match="version 2"):
        parse_report(report(("tiny", "1.0", hashed("a")), version="2"), TINY)


@pytest.mark.parametrize(
    ("name", "version", "limits"),
    [
        ("intel-tensorflow", "2.14.0", "numpy<2\n"),
        ("tensorflow-cpu", "2.9.3", "numpy<2\n"),
        ("tensorflow-cpu", "2.14.1", ""),
        ("tensorflow", "2.20.0", ""),
        ("tiny", "1.0", ""),
    ],
)
def test_old_tensorflows_get_the_numpy_that_they_do_not_ask_for(
    name: str, version: str, limits: str
) -> None:
    assert list_constraints(ExactRequirement(name=name, version=version)) == limits


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    return Paths(root=ROOT, cache=tmp_path / "cache", pool=tmp_path / "pool")


PLUGGY = ExactRequirement(name="pluggy", version="1.7.0")
"""A pure wheel without needs; requirements-dev.txt pins it."""


def pluggy_lock(paths: Paths, pinned: str | None = None) -> PackageLock:
    interpreter = find_python(HERE)
    return resolve_lock(PLUGGY, python=HERE, interpreter=interpreter, pinned=pinned, paths=paths)


@pytest.mark.toolchain
def test_what_the_index_has_is_written_down_once(
    paths: Paths, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    lock = pluggy_lock(paths)
    (path,) = (paths.cache / "locks").iterdir()
    assert path.name.startswith(f"pluggy-1.7.0-{format_python_tag(HERE)}-")
    assert lock.needs == ()
    assert f"--hash=sha256:{lock.own.sha256}" in DEVELOPER.read_text("utf-8")
    output = capfd.readouterr().err
    assert output.count("\n") == 1
    assert str(path) in output
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", "")
    assert pluggy_lock(paths) == lock
    assert capfd.readouterr().err == ""


@pytest.mark.toolchain
def test_another_file_than_the_pinned_one_is_never_written_down(paths: Paths) -> None:
    with pytest.raises(ChecksumError, match=r"pluggy==1\.7\.0 .*[0-9a-f]{64}"):
        pluggy_lock(paths, pinned="0" * 64)
    assert not (paths.cache / "locks").exists()
    lock = pluggy_lock(paths)
    assert pluggy_lock(paths, pinned=lock.own.sha256) == lock
    with pytest.raises(ChecksumError, match="0000"):
        pluggy_lock(paths, pinned="0" * 64)
