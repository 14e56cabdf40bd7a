"""What several tests share: the stock environment, wheels built for a few targets, and how the
tests are spread over processes."""

from __future__ import annotations

import dataclasses
import functools
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import hypothesis
import pytest
from filelock import FileLock
from tests.builders.buckets import Served, serving_s3
from tests.builders.installed_wheel import Tried
from tests.builders.invoke_calls import Tasks
from tests.builders.locked_wheels import HERE
from tests.builders.own_cpu import OwnCpu, own_cpu
from tests.builders.plans import fleet_for, plan_for
from tests.builders.signing_keys import made_key
from xdist.scheduler import LoadScopeScheduling

from tfbuild import checks, handlers
from tfbuild.commands import Request
from tfbuild.kernelbuild import build as builder
from tfbuild.kernelbuild.build_setup import read_requirements
from tfbuild.planning import plan
from tfbuild.tools import environment
from tfbuild.tools.environment import Environment
from tfbuild.upstream import source
from tfbuild.upstream.download import hash_file
from tfcore.settings import ROOT, Paths
from tfwheels.keys import SigningKey

# What a test is not about is the release that the machine's own sources are of.
os.environ.setdefault("TENSORWRIGHT_RELEASE", checks.TESTED_RELEASE)
OWN = checks.prepare_test_paths()

# A busy machine is no failure. The first tier looks for new failures with few examples, the second
# with many; an explicit number of a test is the most that it bears (tests.builders.examples).
hypothesis.settings.register_profile("first", deadline=None, max_examples=20)
hypothesis.settings.register_profile("second", deadline=None, max_examples=200)


def pytest_configure(config: pytest.Config) -> None:
    # A shell's background job ignores Ctrl-C, and one of nohup that its terminal ends; so would all
    # that the tests start.
    for number, handler in (
        (signal.SIGINT, signal.default_int_handler),
        (signal.SIGHUP, signal.SIG_DFL),
    ):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, handler)
    first = checks.SLOW in config.option.markexpr
    hypothesis.settings.load_profile("first" if first else "second")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Those that take longest begin, and those that wait for a wheel come when it is there."""
    items.sort(key=_turn)


def _turn(item: pytest.Item) -> int:
    if item.get_closest_marker("kernels") is not None:
        return 0
    if item.get_closest_marker("early") is not None:
        return 1
    if item.get_closest_marker("toolchain") is None:
        return 4
    return 3 if "wheel_for" in getattr(item, "fixturenames", ()) else 2


class _Modules(LoadScopeScheduling):  # type: ignore[misc]
    """Keeps the tests of a module in one process, as they share what it makes, and also all tests
    of modules with the marker `kernels`.

    The scheduler gets names of tests without their markers, so it reads the modules. Not --dist
    loadgroup: pytest-xdist 3.8 writes groups where pytest 9.2 does not read them.
    """

    def _split_scope(self, nodeid: str) -> str:
        module = nodeid.partition("::")[0]
        return "kernels" if _builds_kernels(module) else module


@functools.cache
def _builds_kernels(module: str) -> bool:
    """Whether the module, a path in the checkout, has the marker `kernels`."""
    return "pytest.mark.kernels" in (ROOT / module).read_text("utf-8")


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> _Modules:
    return _Modules(config, log)


@pytest.fixture(scope="session")
def run_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of this run, the same in each of its processes."""
    own_path = tmp_path_factory.getbasetemp()
    folder = (own_path.parent if "PYTEST_XDIST_WORKER" in os.environ else own_path) / "run"
    folder.mkdir(exist_ok=True)
    return folder


@pytest.fixture(scope="session")
def paths(run_folder: Path) -> Paths:
    """The tests' own cache, which outlives a run, and a pool of this run."""
    return dataclasses.replace(OWN, pool=run_folder / "pool")


@pytest.fixture(scope="session", name="own_cpu")
def fixture_own_cpu() -> OwnCpu:
    return own_cpu()


