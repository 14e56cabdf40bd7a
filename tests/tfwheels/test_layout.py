"""Keys of the published tree, and the names that try to leave it."""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from urllib.parse import unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfcore.cpus.targets import list_targets
from tfcore.errors import PublishError
from tfwheels.layout import (
    build_folder_key,
    build_link,
    build_manifest,
    build_meaning_key,
    build_metadata_key,
    build_pool_key,
    build_variant_key,
    build_variants_folder,
    compute_digest,
    parse_page_key,
    resolve_key,
)

WHEEL = "tensorflow_cpu-2.14.1+zen4-cp311-cp311-manylinux_2_17_x86_64.manylinux2014_x86_64.whl"
KEY = f"pool/tensorflow-cpu/{WHEEL}"
VARIANT = build_variant_key("tensorflow-cpu", WHEEL.replace(".whl", "-x86_64_v3.whl"))
MEANING = build_meaning_key("tensorflow-cpu", "tensorflow_cpu-2.14.1-variants.json", "0123" * 16)
LEAVING = [
    "../a-1-py3-none-any.whl",
    "/a-1-py3-none-any.whl",
    "..\\a-1-py3-none-any.whl",
    "C:a-1-py3-none-any.whl",
    "a\n-1-py3-none-any.whl",
    "a-1-py3-none-any.whl\n",
    "a-1-py3-none-any.whl\0",
    "a-1?-py3-none-any.whl",
    "a-1%2e-py3-none-any.whl",
    "-a-1-py3-none-any.whl",
    "..whl",
    "a-1.tar.gz",
    "",
]


def test_what_belongs_to_a_wheel_stands_beside_it() -> None:
    assert build_pool_key("tensorflow-cpu", WHEEL) == KEY
    assert build_metadata_key("tensorflow-cpu", WHEEL) == f"{KEY}.metadata"


@pytest.mark.parametrize("file", LEAVING)
def test_a_file_that_could_leave_its_folder_has_no_key(file: str) -> None:
    with pytest.raises(PublishError, match="file name"):
        build_pool_key("tensorflow-cpu", file)


@pytest.mark.parametrize("name", ["..", "a/b", "a\\b", "A", "a.b", "a_b", "-a", "a\n", "C:", ""])
def test_a_project_that_is_not_normalized_has_no_key(name: str) -> None:
    with pytest.raises(PublishError, match="normalized"):
        build_pool_key(name, WHEEL)


@given(st.text(), st.text())
def test_whatever_has_a_key_has_a_plain_one(project: str, file: str) -> None:
    try:
        key = build_pool_key(project, file)
    except PublishError:
        return
    assert re.fullmatch(r"pool/[a-z0-9-]+/[A-Za-z0-9._+!-]+\.whl", key)


def test_folders_of_pages_end_with_a_slash() -> None:
    assert build_folder_key() == "simple/"
    assert build_folder_key("zen4") == "simple/zen4/"
    assert build_folder_key("x86_64_v4", "tensorflow-cpu") == "simple/x86_64_v4/tensorflow-cpu/"
    assert {build_folder_key(target.name) for target in list_targets()} >= {"simple/armv8.1a/"}


@pytest.mark.parametrize(
    ("key", "page"),
    [
        ("simple/", ("", "", "index.html")),
        ("simple/index.html", ("", "", "index.html")),
        ("simple/armv8.1a/index.json", ("armv8.1a", "", "index.json")),
        ("simple/zen4/tensorflow-cpu/", ("zen4", "tensorflow-cpu", "index.html")),
        ("simple/zen4/numpy/index.json", ("zen4", "numpy", "index.json")),
        ("simple/zen4/numpy/page.html", None),
        ("simple/zen4/Num_Py/index.html", None),
        ("simple/zen4/numpy/more/index.html", None),
        ("pool/numpy/index.html", None),
        ("simple/zen4/numpy/index.html\n", None),
    ],
)
def test_the_key_of_a_page_has_parts(key: str, page: tuple[str, str, str] | None) -> None:
    assert parse_page_key(key) == page


@pytest.mark.parametrize("target", ["..", "../zen4", "zen4/..", ".", "zen4\n", "Zen4"])
def test_a_target_that_is_none_has_no_folder(target: str) -> None:
    with pytest.raises(PublishError):
        build_folder_key(target)


