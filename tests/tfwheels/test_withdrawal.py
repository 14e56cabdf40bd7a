"""Wheels that are yanked, quarantined and restored, as pages, pip and uv show them."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.builders import publications
from tests.builders.index_wheels import entry_of, stand_in
from tests.builders.installs import PYTHON, TAG, installed, made_venv, on_x86_64
from tests.builders.publications import NOW, files
from tests.builders.served_index import running

from tfcore.errors import RecordError, UsageError
from tfwheels import catalog
from tfwheels.entry import Entry, Withdrawal, WithdrawalKind
from tfwheels.folder import Folder
from tfwheels.level_variants import publish_variants, renew_variants
from tfwheels.pages import render
from tfwheels.serve import TreeServer
from tfwheels.snippet import Query, _read_folder_pages, make_snippet
from tfwheels.withdrawal import WithdrawalChange, apply_change, find_files, parse_change

UV = Path(sys.executable).with_name("uv")
PAGE = "simple/{}/tensorflow-cpu/index.{}"
BAD = "2.14.1+haswell"
YANKED, QUARANTINED = WithdrawalKind.YANKED, WithdrawalKind.QUARANTINED
REASON = 'LSTM gives <wrong> "losses"'


def change(name: str, kind: WithdrawalKind | None) -> WithdrawalChange:
    return WithdrawalChange(names=(name,), kind=kind, reason=REASON if kind else "")


def page(index: Folder, target: str) -> dict[str, Any]:
    fields: dict[str, Any] = json.loads(index.read(PAGE.format(target, "json")) or b"")
    return fields


def listed(index: Folder, target: str) -> dict[str, object]:
    """Each file on a page, and why it was yanked."""
    return {file["filename"]: file.get("yanked") for file in page(index, target)["files"]}


@pytest.fixture
def wheels(tmp_path: Path) -> dict[str, Path]:
    return {
        "stock": stand_in(tmp_path / "made", "2.14.1", python=TAG),
        BAD: stand_in(tmp_path / "made", BAD, targets=("haswell",), python=TAG, content=b"bad"),
        "2.14.1+ivybridge": stand_in(
            tmp_path / "made", "2.14.1+ivybridge", targets=("ivybridge",), python=TAG
        ),
    }


@pytest.fixture
def index(tmp_path: Path, wheels: dict[str, Path]) -> Folder:
    folder = Folder(root=tmp_path / "index")
    publications.put(folder, *wheels.values())
    return folder


def withdraw(
    index: Folder, kind: WithdrawalKind | None, name: str = f"tensorflow-cpu=={BAD}"
) -> Any:
    return publications.put(index, change=change(name, kind))


# Pages --------------------------------------------------------------------------------------------


def test_a_yanked_wheel_stays_on_its_pages_beside_the_next_best(
    index: Folder, wheels: dict[str, Path]
) -> None:
    bad, next_best = wheels[BAD].name, wheels["2.14.1+ivybridge"].name
    before = listed(index, "ivybridge"), listed(index, "skylake")
    assert before == ({next_best: None}, {bad: None})
    done = withdraw(index, YANKED)
    assert done.withdrawals == {bad: Withdrawal(kind=YANKED, reason=REASON, since=NOW)}
    assert listed(index, "skylake") == {bad: REASON, next_best: None}
    assert listed(index, "ivybridge") == {next_best: None}  # (it never had the other)
    html = (index.read(PAGE.format("skylake", "html")) or b"").decode()
    assert 'data-yanked="LSTM gives &lt;wrong&gt; &quot;losses&quot;"' in html
    assert [choice.entry.file for choice in done.choices["skylake"]] == [next_best]


def test_a_quarantined_wheel_is_on_no_page_and_its_pages_say_why(
    index: Folder, wheels: dict[str, Path]
) -> None:
    bad = wheels[BAD].name
    withdraw(index, QUARANTINED)
    pages = {key: data for key, data in files(index, "simple").items() if key.endswith(".json")}
    assert pages
    for data in pages.values():
        assert bad not in {file["filename"] for file in json.loads(data).get("files", ())}
    note = f"{bad} is quarantined: {REASON}"
    assert page(index, "skylake")["_notes"] == [note]
    assert "_notes" not in page(index, "ivybridge")
    assert b"is quarantined: LSTM gives &lt;wrong&gt;" in (
        index.read(PAGE.format("skylake", "html")) or b""
    )
    assert index.read(f"pool/tensorflow-cpu/{bad}") is not None


def test_a_page_whose_wheels_are_all_quarantined_has_this_status(tmp_path: Path) -> None:
    index = Folder(root=tmp_path / "index")
    publications.put(index, stand_in(tmp_path, BAD, targets=("haswell",)))
    withdraw(index, QUARANTINED)
    shown = page(index, "skylake")
    assert shown["files"] == []
    assert shown["meta"]["api-version"] == "1.4"
    assert shown["project-status"]["status"] == "quarantined"
    assert REASON in shown["project-status"]["reason"]
    html = (index.read(PAGE.format("skylake", "html")) or b"").decode()
    assert '<meta name="pypi:repository-version" content="1.4">' in html
    assert '<meta name="pypi:project-status" content="quarantined">' in html
    assert "&lt;wrong&gt; &quot;losses&quot;" in html


@pytest.mark.parametrize("kind", list(WithdrawalKind))
def test_a_restored_wheel_is_listed_as_before(index: Folder, kind: WithdrawalKind) -> None:
    before = files(index, "simple")
    withdraw(index, kind)
    assert files(index, "simple") != before
    done = withdraw(index, None)
    assert list(done.withdrawals.values()) == [None]
    assert files(index, "simple") == before


def test_the_same_again_changes_nothing(index: Folder) -> None:
    withdraw(index, YANKED)
    before = files(index)
    done = publications.put(
        index, change=change(f"tensorflow-cpu=={BAD}", YANKED), now="2021-01-01T00:00:00+00:00"
    )
    assert done.pages == ()
    assert files(index) == before


def test_a_dry_run_changes_nothing(index: Folder) -> None:
    before = files(index)
    done = publications.put(index, change=change(f"tensorflow-cpu=={BAD}", YANKED), dry_run=True)
    assert done.pages
    assert files(index) == before


@pytest.mark.parametrize("kind", list(WithdrawalKind))
def test_a_wheel_stays_withdrawn_when_it_is_published_again_and_when_the_pool_is_read(
    index: Folder, wheels: dict[str, Path], kind: WithdrawalKind
) -> None:
    withdraw(index, kind)
    before = listed(index, "skylake")
    publications.put(index, wheels[BAD])
    assert listed(index, "skylake") == before
    publications.put(index, reindex=True)
    assert listed(index, "skylake") == before


def test_dependencies_and_stock_wheels_can_be_withdrawn_too(tmp_path: Path) -> None:
    index = Folder(root=tmp_path / "index")
    plain = stand_in(tmp_path, "1.0", name="gast", python="py3")
    stock = stand_in(tmp_path, "2.14.1")
    publications.put(index, plain, stock)
    publications.put(index, change=change("gast==1.0", QUARANTINED))
    publications.put(index, change=change(stock.name, YANKED))
    assert json.loads(index.read("simple/skylake/gast/index.json") or b"")["files"] == []
    assert listed(index, "skylake") == {stock.name: REASON}


def test_variants_of_a_withdrawn_wheel_are_withdrawn(tmp_path: Path) -> None:
    tuned = stand_in(tmp_path, "2.14.1+v3", targets=("x86_64_v3",))
    index = Folder(root=tmp_path / "index")
    publications.put(index, tuned, stand_in(tmp_path, "2.14.1"))
    (variant,) = publish_variants([tuned], index, now=NOW)

    def shown() -> dict[str, object]:
        fields = json.loads(index.read("variants/simple/tensorflow-cpu/index.json") or b"")
        return {file["filename"]: file.get("yanked") for file in fields["files"]}

    before = shown()
    assert before[variant] is None
    for kind in (YANKED, QUARANTINED, None):
        publications.put(index, change=change(tuned.name, kind))
        renew_variants(index)
        actual = {variant: REASON} if kind is YANKED else {variant: None} if kind is None else {}
        assert {file: yanked for file, yanked in shown().items() if file == variant} == actual
    assert shown() == before


def test_a_snippet_names_no_yanked_wheel(index: Folder, wheels: dict[str, Path]) -> None:
    withdraw(index, YANKED)
    query = Query(
        base=index.root.as_uri(),
        target="skylake",
        package="tensorflow-cpu",
        version="2.14.1",
        python=PYTHON,
    )
    read = _read_folder_pages(index.root, "skylake", ["tensorflow-cpu"])
    assert make_snippet(query, read, ()).file == wheels["2.14.1+ivybridge"].name


@given(st.data())
def test_pages_never_offer_a_withdrawn_wheel_to_an_installer(data: st.DataObject) -> None:
    """Any set of wheels in any state: what is not yanked on a page is not withdrawn."""
    targets = data.draw(st.lists(st.sampled_from(["haswell", "zen3", "zen4"]), unique=True))
    entries: list[Entry] = [entry_of("2.14.1"), entry_of("1.0", name="gast", python="py3")]
    entries += [entry_of(f"2.14.1+{name}", targets=(name,)) for name in targets]
    for kind in WithdrawalKind:
        withdrawn = data.draw(st.sets(st.sampled_from(entries)))
        files_now = frozenset(entry.file for entry in withdrawn)
        entries = list(apply_change(entries, files_now, change("x", kind), NOW))
    state = {entry.file: entry.withdrawal for entry in entries}
    for key, text in render(entries, "x86_64").items():
        if key.endswith("/index.json"):
            for file in json.loads(text).get("files", ()):
                actual = state[file["filename"]]
                assert actual is None or actual.kind is YANKED
                assert file.get("yanked") == (actual.reason if actual else None)


# Names and options --------------------------------------------------------------------------------


def test_a_name_that_the_index_has_not_is_refused_with_the_nearest() -> None:
    entries = (entry_of("2.14.1"), entry_of(BAD, targets=("haswell",)))
    for name, hint in (
        ("tensorflow-cpu==2.14.1+hasswell", f"tensorflow-cpu=={BAD}"),
        (entries[0].file.replace("cp311", "cp312"), entries[0].file),
        ("x.whl", "PACKAGE==VERSION"),
        ("tensorflow-cpu==not a version", "PACKAGE==VERSION"),
    ):
        with pytest.raises(UsageError) as caught:
            find_files(entries, change(name, YANKED), "index")
        assert hint in caught.value.hint


def test_a_version_names_all_its_files_in_any_spelling() -> None:
    entries = [entry_of("2.14.1", python=python) for python in ("cp310", "cp311")]
    named = find_files(entries, change("TensorFlow_CPU==2.14.1", YANKED), "index")
    assert named == {entry.file for entry in entries}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("a", "b", "", "r"), "exclude each other"),
        (("a", "", "", ""), "needs --reason"),
        (("", "a", "", "  "), "needs --reason"),
        (("", "", "a", "r"), "no effect with --restore"),
        (("", "", "", "r"), "no effect without"),
        ((",", "", "", "r"), "names no wheel"),
        (("a", "", "", "two\nlines"), "one line"),
        (("a", "", "", "x" * 301), "one line"),
    ],
)
def test_bad_options_are_one_line(options: tuple[str, str, str, str], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        parse_change(*options)


def test_a_catalog_with_a_reason_of_two_lines_is_not_read() -> None:
    entry = entry_of("2.14.1")
    bad = Withdrawal(kind=YANKED, reason="a\nb", since=NOW)
    data = catalog.Catalog(
        entries=apply_change([entry], {entry.file}, change("x", YANKED), NOW)
    ).to_bytes()
    fields = json.loads(data)
    assert catalog.parse(data, "index").entries[0].withdrawal is not None
    fields["entries"][0]["withdrawal"]["reason"] = bad.reason
    with pytest.raises(RecordError, match="reason"):
        catalog.parse(json.dumps(fields).encode(), "index")


# Installers ---------------------------------------------------------------------------------------


@pytest.fixture
def served(index: Folder) -> Iterator[TreeServer]:
    with running(TreeServer(index.root, 0)) as server:
        yield server


def _install(tool: str, server: TreeServer, env: dict[str, str], requirement: str) -> str:
    """Install from the page of skylake; return what the tool says."""
    url = f"http://127.0.0.1:{server.server_port}/simple/skylake/"
    words = {
        "pip": ["pip", "--isolated", "--disable-pip-version-check", "install", "--no-cache-dir"],
        "uv": [str(UV), "pip", "install", "--no-config", "--no-cache"],
    }[tool]
    done = subprocess.run(
        [*words, "--index-url", url, requirement],
        env=env,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
    )
    return done.stdout


@on_x86_64
@pytest.mark.toolchain
@pytest.mark.parametrize("tool", ["pip", "uv"])
@pytest.mark.parametrize("kind", list(WithdrawalKind))
def test_pip_and_uv_take_the_next_best_wheel(
    tool: str, kind: WithdrawalKind, index: Folder, served: TreeServer, tmp_path: Path
) -> None:
    env = made_venv(tmp_path)
    _install(tool, served, env, "tensorflow-cpu==2.14.1")
    assert list(installed(tmp_path)) == [f"tensorflow_cpu {BAD}"]
    withdraw(index, kind)
    again = tmp_path / "again"
    again.mkdir()
    env = made_venv(again)
    _install(tool, served, env, "tensorflow-cpu==2.14.1")
    assert list(installed(again)) == ["tensorflow_cpu 2.14.1+ivybridge"]


@on_x86_64
@pytest.mark.toolchain
@pytest.mark.parametrize("tool", ["pip", "uv"])
def test_an_exact_pin_gets_a_yanked_wheel_with_a_warning_and_no_quarantined_one(
    tool: str, index: Folder, served: TreeServer, tmp_path: Path
) -> None:
    withdraw(index, YANKED)
    env = made_venv(tmp_path)
    said = _install(tool, served, env, f"tensorflow-cpu=={BAD}")
    assert "yanked" in said.lower()
    assert "LSTM gives" in said
    assert list(installed(tmp_path)) == [f"tensorflow_cpu {BAD}"]
    withdraw(index, QUARANTINED)
    again = tmp_path / "again"
    again.mkdir()
    _install(tool, served, made_venv(again), f"tensorflow-cpu=={BAD}")
    assert installed(again) == {}
