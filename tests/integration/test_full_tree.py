"""A full build end to end, by the code that serves TensorFlow's tree, of a small workspace shaped
like it: real Bazel and clang, from a plan to a wheel in the pool."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import signal
import subprocess
import sys
import time
import zipfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.builders.cache_servers import rc_of
from tests.builders.dispatchers import on_x86_64
from tests.builders.trees import change, make_tree, repository_options

from tfbuild.binaries.census import count_instructions
from tfbuild.commands import Request
from tfbuild.kernelbuild.pool import BuiltWheel
from tfbuild.machine import memory
from tfbuild.packing.tuned import FILE, Tuned, read_tuned
from tfbuild.packing.wheel import extract, read_identity
from tfbuild.planning.plan import make_full_plan
from tfbuild.planning.request import resolve
from tfbuild.remote import caches
from tfbuild.tools import bazel
from tfbuild.tools.bazel import DEBIAN_BAZEL
from tfbuild.treebuild.build import Order, build_wheel, fill_vendor_folder, find_finished
from tfbuild.upstream.download import hash_file
from tfbuild.watching.attempt import Attempt
from tfcore import settings
from tfcore.cpus.compilers import find_compiler
from tfcore.errors import BuildError, TreeError
from tfcore.records import convert_record
from tfcore.settings import ROOT, Paths

pytestmark = [on_x86_64, pytest.mark.toolchain]

BUDGET = memory.choose_budget(4_000, 2)
LIBRARY = "tensorflow/libtensorflow_cc.so.2"
TOOL = "bazel-out/host/bin/tensorflow/core/op_gen"
TUNED = {"avx", "avx2", "fma", "bmi2"}
# Of the actions that are no bookkeeping: those that had ended before the kill, and the others.
EARLIER, LATER = 8, 6
TRAINING = """import tensorflow as tf
assert tf.reduce_sum(tf.ones([64, 64])) == 4096
"""

# XNNPACK's way to leave out kernels that a compiler cannot compile.
GUARDED = """config_setting(
    name = "without",
    define_values = {"xnn_enable_avxvnniint8": "false"},
)

cc_library(
    name = "XNNPACK",
    srcs = ["src/vmul.cc"],
    copts = select({
        ":without": [],
        "//conditions:default": ["-mavxvnniint8"],
    }),
    visibility = ["//visibility:public"],
)
"""
SLOW = """
genrule(
    name = "slow",
    outs = ["slow.cc"],
    cmd = "touch {waiting}; while [ ! -e {go} ]; do sleep 0.1; done; touch $@",
    tags = ["local"],
    tools = [":ops"],
)
"""
CHILD = """
import dataclasses, pathlib
from tests.integration.test_full_tree import built
from tfcore import settings
paths = dataclasses.replace(
    settings.paths(), cache=pathlib.Path("{cache}"), pool=pathlib.Path("{pool}")
)
built(paths, pathlib.Path("{tree}"))
"""


@pytest.fixture(autouse=True, scope="module")
def debians_bazel() -> Iterator[None]:
    """bazelisk would ask the network first."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("USE_BAZEL_VERSION", str(DEBIAN_BAZEL))
        yield


def own_paths(folder: Path) -> Paths:
    """A cache of its own, with the tools of this machine."""
    private_paths = dataclasses.replace(
        settings.paths(), cache=folder / "cache", pool=folder / "pool"
    )
    private_paths.cache.mkdir(parents=True)
    private_paths.tools.symlink_to(settings.paths().tools)
    return private_paths