@pytest.fixture(scope="session")
def stock_arm(paths: Paths, run_folder: Path) -> Environment:
    """An environment with the stock wheel of the release that the kernels scope knows."""
    decided, _ = plan_for(Request(kernels="mini"))
    pin = plan.require_stock(decided)
    requirement = f"{decided.package}=={decided.release}"
    with FileLock(run_folder / "stock.lock"):
        wheel = environment.fetch_wheel(requirement, pin, paths)
        needs = read_requirements(decided)
        return environment.create(wheel, python=decided.python, requirements=needs, paths=paths)


@pytest.fixture(scope="session")
def stock_python(stock_arm: Environment) -> Path:
    return stock_arm.python


@pytest.fixture(scope="session")
def python_of(paths: Paths, request: pytest.FixtureRequest) -> Callable[[str], Path]:
    """The interpreter of an environment with the stock wheel of a release."""

    def python(release: str) -> Path:
        if release == checks.TESTED_RELEASE:
            stock: Path = request.getfixturevalue("stock_python")
            return stock
        requirement = f"tensorflow-cpu=={release}"
        return environment.create_from_requirement(requirement, python=HERE, paths=paths).python

    return python


@pytest.fixture(scope="session")
def one_builder(run_folder: Path) -> FileLock:
    """Held by whoever builds the quick kernels: two processes would work in one folder, as those of
    the tasks, which hold the cache, do not."""
    return FileLock(run_folder / "wheels.lock")


@pytest.fixture(scope="session")
def wheel_for(
    paths: Paths, one_builder: FileLock, stock_arm: Environment
) -> Callable[[str], Tried]:
    """Build the two quick kernels for a target, or one of them for several with commas between;
    each once in a run. The stock environment is there: what is asked of that alone need not wait
    for a build."""

    @functools.cache
    def build(arch: str) -> Tried:
        kernels = "cwise_op_tanh" if "," in arch else "mini"
        fleet, compiler = fleet_for(Request(arch=arch, kernels=kernels))
        jobs = handlers.choose_jobs(fleet.first, "")
        needs = read_requirements(fleet.first)
        python = fleet.first.python
        with one_builder:
            built = builder.build_wheel(fleet, compiler=compiler, jobs=jobs, paths=paths)
            arm = environment.create(built.wheel, python=python, requirements=needs, paths=paths)
        return Tried(fleet=fleet, built=built, arm=arm)

    return build


@pytest.fixture(scope="session")
def native(wheel_for: Callable[[str], Tried]) -> Tried:
    return wheel_for("native")


@pytest.fixture(scope="session")
def staged(native: Tried, paths: Paths) -> Path:
    """TensorFlow's staged sources, which the native wheel has needed."""
    archive = source.fetch_source(native.plan.sources, paths, None)
    return source.stage(archive, hash_file(archive), native.plan.kernel_recipe.staging, paths)


@pytest.fixture
def invoke(tmp_path: Path) -> Tasks:
    return Tasks(tmp_path)


@pytest.fixture(scope="module")
def key(tmp_path_factory: pytest.TempPathFactory) -> SigningKey:
    return made_key(tmp_path_factory.mktemp("key"))


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> SigningKey:
    """A second key."""
    return made_key(tmp_path_factory.mktemp("other"))


@pytest.fixture(scope="module")
def module_s3() -> Iterator[Served]:
    with serving_s3() as server:
        yield server


@pytest.fixture
def s3(module_s3: Served, monkeypatch: pytest.MonkeyPatch) -> Served:
    """A server with a bucket, one for all tests of a module, where boto3 looks for it."""
    for name, value in module_s3.env.items():
        monkeypatch.setenv(name, value)
    return module_s3


@pytest.hookimpl(trylast=True)
def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """What this machine could not show, once per reason."""
    reasons: dict[str, int] = {}
    for report in terminalreporter.stats.get("skipped", []):
        if isinstance(report.longrepr, tuple):
            reason = report.longrepr[2].removeprefix("Skipped: ")
            reasons[reason] = reasons.get(reason, 0) + 1
    for reason, times in sorted(reasons.items()):
        terminalreporter.write_line(f"skipped {times}: {reason}")
