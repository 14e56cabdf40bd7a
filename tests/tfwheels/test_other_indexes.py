"""Settings of pip and uv that let another index serve a package of the same name."""

from __future__ import annotations

import os
import platform
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.builders.index_wheels import stand_in
from tests.builders.installs import PYTHON, TAG, installed, made_venv, on_x86_64
from tests.builders.publications import put
from tests.builders.served_index import running

from tfwheels.commands import SnippetOptions
from tfwheels.folder import Folder
from tfwheels.handlers import describe_install
from tfwheels.other_indexes import describe_other_indexes
from tfwheels.serve import TreeServer
from tfwheels.snippet import resolve_snippet

PAGE = "https://wheels.example/simple/skylake/"
SECRET = "https://user:hunter2@other.example/simple"  # noqa: S105
CLEAN = {"PATH": os.environ["PATH"], "PIP_CONFIG_FILE": os.devnull}


def described(env: dict[str, str], home: Path) -> list[str]:
    return list(describe_other_indexes("tensorflow-cpu", PAGE, CLEAN | env, home))


def test_no_settings_need_no_word(tmp_path: Path) -> None:
    assert described({}, tmp_path) == []
    (tmp_path / "uv").mkdir()
    explicit = '[[index]]\nurl = "https://b.example"\nexplicit = true\n'
    text = f'index-strategy = "unsafe-best-match"\n{explicit}'
    (tmp_path / "uv/uv.toml").write_text(text, "utf-8")
    assert described({"PIP_INDEX_URL": SECRET, "UV_DEFAULT_INDEX": SECRET}, tmp_path) == []


@pytest.mark.parametrize(
    ("tool", "env", "settings"),
    [
        ("pip", {"PIP_EXTRA_INDEX_URL": f"{SECRET} https://b.example"}, "b.example other.example"),
        ("pip", {"PIP_FIND_LINKS": "/srv/folder"}, "(find-links)"),
        ("uv", {"UV_INDEX": f"name={SECRET}"}, "UV_INDEX other.example"),
        ("uv", {"UV_EXTRA_INDEX_URL": SECRET}, "UV_EXTRA_INDEX_URL other.example"),
        (
            "uv",
            {"UV_INDEX_STRATEGY": "unsafe-best-match", "UV_INDEX": SECRET},
            "UV_INDEX other.example, index-strategy unsafe-best-match",
        ),
    ],
)
def test_variables(tool: str, env: dict[str, str], settings: str, tmp_path: Path) -> None:
    (note,) = described(env, tmp_path)
    assert note.startswith(f"{tool} also asks other indexes")
    assert settings in note
    assert f"install --index-url {PAGE} tensorflow-cpu" in note
    assert "hunter2" not in note
    assert "user" not in note


@pytest.mark.parametrize(
    "text",
    [
        f'index-strategy = "unsafe-first-match"\n[[index]]\nurl = "{SECRET}"\n',
        f'[pip]\nindex-strategy = "unsafe-first-match"\nextra-index-url = ["{SECRET}"]\n',
    ],
)
def test_files_of_uv(text: str, tmp_path: Path) -> None:
    own = tmp_path / "own.toml"
    own.write_text(text, "utf-8")
    (tmp_path / "uv").mkdir()
    (tmp_path / "uv/uv.toml").write_text(text, "utf-8")
    for notes in (
        described({}, tmp_path),
        described({"UV_CONFIG_FILE": str(own)}, tmp_path / "none"),
    ):
        assert "other.example" in notes[0]
        assert "index-strategy unsafe-first-match" in notes[0]
        assert "hunter2" not in notes[0]


@pytest.mark.parametrize("text", ["[", "pip = 1\n", "index = 3\n", "\x00"])
def test_files_that_uv_cannot_read(text: str, tmp_path: Path) -> None:
    (tmp_path / "uv").mkdir()
    (tmp_path / "uv/uv.toml").write_text(text, "utf-8")
    assert isinstance(described({}, tmp_path), list)


def test_a_configuration_file_of_pip(tmp_path: Path) -> None:
    (tmp_path / "pip.conf").write_text(f"[install]\nextra-index-url =\n  {SECRET}\n", "utf-8")
    (note,) = described({"PIP_CONFIG_FILE": str(tmp_path / "pip.conf")}, tmp_path)
    assert "extra-index-url other.example" in note


# With real installers -----------------------------------------------------------------------------


@pytest.fixture
def served(tmp_path: Path) -> Iterator[tuple[str, str]]:
    """Our index, and one with a higher version that somebody else fills."""
    ours, theirs = Folder(root=tmp_path / "ours"), Folder(root=tmp_path / "theirs")
    pool = tmp_path / "pool"
    put(
        ours,
        stand_in(pool, "2.14.1", python=TAG),
        stand_in(pool, "2.14.1+haswell", targets=("haswell",), python=TAG),
        family=platform.machine(),
    )
    foreign = stand_in(tmp_path / "foreign", "99.0", python=TAG, content=b"hostile")
    put(theirs, foreign, family=platform.machine())
    with running(TreeServer(ours.root, 0)) as one, running(TreeServer(theirs.root, 0)) as other:
        yield one.url, f"{other.url}/simple/skylake/"


@pytest.mark.toolchain
@on_x86_64
@pytest.mark.parametrize(
    ("tool", "variable"),
    [("pip", "PIP_EXTRA_INDEX_URL"), ("uv pip", "UV_INDEX"), ("uv pip", "UV_EXTRA_INDEX_URL")],
)
def test_the_other_index_wins_and_the_snippet_says_so(
    tool: str,
    variable: str,
    served: tuple[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ours, theirs = served
    for name in os.environ:
        if name.startswith(("PIP_", "UV_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "settings"))
    monkeypatch.setenv(variable, theirs)
    options = SnippetOptions(at=ours, version="2.14.1", arch="skylake", python=PYTHON)
    text = describe_install(options, as_json=False)
    assert f"# {tool.split(maxsplit=1)[0]} also asks other indexes" in text
    command = next(line for line in text.splitlines() if f"but {tool} install" in line)
    command = (
        command.partition("but ")[2].partition(" may ")[0].replace("install", "install --no-deps")
    )
    env = dict(os.environ) | made_venv(tmp_path)
    subprocess.run(["bash", "-c", command], check=True, env=env)
    assert installed(tmp_path) == {"tensorflow_cpu 99.0": b"hostile"}
    command = resolve_snippet(options).pip[-1]
    subprocess.run(["bash", "-c", command], check=True, env=env)
    assert "tensorflow_cpu 2.14.1+haswell" in installed(tmp_path)
