from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.builders.trees import make_tree

from tfbuild.checks import TESTED_RELEASE
from tfbuild.upstream import source
from tfbuild.upstream.download import Pin
from tfbuild.upstream.releases import find_release
from tfbuild.vendoring.declarations import (
    Declarations,
    DeclaredArchive,
    parse_file_name,
    pin_hashes,
    read_declarations,
)
from tfcore.errors import TreeError, VendorError
from tfcore.run import run
from tfcore.settings import Paths

MIRROR = "https://storage.googleapis.com/mirror.tensorflow.org"
HASH = "ab" * 32


def tree(folder: Path, **files: str) -> Path:
    """Files by name, with __ for / and the suffix .bzl left out."""
    for name, text in files.items():
        path = folder / (name if name == "WORKSPACE" else f"{name.replace('__', '/')}.bzl")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def only(folder: Path) -> DeclaredArchive:
    (archive,) = read_declarations(folder).archives
    return archive


@pytest.fixture(scope="module")
def real(paths: Paths, tmp_path_factory: pytest.TempPathFactory) -> Declarations:
    """The declarations of TensorFlow's own tree, unpacked as far as they reach."""
    folder = tmp_path_factory.mktemp("tree")
    debian = find_release(TESTED_RELEASE).debian
    assert debian is not None
    known = source.SourcePin(
        kind="debian",
        origin=f"{debian.suite}/{debian.package}",
        file=Pin(name=debian.file, sha256=debian.sha256, size=debian.size),
    )
    archive = source.fetch_source((known,), paths, None)
    expected = ("--wildcards", "--strip-components=1", "*/WORKSPACE", "*.bzl")
    run(["tar", "--extract", "--file", archive, "--directory", folder, *expected])
    return read_declarations(folder)


@pytest.mark.toolchain
def test_the_real_tree_declares_136_archives_and_pins_each(real: Declarations) -> None:
    assert len(real.archives) == 136
    assert len({archive.sha256 for archive in real.archives}) == 132
    assert all(len(bytes.fromhex(archive.sha256)) == 32 for archive in real.archives)
    assert all(url.startswith("http") for archive in real.archives for url in archive.urls)
    assert all(archive.file for archive in real.archives)
    assert real.unread == ()


@pytest.mark.toolchain
@pytest.mark.parametrize(
    ("name", "url", "sha256"),
    [
        (
            "eigen_archive",
            "gitlab.com/libeigen/eigen/-/archive/{0}/eigen-{0}.tar.gz",
            "70a3b0e357fc",
        ),
        ("XNNPACK", "github.com/google/XNNPACK/archive/b9d4073a69", "c979b62e8b77"),
        ("onednn", "github.com/oneapi-src/oneDNN/archive/refs/tags/v3.2.1.tar.gz", "2f76b407ef88"),
        ("com_google_absl", "github.com/abseil/abseil-cpp/archive/b971ac5250", ""),
        ("llvm", "github.com/llvm/llvm-project/archive/668e33c640", "b97fefaa486b"),
    ],
)
def test_known_archives_of_the_real_tree(
    real: Declarations, name: str, url: str, sha256: str
) -> None:
    (archive,) = (
        declared_archive for declared_archive in real.archives if declared_archive.name == name
    )
    expected = url.format("0b51f763cbbd0ed08168f88972724329f0375498")
    assert any(expected in address for address in archive.urls)
    assert archive.urls[0].startswith(MIRROR)
    assert archive.sha256.startswith(sha256)


@pytest.mark.toolchain
def test_what_the_real_tree_leaves_to_other_repositories_is_named(real: Declarations) -> None:
    assert {
        "@com_github_grpc_grpc//bazel:grpc_deps.bzl",
        "@rules_python//python:pip.bzl",
        "@rules_python//python:repositories.bzl",
    } <= set(real.elsewhere)
    assert len(real.elsewhere) == 20


@pytest.mark.toolchain
def test_names_of_archives_are_not_unique_in_the_real_tree(real: Declarations) -> None:
    """So a distdir cannot serve a build."""
    hashes: dict[str, set[str]] = {}
    for archive in real.archives:
        hashes.setdefault(archive.file, set()).add(archive.sha256)
    assert {name for name, digests in hashes.items() if len(digests) > 1} == {
        "LICENSE",
        "v1.0.tar.gz",
    }


