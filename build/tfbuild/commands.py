"""The options of the commands that make wheels: each with its default and its help, once.

A command hands the records on as they were typed: an empty option means the default, and lists
have commas between. Standard library only, as tfbuild.option.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

from tfbuild.option import option, required, select_options

NEWEST = "newest"
"""What is written for the newest release that has kernels."""
HOT = "hot"
"""What is written for the kernels that matter to the six workloads."""
DRY = "say what would be done, and do nothing"
TARGET = "a target (invoke targets), NAME+FEATURE+…, native"
CONTROL = "stock: as the stock wheel, the control"
PYTHON = "Python version of the wheel, such as 3.11"
PACKAGE = "the stock package; by default tensorflow-cpu, on aarch64 the one that has its wheels"
SOURCE = "TensorFlow's source archive, fetched elsewhere"
_JOBS = "compiles at once; by default what CPUs and memory allow"


def get_default_release() -> str:
    """Return the user's default release: a version, or NEWEST."""
    return os.environ.get("TENSORWRIGHT_RELEASE") or NEWEST


@dataclass(frozen=True, kw_only=True, slots=True)
class Output:
    """The options for a command's output: a dry run, and JSON."""

    dry_run: bool = option(False, DRY)
    json: bool = option(False, "answer in JSON on standard output")


JSON = select_options(Output, "json")
DRY_RUN = select_options(Output, "dry_run")


@dataclass(frozen=True, kw_only=True, slots=True)
class Request:
    """The options that specify a wheel.

    `package` is the stock package, by default the one for CPUs of the target's architecture.
    `python` is a version, several with commas between, or `all` for every version that the
    release has a wheel for. `arch` is a target, `native`, or `stock` (the target of the
    release's published wheels); or several with commas between, for one wheel. `lto` and
    `pgo`, the path of a program that is run to collect a profile, are for the full scope.
    `selection` are paths of measured selections, with commas between, at most one for each
    target. `flags` are compiler flags that kernels get beside the target's, instead of those
    of a selection. `without` are kernel groups that are excluded from the chosen ones.
    `source`, which is no option of its own, is the path of sources that kernels are compiled
    from in place of the release's own.

    Of run-time defaults: `bf16` lets oneDNN round to bfloat16, `trust_emulated` accepts
    comparisons under emulation as measured ones, `evidence` are paths of comparison.json with
    commas between.
    """

    arch: str = option(
        "native",
        f"{TARGET}, or several with commas between for one wheel; {CONTROL}",
    )
    release: str = option(
        "", "a TensorFlow release (invoke releases); by default the newest whose sources can be had"
    )
    scope: str = option(
        "kernels", "kernels: tuned kernels in the stock wheel; full: the whole tree"
    )
    kernels: str = option(
        HOT, "hot, mini, all, or names of kernel sources and of ops with commas between"
    )
    without: str = option("", "of the chosen kernels those that stay stock, with commas between")
    python: str = option("", f"{PYTHON}; several with commas between, or all: a wheel for each")
    package: str = option("", PACKAGE)
    compiler: str = option(
        "", "clang-16, g++, … or clang@16.0.6 for one that need not be here (plan, render)"
    )
    lto: bool = option(False, "link-time optimization (ThinLTO), for --scope full")
    pgo: str = option(
        "",
        "profile-guided optimization, for --scope full: workloads, or a program to learn from",
    )
    selection: str = option(
        "",
        "selection.json of invoke select: its kernels with its flags, instead of --kernels; "
        "several with commas between, one per target",
    )
    flags: str = option(
        "",
        "compiler flags of kernels beside the target's, such as -O3 -mprefer-vector-width=256",
    )
    bf16: bool = option(
        False, "let oneDNN round to bfloat16 on CPUs with AMX, which changes results"
    )
    trust_emulated: bool = option(
        False, "take run-time defaults that were measured by emulation only"
    )
    evidence: str = option("", "comparison.json files that speak for or against run-time defaults")
    source: str = ""

    def __post_init__(self) -> None:
        """Set the release to the user's default if it is empty."""
        object.__setattr__(self, "release", self.release or get_default_release())


