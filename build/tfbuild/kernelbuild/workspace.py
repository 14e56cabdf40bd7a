"""The rendered Bazel workspace of a kernels build: compiling the units, linking the library."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from packaging.version import Version

from tfbuild import console
from tfbuild.cpus.compilers import Compiler, link_driver
from tfbuild.errors import CommandError, KernelError
from tfbuild.kernelbuild.ground import Inputs
from tfbuild.measured.kernels import TypedOp
from tfbuild.planning import dispatcher, render
from tfbuild.planning.jobs import Jobs
from tfbuild.planning.plan import KERNEL_LIBRARY, Plan
from tfbuild.records import write_atomic
from tfbuild.settings import Paths
from tfbuild.tools import bazel, pgo
from tfbuild.tools.bazel import Bazel
from tfbuild.upstream.kernels import KernelUnit, format_label
from tfbuild.upstream.source import TREE

_FAILED = re.compile(r"^ERROR: .*?(?:Compiling|Linking) (\S+) failed", re.MULTILINE)
_COMPLAINT = re.compile(r"error: |Killed|undefined reference")
_SHOWN_LINES = 5
_OUT = "bazel-bin"
_LINK_LOG = "link.log"
_HIT = "cache hit"
_NOT_RUN = (_HIT, "internal")
"""What Bazel counts beside the programs that it starts; Bazel 4 calls the disk cache remote."""
_STRUCTURES = "structures.so"
_PROCESSES = re.compile(r"^INFO: \d+ process(?:es)?: (.+)\.$", re.MULTILINE)
_MODULES_SINCE = Version("7")
"""From this Bazel on a workspace is a module of a registry, unless it is told otherwise."""
_ACTIONS_PER_SOURCE = 4
"""Bazel finds actions while it works, so that its own total is never far from what is done: so many
come in the end with the units' links, 129 for the 30 sources of the hot kernels."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Workspace:
    """Everything that Bazel is called with. Logs lie beside `folder`, results below `out`.

    `linked` are the targets that were linked in it by an earlier build: they are built beside the
    units, as what was chosen then will be chosen again, and one call of Bazel takes seconds. In one
    that `stays` Bazel waits for the next call, until `close`.
    """

    plan: Plan
    bazel: Bazel
    folder: Path
    options: tuple[str, ...]
    paths: Paths
    linked: tuple[str, ...] = ()
    stays: bool = False

    @property
    def out(self) -> Path:
        """The link that Bazel makes to what it has built last."""
        return self.folder / _OUT


@dataclass(frozen=True, kw_only=True, slots=True)
class CompiledUnits:
    """Units' libraries for admission, why others have none, and whether all that was asked for
    is there, what was linked before included."""

    libraries: Mapping[str, Path]
    failed: Mapping[str, str]
    complete: bool


def prepare(plan: Plan, compiler: Compiler, jobs: Jobs, inputs: Inputs, paths: Paths) -> Workspace:
    """Render the workspace, and the BUILD files beside it and the inputs; settle Bazel's options.

    The cache has the profiles of the plan's sources. Raises ToolError without Bazel.
    """
    found = bazel.find_bazel(paths, plan.bazel)
    folder = paths.work / plan.key[:16] / "workspace"
    linked = tuple(
        name
        for name in (KERNEL_LIBRARY, dispatcher.LIBRARY)
        if (folder / _OUT / KERNEL_LIBRARY).is_file() and (folder / _OUT / name).is_file()
    )
    files = render.render(plan, paths.templates)
    chosen = {name for name in render.CHOSEN if linked and (folder / name).is_file()}
    render.write({name: files[name] for name in files if name not in chosen}, folder)
    for name in render.list_profiles(plan):
        write_atomic(folder / render.format_profile_path(name), pgo.kept(name, paths).read_bytes())
    texts = render.render_repositories(plan, paths.templates)
    folders = {
        "tf_source": inputs.staged.parent,
        "tf_wheel": inputs.headers,
        "rules_cc": paths.tools / "rules_cc",
    }
    for name, at in folders.items():
        render.write(texts[name], at)
    options = (
        *bazel.repository_options(found, folders),
        *(("--noenable_bzlmod",) if Version(found.version) >= _MODULES_SINCE else ()),
        f"--disk_cache={paths.cache / 'bazel-disk-cache'}",
        f"--repo_env=CC={link_driver(compiler, paths.tools / 'cross')}",
        f"--jobs={jobs.count}",
    )
    return Workspace(
        plan=plan, bazel=found, folder=folder, options=options, paths=paths, linked=linked
    )


