"""Real Bazel on builds that fail as full builds do: the cause, the label and the remedy."""

from __future__ import annotations

import dataclasses
import os
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.builders import trees
from tests.builders.file_limits import mounted_disk
from tests.builders.web_server import Site, serving

from tfbuild.tools import bazel
from tfbuild.tools.bazel import Bazel
from tfbuild.watching import diagnosis, events
from tfbuild.watching.attempt import Attempt
from tfbuild.watching.diagnosis import Cause, Diagnosis
from tfbuild.watching.events import BuildOutcome
from tfbuild.watching.pace import Progress
from tfcore import settings
from tfcore.run import Completed
from tfcore.settings import Paths

pytestmark = pytest.mark.toolchain

PIP_PACKAGE = "//tensorflow/tools/pip_package:build_pip_package"
CORE = Path("tensorflow/core")
CLANG = "/usr/bin/clang-16"
SLOW = 12
ATTEMPT = Attempt(jobs=8)

Change = Callable[[Path], None]


@dataclasses.dataclass(frozen=True)
class Bench:
    """One Bazel with one output folder; the tree is made anew for every build."""

    bazel: Bazel
    tools: Paths
    folder: Path

    @property
    def events(self) -> Path:
        return self.folder / "events.json"

    def build(
        self,
        *options: str,
        change: Change = lambda _: None,
        target: str = PIP_PACKAGE,
        compiler: str = CLANG,
        cache: Path | None = None,
        on_progress: Callable[[int, int, str], None] = lambda *_: None,
    ) -> Completed:
        tree = self.folder / "tree"
        shutil.rmtree(tree, ignore_errors=True)
        change(trees.make_tree(tree))
        words = (
            *trees.repository_options(self.bazel, self.tools),
            *events.build_options(self.events),
            f"--repo_env=CC={compiler}",
            "--compilation_mode=opt",
            "--color=no",
            "--curses=no",
            *options,
        )
        return bazel.build(
            self.bazel,
            (target,),
            workspace=tree,
            options=words,
            paths=dataclasses.replace(self.tools, cache=cache or self.folder / "cache"),
            log=self.folder / "build.log",
            on_progress=on_progress,
        )

    def outcome(self) -> BuildOutcome:
        outcome = events.read_outcome(self.events)
        assert outcome is not None
        return outcome

    def diagnosis(self, *options: str, **other_records: object) -> Diagnosis:
        self.events.unlink(missing_ok=True)
        done = self.build(*options, **other_records)  # type: ignore[arg-type]
        assert done.returncode != 0, done.output
        return diagnosis.diagnose(events.read_outcome(self.events), done.output)


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    usual = settings.paths()
    if bazel.find_bazelisk(usual) is None:
        bazel.install_bazelisk(usual)
    folder = tmp_path_factory.mktemp("failing")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("USE_BAZEL_VERSION", str(bazel.DEBIAN_BAZEL))
        for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"):
            patch.delenv(name, raising=False)
        yield Bench(bazel=bazel.find_bazel(usual, "4.2.1"), tools=usual, folder=folder)
    shutil.rmtree(folder, ignore_errors=True)  # (Bazel makes its folders read-only)


def written(name: Path, text: str) -> Change:
    def change(tree: Path) -> None:
        (tree / name).write_text(text)

    return change


def compiler(folder: Path, name: str, body: str) -> str:
    """A compiler that does `body` for XNNPACK's source and is clang for the rest."""
    wrapper = folder / name / "clang-16"
    wrapper.parent.mkdir()
    script = f'#!/bin/sh\ncase "$*" in *vmul.cc*) {body};; esac\nexec {CLANG} "$@"\n'
    wrapper.write_text(script)
    wrapper.chmod(0o755)
    return str(wrapper)


@pytest.mark.slow
def test_a_flag_that_clang_lacks_is_named_with_its_define(bench: Bench) -> None:
    failure = bench.diagnosis("--per_file_copt=.*XNNPACK.*@-mavx512fp99")
    assert (failure.cause, failure.label) == (Cause.FLAG, "@XNNPACK//:XNNPACK")
    assert failure.what == "-mavx512fp99"
    assert (
        diagnosis.plan_next_attempt(ATTEMPT, failure) is None
    )  # no kernels of XNNPACK's are known for it


