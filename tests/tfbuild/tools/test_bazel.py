from __future__ import annotations

import contextlib
import dataclasses
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.builders.plans import planned

from tfbuild.checks import TESTED_RELEASE
from tfbuild.planning import render
from tfbuild.tools import bazel
from tfbuild.tools.bazel import Bazel
from tfbuild.upstream import releases
from tfcore import settings
from tfcore.errors import DownloadError, ToolError
from tfcore.run import Completed
from tfcore.settings import Paths

PATHS = Paths(root=settings.ROOT, cache=Path("/cache"), pool=Path("/pool"))
DOWNLOADED = Bazel(bazelisk=Path("/b/bazelisk"), use="6.1.0", version="6.1.0", debian=False)
DEBIAN = Bazel(bazelisk=Path("/b/bazelisk"), use="/usr/bin/bazel-4", version="4.2.3", debian=True)


@pytest.mark.parametrize("bazel_tool", [DOWNLOADED, DEBIAN])
def test_nothing_of_the_machines_own_settings_is_read_and_no_server_stays(
    bazel_tool: Bazel,
) -> None:
    options = bazel.build_startup_options(bazel_tool, PATHS)
    assert {"--nohome_rc", "--nosystem_rc", "--batch"} <= set(options)
    staying = bazel.build_startup_options(bazel_tool, PATHS, stays=True)
    assert "--batch" not in staying
    assert len(staying) == len(options)
    assert "--output_user_root=/cache/bazel" in options
    assert any(option.startswith("--install_base") for option in options) is bazel_tool.debian


def test_repositories_are_overridden_in_one_order() -> None:
    folders = {"tf_wheel": Path("/w"), "rules_cc": Path("/r"), "tf_source": Path("/s")}
    assert bazel.build_repository_options(DOWNLOADED, folders) == (
        "--override_repository=tf_source=/s",
        "--override_repository=tf_wheel=/w",
    )
    options = bazel.build_repository_options(DEBIAN, folders)
    names = [option.split("=")[1] for option in options if option.startswith("--override")]
    own_lines = ["bazel_skylib", "platforms", "rules_cc", "rules_java", "rules_proto"]
    assert names == [*own_lines, "tf_source", "tf_wheel"]
    assert options[-1] == "--host_javabase=@local_jdk//:jdk"
    assert set(folders) == {"tf_wheel", "rules_cc", "tf_source"}  # the caller's is left alone


def test_the_shell_does_not_choose_the_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"CC": "gcc", "CXX": "g++", "HTTPS_PROXY": "http://p", "CCC": "x"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("BAZELISK_VERIFY_SHA256", raising=False)
    environment = bazel.build_environment("6.1.0", "ab")
    assert not {"CC", "CXX"} & set(environment)
    assert (environment["HTTPS_PROXY"], environment["CCC"]) == ("http://p", "x")
    assert (environment["USE_BAZEL_VERSION"], environment["BAZELISK_VERIFY_SHA256"]) == (
        "6.1.0",
        "ab",
    )
    assert "BAZELISK_VERIFY_SHA256" not in bazel.build_environment("6.1.0")


def test_bazelisk_is_taken_from_path_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    empty = dataclasses.replace(PATHS, cache=tmp_path / "cache")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert bazel.find_bazelisk(empty) is None
    (tmp_path / "bazelisk").symlink_to(shutil.which("true", path="/usr/bin:/bin") or "")
    assert bazel.find_bazelisk(empty) == tmp_path / "bazelisk"