def test_formats_sums_and_mirrors_are_worked_out(tmp_path: Path) -> None:
    text = f"""
TAG = "1.2"
def repo(name = "zlib"):
    COMMIT = "c0ffee"
    HASH = "{HASH}"
    tf_http_archive(
        name = name,
        sha256 = HASH,
        urls = tf_mirror_urls("https://x.example/%s/{{c}}-" .format(c = COMMIT) % TAG + "z.tar.gz"),
    )
"""
    folder = tree(
        tmp_path,
        WORKSPACE='load("@//third_party:zlib.bzl", "repo")\nrepo()\n',
        third_party__zlib=text,
    )
    url = "x.example/1.2/c0ffee-z.tar.gz"
    assert only(folder) == DeclaredArchive(
        name="zlib",
        urls=(f"{MIRROR}/{url}", f"https://{url}"),
        sha256=HASH,
        origin="third_party/zlib.bzl",
    )
    assert only(folder).file == "c0ffee-z.tar.gz"


def test_a_name_that_only_the_caller_knows_is_the_folders(tmp_path: Path) -> None:
    text = 'def repo(name):\n    http_archive(name = name, url = "https://x.example/a.zip")\n'
    work = 'load("//third_party/llvm:workspace.bzl", llvm = "repo")\nllvm("llvm-raw")\n'
    folder = tree(tmp_path, WORKSPACE=work, third_party__llvm__workspace=text)
    assert (only(folder).name, only(folder).sha256) == ("llvm", "")


def test_only_files_that_workspace_leads_to_are_read(tmp_path: Path) -> None:
    rule = 'http_file(name = "a", url = "https://x.example/a")\n'
    work = 'load("//a:one.bzl", "one")\nload("@far//:two.bzl", "two")\ntwo()\n'
    folder = tree(tmp_path, WORKSPACE=work, a__one='load(":next.bzl", "x")', a__next=rule, b=rule)
    declarations = read_declarations(folder)
    assert [archive.origin for archive in declarations.archives] == ["a/next.bzl"]
    assert declarations.elsewhere == ("@far//:two.bzl",)


def test_macros_that_hand_their_addresses_on_declare_nothing(tmp_path: Path) -> None:
    text = "def macro(name, urls, **kwargs):\n    _rule(name = name, urls = urls, **kwargs)\n"
    declarations = read_declarations(tree(tmp_path, WORKSPACE='load(":m.bzl", "macro")', m=text))
    assert (declarations.archives, declarations.unread) == ((), ())


def test_an_address_that_is_computed_is_told_by_its_line(tmp_path: Path) -> None:
    text = (
        '\nhttp_file(name = "a", url = [u for u in LIST][0])\nhttp_file(name = "b", url = F(1))\n'
    )
    declarations = read_declarations(tree(tmp_path, WORKSPACE=text))
    assert (declarations.archives, declarations.unread) == ((), ("WORKSPACE:2", "WORKSPACE:3"))


def test_one_rule_may_have_several_files(tmp_path: Path) -> None:
    text = (
        'filegroup_external(name = "licence", sha256_urls = '
        f'{{"{HASH}": ["https://x.example/A"], "{HASH[::-1]}": ["https://x.example/B"]}})\n'
        f'java_import_external(name = "jar", jar_sha256 = "{HASH}", jar_urls = ["https://x/j.jar"])'
    )
    archives = read_declarations(tree(tmp_path, WORKSPACE=text)).archives
    assert [(archive.name, archive.file) for archive in archives] == [
        ("jar", "j.jar"),
        ("licence", "A"),
        ("licence", "B"),
    ]


@pytest.mark.parametrize(
    "text",
    ["load(", "\0", "def f(:\n", f"x = {'(' * 9_000}{')' * 9_000}", f"x = {'-' * 99_999}1"],
    ids=["open", "NUL", "def", "nested", "signs"],
)
def test_a_file_that_is_no_starlark_is_a_tree_error(tmp_path: Path, text: str) -> None:
    with pytest.raises(TreeError, match="WORKSPACE cannot"):
        read_declarations(tree(tmp_path, WORKSPACE=text))


