"""Signed wheels in a real folder: who may publish what, once an index trusts a key."""

from __future__ import annotations

import json
from pathlib import Path
from posixpath import join, normpath
from typing import Any

import pytest
from simple_repository.parser import parse_html_project_page, parse_json_project_page
from tests.builders import publications
from tests.builders.buckets import NAME, Served
from tests.builders.index_wheels import stand_in
from tests.builders.publications import NOW, files

from tfcore.cpus.targets import parse_target
from tfcore.errors import PublishError, RecordError, UnverifiedError
from tfwheels import catalog
from tfwheels.bucket import open_bucket
from tfwheels.entry import read_entry
from tfwheels.folder import Folder
from tfwheels.keys import PublicKey, SigningKey
from tfwheels.level_variants import publish_variants
from tfwheels.provenance import make_statement, sign, verify_provenance
from tfwheels.publish import MANIFEST, PublishResult
from tfwheels.store import Store
from tfwheels.trust import FILE, Signing, load_trusted

PAGE = "simple/zen4/tensorflow-cpu"


@pytest.fixture
def index(tmp_path: Path) -> Folder:
    return Folder(root=tmp_path / "index")


@pytest.fixture
def tuned(tmp_path: Path) -> Path:
    return stand_in(tmp_path / "made", "2.14.1+zen4", targets=("zen4",))


@pytest.fixture
def stock(tmp_path: Path) -> Path:
    return stand_in(tmp_path / "made", "2.14.1")


def put(
    index: Store,
    *wheels: Path,
    key: SigningKey | None = None,
    trusted: tuple[PublicKey, ...] = (),
    **options: Any,
) -> PublishResult:
    return publications.put(index, *wheels, signing=Signing(key=key, trusted=trusted), **options)


def beside(wheel: Path) -> str:
    return f"pool/tensorflow-cpu/{wheel.name}.provenance"


# Signed -------------------------------------------------------------------------------------------


def test_all_that_is_published_is_signed_also_what_was_taken_over(
    index: Folder, key: SigningKey, tuned: Path, stock: Path
) -> None:
    done = put(index, tuned, stock, key=key)
    assert done.signers == {tuned.name: key.public.id, stock.name: key.public.id}
    entries = catalog.parse(index.read(catalog.KEY), "").entries
    objects = {
        stored["key"]: stored for stored in json.loads(index.read(MANIFEST) or b"")["objects"]
    }
    for entry in entries:
        where = f"pool/tensorflow-cpu/{entry.file}.provenance"
        data = index.read(where)
        assert data is not None
        assert verify_provenance(data, entry.file, entry.sha256, (key.public,)) == key.public.id
        assert entry.provenance is not None
        assert objects[where]["sha256"] == entry.provenance.sha256
        assert objects[where]["content_type"] == "application/vnd.pypi.integrity.v1+json"
        assert "immutable" in objects[where]["cache_control"]


def test_a_page_leads_to_the_provenance_and_says_what_is_unsigned(
    index: Folder, key: SigningKey, tuned: Path, tmp_path: Path
) -> None:
    older = stand_in(tmp_path / "made", "2.13.1")
    put(index, older)
    put(index, tuned, key=key)
    page, text = (index.read(f"{PAGE}/index.{form}") or b"" for form in ("json", "html"))
    document = json.loads(page)
    links = {file["filename"]: file["provenance"] for file in document["files"]}
    assert links[older.name] is None
    assert normpath(join(PAGE, links[tuned.name].replace("%2B", "+"))) == beside(tuned)
    assert document["meta"]["api-version"] == "1.3"
    lines = {
        line.partition(".whl")[0]: line for line in text.decode().splitlines() if "<a " in line
    }
    (signed,) = (line for line in lines.values() if "zen4" in line)
    (unsigned,) = (line for line in lines.values() if "2.13.1" in line)
    assert f'data-provenance="{links[tuned.name]}"' in signed
    assert "unsigned" not in signed
    assert unsigned.endswith("</a> unsigned<br/>")
    assert "data-provenance" not in unsigned
    assert 'content="1.3"' in text.decode()
    for shown in (
        parse_json_project_page(page.decode()).files,
        parse_html_project_page(text.decode(), "tensorflow-cpu").files,
    ):
        assert {file.filename for file in shown} == {older.name, tuned.name}


def test_without_a_key_pages_are_as_they_were(index: Folder, tuned: Path) -> None:
    done = put(index, tuned)
    assert done.signers == {tuned.name: ""}
    page = json.loads(index.read(f"{PAGE}/index.json") or b"")
    assert page["meta"]["api-version"] == "1.1"
    assert "provenance" not in page["files"][0]
    assert b"unsigned" not in (index.read(f"{PAGE}/index.html") or b"")


def test_the_same_again_changes_nothing_and_a_later_publisher_keeps_what_is_signed(
    index: Folder, key: SigningKey, tuned: Path, stock: Path
) -> None:
    put(index, tuned, stock, key=key)
    before = files(index)
    assert put(index, tuned, stock, key=key).pages == ()
    assert files(index) == before
    assert put(index, tuned).signers == {tuned.name: key.public.id}
    assert files(index) == before