def test_a_link_is_relative_and_quotes_the_plus() -> None:
    folder = build_folder_key("zen4", "tensorflow-cpu")
    link = build_link(KEY, folder=folder)
    assert link == f"../../../pool/tensorflow-cpu/{WHEEL.replace('+', '%2B')}"
    assert posixpath.normpath(folder + unquote(link)) == KEY


def test_a_place_is_under_the_root(tmp_path: Path) -> None:
    assert resolve_key(tmp_path, KEY) == tmp_path / "pool" / "tensorflow-cpu" / WHEEL


@pytest.mark.parametrize("key", ["../a", "/a", "a/../b", "a//b", "a\\b", "C:/a", "a/", "", "a\r"])
def test_a_key_that_leaves_the_root_has_no_place(key: str, tmp_path: Path) -> None:
    with pytest.raises(PublishError, match="not a valid file name"):
        resolve_key(tmp_path, key)


def test_a_link_in_the_tree_is_refused_wherever_it_stands(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    root = tmp_path / "root"
    (root / "pool").mkdir(parents=True)
    (root / "pool" / "tensorflow-cpu").symlink_to(tmp_path / "elsewhere")
    (root / "simple").symlink_to(tmp_path / "missing")
    for key in (KEY, "simple", "simple/index.html"):
        with pytest.raises(PublishError, match="link"):
            resolve_key(root, key)


FILES = (
    "simple/index.html",
    "simple/zen4/index.html",
    "simple/zen4/index.json",
    "simple/zen4/tensorflow-cpu/index.html",
    "simple/zen4/tensorflow-cpu/index.json",
    KEY,
    f"{KEY}.metadata",
    f"{KEY}.comparison.json",
    "variants/simple/tensorflow-cpu/index.html",
    VARIANT,
    MEANING,
)


def test_an_object_store_gets_every_file_with_its_type_and_the_folders_too() -> None:
    stored_objects = {
        stored_object.key: stored_object
        for stored_object in build_manifest({file: compute_digest(b"a") for file in FILES})
    }
    folders = {"simple/", "simple/zen4/", "simple/zen4/tensorflow-cpu/"}
    folders.add(build_variants_folder("tensorflow-cpu"))
    assert stored_objects.keys() == {*FILES, *folders}
    for folder in folders:
        assert stored_objects[folder].file == f"{folder}index.html"
        assert stored_objects[folder].content_type == "text/html; charset=utf-8"
    assert (
        stored_objects["simple/zen4/index.json"].content_type
        == "application/vnd.pypi.simple.v1+json"
    )
    assert stored_objects[KEY].content_type == "application/octet-stream"
    assert stored_objects[f"{KEY}.metadata"].content_type == "application/octet-stream"
    assert stored_objects[f"{KEY}.comparison.json"].content_type == "application/json"
    assert stored_objects[VARIANT].content_type == "application/octet-stream"
    assert stored_objects[MEANING].content_type == "application/json"
    for key, stored in stored_objects.items():
        assert ("immutable" in stored.cache_control) == ("pool" in key.split("/"))
        assert (stored.sha256, stored.size) == compute_digest(b"a")


def test_an_object_store_gets_what_others_point_to_first() -> None:
    keys = [
        stored_object.key
        for stored_object in build_manifest({file: compute_digest(b"a") for file in sorted(FILES)})
    ]
    assert keys.index(KEY) < keys.index(f"{KEY}.metadata")
    assert keys.index(f"{KEY}.metadata") < keys.index("simple/zen4/tensorflow-cpu/index.html")
    assert keys.index("simple/zen4/tensorflow-cpu/") < keys.index("simple/zen4/")
    assert keys.index("simple/zen4/") < keys.index("simple/")
    page = keys.index("variants/simple/tensorflow-cpu/")
    assert max(keys.index(VARIANT), keys.index(MEANING)) < page


def test_variants_stand_in_a_tree_of_their_own() -> None:
    assert build_variant_key("tensorflow-cpu", WHEEL) == f"variants/{KEY}"
    assert MEANING.startswith("variants/pool/tensorflow-cpu/0123012301230123/")
    assert build_variants_folder() == "variants/simple/"
    for name in ("", "../up", "a/b", "Upper", "a_b"):
        with pytest.raises(PublishError, match="normalized"):
            build_variant_key(name, WHEEL)
        with pytest.raises(PublishError, match="normalized"):
            build_meaning_key(name, "a-1-variants.json", "0" * 64)
    with pytest.raises(PublishError, match="normalized"):
        build_variants_folder("../up")
