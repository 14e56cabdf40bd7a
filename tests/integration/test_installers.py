"""Real installers and a published tree: each takes the page's wheel, and none takes another."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.builders.index_wheels import stand_in
from tests.builders.later import later
from tests.builders.mutations import flip_bit
from tests.builders.served_index import running

from tfbuild.upstream.download import hash_file
from tfcore.errors import CommandError, PublishError, WheelError
from tfcore.records import write_atomic
from tfcore.run import run, stop_group
from tfwheels.gate import Judgement
from tfwheels.publish import publish
from tfwheels.serve import HOST, TreeServer
from tfwheels.store import open_store
from tfwheels.upload import UploadState, upload

pytestmark = pytest.mark.toolchain

NOW = "2026-11-21T12:00:00+00:00"
WANTED = ("tensorflow-cpu==2.14.1", "tensorflow-cpu", "tensorflow-cpu>=2.14")
RELEASES = ("2.13.1", "2.14.1")
TUNED = ("haswell", "x86_64_v3", "skylake_avx512", "zen4")
CHOSEN = {
    "ivybridge": "2.14.1",
    "zen2": "2.14.1+x86.64.v3",
    "cascadelake": "2.14.1+skylake.avx512",
    "zen5": "2.14.1+zen4",
}
# 19.2 is the oldest that starts on Python 3.11; 19.3 is the first that knows manylinux2014, which
# TensorFlow's own wheels are tagged with.
PIPS = {
    "pip 19.3": "pip==19.3 "
    "--hash=sha256:e100a7eccf085f0720b4478d3bb838e1c179b1e128ec01c0403f84e86e0e2dfb",
    "pip 26.3": "pip==26.3 "
    "--hash=sha256:f3b60b20ffaadd4415ed7957212a38ac63fa4c5fa375bd0f4a797777940fad13",
}
# Neither the user's index nor the user's cache: only the tree that is served.
ENV = {
    name: value for name, value in os.environ.items() if not name.startswith(("PIP_", "UV_"))
} | {"PIP_CONFIG_FILE": os.devnull, "UV_NO_CONFIG": "1"}

# What pip says, and uv of an exact version and of any.
NONE = "No matching distribution|there (is|are) no versions? of tensorflow-cpu"

Commands = dict[str, tuple[str | Path, ...]]


@pytest.fixture(scope="module")
def installers(tmp_path_factory: pytest.TempPathFactory) -> Commands:
    """How each begins to install into a folder; every pip in an environment of its own."""
    uv = Path(sys.executable).with_name("uv")
    commands: Commands = {
        "uv": (uv, "pip", "install", "--no-cache", "--python", sys.executable, "--default-index")
    }
    for name, locked in PIPS.items():
        folder = tmp_path_factory.mktemp(name.replace(" ", "-"))
        run([sys.executable, "-m", "venv", "--without-pip", folder])
        lock = folder / "pip.txt"
        write_atomic(lock, f"{locked}\n")
        pip = (sys.executable, "-m", "pip", "--python", str(folder), "install", "--quiet")
        run([*pip, "--require-hashes", "--only-binary=:all:", "--requirement", lock], timeout_s=300)
        quiet = ("--no-cache-dir", "--disable-pip-version-check")
        commands[name] = (folder / "bin" / "python", "-m", "pip", "install", *quiet, "--index-url")
    return commands


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two releases with a tuned wheel for each target, published."""
    path = tmp_path_factory.mktemp("made")
    wheels = [stand_in(path, version) for version in RELEASES]
    for target in TUNED:
        local = target.replace("_", ".")
        wheels += [stand_in(path, f"{version}+{local}", targets=(target,)) for version in RELEASES]
    root = tmp_path_factory.mktemp("index") / "tree"
    publish(wheels, open_store(str(root)), judgements={}, now=NOW)
    return root


@pytest.fixture(scope="module")
def served(tree: Path) -> Iterator[TreeServer]:
    with running(TreeServer(tree, 0)) as server:
        yield server


def install(command: tuple[str | Path, ...], index: str, expected: str, folder: Path) -> str:
    """Install what is `expected` from an index; the version that came. Raises CommandError."""
    run([*command, index, "--target", folder, expected], env=ENV, timeout_s=120)
    (info,) = folder.glob("tensorflow_cpu-*.dist-info")
    return info.name.removeprefix("tensorflow_cpu-").removesuffix(".dist-info")