WHEEL = ("arch", "release", "python", "package", "compiler")
"""Those of a request that say which wheel, and nothing of what is in it."""
ONE_PYTHON = {"python": PYTHON}
ONE_WHEEL = {**ONE_PYTHON, "arch": f"{TARGET}; {CONTROL}"}


@dataclass(frozen=True, kw_only=True, slots=True)
class TargetsOptions:
    family: str = option("", "x86_64 or aarch64; both by default")


@dataclass(frozen=True, kw_only=True, slots=True)
class PlanOptions:
    jobs: str = option("", "compiles at once, for the estimate")


@dataclass(frozen=True, kw_only=True, slots=True)
class RenderOptions:
    out: str = option("", "the folder to write to")
    check: bool = option(False, "compare with what is there, write nothing")


@dataclass(frozen=True, kw_only=True, slots=True)
class ContainersOptions:
    vcpus: str = option("", "CPUs that the run lines give")
    out: str = option("", "the folder to write to")


@dataclass(frozen=True, kw_only=True, slots=True)
class BuildOptions:
    """The options of `invoke build` beside those of the plan."""

    workload: str = option(
        "",
        "instead of --kernels, what a program spends its time in: one of the workloads, or your "
        "own .py with build(), .keras, .h5 or SavedModel",
        old=("for",),
    )
    jobs: str = option("", _JOBS)
    source: str = option("", "TensorFlow's sources: an archive, or for kernels a checkout")
    tree: str = option("", "a checkout of TensorFlow to build, instead of the release's sources")
    vendor: str = option("", "build without a network from a folder that invoke vendor made")
    bazelrc: str = option(
        "",
        "a file of options for Bazel, read after the build's own and overruled by it; its headers "
        "and certificates for a service stay out of argv",
    )
    remote_cache: str = option("", "a shared cache: https://, http://, grpcs://, grpc:// or unix:")
    remote_executor: str = option("", "a cluster that compiles: grpcs:// or grpc://")
    define: str = option("", "NAME=VALUE,… for Bazel's --define")
    auto_fix: bool = option(False, "apply the remedy of a failure that has one, and try again")
    preflight: bool = option(
        True, "look at the machine before the build (--no-preflight to leave out)"
    )
    stock_wheel: str = option("", "the stock wheel, fetched elsewhere, or a folder that has it")
    install: bool = option(
        False, "install the compiler and Bazel from Debian's packages if they are missing"
    )
    keep_going: bool = option(
        False, "a kernel that does not compile stays stock, the rest is built"
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class VendorOptions:
    out: str = option("", "the folder to fill; an unfinished one goes on")


@dataclass(frozen=True, kw_only=True, slots=True)
class SurveyOptions:
    budget: str = option(
        "1h", "limit of the command, as 90s, 20m or 1h30m; the next run goes on; 1h by default"
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class AuditOptions:
    wheel: str = required("the path of a wheel")
    stock: str = option(
        "", "the stock wheel to compare with; by default the pinned one, fetched if need be"
    )
    fetch: bool = option(
        True,
        "fetch the stock wheel where it is not in the cache (--no-fetch: compare with nothing)",
    )
    rebuild: bool = option(
        False,
        "make a wheel of kernels again of its tuned.json and compare the bytes; what this user has "
        "compiled before comes from the cache, with TENSORWRIGHT_CACHE=/an/empty/folder nothing "
        "does",
    )
    source: str = option("", "for --rebuild: the sources, where they are not the release's own")
    jobs: str = option("", "for --rebuild: how many compiles at once")


@dataclass(frozen=True, kw_only=True, slots=True)
class AdmitOptions:
    wheel: str = required("the path of a wheel of tuned kernels")


@dataclass(frozen=True, kw_only=True, slots=True)
class DoctorOptions:
    tests: bool = option(False, "what the project's own tests need, too")
    wheel: str = option(
        "",
        "instead: a Python, an environment or a folder of packages where a tuned wheel is "
        "installed: which kernels run there, and why not its own",
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class ChecksOptions:
    all: bool = option(
        False,
        "the second tier too: every model, cache and failure, 40 to 60 minutes on 2 cores",
    )
