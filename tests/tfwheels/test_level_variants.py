"""The tree of variants: in a folder, in a bucket, killed, and read by uv and pip."""

from __future__ import annotations

import itertools
import json
import os
import re
import shlex
import signal
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from posixpath import join, normpath
from urllib.parse import unquote

import pytest
from tests.builders.buckets import NAME
from tests.builders.index_wheels import stand_in
from tests.builders.publications import FORK, NOW, die_at_write, files, sha256, stamps
from tests.builders.served_index import running

from tfbuild.tools.emulation import find_emulator
from tfcore.cpus.cpu import compute_x86_64_level, read_cpu
from tfcore.cpus.targets import parse_target
from tfcore.errors import ChecksumError, CommandError, PublishError, RecordError
from tfcore.run import run
from tfcore.settings import Paths
from tfwheels.bucket import open_bucket
from tfwheels.folder import Folder
from tfwheels.level_variants import KEY, MANIFEST, publish_variants
from tfwheels.publish import publish
from tfwheels.serve import TreeServer
from tfwheels.store import Store
from tfwheels.variants import FILE

LATER = "2020-03-01T00:00:00+00:00"
PAGE = "variants/simple/tensorflow-cpu/index"
MEANING = "tensorflow_cpu-2.14.1-variants.json"


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Path]:
    """Tuned ones by target, the stock wheel and one of a package beside it."""
    folder = tmp_path_factory.mktemp("wheels")
    tuned = {
        target: stand_in(folder, f"2.14.1+{target.replace('_', '.')}", targets=(target,))
        for target in ("x86_64_v3", "x86_64_v4", "haswell")
    }
    beside = {"numpy": stand_in(folder, "1.24.0", name="numpy", python="py3")}
    return tuned | beside | {"stock": stand_in(folder, "2.14.1")}


@pytest.fixture(autouse=True)
def few_targets(monkeypatch: pytest.MonkeyPatch) -> None:
    """The pages of an index are not what is tested here."""
    monkeypatch.setattr("tfwheels.pages.targets_for", lambda *_: [parse_target("zen4")])


@pytest.fixture
def store(tmp_path: Path, wheels: Mapping[str, Path]) -> Folder:
    """An index that has all the wheels, and no variants yet."""
    index = Folder(root=tmp_path / "index")
    fill(index, wheels)
    return index


def fill(store: Store, wheels: Mapping[str, Path]) -> None:
    publish([*wheels.values()], store, judgements={}, now=NOW)


def put(store: Store, *wheels: Path, now: str = NOW) -> tuple[str, ...]:
    return publish_variants(wheels, store, now=now)


def label(file: str) -> str:
    """x86_64_v3 of a variant, "plain" of any other file."""
    match = re.search(r"-(x86_64_v\d|aarch64_8\.\da)\.whl$", file)
    return match[1] if match else "plain"


def links(actual: Mapping[str, bytes], page: str) -> dict[str, tuple[str, str]]:
    """What a page of either form lists: key and SHA-256 by file name."""
    if page.endswith(".json"):
        shown = [
            (file["filename"], file["url"], file["hashes"]["sha256"])
            for file in json.loads(actual[page])["files"]
        ]
    else:
        anchors = re.findall(r'href="([^"#]+)#sha256=(\w+)"[^>]*>([^<]+)<', actual[page].decode())
        shown = [(name, url, digest) for url, digest, name in anchors]
    return {name: (normpath(join(page, "..", unquote(url))), sha) for name, url, sha in shown}


def listed(actual: Mapping[str, bytes], form: str = "json") -> set[str]:
    """The labels of the wheels on TensorFlow's page."""
    return {label(name) for name in links(actual, f"{PAGE}.{form}") if name != MEANING}


def need_consistent(actual: Mapping[str, bytes]) -> None:
    """Every link leads to bytes of its hash, a wheel's METADATA is beside it, and what a page says
    of labels is about the variants that it lists."""
    shown = [key for key in actual if re.fullmatch(r"variants/simple/[^/]+/index\.\w+", key)]
    assert shown
    for page in shown:
        page_links = links(actual, page)
        for key, digest in page_links.values():
            assert sha256(actual[key]) == digest
            assert key.endswith(MEANING) or f"{key}.metadata" in actual
        if MEANING in page_links:
            variants = json.loads(actual[page_links[MEANING][0]])["variants"]
            assert {*variants} == listed(actual, page.rpartition(".")[2]) - {"plain"}