@pytest.fixture(scope="module")
def paths(tmp_path_factory: pytest.TempPathFactory) -> Paths:
    return own_paths(tmp_path_factory.mktemp("whole"))


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As up to 2.12: its .bazelrc has the tools of the build compiled as for the target."""
    folder = make_tree(tmp_path_factory.mktemp("tree"))
    with (folder / ".bazelrc").open("a") as rc:
        rc.write("build:linux --distinct_host_configuration=false\n")
    return folder


def built(paths: Paths, tree: Path, order: Order | None = None, **options: object) -> BuiltWheel:
    request = Request(scope="full", python="3.11", **({"arch": "haswell"} | options))  # type: ignore[arg-type]
    resolved = resolve(request)
    plan, compiler = make_full_plan(resolved), resolved.compiler
    order = dataclasses.replace(order or Order(budget=BUDGET), tree=tree, requirements="")
    return build_wheel(plan, compiler=compiler, order=order, paths=paths)


@pytest.fixture(scope="module")
def haswell(paths: Paths, tree: Path) -> BuiltWheel:
    return built(paths, tree)


def used(file: Path) -> set[str]:
    """The features beyond the baseline that a program or library has instructions of."""
    return {name for name, times in count_instructions(file).items() if times} & TUNED


def library(wheel: Path, folder: Path) -> Path:
    extract(wheel, (LIBRARY,), folder)
    return folder / LIBRARY


def test_the_wheel_says_what_it_is(haswell: BuiltWheel) -> None:
    identity, facts = read_identity(haswell.wheel), read_tuned(haswell.wheel)
    assert identity.version == "2.14.1+haswell.full"
    assert all("manylinux" in tag for tag in identity.tags)
    assert facts is not None
    assert facts.scope == "full"
    assert facts.targets == ("haswell",)
    assert facts.tree is not None
    assert "avx2" in facts.tree.required_features


def test_the_manifest_says_how_it_went(haswell: BuiltWheel) -> None:
    manifest = json.loads(haswell.manifest.read_text())
    assert manifest["smoke"]["sum"] == 512 * 512
    (attempt,) = manifest["course"]["attempts"]
    assert attempt == convert_record(Attempt(jobs=BUDGET.jobs))
    (outcome,) = manifest["course"]["outcomes"]
    assert outcome["finished"]
    assert outcome["runners"]["internal"] > 0
    named = {difference["what"]: difference["weight"] for difference in manifest["differences"]}
    assert named["tools that run during the build"] == "adapted"


def test_the_flags_are_in_the_library_and_not_in_the_tools_of_the_build(
    haswell: BuiltWheel, tree: Path, tmp_path: Path
) -> None:
    assert {"avx", "avx2"} <= used(library(haswell.wheel, tmp_path / "unpacked"))
    assert used(tree / TOOL) == set()


@pytest.mark.slow
def test_without_our_option_the_tools_would_be_tuned(tree: Path, tmp_path: Path) -> None:
    """That the test above can fail: TensorFlow's own setting, as up to 2.12."""
    paths = own_paths(tmp_path)
    bazel_tool = bazel.find_bazel(paths, "4.2.1")
    options = (
        *repository_options(bazel_tool, paths),
        f"--repo_env=CC={find_compiler('clang-16').driver}",
        *("--compilation_mode=opt", "--copt=-march=haswell"),
    )
    table = ("//tensorflow/core:table",)
    log = tmp_path / "log"
    done = bazel.build(bazel_tool, table, workspace=tree, options=options, paths=paths, log=log)
    assert done.returncode == 0, done.output
    assert used(tree / "bazel-bin/tensorflow/core/op_gen") & {"avx", "avx2"}


@pytest.mark.slow
def test_a_wheel_of_a_checkout_is_made_again_with_the_same_bytes(
    haswell: BuiltWheel, paths: Paths, tree: Path
) -> None:
    before = haswell.wheel.read_bytes()
    plan = make_full_plan(resolve(Request(scope="full", arch="haswell", python="3.11")))
    assert find_finished(plan, Order(budget=BUDGET, tree=tree), paths) is None
    assert (
        find_finished(plan, Order(budget=BUDGET), paths) is None
    )  # (not of the release's sources)
    again = built(paths, tree)
    assert not again.reused
    assert again.wheel == haswell.wheel
    assert again.wheel.read_bytes() == before


