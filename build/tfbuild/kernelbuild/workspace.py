"""The Bazel workspace of a kernels build: compiles the kernel groups and links the library."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from packaging.version import Version

from tfbuild.kernelbuild.build_setup import BuildInputs
from tfbuild.planning import dispatcher, render
from tfbuild.planning.jobs import Jobs
from tfbuild.planning.plan import KERNEL_LIBRARY, KernelsPlan
from tfbuild.tools import bazel
from tfbuild.tools.bazel import Bazel
from tfbuild.upstream.kernels import KernelUnit, format_label
from tfbuild.upstream.source import TREE
from tfcore import console
from tfcore.comparisons.kernels import TypedOp
from tfcore.cpus.compilers import Compiler, link_driver
from tfcore.errors import CommandError, KernelError
from tfcore.settings import Paths

_FAILED = re.compile(r"^ERROR: .*?(?:Compiling|Linking) (\S+) failed", re.MULTILINE)
_COMPLAINT = re.compile(r"error: |Killed|undefined reference")
_SHOWN_LINES = 5
_OUT = "bazel-bin"
_LINK_LOG = "link.log"
_HIT = "cache hit"
_NOT_RUN = (_HIT, "internal")
"""Endings of Bazel's counts that are not programs it ran. Bazel 4 calls the disk cache remote."""
_STRUCTURES = "structures.so"
_PROCESSES = re.compile(r"^INFO: \d+ process(?:es)?: (.+)\.$", re.MULTILINE)
_MODULES_SINCE = Version("7")
"""From this Bazel version on, a workspace uses modules unless an option turns them off."""
_ACTIONS_PER_SOURCE = 4
"""Expected actions per source. Bazel finds actions while it runs, so its own total is too small at
first. The links of the kernel groups included, there were 129 for the 30 sources of `hot`."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Workspace:
    """The arguments of a call of Bazel. Logs lie beside `folder`, results below `out`.

    `linked` are the targets that an earlier build linked in it: they are built beside the
    kernel groups, since the same choice is likely again, and one call of Bazel takes seconds.
    If it `stays`, Bazel waits for the next call until `stop_bazel`.
    """

    plan: KernelsPlan
    bazel: Bazel
    folder: Path
    options: tuple[str, ...]
    paths: Paths
    linked: tuple[str, ...] = ()
    stays: bool = False

    @property
    def out(self) -> Path:
        """Return the link that Bazel makes to its last build's outputs."""
        return self.folder / _OUT


@dataclass(frozen=True, kw_only=True, slots=True)
class CompiledUnits:
    """The libraries of kernel groups for conformance tests, and why other groups have none.

    `complete` is whether all requested targets are there, including those that were linked
    before.
    """

    libraries: Mapping[str, Path]
    failed: Mapping[str, str]
    complete: bool


def prepare_workspace(
    plan: KernelsPlan, compiler: Compiler, jobs: Jobs, inputs: BuildInputs, paths: Paths
) -> Workspace:
    """Render the workspace and the BUILD files beside it and the inputs; choose Bazel's options.

    The cache must have the profiles of the plan's sources. Raises ToolError without Bazel.
    """
    bazel_found = bazel.find_bazel(paths, plan.bazel)
    folder = paths.work / plan.key[:16] / "workspace"
    linked = tuple(
        name
        for name in (KERNEL_LIBRARY, dispatcher.LIBRARY)
        if (folder / _OUT / KERNEL_LIBRARY).is_file() and (folder / _OUT / name).is_file()
    )
    files = render.render(plan, paths.templates)
    unchanged = {name for name in render.CHOSEN if linked and (folder / name).is_file()}
    render.write({name: files[name] for name in files if name not in unchanged}, folder)
    texts = render.render_repositories(plan, paths.templates)
    folders = {
        "tf_source": inputs.staged.parent,
        "tf_wheel": inputs.headers,
        "rules_cc": paths.tools / "rules_cc",
    }
    for name, location in folders.items():
        render.write(texts[name], location)
    options = (
        *bazel.build_repository_options(bazel_found, folders),
        *(("--noenable_bzlmod",) if Version(bazel_found.version) >= _MODULES_SINCE else ()),
        f"--disk_cache={paths.cache / 'bazel-disk-cache'}",
        f"--repo_env=CC={link_driver(compiler, paths.tools / 'cross')}",
        f"--jobs={jobs.count}",
    )
    return Workspace(
        plan=plan, bazel=bazel_found, folder=folder, options=options, paths=paths, linked=linked
    )


def compile_units(
    workspace: Workspace, units: Sequence[KernelUnit], *, keep_going: bool
) -> CompiledUnits:
    """Compile the libraries of these kernel groups and of the structures, for the tests.

    Returns the libraries, and the reason for each group that did not compile. Raises KernelError
    for the first such group, unless `keep_going`, and CommandError for the structures.
    """
    targets = {unit.name: _name_library(unit) for unit in units}
    log = workspace.folder.parent / "compile.log"
    expected = _ACTIONS_PER_SOURCE * len({s for unit in units for s in unit.sources})
    with console.track_progress("actions", expected) as count:

        def on_progress(done: int, total: int, detail: str) -> None:
            count.advance(done, max(total, expected), detail)

        done = bazel.build(
            workspace.bazel,
            tuple(f"//:{name}" for name in (_STRUCTURES, *targets.values(), *workspace.linked)),
            workspace=workspace.folder,
            options=workspace.options,
            paths=workspace.paths,
            log=log,
            on_progress=on_progress,
            keep_going=keep_going,
            stays=workspace.stays,
        )
    failed = parse_failures(units, done.output) if done.returncode else {}
    if done.returncode and not failed:
        raise CommandError(f"Bazel failed (whole output: {log}):\n{_take_tail(done.output)}")
    for unit, reason in failed.items():
        if not keep_going:
            raise KernelError(
                f"kernel group {unit} does not compile (whole output: {log}):\n{reason}\n",
                hint=f"Exclude it with --without {unit}, or build the others with --keep-going",
            )
        console.warn(f"kernel group {unit} does not compile:\n{reason}")
    if not locate_structures(workspace).is_file():
        raise CommandError(f"Bazel did not build {_STRUCTURES} (whole output: {log})")
    libraries = {unit: workspace.out / name for unit, name in targets.items() if unit not in failed}
    return CompiledUnits(libraries=libraries, failed=failed, complete=not done.returncode)


