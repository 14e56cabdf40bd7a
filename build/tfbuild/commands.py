"""The options of the commands that build wheels, each with its default and its help.

The records contain the text that the user typed: an empty option means the default, and lists are
comma-separated. Standard library only, like tfcore.option.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

from tfcore.option import option, required, select_options

NEWEST = "newest"
"""The value of --release for the newest release that has kernels."""
HOT = "hot"
"""The value of --kernels for the kernels that matter to the six workloads."""
DRY = "print what would be done; do nothing"
TARGET = (
    "target: native (this CPU), a name from invoke targets, NAME+FEATURE, or stock (the flags of "
    "the stock wheel)"
)
RELEASE = "TensorFlow release (see invoke releases)"
PYTHON = "Python version of the wheel, for example 3.11"
PACKAGE = "stock package; default: tensorflow-cpu, on aarch64 tensorflow-cpu-aws or tensorflow"
SOURCE = "path of TensorFlow's source archive"
ANY_SOURCE = "path of TensorFlow's sources: an archive or a checkout"
TREE = "TensorFlow checkout to build instead of the release's sources"
_JOBS = "number of parallel compiles; default: as many as CPUs and memory allow"


def get_default_release() -> str:
    """Return the user's default release: a version, or NEWEST."""
    return os.environ.get("TENSORWRIGHT_RELEASE") or NEWEST


@dataclass(frozen=True, kw_only=True, slots=True)
class Output:
    """The options for a command's output: a dry run, and JSON."""

    dry_run: bool = option(False, DRY)
    json: bool = option(False, "print JSON")


JSON = select_options(Output, "json")
DRY_RUN = select_options(Output, "dry_run")


@dataclass(frozen=True, kw_only=True, slots=True)
class Request:
    """The options that specify a wheel.

    Lists are comma-separated. `package` is the stock package, by default the one for CPUs of
    the target's architecture. `python` is a list of versions, or `all` for every version that
    the release has a wheel for. `arch` is a list of targets for one wheel; a target can also
    be `native`, or `stock` for the target of the release's published wheels. `lto` and `pgo`
    (the path of a program whose run gives a profile) apply to the full scope. `selection` is a
    list of paths of measured selections, at most one for each target. `flags` are compiler
    flags of kernels in addition to the target's; they replace those of a selection. `without`
    is a list of kernels to exclude. `source`, which is not an option here, is the path of
    sources to compile kernels from, instead of the release's own.

    Three options concern run-time defaults: `bf16` lets oneDNN round to bfloat16,
    `trust_emulated` accepts comparisons under emulation as measured ones, and `evidence` is a
    list of paths of comparison.json.
    """

    arch: str = option(
        "native",
        f"{TARGET}; several, comma-separated, give one wheel",
    )
    release: str = option(
        "",
        f"{RELEASE}; default: the newest; with --scope kernels, the newest whose sources are "
        "available",
    )
    scope: str = option(
        "kernels", "kernels: tuned kernels in the stock wheel; full: all of TensorFlow"
    )
    kernels: str = option(
        HOT,
        "hot (default: the ones measured to be faster; where nothing was measured, a fixed list), "
        "mini (two, to try the tool), all, or comma-separated ops and kernel sources",
    )
    without: str = option(
        "",
        "kernels to exclude, comma-separated: ops, kernel sources, or names that invoke plan "
        "prints in its row 'kernels'",
    )
    python: str = option("", f"{PYTHON}; several, comma-separated, or all give one wheel each")
    package: str = option("", PACKAGE)
    compiler: str = option(
        "",
        "compiler, for example clang-16; or, to plan for one that is not installed, its version, "
        "for example clang@16.0.6",
    )
    lto: bool = option(False, "with --scope full: link-time optimization (ThinLTO)")
    pgo: str = option(
        "",
        "with --scope full: profile-guided optimization; value: the word workloads (train the six "
        "default workloads) or the path of a Python program to train with",
    )
    selection: str = option(
        "",
        "selection.json from invoke select, instead of --kernels; for several targets, one each, "
        "comma-separated",
    )
    flags: str = option(
        "",
        "extra compiler flags for kernels, for example -O3 -mprefer-vector-width=256",
    )
    bf16: bool = option(
        False, "let oneDNN round float32 inputs to bfloat16 on CPUs with AMX; this changes results"
    )
    trust_emulated: bool = option(
        False,
        "also turn on run-time defaults whose gain was measured only on another CPU, limited to "
        "the target's instructions",
    )
    evidence: str = option(
        "",
        "comma-separated comparison.json files that also decide which run-time defaults "
        "(environment variables that the wheel sets at import) are on",
    )
    source: str = ""

    def __post_init__(self) -> None:
        """Set the release to the user's default if it is empty."""
        object.__setattr__(self, "release", self.release or get_default_release())


