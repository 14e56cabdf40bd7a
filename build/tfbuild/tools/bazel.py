"""Find, install and run bazelisk and Bazel."""

from __future__ import annotations

import contextlib
import os
import platform
import re
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from tfbuild.upstream import releases
from tfcore import console, packages, settings
from tfcore.errors import CommandError, DownloadError, TimeLimitError, ToolError
from tfcore.records import write_atomic
from tfcore.run import Completed, run
from tfcore.settings import Paths

_PROBE_S = 300.0
_NPM = "@bazel/bazelisk"
ANSWER_S = 20.0
"""Time limit of each of two requests to npm's registry, in seconds."""
_START_S = 5.0
_IDLE_S = 120
"""Idle time after which a server ends if its build was killed, in seconds."""
_END_S = 60.0
_NPM_REASON = re.compile(r"reason: (.+)")
_HELD = "Another command"  # (… holds the client lock / is running)
# These select the compiler, the modules of Python and the system libraries of TensorFlow.
_STEERING = frozenset({"CC", "CXX", "PYTHONPATH", "TF_SYSTEM_LIBS"})
_VERSION = re.compile(r"^bazel (\d[\d.]*)", re.MULTILINE)
_PROGRESS = re.compile(r"^\[([\d,]+) / ([\d,]+)\] (.*)$")

