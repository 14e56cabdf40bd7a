"""Prepares a source tree for Bazel: fetch, read, compare with the release table, configure."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tfbuild.planning import render
from tfbuild.planning.plan import FullPlan, FullRecipe, Plan
from tfbuild.tools import bazel
from tfbuild.tools.bazel import Bazel
from tfbuild.treebuild.differences import TreeDifference, Weight, adapt_recipe, find_differences
from tfbuild.treebuild.tree import SourceTree, read_tree
from tfbuild.upstream import releases, source
from tfbuild.upstream.download import hash_file
from tfcore import console
from tfcore.cpus.compilers import Compiler
from tfcore.errors import CommandError, TreeError
from tfcore.run import run
from tfcore.settings import Paths

_CONFIGURE_S = 300.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Site:
    """The inputs that stay the same over all calls of Bazel for one plan.

    `recipe` is the plan's recipe, adapted to this tree. `python` is the interpreter that the
    build uses, `repositories` are those that Debian's Bazel lacks. Files and logs are in
    `folder`. `source_sha256` is empty for a tree that the user passed.
    """

    plan: FullPlan
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
        """Return the options for repositories that Bazel lacks, the compiler, and the plan's
        config.
        """
        return (
            *bazel.build_repository_options(self.bazel, self.repositories),
            f"--repo_env=CC={self.compiler.driver}",
            *self.recipe.options,
        )


def prepare_site(
    plan: FullPlan,
    compiler: Compiler,
    *,
    python: Path,
    given_tree: Path | None,
    given_source: Path | None,
    bazel_tool: Bazel | None,
    paths: Paths,
) -> Site:
    """Prepare a tree for Bazel.

    `bazel_tool` is the Bazel to use; None for the one that the tree asks for.

    Raises TreeError for a tree that this plan cannot be built in, and whatever fetching
    raises.
    """
    folder, sha256 = (given_tree, "") if given_tree else fetch_tree(plan, given_source, paths)
    tree = read_tree(folder)
    bazel_tool = bazel_tool or bazel.find_bazel(paths, tree.bazel or plan.bazel)
    recipe = plan.full_recipe
    found_differences = find_differences(
        tree, plan.release_record, recipe, bazel=bazel_tool.version
    )
    _report_differences(found_differences)
    site = Site(
        plan=plan,
        recipe=adapt_recipe(recipe, tree, bazel_tool.version),
        compiler=compiler,
        tree=tree,
        differences=found_differences,
        bazel=bazel_tool,
        repositories=write_repositories(bazel_tool, recipe, paths),
        python=python,
        source_sha256=sha256,
        folder=paths.work / plan.key[:16],
        paths=paths,
    )
    adapted_plan = dataclasses.replace(plan, full_recipe=site.recipe)
    render.write(render.render(adapted_plan, paths.templates), site.folder)
    _run_configure(site)
    return site


def write_repositories(bazel_tool: Bazel, recipe: FullRecipe, paths: Paths) -> Mapping[str, Path]:
    """Write the repositories that Debian's Bazel needs, and return their folders by name."""
    if not bazel_tool.debian:
        return {}
    folder = paths.tools / "rules_cc"
    render.write(render.render_rules_cc(paths.templates), folder)
    patched = {"bazel_tools": bazel.prepare_patched_tools(paths)} if recipe.training else {}
    return {"rules_cc": folder} | patched


def fetch_tree(plan: Plan, local_source: Path | None, paths: Paths) -> tuple[Path, str]:
    """Return the release's unpacked tree and the SHA-256 of its archive. All plans for the
    release share the tree, and what Bazel fetched for it.
    """
    archive = source.fetch_source(plan.sources, paths, local_source)
    sha256 = hash_file(archive)
    with console.report_step(f"TensorFlow {plan.release} sources"):
        return source.unpack(archive, sha256, paths), sha256


def _report_differences(differences: tuple[TreeDifference, ...]) -> None:
    """Print the differences. Raises TreeError if one is fatal."""
    for difference in differences:
        console.print_note(
            f"{difference.what}: {difference.table} in the release table, {difference.tree} in "
            f"the tree. {difference.advice}"
        )
    fatal = [difference for difference in differences if difference.weight is Weight.FATAL]
    if fatal:
        raise TreeError(
            f"this plan cannot build the tree: {fatal[0].what} is {fatal[0].tree}",
            hint=fatal[0].advice,
        )


def _run_configure(site: Site) -> None:
    """Run configure.py with every answer given. An unanswered question ends it, as its input is
    empty. Raises TreeError.
    """
    answers = dict(
        releases.fill_placeholders(
            site.recipe.configure_env,
            python_bin=str(site.python),
            clang=str(site.compiler.driver),
        )
    )
    log = site.folder / "configure.log"
    command: list[str | Path] = [site.python, "configure.py"]
    env = _create_env(site, answers)
    try:
        run(command, cwd=site.tree.folder, env=env, log=log, timeout_s=_CONFIGURE_S)
    except CommandError as error:
        raise TreeError(
            f"configure.py of this tree failed: {error.last_line} (whole output: {log})",
            hint="If it asks a new question, set that variable and run the command again",
        ) from error


def _create_env(site: Site, answers: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of configure.py, whose PATH has the Bazel that will build as
    `bazel`.
    """
    bin_folder = site.folder / "bin"
    bin_folder.mkdir(parents=True, exist_ok=True)
    link = bin_folder / "bazel"
    link.unlink(missing_ok=True)
    link.symlink_to(site.bazel.bazelisk)
    env = bazel.build_environment(site.bazel.use) | dict(answers)
    return env | {"PATH": f"{bin_folder}:{os.environ.get('PATH', os.defpath)}"}
