from __future__ import annotations

import json
import os
import platform
import subprocess
import tomllib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from packaging.requirements import Requirement
from tests.builders.index_wheels import stand_in
from tests.builders.installs import PYTHON, TAG, installed, made_venv, on_x86_64
from tests.builders.publications import put
from tests.builders.served_index import running

from tfbuild.tools.requirement import ExactRequirement
from tfbuild.upstream.download import hash_file
from tfcore.cpus.cpu import read_cpu
from tfcore.cpus.targets import match_cpu
from tfcore.errors import HostError, PublishError, TargetError, UsageError
from tfcore.records import format_json
from tfwheels.commands import SnippetOptions
from tfwheels.dependencies import PinnedPackage
from tfwheels.serve import TreeServer
from tfwheels.snippet import (
    ListedWheel,
    Query,
    Snippet,
    _read_folder_pages,
    describe,
    make_snippet,
    resolve_snippet,
)
from tfwheels.store import open_store

WHEEL = "tensorflow_cpu-2.14.1+haswell-cp311-cp311-manylinux_2_17_x86_64.whl"
ALONE = "PIP_CONFIG_FILE=/dev/null pip --isolated --disable-pip-version-check install"
PAGE = (ListedWheel(file=WHEEL, sha256="a" * 64),)
WANTED = Query(
    base="https://example.org/tf",
    target="icelake",
    package="tensorflow-cpu",
    version="2.14.1",
    python="3.11",
)
NEEDS = (
    PinnedPackage(
        exact=ExactRequirement(name="one", version="1.0"), sha256s=frozenset({"b" * 64, "c" * 64})
    ),
    PinnedPackage(exact=ExactRequirement(name="two", version="2.5"), sha256s=frozenset({"d" * 64})),
)
CARRIED: dict[str, tuple[ListedWheel, ...]] = {
    "tensorflow-cpu": PAGE,
    "one": (
        ListedWheel(file="one-1.0-py3-none-any.whl", sha256="b" * 64),
        ListedWheel(file="one-9.0-py3-none-any.whl", sha256="e" * 64),
    ),
    "two": (ListedWheel(file="two-2.5-py3-none-any.whl", sha256="d" * 64),),
}


def test_an_index_that_carries_everything_is_the_only_one_that_is_asked() -> None:
    snippet = make_snippet(WANTED, CARRIED, NEEDS, "lock.txt")
    page = "https://example.org/tf/simple/icelake/"
    assert list(snippet.pip) == [f"{ALONE} --index-url {page} 'tensorflow-cpu==2.14.1+haswell'"]
    assert snippet.requirements.splitlines() == [
        "--index-url https://example.org/tf/simple/icelake/",
        "--only-binary :all:",
        f"tensorflow-cpu==2.14.1+haswell --hash=sha256:{'a' * 64}",
        f"one==1.0 --hash=sha256:{'b' * 64}",
        f"two==2.5 --hash=sha256:{'d' * 64}",
    ]
    page = '"https://example.org/tf/simple/$(archspec cpu)/"'
    assert list(snippet.fleet) == [f"{ALONE} --index-url {page} 'tensorflow-cpu==2.14.1'"]
    assert (snippet.lock, snippet.notes) == ("", ())
    assert (snippet.file, snippet.sha256) == (WHEEL, "a" * 64)


@pytest.mark.parametrize("lost", ["one", "two"])
def test_what_the_index_does_not_carry_is_installed_first_by_hash(lost: str) -> None:
    snippet = make_snippet(WANTED, CARRIED | {lost: ()}, NEEDS, "lock.txt")
    assert snippet.lock == "lock.txt"
    for lines in (snippet.pip, snippet.fleet, snippet.uv):
        assert lines[0].endswith("pip install --require-hashes --no-deps -r lock.txt")
        assert "--no-deps" in lines[1]
    assert snippet.requirements.count("--hash") == 1
    assert f"{lost}==" in snippet.notes[0]


def test_other_bytes_of_a_dependency_are_not_carried() -> None:
    other_listed_wheel = ListedWheel(file="two-2.5-py3-none-any.whl", sha256="f" * 64)
    snippet = make_snippet(WANTED, CARRIED | {"two": (other_listed_wheel,)}, NEEDS, "lock.txt")
    assert snippet.lock == "lock.txt"
    assert "f" * 64 not in format_json(snippet)


def test_without_a_lock_nothing_is_installed_beside_the_wheel() -> None:
    snippet = make_snippet(WANTED, CARRIED, (), "")
    assert len(snippet.pip) == 1
    assert "--no-deps" in snippet.pip[0]
    assert "no lock file" in snippet.notes[0]


