"""A source tree made ready for Bazel: fetched, read, held against the release table, configured."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tfbuild import console
from tfbuild.cpus.compilers import Compiler
from tfbuild.errors import CommandError, TreeError
from tfbuild.planning import render
from tfbuild.planning.plan import FullRecipe, Plan
from tfbuild.run import run
from tfbuild.settings import Paths
from tfbuild.tools import bazel
from tfbuild.tools.bazel import Bazel
from tfbuild.treebuild.differences import TreeDifference, Weight, adapted, differences
from tfbuild.treebuild.tree import SourceTree, read_tree
from tfbuild.upstream import releases, source
from tfbuild.upstream.download import hash_file

_CONFIGURE_S = 300.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Site:
    """Everything that stays the same over all calls of Bazel for one plan.

    `recipe` is the plan's as this tree needs it. `python` is the interpreter that the build uses,
    `repositories` are what Debian's Bazel lacks. Files and logs lie in `folder`. `source_sha256` is
    empty for a tree that the user gave.
    """

    plan: Plan
    recipe: FullRecipe
    compiler: Compiler
    tree: SourceTree
    differences: tuple[TreeDifference, ...]
    bazel: Bazel
    repositories: Mapping[str, Path]
    python: Path
    source_sha256: str
    folder: Path
    paths: Paths

    @property
    def rc(self) -> Path:
        return self.folder / "tensorwright.bazelrc"

    @property
    def options(self) -> tuple[str, ...]:
        """Bazel's own repositories where it lacks them, the compiler, and the plan's config."""
        return (
            *bazel.build_repository_options(self.bazel, self.repositories),
            f"--repo_env=CC={self.compiler.driver}",
            *self.recipe.options,
        )


def prepare(
    plan: Plan,
    compiler: Compiler,
    *,
    python: Path,
    given_tree: Path | None,
    given_source: Path | None,
    found: Bazel | None,
    paths: Paths,
) -> Site:
    """A tree made ready for Bazel. `found` is the Bazel to use; None for the one that the tree asks
    for.

    Raises TreeError for a tree that this plan cannot be built in, and what fetching raises.
    """
    at, sha256 = (given_tree, "") if given_tree else tree_of(plan, given_source, paths)
    tree = read_tree(at)
    found = found or bazel.find_bazel(paths, tree.bazel or plan.bazel)
    recipe, release = _recipe(plan), releases.find_release(plan.release)
    unlike = differences(tree, release, recipe, bazel=found.version)
    _tell(unlike)
    site = Site(
        plan=plan,
        recipe=adapted(recipe, tree, found.version),
        compiler=compiler,
        tree=tree,
        differences=unlike,
        bazel=found,
        repositories=provided(found, recipe, paths),
        python=python,
        source_sha256=sha256,
        folder=paths.work / plan.key[:16],
        paths=paths,
    )
    here = dataclasses.replace(plan, full_recipe=site.recipe)
    render.write(render.render(here, paths.templates), site.folder)
    _configure(site)
    return site


def provided(found: Bazel, recipe: FullRecipe, paths: Paths) -> Mapping[str, Path]:
    """Where the repositories lie that Debian's Bazel must be given; they are written here."""
    if not found.debian:
        return {}
    folder = paths.tools / "rules_cc"
    render.write(render.render_rules_cc(paths.templates), folder)
    mended = {"bazel_tools": bazel.prepare_patched_tools(paths)} if recipe.training else {}
    return {"rules_cc": folder} | mended


def _recipe(plan: Plan) -> FullRecipe:
    assert plan.full_recipe is not None  # noqa: S101  (a full plan has one)
    return plan.full_recipe


def tree_of(plan: Plan, given: Path | None, paths: Paths) -> tuple[Path, str]:
    """The release's tree, which all plans for it share, and with it what Bazel has fetched."""
    archive = source.fetch_source(plan.sources, paths, given)
    sha256 = hash_file(archive)
    with console.report_step(f"TensorFlow {plan.release} sources"):
        return source.unpack(archive, sha256, paths), sha256


def _tell(found: tuple[TreeDifference, ...]) -> None:
    for each in found:
        console.print_note(
            f"{each.what}: the table says {each.table}, the tree {each.tree}. {each.advice}"
        )
    fatal = [each for each in found if each.weight is Weight.FATAL]
    if fatal:
        raise TreeError(
            f"this tree cannot be built: {fatal[0].what} is {fatal[0].tree}",
            hint=fatal[0].advice,
        )


def _configure(site: Site) -> None:
    """Run configure.py with every answer given. A question that is left ends it: its input is
    empty. Raises TreeError."""
    answers = dict(
        releases.fill_placeholders(
            site.recipe.configure_env,
            python_bin=str(site.python),
            clang=str(site.compiler.driver),
        )
    )
    log = site.folder / "configure.log"
    words: list[str | Path] = [site.python, "configure.py"]
    env = _env(site, answers)
    try:
        run(words, cwd=site.tree.folder, env=env, log=log, timeout_s=_CONFIGURE_S)
    except CommandError as error:
        raise TreeError(
            f"configure.py of this tree failed: {error.last_line} (whole output: {log})",
            hint="If it asks for something new, set that variable and run this again",
        ) from error


def _env(site: Site, answers: Mapping[str, str]) -> dict[str, str]:
    """configure.py looks for `bazel` on PATH: there it finds the one that builds."""
    tools = site.folder / "bin"
    tools.mkdir(parents=True, exist_ok=True)
    link = tools / "bazel"
    link.unlink(missing_ok=True)
    link.symlink_to(site.bazel.bazelisk)
    env = bazel.build_environment(site.bazel.use) | dict(answers)
    return env | {"PATH": f"{tools}:{os.environ.get('PATH', os.defpath)}"}
