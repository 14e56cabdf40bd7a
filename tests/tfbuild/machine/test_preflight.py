from __future__ import annotations

import os
import sys
import sysconfig
from pathlib import Path

import pytest
from tests.builders.plans import planned_full

from tfbuild.machine import memory, preflight
from tfbuild.machine.checklist import CheckVerdict, Finding, render_table
from tfbuild.machine.network import HostAnswer
from tfbuild.upstream.releases import find_release
from tfcore import settings
from tfcore.cpus import compilers
from tfcore.cpus.compilers import Compiler
from tfcore.settings import Paths

DECLARED = Compiler(family="clang", version="16.0.6", path=Path("clang"), architecture="x86_64")
MIRROR, GITHUB = "https://storage.googleapis.com/mirror.tensorflow.org/", "https://github.com/"
BAZEL = "https://releases.bazel.build/"


def paths(tmp_path: Path, mirror: str = "") -> Paths:
    return Paths(
        root=settings.ROOT, cache=tmp_path / "cache", pool=tmp_path / "pool", mirror=mirror
    )


def looked(
    tmp_path: Path, *, offline: bool, env: dict[str, str], compiler: Compiler = DECLARED
) -> dict[str, Finding]:
    findings = preflight.run_checks(
        planned_full(),
        find_release("2.14.1"),
        paths=paths(tmp_path),
        compiler=compiler,
        budget=memory.choose_budget(64_000, 4, family=compiler.family),
        offline=offline,
        env=env,
    )
    assert len(render_table(findings).splitlines()) >= len(findings)
    return {finding.name: finding for finding in findings}


def test_this_machine_is_looked_at_without_a_network(tmp_path: Path) -> None:
    findings = looked(tmp_path, offline=True, env=dict(os.environ))
    expected = {"memory", "compiler", "C library", "Python 3.11", "patchelf", "clock", "open files"}
    assert expected <= set(findings)
    assert findings["memory"].verdict is CheckVerdict.OK
    assert findings["network"].verdict is CheckVerdict.OK
    assert findings["clock"].verdict is CheckVerdict.UNKNOWN
    assert findings["realpath"].verdict is CheckVerdict.OK
    assert list(tmp_path.iterdir()) == []


def test_programs_are_looked_for_on_the_path_that_is_given(tmp_path: Path) -> None:
    findings = looked(tmp_path, offline=True, env={"PATH": str(tmp_path)})
    assert findings["realpath"].verdict is CheckVerdict.FATAL


def test_a_proxy_that_is_gone_is_found_before_the_build(tmp_path: Path) -> None:
    """Nothing listens on port 9 here: every host is asked there, and none on the internet."""
    env = {"https_proxy": "http://127.0.0.1:9", "PATH": os.environ["PATH"]}
    findings = looked(tmp_path, offline=False, env=env)
    assert findings["host github.com"].verdict is CheckVerdict.FATAL
    assert findings["host github.com"].seen.endswith("through 127.0.0.1:9")
    assert findings["host releases.bazel.build"].verdict is CheckVerdict.WARNING


def test_temporary_files_count_where_they_go(tmp_path: Path) -> None:
    output, temporary, pool = preflight.list_disk_needs(
        paths(tmp_path), {"TMPDIR": str(tmp_path / "t")}
    )
    assert temporary.disk.folder == tmp_path / "t"
    assert (output.megabytes, temporary.megabytes, pool.megabytes) == (16_000, 2_000, 500)
    assert (output.runs, temporary.runs, pool.runs) == (True, True, False)


def test_memory_is_held_against_the_model() -> None:
    assert preflight.check_memory(memory.choose_budget(64_000, 4)).verdict is CheckVerdict.OK
    short = preflight.check_memory(memory.choose_budget(64_000, 4, jobs_option="400"))
    assert short.verdict is CheckVerdict.FATAL
    assert "for --jobs 400 (limited by --jobs)" in short.wanted
    assert preflight.check_memory(memory.choose_budget(2_000, 4)).verdict is CheckVerdict.FATAL