def test_uv_takes_from_the_index_only_what_is_pinned_to_it() -> None:
    record = tomllib.loads(make_snippet(WANTED, CARRIED, NEEDS).pyproject)
    assert record["project"]["dependencies"] == ["tensorflow-cpu==2.14.1+haswell"]
    (index,) = record["tool"]["uv"]["index"]
    assert index["url"] == "https://example.org/tf/simple/icelake/"
    assert index["explicit"] is True
    assert record["tool"]["uv"]["sources"] == {"tensorflow-cpu": {"index": index["name"]}}


@given(st.sets(st.sampled_from(["one", "two"])), st.booleans())
def test_no_line_names_an_extra_index_or_leaves_a_version_open(
    lost: set[str], locked: bool
) -> None:
    listed = CARRIED | dict.fromkeys(lost, ())
    snippet = make_snippet(WANTED, listed, NEEDS if locked else (), "lock.txt" if locked else "")
    text = describe(snippet)
    assert not {"--extra-index-url", "--find-links", "UV_INDEX"} & {*text.split()}
    for line in (*snippet.pip, *snippet.uv, *snippet.fleet):
        by_hash = "--require-hashes" in line and "--no-deps" in line
        alone = "PIP_CONFIG_FILE=/dev/null" in line and "--isolated" in line
        assert by_hash or (alone and line.count("--index-url") == 1)
    for line in snippet.requirements.splitlines()[2:]:
        requirement, *hashes = line.split()
        assert str(Requirement(requirement).specifier).startswith("==")
        assert hashes


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"version": "2.13.1"}, r"tensorflow-cpu 2\.13\.1 .*Python 3\.11"),
        ({"python": "3.9"}, r"tensorflow-cpu 2\.14\.1 .*Python 3\.9"),
        ({"target": "neoverse_v1"}, "no wheels"),
        ({"package": "tensorflow"}, r"tensorflow 2\.14\.1"),
        ({"version": "2.14.1+zen4"}, "no wheels"),
        ({"version": "latest"}, "'latest'"),
    ],
)
def test_what_the_page_does_not_list_is_said(changed: dict[str, str], reason: str) -> None:
    with pytest.raises(UsageError, match=reason) as caught:
        make_snippet(replace(WANTED, **changed), CARRIED, NEEDS)
    assert len(str(caught.value).splitlines()) == 1


def test_the_local_version_may_be_given() -> None:
    snippet = make_snippet(replace(WANTED, version="2.14.1+haswell"), CARRIED, NEEDS)
    assert snippet.requirement == "tensorflow-cpu==2.14.1+haswell"


@pytest.mark.parametrize("version", ["", "2.14.1", "2.13.1"])
def test_a_cpu_without_avx_is_told_what_it_lacks_and_what_may_stand_there(
    version: str, tmp_path: Path
) -> None:
    wheels = [stand_in(tmp_path, "2.14.1", python=TAG), stand_in(tmp_path, "2.13.1", python=TAG)]
    store = open_store(str(tmp_path / "tree"))
    put(store, *wheels)
    place = {"version": version, "arch": "nehalem", "python": PYTHON}
    with pytest.raises(HostError, match=r"simple/nehalem/ lists no tensorflow-cpu") as caught:
        resolve_snippet(SnippetOptions(at=store.where, **place))
    message = str(caught.value)
    assert "nehalem lacks avx, which the stock code in TensorFlow's wheels needs" in message
    assert "--scope full --arch nehalem" in message
    assert len(message.splitlines()) == 1
    full = stand_in(tmp_path, "2.14.1+nehalem.full", full_build="nehalem", python=TAG)
    put(store, full)
    if version == "2.13.1":
        with pytest.raises(UsageError, match=r"no wheels of tensorflow-cpu 2\.13\.1"):
            resolve_snippet(SnippetOptions(at=store.where, **place))
    else:
        assert resolve_snippet(SnippetOptions(at=store.where, **place)).file == full.name


def test_the_stock_wheel_on_an_older_indexs_page_is_not_taken_where_it_would_kill() -> None:
    stock = ListedWheel(file=WHEEL.replace("+haswell", ""), sha256="a" * 64)
    expected = replace(WANTED, target="nehalem")
    with pytest.raises(HostError, match="nehalem lacks avx"):
        make_snippet(expected, {"tensorflow-cpu": (stock,)}, NEEDS)
    assert make_snippet(WANTED, {"tensorflow-cpu": (stock,)}, NEEDS).file == stock.file


