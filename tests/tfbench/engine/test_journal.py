"""A file of lines: what goes in comes out, whatever ended the run that wrote it."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.builders.examples import at_most
from tests.builders.file_limits import file_limit

from tfbench.engine.journal import Kinds, open_journal, read_entries, read_lines
from tfcore.errors import DiskError, RecordError


@dataclass(frozen=True, kw_only=True, slots=True)
class Note:
    text: str
    number: int = 0


KINDS: Kinds[Note] = {"note": Note}
notes = st.builds(Note, text=st.text(max_size=8), number=st.integers())


def write(path: Path, actual: Sequence[Note]) -> None:
    with open_journal(path, KINDS) as (_, keep):
        for note in actual:
            keep(note)


def read(path: Path) -> tuple[Note, ...]:
    return read_entries(path, KINDS)


# --- there and back -------------------------------------------------------------------------------


@given(actual=st.lists(notes, min_size=1, max_size=5, unique=True), data=st.data())
@at_most(60)
def test_a_journal_that_was_cut_anywhere_loses_one_line_at_most(
    actual: list[Note], data: st.DataObject
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "deep" / "notes.jsonl"
        write(path, actual)
        whole = path.read_bytes()
        cut = data.draw(st.integers(0, len(whole)))
        path.write_bytes(whole[:cut])
        count = whole[:cut].count(b"\n")
        assert read(path) == tuple(actual[:count])
        write(path, actual[count:])
        assert read(path) == tuple(actual)
        assert path.read_bytes() == whole


def test_each_line_is_on_disk_before_the_next_is_taken(tmp_path: Path) -> None:
    path = tmp_path / "notes.jsonl"
    with open_journal(path, KINDS) as (_, keep):
        for count in range(1, 9):
            keep(Note(text="a", number=count))
            assert len(read(path)) == count
            assert path.read_bytes().endswith(b"}\n")


def test_an_empty_journal_has_no_lines(tmp_path: Path) -> None:
    write(tmp_path / "notes.jsonl", [])
    assert read(tmp_path / "notes.jsonl") == ()


def test_a_line_that_is_there_twice_counts_once(tmp_path: Path) -> None:
    path = tmp_path / "notes.jsonl"
    write(path, [Note(text="a"), Note(text="b")])
    path.write_bytes(path.read_bytes() * 2)
    write(path, [Note(text="c")])
    assert [note.text for note in read(path)] == ["a", "b", "c"]


# --- what cannot be read --------------------------------------------------------------------------


@pytest.mark.parametrize(
    "foreign",
    [
        "",
        "a,b",
        "5",
        "null",
        "[]",
        "{}",
        '{"text": "c"}',
        '{"is": "note", "text": 1}',
        '{"is": "word", "text": "c"}',
        '{"is": ["note"], "text": "c"}',
        '{"is": "note", "text"',
    ],
)
def test_a_foreign_line_is_an_error_with_its_number(foreign: str, tmp_path: Path) -> None:
    path = tmp_path / "notes.jsonl"
    write(path, [Note(text="a"), Note(text="b")])
    with path.open("a", encoding="utf-8") as sink:
        sink.write(f'{foreign}\n{{"is": "note", "text": "d"}}\n')
    with pytest.raises(RecordError, match=r"notes\.jsonl, line 3") as caught:
        read(path)
    assert "--out" in caught.value.hint


def test_a_foreign_value_keeps_the_error_in_one_line(tmp_path: Path) -> None:
    def refuse(_: object) -> None:
        raise ValueError("unknown workload a\nb")

    path = tmp_path / "samples.jsonl"
    path.write_text("{}\n", encoding="utf-8")
    with pytest.raises(RecordError, match="line 1 is not a launch") as caught:
        read_lines(path, refuse, "a launch")
    assert "\n" not in caught.value.message


def test_bytes_that_are_no_text_are_an_error(tmp_path: Path) -> None:
    path = tmp_path / "notes.jsonl"
    path.write_bytes(b"\x80\x81\n")
    with pytest.raises(RecordError, match=r"notes\.jsonl.*text"):
        read(path)


def test_a_missing_journal_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(RecordError, match="No such file"):
        read(tmp_path / "notes.jsonl")


# --- disks ----------------------------------------------------------------------------------------


def test_a_full_disk_is_an_error() -> None:
    with (
        open_journal(Path("/dev/full"), KINDS) as (_, keep),
        pytest.raises(DiskError, match="/dev/full: No space left"),
    ):
        keep(Note(text="a"))


def test_a_disk_that_fills_up_within_a_line_leaves_the_whole_ones(tmp_path: Path) -> None:
    """And once there is room again, the run goes on behind them."""
    path = tmp_path / "notes.jsonl"
    whole = [Note(text="a"), Note(text="b")]
    write(path, whole)
    room = path.stat().st_size + 9
    with (
        open_journal(path, KINDS) as (_, keep),
        file_limit(room),
        pytest.raises(DiskError, match=r"9 of \d+ bytes"),
    ):
        keep(Note(text="c"))
    assert path.stat().st_size == room
    assert read(path) == tuple(whole)
    with (
        file_limit(path.stat().st_size),
        pytest.raises(DiskError, match=path.name),
        open_journal(path, KINDS) as (_, keep),
    ):
        keep(Note(text="c"))
    write(path, [Note(text="d")])
    assert read(path) == (*whole, Note(text="d"))


def test_a_place_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    with (
        pytest.raises(DiskError, match="notes"),
        open_journal(tmp_path / "file" / "notes.jsonl", KINDS),
    ):
        pass
