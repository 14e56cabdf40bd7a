"""The pages of the index, read as installers read them."""

from __future__ import annotations

import dataclasses
import html
import json
import os
import posixpath
import subprocess
import sys
from collections.abc import Iterable
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urljoin

import pytest
from packaging.utils import parse_wheel_filename
from tests.builders.index_wheels import entry_of, stand_in

from tfcore.cpus.targets import Target, list_targets
from tfcore.errors import PublishError
from tfcore.records import convert_record
from tfcore.settings import ROOT
from tfwheels.entry import Entry, GateResult, read_entry
from tfwheels.layout import build_pool_key
from tfwheels.pages import render

POOL = (
    entry_of("2.14.1"),
    entry_of("2.14.1+zen4", targets=("zen4",)),
    entry_of("2.14.1+haswell", targets=("haswell",)),
    entry_of("2.13.1"),
    entry_of("2.14.1", machine="aarch64"),
    entry_of("1.24.0", name="numpy"),
    entry_of("1.10.0", name="numpy"),
    entry_of("1.24.0", name="numpy", machine="aarch64"),
    entry_of("2.1", name="Keras_Preprocessing", python="py3"),
)
ZEN5 = "simple/zen5/tensorflow-cpu/"


class Anchors(HTMLParser):
    """Every link: its attributes, and its text as "text"."""

    def __init__(self, page: bytes) -> None:
        super().__init__()
        self.found: list[dict[str, str]] = []
        self._open = False
        self.feed(page.decode())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._open = tag == "a"
        if self._open:
            self.found.append({name: value or "" for name, value in attrs})

    def handle_endtag(self, tag: str) -> None:  # noqa: ARG002  (the parser passes it)
        self._open = False

    def handle_data(self, data: str) -> None:
        if self._open:
            self.found[-1]["text"] = data


def anchors(page: bytes) -> list[dict[str, str]]:
    return Anchors(page).found


def changed(before: dict[str, bytes], after: dict[str, bytes]) -> set[str]:
    return {key for key in before | after if before.get(key) != after.get(key)}


def versions_on(page: bytes) -> list[str]:
    return [str(parse_wheel_filename(anchor["text"])[1]) for anchor in anchors(page)]


@pytest.fixture(name="pages", scope="module")
def the_pages() -> dict[str, bytes]:
    return render(POOL, "x86_64")


def test_every_target_has_its_page(pages: dict[str, bytes]) -> None:
    for target in list_targets("x86_64"):
        for project in ("tensorflow-cpu", "numpy", "keras-preprocessing"):
            assert f"simple/{target.name}/{project}/index.html" in pages
            assert f"simple/{target.name}/{project}/index.json" in pages
        assert f"simple/{target.name}/index.html" in pages
        assert f"simple/{target.name}/index.json" in pages
    assert not [key for key in pages if "neoverse" in key]


def test_a_page_lists_one_wheel_of_each_version_and_it_is_the_right_one(
    pages: dict[str, bytes],
) -> None:
    assert versions_on(pages[f"{ZEN5}index.html"]) == ["2.13.1", "2.14.1+zen4"]
    haswell = pages["simple/broadwell/tensorflow-cpu/index.html"]
    assert versions_on(haswell) == ["2.13.1", "2.14.1+haswell"]
    bulldozer = pages["simple/bulldozer/tensorflow-cpu/index.html"]
    assert versions_on(bulldozer) == ["2.13.1", "2.14.1"]


