"""The files that a host gets are those of the checkout, and the same for the same sources."""

from __future__ import annotations

import io
import json
import tarfile
from pathlib import Path

import pytest
from tests.builders.fleet_hosts import make_checkout, make_wheel

from tfbench.hosts import bundle
from tfbuild.upstream.download import hash_file
from tfcore.errors import UsageError
from tfcore.settings import ROOT


def test_the_archive_has_what_the_commands_need() -> None:
    content = bundle.build_archive(ROOT)
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        members = {member.name: member for member in archive}
    needed = ("inv", "tasks.py", "requirements.txt", "build/tensorwright/program.py")
    assert {*needed, "wheels/tfwheels/publish.py", "templates/report.html.j2"} <= members.keys()
    assert members["inv"].mode == 0o755
    assert members["tasks.py"].mode == 0o644
    assert not any(name.endswith((".whl", ".pyc")) for name in members)
    assert len(content) < 4 << 20


def test_equal_sources_give_equal_bytes(tmp_path: Path) -> None:
    first, second = (make_checkout(tmp_path / name) for name in ("a", "b"))
    (second / "build" / "__pycache__").mkdir()
    (second / "build" / "__pycache__" / "a.pyc").write_text("")
    assert bundle.build_archive(first) == bundle.build_archive(second)


def test_a_bundle_describes_its_files(tmp_path: Path) -> None:
    wheel = make_wheel(tmp_path)
    out = tmp_path / "out"
    out.mkdir()
    wheels = bundle.describe_wheels([wheel])
    checkout = make_checkout(tmp_path / "checkout")
    for _ in range(2):
        bundle.write_bundle(out, wheels, [wheel], ["--thorough"], fleet="f1", root=checkout)
    described = json.loads((out / "bundle.json").read_text())
    assert described["wheels"] == [
        {"name": "tuned", "file": wheel.name, "sha256": hash_file(wheel)}
    ]
    assert described["archive"]["sha256"] == hash_file(out / bundle.ARCHIVE)
    assert (described["compare"], described["fleet"]) == (["--thorough"], "f1")
    assert {"start.sh", "on_host.py", "fleet_check.py"} <= {path.name for path in out.iterdir()}
    assert (out / wheel.name).read_bytes() == wheel.read_bytes()


def test_wheels_have_names_of_their_own(tmp_path: Path) -> None:
    paths = [make_wheel(tmp_path, "a"), make_wheel(tmp_path, "b")]
    assert [wheel.name for wheel in bundle.describe_wheels(paths)] == ["wheel-1", "wheel-2"]
    with pytest.raises(UsageError, match="same file name"):
        bundle.describe_wheels([paths[0], paths[0]])
    with pytest.raises(UsageError, match="file not found"):
        bundle.describe_wheels([tmp_path / "c.whl"])
    (tmp_path / "c.whl").touch()
    with pytest.raises(UsageError, match="not a wheel"):
        bundle.describe_wheels([tmp_path / "c.whl"])