@pytest.mark.toolchain
@pytest.mark.parametrize("silent", [False, True])
def test_a_registry_that_does_not_answer_is_not_waited_for(
    silent: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that nobody listens at, and one that takes a connection and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        if not silent:
            server.close()
        monkeypatch.setenv("npm_config_registry", f"http://127.0.0.1:{port}/")
        monkeypatch.setenv("npm_config_cache", str(tmp_path / "npm"))
        monkeypatch.setattr(bazel, "ANSWER_S", 2.0)
        began = time.monotonic()
        with pytest.raises(DownloadError, match="could not download bazelisk") as caught:
            bazel.install_bazelisk(dataclasses.replace(PATHS, cache=tmp_path / "cache"))
        assert time.monotonic() - began < 20
    assert ("ECONNREFUSED" in str(caught.value)) is not silent
    assert "\n" not in str(caught.value)
    assert "npm config set registry" in caught.value.hint


@pytest.fixture(scope="module")
def here() -> Paths:
    """The user's own tool folder: installing bazelisk is what `invoke doctor` does."""
    paths = settings.paths()
    if bazel.find_bazelisk(paths) is None:
        bazel.install_bazelisk(paths)
    return paths


@pytest.mark.toolchain
@pytest.mark.parametrize(
    ("use", "message"),
    [
        ("nonsense", "'nonsense'"),
        ("/nonexistent/bazel", "no such file"),
        ("/bin/true", "is not Bazel"),
    ],
)
def test_a_bazel_that_was_asked_for_and_is_none_is_a_tool_error(
    here: Paths, monkeypatch: pytest.MonkeyPatch, use: str, message: str
) -> None:
    monkeypatch.setenv("USE_BAZEL_VERSION", use)
    with pytest.raises(ToolError, match=message) as caught:
        bazel.find_bazel(here, "6.1.0")
    assert use in caught.value.message


BUILD = """
cc_binary(name = "answer", srcs = ["answer.cc"])
cc_library(name = "broken", srcs = ["broken.cc"])
cc_library(name = "other", srcs = ["other.cc"])
"""
RC = "build --spawn_strategy=local --color=no --curses=no --show_timestamps=no\n"


@dataclasses.dataclass(frozen=True)
class Project:
    """A small workspace of its own, with an output folder of its own."""

    bazel: Bazel
    folder: Path
    paths: Paths
    options: tuple[str, ...]

    def build(self, *targets: str, **options: object) -> Completed:
        log = self.paths.cache / "build.log"
        return bazel.build(
            self.bazel,
            targets,
            workspace=self.folder,
            options=self.options,
            paths=self.paths,
            log=log,
            **options,  # type: ignore[arg-type]
        )


@pytest.fixture(scope="module")
def project(here: Paths, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Project]:
    folder = tmp_path_factory.mktemp("workspace")
    own_paths = dataclasses.replace(here, cache=tmp_path_factory.mktemp("cache"))
    release = releases.find_release(TESTED_RELEASE)
    texts = {
        "WORKSPACE": "",
        "BUILD.bazel": BUILD,
        ".bazelrc": RC,
        "answer.cc": '#include <cstdio>\nint main() { std::puts("42"); }\n',
        "broken.cc": "int broken() { return missing_name; }\n",
        "other.cc": "int other() { return 1; }\n",
    }
    for name, text in texts.items():
        (folder / name).write_text(text)
    rules = own_paths.cache / "rules_cc"
    render.write(render.render_repositories(planned(), here.templates)["rules_cc"], rules)
    bazel_tool = bazel.find_bazel(here, release.bazel)
    options = bazel.build_repository_options(bazel_tool, {"rules_cc": rules})
    yield Project(bazel=bazel_tool, folder=folder, paths=own_paths, options=options)
    shutil.rmtree(own_paths.cache, ignore_errors=True)  # (Bazel makes its folders read-only)


@pytest.mark.toolchain
def test_a_program_is_built_and_its_progress_is_told(project: Project) -> None:
    steps: list[tuple[int, int, str]] = []
    done = project.build("//:answer", stays=True, on_progress=lambda *step: steps.append(step))
    assert done.returncode == 0, done.output
    out = project.folder / "bazel-bin"
    answer = subprocess.run([out / "answer"], check=True, capture_output=True, text=True)
    assert answer.stdout == "42\n"
    assert out.resolve().is_relative_to(project.paths.cache.resolve())
    assert all(0 <= finished <= total for finished, total, _ in steps)
    assert steps
    servers = [command for command in commands() if str(project.paths.cache) in command]
    assert len(servers) == 1
    bazel.stop_server(project.bazel, workspace=project.folder, paths=project.paths)
    need_no_server(project)


@pytest.mark.toolchain
def test_a_compile_that_fails_is_an_answer_with_the_compilers_words(project: Project) -> None:
    done = project.build("//:broken", "//:other", keep_going=True)
    assert done.returncode == 1
    assert "'missing_name'" in done.output
    assert "broken.cc:1" in done.output
    assert "ERROR: " in done.output
    assert (project.paths.cache / "build.log").read_text() == done.output
    assert not (project.paths.cache / "build.log.sh").exists()
    out = project.folder / "bazel-bin"
    assert list(out.rglob("libother.a"))  # the rest is built with keep_going


@pytest.mark.slow
@pytest.mark.toolchain
def test_no_server_outlives_a_build(project: Project) -> None:
    """A Bazel server would hold memory, and keep the caller's output open."""
    project.build("//:other")
    need_no_server(project)


def need_no_server(project: Project) -> None:
    root = str(project.paths.cache)
    deadline = time.monotonic() + 10
    while servers := [command for command in commands() if root in command]:
        assert time.monotonic() < deadline, servers
        time.sleep(0.1)


def commands() -> Iterator[str]:
    """The command line of every process."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            yield path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
