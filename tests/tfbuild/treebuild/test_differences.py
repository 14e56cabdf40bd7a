from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

import pytest
from packaging.version import Version
from tests.builders.plans import planned_full
from tests.builders.trees import EVERY_RELEASE, PIP_PACKAGE, change, reduced_tree

from tfbuild.planning.plan import FullRecipe, list_source_pins
from tfbuild.treebuild.differences import TreeDifference, Weight, adapt_recipe, find_differences
from tfbuild.treebuild.tree import read_tree
from tfbuild.upstream import source
from tfbuild.upstream.download import hash_file
from tfbuild.upstream.releases import Release, find_release
from tfcore.settings import Paths

RULE = "//tensorflow/tools/pip_package:wheel"
HOST = "--distinct_host_configuration"


def recipe_of(release: Release) -> FullRecipe:
    return planned_full(release=release.version, python=release.pythons[-1]).full_recipe


def found(folder: Path, version: str, *, bazel: str = "") -> tuple[TreeDifference, ...]:
    """The differences of a tree to the release `version`, with the plan that it gets."""
    release = find_release(version)
    tree = read_tree(folder)
    return find_differences(tree, release, recipe_of(release), bazel=bazel or tree.bazel)


@EVERY_RELEASE
def test_a_releases_own_tree_is_built_as_it_is_planned(tmp_path: Path, release: Release) -> None:
    tree = read_tree(reduced_tree(tmp_path, release.version))
    recipe = recipe_of(release)
    tree_differences = find_differences(tree, release, recipe, bazel=release.bazel)
    assert not [
        tree_difference
        for tree_difference in tree_differences
        if tree_difference.weight is Weight.FATAL
    ]
    now = adapt_recipe(recipe, tree, release.bazel)
    assert (now.target, now.configure_env) == (recipe.target, recipe.configure_env)
    assert set(release.options) <= set(now.options)


@EVERY_RELEASE
def test_bazel_stays_in_the_limits_of_configure(tmp_path: Path, release: Release) -> None:
    tree = read_tree(reduced_tree(tmp_path, release.version))
    assert (tree.bazel_limits is not None) == (Version(release.version) < Version("2.10"))
    for bazel, fatal in ((release.bazel_range[0], False), ("8.0.0", tree.bazel_limits is not None)):
        tree_differences = find_differences(tree, release, recipe_of(release), bazel=bazel)
        assert (
            any(tree_difference.weight is Weight.FATAL for tree_difference in tree_differences)
            == fatal
        )


# Each difference from one change of a tree that has none.

MUTATIONS: dict[str, tuple[Callable[[Path], object], str, Weight]] = {
    "another release": (
        lambda tree: change(tree, f"{PIP_PACKAGE}/setup.py", "2.14.1", "2.14.0"),
        "release",
        Weight.FATAL,
    ),
    "another Bazel": (
        lambda tree: change(tree, ".bazelversion", "6.1.0", "6.5.0"),
        ".bazelversion",
        Weight.ADAPTED,
    ),
    "no Bazel": (
        lambda tree: (tree / ".bazelversion").unlink(),
        ".bazelversion",
        Weight.INFORMATION,
    ),
    "limits": (
        lambda tree: change(
            tree,
            "configure.py",
            "import os\n",
            "_TF_MIN_BAZEL_VERSION = '6.2.0'\n_TF_MAX_BAZEL_VERSION = '6.99.0'\n",
        ),
        "Bazel range of configure.py",
        Weight.FATAL,
    ),
    "another target": (
        lambda tree: change(tree, f"{PIP_PACKAGE}/BUILD", "build_pip_package", "wheel"),
        "wheel target",
        Weight.ADAPTED,
    ),
    "no target": (
        lambda tree: change(tree, f"{PIP_PACKAGE}/BUILD", "build_pip_package", "pack"),
        "wheel target",
        Weight.FATAL,
    ),
    "shared host flags": (
        lambda tree: change(tree, ".bazelrc", "try-", f"build:linux {HOST}=false\ntry-"),
        "tools that run during the build",
        Weight.ADAPTED,
    ),
    "a config less": (
        lambda tree: change(tree, ".bazelrc", "build:nogcp", "build:no_gcp"),
        "--config=nogcp",
        Weight.INFORMATION,
    ),
    "a toolchain of its own": (
        lambda tree: change(tree, ".bazelrc", "build:nogcp", "build:clang_local --x\nbuild:nogcp"),
        "C++ toolchain",
        Weight.ADAPTED,
    ),
    "a variable less": (
        lambda tree: change(tree, "configure.py", "'TF_NEED_ROCM'", "'TF_NEED_GPU'.lower()"),
        "TF_NEED_ROCM",
        Weight.ADAPTED,
    ),
    "a question more": (
        lambda tree: change(
            tree, "configure.py", "import os\n", "get_var(environ_cp, 'TF_NEED_NPU', 'NPU')\n"
        ),
        "TF_NEED_NPU",
        Weight.INFORMATION,
    ),
    "another name for the Python": (
        lambda tree: change(tree, "third_party/py/python_repo.bzl", "TF_PYTHON_", "ITS_PYTHON_"),
        "TF_PYTHON_VERSION",
        Weight.INFORMATION,
    ),
}


