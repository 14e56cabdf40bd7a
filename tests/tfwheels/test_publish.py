"""Publishing into a real folder and a real S3 API: also killed, full, and two at once."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import json
import os
import re
import signal
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from posixpath import join, normpath
from urllib.parse import unquote

import pytest
from tests.builders.buckets import NAME, Served
from tests.builders.file_limits import file_limit
from tests.builders.gate_comparisons import GAIN, LOSS, compared
from tests.builders.index_wheels import stand_in
from tests.builders.publications import FORK, NOW, die_at_write, files, put, sha256, stamps
from tests.tools.crowd import crowd

from tfbuild.upstream.download import hash_file
from tfcore.cpus.targets import list_targets, parse_target
from tfcore.errors import (
    BusyError,
    ChecksumError,
    DiskError,
    PublishError,
    RecordError,
    WheelError,
)
from tfcore.records import format_canonical
from tfcore.run import run
from tfwheels import catalog
from tfwheels.bucket import Bucket, open_bucket
from tfwheels.catalog import Catalog
from tfwheels.entry import GateResult
from tfwheels.folder import Folder
from tfwheels.gate import format_comparison_name
from tfwheels.layout import build_metadata_key
from tfwheels.publish import MANIFEST, publish
from tfwheels.store import Store

PROJECT = "tensorflow-cpu"
ALL = {target.name for target in list_targets("x86_64")}
FEW = {"ivybridge", "haswell", "zen4"}
ZEN4 = parse_target("zen4").features
# Where an index shows a wheel for zen4.
TOUCHED = ("pool", "simple/zen4")

Files = Mapping[str, bytes]


def listed(actual: Files, target: str, project: str = PROJECT) -> set[str]:
    """The wheels on the target's page."""
    page = json.loads(actual[f"simple/{target}/{project}/index.json"])
    return {file["filename"] for file in page["files"]}


def need_consistent(actual: Files) -> None:
    """Every file that a page names is there, with the hashes that the page gives."""
    shown = [key for key in actual if re.fullmatch(r"simple/[^/]+/[^/]+/index\.\w+", key)]
    assert shown
    for key in shown:
        if key.endswith(".json"):
            for file in json.loads(actual[key])["files"]:
                wheel = normpath(join(key, "..", unquote(file["url"])))
                assert sha256(actual[wheel]) == file["hashes"]["sha256"]
                assert len(actual[wheel]) == file["size"]
                metadata = actual[f"{wheel}.metadata"]
                assert sha256(metadata) == file["core-metadata"]["sha256"]
        else:
            links = re.findall(r'href="([^"#]+)#sha256=(\w+)"', actual[key].decode())
            assert links or b" lacks avx" in actual[key]
            for url, digest in links:
                assert sha256(actual[normpath(join(key, "..", unquote(url)))]) == digest


def need_agreement(actual: Files, names: set[str]) -> None:
    """These targets have their pages, and both forms of each list the same."""
    for name in names:
        assert {f"simple/{name}/index.html", f"simple/{name}/index.json"} <= set(actual)
        html = actual[f"simple/{name}/{PROJECT}/index.html"].decode()
        assert set(re.findall(r">([^<]+\.whl)<", html)) == listed(actual, name)


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("wheels")
    tuned = {
        target: stand_in(folder, f"2.14.1+{target}", targets=(target,), content=b"x" * 10_000)
        for target in ("haswell", "zen4", "sapphirerapids")
    }
    return tuned | {"stock": stand_in(folder, "2.14.1")}


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(root=tmp_path / "index")


