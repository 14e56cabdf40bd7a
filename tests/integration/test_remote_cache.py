"""Builds of the small tree through real cache servers, whole and broken ones."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import ANY

import pytest
from tests.builders.cache_servers import Cache, buildbox, free_port, nginx, rc_of, serving
from tests.builders.trees import PIP_PACKAGE, make_tree, repository_options

from tfbuild.remote import caches, headers
from tfbuild.remote.caches import Remote
from tfbuild.remote.toolchain import Toolchain, build_key_options, identify_toolchain
from tfbuild.tools import bazel
from tfbuild.tools.bazel import Bazel
from tfcore.cpus import compilers
from tfcore.run import Completed
from tfcore.settings import Paths

pytestmark = pytest.mark.toolchain

TARGET = "//tensorflow/tools/pip_package:build_pip_package"
COMPILED = 6
"""Actions of the small tree that run a program: 4 compile, 2 link or generate."""
SECRET = "Bearer s3cr3t-of-the-cache="  # noqa: S105  (of a server that lives for one test)
_COUNTS = re.compile(r"^INFO: \d+ processes?: (.*)\.$", re.MULTILINE)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Built:
    done: Completed
    counts: dict[str, int]
    wheel: str  # its SHA-256; empty for a build that failed


@dataclasses.dataclass(frozen=True, kw_only=True)
class Bench:
    """One tree, built again and again, with no output left of the last time."""

    found: Bazel
    tree: Path
    paths: Paths
    toolchain: Toolchain

    def build(self, remote: Remote, *options: str) -> Built:
        """With the caches of this machine empty."""
        remove(self.paths.cache / "disk")
        self.clean()
        return self.again(remote, *options)

    def again(self, remote: Remote, *options: str) -> Built:
        caches.check_remote(remote, self.found)
        events = headers.create_private_file(self.paths.cache / "events.json")
        arguments = (
            *repository_options(self.found, self.paths),
            *("--repo_env=CC=/usr/bin/clang-16", "--compilation_mode=opt"),
            *("--color=no", "--curses=no"),
            *(() if remote.executor else ("--spawn_strategy=local",)),
            *("--incompatible_strict_action_env", f"--build_event_json_file={events}"),
            *caches.build_options(remote, self.found.version, self.paths.cache / "disk"),
            *build_key_options(self.toolchain, remote),
            *options,
        )
        done = bazel.build(
            self.found,
            (TARGET,),
            workspace=self.tree,
            options=arguments,
            paths=self.paths,
            log=self.paths.cache / "build.log",
            startup=headers.build_startup_options(remote.rc, self.paths.cache / "closed"),
        )
        output = _COUNTS.findall(done.output)
        pairs = [word.split(" ", 1) for word in (output or [""])[-1].split(", ") if word]
        return Built(
            done=done,
            counts={name: int(number) for number, name in pairs},
            wheel="" if done.returncode else self.wheel(),
        )

    def wheel(self) -> str:
        out = self.paths.cache / "wheel"
        out.mkdir(exist_ok=True)
        packer = self.tree / "bazel-bin" / PIP_PACKAGE / "build_pip_package"
        env = {"PYTHON_BIN_PATH": sys.executable, "PATH": "/usr/bin:/bin"}
        subprocess.run([packer, out, "--cpu"], check=True, env=env, cwd=self.tree)
        (wheel,) = out.glob("*.whl")
        return hashlib.sha256(wheel.read_bytes()).hexdigest()

    def clean(self) -> None:
        """As `bazel clean`: what it found out about the compiler stays."""
        for name in ("execroot", "action_cache"):
            for folder in self.paths.cache.glob(f"bazel/*/{name}"):
                remove(folder)

    def expunge(self) -> None:
        for name in ("bazel", "closed", "disk"):
            remove(self.paths.cache / name)


def remove(folder: Path) -> None:
    """A server that is ending may still write into the folder of a build with headers, and would
    take the next one's files there for its own."""
    deadline = time.monotonic() + 60
    if folder.name == "closed":
        for pid in folder.glob("bazel/*/server/server.pid.txt"):
            with contextlib.suppress(FileNotFoundError):  # the server has removed it
                while Path("/proc", pid.read_text("utf-8").strip()).exists():
                    assert time.monotonic() < deadline
                    time.sleep(0.1)
    while folder.exists():
        assert time.monotonic() < deadline
        subprocess.run(["chmod", "-R", "u+w", folder], check=False, capture_output=True)
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="module")
def bench(paths: Paths, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    cache = tmp_path_factory.mktemp("cache")
    (cache / "tools").symlink_to(paths.tools)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("USE_BAZEL_VERSION", str(bazel.DEBIAN_BAZEL))
        bazel_tool = bazel.find_bazel(paths, "4.2.1")
    new_bench = Bench(
        found=bazel_tool,
        tree=make_tree(tmp_path_factory.mktemp("tree")),
        paths=dataclasses.replace(paths, cache=cache),
        toolchain=identify_toolchain(compilers.find_compiler("clang-16")),
    )
    yield new_bench
    new_bench.expunge()


@pytest.fixture(scope="module")
def filled(bench: Bench) -> tuple[dict[str, bytes], str]:
    """What a first build left in a cache, and the wheel that it made."""
    with serving(Cache()) as cache:
        built = bench.build(Remote(cache=cache.url))
    assert built.counts["local"] == COMPILED, built.done.output
    return dict(cache.entries), built.wheel


@pytest.mark.slow
def test_nginx_gives_every_result_to_a_second_clean_build(
    bench: Bench, filled: tuple[dict[str, bytes], str], tmp_path: Path
) -> None:
    with nginx(tmp_path / "nginx") as url:
        first = bench.build(Remote(cache=url))
        bench.expunge()
        second = bench.build(Remote(cache=url))
    assert first.counts["local"] == COMPILED
    assert second.counts == {"internal": ANY, "remote cache hit": COMPILED}
    assert first.wheel == second.wheel == filled[1]


@pytest.mark.slow
def test_headers_open_the_cache_and_show_nowhere(bench: Bench, tmp_path: Path) -> None:
    opened = bench.paths.cache / "events.txt"
    header = f"--remote_header=Authorization={SECRET}"
    rc = rc_of(tmp_path, header, "--announce_rc", f"--build_event_text_file={opened}")
    command_lines: set[bytes] = set()
    over = threading.Event()
    watching = threading.Thread(target=watch, args=(command_lines, over))
    with nginx(tmp_path / "nginx", authorization=SECRET) as url:
        remote = caches.resolve_remote(cache=url, rc=rc)
        refused = bench.build(Remote(cache=url))
        watching.start()
        try:
            first = bench.build(remote)
            bench.expunge()
            second = bench.build(remote)
        finally:
            over.set()
            watching.join()
    assert refused.counts["local"] == first.counts["local"] == COMPILED
    assert second.counts["remote cache hit"] == COMPILED, second.done.output
    assert refused.wheel == first.wheel == second.wheel
    token = SECRET.split()[1].rstrip("=").encode()
    assert any(b"bazel(" in command for command in command_lines)  # the server was looked at
    assert not [command for command in command_lines if token in command]
    assert token.decode() not in first.done.output + second.done.output
    closed, events = bench.paths.cache / "closed", bench.paths.cache / "events.json"
    assert (closed.stat().st_mode & 0o777, events.stat().st_mode & 0o777) == (0o700, 0o600)
    assert token in events.read_bytes()  # Bazel writes every option there
    headers.redact(remote.rc.secrets, events)
    leaks = [path for path in bench.paths.cache.rglob("*") if holds(path, token)]
    assert all(path.is_relative_to(closed) for path in leaks), leaks


def watch(command_lines: set[bytes], over: threading.Event) -> None:
    """Every command line that any process has until `over`."""
    while not over.wait(0.05):
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            with contextlib.suppress(OSError):
                command_lines.add(path.read_bytes())


def hasty(folder: Path, *options: str) -> Path:
    """A bazelrc that waits for no server."""
    return rc_of(folder, "--remote_timeout=1s", *options)


def holds(path: Path, token: bytes) -> bool:
    return path.is_file() and not path.is_symlink() and token in path.read_bytes()


@pytest.mark.slow
@pytest.mark.parametrize(
    "fault",
    [
        *("refuses", "errors", "full", "dies", "slow", "short results", "lost results"),
        *("corrupt results", "corrupt actions", "short actions"),
    ],
)
def test_a_broken_cache_costs_time_and_nothing_else(
    bench: Bench, filled: tuple[dict[str, bytes], str], fault: str, tmp_path: Path
) -> None:
    entries = {} if fault == "full" else dict(filled[0])
    with serving(Cache(fault=fault, entries=entries)) as cache:
        built = bench.build(caches.resolve_remote(cache=cache.url, rc=hasty(tmp_path)))
    assert built.wheel == filled[1], built.done.output
    hits = built.counts.get("remote cache hit", 0)
    assert hits + built.counts["local"] == COMPILED
    assert hits < COMPILED
    if "results" in fault:  # nothing of a damaged answer stays in the cache of this machine
        bench.clean()
        from_disk = bench.again(Remote())
        assert from_disk.counts["remote cache hit"] == COMPILED  # (Bazel 4 calls it so)
        assert from_disk.wheel == filled[1]


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["http", "grpc"])
def test_a_cache_that_is_down_costs_nothing_but_its_hits(
    bench: Bench, filled: tuple[dict[str, bytes], str], scheme: str, tmp_path: Path
) -> None:
    down = f"{scheme}://127.0.0.1:{free_port()}"
    built = bench.build(caches.resolve_remote(cache=down, rc=hasty(tmp_path)))
    assert built.counts["local"] == COMPILED, built.done.output
    assert built.wheel == filled[1]


