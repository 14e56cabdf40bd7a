from __future__ import annotations

import json
from pathlib import Path

import pytest

from tfbuild.remote import bazelrc, headers
from tfbuild.remote.bazelrc import Bazelrc
from tfcore.errors import DiskError, UsageError

HEADER = 'build "--remote_header=a=b"\n'


def kept(folder: Path, text: str = HEADER) -> Bazelrc:
    path = folder / "user.bazelrc"
    path.write_text(text)
    path.chmod(0o600)
    return bazelrc.read_bazelrc(path)


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o604, 0o620])
def test_a_file_that_others_can_read_is_refused(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "file"
    path.touch(0o600)
    headers.require_private("--option", path)
    path.chmod(mode)
    with pytest.raises(UsageError, match=f"--option .*mode {mode:o}") as caught:
        headers.require_private("--option", path)
    assert caught.value.hint == f"Run: chmod 600 {path}"


def test_a_file_with_headers_gets_a_server_and_a_closed_root(tmp_path: Path) -> None:
    rc, root = kept(tmp_path), tmp_path / "closed"
    startup = headers.build_startup_options(rc, root)
    assert startup[-1] == f"--bazelrc={rc.path}"
    assert root.stat().st_mode & 0o777 == 0o700
    assert "--nobatch" in startup  # in batch mode the JVM's arguments would show it
    assert f"--output_user_root={root}/bazel" in startup
    root.chmod(0o755)
    assert headers.build_startup_options(rc, root) == startup
    assert root.stat().st_mode & 0o777 == 0o700
    assert not list(root.iterdir())  # the user's file is Bazel's, and no copy is made


def test_a_file_without_headers_is_given_and_nothing_is_made(tmp_path: Path) -> None:
    rc, root = kept(tmp_path, "build --remote_timeout=9s\n"), tmp_path / "closed"
    assert headers.build_startup_options(rc, root) == (f"--bazelrc={rc.path}",)
    assert headers.build_startup_options(Bazelrc(), root) == ()
    assert not root.exists()


def test_a_folder_that_cannot_be_made_is_a_disk_error(tmp_path: Path) -> None:
    rc = kept(tmp_path)
    assert rc.path
    with pytest.raises(DiskError, match=rc.path.name):
        headers.build_startup_options(rc, rc.path / "x")


def test_redacted_events_keep_all_but_the_values(tmp_path: Path) -> None:
    secrets = (("Authorization", "Bearer s3<r&t="), ("x-key", "s3cond"))
    events = headers.create_private_file(tmp_path / "events.json")
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


def test_a_value_that_another_begins_with_leaves_nothing_of_it(tmp_path: Path) -> None:
    events = headers.create_private_file(tmp_path / "events.json")
    events.write_text("--remote_header=a=b --bes_header=a=bcd")
    headers.redact((("a", "b"), ("a", "bcd")), events)
    assert events.read_text() == "--remote_header=a=*** --bes_header=a=***"