@pytest.mark.parametrize("target", ["zen2", *later(*(sorted(CHOSEN.keys() - {"zen2"})))])
@pytest.mark.parametrize("installer", ["uv", *later(*PIPS)])
def test_every_installer_takes_the_wheel_of_the_targets_page(
    installers: Commands, served: TreeServer, tmp_path: Path, installer: str, target: str
) -> None:
    index = f"{served.url}/simple/{target}/"
    versions = [
        install(installers[installer], index, expected, tmp_path / str(number))
        for number, expected in enumerate(WANTED)
    ]
    assert versions == [CHOSEN[target]] * len(WANTED)


@pytest.mark.parametrize("installer", ["pip 26.3", *later("pip 19.3", "uv")])
def test_an_older_release_comes_from_the_same_page(
    installers: Commands, served: TreeServer, tmp_path: Path, installer: str
) -> None:
    index = f"{served.url}/simple/zen4/"
    expected = "tensorflow-cpu==2.13.1"
    assert install(installers[installer], index, expected, tmp_path / "in") == "2.13.1+zen4"


@pytest.mark.parametrize("installer", ["pip 26.3", *later("pip 19.3", "uv")])
def test_what_the_page_does_not_list_cannot_be_had_from_it(
    installers: Commands, served: TreeServer, tmp_path: Path, installer: str
) -> None:
    index = f"{served.url}/simple/ivybridge/"
    with pytest.raises(CommandError, match=r"2\.14\.1\+zen4"):
        install(installers[installer], index, "tensorflow-cpu==2.14.1+zen4", tmp_path / "in")


@pytest.mark.parametrize("installer", ["pip 26.3", "uv", *later("pip 19.3")])
@pytest.mark.parametrize("target", ["nehalem", *later("x86_64", "core2", "k10", "x86_64_v2")])
def test_a_cpu_without_avx_is_told_that_there_is_no_wheel(
    installers: Commands, served: TreeServer, tmp_path: Path, installer: str, target: str
) -> None:
    index = f"{served.url}/simple/{target}/"
    for expected in WANTED:
        with pytest.raises(CommandError, match=NONE):
            install(installers[installer], index, expected, tmp_path / "in")
    assert not (tmp_path / "in" / "tensorflow_cpu").exists()


def test_uv_does_not_go_on_to_an_index_that_has_the_stock_wheel(
    installers: Commands, served: TreeServer, tmp_path: Path
) -> None:
    """As it would for a page that is not there."""
    *uv, option = installers["uv"]
    stock = f"{served.url}/simple/ivybridge/"
    for first, came in (("no-such-target", True), ("nehalem", False)):
        command = (*uv, "--index", f"{served.url}/simple/{first}/", option)
        with contextlib.nullcontext() if came else pytest.raises(CommandError, match=NONE):
            assert install(command, stock, WANTED[0], tmp_path / first) == "2.14.1"


@pytest.mark.parametrize("installer", ["pip 26.3", *later("pip 19.3", "uv")])
def test_a_cpu_without_avx_gets_a_full_build_for_it(
    installers: Commands, tmp_path: Path, installer: str
) -> None:
    path = tmp_path / "made"
    wheels = [
        stand_in(path, "2.14.1"),
        stand_in(path, "2.14.1+nehalem", targets=("nehalem",)),
        stand_in(path, "2.14.1+nehalem.full", full_build="nehalem"),
    ]
    publish(wheels, open_store(str(tmp_path / "tree")), judgements={}, now=NOW)
    with running(TreeServer(tmp_path / "tree", 0)) as server:
        index = f"{server.url}/simple/westmere/"
        assert install(installers[installer], index, WANTED[0], tmp_path / "in") == (
            "2.14.1+nehalem.full"
        )


@pytest.mark.parametrize("installer", ["pip 26.3", "uv", *later("pip 19.3")])
def test_what_a_page_says_of_a_wheel_keeps_no_installer_from_it(
    installers: Commands, tmp_path: Path, installer: str
) -> None:
    """Paragraphs and private names, with letters of any kind."""
    wheel = stand_in(tmp_path, "2.14.1+zen4", targets=("zen4",))
    fault = 'it is slower in <a href="x.whl">ä</a> on 2 vCPUs (0.900x)'
    judgement = Judgement(verdicts=(), faults=(fault,), gaps=(), silent=(), published={})
    judged = {hash_file(wheel): judgement}
    publish([wheel], open_store(str(tmp_path / "tree")), judgements=judged, now=NOW)
    page = tmp_path / "tree/simple/zen4/tensorflow-cpu"
    assert "without passing the gate" in (page / "index.html").read_text("ascii")
    with running(TreeServer(tmp_path / "tree", 0)) as server:
        index = f"{server.url}/simple/zen4/"
        assert install(installers[installer], index, WANTED[0], tmp_path / "in") == "2.14.1+zen4"
        (page / "index.json").unlink()
        assert install(installers[installer], index, WANTED[0], tmp_path / "as") == "2.14.1+zen4"