def test_the_tree_before_its_mutation_has_no_difference(tmp_path: Path) -> None:
    assert found(reduced_tree(tmp_path, "2.14.1"), "2.14.1") == ()


@pytest.mark.parametrize("name", MUTATIONS)
def test_one_change_makes_one_difference(tmp_path: Path, name: str) -> None:
    mutate, name_of_part, weight = MUTATIONS[name]
    tree = reduced_tree(tmp_path, "2.14.1")
    mutate(tree)
    (tree_difference,) = found(tree, "2.14.1", bazel="6.1.0")
    assert (tree_difference.what, tree_difference.weight) == (name_of_part, weight)
    assert tree_difference.table != tree_difference.tree
    assert tree_difference.advice


def test_a_bazel_outside_the_range_of_the_release_is_told(tmp_path: Path) -> None:
    (tree_difference,) = found(reduced_tree(tmp_path, "2.14.1"), "2.14.1", bazel="4.2.3")
    assert (tree_difference.what, tree_difference.weight) == ("installed Bazel", Weight.INFORMATION)
    assert (tree_difference.table, tree_difference.tree) == ("6.1.0 to 6", "to be built with 4.2.3")


def test_a_config_that_the_plan_names_must_be_there(tmp_path: Path) -> None:
    release = find_release("2.14.1")
    recipe = recipe_of(release)
    tree = read_tree(reduced_tree(tmp_path, "2.14.1"))
    for name, weights in (("nogcp", []), ("numa", [Weight.FATAL]), ("opt", [])):
        asking = dataclasses.replace(recipe, options=(*recipe.options, f"--config={name}"))
        tree_differences = find_differences(tree, release, asking, bazel="6.1.0")
        assert [tree_difference.weight for tree_difference in tree_differences] == weights
        assert [tree_difference.what for tree_difference in tree_differences] == [
            f"--config={name}"
        ][: len(weights)]


# The recipe that a tree gets.


def test_the_tree_decides_about_the_target_and_the_folder(tmp_path: Path) -> None:
    recipe = recipe_of(find_release("2.14.1"))
    tree = change(
        reduced_tree(tmp_path, "2.14.1"), f"{PIP_PACKAGE}/BUILD", "build_pip_package", "wheel"
    )
    now = adapt_recipe(recipe, read_tree(tree), "6.1.0")
    assert now.target == RULE
    assert now.wheel_folder == find_release("2.17").wheel_folder
    back = adapt_recipe(now, read_tree(reduced_tree(tmp_path, "2.14.1")), "6.1.0")
    assert back == recipe


@pytest.mark.parametrize(
    ("release", "bazel", "flag"),
    [
        ("2.12.1", "5.3.0", True),
        ("2.12.1", "4.2.3", True),
        ("2.12.1", "6.5.0", False),  # (Bazel has no such flag any more)
        ("2.13.1", "5.3.0", False),  # (the tree does not share them)
        ("2.14.1", "6.1.0", False),
    ],
)
def test_host_tools_are_kept_apart_where_the_tree_shares_flags(
    tmp_path: Path, release: str, bazel: str, flag: bool
) -> None:
    tree = read_tree(reduced_tree(tmp_path, release))
    recipe = recipe_of(find_release(release))
    options = adapt_recipe(recipe, tree, bazel).options
    assert (f"{HOST}=true" in options) is flag
    assert options[-1] == "--config=tensorwright"
    assert adapt_recipe(adapt_recipe(recipe, tree, bazel), tree, bazel).options == options


def test_a_downloaded_toolchain_is_switched_off_once(tmp_path: Path) -> None:
    tree = read_tree(reduced_tree(tmp_path, "2.21.0"))
    recipe = recipe_of(find_release("2.21"))
    now = adapt_recipe(adapt_recipe(recipe, tree, "7.4.1"), tree, "7.4.1")
    assert now.options.count("--config=clang_local") == 1


def test_answers_without_effect_are_left_out(tmp_path: Path) -> None:
    recipe = recipe_of(find_release("2.14.1"))
    tree = reduced_tree(tmp_path, "2.14.1")
    change(tree, "configure.py", "'TF_NEED_CLANG'", "'TF_NEED_GCC'")
    now = adapt_recipe(recipe, read_tree(tree), "6.1.0")
    assert dict(recipe.configure_env).keys() - dict(now.configure_env).keys() == {"TF_NEED_CLANG"}


@pytest.mark.slow
@pytest.mark.toolchain
def test_the_real_tree_of_2_14_1_does_not_differ(paths: Paths) -> None:
    """It stays in the user's cache, as after a build."""
    archive = source.fetch_source(list_source_pins(find_release("2.14.1")), paths, None)
    tree = source.unpack(archive, hash_file(archive), paths)
    assert found(tree, "2.14.1") == ()
    assert [
        (tree_difference.what, tree_difference.weight) for tree_difference in found(tree, "2.17.1")
    ] == [
        ("release", Weight.FATAL),
        (".bazelversion", Weight.ADAPTED),
        ("installed Bazel", Weight.INFORMATION),
        ("wheel target", Weight.ADAPTED),
        ("--config=linux_arm64", Weight.INFORMATION),
        ("HERMETIC_PYTHON_VERSION", Weight.INFORMATION),
        ("WHEEL_NAME", Weight.INFORMATION),
    ]
