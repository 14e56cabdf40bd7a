"""Kernels of releases that this machine has sources of, and one build for several Pythons."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from filelock import FileLock
from tests.builders import newer_clang
from tests.builders.later import later
from tests.builders.near_trees import NEAR, tree_of
from tests.builders.plans import plan_for

from tfbuild import handlers, interpreters
from tfbuild.checks import TESTED_RELEASE
from tfbuild.commands import Request
from tfbuild.kernelbuild import build as builder
from tfbuild.kernelbuild.build_setup import unpack_stock
from tfbuild.kernelbuild.pool import BuiltWheel
from tfbuild.packing import tuned
from tfbuild.packing.tuned import Tuned
from tfbuild.packing.wheel import read_identity, read_record
from tfbuild.planning.plan import NATIVE, make_kernels_plan, require_stock
from tfbuild.planning.request import resolve_fleets
from tfbuild.tools import environment
from tfbuild.upstream import kernels
from tfbuild.upstream.kernels import FOLDER
from tfcore.errors import KernelError
from tfcore.records import load
from tfcore.run import run
from tfcore.settings import Paths

pytestmark = pytest.mark.toolchain

UNFIT = {"2.21.0": ["resource_variable_ops.cc"]}
"""Sources of those trees that do not compile against the release's headers as they are."""
FUSED = "fused/chains,fused/grouped,fused/loops,fused/products,fused/updates"
OTHER = "3.10"
"""A Python beside that of the tests."""
BOTH = f"3.11,{OTHER}"

Build = Callable[..., tuple[BuiltWheel, ...]]


@pytest.fixture(scope="module")
def build(paths: Paths, one_builder: FileLock, tmp_path_factory: pytest.TempPathFactory) -> Build:
    """Build a request for this CPU, of sources at a path, into a pool of this module."""
    own_paths = dataclasses.replace(paths, pool=tmp_path_factory.mktemp("releases"))

    def made(request: Request) -> tuple[BuiltWheel, ...]:
        fleets, compiler = resolve_fleets(request, make_kernels_plan)
        with one_builder:
            return builder.build_wheels(
                fleets,
                compiler=compiler,
                jobs=handlers.choose_jobs(fleets[0].first, ""),
                paths=own_paths,
                given_source=Path(request.source) if request.source else None,
            )

    return made


def facts_of(built: BuiltWheel) -> Tuned:
    facts = tuned.read_tuned(built.wheel)
    assert facts is not None
    return facts


@pytest.mark.parametrize(
    ("release", "choice", "pythons", "differing"),
    [
        ("2.20.0", "cwise_op_tanh", BOTH, 21),
        *later(
            ("2.15.1", f"cwise_op_tanh,bias_op,{FUSED}", "3.11", 1),
            ("2.16.2", f"cwise_op_tanh,bias_op,{FUSED}", "3.11", 3),
            ("2.17.1", f"cwise_op_tanh,bias_op,{FUSED}", "3.11", 34),
            ("2.20.0", "random_op,bias_op", "3.11", 21),
            ("2.21.0", f"cwise_op_tanh,bias_op,{FUSED}", "3.11", 437),
        ),
    ],
)
def test_a_near_tree_makes_a_wheel_that_says_how_near(
    build: Build, tmp_path: Path, release: str, choice: str, pythons: str, differing: int
) -> None:
    """Its kernels were run against the stock ones; the wheel was installed and tried."""
    source = tree_of(NEAR[release], tmp_path)
    request = Request(release=release, kernels=choice, python=pythons, source=str(source))
    built, *other_built_wheels = build(request)
    for other_built_wheel in other_built_wheels:
        need_one_build(built, other_built_wheel)
    facts = facts_of(built)
    assert facts.release == release
    assert facts.kernels == frozenset(choice.split(","))
    nearness = facts.nearness
    assert nearness is not None
    assert (nearness.own, nearness.exact, len(nearness.differing)) == (False, False, differing)
    manifest = load(built.manifest, schema=3)
    assert manifest["smoke"]["computes"]
    assert manifest["smoke"]["loaded"] == facts.libraries[0].name


