"""The lines that check a wheel before it is installed, as they are printed, run by a shell."""

from __future__ import annotations

import ast
import base64
import dataclasses
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.builders.index_wheels import stand_in
from tests.builders.installs import PYTHON, TAG, installed, made_venv, on_x86_64
from tests.builders.mutations import flip_bit
from tests.builders.publications import put
from tests.builders.served_index import running
from tests.builders.signing_keys import public_file

from tfcore.errors import PublishError, UsageError
from tfcore.records import format_now
from tfwheels import check_wheel
from tfwheels.commands import SnippetOptions
from tfwheels.entry import read_entry
from tfwheels.folder import Folder
from tfwheels.keys import SigningKey
from tfwheels.provenance import make_statement, sign
from tfwheels.serve import TreeServer
from tfwheels.snippet import Snippet, describe, resolve_snippet
from tfwheels.trust import Signing

VERSION = "2.14.1+haswell"
OURS = {f"tensorflow_cpu {VERSION}": b""}


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory, key: SigningKey) -> Path:
    folder = tmp_path_factory.mktemp("published")
    wheels = [
        stand_in(folder, "2.14.1", python=TAG),
        stand_in(folder, VERSION, targets=("haswell",), python=TAG),
    ]
    index = Folder(root=folder / "tree")
    put(index, *wheels, signing=Signing(key=key, trusted=(key.public,)), now=format_now())
    return index.root


@pytest.fixture
def tree(published: Path, tmp_path: Path) -> Path:
    return shutil.copytree(published, tmp_path / "tree")


@pytest.fixture
def wheel(tree: Path) -> Path:
    (path,) = tree.glob("pool/*/*+haswell-*.whl")
    return path


@pytest.fixture
def trusted(tmp_path: Path, key: SigningKey) -> str:
    return str(public_file(tmp_path, key.public))


@pytest.fixture
def served(tree: Path) -> Iterator[TreeServer]:
    """Without a key that it trusts: the client's is what counts."""
    with running(TreeServer(tree, 0)) as server:
        yield server


def snippet_of(at: Path | str, trust: str) -> Snippet:
    return resolve_snippet(
        SnippetOptions(at=str(at), version="2.14.1", arch="skylake", python=PYTHON, trust=trust)
    )


# What is printed ----------------------------------------------------------------------------------


@on_x86_64
def test_the_lines_name_the_key_and_hold_all_that_they_need(
    tree: Path, key: SigningKey, trusted: str
) -> None:
    snippet = snippet_of(tree, trusted)
    assert snippet.signer == key.public.id
    program, pem, pip, uv = snippet.check
    assert Path(check_wheel.__file__).read_text("utf-8") in program
    assert key.public.pem in pem
    for line, tool in ((pip, "&& pip"), (uv, "&& uv pip")):
        assert line.startswith(f"python3 check_wheel.py {tree.as_uri()}/pool/")
        assert f"{tool} install --no-deps ./{snippet.file} &&" in line
        assert "--require-hashes" in line
    text = describe(snippet)
    assert key.public.id in text
    assert all(line in text for line in snippet.check)


@on_x86_64
def test_without_a_key_there_are_no_such_lines(tree: Path) -> None:
    snippet = snippet_of(tree, "")
    assert (snippet.signer, snippet.check) == ("", ())
    assert "check_wheel" not in describe(snippet)


def test_the_program_needs_python_alone() -> None:
    tree = ast.parse(Path(check_wheel.__file__).read_text("utf-8"), feature_version=(3, 7))
    imported = {
        name.partition(".")[0]
        for node in ast.walk(tree)
        for name in (
            [node.module or ""]
            if isinstance(node, ast.ImportFrom)
            else [alias.name for alias in node.names]
            if isinstance(node, ast.Import)
            else []
        )
    }
    assert imported <= sys.stdlib_module_names