def need_agreement(actual: Mapping[str, bytes]) -> None:
    """Both forms of TensorFlow's page say the same."""
    need_consistent(actual)
    assert links(actual, f"{PAGE}.json") == links(actual, f"{PAGE}.html")


def test_a_page_lists_the_stock_wheel_the_variants_and_their_meaning(
    store: Folder, wheels: Mapping[str, Path]
) -> None:
    before = files(store)
    lines = put(store, wheels["x86_64_v4"], wheels["x86_64_v3"])
    after = files(store)
    assert [label(file) for file in lines] == ["x86_64_v4", "x86_64_v3"]
    assert listed(after) == {"plain", "x86_64_v3", "x86_64_v4"}
    need_agreement(after)
    assert MEANING in links(after, f"{PAGE}.html")
    assert {key: after[key] for key in before} == before, "the index itself is as it was"
    for page_file in json.loads(after[f"{PAGE}.json"])["files"]:
        key, _ = links(after, f"{PAGE}.json")[page_file["filename"]]
        assert page_file["size"] == len(after[key])
        if page_file["filename"] != MEANING:
            assert page_file["core-metadata"]["sha256"] == sha256(after[f"{key}.metadata"])
    assert {file.rpartition("/")[2] for file in after if file.startswith("variants/pool")} == {
        *(f"{file}{end}" for file in lines for end in ("", ".metadata")),
        MEANING,
    }


def test_dependencies_have_pages_and_are_not_copied(
    store: Folder, wheels: Mapping[str, Path]
) -> None:
    put(store, wheels["x86_64_v3"])
    page = json.loads(files(store)["variants/simple/numpy/index.json"])
    (file,) = page["files"]
    assert file["url"] == f"../../../pool/numpy/{wheels['numpy'].name}"
    projects = json.loads(files(store)["variants/simple/index.json"])["projects"]
    assert [project["name"] for project in projects] == ["numpy", "tensorflow-cpu"]