def test_a_wheel_that_was_unsigned_can_be_signed_later(
    index: Folder, key: SigningKey, tuned: Path
) -> None:
    put(index, tuned)
    assert put(index, tuned, key=key).signers == {tuned.name: key.public.id}
    assert index.read(beside(tuned)) is not None


def test_an_index_made_anew_still_knows_who_signed(
    index: Folder, key: SigningKey, tuned: Path, stock: Path
) -> None:
    put(index, tuned, key=key)
    put(index, stock)
    before = {entry.file: entry.provenance for entry in catalog.reindex_pool(index).entries}
    (index.root / catalog.KEY).unlink()
    put(index, reindex=True)
    entries = catalog.parse(index.read(catalog.KEY), "").entries
    assert {entry.file: entry.provenance for entry in entries} == before
    assert before[stock.name] is None
    signed = before[tuned.name]
    assert signed is not None
    assert signed.key == key.public.id


def test_a_provenance_that_was_lost_is_noticed(index: Folder, key: SigningKey, tuned: Path) -> None:
    put(index, tuned, key=key)
    (index.root / beside(tuned)).unlink()
    with pytest.raises(PublishError, match=r"pool/.*\.provenance is missing"):
        put(index, tuned)


def test_a_provenance_by_somebody_else_is_not_taken_for_ours(
    index: Folder, key: SigningKey, other: SigningKey, tuned: Path
) -> None:
    put(index, tuned, key=other)
    before = files(index)
    with pytest.raises(PublishError, match="not signed by any of the keys") as caught:
        put(index, tuned, key=key)
    assert "--trust" in caught.value.hint
    assert files(index) == before


def test_variants_are_unsigned_and_the_others_on_their_pages_are_not(
    index: Folder, key: SigningKey, stock: Path, tmp_path: Path
) -> None:
    tuned = stand_in(tmp_path / "made", "2.14.1+v3", targets=("x86_64_v3",))
    put(index, tuned, stock, key=key)
    (variant,) = publish_variants([tuned], index, now=NOW)
    page = json.loads(index.read("variants/simple/tensorflow-cpu/index.json") or b"")
    links = {file["filename"]: file["provenance"] for file in page["files"]}
    assert links[variant] is None
    (known,) = json.loads(index.read("variants/catalog.json") or b"")["variants"]
    assert known["entry"]["provenance"] is None
    assert links[stock.name].endswith(f"{stock.name}.provenance")


# Trusted ------------------------------------------------------------------------------------------


def test_an_index_that_trusts_a_key_takes_nothing_unsigned_from_then_on(
    index: Folder, key: SigningKey, tuned: Path, stock: Path
) -> None:
    put(index, tuned, key=key, trusted=(key.public,))
    assert load_trusted(index) == (key.public,)
    before = files(index)
    with pytest.raises(PublishError, match="is unsigned") as caught:
        put(index, stock)
    assert stock.name in caught.value.message
    assert "--sign" in caught.value.hint
    assert files(index) == before
    put(index, stock, key=key)
    assert index.read(beside(stock)) is not None


def test_an_index_that_trusts_a_key_takes_none_by_another(
    index: Folder, key: SigningKey, other: SigningKey, tuned: Path, stock: Path
) -> None:
    put(index, tuned, key=key, trusted=(key.public,))
    before = files(index)
    with pytest.raises(PublishError, match=f"--sign uses key {other.public.id}"):
        put(index, stock, key=other)
    with pytest.raises(PublishError, match=f"trusts {key.public.id}, not {other.public.id}"):
        put(index, stock, key=other, trusted=(other.public,))
    assert files(index) == before


def test_a_wheel_that_was_signed_elsewhere_comes_with_its_provenance(
    index: Folder, key: SigningKey, other: SigningKey, tuned: Path
) -> None:
    entry, _ = read_entry(tuned, published=NOW)
    provenance = tuned.with_name(f"{tuned.name}.provenance")
    provenance.write_bytes(sign(make_statement(entry, None, other.public), other))
    with pytest.raises(PublishError, match="not signed by any of the keys"):
        put(index, tuned, trusted=(key.public,))
    provenance.write_bytes(sign(make_statement(entry, None, key.public), key))
    assert put(index, tuned, trusted=(key.public,)).signers == {tuned.name: key.public.id}
    assert index.read(beside(tuned)) == provenance.read_bytes()


def test_a_provenance_that_nobody_can_check_is_left_out(
    index: Folder, other: SigningKey, tuned: Path
) -> None:
    tuned.with_name(f"{tuned.name}.provenance").write_bytes(b"{}")
    assert put(index, tuned).signers == {tuned.name: ""}
    assert index.read(beside(tuned)) is None