@pytest.mark.slow
def test_a_cluster_that_is_down_leaves_the_work_here(
    bench: Bench, filled: tuple[dict[str, bytes], str], tmp_path: Path
) -> None:
    down = f"--remote_executor=grpc://127.0.0.1:{free_port()}"
    built = bench.build(caches.resolve_remote(rc=hasty(tmp_path, down)))
    assert built.counts["linux-sandbox"] == COMPILED, built.done.output
    assert built.wheel == filled[1]


@pytest.mark.slow
def test_actions_without_outputs_are_mended_by_a_build_that_trusts_no_cache(
    bench: Bench, filled: tuple[dict[str, bytes], str]
) -> None:
    with serving(Cache(fault="empty actions", entries=dict(filled[0]))) as cache:
        remote = Remote(cache=cache.url)
        poisoned = bench.build(remote)
        assert poisoned.done.returncode == 1
        remove(bench.paths.cache / "disk")
        mended = bench.again(remote, *caches.DISTRUSTING)
        assert mended.wheel == filled[1], mended.done.output
        bench.clean()
        cache.fault = ""
        after = bench.again(remote)
    assert after.wheel == filled[1], after.done.output
    assert "local" not in after.counts


@pytest.mark.slow
def test_another_toolchain_finds_nothing(
    bench: Bench, filled: tuple[dict[str, bytes], str]
) -> None:
    other_toolchain = dataclasses.replace(bench.toolchain, digest="0" * 64)
    with serving(Cache(entries=dict(filled[0]))) as cache:
        built = dataclasses.replace(bench, toolchain=other_toolchain).build(Remote(cache=cache.url))
    assert built.counts["local"] == COMPILED


