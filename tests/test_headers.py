from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfbuild.errors import DiskError, UsageError
from tfbuild.remote import headers

VALUES = st.from_regex(r"[!#-&(-\[\]-~]([ !#-&(-\[\]-~]{0,20}[!#-&(-\[\]-~])?", fullmatch=True)
NAMES = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,10}", fullmatch=True)


def kept(folder: Path, text: str) -> Path:
    path = folder / "headers"
    path.write_text(text)
    path.chmod(0o600)
    return path


def test_both_ways_to_write_a_line_are_read(tmp_path: Path) -> None:
    text = "# the cache's\n\nAuthorization: Bearer a=b:c\nx-key=12 3\r\n"
    assert headers.read_headers(kept(tmp_path, text)) == (
        ("Authorization", "Bearer a=b:c"),
        ("x-key", "12 3"),
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "no header"),
        ("# only\n", "no header"),
        ("a: b\nhunter2\n", "line 2 "),
        ("a:\n", "line 1 "),
        ("a b: hunter2\n", "line 1 "),
        ('a: "hunter2"\n', "line 1 "),
        ("a: hunter2\\\n", "line 1 "),
        ("a: hunter2\x07\n", "line 1 "),
        ("a: hunter2\x0bb: c\n", "line 1 "),
        ("a: hünter2\n", "ASCII"),
    ],
)
def test_a_line_that_is_no_header_is_named_and_not_shown(
    tmp_path: Path, text: str, said: str
) -> None:
    with pytest.raises(UsageError, match=said) as caught:
        headers.read_headers(kept(tmp_path, text))
    assert "nter2" not in str(caught.value)


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o604, 0o620])
def test_a_file_that_others_can_read_is_refused(tmp_path: Path, mode: int) -> None:
    path = kept(tmp_path, "a: b\n")
    path.chmod(mode)
    with pytest.raises(UsageError, match=f"mode {mode:o}") as caught:
        headers.read_headers(path)
    assert caught.value.hint == f"Run: chmod 600 {path}"


@given(pairs=st.lists(st.tuples(NAMES, VALUES), min_size=1, max_size=4))
def test_what_is_read_is_what_bazel_is_given(
    tmp_path_factory: pytest.TempPathFactory, pairs: list[tuple[str, str]]
) -> None:
    text = "".join(f"{name}: {value}\n" for name, value in pairs)
    path = kept(tmp_path_factory.mktemp("kept"), text)
    lines = [shlex.split(line) for line in headers.rc_text(path).splitlines()]
    assert lines == [["build", f"--remote_header={name}={value}"] for name, value in pairs]


def test_the_rc_file_is_private_and_gone_afterwards(tmp_path: Path) -> None:
    root = tmp_path / "closed"
    with headers.private_rc(kept(tmp_path, "a: b\n"), root) as startup:
        (rc,) = root.iterdir()
        assert startup[-1] == f"--bazelrc={rc}"
        assert (rc.stat().st_mode & 0o777, root.stat().st_mode & 0o777) == (0o600, 0o700)
        assert rc.read_text() == 'build "--remote_header=a=b"\n'
        assert "--nobatch" in startup  # in batch mode the JVM's arguments would show it
        assert f"--output_user_root={root}/bazel" in startup
    assert not list(root.iterdir())


@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError, SystemExit])
def test_the_rc_file_is_gone_whatever_ends_the_build(
    tmp_path: Path, error: type[BaseException]
) -> None:
    path, root = kept(tmp_path, "a: b\n"), tmp_path / "closed"
    with pytest.raises(error), headers.private_rc(path, root):
        raise error
    assert not list(root.iterdir())


def test_what_a_killed_build_left_is_removed(tmp_path: Path) -> None:
    path, root = kept(tmp_path, "a: b\n"), tmp_path / "closed"
    root.mkdir()
    (root / "headers-abc.bazelrc").write_text("secret")
    with headers.private_rc(path, root) as startup:
        assert [f"--bazelrc={each}" for each in root.iterdir()] == [startup[-1]]


def test_without_headers_nothing_is_made(tmp_path: Path) -> None:
    with headers.private_rc(None, tmp_path / "closed") as startup:
        assert startup == ()
    assert not list(tmp_path.iterdir())


def test_a_folder_that_cannot_be_made_is_a_disk_error(tmp_path: Path) -> None:
    path = kept(tmp_path, "a: b\n")
    with pytest.raises(DiskError, match=path.name), headers.private_rc(path, path / "x"):
        pytest.fail("the build began")


def test_redacted_events_keep_all_but_the_values(tmp_path: Path) -> None:
    secrets = (("Authorization", "Bearer s3<r&t="), ("x-key", "s3cond"))
    events = headers.closed(tmp_path / "events.json")
    assert (events.stat().st_mode & 0o777, events.read_bytes()) == (0o600, b"")
    # As Bazel 4.2.3 writes them; the last line is torn.
    events.write_text(
        '{"a":"--remote_header\\u003dAuthorization\\u003dBearer s3\\u003cr\\u0026t\\u003d"}\n'
        '{"b":"--remote_header=x-key=s3cond","c":"kept \\u003d"}\n'
        '{"d":"\\u0027x-key\\u003ds3cond'
    )
    headers.redact(secrets, events)
    first, second, torn = events.read_text().splitlines()
    assert json.loads(first) == {"a": "--remote_header=Authorization=***"}
    assert json.loads(second) == {"b": "--remote_header=x-key=***", "c": "kept ="}
    assert torn == '{"d":"\\u0027x-key\\u003d***'
    assert events.stat().st_mode & 0o777 == 0o600


def test_there_may_be_nothing_to_redact(tmp_path: Path) -> None:
    headers.redact((("a", "b"),), tmp_path / "none")
    headers.redact((), tmp_path)
    assert not list(tmp_path.iterdir())
