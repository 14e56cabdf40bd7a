"""The signature of an index, attacked: changed, older, outdated and mixed copies."""

from __future__ import annotations

import dataclasses
import json
import shutil
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from http import HTTPStatus
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.builders import publications
from tests.builders.gate_comparisons import LOSS, compared
from tests.builders.index_wheels import stand_in
from tests.builders.publications import files
from tests.builders.served_index import running
from tests.builders.signing_keys import public_file

from tfbuild.upstream.download import hash_file
from tfcore.errors import PublishError, RecordError, UnverifiedError, UsageError
from tfwheels import catalog, check_index
from tfwheels.catalog import Catalog
from tfwheels.check_index import CheckedIndex, require_sound
from tfwheels.commands import SnippetOptions
from tfwheels.entry import WithdrawalKind, read_entry
from tfwheels.folder import Folder
from tfwheels.keys import SigningKey
from tfwheels.publish import MANIFEST, PublishResult
from tfwheels.reader import open_reader
from tfwheels.serve import Response, TreeServer, resolve_request
from tfwheels.signed_catalog import VALID_DAYS, check_revision, sign_catalog, verify_catalog
from tfwheels.snippet import resolve_snippet
from tfwheels.trust import FILE, Signing
from tfwheels.withdrawal import WithdrawalChange

NOW = datetime.now(UTC)
OLD, NEW = "2.14.1+haswell", "2.14.2+haswell"


def put(index: Folder, key: SigningKey | None, *wheels: Path, **options: Any) -> PublishResult:
    trusted = (key.public,) if key else ()
    options = {"now": NOW.isoformat(timespec="seconds")} | options
    return publications.put(index, *wheels, signing=Signing(key=key, trusted=trusted), **options)


@pytest.fixture
def old(tmp_path: Path) -> Path:
    return stand_in(tmp_path / "made", OLD, targets=("haswell",))


@pytest.fixture
def new(tmp_path: Path) -> Path:
    return stand_in(tmp_path / "made", NEW, targets=("haswell",))


@pytest.fixture
def index(tmp_path: Path, key: SigningKey, old: Path) -> Folder:
    folder = Folder(root=tmp_path / "index")
    put(folder, key, old)
    return folder


@pytest.fixture
def check(tmp_path: Path, key: SigningKey) -> Callable[..., CheckedIndex]:
    """Check an index as one client does, at any time."""

    def run(index: Folder | str, later: timedelta = timedelta(0)) -> CheckedIndex:
        at = index if isinstance(index, str) else str(index.root)
        with open_reader(at) as reader:
            checked = check_index.check_index(
                reader,
                (key.public,),
                target="skylake",
                now=datetime.now(UTC) + later,
                history=tmp_path / "history",
            )
        require_sound(checked)
        return checked

    return run


def swap_in(copy: Path, index: Folder) -> None:
    """Put another tree in the place of the index."""
    shutil.rmtree(index.root)
    copy.rename(index.root)


def read(index: Folder) -> Catalog:
    return catalog.parse(index.read(catalog.KEY), "")


def edit(index: Folder, change: Callable[[dict[str, Any]], None]) -> None:
    """Change the catalog as somebody who can write to the index, but has no key."""
    path = index.root / catalog.KEY
    fields = json.loads(path.read_bytes())
    change(fields)
    path.write_text(json.dumps(fields), "utf-8")


def retarget(fields: dict[str, Any]) -> None:
    fields["entries"][0]["targets"] = ["x86_64_v2"]


def judge(fields: dict[str, Any]) -> None:
    fields["entries"][0]["gating"] = {"passed": True, "faults": [], "gaps": [], "evidence": []}


def empty(fields: dict[str, Any]) -> None:
    fields["entries"] = []


def strip(fields: dict[str, Any]) -> None:
    fields["signature"] = None


def postpone(fields: dict[str, Any]) -> None:
    fields["signature"]["expires"] = "2999-01-01T00:00:00+00:00"


def count_up(fields: dict[str, Any]) -> None:
    fields["revision"] += 1


def foreign(fields: dict[str, Any]) -> None:
    fields["signature"]["value"] = "not hex"


CHANGES = (retarget, judge, empty, strip, postpone, count_up, foreign)


# Signed -------------------------------------------------------------------------------------------


def test_a_signed_index_is_sound_for_a_client(
    index: Folder, key: SigningKey, check: Callable[..., CheckedIndex]
) -> None:
    checked = check(index)
    assert checked.key == key.public.id
    assert checked.revision == read(index).revision
    assert checked.files == len(json.loads(index.read(MANIFEST) or b"")["objects"]) - sum(
        stored["key"] != stored["file"]
        for stored in json.loads(index.read(MANIFEST) or b"")["objects"]
    )