# Debian's Bazel 4 has an unpacked install base and gets Bazel's repositories from packages.
DEBIAN_BAZEL = Path("/usr/bin/bazel-4")
_DEBIAN_SHARE = Path("/usr/share/bazel")
_DEBIAN_REPOSITORIES = {
    "bazel_skylib": "tools/skylib",
    "platforms": "tools/platforms",
    "rules_java": "rules/java",
    "rules_proto": "rules/proto",
}
DEBIAN_PACKAGES = {
    "bazel-bootstrap": DEBIAN_BAZEL,
    **{
        f"bazel-{name.removeprefix('bazel_').replace('_', '-')}": _DEBIAN_SHARE / folder
        for name, folder in _DEBIAN_REPOSITORIES.items()
    },
}
"""Debian's packages of Bazel, each with a path that it installs and a build needs."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Bazel:
    """A Bazel that is run through bazelisk; `use` is the value of USE_BAZEL_VERSION."""

    bazelisk: Path
    use: str
    version: str
    debian: bool


def find_bazelisk(paths: Paths) -> Path | None:
    """Find bazelisk on PATH, or the one that was installed into the tool folder."""
    program = shutil.which("bazelisk")
    if program is not None:
        return Path(program)
    binary = _locate_npm_binary(paths)
    return binary if binary.is_file() else None


def install_bazelisk(paths: Paths) -> Path:
    """Install bazelisk from npm; the lock file pins its bytes by SHA-512, and no script is run.

    If the registry does not answer, npm's cache is used. Raises DownloadError.
    """
    folder = paths.tools / "bazelisk"
    for name in ("package.json", "package-lock.json"):
        write_atomic(folder / name, (settings.NPM / name).read_bytes())
    fault = _find_registry_fault(folder)
    offline = ("--offline",) if fault else ()
    try:
        run(
            ["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", *offline],
            cwd=folder,
            log=folder / "npm.log",
            timeout_s=600,
        )
    except CommandError as error:
        raise DownloadError(
            f"could not download bazelisk from npm: {fault or error.message}",
            hint="Set npm's proxy or a mirror (npm config set registry URL), or download "
            "bazelisk from github.com/bazelbuild/bazelisk/releases and put it on PATH",
        ) from error
    binary = _locate_npm_binary(paths)
    if not binary.is_file():
        raise ToolError(f"npm installed no {binary.name}", hint="Put bazelisk on PATH")
    return binary


def _find_registry_fault(folder: Path) -> str:
    """Return why npm's registry does not serve bazelisk; "" if it does.

    npm itself retries for minutes, and waits for a host that drops every packet as long as Linux
    does.
    """
    limit = ("--fetch-retries=1", "--fetch-retry-mintimeout=1000", "--fetch-retry-maxtimeout=1000")
    try:
        run(
            ["npm", "view", _NPM, "name", *limit, f"--fetch-timeout={1000 * ANSWER_S:.0f}"],
            cwd=folder,
            log=folder / "npm-view.log",
            timeout_s=2 * ANSWER_S + _START_S,
        )
    except TimeLimitError:
        return f"the registry did not answer within {2 * ANSWER_S:g} s"
    except CommandError as error:
        reason = _NPM_REASON.search(error.message)
        return f"the registry does not answer ({reason[1] if reason else error.last_line})"
    return ""


def _locate_npm_binary(paths: Paths) -> Path:
    machine = {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())
    package = paths.tools / "bazelisk/node_modules/@bazel/bazelisk"
    return package / f"bazelisk-linux_{machine}"


def find_bazel(paths: Paths, version: str) -> Bazel:
    """Find the Bazel to use. Raises ToolError if none runs.

    USE_BAZEL_VERSION has priority, then the release's Bazel if bazelisk can download it, then
    Debian's package.
    """
    bazelisk = find_bazelisk(paths) or install_bazelisk(paths)
    requested = os.environ.get("USE_BAZEL_VERSION")
    if requested:
        return _probe_requested(bazelisk, requested, paths)
    fallback = paths.tools / f"bazel-{version}-is-debian"
    if fallback.exists() and not list_missing_debian_packages():
        return _probe(bazelisk, str(DEBIAN_BAZEL), paths, "")
    try:
        return _probe(bazelisk, version, paths, find_pinned_sha256(version))
    except CommandError as error:
        reason = _extract_reason(error)
    # A failing download takes 15 s: this file records it, until it is deleted.
    write_atomic(fallback, f"{reason}\n")
    if lacking := list_missing_debian_packages():
        raise ToolError(
            f"could not download Bazel {version} ({reason}), and Debian's Bazel, the alternative, "
            f"lacks {', '.join(lacking)}",
            hint=f"Set BAZELISK_BASE_URL to a mirror. {_advise_install(lacking)}",
        )
    console.print_note(f"could not download Bazel {version}; using Debian's {DEBIAN_BAZEL.name}")
    return _probe(bazelisk, str(DEBIAN_BAZEL), paths, "")


def list_missing_debian_packages() -> tuple[str, ...]:
    """Return the missing packages of Debian's Bazel.

    Bazel itself starts without those of its repositories, but a build needs them.
    """
    return tuple(name for name, path in DEBIAN_PACKAGES.items() if not path.exists())


def _advise_install(lacking: tuple[str, ...]) -> str:
    return packages.suggest_install(f"Debian's {', '.join(lacking)}", *lacking)


def find_pinned_sha256(version: str) -> str:
    """Return the hash that bazelisk checks the download against; "" if none is known."""
    machine = {"x86_64": "linux-x86_64", "aarch64": "linux-arm64"}.get(platform.machine(), "")
    return releases.find_bazel_sha256(version, machine) or ""


def _probe_requested(bazelisk: Path, version: str, paths: Paths) -> Bazel:
    try:
        return _probe(bazelisk, version, paths, "")
    except CommandError as error:
        raise ToolError(f"USE_BAZEL_VERSION={version} does not run: {error.message}") from error


def _extract_reason(error: CommandError) -> str:
    """Return the last clause of bazelisk's error, which contains its address four times."""
    lines = [line for line in error.message.splitlines() if "download" in line.lower()]
    return (lines or error.message.splitlines())[-1].rpartition(": ")[2].strip()


def _probe(bazelisk: Path, use: str, paths: Paths, sha256: str) -> Bazel:
    if use == str(DEBIAN_BAZEL):
        if lacking := list_missing_debian_packages():
            raise ToolError(
                f"Debian's Bazel lacks {', '.join(lacking)}", hint=_advise_install(lacking)
            )
        package = run(["dpkg-query", "-W", "-f", "${Version}", "bazel-bootstrap"]).output
        return Bazel(bazelisk=bazelisk, use=use, version=package.partition("+")[0], debian=True)
    env = build_environment(use, sha256)
    done = run(
        [bazelisk, "--version"], env=env, timeout_s=_PROBE_S, cwd=_prepare_neutral_folder(paths)
    )
    match = _VERSION.search(done.output)
    if match is None:
        raise ToolError(f"{use} is not Bazel: --version prints {done.output.strip()[:60]!r}")
    return Bazel(bazelisk=bazelisk, use=use, version=match[1], debian=False)