def test_a_wheel_that_is_in_no_level_is_left_out_with_a_note(
    store: Folder, wheels: Mapping[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    assert put(store, wheels["haswell"]) == ()
    assert "aes, pclmulqdq" in capsys.readouterr().err
    assert not store.list_sizes("variants")
    assert len(put(store, wheels["haswell"], wheels["x86_64_v3"])) == 1
    assert listed(files(store)) == {"plain", "x86_64_v3"}


def another_v3(folder: Path) -> Path:
    """Another wheel of the same level."""
    return stand_in(folder, "2.14.1+x86.64.v3.plus123abc", targets=("x86_64_v3/zen2",))


def test_two_wheels_of_one_level_are_refused_by_their_names(
    store: Folder, wheels: Mapping[str, Path], tmp_path: Path
) -> None:
    other_path = another_v3(tmp_path)
    with pytest.raises(PublishError) as caught:
        put(store, wheels["x86_64_v3"], other_path)
    assert wheels["x86_64_v3"].name in caught.value.message
    assert other_path.name in caught.value.message
    assert not store.list_sizes("variants")


def test_a_level_that_is_taken_is_refused_and_nothing_changes(
    store: Folder, wheels: Mapping[str, Path], tmp_path: Path
) -> None:
    put(store, wheels["x86_64_v3"])
    before, other_path = stamps(store), another_v3(tmp_path)
    for dry_run in (False, True):
        with pytest.raises(PublishError) as caught:
            publish_variants([other_path], store, now=NOW, dry_run=dry_run)
        assert wheels["x86_64_v3"].name in caught.value.message
        assert other_path.name in caught.value.message
    assert stamps(store) == before


def test_two_pythons_may_have_one_level(
    store: Folder, wheels: Mapping[str, Path], tmp_path: Path
) -> None:
    older = stand_in(tmp_path, "2.14.1+x86.64.v3", targets=("x86_64_v3",), python="cp310")
    publish([older], store, judgements={}, now=NOW)
    lines = put(store, wheels["x86_64_v3"], older)
    assert [file.split("-")[2] for file in lines] == ["cp311", "cp310"]
    need_consistent(files(store))


def test_a_level_that_comes_later_changes_nothing_in_the_pool(
    store: Folder, wheels: Mapping[str, Path]
) -> None:
    put(store, wheels["x86_64_v3"])
    before = {key: stamp for key, stamp in stamps(store).items() if "/simple/" not in key}
    put(store, wheels["x86_64_v4"], now=LATER)
    after = stamps(store)
    assert {key for key in before if before[key] != after[key]} == {KEY, MANIFEST}
    assert listed(files(store)) == {"plain", "x86_64_v3", "x86_64_v4"}
    need_agreement(files(store))


def test_what_is_there_is_not_written_again(store: Folder, wheels: Mapping[str, Path]) -> None:
    lines = put(store, wheels["x86_64_v3"])
    before = stamps(store)
    assert put(store, wheels["x86_64_v3"], now=LATER) == lines
    assert stamps(store) == before


def test_a_stock_wheel_that_is_published_later_comes_to_the_page(
    store: Folder, wheels: Mapping[str, Path], tmp_path: Path
) -> None:
    put(store, wheels["x86_64_v3"])
    newer = stand_in(tmp_path, "2.15.0")
    publish([newer], store, judgements={}, now=NOW)
    put(store, wheels["x86_64_v3"])
    page = json.loads(files(store)[f"{PAGE}.json"])
    assert page["versions"] == ["2.14.1", "2.15.0"]


def test_a_dry_run_says_what_it_would_make_and_makes_nothing(
    tmp_path: Path, wheels: Mapping[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    empty = Folder(root=tmp_path / "none")
    (file,) = publish_variants([wheels["x86_64_v3"]], empty, now=NOW, dry_run=True)
    assert label(file) == "x86_64_v3"
    assert file in capsys.readouterr().err
    assert not empty.root.exists()


def test_a_wheel_that_the_index_has_not_is_refused(
    store: Folder, wheels: Mapping[str, Path], tmp_path: Path
) -> None:
    stranger = stand_in(tmp_path, "2.16.0+x86.64.v3", targets=("x86_64_v3",))
    with pytest.raises(PublishError, match=re.escape(stranger.name)):
        put(store, stranger)
    with pytest.raises(PublishError, match="tuned wheel"):
        put(store, wheels["stock"])


def test_a_wheel_with_other_bytes_than_the_indexs_becomes_no_variant(
    store: Folder, tmp_path: Path
) -> None:
    replaced = stand_in(tmp_path, "2.14.1+x86.64.v3", targets=("x86_64_v3",), content=b"other")
    with pytest.raises(ChecksumError, match="changed after it was checked"):
        put(store, replaced)
    assert not [key for key in files(store, "variants") if key.endswith(".whl")]


@pytest.mark.parametrize("content", [b"{", b"[]", b'{"schema": 1, "variants": [{}]}'])
def test_a_torn_catalog_is_noticed(
    store: Folder, wheels: Mapping[str, Path], content: bytes
) -> None:
    put(store, wheels["x86_64_v3"])
    store.put(KEY, content)
    with pytest.raises(RecordError, match=KEY):
        put(store, wheels["x86_64_v4"])


def test_a_catalog_of_another_schema_is_not_read(store: Folder, wheels: Mapping[str, Path]) -> None:
    store.put(KEY, b'{"schema": 2}')
    with pytest.raises(RecordError, match=r"schema 2.* 1"):
        put(store, wheels["x86_64_v4"])


def test_a_lost_catalog_or_wheel_is_noticed(store: Folder, wheels: Mapping[str, Path]) -> None:
    (file,) = put(store, wheels["x86_64_v3"])
    lost = store.root / "variants" / "pool" / "tensorflow-cpu" / file
    lost.unlink()
    with pytest.raises(PublishError, match=f"variants/pool/tensorflow-cpu/{file}"):
        put(store, wheels["x86_64_v4"])
    (store.root / KEY).unlink()
    with pytest.raises(RecordError, match=KEY):
        put(store, wheels["x86_64_v3"])


def test_the_manifest_has_every_file_of_the_tree(store: Folder, wheels: Mapping[str, Path]) -> None:
    put(store, wheels["x86_64_v3"])
    actual = {key: data for key, data in files(store).items() if key.startswith("variants/")}
    objects = {entry["key"]: entry for entry in json.loads(actual[MANIFEST])["objects"]}
    assert {entry["file"] for entry in objects.values()} == set(actual) - {MANIFEST, KEY}
    for stored_entry in objects.values():
        assert sha256(actual[stored_entry["file"]]) == stored_entry["sha256"]
    assert "variants/simple/tensorflow-cpu/" in objects
    (meaning,) = (entry for key, entry in objects.items() if key.endswith(MEANING))
    assert meaning["content_type"] == "application/json"


def test_a_run_killed_at_any_write_leaves_a_tree_that_works(
    store: Folder, wheels: Mapping[str, Path], tmp_path: Path
) -> None:
    """SIGKILL at every folder made, file opened for writing and rename, in turn."""
    put(store, wheels["x86_64_v3"])
    for moment in itertools.count(1):
        index = Folder(root=tmp_path / str(moment))
        run(["cp", "-r", store.root, index.root])
        process = FORK.Process(target=_doomed, args=(moment, index, wheels["x86_64_v4"]))
        process.start()
        process.join()
        if process.exitcode == 0:
            break
        assert process.exitcode == -signal.SIGKILL
        need_consistent(files(index))
        assert listed(files(index)) >= {"plain", "x86_64_v3"}
        put(index, wheels["x86_64_v4"])
        need_agreement(files(index))
        assert listed(files(index)) == {"plain", "x86_64_v3", "x86_64_v4"}
    assert moment > 12, "variant, wheel, METADATA, meaning, pages, manifest, catalog"


def _doomed(moment: int, store: Store, wheel: Path) -> None:
    die_at_write(moment)
    put(store, wheel)


@pytest.mark.toolchain
@pytest.mark.usefixtures("s3")
def test_a_bucket_gets_the_same_tree(store: Folder, wheels: Mapping[str, Path]) -> None:
    bucket = open_bucket(NAME, "")
    fill(bucket, wheels)
    put(bucket, wheels["x86_64_v3"])
    put(bucket, wheels["x86_64_v4"], wheels["x86_64_v3"])
    actual = files(bucket)
    put(store, wheels["x86_64_v3"])
    put(store, wheels["x86_64_v4"], wheels["x86_64_v3"])
    same = {key: data for key, data in files(store).items() if key.startswith("variants/")}
    assert {key: actual[key] for key in same} == same
    assert actual["variants/simple/tensorflow-cpu/"] == actual[f"{PAGE}.html"]


# ---- installers ----


@pytest.fixture(scope="module")
def served(
    tmp_path_factory: pytest.TempPathFactory, wheels: Mapping[str, Path]
) -> Iterator[TreeServer]:
    store = Folder(root=tmp_path_factory.mktemp("served"))
    fill(store, wheels)
    put(store, wheels["x86_64_v3"], wheels["x86_64_v4"])
    with running(TreeServer(store.root, 0)) as server:
        yield server


UV_FOR: tuple[str | Path, ...] = (
    *(Path(sys.executable).with_name("uv"), "pip", "install", "--no-config", "--no-cache"),
    "--python",
)
UV = (*UV_FOR, sys.executable)
PIP = (sys.executable, "-m", "pip", "--isolated", "install", "--no-cache-dir")
PREVIEW = "--preview-features=wheel-variants"


def chosen(installer: Iterable[str | Path], server: TreeServer, folder: Path) -> str:
    """What was installed from the tree: a variant's label, or "plain"."""
    index = f"{server.url}/variants/simple/"
    env = {
        name: value for name, value in os.environ.items() if not name.startswith(("UV_", "PIP_"))
    }
    where = ("--target", folder, "--index-url", index)
    run([*installer, *where, "tensorflow-cpu==2.14.1", "numpy"], env=env, timeout_s=120)
    assert (folder / "numpy").is_dir()
    path = folder / "tensorflow_cpu-2.14.1.dist-info" / FILE
    if not path.exists():
        return "plain"
    (actual,) = json.loads(path.read_text(encoding="utf-8"))["variants"]
    return str(actual)


@pytest.mark.toolchain
@pytest.mark.parametrize("form", ["json", "html"])
def test_uv_takes_the_best_level_that_this_cpu_has(
    served: TreeServer, tmp_path: Path, form: str
) -> None:
    """From either form of the pages."""
    if form == "html":
        run(["cp", "-r", served.root, tmp_path / "tree"])
        for page in (tmp_path / "tree").rglob("index.json"):
            page.unlink()
    # (uv looks at the CPU itself and knows of no mask)
    best = f"x86_64_v{compute_x86_64_level(read_cpu(env={}).features)}"
    expected = best if best in {"x86_64_v3", "x86_64_v4"} else "plain"
    with running(TreeServer(tmp_path / "tree" if form == "html" else served.root, 0)) as server:
        assert chosen([*UV, PREVIEW], server, tmp_path / "with") == expected


@pytest.mark.toolchain
def test_installers_that_know_no_variants_take_the_plain_wheel(
    served: TreeServer, tmp_path: Path
) -> None:
    assert chosen(UV, served, tmp_path / "uv") == "plain"
    assert chosen(PIP, served, tmp_path / "pip") == "plain"


@pytest.mark.toolchain
def test_uv_refuses_a_variant_with_other_bytes(served: TreeServer, tmp_path: Path) -> None:
    run(["cp", "-r", served.root, tmp_path / "tree"])
    for wheel in (tmp_path / "tree" / "variants").rglob("*-x86_64_v?.whl"):
        wheel.write_bytes(wheel.read_bytes() + b"\0")
    with running(TreeServer(tmp_path / "tree", 0)) as server, pytest.raises(CommandError) as caught:
        chosen([*UV, PREVIEW], server, tmp_path / "with")
    assert "Hash mismatch" in str(caught.value)


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory, wheels: Mapping[str, Path]) -> Folder:
    """A release with variants of both architectures."""
    folder = tmp_path_factory.mktemp("arm")
    tuned = [
        stand_in(folder, f"2.14.1+{name}", targets=(f"{name}+{feature}",), machine="aarch64")
        for name, feature in (("armv8.1a", "atomics"), ("armv8.4a", "asimddp"))
    ]
    store = Folder(root=tmp_path_factory.mktemp("both"))
    fill(store, wheels)
    publish([*tuned, stand_in(folder, "2.14.1", machine="aarch64")], store, judgements={}, now=NOW)
    put(store, wheels["x86_64_v3"], *tuned)
    return store


@pytest.fixture(scope="module")
def served_both(both: Folder) -> Iterator[TreeServer]:
    with running(TreeServer(both.root, 0)) as server:
        yield server


def test_one_page_lists_the_variants_of_both_architectures(both: Folder) -> None:
    assert listed(files(both)) == {"plain", "x86_64_v3", "aarch64_8.1a", "aarch64_8.4a"}
    need_agreement(files(both))


@pytest.mark.toolchain
@pytest.mark.parametrize(
    ("model", "expected"),
    [
        ("cortex-a72", "plain"),
        ("neoverse-n1", "aarch64_8.1a"),
        ("neoverse-v1", "aarch64_8.4a"),
        ("max", "plain"),  # it has every feature, but no core of this number is known to uv
    ],
)
def test_uv_takes_the_best_version_that_an_emulated_cpu_has(
    served_both: TreeServer, tmp_path: Path, paths: Paths, model: str, expected: str
) -> None:
    emulator = find_emulator("aarch64", paths)
    python = tmp_path / "python"
    words = (emulator.program, "-L", emulator.sysroot, "-cpu", model, emulator.interpreter)
    python.write_text(f'#!/bin/sh\nexec {shlex.join(map(str, words))} "$@"\n', encoding="utf-8")
    python.chmod(0o755)
    assert chosen([*UV_FOR, python, PREVIEW], served_both, tmp_path / "with") == expected


@pytest.mark.toolchain
def test_uv_takes_no_version_for_a_platform_that_is_only_named(
    served_both: TreeServer, tmp_path: Path
) -> None:
    named = ("--python-platform", "aarch64-manylinux_2_28", "--only-binary", ":all:")
    assert chosen([*UV, PREVIEW, *named], served_both, tmp_path / "with") == "plain"


@pytest.mark.toolchain
def test_uv_takes_the_variant_of_its_own_architecture(
    served_both: TreeServer, tmp_path: Path
) -> None:
    level = compute_x86_64_level(read_cpu(env={}).features) or 0
    expected = "x86_64_v3" if level >= 3 else "plain"
    assert chosen([*UV, PREVIEW], served_both, tmp_path / "with") == expected