@on_x86_64
def test_a_wheel_that_no_trusted_key_signed_has_no_lines(
    tree: Path, wheel: Path, other: SigningKey, trusted: str, tmp_path: Path
) -> None:
    theirs = str(public_file(tmp_path, other.public, "theirs"))
    with pytest.raises(PublishError, match="not signed by any of the keys"):
        snippet_of(tree, theirs)
    assert snippet_of(tree, f"{theirs},{trusted}").check
    wheel.with_name(f"{wheel.name}.provenance").unlink()
    with pytest.raises(PublishError, match="is unsigned"):
        snippet_of(tree, trusted)
    with pytest.raises(UsageError, match="no-such"):
        snippet_of(tree, "no-such.pem")


@on_x86_64
def test_a_page_that_gives_another_hash_than_was_signed_has_no_effect(
    tree: Path, trusted: str
) -> None:
    before = snippet_of(tree, trusted)
    page = tree / "simple/skylake/tensorflow-cpu/index.json"
    fields = json.loads(page.read_text("utf-8"))
    fields["files"][0]["hashes"]["sha256"] = "0" * 64
    page.write_text(json.dumps(fields), "utf-8")
    assert snippet_of(tree, trusted) == before


@on_x86_64
def test_a_server_gives_the_lines_that_the_folder_gives(
    tree: Path, served: TreeServer, trusted: str
) -> None:
    snippet, two = snippet_of(tree, trusted), snippet_of(served.url, trusted)
    assert [line.replace(tree.as_uri(), served.url) for line in snippet.check] == list(two.check)


# What it does -------------------------------------------------------------------------------------


@pytest.fixture
def shell(tmp_path: Path) -> dict[str, str]:
    """The environment of a shell with pip and uv in a virtual environment, and no other index."""
    env = {name: os.environ[name] for name in os.environ if not name.startswith(("PIP_", "UV_"))}
    env |= made_venv(tmp_path)
    env["PATH"] = f"{tmp_path}/venv/bin:{env['PATH']}"
    return env | {"PIP_CONFIG_FILE": os.devnull, "UV_NO_CONFIG": "1", "no_proxy": "127.0.0.1"}


def lines(
    snippet: Snippet, shell: dict[str, str], folder: Path, tool: str
) -> subprocess.CompletedProcess[str]:
    """The printed lines with one of the installers, as one who copies them runs them."""
    work = folder / f"work-{tool}"
    work.mkdir(exist_ok=True)
    for name in ("requirements.txt", snippet.lock):  # it needs nothing else, so that is its lock
        (work / (name or "requirements.txt")).write_text(snippet.requirements, "utf-8")
    program, pem, pip, uv = snippet.check
    script = "\n".join((program, pem, pip if tool == "pip" else uv))
    return subprocess.run(
        ["bash", "-c", script], env=shell, cwd=work, capture_output=True, text=True, check=False
    )


@pytest.mark.toolchain
@on_x86_64
@pytest.mark.parametrize("tool", ["pip", "uv"])
def test_a_signed_wheel_is_checked_and_installed(
    served: TreeServer, trusted: str, shell: dict[str, str], tmp_path: Path, tool: str
) -> None:
    done = lines(snippet_of(served.url, trusted), shell, tmp_path, tool)
    assert done.returncode == 0, done.stderr
    assert "is signed by publisher.pem" in done.stdout
    assert installed(tmp_path) == OURS


@pytest.mark.toolchain
@on_x86_64
@pytest.mark.parametrize("tool", ["", "uv "], ids=["pip", "uv"])
def test_installers_take_a_wheel_from_a_signed_page_as_from_any_other(
    served: TreeServer, trusted: str, shell: dict[str, str], tmp_path: Path, tool: str
) -> None:
    snippet = snippet_of(served.url, trusted)
    page = served.root / "simple/skylake/tensorflow-cpu/index.json"
    assert json.loads(page.read_text("utf-8"))["meta"]["api-version"] == "1.3"
    (tmp_path / "requirements.txt").write_text(snippet.requirements, "utf-8")
    command = f"{tool}pip install --require-hashes --no-deps -r requirements.txt"
    assert command in (*snippet.uv, *(line.removeprefix("uv ") for line in snippet.uv))
    subprocess.run(["bash", "-c", command], env=shell, cwd=tmp_path, check=True)
    assert installed(tmp_path) == OURS


