"""Compares a tree with the release table, and adapts the plan's recipe to the tree."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from packaging.version import Version

from tfbuild.planning.plan import FullRecipe
from tfbuild.treebuild.tree import HOST_FLAG, PIP_PACKAGE, SourceTree
from tfbuild.upstream.releases import Release

# Configs of the rendered bazelrc and of the file that configure.py writes.
_OWN_CONFIGS = frozenset({"opt", "tensorwright"})
_FIRST_WITHOUT_HOST_FLAG = Version("6")  # (easybuild-easyblocks, tensorflow.py)
# Since 2.21 a tree downloads its own Clang. With this config it uses the machine's compiler.
_LOCAL_TOOLCHAIN = "clang_local"


class Weight(StrEnum):
    INFORMATION = "information"
    ADAPTED = "adapted"
    FATAL = "fatal"


@dataclass(frozen=True, kw_only=True, slots=True)
class TreeDifference:
    """A difference between the release table and the tree. `advice` is for the user."""

    what: str
    table: str
    tree: str
    weight: Weight
    advice: str


def find_differences(
    tree: SourceTree, release: Release, recipe: FullRecipe, *, bazel: str
) -> tuple[TreeDifference, ...]:
    """List where the tree differs from the release table or from what the recipe needs; `bazel`
    is the version that will run.

    A fatal difference forbids the build; `adapt_recipe` handles the adapted ones.
    """
    return (
        *_compare_release(tree, release),
        *_compare_bazel(tree, release, bazel),
        *_compare_target(tree, recipe),
        *_compare_host_flags(tree, release),
        *_compare_configs(tree, release, recipe),
        *_compare_variables(tree, release, recipe),
    )


def _compare_release(tree: SourceTree, release: Release) -> Iterator[TreeDifference]:
    if tree.release != release.version:
        yield TreeDifference(
            what="release",
            table=release.version,
            tree=tree.release,
            weight=Weight.FATAL,
            advice=f"Use --release {tree.release} if the table has it, or pass another tree",
        )


def _compare_bazel(tree: SourceTree, release: Release, bazel: str) -> Iterator[TreeDifference]:
    if tree.bazel != release.bazel:
        yield TreeDifference(
            what=".bazelversion",
            table=release.bazel,
            tree=tree.bazel or "none",
            weight=Weight.ADAPTED if tree.bazel else Weight.INFORMATION,
            advice=f"The build uses Bazel {bazel}",
        )
    if not release.can_use_bazel(bazel):
        oldest, newest = release.bazel_range
        yield TreeDifference(
            what="installed Bazel",
            table=f"{oldest} to {newest}",
            tree=f"to be built with {bazel}",
            weight=Weight.INFORMATION,
            advice="No build of this release with this Bazel is known",
        )
    if tree.bazel_limits and not _is_within(tree.bazel_limits, bazel):
        oldest, newest = tree.bazel_limits
        yield TreeDifference(
            what="Bazel range of configure.py",
            table=bazel,
            tree=f"{oldest} to {newest}",
            weight=Weight.FATAL,
            advice=f"Use Bazel {tree.bazel or oldest}",
        )


def _is_within(limits: tuple[str, str], version: str) -> bool:
    oldest, newest = map(Version, limits)
    return oldest <= Version(version) <= newest


def _compare_target(tree: SourceTree, recipe: FullRecipe) -> Iterator[TreeDifference]:
    if tree.wheel_target != recipe.target:
        yield TreeDifference(
            what="wheel target",
            table=recipe.target,
            tree=tree.wheel_target or "none",
            weight=Weight.ADAPTED if tree.wheel_target else Weight.FATAL,
            advice="The build uses the tree's target"
            if tree.wheel_target
            else f"{PIP_PACKAGE}/BUILD has no wheel target: pass another tree",
        )


def _compare_host_flags(tree: SourceTree, release: Release) -> Iterator[TreeDifference]:
    if tree.shares_host_flags != release.distinct_host:
        words = {True: "compiled for the target", False: "compiled for this machine"}
        yield TreeDifference(
            what="tools that run during the build",
            table=words[release.distinct_host],
            tree=words[tree.shares_host_flags],
            weight=Weight.ADAPTED,
            advice="The build compiles them for this machine",
        )


def _compare_configs(
    tree: SourceTree, release: Release, recipe: FullRecipe
) -> Iterator[TreeDifference]:
    named = {option.partition("=")[2] for option in recipe.options if _is_config(option)}
    needed = named - _OWN_CONFIGS
    for name in sorted(needed - tree.configs):
        yield TreeDifference(
            what=f"--config={name}",
            table="named by the plan",
            tree="not defined",
            weight=Weight.FATAL,
            advice="Bazel refuses a config that no .bazelrc defines: remove it from the plan",
        )
    for name in sorted(set(release.configs) - tree.configs - needed):
        yield TreeDifference(
            what=f"--config={name}",
            table="defined",
            tree="not defined",
            weight=Weight.INFORMATION,
            advice="The plan does not use it",
        )
    if _LOCAL_TOOLCHAIN in tree.configs - needed:
        yield TreeDifference(
            what="C++ toolchain",
            table="the machine's",
            tree="downloaded",
            weight=Weight.ADAPTED,
            advice=f"The build uses the machine's: --config={_LOCAL_TOOLCHAIN}",
        )


def _is_config(option: str) -> bool:
    return option.startswith("--config=")


def _compare_variables(
    tree: SourceTree, release: Release, recipe: FullRecipe
) -> Iterator[TreeDifference]:
    answers = dict(recipe.configure_env)
    for name in sorted(answers.keys() - tree.variables):
        yield TreeDifference(
            what=name,
            table=answers[name],
            tree="unknown to configure.py",
            weight=Weight.ADAPTED,
            advice="It has no effect in this tree: the build omits it",
        )
    for name in sorted(tree.questions - answers.keys() - set(release.unasked)):
        yield TreeDifference(
            what=name,
            table="no answer",
            tree="configure.py asks for it",
            weight=Weight.INFORMATION,
            advice="configure.py gets an empty answer, and uses its default",
        )
    for name, value in recipe.repo_env:
        if name not in tree.repo_env:
            yield TreeDifference(
                what=name,
                table=value,
                tree="read by no .bzl file",
                weight=Weight.INFORMATION,
                advice="It has no effect in this tree",
            )


def adapt_recipe(recipe: FullRecipe, tree: SourceTree, bazel: str) -> FullRecipe:
    """Return the recipe adapted to this tree and this Bazel. The tree must have a wheel target."""
    options = [option for option in recipe.options if not option.startswith(HOST_FLAG)]
    config = f"--config={_LOCAL_TOOLCHAIN}"
    if _LOCAL_TOOLCHAIN in tree.configs and config not in options:
        options.insert(0, config)
    if tree.shares_host_flags and Version(bazel) < _FIRST_WITHOUT_HOST_FLAG:
        options.insert(0, f"{HOST_FLAG}=true")
    return dataclasses.replace(
        recipe,
        target=tree.wheel_target,
        wheel_folder=tree.wheel_folder,
        options=tuple(options),
        configure_env=tuple(pair for pair in recipe.configure_env if pair[0] in tree.variables),
    )