def test_a_client_on_the_network_sees_the_same(
    index: Folder, check: Callable[..., CheckedIndex]
) -> None:
    with running(TreeServer(index.root, 0)) as server:
        checked = check(f"http://127.0.0.1:{server.server_port}")
    assert checked.faults == ()
    assert 0 < checked.files < check(index).files


def test_the_same_again_keeps_the_signature_and_renew_makes_another(
    index: Folder, key: SigningKey, old: Path
) -> None:
    before = files(index)
    put(index, key, old, now=(NOW + timedelta(days=1)).isoformat(timespec="seconds"))
    assert files(index) == before
    put(index, key, renew=True, now=(NOW + timedelta(days=1)).isoformat(timespec="seconds"))
    first, second = catalog.parse(before[catalog.KEY], ""), read(index)
    assert second.revision == first.revision + 1
    assert second.entries == first.entries
    assert first.signature is not None
    assert second.signature is not None
    assert second.signature.expires > first.signature.expires


def test_a_signature_holds_for_fields_that_a_later_version_adds(key: SigningKey) -> None:
    """It covers the file, not what this version knows of it."""
    signed = sign_catalog(Catalog(), key, manifest="0" * 64, now=NOW.isoformat(), index="1")
    assert verify_catalog(signed.to_bytes(), (key.public,), "index")[0] == signed
    compact = json.dumps(json.loads(signed.to_bytes())).encode()
    assert verify_catalog(compact, (key.public,), "index")[0] == signed


# Attacked -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("change", CHANGES)
def test_a_changed_catalog_stops_publishers_and_clients(
    change: Callable[[dict[str, Any]], None],
    index: Folder,
    key: SigningKey,
    new: Path,
    check: Callable[..., CheckedIndex],
) -> None:
    edit(index, change)
    before = files(index)
    if change is not empty:  # (an empty catalog is a new index to a publisher)
        with pytest.raises(PublishError):
            put(index, key, new)
        assert files(index) == before
    with pytest.raises((PublishError, RecordError)):
        check(index)