@pytest.mark.parametrize("target", list_targets("x86_64"), ids=lambda target: target.name)
def test_a_page_without_tensorflow_says_why_in_both_forms(
    pages: dict[str, bytes], target: Target
) -> None:
    """It is a page all the same: uv takes a package from the first index that has it, and would ask
    the next one, which has the stock wheel."""
    folder = f"simple/{target.name}/tensorflow-cpu/"
    text, page = pages[f"{folder}index.html"].decode(), json.loads(pages[f"{folder}index.json"])
    listed = [
        project["name"] for project in json.loads(pages[f"{folder[:-15]}index.json"])["projects"]
    ]
    assert "tensorflow-cpu" in listed
    assert versions_on(pages[f"simple/{target.name}/numpy/index.html"]) == ["1.10.0", "1.24.0"]
    if "avx" in target.features:
        assert page["files"]
        assert "_notes" not in page
        assert "<p>" not in text
        return
    assert (page["files"], page["versions"], anchors(text.encode())) == ([], [], [])
    (note,) = page["_notes"]
    assert note.startswith(f"{target.name} lacks avx")
    assert f"--scope full --arch {target.name}" in note
    assert text.count("<p>") == 1
    assert f"<p>{html.escape(note)}</p>" in text


def test_a_full_build_stands_where_the_stock_wheel_cannot_run() -> None:
    full = entry_of("2.14.1+nehalem.full", targets=("nehalem",))
    full = dataclasses.replace(full, whole=True, required=("sse4_2",))
    pages = render((*POOL, full), "x86_64")
    for target in ("nehalem", "westmere"):
        page = f"simple/{target}/tensorflow-cpu/index.html"
        assert versions_on(pages[page]) == ["2.14.1+nehalem.full"]
        assert f"{target} lacks avx".encode() in pages[page]
    assert versions_on(pages["simple/core2/tensorflow-cpu/index.html"]) == []


def noted(*wheels: Entry) -> tuple[list[str], str, list[dict[str, object]]]:
    """Of zen4's page the notes, the HTML and the files."""
    pages = render(wheels, "x86_64")
    page = json.loads(pages["simple/zen4/tensorflow-cpu/index.json"])
    text = pages["simple/zen4/tensorflow-cpu/index.html"].decode("ascii")
    return page.get("_notes", []), text, page["files"]


def test_a_wheel_that_did_not_pass_the_gate_says_so_and_why() -> None:
    fault = 'it is slower in mine<b>\u00e4 on 2 vCPUs (0.900x) (on EPYC "9" \U0001f4a9, zen4)'
    gating = GateResult(passed=False, faults=(fault,), gaps=("it is not finished",))
    notes, text, files = noted(dataclasses.replace(POOL[1], gating=gating))
    (note,) = notes
    assert note.startswith(f"{POOL[1].file}: ")
    assert fault in note
    assert "it is not finished" in note
    assert files[0]["_gate"] == convert_record(gating)
    assert f"<p>{html.escape(note)}</p>".encode("ascii", "xmlcharrefreplace").decode() in text
    assert "<b>" not in text
    assert len(anchors(text.encode())) == 1


def test_a_wheel_that_passed_has_nothing_for_people_but_programs_see_it() -> None:
    notes, text, files = noted(dataclasses.replace(POOL[1], gating=GateResult(passed=True)))
    assert (notes, "<p>" in text) == ([], False)
    assert files[0]["_gate"] == {"passed": True, "faults": [], "gaps": [], "evidence": []}
    notes, _, (file,) = noted(POOL[1])
    assert not [name for name in file if name.startswith("_")], "nobody knows"


def test_near_sources_are_told_of() -> None:
    near = (
        "other sources: 3 of 400 headers differ from the wheel's, 1 of them in core/kernels; "
        "the wheel's headers are used"
    )
    notes, text, files = noted(dataclasses.replace(POOL[1], near=near))
    assert notes == [f"{POOL[1].file}: compiled from {near}"]
    assert html.escape(near) in text
    assert files[0]["_near_sources"] == near


def test_an_html_link_says_all_that_an_installer_needs(pages: dict[str, bytes]) -> None:
    entry = POOL[1]
    link = anchors(pages[f"{ZEN5}index.html"])[1]
    assert link["text"] == entry.file
    assert "+" not in link["href"]
    assert "%2B" in link["href"]
    assert link["data-requires-python"] == ">=3.9"
    assert link["data-core-metadata"] == f"sha256={entry.metadata_sha256}"
    path, _, digest = link["href"].partition("#")
    assert digest == f"sha256={entry.sha256}"
    assert posixpath.normpath(ZEN5 + unquote(path)) == build_pool_key(entry.name, entry.file)


