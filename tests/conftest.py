"""What several tests share: the stock environment, and wheels built for a few targets."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from pathlib import Path

import hypothesis
import pytest
from tests.tried import Tried

from tfbuild import front, settings
from tfbuild.kernelbuild import build as builder
from tfbuild.planning import plan
from tfbuild.planning.request import Request, fleet_for, plan_for
from tfbuild.settings import Places
from tfbuild.tools import environment
from tfbuild.tools.environment import Environment
from tfbuild.upstream import source
from tfbuild.upstream.download import sha256_of

# A busy machine is no failure.
hypothesis.settings.register_profile("untimed", deadline=None)
hypothesis.settings.load_profile("untimed")


@pytest.fixture(scope="session")
def places(tmp_path_factory: pytest.TempPathFactory) -> Places:
    """The user's own cache, so that nothing is fetched twice, and a pool of the tests' own."""
    return dataclasses.replace(settings.places(), pool=tmp_path_factory.mktemp("pool"))


@pytest.fixture(scope="session")
def stock_arm(places: Places) -> Environment:
    """An environment with the stock wheel of the release that the kernels scope knows."""
    decided, _ = plan_for(Request(kernels="mini"))
    pin = plan.need_stock(decided)
    requirement = f"{decided.package}=={decided.release}"
    wheel = environment.fetch_wheel(requirement, pin, places)
    lock = builder.lock_of(decided)
    return environment.create(wheel, python=decided.python, lock=lock, places=places)


@pytest.fixture(scope="session")
def stock_python(stock_arm: Environment) -> Path:
    return stock_arm.python


@pytest.fixture(scope="session")
def wheel_for(places: Places) -> Callable[[str], Tried]:
    """Build the two quick kernels for a target, or several with commas between; each once."""

    @functools.cache
    def build(arch: str) -> Tried:
        fleet, compiler = fleet_for(Request(arch=arch, kernels="mini"))
        jobs = front.jobs_for(fleet.first, "")
        built = builder.build(fleet, compiler=compiler, jobs=jobs, places=places)
        lock = builder.lock_of(fleet.first)
        arm = environment.create(built.wheel, python=fleet.first.python, lock=lock, places=places)
        return Tried(fleet=fleet, built=built, arm=arm)

    return build


@pytest.fixture(scope="session")
def native(wheel_for: Callable[[str], Tried]) -> Tried:
    return wheel_for("native")


@pytest.fixture(scope="session")
def staged(native: Tried, places: Places) -> Path:
    """TensorFlow's staged sources, which the native wheel has needed."""
    recipe = native.plan.kernel_recipe
    assert recipe is not None
    archive = source.fetch_source(native.plan.sources, places, None)
    return source.stage(archive, sha256_of(archive), recipe.staging, places)