@given(data=st.data())
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
def test_no_changed_field_of_a_catalog_keeps_the_signature(
    data: st.DataObject, key: SigningKey, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("catalog")
    path = stand_in(folder, OLD, targets=("haswell",))
    entry = read_entry(path, published="2026-01-01T00:00:00+00:00")[0]
    signed = sign_catalog(
        Catalog(revision=3, entries=(entry,)),
        key,
        manifest="0" * 64,
        now=NOW.isoformat(),
        index="1",
    )
    fields = json.loads(signed.to_bytes())
    spot: Any = fields
    name: Any = data.draw(st.sampled_from(sorted(fields)))
    while isinstance(spot[name], dict | list) and spot[name]:
        spot = spot[name]
        name = data.draw(
            st.sampled_from(sorted(spot) if isinstance(spot, dict) else range(len(spot)))
        )
    value = data.draw(
        st.one_of(st.integers(), st.text(max_size=5), st.booleans(), st.none()).filter(
            lambda drawn: (type(drawn), drawn) != (type(spot[name]), spot[name])
        )
    )
    spot[name] = value
    with pytest.raises((PublishError, RecordError)):
        verify_catalog(json.dumps(fields).encode(), (key.public,), "index")


def test_a_catalog_by_another_key_is_not_taken(
    index: Folder, other: SigningKey, new: Path, key: SigningKey, check: Callable[..., CheckedIndex]
) -> None:
    signed = sign_catalog(read(index), other, manifest="0" * 64, now=NOW.isoformat(), index="1")
    (index.root / catalog.KEY).write_bytes(signed.to_bytes())
    with pytest.raises(UnverifiedError, match=key.public.id):
        check(index)
    with pytest.raises(UnverifiedError):
        put(index, key, new)


def test_keys_that_only_the_index_names_may_not_sign_its_catalog(
    index: Folder, key: SigningKey, other: SigningKey, old: Path, new: Path
) -> None:
    """Somebody adds a key to trusted-keys.json, and a wheel; the publisher must not sign that."""
    evil = Signing(key=other, trusted=(other.public, key.public))
    (index.root / FILE).unlink()
    edit(index, strip)
    publications.put(index, new, old, signing=evil, reindex=True)
    before = files(index)
    for options in ({"renew": True}, {}):
        with pytest.raises(PublishError, match=key.public.id):
            publications.put(index, signing=Signing(key=key), **options)
    assert files(index) == before


def test_an_older_copy_of_the_index_is_noticed(
    index: Folder, key: SigningKey, new: Path, tmp_path: Path, check: Callable[..., CheckedIndex]
) -> None:
    copy = shutil.copytree(index.root, tmp_path / "copy")
    put(index, key, new)
    check(index)
    swap_in(copy, index)
    with pytest.raises(PublishError, match="went back to revision"):
        check(index)


def test_another_index_of_the_same_publisher_is_noticed(
    index: Folder,
    key: SigningKey,
    old: Path,
    new: Path,
    tmp_path: Path,
    check: Callable[..., CheckedIndex],
) -> None:
    """Such as one for trials, with a higher revision."""
    staging = Folder(root=tmp_path / "staging")
    put(staging, key, old)
    put(staging, key, new)
    put(index, key, history=tmp_path / "own", renew=True)
    check(index)
    swap_in(staging.root, index)
    with pytest.raises(PublishError, match="is another index"):
        check(index)
    with pytest.raises(PublishError, match="is another index"):
        put(index, key, history=tmp_path / "own", renew=True)


def test_a_publisher_notices_what_a_client_notices(
    index: Folder,
    key: SigningKey,
    old: Path,
    new: Path,
    tmp_path: Path,
    check: Callable[..., CheckedIndex],
) -> None:
    own: dict[str, Any] = {"history": tmp_path / "own"}
    copy = Path(shutil.copytree(index.root, tmp_path / "copy"))
    put(index, key, new, **own)
    check(index)
    swap_in(copy, index)
    with pytest.raises(PublishError, match="went back"):
        put(index, key, new, **own)
    put(index, key, new, reindex=True, **own)
    assert check(index).faults == ()
    for empties in (True, False):
        kept = index.read(catalog.KEY) or b""
        edit(index, strip)
        if empties:
            edit(index, empty)
        for signing in (Signing(key=key, trusted=(key.public,)), Signing(), Signing(key=key)):
            with pytest.raises(UnverifiedError):
                publications.put(index, old, signing=signing, **own)
        (index.root / catalog.KEY).write_bytes(kept)
    (index.root / FILE).unlink()
    for signing in (Signing(key=key), Signing()):
        with pytest.raises(PublishError):
            publications.put(index, old, new, signing=signing, reindex=True, **own)
    assert check(index).faults == ()


def test_an_expired_catalog_is_signed_again_only_if_that_is_asked_for(
    index: Folder, key: SigningKey, new: Path
) -> None:
    late = (NOW + timedelta(days=VALID_DAYS + 1)).isoformat(timespec="seconds")
    with pytest.raises(PublishError, match="expired"):
        put(index, key, new, now=late)
    put(index, key, new, now=late, renew=True)
    put(index, key, new, now=late)


def test_a_catalog_near_its_end_is_signed_again_by_any_publishing(
    index: Folder, key: SigningKey, old: Path
) -> None:
    before = read(index)
    put(index, key, old, now=(NOW + timedelta(days=40)).isoformat(timespec="seconds"))
    assert read(index) == before
    put(index, key, old, now=(NOW + timedelta(days=50)).isoformat(timespec="seconds"))
    assert read(index).revision == before.revision + 1


def test_a_comparison_that_was_changed_in_the_pool_gives_no_verdict(
    key: SigningKey, old: Path, tmp_path: Path
) -> None:
    judgement = compared(tmp_path / "measured", old, LOSS)
    index = Folder(root=tmp_path / "judged")
    put(index, key, old, judgements={hash_file(old): judgement})
    (before,) = read(index).entries
    assert before.verdicts
    put(index, key, reindex=True)
    assert read(index).entries[0].verdicts == before.verdicts
    (path,) = index.root.glob("pool/*/*.comparison*")
    path.write_bytes(path.read_bytes().replace(b"slower", b"faster"))
    put(index, key, reindex=True)
    assert read(index).entries[0].verdicts == ()


def test_two_copies_with_one_revision_are_noticed(
    index: Folder,
    key: SigningKey,
    old: Path,
    new: Path,
    tmp_path: Path,
    check: Callable[..., CheckedIndex],
) -> None:
    copy = Folder(root=Path(shutil.copytree(index.root, tmp_path / "copy")))
    put(index, key, new)
    put(copy, key, stand_in(tmp_path, "2.14.3+haswell", targets=("haswell",)))
    assert read(copy).revision == read(index).revision
    check(index)
    swap_in(copy.root, index)
    with pytest.raises(PublishError, match="another catalog with revision"):
        check(index)


def test_a_copy_that_nobody_renews_ends(
    index: Folder, key: SigningKey, check: Callable[..., CheckedIndex]
) -> None:
    check(index, timedelta(days=VALID_DAYS - 1))
    with pytest.raises(PublishError, match="expired") as caught:
        check(index, timedelta(days=VALID_DAYS + 1))
    assert "--renew" in caught.value.hint
    put(index, key, renew=True, now=(NOW + timedelta(days=80)).isoformat(timespec="seconds"))
    check(index, timedelta(days=VALID_DAYS + 1))


@pytest.mark.parametrize(
    "key_of_file",
    [
        "simple/skylake/tensorflow-cpu/index.json",
        "simple/skylake/tensorflow-cpu/index.html",
        "simple/skylake/index.json",
        "manifest.json",
    ],
)
def test_an_older_file_among_new_ones_is_noticed(
    key_of_file: str,
    index: Folder,
    key: SigningKey,
    new: Path,
    tmp_path: Path,
    check: Callable[..., CheckedIndex],
) -> None:
    before = index.read(key_of_file) or b""
    put(index, key, new, stand_in(tmp_path, "1.0", name="gast", python="py3"))
    assert index.read(key_of_file) != before
    check(index)
    (index.root / key_of_file).write_bytes(before)
    with pytest.raises(PublishError):
        check(index)
    with running(TreeServer(index.root, 0)) as server, pytest.raises(PublishError):
        check(f"http://127.0.0.1:{server.server_port}")


def test_what_a_server_sends_for_a_folder_is_checked(
    index: Folder, check: Callable[..., CheckedIndex], monkeypatch: pytest.MonkeyPatch
) -> None:
    """pip asks for folders; on an object store these are objects of their own."""

    def serve_evil(root: Path, url: str, accept: str) -> Response:
        if url.endswith("/tensorflow-cpu/"):
            return Response(status=HTTPStatus.OK, key="simple/index.html")
        return resolve_request(root, url, accept)

    with running(TreeServer(index.root, 0)) as server:
        at = f"http://127.0.0.1:{server.server_port}"
        check(at)
        monkeypatch.setattr("tfwheels.serve.resolve_request", serve_evil)
        with pytest.raises(PublishError, match="1 file"):
            check(at)


def test_a_target_without_pages_is_no_sound_index(
    index: Folder, key: SigningKey, tmp_path: Path
) -> None:
    with (
        running(TreeServer(index.root, 0)) as server,
        open_reader(f"http://127.0.0.1:{server.server_port}") as reader,
        pytest.raises(PublishError, match="no pages for neoverse_n1"),
    ):
        check_index.check_index(
            reader, (key.public,), target="neoverse_n1", now=datetime.now(UTC), history=tmp_path
        )


@pytest.mark.parametrize("revision", [-1, 1 << 62, 10**4200])
def test_a_revision_out_of_range_is_one_line(index: Folder, key: SigningKey, revision: int) -> None:
    edit(index, lambda fields: fields.update(revision=revision))
    with pytest.raises(RecordError, match="revision"):
        put(index, key)


def test_another_file_in_the_index_is_noticed(
    index: Folder, key: SigningKey, old: Path, check: Callable[..., CheckedIndex]
) -> None:
    """A page of a package that the publisher does not have: dependency confusion."""
    extra = index.root / "simple" / "skylake" / "numpy"
    extra.mkdir()
    (extra / "index.html").write_text("<a href='numpy-99.whl'>numpy-99.whl</a>", "utf-8")
    with pytest.raises(PublishError, match="1 file"):
        check(index)
    (extra / "index.html").unlink()
    (extra / "torch").symlink_to(index.root / "simple" / "zen4")
    with pytest.raises(PublishError, match="1 file"):
        check(index)
    (extra / "torch").unlink()
    wheel = index.root / "pool" / "tensorflow-cpu" / old.name
    wheel.write_bytes(wheel.read_bytes() + b"\0")
    with pytest.raises(PublishError, match="1 file"):
        check(index)
    wheel.unlink()
    with pytest.raises(PublishError, match="1 file"):
        check(index)


def test_a_snippet_comes_from_the_signed_catalog_and_not_from_a_changed_page(
    index: Folder, key: SigningKey, new: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TENSORWRIGHT_CACHE", str(tmp_path / "cache"))
    page = "simple/skylake/tensorflow-cpu/index.json"
    before = index.read(page) or b""
    put(index, key, new)
    (index.root / page).write_bytes(before)
    trust = str(public_file(tmp_path, key.public))

    def choose(trust: str) -> str:
        options = SnippetOptions(at=str(index.root), arch="skylake", trust=trust)
        return resolve_snippet(options).file

    assert choose("") == publications_name(OLD)
    assert choose(trust) == new.name
    edit(index, retarget)
    with pytest.raises(UnverifiedError):
        choose(trust)


def publications_name(version: str) -> str:
    return f"tensorflow_cpu-{version}-cp311-cp311-manylinux_2_17_x86_64.manylinux2014_x86_64.whl"


def test_a_withdrawal_is_signed_and_cannot_be_taken_back_by_others(
    index: Folder, key: SigningKey, old: Path, check: Callable[..., CheckedIndex]
) -> None:
    change = WithdrawalChange(names=(old.name,), kind=WithdrawalKind.QUARANTINED, reason="wrong")
    with pytest.raises(PublishError, match="is signed") as caught:
        put(index, None, change=change)
    assert "--sign" in caught.value.hint
    put(index, key, change=change)
    check(index)
    edit(index, lambda fields: fields["entries"][0].update(withdrawal=None))
    with pytest.raises(UnverifiedError):
        check(index)


# Mended -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("change", CHANGES)
def test_reading_the_pool_again_mends_a_changed_catalog(
    change: Callable[[dict[str, Any]], None],
    index: Folder,
    key: SigningKey,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    check: Callable[..., CheckedIndex],
) -> None:
    own: dict[str, Any] = {"history": tmp_path / "own"}
    put(index, key, renew=True, **own)
    check(index)
    (before,) = read(index).entries
    edit(index, change)
    put(index, key, reindex=True, **own)
    assert "yank and quarantine such wheels again" in capsys.readouterr().err
    (after,) = read(index).entries
    assert (after.targets, after.sha256) == (before.targets, before.sha256)
    assert after.gating is None or not after.gating.passed
    check(index)


def test_an_index_of_before_catalogs_were_signed_is_signed_after_its_pool_was_read(
    index: Folder, key: SigningKey, new: Path, check: Callable[..., CheckedIndex]
) -> None:
    edit(index, strip)
    with pytest.raises(UnverifiedError, match="is not signed") as caught:
        put(index, key, new)
    assert "--reindex" in caught.value.hint
    put(index, key, new, reindex=True)
    check(index)


def test_a_key_that_takes_the_place_of_another_signs_the_catalog(
    index: Folder, key: SigningKey, other: SigningKey, old: Path, check: Callable[..., CheckedIndex]
) -> None:
    (index.root / FILE).unlink()
    both = Signing(key=other, trusted=(other.public, key.public))
    publications.put(index, old, signing=both, renew=True, now=NOW.isoformat(timespec="seconds"))
    signature = read(index).signature
    assert signature is not None
    assert signature.key == other.public.id
    with pytest.raises(UnverifiedError):
        check(index)


def test_a_damaged_history_says_how_to_mend_it(tmp_path: Path) -> None:
    check_revision(b"x", Catalog(revision=1), "https://i.example", tmp_path)
    (path,) = tmp_path.iterdir()
    for text in ("{", "[]", '{"schema": 1}', '{"schema": 2}'):
        path.write_text(text, "utf-8")
        with pytest.raises(RecordError):
            check_revision(b"x", Catalog(revision=1), "https://i.example", tmp_path)


def test_a_run_that_was_killed_before_the_catalog_is_completed(
    index: Folder, key: SigningKey, new: Path, check: Callable[..., CheckedIndex]
) -> None:
    before = index.read(catalog.KEY) or b""
    put(index, key, new)
    (index.root / catalog.KEY).write_bytes(before)  # (the pages and the manifest are new)
    with pytest.raises(PublishError, match="manifest"):
        check(index)
    put(index, key, new)
    check(index)


@pytest.mark.parametrize("at", ["", "no-such", "ftp://x", "https://a b"])
def test_a_place_that_is_no_index_is_one_line(at: str) -> None:
    with pytest.raises(UsageError), open_reader(at):
        pass


def test_what_is_checked_is_described(index: Folder, check: Callable[..., CheckedIndex]) -> None:
    checked = dataclasses.replace(check(index), faults=tuple(f"page {n}" for n in range(40)))
    text = check_index.describe(checked)
    assert "40 faults" in text
    assert "and 10 more" in text
    with pytest.raises(PublishError, match="40 files"):
        require_sound(checked)
