"""A plan as files: the Bazel workspace of a kernels build, or the configuration of a full one.

Rendering is pure: the same plan gives the same text, without a date, a path or a host in it.
"""

from __future__ import annotations

import difflib
import functools
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import jinja2

from tfbuild.cpus.flags import LEARNED, list_profile_hashes
from tfbuild.errors import DriftError
from tfbuild.measured.kernels import TypedOp
from tfbuild.planning import dispatcher
from tfbuild.planning.defaults import guards_low_precision
from tfbuild.planning.dispatcher import DispatchTarget
from tfbuild.planning.plan import (
    KERNEL_LIBRARY,
    FullRecipe,
    KernelRecipe,
    Plan,
    Scope,
    native_files,
)
from tfbuild.records import format_json, write_atomic
from tfbuild.upstream.kernels import FOLDER, OWN, KernelUnit, format_label
from tfbuild.upstream.releases import fill_placeholders
from tfbuild.upstream.source import TREE

_ADMITTED = "admitted.bzl"
_SELECTED = "tensorwright/selected.inc"
_COMPILED = "tensorwright/compiled.inc"
_DISPATCHED = f"tensorwright/{dispatcher.HEADER}"
CHOSEN = (_ADMITTED, _SELECTED, _DISPATCHED)
"""The files of a kernels build that admission, and the other plans of its fleet, decide."""
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
    """Relative path → text of everything that the plan renders to."""
    names = _CONFIGURATION if plan.scope is Scope.FULL else _WORKSPACE
    given = contexts(plan)
    files = {path: rendered(templates, name, given[name]) for path, name in names.items()}
    files["plan.json"] = format_json(plan)
    if plan.scope is Scope.FULL:
        return files
    return files | dispatch_table([plan], templates) | _compiled(plan, templates) | _native()


def contexts(plan: Plan) -> dict[str, dict[str, object]]:
    """What each template of the plan's scope is given."""
    return _kernels(plan) if plan.full_recipe is None else _full(plan, plan.full_recipe)


def _kernels(plan: Plan) -> dict[str, dict[str, object]]:
    recipe = plan.kernel_recipe
    assert recipe is not None  # noqa: S101  (a kernels plan has one)
    return {
        "kernels/WORKSPACE.j2": {"plan": plan},
        "kernels/BUILD.bazel.j2": {
            "plan": plan,
            "recipe": recipe,
            "sources": tuple(_source(plan, recipe, each) for each in plan.sources_compiled),
            "profiles": {name: profile_path(name) for name in profiles(plan)},
            "library": KERNEL_LIBRARY,
            "dispatcher": dispatcher.LIBRARY,
            "low_precision": guards_low_precision(plan.defaults, plan.release),
        },
        "kernels/admitted.bzl.j2": {"admitted": plan.kernels},
        "kernels/selected.inc.j2": _rows("kSelected", plan.selection or ()),
        "kernels/bazelrc.j2": {"plan": plan, "recipe": recipe},
        "kernels/tf_source.BUILD.j2": {"kernel_folder": FOLDER, "tree": TREE},
        "kernels/tf_wheel.BUILD.j2": {"recipe": recipe},
        "kernels/rules_cc.defs.bzl.j2": {},
    }


def _source(plan: Plan, recipe: KernelRecipe, path: str) -> dict[str, object]:
    """A kernel source, and what it is compiled with beside what all are."""
    header = recipe.improved.get(path, "")
    before = ("-include", f"tensorwright/improved/{header}") if header else ()
    own = plan.source_flags.get(path, ())
    ours = path.startswith(f"{OWN}/")
    return {
        "label": format_label(path),
        "file": path if ours else f"@tf_source//:{TREE}/{path}",
        "fused": ours,
        "improved": bool(header),
        "profiles": list_profile_hashes(own),
        "flags": (*before, *map(_with_path, own)),
    }


def _with_path(word: str) -> str:
    """A flag as the compiler gets it: a profile's name is the plan's, the path the workspace's."""
    names = list_profile_hashes((word,))
    return f"{LEARNED}{profile_path(names[0])}" if names else word


def profiles(plan: Plan) -> tuple[str, ...]:
    """The hashes of the profiles that sources of the plan are compiled with."""
    return list_profile_hashes(word for words in plan.source_flags.values() for word in words)


def profile_path(name: str) -> str:
    """Where a profile lies in the workspace."""
    return f"tensorwright/profiles/{name}.profdata"