@pytest.mark.parametrize("installer", ["pip 26.3", *later("pip 19.3", "uv")])
def test_a_wheel_that_was_tampered_with_is_refused(
    installers: Commands, tree: Path, tmp_path: Path, installer: str
) -> None:
    """A byte that no archive reader looks at (a member's time), so nothing but the hash tells."""
    other_path = shutil.copytree(tree, tmp_path / "tree")
    (wheel,) = other_path.glob("pool/*/tensorflow_cpu-2.14.1+zen4-*.whl")
    flip_bit(wheel, 10)
    with (
        running(TreeServer(other_path, 0)) as server,
        pytest.raises(CommandError, match=r"DO NOT MATCH THE HASHES|Hash mismatch"),
    ):
        install(installers[installer], f"{server.url}/simple/zen4/", WANTED[0], tmp_path / "in")
    assert not (tmp_path / "in" / "tensorflow_cpu").exists()


# ---- an index with an upload API ----


@contextlib.contextmanager
def pypiserver(folder: Path) -> Iterator[str]:
    """A pypiserver process that lets everybody upload; its address."""
    with socket.socket() as free:
        free.bind((HOST, 0))
        port = free.getsockname()[1]
    words = ("-m", "pypiserver", "run", "--interface", HOST, "--port", str(port))
    folder.mkdir()
    with subprocess.Popen(
        [sys.executable, *words, "--passwords", ".", "--authenticate", ".", folder],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            while process.poll() is None:
                with contextlib.suppress(OSError), socket.create_connection((HOST, port)):
                    break
                time.sleep(0.05)
            yield f"http://{HOST}:{port}/"
        finally:
            stop_group(process)


@pytest.mark.parametrize("installer", ["pip 26.3", *later("pip 19.3", "uv")])
def test_a_pypiserver_takes_an_upload_and_gives_it_back(
    installers: Commands, tmp_path: Path, installer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TWINE_USERNAME", "nobody")
    monkeypatch.setenv("TWINE_PASSWORD", "nothing")
    wheel = stand_in(tmp_path, "2.14.1+zen4", targets=("zen4",))
    with pypiserver(tmp_path / "taken") as url:
        assert [sent_wheel.state for sent_wheel in upload([wheel], url)] == [UploadState.SENT]
        assert [sent_wheel.state for sent_wheel in upload([wheel], url)] == [UploadState.THERE]
        index = f"{url}simple/"
        came = install(installers[installer], index, WANTED[0], tmp_path / "in")
    assert came == "2.14.1+zen4"
    assert (tmp_path / "taken" / wheel.name).read_bytes() == wheel.read_bytes()


# ---- names that try to leave the pool ----


@pytest.mark.parametrize(
    "name",
    [
        "..\\..\\evil-1.0-py3-none-any.whl",
        "C:evil-1.0-py3-none-any.whl",
        "evil-1.0-py3-none-any.whl\n",
        "..-1.0-py3-none-any.whl",
        "evil%2F..-1.0-py3-none-any.whl",
        "evil-..-py3-none-any.whl",
    ],
)
def test_a_name_that_could_leave_the_pool_is_refused(tmp_path: Path, name: str) -> None:
    wheel = stand_in(tmp_path / "made", "1.0", name="evil", python="py3")
    renamed = wheel.rename(wheel.with_name(name))
    index = tmp_path / "tree"
    with pytest.raises((PublishError, WheelError)):
        publish([renamed], open_store(str(index)), judgements={}, now=NOW)
    assert not list(tmp_path.rglob("*.metadata"))


def test_a_link_is_not_published_and_not_published_through(tmp_path: Path) -> None:
    wheel = stand_in(tmp_path / "made", "2.14.1")
    link = tmp_path / wheel.name
    link.symlink_to(wheel)
    index = tmp_path / "tree"
    with pytest.raises(PublishError, match="link"):
        publish([link], open_store(str(index)), judgements={}, now=NOW)
    (tmp_path / "elsewhere").mkdir()
    index.mkdir(exist_ok=True)
    (index / "pool").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(PublishError, match="link"):
        publish([wheel], open_store(str(index)), judgements={}, now=NOW)
    assert not list((tmp_path / "elsewhere").iterdir())