@pytest.fixture
def bucket(s3: Served, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Bucket:
    """A part of the bucket for each test, with pages for a few targets: each is a request."""
    few = [parse_target(name) for name in FEW]
    monkeypatch.setattr("tfwheels.pages.targets_for", lambda *_: few)
    return open_bucket(NAME, f"{sha256(request.node.nodeid.encode())[:12]}/")


def test_each_target_gets_one_wheel_and_the_summary_says_which(
    folder: Folder, wheels: dict[str, Path]
) -> None:
    done = put(folder, wheels["stock"], wheels["haswell"], wheels["zen4"])
    actual = files(folder)
    need_consistent(actual)
    need_agreement(actual, ALL)
    expected = {"zen4": "zen4", "zen5": "zen4", "skylake": "haswell", "ivybridge": "stock"}
    assert (listed(actual, "nehalem"), done.choices["nehalem"]) == (set(), ())
    for target, wheel in expected.items():
        assert listed(actual, target) == {wheels[wheel].name}
        assert [choice.entry.file for choice in done.choices[target]] == [wheels[wheel].name]
    assert set(done.choices) == ALL
    assert set(done.added) == {wheels[name].name for name in ("stock", "haswell", "zen4")}
    assert set(done.pages) == {key for key in actual if key.startswith("simple/")}


def test_a_tuned_wheel_for_arm_stands_beside_the_stock_one_of_its_package(
    folder: Folder, tmp_path: Path
) -> None:
    """Up to 2.15 TensorFlow's aarch64 wheels are those of tensorflow-cpu-aws."""
    name, core = "tensorflow_cpu_aws", "neoverse_v1"
    stock = stand_in(tmp_path, "2.14.1", name=name, machine="aarch64")
    tuned = stand_in(tmp_path, "2.14.1+v1", name=name, machine="aarch64", targets=(core,))
    publish([stock, tuned], folder, judgements={}, now=NOW)
    actual = files(folder)
    assert listed(actual, core, "tensorflow-cpu-aws") == {tuned.name}
    assert listed(actual, "neoverse_n1", "tensorflow-cpu-aws") == {stock.name}


def test_the_same_again_writes_nothing(folder: Folder, wheels: dict[str, Path]) -> None:
    put(folder, wheels["stock"], wheels["zen4"])
    before = stamps(folder)
    done = put(folder, wheels["zen4"])
    assert stamps(folder) == before
    assert (done.added, done.present, done.pages) == ((), (wheels["zen4"].name,), ())


def test_a_wheel_more_touches_only_its_own_pages(folder: Folder, tmp_path: Path) -> None:
    put(folder, *crowd(tmp_path / "crowd", 24))
    before, old = stamps(folder), files(folder)
    wheel = stand_in(tmp_path, "2.99.0+zen4", targets=("zen4",))
    done = put(folder, wheel)
    after = stamps(folder)
    changed = {key for key in after if after[key] != before.get(key)}
    pool = f"pool/{PROJECT}/{wheel.name}"
    assert changed == {*done.pages, pool, f"{pool}.metadata", MANIFEST, catalog.KEY}
    takers = {name for name, choices in done.choices.items() if choices}
    assert takers >= {"zen4", "zen5"}
    assert all(
        target.features >= ZEN4 for target in list_targets("x86_64") if target.name in takers
    )
    assert set(done.pages) == {
        f"simple/{target}/{PROJECT}/index.{form}" for target in takers for form in ("html", "json")
    }
    assert all(old[key] == files(folder)[key] for key in old if key not in changed)


def test_a_dry_run_says_the_same_and_writes_nothing(
    folder: Folder, wheels: dict[str, Path]
) -> None:
    would = put(folder, wheels["stock"], dry_run=True)
    assert not folder.root.exists()
    assert would == put(folder, wheels["stock"])


def test_the_manifest_has_every_file_that_an_object_store_needs(
    folder: Folder, wheels: dict[str, Path]
) -> None:
    put(folder, wheels["stock"], wheels["zen4"])
    actual = files(folder)
    objects = json.loads(actual[MANIFEST])["objects"]
    assert {entry["file"] for entry in objects} == set(actual) - {MANIFEST, catalog.KEY}
    for stored in objects:
        assert sha256(actual[stored["file"]]) == stored["sha256"]
        assert len(actual[stored["file"]]) == stored["size"]
    assert f"simple/zen4/{PROJECT}/" in {entry["key"] for entry in objects}


def test_a_verdict_is_published_beside_its_wheel(
    folder: Folder, wheels: dict[str, Path], tmp_path: Path
) -> None:
    judgement = compared(tmp_path, wheels["zen4"])
    put(folder, wheels["zen4"])
    put(folder, wheels["zen4"], judgements={hash_file(wheels["zen4"]): judgement})
    (verdict,) = catalog.parse(folder.read(catalog.KEY), "").entries[0].verdicts
    shown = folder.read(f"pool/{PROJECT}/{verdict.file}")
    assert shown is not None
    assert sha256(shown) == verdict.sha256
    put(folder, wheels["zen4"])
    assert catalog.parse(folder.read(catalog.KEY), "").entries[0].verdicts == (verdict,)


def gatings(folder: Folder) -> list[GateResult | None]:
    return [entry.gating for entry in catalog.parse(folder.read(catalog.KEY), "").entries]


def test_how_a_wheel_passed_is_kept_also_when_the_catalog_is_made_again(
    folder: Folder, wheels: dict[str, Path], tmp_path: Path
) -> None:
    zen4 = wheels["zen4"]
    judgement = compared(tmp_path, zen4)
    slower = dataclasses.replace(judgement, faults=("it is slower (in /srv/ann/model.py)",))
    put(folder, zen4, judgements={hash_file(zen4): slower})
    refused = GateResult(passed=False, faults=("it is slower (in model.py)",))
    assert gatings(folder) == [refused]
    assert (
        b"without passing the gate: it is slower"
        in files(folder)[f"simple/zen4/{PROJECT}/index.html"]
    )
    put(folder, reindex=True)
    assert gatings(folder) == [refused]
    put(folder, zen4, judgements={hash_file(zen4): judgement})
    assert gatings(folder) == [dataclasses.replace(refused, passed=True)]
    (folder.root / catalog.KEY).unlink()
    put(folder, reindex=True)
    assert gatings(folder) == [GateResult(passed=True)], "by the comparison beside it"


def test_a_refused_wheel_is_still_refused_when_the_catalog_is_lost(
    folder: Folder, wheels: dict[str, Path], tmp_path: Path
) -> None:
    """The comparison with the loss gives no listed verdict, but it is stored beside the wheel."""
    zen4 = wheels["zen4"]
    judgement = compared(tmp_path, zen4, GAIN, LOSS)
    ((file, digest),) = judgement.evidence
    assert file != judgement.verdicts[0].file
    put(folder, zen4, judgements={hash_file(zen4): judgement})
    assert sha256(files(folder)[f"pool/{PROJECT}/{file}"]) == digest
    (refused,) = gatings(folder)
    assert refused is not None
    assert not refused.passed
    assert refused.faults[0].startswith("it is slower")
    (folder.root / catalog.KEY).unlink()
    put(folder, reindex=True)
    assert gatings(folder) == [refused]
    need_consistent(files(folder))


def test_a_comparison_that_an_older_version_stored_keeps_its_name(
    folder: Folder, wheels: dict[str, Path], tmp_path: Path
) -> None:
    """It lacks fields that this version would write, so it would get other bytes."""
    zen4 = wheels["zen4"]
    judgement = compared(tmp_path, zen4)
    fields = json.loads(next(iter(judgement.published.values())))
    del fields["cells"][0]["decisions"]
    content = format_canonical(fields).encode()
    name = format_comparison_name(zen4.name, sha256(content))
    (verdict,) = judgement.verdicts
    older = dataclasses.replace(
        judgement,
        verdicts=(dataclasses.replace(verdict, file=name, sha256=sha256(content)),),
        published={name: content},
    )
    put(folder, zen4, judgements={hash_file(zen4): older})
    before = catalog.parse(folder.read(catalog.KEY), "").entries
    put(folder, reindex=True)
    assert catalog.parse(folder.read(catalog.KEY), "").entries == before


def test_evidence_that_the_pool_has_lost_does_not_stop_an_index(
    folder: Folder, wheels: dict[str, Path], tmp_path: Path
) -> None:
    zen4 = wheels["zen4"]
    judgement = compared(tmp_path, zen4, GAIN, LOSS)
    put(folder, zen4, judgements={hash_file(zen4): judgement})
    ((file, _),) = judgement.evidence
    (folder.root / "pool" / PROJECT / file).unlink()
    put(folder, reindex=True)
    (gating,) = gatings(folder)
    assert gating is not None
    assert (gating.passed, gating.evidence) == (False, ())
    assert gating.faults == judgement.gating.faults


def test_a_wheel_without_a_comparison_comes_back_as_one_that_did_not_pass(
    folder: Folder, wheels: dict[str, Path]
) -> None:
    put(folder, wheels["stock"], wheels["zen4"])
    (folder.root / catalog.KEY).unlink()
    put(folder, reindex=True)
    assert gatings(folder) == [GateResult(passed=False), None]


def test_a_wheel_that_changed_after_it_was_checked_is_not_published(
    folder: Folder, wheels: dict[str, Path]
) -> None:
    stock, zen4 = wheels["stock"], wheels["zen4"]
    checked = {stock: hash_file(stock), zen4: "0" * 64}
    for dry_run in (True, False):
        with pytest.raises(ChecksumError, match=r"zen4.*changed after it was checked"):
            put(folder, stock, zen4, checked=checked, dry_run=dry_run)
    assert not folder.root.exists()


@pytest.mark.parametrize("known", [True, False])
def test_other_bytes_under_a_published_name_are_refused(
    folder: Folder, wheels: dict[str, Path], tmp_path: Path, *, known: bool
) -> None:
    """Also when the catalog does not know them, as after a run that was killed."""
    put(folder, wheels["stock"], wheels["zen4"])
    if not known:
        folder.put(catalog.KEY, Catalog().to_bytes())
    before = stamps(folder)
    other_path = stand_in(tmp_path, "2.14.1+zen4", targets=("zen4",), content=b"other")
    with pytest.raises(PublishError) as caught:
        put(folder, other_path)
    assert hash_file(other_path) in caught.value.message
    assert hash_file(wheels["zen4"]) in caught.value.message
    assert stamps(folder) == before


def test_an_index_that_has_lost_a_wheel_says_so_and_writes_no_page(
    folder: Folder, wheels: dict[str, Path]
) -> None:
    put(folder, wheels["stock"], wheels["zen4"])
    lost = folder.root / "pool" / PROJECT / wheels["zen4"].name
    lost.unlink()
    shown = {key: data for key, data in files(folder).items() if key.startswith("simple/")}
    with pytest.raises(PublishError, match=f"pool/{PROJECT}/.*zen4"):
        put(folder, wheels["haswell"])
    assert {key: files(folder)[key] for key in shown} == shown
    done = put(folder, wheels["haswell"], wheels["zen4"])
    need_consistent(files(folder))
    lines = tuple(wheels[name].name for name in ("haswell", "zen4"))
    assert (done.added, done.restored, done.present) == (lines[:1], lines[1:], ())


def test_lost_metadata_is_restored(folder: Folder, wheels: dict[str, Path]) -> None:
    put(folder, wheels["zen4"])
    (lost,) = folder.root.glob("pool/*/*.metadata")
    lost.unlink()
    would = put(folder, wheels["zen4"], dry_run=True)
    assert (would.restored, would.present) == ((wheels["zen4"].name,), ())
    assert not lost.exists()
    assert put(folder, wheels["zen4"]).restored == (wheels["zen4"].name,)
    assert put(folder, wheels["zen4"]).restored == ()
    need_consistent(files(folder))


def tampered(data: bytes) -> bytes:
    """A wheel of the same size in which a byte differs that no archive reader looks at."""
    return data[:10] + bytes([data[10] ^ 1]) + data[11:]


@pytest.mark.parametrize("reindex", [False, True])
@pytest.mark.parametrize("dry_run", [False, True])
def test_other_bytes_of_the_same_size_in_the_pool_are_noticed(
    folder: Folder, wheels: dict[str, Path], *, reindex: bool, dry_run: bool
) -> None:
    """With the time of the right ones, too. Once they are gone, publishing brings those back."""
    put(folder, wheels["stock"], wheels["zen4"])
    wheel = folder.root / "pool" / PROJECT / wheels["zen4"].name
    before = wheel.stat()
    wheel.write_bytes(tampered(wheel.read_bytes()))
    os.utime(wheel, ns=(before.st_atime_ns, before.st_mtime_ns))
    remaining = stamps(folder)
    with pytest.raises(PublishError) as caught:
        put(folder, wheels["haswell"], wheels["zen4"], reindex=reindex, dry_run=dry_run)
    for text in (f"pool/{PROJECT}/{wheel.name}", hash_file(wheel), hash_file(wheels["zen4"])):
        assert text in caught.value.message
    assert "publish the wheel again" in caught.value.hint
    assert stamps(folder) == remaining
    wheel.unlink()
    assert put(folder, wheels["haswell"], wheels["zen4"]).restored == (wheel.name,)
    need_consistent(files(folder))


def test_metadata_that_changed_in_the_pool_is_found_when_all_is_read_again(
    folder: Folder, wheels: dict[str, Path]
) -> None:
    """Else pip would refuse each install, because the page has the hash of the wheel's own."""
    stock = wheels["stock"]
    put(folder, stock)
    metadata = folder.root / build_metadata_key(PROJECT, stock.name)
    metadata.write_bytes(metadata.read_bytes() + b"Requires-Dist: evil\n")
    with pytest.raises(PublishError, match=r"metadata with other bytes") as caught:
        put(folder, reindex=True)
    assert "publish the wheel again" in caught.value.hint
    metadata.unlink()
    assert put(folder, stock).restored == (stock.name,)
    put(folder, reindex=True)
    need_consistent(files(folder))


def test_a_file_that_cannot_be_read_is_an_error_with_its_name(
    folder: Folder, wheels: dict[str, Path]
) -> None:
    (folder.root / "pool" / PROJECT / wheels["zen4"].name).mkdir(parents=True)
    with pytest.raises(PublishError, match=r"zen4.*: Is a directory"):
        put(folder, wheels["zen4"])


def test_files_of_others_in_the_pool_are_left_alone(
    folder: Folder, wheels: dict[str, Path]
) -> None:
    put(folder, wheels["stock"])
    note, other_path = folder.root / "pool" / "ä b.txt", folder.root / "pool" / "x" / "y.whl"
    other_path.parent.mkdir()
    for path in (note, other_path):
        path.write_bytes(b"of somebody else")
    put(folder, wheels["zen4"])
    assert {note.read_bytes(), other_path.read_bytes()} == {b"of somebody else"}
    assert b"somebody" not in b"".join(files(folder, "simple").values())
    shown = json.loads(files(folder)[MANIFEST])["objects"]
    assert not [entry for entry in shown if entry["file"].endswith(("b.txt", "y.whl"))]
    with pytest.raises(WheelError, match=r"y\.whl"):
        put(folder, reindex=True)
    link = folder.root / "pool" / PROJECT / wheels["haswell"].name
    link.symlink_to(wheels["haswell"])
    with pytest.raises(PublishError, match="is a link"):
        put(folder, wheels["haswell"])


@pytest.mark.toolchain
def test_a_bucket_tells_of_other_bytes_without_sending_them(
    bucket: Bucket, wheels: dict[str, Path]
) -> None:
    """By its SHA-256, or by a tag that is an MD5 sum; where it knows neither, that is said."""
    put(bucket, wheels["stock"], wheels["zen4"])
    key = f"pool/{PROJECT}/{wheels['zen4'].name}"
    fetched: list[str] = []
    bucket.client.meta.events.register(
        "before-parameter-build.s3.GetObject", lambda params, **_: fetched.append(params["Key"])
    )
    assert put(bucket, wheels["zen4"]).present == (wheels["zen4"].name,)
    right = wheels["zen4"].read_bytes()
    at = {"Bucket": bucket.name, "Key": bucket.prefix + key}
    bucket.client.put_object(**at, Body=right)
    done = put(bucket, wheels["zen4"])
    assert (done.present, done.unread) == ((wheels["zen4"].name,), ())
    in_parts(bucket, at, right)
    assert put(bucket, wheels["zen4"]).unread == (wheels["zen4"].name,)
    assert at["Key"] not in fetched
    in_parts(bucket, at, tampered(right))
    assert put(bucket, wheels["zen4"]).unread == (wheels["zen4"].name,)
    for send in (send_hashed, send_plain, in_parts):
        send(bucket, at, tampered(right))
        with pytest.raises(PublishError) as caught:
            put(bucket, wheels["zen4"], reindex=send is in_parts)
        for text in (key, sha256(tampered(right)), sha256(right)):
            assert text in caught.value.message
        assert "publish the wheel again" in caught.value.hint
    bucket.client.delete_object(**at)
    assert put(bucket, wheels["zen4"]).restored == (wheels["zen4"].name,)
    assert bucket.read(key) == right


def send_plain(bucket: Bucket, at: Mapping[str, str], data: bytes) -> None:
    bucket.client.put_object(**at, Body=data)


def send_hashed(bucket: Bucket, at: Mapping[str, str], data: bytes) -> None:
    bucket.client.put_object(**at, Body=data, ChecksumAlgorithm="SHA256")


def in_parts(bucket: Bucket, at: Mapping[str, str], data: bytes) -> None:
    """As tools copy large files: the tag is no MD5 sum of the whole."""
    upload = bucket.client.create_multipart_upload(**at)["UploadId"]
    part = {"PartNumber": 1, "UploadId": upload}
    tag = bucket.client.upload_part(**at, **part, Body=data)["ETag"]
    parts = {"Parts": [{"PartNumber": 1, "ETag": tag}]}
    bucket.client.complete_multipart_upload(**at, UploadId=upload, MultipartUpload=parts)


def test_a_torn_catalog_is_made_again_from_the_pool(
    folder: Folder, wheels: dict[str, Path]
) -> None:
    put(folder, *wheels.values())
    whole = files(folder)
    (folder.root / catalog.KEY).write_bytes(whole[catalog.KEY][:-100])
    with pytest.raises(RecordError, match="--reindex"):
        put(folder, wheels["stock"])
    put(folder, reindex=True)
    actual = files(folder)
    need_consistent(actual)
    for target in list_targets("x86_64"):
        assert listed(actual, target.name) == listed(whole, target.name)
    put(folder, wheels["stock"])


def revision(folder: Folder) -> int:
    return catalog.parse(folder.read(catalog.KEY), "").revision


def test_no_revision_comes_twice_when_the_catalog_is_made_again(
    folder: Folder, wheels: dict[str, Path]
) -> None:
    """A publisher at work could take the new catalog for the one that it knows."""
    for name in ("haswell", "zen4", "stock"):
        put(folder, wheels[name])
    known = revision(folder)
    for _ in range(2):  # the second changes nothing
        put(folder, reindex=True)
        assert revision(folder) == known + 1
    known += 1
    (folder.root / f"simple/zen4/{PROJECT}/index.json").write_bytes(b"")
    put(folder, reindex=True)
    assert revision(folder) == known + 1
    for harm in (b"{", None):
        known, path = revision(folder), folder.root / catalog.KEY
        path.unlink() if harm is None else path.write_bytes(harm)
        put(folder, reindex=True)
        assert revision(folder) > known


def test_pages_of_wheels_that_were_removed_are_emptied(
    folder: Folder, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A page that only an attacker wrote is such a page, too."""
    stock = stand_in(tmp_path, "2.14.1")
    numpy = stand_in(tmp_path, "1.0", name="numpy", python="py3")
    for wheel in (stock, numpy):
        publish([wheel], folder, judgements={}, now=NOW)
    assert listed(files(folder), "haswell", "numpy") == {numpy.name}
    for path in (folder.root / "pool/numpy").iterdir():
        path.unlink()
    for key in ("haswell/evil/index.json", "evil/numpy/index.html", "haswell/evil/page.html"):
        path = folder.root / "simple" / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"evil")
    changed = publish([], folder, judgements={}, now=NOW, reindex=True).pages
    assert "simple/haswell/evil/index.json" in changed
    assert "publish did not write simple/haswell/evil/page.html;" in capsys.readouterr().err
    actual = files(folder)
    assert listed(actual, "haswell") == {stock.name}
    assert listed(actual, "haswell", "numpy") == listed(actual, "haswell", "evil") == set()
    assert numpy.name.encode() not in actual["simple/haswell/numpy/index.html"]
    assert b"evil" not in actual["simple/evil/numpy/index.html"]
    assert publish([], folder, judgements={}, now=NOW, reindex=True).pages == ()
    assert publish([stock], folder, judgements={}, now=NOW).pages == ()


@pytest.mark.toolchain
def test_a_page_that_only_a_folders_key_has_is_emptied(
    bucket: Bucket, wheels: dict[str, Path]
) -> None:
    publish([wheels["stock"]], bucket, judgements={}, now=NOW)
    bucket.put("simple/zen4/evil/", b"evil")
    publish([], bucket, judgements={}, now=NOW, reindex=True)
    emptied = bucket.read("simple/zen4/evil/")
    assert emptied
    assert b"<title>Links for evil</title>" in emptied
    assert b"<a " not in emptied


def test_a_lost_catalog_is_noticed(folder: Folder, wheels: dict[str, Path]) -> None:
    """Else the pages would be made of the new wheel alone."""
    put(folder, wheels["stock"])
    (folder.root / catalog.KEY).unlink()
    before = stamps(folder)
    with pytest.raises(RecordError, match=r"catalog\.json.*--reindex"):
        put(folder, wheels["zen4"])
    assert stamps(folder) == before
    put(folder, wheels["zen4"], reindex=True)
    assert listed(files(folder), "haswell") == {wheels["stock"].name}


@pytest.mark.parametrize("moment", [1, 2, 5, 8, 11, 14, 100])
def test_a_first_publish_that_was_killed_is_finished_by_the_next(
    folder: Folder, wheels: dict[str, Path], moment: int
) -> None:
    assert killed(functools.partial(die_at_write, moment), folder, wheels["stock"])
    actual = files(folder)
    if any(key.startswith(f"simple/ivybridge/{PROJECT}") for key in actual):
        need_consistent(actual)
    put(folder, wheels["stock"])
    need_agreement(files(folder), ALL)
    need_consistent(files(folder))


def test_a_full_disk_leaves_the_old_index_whole(
    folder: Folder, wheels: dict[str, Path], tmp_path: Path
) -> None:
    put(folder, wheels["stock"], wheels["haswell"])
    before = stamps(folder)
    large = stand_in(tmp_path, "2.14.1+zen4", targets=("zen4",), content=os.urandom(200_000))
    error = rf"{re.escape(large.name)}: File too"
    with file_limit(100_000), pytest.raises(DiskError, match=error):
        put(folder, large)
    assert stamps(folder) == before
    put(folder, large)
    assert listed(files(folder), "zen4") == {large.name}


# ---- killed at any moment ----


def test_a_publish_killed_at_any_write_leaves_an_index_that_works(
    folder: Folder, wheels: dict[str, Path], tmp_path: Path
) -> None:
    """SIGKILL at every folder made, file opened for writing and rename, in turn."""
    put(folder, wheels["stock"], wheels["haswell"])
    shown = {key for key in files(folder) if key.startswith("simple")}
    for moment in itertools.count(1):
        wheel = stand_in(tmp_path, f"2.15.{moment}+zen4", targets=("zen4",))
        old = listed(files(folder), "zen4")
        if not killed(functools.partial(die_at_write, moment), folder, wheel):
            break
        remaining = files(folder)
        need_consistent(remaining)
        assert {key for key in remaining if key.startswith("simple")} >= shown
        assert listed(remaining, "haswell") == {wheels["haswell"].name}
        assert listed(remaining, "zen4") - {wheel.name} == old
        put(folder, wheel)
        need_agreement(files(folder), ALL)
        assert listed(files(folder), "zen4") == {*old, wheel.name}
    assert moment > 20, "wheel, METADATA, pages, manifest, catalog: each is opened and renamed"
    need_consistent(files(folder))


@pytest.mark.parametrize("moment", [1, 6, 9, 14])
def test_what_a_killed_publish_began_another_one_leaves_out(
    folder: Folder, wheels: dict[str, Path], moment: int
) -> None:
    """The next publisher brings another wheel: its pages are those of its own catalog."""
    put(folder, wheels["stock"])
    assert killed(functools.partial(die_at_write, moment), folder, wheels["zen4"])
    put(folder, wheels["haswell"])
    need_consistent(files(folder))
    assert listed(files(folder), "haswell") == {wheels["haswell"].name}
    assert listed(files(folder), "zen4") == {wheels["stock"].name}
    put(folder, wheels["zen4"])
    assert listed(files(folder), "zen4") == {wheels["zen4"].name}


@pytest.mark.toolchain
def test_a_publish_killed_at_any_request_leaves_a_bucket_that_works(
    bucket: Bucket, wheels: dict[str, Path], tmp_path: Path
) -> None:
    put(bucket, wheels["stock"], wheels["haswell"])
    for moment in itertools.count(1):
        wheel = stand_in(tmp_path, f"2.15.{moment}+zen4", targets=("zen4",))
        old = listed(files(bucket, *TOUCHED), "zen4")
        doomed = again(bucket)
        if not killed(functools.partial(die_at_request, doomed, moment), doomed, wheel):
            break
        remaining = files(bucket, *TOUCHED)
        need_consistent(remaining)
        assert listed(remaining, "zen4") - {wheel.name} == old
        put(bucket, wheel)
        assert listed(files(bucket, *TOUCHED), "zen4") == {*old, wheel.name}
    assert moment > 7, "wheel, METADATA, pages, manifest, catalog: each is a request"
    need_consistent(files(bucket, *TOUCHED))


def again(bucket: Bucket) -> Bucket:
    """The same with connections of its own, for another process."""
    return open_bucket(bucket.name, bucket.prefix)


def killed(trap: Callable[[], None], store: Store, wheel: Path) -> bool:
    """Whether the trap killed the process that published; it must not fail otherwise."""
    process = FORK.Process(target=_trapped, args=(trap, store, wheel))
    process.start()
    process.join()
    assert process.exitcode in {0, -signal.SIGKILL}
    return process.exitcode != 0


def _trapped(trap: Callable[[], None], store: Store, wheel: Path) -> None:
    trap()
    put(store, wheel)


def die_at_request(bucket: Bucket, moment: int) -> None:
    """The same before the n-th request that writes."""
    count = itertools.count(1)

    def hook(**_: object) -> None:
        if next(count) == moment:
            os.kill(os.getpid(), signal.SIGKILL)

    bucket.client.meta.events.register("before-send.s3.PutObject", hook)


# ---- two at once ----


def test_two_processes_publish_to_one_folder(folder: Folder, wheels: dict[str, Path]) -> None:
    """Who finds it taken is told, and comes again."""
    put(folder, wheels["stock"])
    late = Late(folder)
    process = FORK.Process(target=put, args=(late, wheels["haswell"]))
    process.start()
    assert late.ready.wait(30)
    with pytest.raises(BusyError, match=f"process {process.pid}"):
        put(folder, wheels["zen4"])
    late.go.set()
    process.join()
    assert process.exitcode == 0
    put(folder, wheels["zen4"])
    need_consistent(files(folder))
    assert listed(files(folder), "haswell") == {wheels["haswell"].name}
    assert listed(files(folder), "zen4") == {wheels["zen4"].name}


@pytest.mark.toolchain
def test_two_processes_publish_to_one_bucket(bucket: Bucket, wheels: dict[str, Path]) -> None:
    """The second begins and ends while the first is about to write the catalog."""
    put(bucket, wheels["stock"])
    late = Late(again(bucket))
    process = FORK.Process(target=put, args=(late, wheels["haswell"]))
    process.start()
    assert late.ready.wait(30)
    put(bucket, wheels["zen4"])
    late.go.set()
    process.join()
    assert process.exitcode == 0
    actual = files(bucket)
    need_consistent(actual)
    need_agreement(actual, FEW)
    assert listed(actual, "haswell") == {wheels["haswell"].name}
    assert listed(actual, "zen4") == {wheels["zen4"].name}
    names = {entry.file for entry in catalog.parse(actual[catalog.KEY], "").entries}
    assert names == {wheels[name].name for name in ("stock", "haswell", "zen4")}


@pytest.mark.toolchain
def test_a_publisher_that_only_mends_pages_is_noticed_by_another(
    bucket: Bucket, wheels: dict[str, Path]
) -> None:
    """It takes the pages of one that is not ready for those of one that was killed."""
    put(bucket, wheels["stock"])
    late = Late(again(bucket))
    process = FORK.Process(target=put, args=(late, wheels["zen4"]))
    process.start()
    assert late.ready.wait(30)
    assert put(bucket, wheels["stock"]).pages
    assert listed(files(bucket, *TOUCHED), "zen4") == {wheels["stock"].name}
    late.go.set()
    process.join()
    assert process.exitcode == 0
    assert listed(files(bucket, *TOUCHED), "zen4") == {wheels["zen4"].name}


def test_a_publisher_that_always_loses_gives_up(folder: Folder, wheels: dict[str, Path]) -> None:
    put(folder, wheels["stock"])
    with pytest.raises(BusyError, match="other publishers"):
        put(Loser(folder), wheels["zen4"])


class Other:
    """A store that is another but for what a subclass changes."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.where = store.where
        self.lock = store.lock
        self.read = store.read
        self.list_sizes = store.list_sizes
        self.open_local = store.open_local
        self.find_differing = store.find_differing
        self.has_content = store.has_content
        self.put_new = store.put_new
        self.put = store.put


class Late(Other):
    """Waits before it writes the catalog."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.ready, self.go = FORK.Event(), FORK.Event()

    def swap(self, key: str, data: bytes, current: bytes | None) -> bool:
        self.ready.set()
        assert self.go.wait(30)
        return self.store.swap(key, data, current)


class Loser(Other):
    def swap(self, *_: object, **__: object) -> bool:
        return False


# ---- installed from ----


@pytest.mark.toolchain
def test_pip_finds_the_wheel_in_a_bucket(
    s3: Served, bucket: Bucket, wheels: dict[str, Path], tmp_path: Path
) -> None:
    """pip asks for the key with a slash at its end, and for the plus as %2B."""
    put(bucket, wheels["stock"], wheels["haswell"], wheels["zen4"])
    index = f"{s3.url}/{NAME}/{bucket.prefix}simple/zen4/"
    options = ["--isolated", "--no-cache-dir", "--no-deps", "--only-binary=:all:", "--quiet"]
    argv = [sys.executable, "-m", "pip", "download", *options, "--index-url", index]
    run([*argv, "--dest", tmp_path / "got", f"{PROJECT}==2.14.1"])
    assert hash_file(tmp_path / "got" / wheels["zen4"].name) == hash_file(wheels["zen4"])