def test_an_index_with_unsigned_wheels_trusts_a_key_once_they_are_signed(
    index: Folder, key: SigningKey, tuned: Path, stock: Path
) -> None:
    put(index, tuned, stock)
    before = files(index)
    with pytest.raises(PublishError, match="is unsigned"):
        put(index, tuned, key=key, trusted=(key.public,))
    assert files(index) == before
    with pytest.raises(PublishError, match="is not signed") as caught:
        put(index, tuned, stock, key=key, trusted=(key.public,))
    assert "--reindex" in caught.value.hint
    assert files(index) == before
    put(index, tuned, stock, key=key, trusted=(key.public,), reindex=True)
    assert load_trusted(index) == (key.public,)


def test_several_keys_can_be_trusted_as_when_one_takes_the_place_of_another(
    index: Folder, key: SigningKey, other: SigningKey, tuned: Path, stock: Path
) -> None:
    put(index, tuned, key=key, trusted=(key.public,))
    (index.root / FILE).unlink()
    both = (other.public, key.public)
    done = put(index, tuned, stock, key=other, trusted=both)
    assert done.signers == {tuned.name: key.public.id, stock.name: other.public.id}
    assert put(index, tuned, trusted=both[::-1]).pages == ()


def _altered(data: bytes) -> bytes:
    changed = bytearray(data)
    changed[changed.index(b'"signature": "') + 20] ^= 1
    return bytes(changed)


@pytest.mark.parametrize("harm", ["altered", "by another", "replaced"])
def test_what_was_done_to_an_index_meanwhile_is_not_handed_on(
    index: Folder, key: SigningKey, other: SigningKey, tuned: Path, stock: Path, harm: str
) -> None:
    put(index, tuned, key=key, trusted=(key.public,))
    path = index.root / beside(tuned)
    entry, _ = read_entry(tuned, published=NOW)
    path.write_bytes(
        {
            "altered": _altered(path.read_bytes()),
            "by another": sign(make_statement(entry, None, other.public), other),
            "replaced": b"{}",
        }[harm]
    )
    before = files(index)
    for reindex in (False, True):
        with pytest.raises(PublishError, match="provenance"):
            put(index, stock, key=key, reindex=reindex)
    assert files(index) == before


def test_keys_that_are_given_count_when_those_of_the_index_were_changed(
    index: Folder, key: SigningKey, other: SigningKey, tuned: Path, stock: Path
) -> None:
    """By who holds the bucket."""
    put(index, tuned, key=key, trusted=(key.public,))
    (index.root / FILE).unlink()
    with pytest.raises(UnverifiedError):
        put(index, stock, key=other)
    with pytest.raises(UnverifiedError, match="is signed"):
        put(index, stock)
    path = index.root / catalog.KEY
    path.write_text(json.dumps(json.loads(path.read_bytes()) | {"signature": None}), "utf-8")
    put(index, stock, key=other)
    with pytest.raises(PublishError, match="not signed by any"):
        put(index, tuned, trusted=(key.public,))


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "[]",
        '{"schema": 1}',
        '{"schema": 2, "keys": []}',
        '{"schema": 1, "keys": [{"id": "1", "pem": "x"}]}',
        '{"schema": 1, "keys": [], "identities": [{"name": "me", "issuer": "https://a.example"}]}',
    ],
)
def test_keys_of_an_index_that_cannot_be_read_stop_it(
    index: Folder, tuned: Path, text: str
) -> None:
    put(index, tuned)
    (index.root / FILE).write_text(text, "utf-8")
    with pytest.raises(RecordError, match=FILE):
        put(index, tuned)


def test_a_dry_run_says_the_same_and_writes_nothing(
    index: Folder, key: SigningKey, tuned: Path, stock: Path
) -> None:
    signed = {tuned.name: key.public.id}
    assert put(index, tuned, key=key, trusted=(key.public,), dry_run=True).signers == signed
    assert not index.root.exists()
    put(index, tuned, key=key, trusted=(key.public,))
    with pytest.raises(PublishError, match="is unsigned"):
        put(index, stock, dry_run=True)


def test_a_bucket_is_one_of_signed_wheels_as_a_folder_is(
    key: SigningKey,
    other: SigningKey,
    tuned: Path,
    stock: Path,
    s3: Served,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # With pages for one target: each is a request.
    monkeypatch.setattr("tfwheels.pages.targets_for", lambda *_: [parse_target("zen4")])
    bucket = open_bucket(NAME, "")
    done = put(bucket, tuned, key=key, trusted=(key.public,))
    assert done.signers == {tuned.name: key.public.id}
    with pytest.raises(PublishError, match="is unsigned"):
        put(bucket, stock)
    actual = s3.client.get_object(Bucket=NAME, Key=beside(tuned))
    assert actual["ContentType"] == "application/vnd.pypi.integrity.v1+json"
    entry, _ = read_entry(tuned, published=NOW)
    data = sign(make_statement(entry, None, other.public), other)
    s3.client.put_object(Bucket=NAME, Key=beside(tuned), Body=data)
    with pytest.raises(PublishError, match="was changed"):
        put(bucket, stock, key=key)
