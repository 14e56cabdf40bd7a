"""A plan as files: the Bazel workspace of a kernels build, or the configuration of a full one.

Rendering is pure: the same plan gives the same text, without dates, absolute paths or host names.
"""

from __future__ import annotations

import difflib
import functools
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import jinja2

from tfbuild.planning import dispatcher
from tfbuild.planning.defaults import needs_low_precision_guard
from tfbuild.planning.dispatcher import DispatchTarget
from tfbuild.planning.plan import KERNEL_LIBRARY, FullPlan, KernelsPlan, Plan, read_native_files
from tfbuild.upstream.fused_ops import WORKSPACE_FOLDER
from tfbuild.upstream.kernels import FOLDER, KernelUnit, format_label
from tfbuild.upstream.releases import fill_placeholders
from tfbuild.upstream.source import TREE
from tfcore.comparisons.kernels import TypedOp
from tfcore.errors import DriftError
from tfcore.records import format_json, write_atomic

_ADMITTED = "admitted.bzl"
_SELECTED = "tensorwright/selected.inc"
_COMPILED = "tensorwright/compiled.inc"
_DISPATCHED = f"tensorwright/{dispatcher.HEADER}"
CHOSEN = (_ADMITTED, _SELECTED, _DISPATCHED)
"""The files of a kernels build that depend on the conformance test or the fleet's other plans."""
_WORKSPACE = {
    "WORKSPACE": "kernels/WORKSPACE.j2",
    "BUILD.bazel": "kernels/BUILD.bazel.j2",
    _ADMITTED: "kernels/admitted.bzl.j2",
    ".bazelrc": "kernels/bazelrc.j2",
}
_CONFIGURATION = {
    "tensorwright.bazelrc": "full/tensorwright.bazelrc.j2",
    "configure.env": "full/configure.env.j2",
}


def render(plan: Plan, templates: Path) -> dict[str, str]:
    """Render all files of the plan: relative path → text."""
    names = _CONFIGURATION if isinstance(plan, FullPlan) else _WORKSPACE
    variables = build_contexts(plan)
    files = {
        path: render_template(templates, name, variables[name]) for path, name in names.items()
    }
    files["plan.json"] = format_json(plan)
    if isinstance(plan, FullPlan):
        return files
    return (
        files
        | render_dispatch_table([plan], templates)
        | _render_compiled(plan, templates)
        | _read_native_sources()
    )


def build_contexts(plan: Plan) -> dict[str, dict[str, object]]:
    """Return the variables of each template of the plan's scope."""
    if isinstance(plan, FullPlan):
        return _build_full_contexts(plan)
    return _build_kernel_contexts(plan)


def _build_kernel_contexts(plan: KernelsPlan) -> dict[str, dict[str, object]]:
    recipe = plan.kernel_recipe
    return {
        "kernels/WORKSPACE.j2": {"plan": plan},
        "kernels/BUILD.bazel.j2": {
            "plan": plan,
            "recipe": recipe,
            "sources": tuple(_describe_source(plan, path) for path in plan.sources_compiled),
            "library": KERNEL_LIBRARY,
            "dispatcher": dispatcher.LIBRARY,
            "low_precision": needs_low_precision_guard(plan.defaults),
        },
        "kernels/admitted.bzl.j2": {"admitted": plan.kernels},
        "kernels/selected.inc.j2": _build_table_context("kSelected", plan.selection or ()),
        "kernels/bazelrc.j2": {"plan": plan, "recipe": recipe},
        "kernels/tf_source.BUILD.j2": {"kernel_folder": FOLDER, "tree": TREE},
        "kernels/tf_wheel.BUILD.j2": {"recipe": recipe},
        "kernels/rules_cc.defs.bzl.j2": {},
    }


def _describe_source(plan: KernelsPlan, path: str) -> dict[str, object]:
    """Return a kernel source with the options that it is compiled with beyond the common ones."""
    header = plan.kernel_recipe.improved.get(path, "")
    include = ("-include", f"tensorwright/replacements/{header}") if header else ()
    fused = path.startswith(f"{WORKSPACE_FOLDER}/")
    return {
        "label": format_label(path),
        "file": path if fused else f"@tf_source//:{TREE}/{path}",
        "fused": fused,
        "improved": bool(header),
        "flags": (*include, *plan.source_flags.get(path, ())),
    }


def _build_full_contexts(plan: FullPlan) -> dict[str, dict[str, object]]:
    recipe = plan.full_recipe
    # The shell fills in the paths of the build machine.
    answers = fill_placeholders(recipe.configure_env, python_bin="$PYTHON_BIN", clang="$CLANG")
    return {
        "full/tensorwright.bazelrc.j2": {"plan": plan, "recipe": recipe},
        "full/configure.env.j2": {"plan": plan, "answers": answers},
    }