def _envelope(wheel: Path, name: str) -> None:
    path = wheel.with_name(f"{wheel.name}.provenance")
    document = json.loads(path.read_text("utf-8"))
    envelope = document["attestation_bundles"][0]["attestations"][0]["envelope"]
    content = bytearray(base64.b64decode(envelope[name]))
    content[len(content) // 2] ^= 1
    envelope[name] = base64.b64encode(content).decode()
    path.write_text(json.dumps(document), "utf-8")


def _torn(wheel: Path) -> None:
    wheel.with_name(f"{wheel.name}.provenance").write_text("{", "utf-8")


HARMS: dict[str, Callable[[Path], None]] = {
    "a bit of the wheel": flip_bit,
    "a bit of the statement": lambda wheel: _envelope(wheel, "statement"),
    "a bit of the signature": lambda wheel: _envelope(wheel, "signature"),
    "no JSON": _torn,
    "no provenance": lambda wheel: wheel.with_name(f"{wheel.name}.provenance").unlink(),
}


@pytest.mark.toolchain
@on_x86_64
@pytest.mark.parametrize("harm", HARMS)
def test_what_was_changed_since_the_lines_were_printed_is_not_installed(
    served: TreeServer, wheel: Path, trusted: str, shell: dict[str, str], tmp_path: Path, harm: str
) -> None:
    snippet = snippet_of(served.url, trusted)
    HARMS[harm](wheel)
    for tool in ("pip", "uv"):
        done = lines(snippet, shell, tmp_path, tool)
        assert done.returncode == 1
        assert "do not install it" in done.stderr
        assert "Traceback" not in done.stderr
        assert not [*(tmp_path / f"work-{tool}").glob("*.whl*")]
    assert installed(tmp_path) == {}


@pytest.mark.toolchain
@on_x86_64
def test_other_bytes_that_the_key_signed_under_the_same_name_are_not_installed(
    served: TreeServer,
    wheel: Path,
    key: SigningKey,
    trusted: str,
    shell: dict[str, str],
    tmp_path: Path,
) -> None:
    snippet = snippet_of(served.url, trusted)
    other_wheel = stand_in(tmp_path, VERSION, targets=("haswell",), python=TAG, content=b"other")
    entry, _ = read_entry(other_wheel, published=format_now())
    shutil.copy(other_wheel, wheel)
    beside = wheel.with_name(f"{wheel.name}.provenance")
    beside.write_bytes(sign(make_statement(entry, None, key.public), key))
    done = lines(snippet, shell, tmp_path, "pip")
    assert (done.returncode, installed(tmp_path)) == (1, {})
    assert "other bytes than expected" in done.stderr


@pytest.mark.toolchain
@on_x86_64
def test_another_key_or_no_openssl_installs_nothing(
    served: TreeServer,
    trusted: str,
    other: SigningKey,
    shell: dict[str, str],
    tmp_path: Path,
    key: SigningKey,
) -> None:
    snippet = snippet_of(served.url, trusted)
    wrong = tuple(line.replace(key.public.pem, other.public.pem) for line in snippet.check)
    done = lines(dataclasses.replace(snippet, check=wrong), shell, tmp_path, "pip")
    assert done.returncode == 1
    assert "are NOT signed by publisher.pem" in done.stderr
    bare = tmp_path / "bare"
    bare.mkdir()
    for name in ("bash", "cat"):
        (bare / name).symlink_to(shutil.which(name) or name)
    (bare / "python3").symlink_to(tmp_path / "venv" / "bin" / "python")
    done = lines(snippet, shell | {"PATH": f"{tmp_path / 'bin'}:{bare}"}, tmp_path, "pip")
    assert done.returncode == 1
    assert "cannot check" in done.stderr
    assert "openssl" in done.stderr
    assert installed(tmp_path) == {}