@pytest.mark.parametrize(
    ("mirror", "env", "expected"),
    [
        ("", {}, (MIRROR, GITHUB, BAZEL)),
        ("https://m.example/x", {}, ("https://m.example/x", MIRROR, GITHUB, BAZEL)),
        ("/srv/mirror", {}, (MIRROR, GITHUB, BAZEL)),
        ("", {"BAZELISK_BASE_URL": "http://b/"}, (MIRROR, GITHUB, "http://b/")),
        ("", {"USE_BAZEL_VERSION": "/usr/bin/bazel-4"}, (MIRROR, GITHUB)),
        ("", {"USE_BAZEL_VERSION": "5.3.0"}, (MIRROR, GITHUB, BAZEL)),
    ],
)
def test_the_hosts_are_those_that_the_build_will_ask(
    tmp_path: Path, mirror: str, env: dict[str, str], expected: tuple[str, ...]
) -> None:
    assert preflight.list_origins(paths(tmp_path, mirror), env) == expected


def answers(**reached: bool) -> list[HostAnswer]:
    urls = {"mirror": MIRROR, "github": GITHUB, "bazel": BAZEL}
    return [HostAnswer(url=urls[name], reached=value, said="x") for name, value in reached.items()]


@pytest.mark.parametrize(
    ("reached", "verdicts"),
    [
        ({"mirror": True, "github": True, "bazel": True}, ["ok", "ok", "ok"]),
        ({"mirror": False, "github": True, "bazel": True}, ["warning", "ok", "ok"]),
        ({"mirror": True, "github": False, "bazel": False}, ["ok", "warning", "warning"]),
        ({"mirror": False, "github": False, "bazel": True}, ["fatal", "fatal", "ok"]),
    ],
)
def test_one_of_the_places_of_the_archives_is_enough(
    reached: dict[str, bool], verdicts: list[str]
) -> None:
    findings = preflight.check_network(answers(**reached), offline=False)
    assert [finding.verdict for finding in findings] == verdicts


@pytest.mark.parametrize(
    ("now", "skews", "verdict"),
    [
        (0.0, [], CheckVerdict.FATAL),  # a board without a battery
        (1.8e9, [], CheckVerdict.UNKNOWN),
        (1.8e9, [0.4, -2.0, 59.0], CheckVerdict.OK),
        (1.8e9, [-61.0], CheckVerdict.FATAL),
        (1.8e9, [3600.0, 0.1, 0.2], CheckVerdict.OK),  # one host is wrong, not this machine
    ],
)
def test_the_clock(now: float, skews: list[float], verdict: CheckVerdict) -> None:
    assert preflight.check_clock(now, skews).verdict is verdict


@pytest.mark.parametrize(
    ("files", "processes", "verdicts"),
    [
        (None, None, ["ok", "ok"]),
        (1024, 65, ["ok", "ok"]),
        (1023, 64, ["warning", "warning"]),
    ],
)
def test_limits(files: int | None, processes: int | None, verdicts: list[str]) -> None:
    findings = preflight.check_limits(files, processes, jobs=8)
    assert [finding.verdict for finding in findings] == verdicts


def test_the_machines_python_is_asked() -> None:
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    interpreter = preflight.read_python(version)
    assert interpreter.path == sys.executable
    assert interpreter.headers is Path(sysconfig.get_paths()["include"], "Python.h").is_file()
    assert preflight.read_python("3.99").problem


@pytest.mark.toolchain
def test_the_compiler_of_this_machine_is_judged(tmp_path: Path) -> None:
    compiler = compilers.find_compiler("g++")
    findings = looked(tmp_path, offline=True, env=dict(os.environ), compiler=compiler)
    compiler_finding = findings["compiler"]
    assert compiler_finding.seen == f"gcc {compiler.version}"
    assert compiler_finding.verdict is CheckVerdict.WARNING  # 2.14 is tested with clang