def test_a_page_with_a_choice_is_refused() -> None:
    rival = ListedWheel(file=WHEEL.replace("haswell", "zen4"), sha256="9" * 64)
    with pytest.raises(UsageError, match="2 wheels"):
        make_snippet(WANTED, CARRIED | {"tensorflow-cpu": (*PAGE, rival)}, NEEDS)


def test_http_to_another_machine_is_noted() -> None:
    for base, noted in (
        ("http://example.org", True),
        ("http://127.0.0.1:80", False),
        ("https://example.org", False),
        ("file:///srv/index", False),
    ):
        snippet = make_snippet(replace(WANTED, base=base), CARRIED, NEEDS)
        assert any("https://" in note for note in snippet.notes) is noted


@pytest.mark.parametrize(
    "at",
    [
        "https://ann:hunter2@example.org/",
        "https://example.org/?token=hunter2",
        "https://example.org/$(hunter2)",
        'https://example.org/"hunter2',
        "https://example.org/hunter2 x",
        "https://example.org/`hunter2`",
        "ftp://example.org/hunter2",
    ],
)
def test_an_address_that_is_none_or_holds_a_password_is_refused_and_not_repeated(at: str) -> None:
    with pytest.raises(UsageError, match="--at") as caught:
        resolve_snippet(SnippetOptions(at=at, version="2.14.1", arch="icelake", python=PYTHON))
    assert "hunter2" not in str(caught.value)


def test_a_folder_without_a_tree_and_an_unknown_target_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=str(tmp_path)):
        resolve_snippet(
            SnippetOptions(at=str(tmp_path), version="2.14.1", arch="icelake", python=PYTHON)
        )
    with pytest.raises(TargetError, match="pentium"):
        resolve_snippet(
            SnippetOptions(at=str(tmp_path), version="2.14.1", arch="pentium", python=PYTHON)
        )


# --- the printed lines, with real installers ------------------------------------------------------


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """An index with TensorFlow, stock and tuned, and two other packages."""
    folder = tmp_path / "pool"
    wheels = [
        stand_in(folder, "2.14.1", python=TAG),
        stand_in(folder, "2.14.1+haswell", targets=("haswell",), python=TAG),
        stand_in(folder, "2.14.1+x86.64.v2", targets=("x86_64_v2",), python=TAG),
        stand_in(folder, "1.0", name="one", python="py3"),
        stand_in(folder, "2.5", name="two", python=TAG),
    ]
    store = open_store(str(tmp_path / "tree"))
    put(store, *wheels, family=platform.machine())
    return tmp_path / "tree"


@pytest.fixture
def hostile(tmp_path: Path) -> dict[str, str]:
    """Settings of a person whose pip and uv also ask an index that somebody else fills."""
    folder = tmp_path / "hostile"
    for version in ("2.14.1+zzz", "99.0"):
        stand_in(folder, version, python=TAG, content=b"hostile")
    for name, version in (("one", "1.0"), ("two", "2.5"), ("one", "99.0")):
        stand_in(folder, version, name=name, python="py3", content=b"hostile")
    settings = tmp_path / "pip.conf"
    settings.write_text(f"[global]\nfind-links = {folder}\n", "utf-8")
    flat = {"PIP_FIND_LINKS": str(folder), "UV_FIND_LINKS": str(folder)}
    return flat | {"PIP_CONFIG_FILE": str(settings)}


