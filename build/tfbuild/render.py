"""A plan as files: the Bazel workspace of a kernels build, or the configuration of a full one.

Rendering is pure: the same plan gives the same text, without a date, a path or a host in it.
"""

from __future__ import annotations

import difflib
import functools
import shlex
from collections.abc import Mapping
from pathlib import Path

import jinja2

from tfbuild import dispatcher, features
from tfbuild.dispatcher import DispatchFeature, DispatchTarget
from tfbuild.errors import DriftError
from tfbuild.kernels import FOLDER, KernelUnit
from tfbuild.plan import KERNEL_LIBRARY, NATIVE, Plan, Scope
from tfbuild.records import pretty, write_atomic

_KERNEL_FILES = ("WORKSPACE", "BUILD.bazel", "admitted.bzl")
_FULL_FILES = ("tensorwright.bazelrc", "configure.env", "build.sh")


def render(plan: Plan, templates: Path) -> dict[str, str]:
    """Relative path → text of everything that the plan renders to."""
    files = {"plan.json": pretty(plan)}
    if plan.scope is Scope.FULL:
        rendered = {name: _text(templates, f"full/{name}.j2", plan=plan) for name in _FULL_FILES}
        return files | rendered
    context: dict[str, object] = {"plan": plan, "recipe": plan.kernel_recipe, "admitted": plan.kernels}
    context |= {"library": KERNEL_LIBRARY, "dispatcher": dispatcher.LIBRARY}
    files |= {name: _text(templates, f"kernels/{name}.j2", **context) for name in _KERNEL_FILES}
    files[".bazelrc"] = _text(templates, "kernels/bazelrc.j2", **context)
    header = dispatcher.render_header([dispatch_target(plan)], templates)
    files[f"tensorwright/{dispatcher.HEADER}"] = header
    return files | _native()


def admitted(units: tuple[KernelUnit, ...], templates: Path) -> str:
    """The text of admitted.bzl once admission has spoken."""
    return _text(templates, "kernels/admitted.bzl.j2", admitted=units)


def repositories(plan: Plan, templates: Path) -> dict[str, dict[str, str]]:
    """BUILD files of the repositories beside the workspace: repository → path → text."""
    context = {"recipe": plan.kernel_recipe, "kernel_folder": FOLDER}
    return {
        "tf_source": _repository(_text(templates, "kernels/tf_source.BUILD.j2", **context)),
        "tf_wheel": _repository(_text(templates, "kernels/tf_wheel.BUILD.j2", **context)),
        "rules_cc": _repository("")
        | {"cc/BUILD.bazel": "", "cc/defs.bzl": _text(templates, "kernels/rules_cc.defs.bzl.j2")},
    }


def _repository(build: str) -> dict[str, str]:
    return {"WORKSPACE": "", "BUILD.bazel": build}


def dispatch_target(plan: Plan) -> DispatchTarget:
    """The dispatcher's row: every feature that CPUID can show of those that the code may use."""
    rows = features.table(plan.target.family)
    needed = [
        DispatchFeature(
            name=name,
            leaf=row.cpuid.leaf,
            subleaf=row.cpuid.subleaf,
            register=row.cpuid.register,
            bit=row.cpuid.bit,
            xcr0=row.xcr0,
        )
        for name in plan.required
        if (row := rows[name]).cpuid is not None
    ]
    return DispatchTarget(name=plan.target.local, library=KERNEL_LIBRARY, features=tuple(needed))


def _native() -> dict[str, str]:
    """Our own sources, as they are."""
    return {f"tensorwright/{path.name}": path.read_text("utf-8") for path in NATIVE.iterdir()}


def _text(templates: Path, name: str, **context: object) -> str:
    return _environment(templates).get_template(name).render(context)


@functools.cache
def _environment(templates: Path) -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(templates),
        undefined=jinja2.StrictUndefined,
        autoescape=False,  # noqa: S701  (build files, not HTML)
        keep_trailing_newline=True,
    )
    environment.filters["shell"] = shlex.quote
    return environment


def write(files: Mapping[str, str], folder: Path) -> None:
    """Write what differs, so that Bazel sees unchanged files as unchanged."""
    for name, text in files.items():
        path = folder / name
        if not path.is_file() or path.read_text("utf-8") != text:
            write_atomic(path, text)
            if name.endswith(".sh"):
                path.chmod(0o755)


def check(files: Mapping[str, str], folder: Path) -> None:
    """Raises DriftError with a diff of the first file that is not as the plan says."""
    for name, text in files.items():
        path = folder / name
        if not path.is_file():
            raise DriftError(f"{path} is missing", hint="Run the same command without --check")
        there = path.read_text("utf-8")
        if there != text:
            lines = difflib.unified_diff(
                there.splitlines(), text.splitlines(), str(path), "rendered", lineterm="", n=1
            )
            raise DriftError(
                f"{path} is not what the plan renders:\n" + "\n".join(lines) + "\n",
                hint="Run the same command without --check to write it anew",
            )