def _name_library(unit: KernelUnit) -> str:
    return f"admission/{unit.label}.so"


def locate_object(workspace: Workspace, source: str) -> Path:
    """Return the path of the object that Bazel makes of a source (tensorflow/core/kernels/…)."""
    return workspace.out / "_objs" / f"source_{format_label(source)}" / f"{Path(source).stem}.pic.o"


def link_library(
    workspace: Workspace,
    units: tuple[KernelUnit, ...],
    registrations: Sequence[TypedOp],
    dispatched: Sequence[KernelsPlan],
    *,
    compiled: CompiledUnits,
) -> Path:
    """Link the library of the kernel groups that passed, which registers these kernels of them.

    Link the dispatcher too if there are `dispatched` plans. Raises CommandError.

    If both were `compiled` beside the groups and did not change, nothing is left to do.

    A fleet's dispatcher is built in one of its workspaces: none of its options depends on a
    target. It comes with a library because a call of Bazel takes seconds before it does
    anything.
    """
    templates = workspace.paths.templates
    files = render.render_admitted(units, templates) | render.render_selected(
        registrations, templates
    )
    if dispatched:
        files |= render.render_dispatch_table(dispatched, templates)
    targets = (KERNEL_LIBRARY, *((dispatcher.LIBRARY,) if dispatched else ()))
    changed = render.write(files, workspace.folder)
    if compiled.complete and not changed and {*targets} <= {*workspace.linked}:
        return workspace.out / KERNEL_LIBRARY
    log = workspace.folder.parent / _LINK_LOG
    completed = bazel.build(
        workspace.bazel,
        tuple(f"//:{name}" for name in targets),
        workspace=workspace.folder,
        options=workspace.options,
        paths=workspace.paths,
        log=log,
        stays=workspace.stays,
    )
    if completed.returncode:
        excerpt = _take_tail(completed.output)
        raise CommandError(f"linking failed (whole output: {log}):\n{excerpt}")
    return workspace.out / KERNEL_LIBRARY


def stop_bazel(workspace: Workspace) -> None:
    """Stop the Bazel server that stays in the workspace."""
    bazel.stop_server(workspace.bazel, workspace=workspace.folder, paths=workspace.paths)


def read_link_steps(workspace: Workspace) -> tuple[int, int]:
    """Return the counts of `parse_steps` for the last link."""
    log = workspace.folder.parent / _LINK_LOG
    return parse_steps(log.read_text(encoding="utf-8", errors="replace"))


def parse_steps(output: str) -> tuple[int, int]:
    """Count the compiles and links that Bazel ran, and the results it took from the disk cache.

    Steps that neither counts were there from an earlier run in the same folder.
    """
    match = _PROCESSES.search(output)
    kinds = [part.partition(" ") for part in match[1].split(", ")] if match else []
    ran = sum(int(number) for number, _, kind in kinds if not kind.endswith(_NOT_RUN))
    return ran, sum(int(number) for number, _, kind in kinds if kind.endswith(_HIT))


def locate_structures(workspace: Workspace) -> Path:
    """Return the path of the library of native/structures.cc, compiled beside the kernel groups."""
    return workspace.out / _STRUCTURES


def locate_dispatcher(workspace: Workspace) -> Path:
    """Return the path of the dispatcher that was linked in the workspace."""
    return workspace.out / dispatcher.LIBRARY


def parse_failures(units: Sequence[KernelUnit], output: str) -> dict[str, str]:
    """Return the kernel groups that failed, each with the first errors of compiler or linker.

    Bazel names a failed group by a source or by its library.
    """
    owners: dict[str, list[str]] = {_name_library(unit): [unit.name] for unit in units}
    for unit in units:
        for source in unit.sources:
            owners.setdefault(source, []).append(unit.name)
    reasons: dict[str, str] = {}
    for match in _FAILED.finditer(output):
        following = output[match.end() :].splitlines()
        lines = following[: _find_next_error(following)]
        complaints = [line for line in lines if _COMPLAINT.search(line)]
        reason = "\n".join(complaints[:_SHOWN_LINES]) or _take_tail("\n".join(lines))
        for name in owners.get(
            match[1].removeprefix("external/tf_source/").removeprefix(f"{TREE}/"), ()
        ):
            reasons.setdefault(name, reason)
    return reasons


def _find_next_error(lines: list[str]) -> int:
    return next((i for i, line in enumerate(lines) if line.startswith("ERROR: ")), len(lines))


def _take_tail(output: str) -> str:
    return "\n".join(output.splitlines()[-20:])