@pytest.mark.slow
def test_a_wheel_of_the_release_is_found_finished_unless_bazel_is_told_more(
    haswell: BuiltWheel, paths: Paths, tmp_path: Path
) -> None:
    plan = make_full_plan(resolve(Request(scope="full", arch="haswell", python="3.11")))
    private_paths = dataclasses.replace(paths, pool=tmp_path)
    manifest = json.loads(haswell.manifest.read_text())
    facts = read_tuned(haswell.wheel)
    assert facts is not None
    path = _with_facts(haswell.wheel, dataclasses.replace(facts, source_sha256="0" * 64), tmp_path)
    manifest["sha256"] = hash_file(path)
    path.with_suffix(".json").write_text(json.dumps(manifest))
    built_wheel = find_finished(plan, Order(budget=BUDGET), private_paths)
    assert built_wheel is not None
    assert built_wheel.wheel == path
    assert find_finished(plan, Order(budget=BUDGET, defines=("a=b",)), private_paths) is None
    service = caches.resolve_remote(rc=rc_of(tmp_path, "--remote_header=a=b"))
    assert find_finished(plan, Order(budget=BUDGET, remote=service), private_paths) == built_wheel
    more = caches.resolve_remote(rc=rc_of(tmp_path, "--copt=-DOURS"))
    assert find_finished(plan, Order(budget=BUDGET, remote=more), private_paths) is None


def _with_facts(wheel: Path, facts: Tuned, folder: Path) -> Path:
    """A copy of the wheel with another tuned.json; its RECORD is left as it was."""
    path = folder / wheel.name
    with zipfile.ZipFile(wheel) as old, zipfile.ZipFile(path, "w") as new:
        for name in old.namelist():
            new.writestr(name, facts.to_bytes() if name.endswith(FILE) else old.read(name))
    return path


@pytest.mark.slow
def test_from_another_folder_and_a_clean_cache_come_the_same_bytes(
    haswell: BuiltWheel, tmp_path: Path
) -> None:
    other_tree = make_tree(tmp_path / "elsewhere/tree")
    again = built(own_paths(tmp_path / "other"), other_tree)
    assert haswell.wheel.read_bytes() == again.wheel.read_bytes()


@pytest.mark.slow
def test_releases_whose_bazel_makes_the_wheel(paths: Paths, tmp_path: Path) -> None:
    tree = make_tree(tmp_path / "tree", "2.20.0")
    built_wheel = built(paths, tree, release="2.20.0")
    assert read_identity(built_wheel.wheel).version == "2.20.0+haswell.full"
    # From 2.20 on another plan's wheel has another name, and Bazel leaves it where it is.
    old_wheel = (
        tree / "bazel-bin/tensorflow/tools/pip_package/wheel_house/tensorflow_cpu-2.20.0+old.whl"
    )
    old_wheel.write_bytes(built_wheel.wheel.read_bytes())
    assert built(paths, tree, release="2.20.0").wheel.read_bytes() == built_wheel.wheel.read_bytes()


@pytest.mark.slow
def test_a_vendor_folder_serves_a_build_on_another_machine(paths: Paths, tmp_path: Path) -> None:
    tree = make_tree(tmp_path / "tree")
    resolved = resolve(Request(scope="full", python="3.11", arch="haswell"))
    plan, compiler = make_full_plan(resolved), resolved.compiler
    order = Order(budget=BUDGET, tree=tree, requirements="")
    fill_vendor_folder(plan, tmp_path / "vendor", compiler=compiler, order=order, paths=paths)
    other_paths = own_paths(tmp_path)
    order = Order(budget=BUDGET, tree=tree, vendored=tmp_path / "vendor")
    built_wheel = build_wheel(plan, compiler=compiler, order=order, paths=other_paths)
    assert read_identity(built_wheel.wheel).version == "2.14.1+haswell.full"


@pytest.mark.slow
def test_link_time_optimization_reaches_the_library_only(paths: Paths, tree: Path) -> None:
    built_wheel = built(paths, tree, lto=True)
    facts = read_tuned(built_wheel.wheel)
    assert facts is not None
    assert facts.tree is not None
    assert facts.tree.options["lto"] == "thin"
    assert read_identity(built_wheel.wheel).version == "2.14.1+haswell.full.lto"


@pytest.mark.slow
def test_a_wheel_learns_from_a_training_run(paths: Paths, tree: Path, tmp_path: Path) -> None:
    program = tmp_path / "training.py"
    program.write_text(TRAINING)
    order = Order(budget=BUDGET, training=program)
    built_wheel = built(paths, tree, order, pgo=str(program))
    facts = read_tuned(built_wheel.wheel)
    assert facts is not None
    assert facts.tree is not None
    assert len(facts.tree.options["profile_sha256"]) == 64
    assert read_identity(built_wheel.wheel).version == "2.14.1+haswell.full.pgo"


