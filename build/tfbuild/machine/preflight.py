"""Check in seconds for problems that would make a full build fail after hours."""

from __future__ import annotations

import platform
import resource
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

from tfbuild.interpreters import find_python
from tfbuild.machine import disks, network, programs
from tfbuild.machine.checklist import CheckVerdict, Finding, build_finding, build_unknown
from tfbuild.machine.disks import DiskNeed
from tfbuild.machine.memory import Budget
from tfbuild.machine.network import HostAnswer
from tfbuild.machine.programs import Interpreter
from tfbuild.planning.plan import Plan
from tfbuild.upstream.releases import Release
from tfcore.cpus.compilers import Compiler
from tfcore.errors import CommandError, PythonError, ToolError
from tfcore.run import run
from tfcore.settings import Paths

# Gentoo's tensorflow ebuild: 10 GB, and 6 GB for each Python.
OUTPUT_MB = 16_000
# EasyBuild's notes on TMPDIR.
_TEMPORARY_MB = 2_000
# TensorFlow's limit for a wheel is 250 MB (ci/official); the build writes it twice.
_POOL_MB = 500
# A larger error of the clock makes TLS and file times fail.
_SKEW_S = 60.0
# A clock before this year was never set.
_YEAR = 2025
_PYTHON_S = 30.0
# Bazel 4.2.3 held 23 open files and 33 threads with 2 jobs (measured on the small workspace of the
# tests); a job is a thread, a sandbox, a compiler driver and a compiler.
_LEAST_FILES = 1024
_OWN_THREADS = 33
_PER_JOB = 4
# The archives of a tree come from a mirror and from their original addresses, nearly all on GitHub
# (2.14.1: tf_mirror_urls in third_party/repo.bzl, and the addresses in workspace*.bzl).
_ARCHIVES = ("https://storage.googleapis.com/mirror.tensorflow.org/", "https://github.com/")
_BAZEL = "https://releases.bazel.build/"  # bazelisk's default
_LOOK = (
    "import pathlib, sysconfig as s\n"
    "print(pathlib.Path(s.get_paths()['include'], 'Python.h').is_file())"
)


def run_checks(
    plan: Plan,
    release: Release,
    *,
    paths: Paths,
    compiler: Compiler,
    budget: Budget,
    offline: bool,
    env: Mapping[str, str],
) -> tuple[Finding, ...]:
    """Run all checks, in the order of the table. Takes seconds: the network has a time limit.

    `offline` skips the network. Raises nothing: an unreadable value is a finding.
    """
    answers = () if offline else network.query_hosts(list_origins(paths, env), env)
    return (
        check_memory(budget),
        *disks.check_disks(list_disk_needs(paths, env)),
        *programs.check_compiler(compiler, release),
        programs.check_glibc(platform.libc_ver(), plan),
        programs.check_python(plan.python, read_python(plan.python), release),
        *programs.check_programs(find_programs(release, env), release),
        *check_network(answers, offline=offline),
        check_clock(
            time.time(), [answer.skew_s for answer in answers if answer.skew_s is not None]
        ),
        *check_limits(*_read_hard_limits(), budget.jobs),
    )


def list_disk_needs(paths: Paths, env: Mapping[str, str]) -> tuple[DiskNeed, ...]:
    temporary = Path(env.get("TMPDIR") or tempfile.gettempdir())
    return (
        DiskNeed(
            purpose="for Bazel's outputs and its disk cache",
            disk=disks.read_disk(paths.cache),
            megabytes=OUTPUT_MB,
            runs=True,
        ),
        DiskNeed(
            purpose="for temporary files",
            disk=disks.read_disk(temporary),
            megabytes=_TEMPORARY_MB,
            runs=True,
        ),
        DiskNeed(purpose="for the wheel", disk=disks.read_disk(paths.pool), megabytes=_POOL_MB),
    )


def check_memory(budget: Budget) -> Finding:
    have = budget.memory_mb + budget.heap_mb
    advice = "Use fewer --jobs, add memory or swap, or compile on a cluster (--remote-executor)."
    return build_finding(
        "memory",
        f"{have / 1000:.1f} GB",
        f"{budget.peak_mb / 1000:.1f} GB for --jobs {budget.jobs} (limited by {budget.limited_by})",
        None if budget.fits else CheckVerdict.FATAL,
        advice,
    )


