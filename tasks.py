"""The front door: `invoke TASK`. Options are read, one function is called, errors become a line."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, ParamSpec

from invoke import Collection, Context, Exit, task  # type: ignore[attr-defined]

Options = ParamSpec("Options")

ROOT = Path(__file__).resolve().parent
for folder in ("benchmarks", "wheels", "build"):
    if str(ROOT / folder) not in sys.path:
        sys.path.insert(0, str(ROOT / folder))

ARCH = "an archspec target (invoke targets), NAME+FEATURE+…, or native"
JSON = "answer in JSON on standard output"
DRY = "say what would be done, and do nothing"
RELEASE = "a TensorFlow release (invoke releases)"
KERNELS = "hot, mini, or names of kernel sources with commas between"
PYTHON = "Python version of the wheel, such as 3.11"
PACKAGE = "the stock package: tensorflow-cpu or tensorflow"
COMPILER = "clang-16, g++, … or clang@16.0.6 for one that need not be here (plan, render)"
SCOPE = "kernels: tuned kernels in the stock wheel; full: the whole tree"
PLAN_HELP = {
    "arch": ARCH,
    "release": RELEASE,
    "scope": SCOPE,
    "kernels": KERNELS,
    "python": PYTHON,
    "package": PACKAGE,
    "compiler": COMPILER,
}


def command(
    help: dict[str, str] | None = None,  # noqa: A002  (Invoke's own name for it)
) -> Callable[[Callable[Options, None]], Callable[Options, None]]:
    """A task whose errors become one line and an exit code of their own."""

    def decorate(function: Callable[Options, None]) -> Callable[Options, None]:
        @functools.wraps(function)
        def guarded(*args: Options.args, **options: Options.kwargs) -> None:
            from tfbuild.errors import TensorwrightError

            try:
                function(*args, **options)
                sys.stdout.flush()
            except TensorwrightError as error:
                raise Exit(f"error: {error}", error.exit_code) from None
            except KeyboardInterrupt:
                raise Exit("stopped. The next run continues where this one was", 130) from None
            except BrokenPipeError:
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            except OSError as error:
                where = f" ({error.filename})" if error.filename else ""
                raise Exit(f"error: {error.strerror or error}{where}", 18) from None

        made: Any = task(help=help or {}, positional=())(guarded)
        return made  # type: ignore[no-any-return]

    return decorate


@command({"json": JSON})
def detect(_: Context, json: bool = False) -> None:
    """Say what this CPU is, what to build for it, and what the stock wheel leaves unused."""
    from tfbuild import detect, records

    found = detect.detect()
    print(records.pretty(found) if json else detect.describe(found), end="" if json else "\n")


@command({"json": JSON, "family": "x86_64 or aarch64; both by default"})
def targets(_: Context, family: str = "", json: bool = False) -> None:
    """List what --arch accepts."""
    from tfbuild import listing

    print(listing.targets(family or None, as_json=json), end="")


@command({"json": JSON})
def releases(_: Context, json: bool = False) -> None:
    """List what --release accepts, and what was verified of each."""
    from tfbuild import listing

    print(listing.releases(as_json=json), end="")


@command(PLAN_HELP | {"json": JSON, "jobs": "compiles at once, for the estimate"})
def plan(
    _: Context,
    arch: str = "native",
    release: str = "2.14.1",
    scope: str = "kernels",
    kernels: str = "hot",
    python: str = "",
    package: str = "tensorflow-cpu",
    compiler: str = "",
    jobs: str = "",
    json: bool = False,
) -> None:
    """Resolve everything, do nothing: flags, compiler, sources, kernels, commands, estimates."""
    from tfbuild import front

    request = front.Request(
        arch=arch,
        release=release,
        scope=scope,
        kernels=kernels,
        python=python,
        package=package,
        compiler=compiler,
    )
    print(front.describe_plan(request, jobs, as_json=json), end="")


@command(
    PLAN_HELP
    | {"out": "the folder to write to", "check": "compare with what is there, write nothing"}
)
def render(
    _: Context,
    arch: str = "native",
    release: str = "2.14.1",
    scope: str = "kernels",
    kernels: str = "hot",
    python: str = "",
    package: str = "tensorflow-cpu",
    compiler: str = "",
    out: str = "",
    check: bool = False,
) -> None:
    """Write the Bazel workspace (kernels) or configuration (full) of a plan."""
    from tfbuild import front

    request = front.Request(
        arch=arch,
        release=release,
        scope=scope,
        kernels=kernels,
        python=python,
        package=package,
        compiler=compiler,
    )
    print(front.render_plan(request, out, check=check))


@command(
    PLAN_HELP
    | {
        "jobs": "compiles at once; by default what CPUs and memory allow",
        "source": "TensorFlow's source archive, fetched elsewhere",
        "stock-wheel": "the stock wheel, fetched elsewhere",
        "install": "install the compiler and Bazel from Debian's packages if they are missing",
        "keep-going": "a kernel that does not compile stays stock, the rest is built",
        "dry-run": DRY,
        "json": JSON,
    }
)
def build(
    _: Context,
    arch: str = "native",
    release: str = "2.14.1",
    scope: str = "kernels",
    kernels: str = "hot",
    python: str = "",
    package: str = "tensorflow-cpu",
    compiler: str = "",
    jobs: str = "",
    source: str = "",
    stock_wheel: str = "",
    install: bool = False,
    keep_going: bool = False,
    dry_run: bool = False,
    json: bool = False,
) -> None:
    """Make a tuned wheel in wheels/, from sources to the try in a real TensorFlow."""
    from tfbuild import front

    request = front.Request(
        arch=arch,
        release=release,
        scope=scope,
        kernels=kernels,
        python=python,
        package=package,
        compiler=compiler,
    )
    if dry_run:
        print(front.describe_plan(request, jobs, as_json=json), end="")
        return
    built = front.build_wheel(
        request,
        jobs=jobs,
        source=source,
        stock_wheel=stock_wheel,
        keep_going=keep_going,
        install=install,
    )
    print(front.describe_built(built, as_json=json), end="")


@command(
    {
        "candidate": "the tuned wheel; by default the newest in wheels/ that this CPU can run",
        "baseline": "stock, or the path of a wheel",
        "workloads": "names with commas between, or all",
        "vcpus": "numbers of vCPUs with commas between; by default all usable ones",
        "out": "the folder for samples, comparison and report",
        "thorough": "five launches of each worker instead of two",
        "seed": "of the data, the parameters and the order of samples",
        "dry-run": DRY,
        "json": JSON,
    }
)
def compare(
    _: Context,
    candidate: str = "",
    baseline: str = "stock",
    workloads: str = "all",
    vcpus: str = "",
    out: str = "",
    thorough: bool = False,
    seed: str = "1",
    dry_run: bool = False,
    json: bool = False,
) -> None:
    """Train identical Keras models on both wheels and say whether the candidate is faster."""
    from tfbench import front

    wanted = front.Wanted(
        candidate=candidate,
        baseline=baseline,
        workloads=workloads,
        vcpus=vcpus,
        out=out,
        thorough=thorough,
        seed=seed,
    )
    print(front.compare_wheels(wanted, dry_run=dry_run, as_json=json), end="")


@command({"comparison": "a comparison.json; by default the newest in reports/", "json": JSON})
def report(_: Context, comparison: str = "", json: bool = False) -> None:
    """Write the report of a comparison again and print its table."""
    from tfbench import front

    print(front.report_again(comparison, as_json=json), end="")


@command({"json": JSON, "tests": "what the project's own tests need, too"})
def doctor(_: Context, tests: bool = False, json: bool = False) -> None:
    """Say what this machine lacks, and the commands that mend it."""
    from tfbuild import listing, settings

    text, complete = listing.needs(settings.places(), tests=tests, as_json=json)
    print(text, end="")
    if not complete:
        raise Exit(code=15)


@command({"no-install": "stop with the commands instead of installing anything"})
def quickstart(_: Context, no_install: bool = False) -> None:
    """Set up, detect, build the hot kernels, compare two workloads, report."""
    from tfbench import front

    front.quickstart(install=not no_install)


@command({"no-install": "stop with the commands instead of installing anything"})
def test(_: Context, no_install: bool = False) -> None:
    """Run the project's own checks: lint, types, and every test."""
    from tfbuild import checks

    checks.lint()
    checks.test(install=not no_install)


@command()
def lint(_: Context) -> None:
    """Run ruff and mypy, warnings as errors."""
    from tfbuild import checks

    checks.lint()


ns = Collection(
    *(detect, targets, releases, plan, render, build, compare, report),
    *(doctor, quickstart, test, lint),
)
ns.configure({"run": {"echo": False}})
