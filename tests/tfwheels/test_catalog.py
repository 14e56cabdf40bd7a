"""tfwheels.catalog; tests/tfbench/costs/test_catalog.py is about price catalogues."""

from __future__ import annotations

import dataclasses
import json
from datetime import datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.builders.gate_comparisons import compared
from tests.builders.index_wheels import stand_in
from tests.builders.publications import NOW, put

from tfbuild.upstream.download import hash_file
from tfcore.errors import PublishError, RecordError, WheelError
from tfcore.records import format_json
from tfwheels import catalog
from tfwheels.catalog import Catalog
from tfwheels.entry import Entry, GateResult, TargetVerdict, WheelKind, read_entry
from tfwheels.folder import Folder

numbers = st.floats(allow_nan=False, allow_infinity=False)
verdicts = st.builds(TargetVerdict, speedup=numbers, low=numbers, high=numbers)
digests = st.from_regex(r"[0-9a-f]{64}", fullmatch=True)
entries = st.builds(
    Entry,
    file=st.integers(0).map(lambda number: f"a-{number}-py3-none-any.whl"),
    name=st.from_regex(r"[a-z0-9]+(-[a-z0-9]+)*", fullmatch=True),
    version=st.sampled_from(("1", "2.14.1+zen4.x")),
    tags=st.just(("py3-none-any",)),
    published=st.datetimes().map(datetime.isoformat),
    kind=st.just(WheelKind.TUNED),
    targets=st.lists(st.sampled_from(("zen4", "haswell+aes/zen3")), min_size=1).map(tuple),
    verdicts=st.tuples() | st.tuples(verdicts),
    sha256=digests,
    metadata_sha256=digests,
)


def entry(file: str, sha256: str = "0" * 64, published: str = NOW) -> Entry:
    return Entry(
        file=file,
        name="a",
        version="1",
        tags=("py3-none-any",),
        requires_python="",
        size=1,
        sha256=sha256,
        metadata_sha256="1" * 64,
        published=published,
        kind=WheelKind.PLAIN,
    )


def verdict(file: str) -> TargetVerdict:
    return TargetVerdict(
        target="zen4",
        verdict="faster",
        speedup=1.3,
        low=1.2,
        high=1.4,
        cpu="a CPU",
        file=file,
        sha256="2" * 64,
    )


@given(st.integers(0, (1 << 62) - 1), st.lists(entries, max_size=3).map(tuple))
def test_a_catalog_is_read_as_it_was_written(revision: int, actual: tuple[Entry, ...]) -> None:
    whole = Catalog(revision=revision, entries=actual)
    assert catalog.parse(whole.to_bytes(), "here") == whole


def test_an_index_without_a_catalog_is_empty() -> None:
    assert catalog.parse(None, "here") == Catalog(revision=0, entries=())


def test_a_torn_catalog_says_how_to_mend_it() -> None:
    whole = Catalog(entries=(entry("a-1-py3-none-any.whl"),)).to_bytes()
    for end in range(len(whole) - 2):
        with pytest.raises(RecordError, match=r"catalog\.json of here .*--reindex"):
            catalog.parse(whole[:end], "here")


@pytest.mark.parametrize(
    "text",
    [
        *('{"schema": 2}', "{}", "[]", "null", '"schema"', "\xff", "[" * 100_000),
        *('{"schema": 1, "entries": [{}]}', '{"schema": 1, "entries": 1}'),
        '{"schema": 1, "revision": "1", "entries": []}',
        '{"schema": 1, "revision": 1, "entries": [], "more": 1}',
    ],
)
def test_a_foreign_catalog_says_how_to_mend_it(text: str) -> None:
    with pytest.raises(RecordError, match="--reindex"):
        catalog.parse(text.encode("latin-1"), "here")


def test_merging_gives_one_order() -> None:
    catalog_entry, two, three = (entry(f"{letter}-1-py3-none-any.whl") for letter in "abc")
    assert catalog.merge_entries((three, catalog_entry), (two,)) == catalog.merge_entries(
        (two,), (catalog_entry, three)
    )
    assert catalog.merge_entries((), (three, two, catalog_entry)) == (catalog_entry, two, three)


def test_a_wheel_that_comes_again_keeps_its_time_and_its_verdicts() -> None:
    first = dataclasses.replace(entry("a.whl"), verdicts=(verdict("x"),))
    again = entry("a.whl", published="2021-01-01T00:00:00+00:00")
    assert catalog.merge_entries((first,), (again,)) == (first,)
    measured = dataclasses.replace(again, verdicts=(verdict("y"), verdict("x")))
    (catalog_entry,) = catalog.merge_entries((first,), (measured,))
    assert [target_verdict.file for target_verdict in catalog_entry.verdicts] == ["x", "y"]
    assert catalog_entry.published == NOW