def render_admitted(units: tuple[KernelUnit, ...], templates: Path) -> dict[str, str]:
    """Render admitted.bzl with the kernel groups that passed the conformance test: path → text."""
    return {_ADMITTED: render_template(templates, "kernels/admitted.bzl.j2", {"admitted": units})}


def render_selected(registrations: Iterable[TypedOp], templates: Path) -> dict[str, str]:
    """Render the table of the kernels that a library registers: path → text."""
    rows = _build_table_context("kSelected", sorted(registrations))
    return {_SELECTED: render_template(templates, "kernels/selected.inc.j2", rows)}


def _render_compiled(plan: KernelsPlan, templates: Path) -> dict[str, str]:
    """Render the table of the compiled kernels, if not all are compiled: path → text."""
    if not plan.only_selected:
        return {}
    rows = _build_table_context("kCompiled", sorted(plan.selection or ()))
    return {_COMPILED: render_template(templates, "kernels/selected.inc.j2", rows)}


def _build_table_context(table: str, registrations: Iterable[TypedOp]) -> dict[str, object]:
    return {"table": table, "registrations": tuple(registrations)}


def render_repositories(plan: KernelsPlan, templates: Path) -> dict[str, dict[str, str]]:
    """Render the BUILD files of the repositories beside the workspace: repository → path → text."""
    variables = _build_kernel_contexts(plan)

    def render_build(name: str) -> str:
        return render_template(templates, name, variables[name])

    return {
        "tf_source": _build_repository(render_build("kernels/tf_source.BUILD.j2")),
        "tf_wheel": _build_repository(render_build("kernels/tf_wheel.BUILD.j2")),
        "rules_cc": render_rules_cc(templates),
    }


def render_rules_cc(templates: Path) -> dict[str, str]:
    """Render the repository that replaces rules_cc for Debian's Bazel 4, which has none."""
    text = render_template(templates, "kernels/rules_cc.defs.bzl.j2", {})
    return _build_repository("") | {"cc/BUILD.bazel": "", "cc/defs.bzl": text}


def _build_repository(build: str) -> dict[str, str]:
    return {"WORKSPACE": "", "BUILD.bazel": build}


def render_dispatch_table(plans: Sequence[KernelsPlan], templates: Path) -> dict[str, str]:
    """Render the dispatcher's table of these plans' libraries, the preferred first: path → text."""
    rows = [build_dispatch_target(plan) for plan in plans]
    return {_DISPATCHED: dispatcher.render_header(rows, templates)}


def build_dispatch_target(plan: KernelsPlan) -> DispatchTarget:
    """Return the dispatcher's table row of a plan's library."""
    target = plan.target
    return dispatcher.build_target(target.local, plan.library, plan.required, target.family)


def _read_native_sources() -> dict[str, str]:
    """Return our own sources unchanged: path → text."""
    return {
        f"tensorwright/{name}": content.decode() for name, content in read_native_files().items()
    }


def render_template(templates: Path, name: str, context: Mapping[str, object]) -> str:
    return _create_environment(templates).get_template(name).render(context)


@functools.cache
def _create_environment(templates: Path) -> jinja2.Environment:
    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(templates),
        undefined=jinja2.StrictUndefined,
        autoescape=False,  # noqa: S701  (build files, not HTML)
        keep_trailing_newline=True,
    )


def write(files: Mapping[str, str], folder: Path) -> tuple[str, ...]:
    """Write the files that differ and return their names, so that Bazel sees the others as
    unchanged.
    """
    changed = []
    for name, text in files.items():
        path = folder / name
        if not path.is_file() or path.read_bytes() != text.encode():
            write_atomic(path, text)
            changed.append(name)
    return tuple(changed)


def check(files: Mapping[str, str], folder: Path) -> None:
    """Raise DriftError with a diff of the first file that differs from what the plan renders."""
    for name, text in files.items():
        path = folder / name
        if not path.is_file():
            raise DriftError(
                f"{path} is missing", hint="To write all files, run the command without --verify"
            )
        actual = path.read_bytes().decode(errors="replace")
        if actual != text:
            lines = difflib.unified_diff(
                actual.split("\n"), text.split("\n"), str(path), "rendered", lineterm="", n=1
            )
            raise DriftError(
                f"{path} differs from the plan:\n" + "\n".join(lines) + "\n",
                hint="To write all files again, run the command without --verify",
            )