@pytest.mark.slow
def test_a_flag_that_gcc_lacks_has_its_kernels_switched_off(bench: Bench) -> None:
    """g++ 12 knows -mavx512fp16 and lacks -mavxvnniint8."""
    failure = bench.diagnosis("--per_file_copt=.*XNNPACK.*@-mavxvnniint8", compiler="/usr/bin/gcc")
    assert (failure.cause, failure.label) == (Cause.FLAG, "@XNNPACK//:XNNPACK")
    assert failure.remedy == "Use --define xnn_enable_avxvnniint8=false"
    again = diagnosis.plan_next_attempt(ATTEMPT, failure)
    assert again is not None
    assert again.defines == ("xnn_enable_avxvnniint8=false",)


@pytest.mark.slow
def test_a_host_tool_that_dies_of_sigill_is_told_from_a_broken_one(bench: Bench) -> None:
    dies = written(CORE / "op_gen.cc", "int main() { __builtin_trap(); }\n")
    failure = bench.diagnosis(change=dies)
    assert (failure.cause, failure.label) == (Cause.HOST_TOOL, "//tensorflow/core:table")
    assert "Illegal instruction" in failure.deciding_line
    assert "host_copt" in failure.remedy


@pytest.mark.slow
def test_a_compiler_that_the_kernel_killed_is_out_of_memory(bench: Bench) -> None:
    killed = compiler(bench.folder, "killed", "kill -9 $$")
    failure = bench.diagnosis(compiler=killed)
    assert (failure.cause, failure.label) == (Cause.MEMORY, "@XNNPACK//:XNNPACK")
    assert "src/vmul.cc failed: (Killed)" in failure.deciding_line
    assert "--jobs" in failure.remedy
    assert diagnosis.plan_next_attempt(ATTEMPT, failure) == dataclasses.replace(ATTEMPT, jobs=4)


def test_a_source_that_does_not_compile_is_shown_with_the_compilers_words(bench: Bench) -> None:
    failure = bench.diagnosis(change=written(CORE / "ops.cc", "int x() { return missing_name; }\n"))
    assert (failure.cause, failure.label) == (Cause.COMPILE, "//tensorflow/core:ops")
    assert failure.deciding_line.endswith("error: use of undeclared identifier 'missing_name'")
    assert bench.outcome().failures[0].stderr  # the words came from the event's own file


@pytest.mark.slow
def test_an_undefined_symbol_is_the_linkers(bench: Bench) -> None:
    text = "int nowhere();\nint main() { return nowhere(); }\n"
    failure = bench.diagnosis(change=written(CORE / "op_gen.cc", text))
    assert (failure.cause, failure.label) == (Cause.LINK, "//tensorflow/core:op_gen")
    assert "nowhere" in failure.deciding_line


@pytest.mark.slow
def test_a_target_of_another_release_is_named(bench: Bench) -> None:
    wheel = "//tensorflow/tools/pip_package:wheel"
    failure = bench.diagnosis(target=wheel)
    assert (failure.cause, failure.label, failure.what) == (Cause.TARGET, wheel, wheel)
    assert "--release" in failure.remedy


@pytest.mark.slow
def test_a_config_that_the_tree_lacks_is_named(bench: Bench) -> None:
    failure = bench.diagnosis("--config=numa")
    assert (failure.cause, failure.what) == (Cause.CONFIG, "numa")
    assert failure.remedy.startswith("Remove --config=numa")


@pytest.mark.slow
def test_an_option_that_this_bazel_lacks_is_named(bench: Bench) -> None:
    failure = bench.diagnosis("--noenable_bzlmod")
    assert (failure.cause, failure.what) == (Cause.OPTION, "--noenable_bzlmod")
    assert "USE_BAZEL_VERSION" in failure.remedy


def needs_archive(url: str) -> Change:
    def change(tree: Path) -> None:
        with (tree / "WORKSPACE").open("a") as workspace:
            workspace.write(
                'load("@bazel_tools//tools/build_defs/repo:http.bzl", "http_archive")\n'
                f'http_archive(name = "far", urls = ["{url}"], sha256 = "{"0" * 64}")\n'
            )
        build = tree / CORE / "BUILD"
        build.write_text(build.read_text().replace('["@XNNPACK"]', '["@XNNPACK", "@far"]'))

    return change


@pytest.mark.slow
def test_an_archive_that_is_not_the_pinned_one_is_not_fetched_again(bench: Bench) -> None:
    with serving(Site(files={"/far.tar.gz": b"something else"})) as site:
        url = f"{site.url}/far.tar.gz"
        failure = bench.diagnosis(change=needs_archive(url))
    assert (failure.cause, failure.label, failure.what) == (Cause.CHECKSUM, "//external:far", url)
    assert "invoke vendor" in failure.remedy
    assert diagnosis.plan_next_attempt(ATTEMPT, failure) is None