@pytest.mark.slow
def test_training_that_fails_is_an_error_with_its_last_line(
    paths: Paths, tree: Path, tmp_path: Path
) -> None:
    program = tmp_path / "training.py"
    program.write_text("raise SystemExit('no data')\n")
    with pytest.raises(BuildError, match="no data"):
        built(paths, tree, Order(budget=BUDGET, training=program), pgo=str(program))


@pytest.mark.slow
def test_a_flag_that_the_compiler_lacks_is_explained_or_mended(
    paths: Paths, tmp_path: Path
) -> None:
    """XNNPACK has kernels that GCC 12 does not know the ISA of, and a define to leave them out."""
    tree = make_tree(tmp_path / "tree")
    (tree / "third_party/XNNPACK/BUILD.bazel").write_text(GUARDED)
    with pytest.raises(BuildError, match="-mavxvnniint8") as caught:
        built(paths, tree, arch="skylake", compiler="g++-12")
    assert "--define xnn_enable_avxvnniint8=false" in caught.value.hint
    assert "--auto-fix" in caught.value.hint
    remote = caches.resolve_remote(rc=rc_of(tmp_path, "--remote_header=a=hunter2", "--copt=-DOURS"))
    order = Order(budget=BUDGET, remote=remote, auto_fix=True)
    built_wheel = built(paths, tree, order, arch="skylake", compiler="g++-12")
    course = json.loads(built_wheel.manifest.read_text())["course"]
    defines = [attempt["defines"] for attempt in course["attempts"]]
    assert defines == [[], ["xnn_enable_avxvnniint8=false"]]
    assert course["bazelrc"] == remote.rc.build_sha256
    events = [path.read_text() for path in paths.work.rglob("*.events.json")]
    assert any("-DOURS" in text and "a\\u003d***" in text for text in events)
    assert not any("hunter2" in text for text in events)


def test_a_tree_that_asks_something_new_is_an_error_before_bazel_starts(
    paths: Paths, tmp_path: Path
) -> None:
    tree = make_tree(tmp_path / "tree")
    change(
        tree, "configure.py", '("TF_NEED_ROCM",', '("TF_NEED_LUCK", "Lucky? "), ("TF_NEED_ROCM",'
    )
    with pytest.raises(TreeError, match="TF_NEED_LUCK"):
        built(paths, tree, arch="skylake")


def _sessions_of(parent: int) -> Iterator[int]:
    """Process groups below a process: each program that we run has one of its own."""
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError, ValueError):
            fields = stat.read_text().rpartition(")")[2].split()
            pid, ppid, group = int(stat.parent.name), int(fields[1]), int(fields[2])
            if ppid == parent and pid == group:
                yield group


@pytest.mark.slow
def test_a_killed_build_goes_on_where_it_was(tmp_path: Path) -> None:
    """SIGKILL while one action waits: what had ended is not done again, by anybody."""
    paths, tree = own_paths(tmp_path), make_tree(tmp_path / "tree")
    waiting, go = tmp_path / "waiting", tmp_path / "go"
    slow = SLOW.format(waiting=waiting, go=go)
    (tree / "tensorflow/core/BUILD").write_text((tree / "tensorflow/core/BUILD").read_text() + slow)
    sources = 'linkshared = True, srcs = ["//tensorflow/core:slow"],'
    change(tree, "tensorflow/BUILD", "linkshared = True,", sources)
    script = CHILD.format(cache=paths.cache, pool=paths.pool, tree=tree)
    env = os.environ | {"PYTHONPATH": f"{ROOT / 'build'}:{ROOT}"}
    child = subprocess.Popen([sys.executable, "-c", script], env=env, start_new_session=True)
    try:
        while not waiting.exists():
            assert child.poll() is None
            time.sleep(0.1)
    finally:
        for group in (child.pid, *_sessions_of(child.pid)):
            os.killpg(group, signal.SIGKILL)
        child.wait()
    go.touch()
    built_wheel = built(paths, tree)
    (outcome,) = json.loads(built_wheel.manifest.read_text())["course"]["outcomes"]
    ran = Counter(outcome["runners"])
    # 4.2.3 calls what the disk cache has a remote hit.
    hits = sum(ran[name] for name in ran if name.endswith("cache hit"))
    assert hits >= EARLIER
    assert ran.total() - hits - ran["internal"] <= LATER
