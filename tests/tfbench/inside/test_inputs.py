"""Files read in blocks by a reader that counts and may be slow; what a folder holds."""

from __future__ import annotations

import json
import os
import struct
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfbench.inside import inputs
from tfbench.inside.inputs import BLOCK, MARK, RAW, InputError, Reader, find_source
from tfbench.inside.workloads import find_workload

NET = find_workload("alexnet:image=64:batch=2")


def framed(records: list[bytes]) -> bytes:
    """As TFRecords are: the length, a checksum of it, the data, a checksum of them."""
    return b"".join(
        struct.pack("<Q", len(record)) + b"crc1" + record + b"crc2" for record in records
    )


def images(folder: Path, **classes: int) -> Path:
    for name, count in classes.items():
        (folder / name).mkdir(parents=True)
        for number in range(count):
            (folder / name / f"{number}.jpg").write_bytes(b"no matter")
    return folder


@given(records=st.lists(st.binary(max_size=300), max_size=20), block=st.integers(1, 64))
def test_records_come_out_whatever_blocks_they_are_read_in(
    tmp_path_factory: pytest.TempPathFactory, records: list[bytes], block: int
) -> None:
    path = tmp_path_factory.mktemp("records") / "x.tfrecord"
    path.write_bytes(framed(records))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(inputs, "BLOCK", block)
        reader = Reader()
        assert list(reader.read_records(path)) == records
    assert reader.read_bytes == path.stat().st_size
    assert reader.reads == -(-path.stat().st_size // block)


def test_a_record_that_is_cut_off_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "x.tfrecord"
    path.write_bytes(framed([b"whole", b"half"])[:-6])
    read = Reader().read_records(path)
    assert next(read) == b"whole"
    with pytest.raises(InputError, match="middle"):
        list(read)


@pytest.mark.parametrize(
    ("reader", "least_s"), [(Reader(mb_s=20.0), 0.15), (Reader(iops=20.0), 0.15), (Reader(), 0.0)]
)
def test_a_slow_disk_waits_as_long_as_it_would_take(
    tmp_path: Path, reader: Reader, least_s: float
) -> None:
    path = tmp_path / "x"
    path.write_bytes(bytes(3 * BLOCK))
    began = time.perf_counter()
    assert len(reader.read_all(path)) == 3 * BLOCK
    taken = time.perf_counter() - began
    assert taken >= least_s, "it never gives more than such a disk"
    assert taken >= reader.read_s >= least_s
    assert reader.reads == 3


def test_a_cold_reader_says_what_was_in_memory_nevertheless(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(os.urandom(2 * BLOCK))
    with path.open("rb") as opened:
        opened.read()
        assert inputs.count_cached_bytes(opened.fileno()) == 2 * BLOCK
    os.sync()
    reader = Reader(cold=True)
    assert len(reader.read_all(path)) == 2 * BLOCK
    assert reader.cached in (0, 2 * BLOCK), "all is forgotten, or it lies in memory only"


def test_an_empty_file_has_nothing_in_memory(tmp_path: Path) -> None:
    (tmp_path / "x").touch()
    assert Reader(cold=True).read_all(tmp_path / "x") == b""


# --- folders --------------------------------------------------------------------------------------


def test_a_users_folder_has_a_class_for_each_folder_in_it(tmp_path: Path) -> None:
    source = find_source(images(tmp_path, cats=2, dogs=1), NET)
    assert (source.count, source.own, source.classes) == (3, True, ("cats", "dogs"))
    assert [(path.parent.name, label) for path, label in source.list_raw_files()] == [
        ("cats", 0),
        ("cats", 0),
        ("dogs", 1),
    ]


def test_images_without_a_folder_are_of_one_class(tmp_path: Path) -> None:
    for name in ("a.jpg", "b.PNG", "notes.txt"):
        (tmp_path / name).touch()
    source = find_source(tmp_path, NET)
    assert [(path.name, label) for path, label in source.list_raw_files()] == [
        ("a.jpg", 0),
        ("b.PNG", 0),
    ]


def test_generated_examples_are_known_by_their_mark(tmp_path: Path) -> None:
    images(tmp_path / RAW, **{"3": 2})
    (tmp_path / MARK).write_text(json.dumps({"count": 2}), "utf-8")
    source = find_source(tmp_path, NET)
    assert (source.count, source.own) == (2, False)
    assert [label for _, label in source.list_raw_files()] == [3, 3]


def test_a_batch_that_is_larger_than_the_data_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"\(1\) than a batch \(2\)"):
        find_source(images(tmp_path, cats=1), NET)


def test_a_folder_of_images_is_for_nets_that_take_images(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="images"):
        find_source(images(tmp_path, cats=2), find_workload("ptb_lstm_small"))