def _prepare_neutral_folder(paths: Paths) -> Path:
    """Return a folder without a .bazelversion, which bazelisk would read."""
    paths.tools.mkdir(parents=True, exist_ok=True)
    return paths.tools


def build_environment(use: str, sha256: str = "") -> dict[str, str]:
    """Return the user's environment for bazelisk, without the variables that influence Bazel."""
    env = {name: value for name, value in os.environ.items() if name not in _STEERING}
    env["USE_BAZEL_VERSION"] = use
    if sha256:
        env["BAZELISK_VERIFY_SHA256"] = sha256
    return env


def build_startup_options(bazel: Bazel, paths: Paths, *, stays: bool = False) -> tuple[str, ...]:
    """Return the startup options of every call.

    Bazel reads no settings of the machine, and no server outlives the call. With `stays`, the
    server waits for the next call in the workspace, until `stop_server`.
    """
    life = f"--max_idle_secs={_IDLE_S}" if stays else "--batch"
    base_options = ("--nohome_rc", "--nosystem_rc", life, "--host_jvm_args=-Xmx2g")
    debian = (f"--install_base={_DEBIAN_SHARE}", "--trust_install_base") if bazel.debian else ()
    return (*base_options, *debian, f"--output_user_root={paths.cache / 'bazel'}")


def build_repository_options(bazel: Bazel, repositories: Mapping[str, Path]) -> tuple[str, ...]:
    """Return options that locate the workspace's repositories and, for Debian's Bazel, its own."""
    folders = dict(repositories)
    java: tuple[str, ...] = ()
    if bazel.debian:
        folders |= {name: _DEBIAN_SHARE / at for name, at in _DEBIAN_REPOSITORIES.items()}
        java = ("--host_javabase=@local_jdk//:jdk",)
    else:
        folders.pop("rules_cc", None)
    overrides = [f"--override_repository={name}={folders[name]}" for name in sorted(folders)]
    return (*overrides, *java)


def prepare_patched_tools(paths: Paths) -> Path:
    """Copy Debian's @bazel_tools, add a target that it lacks, and return the folder.

    The target unpacks zipped profiles. Every C++ toolchain requires it if a profile is used.
    """
    folder = paths.tools / "bazel_tools"
    build = folder / "tools/zip/BUILD"
    if not build.is_file() or "unzip_fdo" not in build.read_text(encoding="utf-8"):
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(_DEBIAN_SHARE / "embedded_tools", folder)
        with build.open("a", encoding="utf-8") as file:
            file.write('\nalias(\n    name = "unzip_fdo",\n    actual = ":zipper",\n)\n')
    return folder


def build(
    bazel: Bazel,
    targets: tuple[str, ...],
    *,
    workspace: Path,
    options: tuple[str, ...],
    paths: Paths,
    log: Path,
    on_progress: Callable[[int, int, str], None] = lambda *_: None,
    keep_going: bool = False,
    startup: tuple[str, ...] = (),
    stays: bool = False,
) -> Completed:
    """Run `bazel build`. The caller checks the return code: a failed build raises nothing.

    `startup` are further startup options, such as a --bazelrc file. With `stays`, the server
    remains in the workspace, which saves seconds in the next call.
    """

    def on_line(line: str) -> None:
        if line.startswith(_HELD):
            console.print_note("waiting for another Bazel here, perhaps of a killed run")
        match = _PROGRESS.match(line)
        if match:
            done, total, detail = match.groups()
            on_progress(int(done.replace(",", "")), int(total.replace(",", "")), detail)

    words: list[str | Path] = [
        bazel.bazelisk,
        *build_startup_options(bazel, paths, stays=stays),
        *startup,
        "build",
        *options,
        *(("--keep_going",) if keep_going else ()),
        *targets,
    ]
    env = build_environment(bazel.use)
    return run(words, cwd=workspace, env=env, log=log, check=False, on_line=on_line)


def stop_server(bazel: Bazel, *, workspace: Path, paths: Paths) -> None:
    """Stop the server of a workspace; a server that does not answer ends by itself."""
    with contextlib.suppress(TimeLimitError):
        run(
            [bazel.bazelisk, *build_startup_options(bazel, paths, stays=True), "shutdown"],
            cwd=workspace,
            env=build_environment(bazel.use),
            check=False,
            timeout_s=_END_S,
        )