@pytest.mark.slow
@pytest.mark.parametrize(("family", "major"), [("gcc", 12), ("clang", newer_clang.MAJOR)])
def test_another_compiler_makes_kernels_that_are_admitted(
    build: Build, paths: Paths, tmp_path: Path, family: str, major: int
) -> None:
    """Two units whose sources are templates over many types, and of which one has code of ours."""
    compiler = f"g++-{major}" if family == "gcc" else newer_clang.clang(paths)
    source = tree_of(NEAR["2.20.0"], tmp_path)
    request = Request(
        release="2.20.0",
        kernels="cwise_op_tanh,random_op",
        python="3.11",
        source=str(source),
        compiler=compiler,
    )
    (built,) = build(request)
    facts = facts_of(built)
    assert facts.compiler.startswith(f"{family} {major}.")
    assert facts.kernels == frozenset({"cwise_op_tanh", "random_op"})
    assert not facts.libraries[0].stay_stock
    assert load(built.manifest, schema=3)["smoke"]["loaded"] == facts.libraries[0].name


@pytest.mark.slow
@pytest.mark.parametrize("release", NEAR)
def test_every_header_of_ours_compiles_before_a_source_of_the_release(
    release: str, paths: Paths, tmp_path: Path
) -> None:
    tree = tree_of(NEAR[release], tmp_path)
    plan, compiler = plan_for(Request(arch="haswell", release=release, kernels="mini"))
    recipe, pin = plan.kernel_recipe, require_stock(plan)
    stock = environment.fetch_wheel(f"{plan.package}=={release}", pin, paths)
    headers = unpack_stock(stock, pin.sha256, recipe, paths)
    (tmp_path / "tensorwright").symlink_to(NATIVE)
    words: list[str | Path] = [compiler.path, "-fsyntax-only", f"-std={recipe.cxx_standard}"]
    words += [*recipe.copts, *plan.flags, f"-I{tmp_path}"]
    words += [f"-isystem{headers / root}" for root in recipe.include_roots]
    words += [f"-isystem{tree}"]

    def said(source: Path, *before: str) -> str:
        done = run([*words, *before, source], timeout_s=1200, check=False)
        return done.output if done.returncode else ""

    def said_of_ours(source: Path, header: str) -> str:
        return said(source, "-include", f"tensorwright/improved/{header}")

    sources = sorted((tree / FOLDER).glob("*.cc"), reverse=True)
    named = {kernels.find_replacement_header(f"{FOLDER}/{path.name}"): path for path in sources}
    ours = {path: name for name, path in named.items() if name}
    assert {*ours.values()} >= {"elementwise.h", "random_fill.h", "strided_slice_op.h"}
    with ThreadPoolExecutor(max_workers=2) as pool:
        complaints = dict(zip(ours, pool.map(said_of_ours, ours, ours.values()), strict=True))
    unfit = [path.name for path, text in complaints.items() if text and said(path)]
    assert unfit == UNFIT.get(release, [])
    assert {p.name: text for p, text in complaints.items() if text and p.name not in unfit} == {}


def test_sources_of_another_release_are_refused_before_anything_is_fetched(
    build: Build, tmp_path: Path
) -> None:
    source = tree_of("tensorflow-2.17-near", tmp_path)
    with pytest.raises(KernelError, match=r"of TensorFlow 2\.17, but the wheel is of 2\.16\.2"):
        build(Request(release="2.16.2", kernels="mini", source=str(source)))


# In the first tier a build of 2.20.0 shows it, where there are sources of that.
@pytest.mark.slow
def test_one_build_makes_the_wheels_of_two_pythons(build: Build) -> None:
    built_wheel, second = build(Request(release=TESTED_RELEASE, kernels="mini", python=BOTH))
    need_one_build(built_wheel, second)
    again = build(Request(release=TESTED_RELEASE, kernels="mini", python=f"{OTHER},3.11"))
    assert all(wheel.reused for wheel in again)


def need_one_build(built_wheel: BuiltWheel, other_built_wheel: BuiltWheel) -> None:
    """Wheels of Python 3.11 and OTHER with the same library, tried where their Pythons are."""
    assert [read_identity(wheel.wheel).python for wheel in (built_wheel, other_built_wheel)] == [
        "3.11",
        OTHER,
    ]
    library, theirs = (facts_of(wheel).libraries[0] for wheel in (built_wheel, other_built_wheel))
    assert library.sha256 == theirs.sha256
    assert library.plan_key != theirs.plan_key
    assert facts_of(built_wheel).stock_sha256 != facts_of(other_built_wheel).stock_sha256
    listed = {line.name: line.digest for line in read_record(other_built_wheel.wheel)}
    assert {line.name: line.digest for line in read_record(built_wheel.wheel)}[library.file] == (
        listed[library.file]
    )
    tried = [
        bool(load(wheel.manifest, schema=3)["smoke"]) for wheel in (built_wheel, other_built_wheel)
    ]
    assert tried == [True, interpreters.is_here(OTHER)]
