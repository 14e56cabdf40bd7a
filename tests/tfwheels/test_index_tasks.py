"""The tasks about indexes as a user meets them: real processes, in a folder that is no checkout."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import re
import signal
import socket
from pathlib import Path

import pytest
from tests.builders.audit_cases import bring_stock, pin_stock, small_stock, sound_wheel
from tests.builders.command_names import silent_index
from tests.builders.gate_comparisons import compared
from tests.builders.index_wheels import stand_in
from tests.builders.invoke_calls import Tasks, said, started

from tfcore import settings


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a small tuned wheel and its stock wheel."""
    folder = tmp_path_factory.mktemp("sound")
    sound_wheel(folder)
    return folder


@pytest.fixture
def sound(made: Path, invoke: Tasks, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A small tuned wheel that is what it says; the cache has its stock wheel."""
    stock = small_stock(made)
    pin_stock(monkeypatch, stock)
    bring_stock(stock, invoke.cache / "downloads")
    (wheel,) = made.rglob("*+tried-*.whl")
    return wheel


@pytest.fixture
def tree(invoke: Tasks, sound: Path) -> Path:
    """An index of it."""
    words = ("--to", "index", "--wheels", str(sound), "--no-gate", "--only-tuned")
    done = invoke("publish", *words)
    assert done.returncode == 0, done.stderr
    return invoke.folder / "index"


# What was typed -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        ("audit no-such.whl", 21, "no-such.whl"),
        ("audit plain.txt", 21, "plain.txt"),
        ("audit torn-1.0-py3-none-any.whl", 21, "torn-1.0-py3-none-any.whl"),
        ("publish", 2, "--to DIR, --to s3://bucket/prefix or --upload URL"),
        ("publish --to index --upload https://i.example", 2, "either --to or --upload"),
        ("publish --to ftp://i.example", 2, "--to ftp:"),
        ("publish --to s3://", 2, "the address of --to is not"),
        ("publish --upload nowhere", 2, "https://"),
        ("publish --upload https://me:secret@i.example", 2, "without name"),
        ("publish --to index --simple https://i.example", 2, "--simple has no effect with --to"),
        ("publish --to index --dependencies no-such", 2, "--dependencies no-such"),
        ("publish --to index --wheels no-such.whl", 21, "no-such.whl"),
        ("publish --to index --wheels .", 21, ".whl files"),
        ("publish --to index --wheels torn-1.0-py3-none-any.whl", 21, "torn-1.0-py3-none-any.whl"),
        ("publish --to index --comparison no-such.json", 28, "no-such.json"),
        ("publish --to index --comparison plain.txt", 28, "plain.txt"),
        ("publish --to index --comparison .", 28, "comparison.json"),
        ("serve --at no-such", 2, "no-such"),
        ("install-snippet", 2, "--at"),
        ("install-snippet --at no-such", 2, "no-such"),
        ("install-snippet --at s3://bucket", 2, "https://"),
        ("install-snippet --at . --arch skylak", 11, "skylak"),
        ("startup --rounds 1", 2, "--rounds 1"),
        ("startup --candidate no-such.whl", 21, "no-such.whl"),
    ],
)
def test_bad_input_is_one_line_with_a_code_of_its_own(
    words: str, code: int, message: str, invoke: Tasks
) -> None:
    for name in ("plain.txt", "torn-1.0-py3-none-any.whl"):
        (invoke.folder / name).write_text("no such thing")
    before = sorted(invoke.folder.rglob("*"))
    text = said(invoke(*words.split()), code)
    assert message in text
    assert text.count("\n") == 1
    assert "secret" not in text
    assert sorted(invoke.folder.rglob("*")) == before


def test_a_wheel_that_is_not_what_it_says_is_not_published(invoke: Tasks) -> None:
    false = stand_in(invoke.folder, "2.14.1+zen4", targets=("zen4",))
    audited = invoke("audit", str(false))
    assert audited.returncode == 34
    assert ".so is missing" in audited.stdout
    done = invoke("publish", "--to", "index", "--wheels", str(false), "--no-gate")
    assert (done.returncode, done.stdout) == (34, "")
    assert done.stderr.splitlines()[-1].startswith(f"error: {false.name} ")
    assert not (invoke.folder / "index").exists()


@pytest.mark.toolchain
def test_a_wheel_without_a_verdict_says_how_to_get_one(invoke: Tasks, sound: Path) -> None:
    done = invoke("publish", "--to", "index", "--wheels", str(sound), "--only-tuned")
    assert (done.returncode, done.stdout) == (35, "")
    last = done.stderr.splitlines()[-1]
    assert last.startswith(f"error: {sound.name} ")
    assert "invoke compare" in last
    assert not (invoke.folder / "index").exists()


@pytest.mark.toolchain
@pytest.mark.parametrize("place", ["file", "file/index", "/proc/index"])
def test_a_place_that_cannot_be_written_is_named(place: str, invoke: Tasks, sound: Path) -> None:
    (invoke.folder / "file").touch()
    words = ("--to", place, "--wheels", str(sound), "--no-gate", "--only-tuned")
    done = invoke("publish", *words)
    assert (done.returncode, done.stdout) == (18, "")
    assert done.stderr.splitlines()[-1].startswith(f"error: cannot write to {place}: ")


@pytest.mark.toolchain
def test_an_audit_fetches_the_stock_wheel_or_says_that_it_did_not(
    invoke: Tasks, sound: Path
) -> None:
    """With the user's own settings of pip; --no-fetch is for those without a network."""
    (stock,) = (invoke.cache / "downloads").iterdir()
    away = stock.rename(invoke.folder / stock.name)
    env = {"PIP_CONFIG_FILE": os.devnull, "PIP_NO_INDEX": "1"}
    refused = invoke("audit", str(sound), **env)
    assert (refused.returncode, refused.stdout) == (16, "")
    last = refused.stderr.splitlines()[-1]
    assert last.startswith(f"error: {sound.name} cannot be compared with its stock wheel: ")
    assert last.endswith(f"Give {away.name} with --stock PATH, or audit without it: --no-fetch")
    alone = invoke("audit", str(sound), "--no-fetch", **env)
    assert alone.returncode == 0
    assert "not compared (--stock PATH)" in alone.stdout.splitlines()[-1]
    completed = invoke("audit", str(sound), "--stock", str(away), **env)
    assert completed.stdout.splitlines()[-1] == "The audit passed."
    fetched = invoke("audit", str(sound), **env, PIP_FIND_LINKS=str(invoke.folder))
    assert fetched.stdout.splitlines()[-1] == "The audit passed."
    assert stock.is_file()


# What is answered ---------------------------------------------------------------------------------


@pytest.mark.toolchain
def test_json_is_all_that_stands_on_standard_output(invoke: Tasks, sound: Path) -> None:
    document = json.loads(invoke("audit", str(sound), "--json").stdout)
    assert document["problems"] == []
    compared(invoke.folder / "measured", sound)
    words = ("--wheels", str(sound), "--comparison", "measured", "--only-tuned", "--json")
    answer = json.loads(invoke("publish", "--to", "index", "--dry-run", *words).stdout)
    assert not (invoke.folder / "index").exists()
    done = json.loads(invoke("publish", "--to", "index", *words).stdout)
    assert (answer.pop("dry_run"), done.pop("dry_run")) == (True, False)
    assert answer == done
    (verdict,) = done["judgements"][sound.name]["verdicts"]
    assert (verdict["verdict"], verdict["speedup"]) == ("faster", 1.3)
    (chosen,) = done["choices"]["haswell"]
    assert chosen["why"] == {sound.name: "it has kernels for haswell"}
    place = ("--at", "index", "--target", "haswell", "--json")
    snippet = json.loads(invoke("install-snippet", *place).stdout)
    assert snippet["file"] == sound.name


@pytest.mark.toolchain
def test_a_port_that_is_taken_is_named(invoke: Tasks, tree: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other_server:
        port = str(other_server.getsockname()[1])
        message = said(invoke("serve", "--at", str(tree), "--port", port), 24)
    assert f"port {port} of 127.0.0.1" in message
    assert "--port" in said(invoke("serve", "--at", str(tree), "--port", "http"), 2)


@pytest.mark.toolchain
def test_what_is_served_can_be_installed_until_ctrl_c(
    invoke: Tasks, tree: Path, sound: Path
) -> None:
    with started(invoke, "serve", "--at", str(tree)) as process:
        assert process.stderr is not None
        match = re.search(
            r"serving .* at (http://(127\.0\.0\.1:\d+))/simple/", process.stderr.readline()
        )
        assert match is not None
        with contextlib.closing(http.client.HTTPConnection(match[2])) as server:
            server.request("GET", "/simple/haswell/tensorflow-cpu/")
            assert sound.name in server.getresponse().read().decode()
        words = ("--at", match[1], "--target", "haswell")
        shown = invoke("install-snippet", *words, no_proxy="127.0.0.1").stdout
        assert f"--index-url {match[1]}/simple/haswell/ 'tensorflow-cpu==2.14.1+tried'" in shown
        os.killpg(process.pid, signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (0, "")
    assert err.splitlines()[-1] == "stopped"
    assert "Traceback" not in err


# Ctrl-C -------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.toolchain
@pytest.mark.usefixtures("stock_arm")
def test_ctrl_c_while_dependencies_are_fetched_leaves_no_index(invoke: Tasks) -> None:
    """The stock wheel is there already, and its libraries are counted."""
    invoke.cache.mkdir()
    (invoke.cache / "downloads").mkdir()
    real = settings.paths()
    (stock,) = real.downloads.glob("tensorflow_cpu-2.14.1-cp311-*.whl")
    (real.cache / "census").mkdir(exist_ok=True)
    (invoke.cache / "census").symlink_to(real.cache / "census")
    (invoke.cache / "downloads" / stock.name).symlink_to(stock)
    wheel = sound_wheel(invoke.folder / "made", stock)
    words = ("--to", "index", "--wheels", str(wheel), "--no-gate")
    with silent_index() as (env, came, ended):
        with started(invoke, "publish", *words, **env) as process:
            assert came.wait(120), "publish did not ask the index for a dependency"
            os.killpg(process.pid, signal.SIGINT)
            out, err = process.communicate(timeout=60)
        assert ended.wait(30), "pip is still waiting for the index"
    assert (process.returncode, out) == (130, "")
    assert "Traceback" not in err
    assert err.splitlines()[-1].startswith("stopped")
    assert not (invoke.folder / "index").exists()
    assert not [path for path in invoke.cache.rglob("*.whl") if not path.is_symlink()]