def list_origins(paths: Paths, env: Mapping[str, str]) -> tuple[str, ...]:
    """Return the addresses that a build downloads from.

    They are the mirror, the archives and Bazel. pip's index is not included: its address is a
    setting of pip.
    """
    mirror = paths.mirror if paths.mirror.startswith(("http://", "https://")) else ""
    bazel = env.get("BAZELISK_BASE_URL") or _BAZEL
    bazel_urls = () if "/" in env.get("USE_BAZEL_VERSION", "") else (bazel,)
    return tuple(filter(None, (mirror, *_ARCHIVES, *bazel_urls)))


def check_network(answers: Sequence[HostAnswer], *, offline: bool) -> Iterator[Finding]:
    """Check the answers of the hosts.

    Archives come from two hosts, and one of them is enough. The other hosts have no replacement,
    but a build may have their files in its caches.
    """
    if offline:
        yield build_finding("network", "not checked: the build is offline", "nothing", None, "")
        return
    archives = any(answer.reached for answer in answers if answer.url in _ARCHIVES)
    for answer in answers:
        through = f" through {answer.proxy}" if answer.proxy else ""
        critical = answer.url in _ARCHIVES and not archives
        bad = None if answer.reached else CheckVerdict.FATAL if critical else CheckVerdict.WARNING
        advice = (
            "Set https_proxy and no_proxy, or run invoke vendor on a machine with a network."
            if critical
            else "Its files will not download, unless a cache or a mirror has them."
        )
        yield build_finding(
            f"host {answer.host}", f"{answer.said}{through}", "an answer", bad, advice
        )


def check_clock(now: float, skews: Sequence[float]) -> Finding:
    """Check the clock.

    `now` is in seconds since 1970; `skews` are this clock minus the clocks of hosts, in seconds.
    The median is compared, because one host may be wrong.
    """
    today = datetime.fromtimestamp(now, UTC)
    required = f"within {_SKEW_S:g} s of other machines"
    advice = "Set this machine's clock: TLS and file times depend on it."
    if today.year < _YEAR:
        return build_finding(
            "clock", f"{today:%Y-%m-%d}", f"{_YEAR} or later", CheckVerdict.FATAL, advice
        )
    if not skews:
        return build_unknown(
            "clock", f"{today:%Y-%m-%d %H:%M} UTC, not compared with a host", required
        )
    skew = sorted(skews)[len(skews) // 2]
    bad = CheckVerdict.FATAL if abs(skew) > _SKEW_S else None
    return build_finding("clock", f"{skew:+.0f} s from other machines", required, bad, advice)


def check_limits(files: int | None, processes: int | None, jobs: int) -> Iterator[Finding]:
    """Check the hard limits, to which Bazel raises its own at the start.

    None is unlimited. Source: blaze.cc, UnlimitResources.
    """
    few = CheckVerdict.WARNING if files is not None and files < _LEAST_FILES else None
    limit = "unlimited" if files is None else str(files)
    advice = "Raise it in /etc/security/limits.conf, or in the container's options."
    yield build_finding("open files", limit, f"{_LEAST_FILES} or more", few, advice)
    required = _OWN_THREADS + _PER_JOB * jobs
    few = CheckVerdict.WARNING if processes is not None and processes < required else None
    limit = "unlimited" if processes is None else str(processes)
    yield build_finding("processes and threads", limit, f"{required} or more", few, advice)


def _read_hard_limits() -> tuple[int | None, int | None]:
    return _read_hard_limit(resource.RLIMIT_NOFILE), _read_hard_limit(resource.RLIMIT_NPROC)


def _read_hard_limit(kind: int) -> int | None:
    limit = resource.getrlimit(kind)[1]
    return None if limit == resource.RLIM_INFINITY else limit


def read_python(version: str) -> Interpreter:
    """Find the machine's Python of this version, and check whether it has its headers."""
    try:
        path = find_python(version)
        output = run([path, "-I", "-c", _LOOK], timeout_s=_PYTHON_S).output
    except (PythonError, ToolError, CommandError) as error:
        return Interpreter(problem=error.message.splitlines()[0])
    return Interpreter(path=str(path), headers="True" in output.split())


def find_programs(release: Release, env: Mapping[str, str]) -> dict[str, str]:
    """Find on PATH the programs that the release's build calls."""
    path = env.get("PATH", "")
    called = (program.name for program in programs.list_programs(release))
    return {name: shutil.which(name, path=path) or "" for name in called}