def test_a_folder_without_a_workspace_is_no_tree(tmp_path: Path) -> None:
    with pytest.raises(TreeError, match="no WORKSPACE"):
        read_declarations(tmp_path)


def test_a_load_does_not_lead_out_of_the_tree(tmp_path: Path) -> None:
    (tmp_path / "out.bzl").write_text('http_file(name = "a", url = "https://x.example/a")\n')
    folder = tree(
        tmp_path / "tree", WORKSPACE='load("//..:out.bzl", "x")\nload("/etc:x.bzl", "y")\n'
    )
    assert read_declarations(folder).archives == ()


def test_the_small_workspace_declares_no_downloads(tmp_path: Path) -> None:
    assert read_declarations(make_tree(tmp_path / "tree")) == Declarations(
        archives=(), elsewhere=(), unread=()
    )


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("https://x.example/a/b.tar.gz", "b.tar.gz"),
        ("https://x.example/b.zip?raw=true", "b.zip"),
        ("https://x.example/..", ""),
        ("https://x.example/a/", ""),
    ],
)
def test_an_archive_has_the_last_part_of_its_address_as_name(url: str, name: str) -> None:
    assert parse_file_name(url) == name


@given(st.text())
def test_no_address_gives_a_name_that_leads_elsewhere(url: str) -> None:
    assert "/" not in parse_file_name(url)
    assert parse_file_name(url) not in {".", ".."}


def test_a_hash_is_written_into_the_rule_that_has_none(tmp_path: Path) -> None:
    text = (
        "# é before the rule\n"
        'http_archive(name = "a", url = "https://x.example/a.zip")\n'
        'x = [http_archive(\n    name = "b",\n    url = "https://x.example/b.zip",\n), 1]\n'
        f'http_archive(name = "c", sha256 = "{HASH}", url = "https://x.example/c.zip")\n'
    )
    folder = tree(tmp_path, WORKSPACE=text)
    assert pin_hashes(folder, {"a": "1" * 64, "b": "2" * 64}) == ("WORKSPACE",)
    assert pin_hashes(folder, {"a": "1" * 64, "b": "2" * 64}) == ()  # a build that goes on
    pinned = {archive.name: archive.sha256 for archive in read_declarations(folder).archives}
    assert pinned == {"a": "1" * 64, "b": "2" * 64, "c": HASH}
    after = (folder / "WORKSPACE").read_text()
    assert (
        after.replace(f'sha256 = "{"1" * 64}", ', "").replace(f'sha256 = "{"2" * 64}", ', "")
        == text
    )


def test_a_hash_for_which_there_is_no_rule_is_an_error(tmp_path: Path) -> None:
    text = f'http_file(name = "c", sha256 = "{HASH}", url = "https://x.example/c.zip")\n'
    folder = tree(tmp_path, WORKSPACE=text)
    for name in ("c", "d"):
        with pytest.raises(VendorError, match=f"no rule of the tree can take the hash of {name}"):
            pin_hashes(folder, {name: HASH[::-1]})
    assert (folder / "WORKSPACE").read_text() == text


@pytest.mark.parametrize("sha256", ["../../x", "00", "g" * 64, f"{HASH}\n"])
def test_what_is_no_hash_is_not_taken_for_one(tmp_path: Path, sha256: str) -> None:
    """It becomes a folder's name."""
    text = f'http_file(name = "c", sha256 = {sha256!r}, url = "https://x.example/c.zip")\n'
    declarations = read_declarations(tree(tmp_path, WORKSPACE=text))
    assert (declarations.archives, declarations.unread) == ((), ("WORKSPACE:1",))


def test_a_hash_in_capitals_is_the_same_hash(tmp_path: Path) -> None:
    text = f'http_file(name = "c", sha256 = "{"AB" * 32}", url = "https://x.example/c.zip")\n'
    (archive,) = read_declarations(tree(tmp_path, WORKSPACE=text)).archives
    assert archive.sha256 == "ab" * 32


def test_escapes_that_python_warns_of_are_no_matter(tmp_path: Path) -> None:
    assert read_declarations(tree(tmp_path, WORKSPACE='x = "\\d"\n')).unread == ()
