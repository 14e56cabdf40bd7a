from __future__ import annotations

import enum
import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.builders.file_limits import file_limit, mounted_disk

from tfcore.errors import DiskError, RecordError
from tfcore.records import (
    convert_record,
    decode_record,
    find_differences,
    format_canonical,
    format_json,
    hash_record,
    load,
    save,
    write_atomic,
)
from tfcore.settings import ROOT

BUILD = ROOT / "build"


class Kind(enum.Enum):
    SMALL = "small"


@dataclass(frozen=True, kw_only=True, slots=True)
class Inner:
    where: Path
    kinds: tuple[Kind, ...] = (Kind.SMALL,)


@dataclass(frozen=True, kw_only=True, slots=True)
class Outer:
    schema: int = 3
    inner: Inner = Inner(where=Path("/a"))
    names: frozenset[str] = frozenset()
    table: Mapping[str, float | None] = field(default_factory=dict)


texts = st.text(max_size=8)
outers = st.builds(
    Outer,
    schema=st.integers(),
    inner=st.builds(Inner, where=st.builds(Path, st.text("ab/", max_size=6))),
    names=st.frozensets(texts),
    table=st.dictionaries(texts, st.none() | st.floats(allow_nan=False, allow_infinity=False)),
)


def test_a_record_becomes_plain_json() -> None:
    record = Outer(names=frozenset("ba"), table={"x": 1.5, "y": None})
    assert convert_record(record) == {
        "schema": 3,
        "inner": {"where": "/a", "kinds": ["small"]},
        "names": ["a", "b"],
        "table": {"x": 1.5, "y": None},
    }


@given(outers)
def test_canonical_text_reads_back_as_the_same_values(record: Outer) -> None:
    text = format_canonical(record)
    assert json.loads(text) == convert_record(record)
    assert text.isascii()
    assert decode_record(Outer, json.loads(text)) == record
    assert "\n" not in text


@pytest.mark.parametrize(
    ("fields", "place"),
    [
        ({"inner": {"where": 5}}, "inner.where: 5 is not a Path"),
        ({"inner": {"where": "/a", "kinds": ["small", "vast"]}}, "inner.kinds: 'vast' is not"),
        ({"schema": "3"}, "schema: '3' is not a int"),
        ({"inner": 3}, "inner: 3 is not a Inner"),
    ],
)
def test_what_does_not_fit_is_named_with_its_place(fields: dict[str, object], place: str) -> None:
    with pytest.raises(TypeError, match=re.escape(place)):
        decode_record(Outer, fields)


@given(outers)
def test_neither_the_order_of_names_nor_of_members_changes_the_key(record: Outer) -> None:
    turned = Outer(
        schema=record.schema,
        inner=record.inner,
        names=frozenset(sorted(record.names, reverse=True)),
        table=dict(reversed(list(record.table.items()))),
    )
    assert hash_record(turned) == hash_record(record)


@given(outers, outers)
def test_different_records_have_different_keys(outer: Outer, other: Outer) -> None:
    assert (hash_record(outer) == hash_record(other)) == (
        convert_record(outer) == convert_record(other)
    )


def test_a_key_is_the_same_in_every_process() -> None:
    """Sets are ordered by a hash that each process salts anew."""
    record = Outer(names=frozenset(f"name{i}" for i in range(50)))
    code = (
        "from tfcore.records import hash_record; print(hash_record({'schema': 3, "
        "'inner': {'where': '/a', 'kinds': ['small']}, 'table': {}, "
        "'names': {f'name{i}' for i in range(50)}}))"
    )
    for salt in ("1", "2"):
        env = os.environ | {"PYTHONPATH": str(BUILD), "PYTHONHASHSEED": salt}
        done = subprocess.run(
            [sys.executable, "-c", code], env=env, check=True, capture_output=True, text=True
        )
        assert done.stdout.strip() == hash_record(record)


@pytest.mark.parametrize("value", [object(), b"bytes", Outer, 1j, {"x": {1: b""}}])
def test_what_json_cannot_hold_is_refused(value: object) -> None:
    with pytest.raises(TypeError, match="JSON"):
        convert_record(value)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), {"x": [float("-inf")]}])
def test_no_number_is_refused(value: object) -> None:
    for write in (format_canonical, format_json):
        with pytest.raises(ValueError, match="Out of range float"):
            write(value)


@given(outers, outers)
def test_differences_are_there_when_records_differ(outer: Outer, other: Outer) -> None:
    saved = json.loads(format_canonical(outer))
    assert find_differences(saved, outer) == []
    assert bool(find_differences(saved, other)) == (saved != convert_record(other))