def test_links_hold_under_any_prefix(pages: dict[str, bytes]) -> None:
    href = anchors(pages[f"{ZEN5}index.html"])[1]["href"]
    for prefix in ("https://host/", "https://host/a/b%20c/"):
        for page in (ZEN5, f"{ZEN5}index.html"):
            assert urljoin(prefix + page, href).startswith(f"{prefix}pool/tensorflow-cpu/")


def test_a_json_page_says_the_same_and_sizes_versions_and_times(pages: dict[str, bytes]) -> None:
    page = json.loads(pages[f"{ZEN5}index.json"])
    assert page["meta"] == {"api-version": "1.1"}
    assert page["name"] == "tensorflow-cpu"
    assert page["versions"] == ["2.13.1", "2.14.1+zen4"]
    links = anchors(pages[f"{ZEN5}index.html"])
    assert [file["filename"] for file in page["files"]] == [link["text"] for link in links]
    entry = POOL[1]
    assert page["files"][1] == {
        "filename": entry.file,
        "url": links[1]["href"].partition("#")[0],
        "hashes": {"sha256": entry.sha256},
        "requires-python": ">=3.9",
        "core-metadata": {"sha256": entry.metadata_sha256},
        "size": entry.size,
        "upload-time": "2026-11-21T12:00:00Z",
    }


def test_plain_packages_are_listed_whole_for_the_machines_of_the_family(
    pages: dict[str, bytes],
) -> None:
    assert versions_on(pages["simple/zen5/numpy/index.html"]) == ["1.10.0", "1.24.0"]
    assert versions_on(pages["simple/zen5/keras-preprocessing/index.html"]) == ["2.1"]
    arm = render(POOL, "aarch64")
    assert versions_on(arm["simple/m1/numpy/index.html"]) == ["1.24.0"]
    assert versions_on(arm["simple/m1/keras-preprocessing/index.html"]) == ["2.1"]
    assert versions_on(arm["simple/m1/tensorflow-cpu/index.html"]) == ["2.14.1"]


def test_a_target_lists_its_projects_and_simple_the_targets(pages: dict[str, bytes]) -> None:
    names = ["keras-preprocessing", "numpy", "tensorflow-cpu"]
    assert [anchor["href"] for anchor in anchors(pages["simple/zen5/index.html"])] == [
        f"{name}/" for name in names
    ]
    listed = json.loads(pages["simple/zen5/index.json"])
    assert [project["name"] for project in listed["projects"]] == names
    targets = sorted(target.name for target in list_targets("x86_64"))
    links = anchors(pages["simple/index.html"])
    assert [link["href"] for link in links] == [f"{name}/" for name in targets]
    assert [link["text"] for link in links] == targets
    assert b"archspec cpu" in pages["simple/index.html"]
    assert "simple/index.json" not in pages


def test_no_installer_takes_a_target_for_a_file(pages: dict[str, bytes]) -> None:
    archives = (".whl", ".tar.gz", ".zip", ".tar.bz2")
    for page in ("simple/index.html", "simple/zen5/index.html"):
        assert not [anchor for anchor in anchors(pages[page]) if anchor["href"].endswith(archives)]


def test_both_families_can_stand_in_one_tree() -> None:
    both = render(POOL)
    assert len(anchors(both["simple/index.html"])) == len(list_targets())
    for family in ("x86_64", "aarch64"):
        own_files = render(POOL, family)
        assert changed(own_files, both) & own_files.keys() == {"simple/index.html"}


def test_a_project_that_has_nothing_for_a_target_has_no_page_there() -> None:
    pages = render([entry_of("2.14.1+zen4", targets=("zen4",))], "x86_64")
    assert f"{ZEN5}index.html" in pages
    assert "simple/haswell/tensorflow-cpu/index.html" not in pages
    assert anchors(pages["simple/haswell/index.html"]) == []


def test_the_order_of_the_wheels_changes_no_byte(pages: dict[str, bytes]) -> None:
    assert render(reversed(POOL), "x86_64") == pages
    assert render((*POOL, *POOL), "x86_64") == pages