@pytest.fixture
def shell(tmp_path: Path, hostile: dict[str, str]) -> dict[str, str]:
    """The environment of a shell with pip, uv and archspec, in a virtual environment."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("PIP_")}
    return inherited | hostile | made_venv(tmp_path) | {"UV_OFFLINE": "1"}


def lines(snippet: Snippet, shell: dict[str, str], folder: Path, commands: tuple[str, ...]) -> None:
    (folder / "requirements.txt").write_text(snippet.requirements, "utf-8")
    for command in commands:
        subprocess.run(["bash", "-c", command], check=True, env=shell, cwd=folder)


@pytest.fixture
def needs(tmp_path: Path, tree: Path) -> tuple[PinnedPackage, ...]:
    actual = []
    for path in sorted((tmp_path / "pool").glob("[ot][nw]*.whl")):
        name, version, _ = path.name.split("-", 2)
        exact = ExactRequirement(name=name, version=version)
        actual.append(PinnedPackage(exact=exact, sha256s=frozenset({hash_file(path), "0" * 64})))
    return tuple(actual)


def snippet_for(tree: Path, target: str, needs: tuple[PinnedPackage, ...]) -> Snippet:
    listed = _read_folder_pages(
        tree, target, ["tensorflow-cpu", *(need.exact.name for need in needs)]
    )
    expected = Query(
        base=tree.as_uri(),
        target=target,
        package="tensorflow-cpu",
        version="2.14.1",
        python=PYTHON,
    )
    return make_snippet(expected, listed, needs)


OURS = {"one 1.0": b"", "two 2.5": b"", "tensorflow_cpu 2.14.1+haswell": b""}


@pytest.mark.toolchain
@on_x86_64
def test_pip_installs_what_is_pinned_whatever_its_settings_say(
    tmp_path: Path, tree: Path, needs: tuple[PinnedPackage, ...], shell: dict[str, str]
) -> None:
    snippet = snippet_for(tree, "skylake", needs)
    lines(snippet, shell, tmp_path, (f"{snippet.uv[-1].removeprefix('uv ')}",))
    assert installed(tmp_path) == OURS


@pytest.mark.toolchain
@on_x86_64
def test_uv_installs_what_is_pinned_whatever_its_settings_say(
    tmp_path: Path, tree: Path, needs: tuple[PinnedPackage, ...], shell: dict[str, str]
) -> None:
    snippet = snippet_for(tree, "skylake", needs)
    lines(snippet, shell, tmp_path, snippet.uv)
    assert installed(tmp_path) == OURS


@pytest.mark.toolchain
@on_x86_64
def test_the_line_for_pip_asks_one_index_only(
    tmp_path: Path, tree: Path, needs: tuple[PinnedPackage, ...], shell: dict[str, str]
) -> None:
    snippet = snippet_for(tree, "skylake", needs)
    unpinned = snippet.pip[0].replace("'tensorflow-cpu==2.14.1+haswell'", "tensorflow-cpu one two")
    assert unpinned != snippet.pip[0]
    lines(snippet, shell, tmp_path, (unpinned,))  # even then
    assert installed(tmp_path) == OURS


@pytest.mark.toolchain
@on_x86_64
def test_the_settings_would_have_let_the_other_index_win(
    tmp_path: Path, tree: Path, needs: tuple[PinnedPackage, ...], shell: dict[str, str]
) -> None:
    """Else the tests beside this one show nothing."""
    snippet = snippet_for(tree, "skylake", needs)
    open_line = snippet.pip[0].replace("PIP_CONFIG_FILE=/dev/null pip --isolated", "pip")
    lines(snippet, shell, tmp_path, (open_line.replace("==2.14.1+haswell", ""),))
    assert installed(tmp_path) == {"tensorflow_cpu 99.0": b"hostile"}


@pytest.mark.toolchain
@on_x86_64
def test_the_line_for_a_fleet_installs_this_hosts_own_wheel(
    tmp_path: Path, tree: Path, needs: tuple[PinnedPackage, ...], shell: dict[str, str]
) -> None:
    host = match_cpu(read_cpu()).best.name
    snippet = snippet_for(tree, host, needs)
    lines(snippet, shell, tmp_path, snippet.fleet)
    name, version = snippet.requirement.split("==")
    assert installed(tmp_path) == {f"{name.replace('-', '_')} {version}": b""}


@pytest.mark.toolchain
@on_x86_64
def test_a_project_of_uv_locks_what_the_snippet_says(
    tmp_path: Path, tree: Path, needs: tuple[PinnedPackage, ...], shell: dict[str, str]
) -> None:
    snippet = snippet_for(tree, "skylake", needs)
    project = tmp_path / "project"
    project.mkdir()
    head = f'name = "x"\nversion = "0"\nrequires-python = "=={PYTHON}.*"\n'
    text = snippet.pyproject.replace("[project]\n", f"[project]\n{head}")
    (project / "pyproject.toml").write_text(text, "utf-8")
    subprocess.run(["uv", "lock", "--quiet"], check=True, env=shell, cwd=project)
    locked = {
        row["name"]: row for row in tomllib.loads((project / "uv.lock").read_text())["package"]
    }
    assert locked["tensorflow-cpu"]["version"] == "2.14.1+haswell"
    assert "hostile" not in (project / "uv.lock").read_text("utf-8")


@pytest.mark.toolchain
@on_x86_64
def test_a_wheel_that_was_tampered_with_is_not_installed(
    tmp_path: Path, tree: Path, needs: tuple[PinnedPackage, ...], shell: dict[str, str]
) -> None:
    snippet = snippet_for(tree, "skylake", needs)
    (wheel,) = tree.rglob(snippet.file)
    wheel.write_bytes(stand_in(tmp_path / "b", "2.14.1+haswell", content=b"x").read_bytes())
    for commands in (snippet.uv, (snippet.uv[0].removeprefix("uv "),)):
        with pytest.raises(subprocess.CalledProcessError):
            lines(snippet, shell, tmp_path, commands)
    assert installed(tmp_path) == {}


# --- an index on a server -------------------------------------------------------------------------


@pytest.fixture
def served(tree: Path) -> Iterator[str]:
    with running(TreeServer(tree, 0)) as server:
        yield server.url


@on_x86_64
def test_a_folder_and_a_server_give_the_same(
    tree: Path, served: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TWINE_PASSWORD", "not for this host")
    snippet = resolve_snippet(
        SnippetOptions(at=str(tree), version="2.14.1", arch="skylake", python="3.11")
    )
    other_snippet = resolve_snippet(
        SnippetOptions(at=f"{served}/", version="2.14.1", arch="skylake", python="3.11")
    )
    assert snippet.sha256 == other_snippet.sha256
    assert describe(snippet).replace(tree.as_uri(), served) == describe(other_snippet)
    assert other_snippet.page == f"{served}/simple/skylake/"


@on_x86_64
def test_the_real_lock_is_named_where_the_index_does_not_carry_it(tree: Path) -> None:
    snippet = resolve_snippet(
        SnippetOptions(at=str(tree), version="2.14.1", arch="skylake", python="3.11")
    )
    assert snippet.lock == "2.14.1.txt"
    assert "absl-py" in snippet.notes[0]
    assert "/build/tfbuild/upstream/locks" not in snippet.pip[0]


@on_x86_64
def test_the_target_is_this_hosts_own_unless_another_is_asked_for(tree: Path) -> None:
    snippet = resolve_snippet(SnippetOptions(at=str(tree), version="2.14.1", python=PYTHON))
    assert snippet.target == match_cpu(read_cpu()).best.name


def test_a_page_on_disk_that_is_none_is_said(tree: Path) -> None:
    (tree / "simple/skylake/tensorflow-cpu/index.json").write_text("{", "utf-8")
    with pytest.raises(PublishError, match=r"index\.json"):
        resolve_snippet(
            SnippetOptions(at=str(tree), version="2.14.1", arch="skylake", python=PYTHON)
        )


HASH = "0" * 64
LINES = f"{HASH}\n--extra-index-url https://evil.example/simple\nevil==1"


@pytest.mark.parametrize("place", ["folder", "server"])
@pytest.mark.parametrize(
    "harm",
    [
        {"hashes": None},
        {"hashes": {"sha256": ["a"]}},
        {"hashes": {"sha256": LINES}},
        {"hashes": {"sha256": f"{HASH} --index-url=https://evil.example"}},
        {"hashes": {"sha256": HASH[1:]}},
        {"filename": 5},
        {"filename": None},
    ],
    ids=str,
)
def test_a_page_with_a_name_or_hash_that_is_none_is_one_line(
    tree: Path, served: str, place: str, harm: dict[str, object]
) -> None:
    path = tree / "simple/skylake/tensorflow-cpu/index.json"
    fields = json.loads(path.read_text("utf-8"))
    fields["files"][0] |= harm
    path.write_text(json.dumps(fields), "utf-8")
    at = str(tree) if place == "folder" else served
    with pytest.raises(PublishError, match="is not a page of an index") as caught:
        resolve_snippet(SnippetOptions(at=at, version="2.14.1", arch="skylake", python=PYTHON))
    assert len(str(caught.value).splitlines()) == 1


def test_a_file_whose_name_is_no_plain_one_is_not_taken(tree: Path) -> None:
    path = tree / "simple/skylake/tensorflow-cpu/index.json"
    fields = json.loads(path.read_text("utf-8"))
    for file in fields["files"]:
        file["filename"] = file["filename"].replace("_x86_64.whl", "_x86_64\nevil_x86_64.whl")
    path.write_text(json.dumps(fields), "utf-8")
    with pytest.raises(UsageError, match="no wheels of tensorflow-cpu"):
        resolve_snippet(
            SnippetOptions(at=str(tree), version="2.14.1", arch="skylake", python=PYTHON)
        )


def test_a_home_folder_is_expanded(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tree.parent))
    options = SnippetOptions(at="~/tree", version="2.14.1", arch="skylake", python=PYTHON)
    assert resolve_snippet(options).page == f"{tree.as_uri()}/simple/skylake/"
    with pytest.raises(UsageError, match="--at ~nosuchuser/tree: there is no such home folder"):
        resolve_snippet(replace(options, at="~nosuchuser/tree"))