def test_a_catalog_of_before_wheels_told_how_they_passed_is_read() -> None:
    old = entry("a-1.0-py3-none-any.whl")
    whole = Catalog(entries=(dataclasses.replace(old, gating=GateResult(passed=True)),))
    fields = json.loads(whole.to_bytes())
    for name in ("gating", "near"):
        del fields["entries"][0][name]
    assert catalog.parse(json.dumps(fields).encode(), "here").entries == (old,)


def gated(*, passed: bool, faults: tuple[str, ...] = (), gaps: tuple[str, ...] = ()) -> Entry:
    gating = GateResult(passed=passed, faults=faults, gaps=gaps)
    return dataclasses.replace(entry("a.whl"), gating=gating)


@pytest.mark.parametrize(
    ("old", "new", "catalog_entry"),
    [
        (gated(passed=False, gaps=("g",)), gated(passed=True), gated(passed=True)),
        (gated(passed=True), gated(passed=False), gated(passed=True)),
        (
            gated(passed=True),
            gated(passed=False, faults=("f",), gaps=("g",)),
            gated(passed=True, faults=("f",)),
        ),
        (
            gated(passed=False, faults=("f",), gaps=("g",)),
            gated(passed=False, faults=("h", "f")),
            gated(passed=False, faults=("f", "h"), gaps=("g",)),
        ),
        (entry("a.whl"), gated(passed=False), gated(passed=False)),
        (gated(passed=False), entry("a.whl"), gated(passed=False)),
    ],
)
def test_a_fault_stays_and_so_does_having_passed(
    old: Entry, new: Entry, catalog_entry: Entry
) -> None:
    assert catalog.merge_entries((old,), (new,)) == (catalog_entry,)


@pytest.mark.parametrize("known", [True, False])
def test_a_name_keeps_its_bytes(*, known: bool) -> None:
    catalog_entry, second = entry("a.whl", "3" * 64), entry("a.whl", "4" * 64)
    with pytest.raises(PublishError, match=f"{'3' * 64}; this one has {'4' * 64}"):
        catalog.merge_entries(
            (catalog_entry,) if known else (), (second,) if known else (catalog_entry, second)
        )


def test_a_catalog_is_made_again_from_the_pool(tmp_path: Path) -> None:
    tuned = stand_in(tmp_path, "2.14.1+zen4", targets=("zen4",))
    wheels = [stand_in(tmp_path, "2.14.1"), tuned]
    wheels.append(stand_in(tmp_path, "1.0", name="six", python="py3"))
    store = Folder(root=tmp_path / "index")
    judgements = {hash_file(tuned): compared(tmp_path / "report", tuned)}
    put(store, *wheels, judgements=judgements)
    known = catalog.parse(store.read(catalog.KEY), store.where).entries
    assert sum(len(catalog_entry.verdicts) for catalog_entry in known) == 1
    actual = catalog.reindex_pool(store).entries
    assert (
        tuple(dataclasses.replace(catalog_entry, published=NOW) for catalog_entry in actual)
        == known
    )


def test_a_damaged_wheel_in_the_pool_is_named(tmp_path: Path) -> None:
    store = Folder(root=tmp_path / "index")
    wheel = stand_in(tmp_path, "1.0", name="six", python="py3")
    put(store, wheel)
    (store.root / "pool/six" / wheel.name).write_bytes(wheel.read_bytes()[:-30])
    with pytest.raises(WheelError, match=wheel.name):
        catalog.reindex_pool(store)


def test_a_wheel_in_the_place_of_another_is_refused(tmp_path: Path) -> None:
    wheel = stand_in(tmp_path, "1.0", name="six", python="py3")
    store = Folder(root=tmp_path / "index")
    store.put_new(f"pool/seven/{wheel.name}", wheel, hash_file(wheel))
    with pytest.raises(PublishError, match="wheel of six"):
        catalog.reindex_pool(store)


def test_entries_of_wheels_survive(tmp_path: Path) -> None:
    catalog_entry, _ = read_entry(
        stand_in(tmp_path, "2.14.1+zen4", targets=("zen4",)), published=NOW
    )
    whole = Catalog(revision=3, entries=(catalog_entry,))
    assert json.loads(whole.to_bytes())["entries"][0]["kind"] == "tuned"
    assert catalog.parse(whole.to_bytes(), "here") == whole


@pytest.mark.parametrize("digest", ["\n", "", "A" * 64, "1" * 63])
@pytest.mark.parametrize("name", ["sha256", "metadata_sha256"])
def test_an_entry_without_a_hash_is_refused_in_one_line(name: str, digest: str) -> None:
    whole = json.loads(format_json(Catalog(entries=(entry("a-1-py3-none-any.whl"),))))
    whole["entries"][0][name] = digest
    with pytest.raises(RecordError, match="in place of a SHA-256") as refused:
        catalog.parse(json.dumps(whole).encode(), "the index")
    assert "\n" not in str(refused.value)