def test_differences_are_named_by_their_place() -> None:
    assert find_differences(
        {"a": {"b": 1, "c": [1]}, "d": None}, {"a": {"b": 2, "c": [1]}, "e": 0}
    ) == [
        "a.b (1, now 2)",
        "d (null, now nothing)",
        "e (nothing, now 0)",
    ]
    (long,) = find_differences({"a": "x"}, {"a": "y" * 100})
    assert long == f'a ("x", now "{"y" * 56}…)'


def test_a_saved_record_is_loaded_again(tmp_path: Path) -> None:
    path = tmp_path / "new" / "folder" / "x.json"
    save(path, Outer())
    assert load(path, schema=3) == convert_record(Outer())
    assert path.stat().st_mode & 0o777 == 0o644


WHOLE = format_json(Outer(names=frozenset("ab"))).encode()


@given(st.integers(0, len(WHOLE) - 3))
def test_a_torn_file_is_never_taken_for_a_record(
    tmp_path_factory: pytest.TempPathFactory, end: int
) -> None:
    path = tmp_path_factory.mktemp("torn") / "x.json"
    path.write_bytes(WHOLE[:end])
    with pytest.raises(RecordError, match=r"x\.json"):
        load(path, schema=3)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"\xff\xfe\x00", "valid JSON"),
        (b"[" * 100_000, "valid JSON"),
        (b"[]", "schema None.* 3"),
        (b"null", "schema None"),
        (b'"schema"', "schema None"),
        (b"{}", "schema None"),
        (b'{"schema": 4}', "schema 4.* 3"),
        (b'{"schema": "3"}', "schema '3'"),
    ],
)
def test_a_foreign_file_is_refused(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "x.json"
    path.write_bytes(content)
    with pytest.raises(RecordError, match=message):
        load(path, schema=3)


def test_a_missing_file_and_a_folder_are_refused(tmp_path: Path) -> None:
    with pytest.raises(RecordError, match="No such file"):
        load(tmp_path / "absent", schema=3)
    with pytest.raises(RecordError, match="Is a directory"):
        load(tmp_path, schema=3)


@pytest.mark.parametrize("content", ["text with ü", b"\x00bytes", "", b""])
def test_bytes_and_text_are_written_as_they_are(tmp_path: Path, content: str | bytes) -> None:
    path = tmp_path / "x"
    path.write_text("old")
    write_atomic(path, content)
    assert path.read_bytes() == (content.encode() if isinstance(content, str) else content)
    assert [file.name for file in tmp_path.iterdir()] == ["x"]


def test_a_disk_that_runs_full_leaves_the_old_bytes(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_text("old")
    with file_limit(4096), pytest.raises(DiskError, match=f"{path}: File too large"):
        write_atomic(path, "new" * 10_000)
    assert path.read_text() == "old"
    assert [file.name for file in tmp_path.iterdir()] == ["x"]


def test_a_folder_that_cannot_be_made_is_a_disk_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(DiskError):
        write_atomic(tmp_path / "file" / "x", "new")


def test_a_full_file_system_leaves_the_old_bytes(tmp_path: Path) -> None:
    with mounted_disk(tmp_path / "disk", "64k") as disk:
        (disk / "x").write_text("old")
        with pytest.raises(DiskError, match="No space left on device"):
            write_atomic(disk / "x", bytes(1_000_000))
        assert (disk / "x").read_text() == "old"
        assert [file.name for file in disk.iterdir()] == ["x"]


def test_a_killed_writer_leaves_the_old_bytes_or_the_new(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_text("old")
    code = (
        "import sys, pathlib; from tfcore.records import write_atomic; print('go', flush=True)\n"
        "while True:\n"
        "    for letter in 'ab': write_atomic(pathlib.Path(sys.argv[1]), letter * 3_000_000)"
    )
    env = os.environ | {"PYTHONPATH": str(BUILD)}
    for _ in range(5):
        with subprocess.Popen(
            [sys.executable, "-c", code, path], env=env, stdout=subprocess.PIPE
        ) as writer:
            assert writer.stdout is not None
            writer.stdout.readline()
            for _ in range(20):
                text = path.read_text()
                assert text == "old" or (len(text) == 3_000_000 and len(set(text)) == 1)
            writer.kill()
        text = path.read_text()
        assert text == "old" or (len(text) == 3_000_000 and len(set(text)) == 1)