WHEEL = ("arch", "release", "python", "package", "compiler")
"""The options of a request that identify a wheel, without those that select its contents."""
ONE_PYTHON = {"python": PYTHON}
ONE_WHEEL = {**ONE_PYTHON, "arch": TARGET}


@dataclass(frozen=True, kw_only=True, slots=True)
class TargetsOptions:
    family: str = option("", "x86_64 or aarch64; default: both")


@dataclass(frozen=True, kw_only=True, slots=True)
class ReleasesOptions:
    check: str = option(
        "", "instead list what Tensorwright lacks to support a version, for example 2.22.0"
    )
    add: str = option(
        "",
        "instead add a version: find its wheels and dependencies, build a wheel for this CPU and "
        "compare it with stock on the six models",
    )
    source_sha256: str = option("", "with --add: SHA-256 of the release's source archive")
    source: str = option("", f"with --add: {ANY_SOURCE}")
    kernels: str = option(HOT, "with --add: kernels to build; default: hot")
    budget: str = option("", "with --add: time limit of each model, for example 60s")
    facts_only: bool = option(False, "with --add: build and compare nothing")


@dataclass(frozen=True, kw_only=True, slots=True)
class PlanOptions:
    jobs: str = option("", "number of parallel compiles that the estimate assumes")


@dataclass(frozen=True, kw_only=True, slots=True)
class RenderOptions:
    out: str = option("", "output folder")
    verify: bool = option(False, "compare the folder with the plan; write nothing", old=("check",))


@dataclass(frozen=True, kw_only=True, slots=True)
class ContainersOptions:
    vcpus: str = option(
        "", "number of vCPUs that the docker commands in the files' comments give each container"
    )
    out: str = option("", "output folder")


@dataclass(frozen=True, kw_only=True, slots=True)
class BuildOptions:
    """The options of `invoke build` in addition to those of the plan."""

    workload: str = option(
        "",
        "build the kernels that matter to a model: a workload, a .keras or .h5 file, a "
        "SavedModel, or a .py file with build()",
        old=("for",),
    )
    jobs: str = option("", _JOBS)
    source: str = option(
        "", "path of TensorFlow's sources: an archive, or with --scope kernels a checkout"
    )
    tree: str = option("", f"with --scope full: {TREE}")
    vendor: str = option(
        "", "with --scope full: folder from invoke vendor, to build without a network"
    )
    bazelrc: str = option(
        "",
        "with --scope full: file of Bazel options, for example credentials; the build's own "
        "options override it",
    )
    remote_cache: str = option(
        "",
        "with --scope full: address of a shared cache: https://, http://, grpcs://, grpc:// or "
        "unix:",
    )
    remote_executor: str = option(
        "", "with --scope full: address of a build cluster: grpcs:// or grpc://"
    )
    define: str = option("", "with --scope full: NAME=VALUE,… for Bazel's --define")
    auto_fix: bool = option(
        False, "with --scope full: if a failure has a known fix, apply it and retry"
    )
    preflight: bool = option(
        True,
        "with --scope full: check the machine before the build (--no-preflight: skip the check)",
    )
    stock_wheel: str = option("", "path of the stock wheel or of the folder that contains it")
    install: bool = option(
        False, "install missing Debian packages: compiler, npm or Bazel; needs root"
    )
    keep_going: bool = option(
        False, "if kernels do not compile, keep the stock ones and build the others"
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class VendorOptions:
    out: str = option("", "output folder; an unfinished one is continued")


@dataclass(frozen=True, kw_only=True, slots=True)
class SurveyOptions:
    budget: str = option(
        "1h", "time limit, for example 20m or 1h30m; default: 1h; run again to continue"
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class AuditOptions:
    wheel: str = required("path of a wheel")
    stock: str = option("", "stock wheel to compare with; default: the published one")
    fetch: bool = option(
        True,
        "download the stock wheel if it is not in the cache (--no-fetch: then audit without it)",
    )
    rebuild: bool = option(
        False,
        "rebuild a wheel of --scope kernels from its tuned.json, the file in the wheel that states "
        "how it was built, and compare the bytes",
    )
    source: str = option("", "with --rebuild: the sources, if they are not the release's own")
    jobs: str = option("", "with --rebuild: number of parallel compiles")
    sign: str = option(
        "",
        "with --rebuild: if the bytes are the same, write a statement, signed with this ed25519 "
        "private key (PEM), beside the wheel",
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class AdmitOptions:
    wheel: str = required("path of a wheel with tuned kernels")


@dataclass(frozen=True, kw_only=True, slots=True)
class DoctorOptions:
    tests: bool = option(False, "also check what the project's tests need")
    wheel: str = option(
        "",
        "instead show which kernels TensorFlow runs in this Python, virtual environment or "
        "folder of pip install --target",
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class ChecksOptions:
    all: bool = option(
        False,
        "also run the slow tests: all models, caches, failing builds; 40 to 60 minutes on 2 cores",
    )