def test_another_process_with_other_hash_seeds_writes_the_same_bytes() -> None:
    code = (
        "import hashlib\nfrom tests.tfwheels.test_pages import POOL\n"
        "from tfwheels.pages import render\n"
        "pages = render(POOL)\n"
        "print(hashlib.sha256(repr(sorted(pages.items())).encode()).hexdigest())\n"
    )
    paths = os.pathsep.join(str(ROOT / word) for word in ("build", "wheels", "."))

    def printed(seed: str) -> bytes:
        env = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": paths}
        return subprocess.run(
            [sys.executable, "-c", code], env=env, check=True, capture_output=True
        ).stdout

    assert printed("1") == printed("2")


def pages_of(*targets: str) -> set[str]:
    folders = {f"simple/{target}/tensorflow-cpu/" for target in targets}
    return {folder + page for folder in folders for page in ("index.html", "index.json")}


def test_an_added_wheel_changes_only_its_own_pages(pages: dict[str, bytes]) -> None:
    added = entry_of("2.14.1+skylake.avx512", targets=("skylake_avx512",))
    after = render((*POOL, added), "x86_64")
    targets = ("skylake_avx512", "cascadelake", "icelake", "sapphirerapids")
    assert changed(pages, after) == pages_of(*targets)


def test_a_wheel_that_is_nowhere_the_best_changes_nothing(pages: dict[str, bytes]) -> None:
    larger = entry_of("2.14.1+zen4.again", targets=("zen4",), size=9000)
    assert render((*POOL, larger), "x86_64") == pages


def test_a_new_project_changes_its_own_pages_and_the_lists(pages: dict[str, bytes]) -> None:
    after = render((*POOL, entry_of("2.0", name="wrapt")), "x86_64")
    assert all("/wrapt/" in key or key.count("/") == 2 for key in changed(pages, after))


def test_plain_wheels_with_two_local_versions_are_refused() -> None:
    wheels = [entry_of(version, name="numpy") for version in ("1.24.0", "1.24.0+mkl")]
    with pytest.raises(PublishError, match=r"numpy-1\.24\.0\+mkl-.*numpy-1\.24\.0-"):
        render(wheels, "x86_64")


def test_two_contents_under_one_name_are_refused() -> None:
    wheels = [entry_of("2.14.1"), entry_of("2.14.1", size=1001)]
    with pytest.raises(PublishError, match="different bytes"):
        render(wheels, "x86_64")


def thousand(folder: Path) -> Iterable[Entry]:
    """Wheels of 20 versions and 3 Pythons: stock, and tuned for 15 targets; and 40 plain ones."""
    names = [target.name for target in list_targets("x86_64")][3:18]
    for number in range(20):
        for python in ("cp310", "cp311", "cp312"):
            version = f"2.{number}.0"
            yield read(stand_in(folder, version, python=python))
            for name in names:
                local = f"{version}+{name.replace('_', '.')}"
                yield read(stand_in(folder, local, targets=(name,), python=python))
    for number in range(40):
        yield read(stand_in(folder, "1.0", name=f"needed{number}", python="py3"))


def read(wheel: Path) -> Entry:
    return read_entry(wheel, published="2026-11-21T12:00:00Z")[0]


@pytest.mark.slow
def test_a_thousand_wheels_on_every_page(tmp_path: Path) -> None:
    entries = tuple(thousand(tmp_path))
    assert len(entries) == 1000
    pages = render(entries, "x86_64")
    for target in list_targets("x86_64"):
        folder = f"simple/{target.name}/"
        count = 60 if "avx" in target.features else 0
        assert len(anchors(pages[f"{folder}tensorflow-cpu/index.html"])) == count
        assert len(anchors(pages[f"{folder}index.html"])) == 41
    fewer = render([entry for entry in entries if entry.version != "2.7.0+icelake"], "x86_64")
    assert changed(fewer, pages) == pages_of("icelake", "sapphirerapids")