@pytest.mark.slow
def test_an_archive_that_no_server_has_is_a_failed_download(bench: Bench) -> None:
    with serving(Site(files={})) as site:
        url = f"{site.url}/far.tar.gz"
        failure = bench.diagnosis(change=needs_archive(url))
    assert (failure.cause, failure.label, failure.what) == (Cause.DOWNLOAD, "//external:far", url)
    assert diagnosis.plan_next_attempt(ATTEMPT, failure) is None  # the server will say 404 again


@pytest.mark.slow
def test_a_remote_executor_that_is_down_is_named(bench: Bench) -> None:
    failure = bench.diagnosis("--remote_executor=grpc://127.0.0.1:9")
    assert failure.cause is Cause.REMOTE
    assert "--remote-executor" in failure.remedy


@pytest.mark.slow
def test_a_disk_that_runs_full_is_named(bench: Bench, tmp_path: Path) -> None:
    # (stamped: it runs after Bazel has written its status files, so nothing but it meets the full
    # disk)
    fills = (
        'genrule(name = "big", outs = ["big.bin"], stamp = True,'
        ' cmd = "head -c 16M /dev/zero > $@")\n'
    )
    with mounted_disk(tmp_path / "small", "8m") as small:
        failure = bench.diagnosis(
            change=written(CORE / "BUILD", fills), target="//tensorflow/core:big", cache=small
        )
    assert (failure.cause, failure.label) == (Cause.DISK, "//tensorflow/core:big")
    assert "TENSORWRIGHT_CACHE" in failure.remedy


def slow(tree: Path) -> None:
    rules = [
        f'genrule(name = "g{i}", outs = ["g{i}.h"], cmd = "sleep 0.4; echo > $@")\n'
        for i in range(SLOW)
    ]
    names = ", ".join(f'"g{i}"' for i in range(SLOW))
    (tree / CORE / "BUILD").write_text(
        "".join(rules) + f'filegroup(name = "all", srcs = [{names}])\n'
    )


def kill_builds_in(folder: Path) -> None:
    """SIGKILL to the process group of the Bazel that writes below `folder`."""
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            words = (entry / "cmdline").read_bytes().decode(errors="replace")
            if f"--output_user_root={folder}" in words:
                os.killpg(os.getpgid(int(entry.name)), signal.SIGKILL)
        except OSError:
            continue  # it has ended meanwhile


@pytest.mark.slow
def test_a_killed_build_goes_on_where_it_was(bench: Bench) -> None:
    """By the disk cache, which a full build has: Bazel's own record of what it did is written
    every few seconds, and a killed one was seen to lose all of it, or the last of it."""
    cache = bench.folder / "killed"
    ended: list[int] = []

    def kill_in_the_middle(done: int, _total: int, _detail: str) -> None:
        ended.append(done)
        if done > SLOW // 2:
            kill_builds_in(cache)

    def build(on_progress: Callable[[int, int, str], None]) -> Completed:
        return bench.build(
            "--jobs=1",
            "--show_progress_rate_limit=0.01",
            f"--disk_cache={cache}/disk",
            change=slow,
            target="//tensorflow/core:all",
            cache=cache,
            on_progress=on_progress,
        )

    first = build(kill_in_the_middle)
    assert first.returncode == -signal.SIGKILL
    assert not bench.outcome().finished
    failure = diagnosis.diagnose(bench.outcome(), first.output)
    assert failure.cause is Cause.INTERRUPTED

    second = build(lambda *_: None)
    assert second.returncode == 0, second.output
    outcome = bench.outcome()
    assert (outcome.finished, outcome.exit_code) == (True, 0)
    # One action may have ended, and one was running, when the last progress was told. The others
    # come from the disk cache, or were not asked for: of those Bazel had its own record after all.
    assert outcome.runners["linux-sandbox"] <= SLOW - (max(ended) - 2)


@pytest.mark.slow
def test_progress_is_told_while_the_build_runs(bench: Bench) -> None:
    updates: list[Progress] = []
    lead: list[int] = []
    with events.follow_events(bench.events, updates.append):
        done = bench.build(
            "--jobs=1",
            "--action_env=AGAIN=1",
            change=slow,
            target="//tensorflow/core:all",
            on_progress=lambda *_: lead.append(len(updates)),
        )
    assert done.returncode == 0, done.output
    assert updates[-1].total > SLOW
    counts = [progress.done for progress in updates]
    assert counts == sorted(counts)
    assert lead[-1] > 0  # (not all at the end: Bazel was still printing when the first was told)