def _full(plan: Plan, recipe: FullRecipe) -> dict[str, dict[str, object]]:
    # The machine's own paths are the shell's to know.
    answers = fill_placeholders(recipe.configure_env, python_bin="$PYTHON_BIN", clang="$CLANG")
    return {
        "full/tensorwright.bazelrc.j2": {"plan": plan, "recipe": recipe},
        "full/configure.env.j2": {"plan": plan, "answers": answers},
    }


def admitted(units: tuple[KernelUnit, ...], templates: Path) -> dict[str, str]:
    """admitted.bzl once admission has spoken, as a file."""
    return {_ADMITTED: rendered(templates, "kernels/admitted.bzl.j2", {"admitted": units})}


def selected(registrations: Iterable[TypedOp], templates: Path) -> dict[str, str]:
    """The table of the kernels that a library registers, as a file."""
    rows = _rows("kSelected", sorted(registrations))
    return {_SELECTED: rendered(templates, "kernels/selected.inc.j2", rows)}


def _compiled(plan: Plan, templates: Path) -> dict[str, str]:
    """The table of the kernels that are compiled, as a file, where those are not all of the
    sources'."""
    if not plan.only_selected:
        return {}
    rows = _rows("kCompiled", sorted(plan.selection or ()))
    return {_COMPILED: rendered(templates, "kernels/selected.inc.j2", rows)}


def _rows(table: str, registrations: Iterable[TypedOp]) -> dict[str, object]:
    return {"table": table, "registrations": tuple(registrations)}


def repositories(plan: Plan, templates: Path) -> dict[str, dict[str, str]]:
    """BUILD files of the repositories beside the workspace: repository → path → text."""
    given = contexts(plan)

    def text(name: str) -> str:
        return rendered(templates, name, given[name])

    return {
        "tf_source": _repository(text("kernels/tf_source.BUILD.j2")),
        "tf_wheel": _repository(text("kernels/tf_wheel.BUILD.j2")),
        "rules_cc": rules_cc(templates),
    }


def rules_cc(templates: Path) -> dict[str, str]:
    """The repository that stands in for rules_cc under Debian's Bazel 4, which has no own."""
    text = rendered(templates, "kernels/rules_cc.defs.bzl.j2", {})
    return _repository("") | {"cc/BUILD.bazel": "", "cc/defs.bzl": text}


def _repository(build: str) -> dict[str, str]:
    return {"WORKSPACE": "", "BUILD.bazel": build}


def dispatch_table(plans: Sequence[Plan], templates: Path) -> dict[str, str]:
    """The dispatcher's table of these plans' libraries, the preferred first, as a file."""
    rows = [dispatch_target(plan) for plan in plans]
    return {_DISPATCHED: dispatcher.render_header(rows, templates)}


def dispatch_target(plan: Plan) -> DispatchTarget:
    """The dispatcher's row of a plan's library."""
    target = plan.target
    return dispatcher.target_of(target.local, plan.library, plan.required, target.family)


def _native() -> dict[str, str]:
    """Our own sources, as they are."""
    return {f"tensorwright/{name}": content.decode() for name, content in native_files().items()}


def rendered(templates: Path, name: str, context: Mapping[str, object]) -> str:
    return _environment(templates).get_template(name).render(context)


@functools.cache
def _environment(templates: Path) -> jinja2.Environment:
    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(templates),
        undefined=jinja2.StrictUndefined,
        autoescape=False,  # noqa: S701  (build files, not HTML)
        keep_trailing_newline=True,
    )


def write(files: Mapping[str, str], folder: Path) -> tuple[str, ...]:
    """Names of the files that were written: those that differ, so that Bazel sees the others as
    unchanged."""
    changed = []
    for name, text in files.items():
        path = folder / name
        if not path.is_file() or path.read_bytes() != text.encode():
            write_atomic(path, text)
            changed.append(name)
    return tuple(changed)


def check(files: Mapping[str, str], folder: Path) -> None:
    """Raises DriftError with a diff of the first file that is not as the plan says."""
    for name, text in files.items():
        path = folder / name
        if not path.is_file():
            raise DriftError(f"{path} is missing", hint="Run the same command without --check")
        there = path.read_bytes().decode(errors="replace")
        if there != text:
            lines = difflib.unified_diff(
                there.split("\n"), text.split("\n"), str(path), "rendered", lineterm="", n=1
            )
            raise DriftError(
                f"{path} is not what the plan renders:\n" + "\n".join(lines) + "\n",
                hint="Run the same command without --check to write it anew",
            )