@pytest.mark.slow
def test_a_cache_that_is_only_read_gets_nothing_and_the_disk_everything(
    bench: Bench, filled: tuple[dict[str, bytes], str], tmp_path: Path
) -> None:
    with serving(Cache()) as cache:
        rc = rc_of(tmp_path, "--noremote_upload_local_results", f"--remote_cache={cache.url}")
        built = bench.build(caches.resolve_remote(rc=rc))
    assert (built.counts["local"], cache.written) == (COMPILED, 0)
    bench.clean()
    assert bench.again(Remote()).counts["remote cache hit"] == COMPILED


@pytest.mark.slow
def test_buildbox_gives_every_result_to_a_second_clean_build(
    bench: Bench, filled: tuple[dict[str, bytes], str], tmp_path: Path
) -> None:
    with buildbox(tmp_path / "box", bench.paths) as url:
        first, second = bench.build(Remote(cache=url)), bench.build(Remote(cache=url))
    assert first.counts["local"] == COMPILED, first.done.output
    assert second.counts == {"internal": ANY, "remote cache hit": COMPILED}
    assert first.wheel == second.wheel == filled[1]


@pytest.mark.slow
def test_a_cluster_compiles_what_this_machine_would_have_and_caches_it(
    bench: Bench, filled: tuple[dict[str, bytes], str], tmp_path: Path
) -> None:
    with buildbox(tmp_path / "box", bench.paths) as url:
        remote = Remote(executor=url)
        first, second = bench.build(remote), bench.build(remote)
        rc = rc_of(tmp_path, "--remote_default_exec_properties=pool=large")
        other_value = bench.build(caches.resolve_remote(executor=url, rc=rc))
    assert first.counts == {"internal": ANY, "remote": COMPILED}, first.done.output
    assert second.counts == {"internal": ANY, "remote cache hit": COMPILED}
    assert "remote cache hit" not in other_value.counts  # what a worker is, is part of the key
    assert first.wheel == second.wheel == filled[1]
