"""What an environment has, compared with an index; the remedy is run with pip."""

from __future__ import annotations

import dataclasses
import json
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from tests.builders import publications
from tests.builders.index_wheels import entry_of, stand_in
from tests.builders.installs import TAG, installed, made_venv, on_x86_64
from tests.builders.invoke_calls import Tasks
from tests.builders.served_index import running
from tests.builders.signing_keys import public_file

from tfcore.cpus.targets import parse_target
from tfcore.errors import PublishError, UsageError, WheelError, WithdrawnError
from tfwheels.check_installed import (
    InstalledPackage,
    InstalledState,
    check_wheel,
    describe,
    find_python,
    read_installed,
    require_listed,
)
from tfwheels.entry import Entry, WithdrawalKind
from tfwheels.folder import Folder
from tfwheels.keys import SigningKey
from tfwheels.serve import TreeServer
from tfwheels.trust import Signing
from tfwheels.withdrawal import WithdrawalChange, apply_change

BAD = "2.14.1+haswell"
UV = Path(sys.executable).with_name("uv")
SKYLAKE = parse_target("skylake")
YANK = WithdrawalChange(names=(f"tensorflow-cpu=={BAD}",), kind=WithdrawalKind.YANKED, reason="bad")


def installed_of(entry: Entry, metadata: str = "") -> InstalledPackage:
    return InstalledPackage(
        name=entry.name,
        version=entry.version,
        tags=frozenset(entry.tags[:1]),
        metadata_sha256=metadata or entry.metadata_sha256,
    )


def test_each_state_has_its_error_and_its_remedy() -> None:
    bad, stock = entry_of(BAD, targets=("haswell",)), entry_of("2.14.1")
    withdrawn = apply_change([bad, stock], {bad.file}, YANK, "2026-11-29T00:00:00+00:00")
    base = "https://i.example/a b"
    wheels = {
        InstalledState.LISTED: check_wheel(
            installed_of(stock), withdrawn, SKYLAKE, base, "python3"
        ),
        InstalledState.WITHDRAWN: check_wheel(
            installed_of(bad), withdrawn, SKYLAKE, base, "python3"
        ),
        InstalledState.CHANGED: check_wheel(
            installed_of(stock, "0" * 64), withdrawn, SKYLAKE, base, "python3"
        ),
        InstalledState.UNKNOWN: check_wheel(
            installed_of(entry_of("2.13.1")), withdrawn, SKYLAKE, base, "python3"
        ),
    }
    assert all(wheel.state is state for state, wheel in wheels.items())
    require_listed([wheels[InstalledState.LISTED]], "index")
    for state, kind in (
        (InstalledState.WITHDRAWN, WithdrawnError),
        (InstalledState.CHANGED, PublishError),
        (InstalledState.UNKNOWN, WheelError),
    ):
        with pytest.raises(kind):
            require_listed([wheels[InstalledState.LISTED], wheels[state]], "index")
    words = shlex.split(wheels[InstalledState.WITHDRAWN].remedy)
    assert words[-2:] == [f"{base}/simple/skylake/", "tensorflow-cpu==2.14.1"]
    text = describe(tuple(wheels.values()))
    assert f"tensorflow-cpu {BAD}: yanked: bad (since 2026-11-29T00:00:00+00:00)" in text
    assert "tensorflow-cpu 2.14.1: listed" in text


def test_a_withdrawn_wheel_is_not_taken_for_a_later_build_of_it() -> None:
    """A build number changes the file name, not METADATA."""
    bad = entry_of("2.14.1")
    fixed = dataclasses.replace(bad, file=bad.file.replace("2.14.1-", "2.14.1-1-"))
    entries = apply_change([fixed, bad], {bad.file}, YANK, "2026-11-29T00:00:00+00:00")
    checked = check_wheel(installed_of(bad), entries, SKYLAKE, "https://i.example", "python3")
    assert checked.state is InstalledState.WITHDRAWN


def test_without_another_wheel_there_is_no_remedy() -> None:
    bad = entry_of(BAD, targets=("haswell",))
    (withdrawn,) = apply_change([bad], {bad.file}, YANK, "2026-11-29T00:00:00+00:00")
    checked = check_wheel(installed_of(bad), [withdrawn], SKYLAKE, "https://i.example", "python3")
    assert checked.remedy == ""
    assert "no other wheel" in describe([checked])
    with pytest.raises(WithdrawnError) as caught:
        require_listed([checked], "index")
    assert "another version" in caught.value.hint


def test_an_environment_without_tensorflow_and_a_folder_that_is_none(tmp_path: Path) -> None:
    made_venv(tmp_path)
    with pytest.raises(WheelError, match="no TensorFlow"):
        read_installed(find_python(str(tmp_path / "venv")))
    with pytest.raises(UsageError, match="bin/python"):
        find_python(str(tmp_path))


@on_x86_64
@pytest.mark.toolchain
def test_a_host_learns_that_its_wheel_was_withdrawn_and_the_remedy_replaces_it(
    invoke: Tasks, key: SigningKey, tmp_path: Path
) -> None:
    signing = Signing(key=key, trusted=(key.public,))
    index = Folder(root=tmp_path / "index")
    bad = stand_in(tmp_path / "made", BAD, targets=("haswell",), python=TAG, content=b"bad")
    stock = stand_in(tmp_path / "made", "2.14.1", python=TAG, content=b"stock")
    publications.put(index, bad, stock, signing=signing, now="2126-01-01T00:00:00+00:00")
    env = made_venv(tmp_path)
    subprocess.run([UV, "pip", "install", "--offline", bad], env=env, check=True)
    trust = str(public_file(tmp_path, key.public))
    here = ("--environment", str(tmp_path / "venv"), "--trust", trust, "--arch", "skylake")
    with running(TreeServer(index.root, 0)) as server:
        at = f"http://127.0.0.1:{server.server_port}"
        done = invoke("check-installed", "--at", at, *here)
        assert (done.returncode, done.stdout) == (0, f"tensorflow-cpu {BAD}: listed\n")
        publications.put(index, signing=signing, change=YANK, now="2126-01-02T00:00:00+00:00")
        done = invoke("check-installed", "--at", at, *here)
        assert (done.returncode, done.stderr.count("error: ")) == (43, 1)
        assert done.stdout.startswith(f"tensorflow-cpu {BAD}: yanked: bad (since 2126-01-02")
        done = invoke("check-installed", "--at", at, *here, "--json")
        (wheel,) = json.loads(done.stdout)["wheels"]
        assert wheel["state"] == "withdrawn"
        subprocess.run(wheel["remedy"], shell=True, env=env, check=True)  # noqa: S602
        assert installed(tmp_path) == {"tensorflow_cpu 2.14.1": b"stock"}
        assert invoke("check-installed", "--at", at, *here).returncode == 0