def compile_units(
    workspace: Workspace, units: Sequence[KernelUnit], *, keep_going: bool
) -> CompiledUnits:
    """The library for admission of each of these units of the plan, and the reason of each that
    did not compile; beside them that of the structures.

    Raises KernelError for the first unit that does not compile, unless `keep_going`, and
    CommandError for the structures.
    """
    targets = {unit.name: _library(unit) for unit in units}
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
    failed = failures(units, done.output) if done.returncode else {}
    if done.returncode and not failed:
        raise CommandError(f"Bazel failed (whole output: {log}):\n{_tail(done.output)}")
    for unit, reason in failed.items():
        if not keep_going:
            raise KernelError(
                f"kernel {unit} does not compile (whole output: {log}):\n{reason}\n",
                hint="Leave it out with --kernels, or build the others with --keep-going",
            )
        console.warn(f"kernel {unit} does not compile:\n{reason}")
    if not structures_of(workspace).is_file():
        raise CommandError(f"Bazel made no {_STRUCTURES} (whole output: {log})")
    made = {unit: workspace.out / name for unit, name in targets.items() if unit not in failed}
    return CompiledUnits(libraries=made, failed=failed, complete=not done.returncode)


def _library(unit: KernelUnit) -> str:
    return f"admission/{unit.label}.so"


def object_of(workspace: Workspace, source: str) -> Path:
    """Where Bazel leaves the object of a source (tensorflow/core/kernels/…)."""
    return workspace.out / "_objs" / f"source_{format_label(source)}" / f"{Path(source).stem}.pic.o"


def link(
    workspace: Workspace,
    units: tuple[KernelUnit, ...],
    registrations: Sequence[TypedOp],
    dispatched: Sequence[Plan],
    *,
    compiled: CompiledUnits,
) -> Path:
    """The library of the admitted units, which registers these kernels of them, and, if there are
    any, the dispatcher of the `dispatched` plans. Raises CommandError.

    Where they were `compiled` beside the units and are what they were, nothing is left to do.

    A fleet's dispatcher is built in one of its workspaces: of its options none is a target's. It
    comes with a library because a call of Bazel takes seconds before it does anything.
    """
    templates = workspace.paths.templates
    files = render.render_admitted(units, templates) | render.render_selected(
        registrations, templates
    )
    if dispatched:
        files |= render.render_dispatch_table(dispatched, templates)
    wanted = (KERNEL_LIBRARY, *((dispatcher.LIBRARY,) if dispatched else ()))
    changed = render.write(files, workspace.folder)
    if compiled.complete and not changed and {*wanted} <= {*workspace.linked}:
        return workspace.out / KERNEL_LIBRARY
    log = workspace.folder.parent / _LINK_LOG
    done = bazel.build(
        workspace.bazel,
        tuple(f"//:{name}" for name in wanted),
        workspace=workspace.folder,
        options=workspace.options,
        paths=workspace.paths,
        log=log,
        stays=workspace.stays,
    )
    if done.returncode:
        said = _tail(done.output)
        raise CommandError(f"linking failed (whole output: {log}):\n{said}")
    return workspace.out / KERNEL_LIBRARY


def close(workspace: Workspace) -> None:
    """End the Bazel that stays in it."""
    bazel.shut_down(workspace.bazel, workspace=workspace.folder, paths=workspace.paths)


def steps_of(workspace: Workspace) -> tuple[int, int]:
    """The `steps` of the last `link`."""
    log = workspace.folder.parent / _LINK_LOG
    return steps(log.read_text(encoding="utf-8", errors="replace"))


def steps(output: str) -> tuple[int, int]:
    """How many compiles and links Bazel says that it has run, and how many results it took from the
    disk cache. What neither counts was there from an earlier run in the same folder."""
    said = _PROCESSES.search(output)
    kinds = [each.partition(" ") for each in said[1].split(", ")] if said else []
    ran = sum(int(number) for number, _, kind in kinds if not kind.endswith(_NOT_RUN))
    return ran, sum(int(number) for number, _, kind in kinds if kind.endswith(_HIT))


def structures_of(workspace: Workspace) -> Path:
    """The library of native/structures.cc, which is compiled beside the units."""
    return workspace.out / _STRUCTURES


def dispatcher_of(workspace: Workspace) -> Path:
    """The dispatcher that was linked in it."""
    return workspace.out / dispatcher.LIBRARY


def failures(units: Sequence[KernelUnit], output: str) -> dict[str, str]:
    """The units that Bazel names as failed, by a source or by their library, each with the first
    complaints of compiler or linker."""
    owners: dict[str, list[str]] = {_library(unit): [unit.name] for unit in units}
    for unit in units:
        for source in unit.sources:
            owners.setdefault(source, []).append(unit.name)
    found: dict[str, str] = {}
    for match in _FAILED.finditer(output):
        rest = output[match.end() :].splitlines()
        own = rest[: _next_error(rest)]
        said = [line for line in own if _COMPLAINT.search(line)]
        reason = "\n".join(said[:_SHOWN_LINES]) or _tail("\n".join(own))
        for name in owners.get(
            match[1].removeprefix("external/tf_source/").removeprefix(f"{TREE}/"), ()
        ):
            found.setdefault(name, reason)
    return found


def _next_error(lines: list[str]) -> int:
    return next((i for i, line in enumerate(lines) if line.startswith("ERROR: ")), len(lines))


def _tail(output: str) -> str:
    return "\n".join(output.splitlines()[-20:])
