"""What is read of a wheel that is to be published, and which wheels are not."""

from __future__ import annotations

import hashlib
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.builders.index_wheels import stand_in, written

from tfbuild.packing.wheel import WheelIdentity, verify_record
from tfcore.cpus.targets import STOCK_FLAGS
from tfcore.errors import PublishError, WheelError
from tfwheels.entry import Entry, WheelKind, _read_requires_python, read_entry

NOW = "2026-11-21T12:00:00Z"


def entry(path: Path) -> Entry:
    return read_entry(path, published=NOW)[0]


def changed(path: Path, change: Callable[[str, bytes], bytes | None]) -> Path:
    """The wheel with other members; None leaves one out."""
    with zipfile.ZipFile(path) as archive:
        members = {name: change(name, archive.read(name)) for name in archive.namelist()}
    return written(path, {name: text for name, text in members.items() if text is not None})


def test_a_tuned_wheel_says_its_targets_in_the_dispatchers_order(tmp_path: Path) -> None:
    path = stand_in(tmp_path, "2.14.1+fleet.of0a", targets=("zen4", "haswell"))
    catalog_entry, metadata = read_entry(path, published=NOW)
    assert (catalog_entry.kind, catalog_entry.targets) == (WheelKind.TUNED, ("zen4", "haswell"))
    assert (catalog_entry.file, catalog_entry.name) == (path.name, "tensorflow-cpu")
    assert (catalog_entry.version, catalog_entry.public) == ("2.14.1+fleet.of0a", "2.14.1")
    assert catalog_entry.requires_python == ">=3.9"
    assert catalog_entry.published == NOW
    assert catalog_entry.size == path.stat().st_size
    assert catalog_entry.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()
    assert b"Version: 2.14.1+fleet.of0a\n" in metadata
    assert catalog_entry.metadata_sha256 == hashlib.sha256(metadata).hexdigest()
    assert catalog_entry.tags == (
        "cp311-cp311-manylinux2014_x86_64",
        "cp311-cp311-manylinux_2_17_x86_64",
    )


def test_a_full_build_says_what_no_cpu_can_import_it_without(tmp_path: Path) -> None:
    catalog_entry = entry(stand_in(tmp_path, "2.14.1+haswell.full", full_build="haswell"))
    assert (catalog_entry.kind, catalog_entry.targets, catalog_entry.whole) == (
        WheelKind.TUNED,
        ("haswell",),
        True,
    )
    assert {"avx2", "fma"} <= {*catalog_entry.required}
    kernels = entry(stand_in(tmp_path, "2.14.1+haswell", targets=("haswell",)))
    assert (kernels.whole, kernels.required) == (False, ())


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("tensorflow_cpu", WheelKind.STOCK),
        ("tensorflow", WheelKind.STOCK),
        ("tensorflow_cpu_aws", WheelKind.STOCK),
        ("tensorflow_estimator", WheelKind.PLAIN),
        ("numpy", WheelKind.PLAIN),
    ],
)
def test_any_other_wheel_is_stock_or_plain_by_its_name(
    name: str, kind: WheelKind, tmp_path: Path
) -> None:
    assert entry(stand_in(tmp_path, "2.14.1", name=name)).kind is kind


def test_a_plain_wheel_may_have_a_local_version(tmp_path: Path) -> None:
    assert entry(stand_in(tmp_path, "1.0+ours", name="numpy")).kind is WheelKind.PLAIN


def test_stand_ins_are_whole_and_always_the_same(tmp_path: Path) -> None:
    first, second = (stand_in(tmp_path / name, "1+a", targets=("zen4",)) for name in "ab")
    assert first.read_bytes() == second.read_bytes()
    assert len(verify_record(first)) == 5


def test_a_control_wheel_is_for_comparing_only(tmp_path: Path) -> None:
    with pytest.raises(PublishError, match="for comparison only"):
        entry(stand_in(tmp_path, "2.14.1+stock.flags", targets=(STOCK_FLAGS,)))


def test_a_tensorflow_that_is_neither_stock_nor_tuned_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PublishError, match=r"no tuned\.json"):
        entry(stand_in(tmp_path, "2.14.1+mine"))


def test_a_tuned_wheel_that_calls_itself_stock_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PublishError, match="its version"):
        entry(stand_in(tmp_path, "2.14.1", targets=("zen4",)))


def test_a_target_that_nobody_knows_is_refused(tmp_path: Path) -> None:
    path = stand_in(tmp_path, "2.14.1+zen4", targets=("zen4",))
    changed(path, lambda _, text: text.replace(b'"target": "zen4"', b'"target": "zen44"'))
    with pytest.raises(PublishError, match="'zen44'"):
        entry(path)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b"Version: 2.14.1+zen4", b"Version: 2.14.1+zen3"),
        (b"Version: 2.14.1+zen4", b"Version: 2.14.1"),
        (b"Version: 2.14.1+zen4", b"Version: many"),
        (b"Version: 2.14.1+zen4", b"Version: " + b"2" * 5000),
        (b"Version: 2.14.1+zen4\n", b""),
        (b"Name: tensorflow-cpu", b"Name: tensorflow"),
        (b"Name: tensorflow-cpu", b"Name: ../tensorflow-cpu"),
        (b"Name: tensorflow-cpu", b"Name: tensorflow-cpu\nName: other"),
        (b"Metadata-Version", b"\n\xff"),
    ],
)
def test_metadata_of_another_wheel_is_refused(old: bytes, new: bytes, tmp_path: Path) -> None:
    path = stand_in(tmp_path, "2.14.1+zen4", targets=("zen4",))
    changed(path, lambda name, text: text.replace(old, new) if "METADATA" in name else text)
    with pytest.raises(PublishError, match="METADATA"):
        entry(path)


@given(st.binary(max_size=200))
def test_no_metadata_gets_through_that_does_not_name_the_wheel(noise: bytes) -> None:
    identity = WheelIdentity(name="a", version="1", tags=())
    with pytest.raises(PublishError) as caught:
        _read_requires_python(Path("a-1-py3-none-any.whl"), identity, noise)
    assert len(str(caught.value).splitlines()) == 1


@pytest.mark.parametrize("member", ["METADATA", "RECORD"])
def test_a_wheel_without_metadata_or_record_is_refused(member: str, tmp_path: Path) -> None:
    path = stand_in(tmp_path, "2.14.1")
    changed(path, lambda name, text: None if name.endswith(member) else text)
    with pytest.raises(WheelError, match=member):
        entry(path)


def test_a_truncated_wheel_is_refused(tmp_path: Path) -> None:
    path = stand_in(tmp_path, "2.14.1")
    path.write_bytes(path.read_bytes()[:-30])
    with pytest.raises(WheelError, match="not a valid wheel"):
        entry(path)


def test_a_link_is_refused(tmp_path: Path) -> None:
    path = stand_in(tmp_path / "real", "2.14.1")
    link = tmp_path / path.name
    link.symlink_to(path)
    with pytest.raises(PublishError, match="link"):
        entry(link)


@pytest.mark.parametrize(
    "name", ["a b-1-py3-none-any.whl", "..\\a-1-py3-none-any.whl", "ä-1-py3-none-any.whl", "a.whl"]
)
def test_a_file_name_that_is_no_wheels_is_refused(name: str, tmp_path: Path) -> None:
    path = stand_in(tmp_path, "1", name="a", python="py3").rename(tmp_path / name)
    with pytest.raises((PublishError, WheelError), match="is not"):
        entry(path)
