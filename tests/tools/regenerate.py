"""The golden renders in tests/golden: which there are, and how they are written.

One plan of each scope is a folder of whole files; each other plan is its difference from that one.
Write them anew with `PYTHONPATH=build python -m tests.tools.regenerate`, then read the difference.
"""

from __future__ import annotations

import dataclasses
import difflib
import shutil
from collections.abc import Mapping

from tests.builders import container_files
from tests.builders.plans import planned, planned_full

from tfbuild import full_build
from tfbuild.machine import memory
from tfbuild.plan_text import format_fleet
from tfbuild.planning.fleet import Fleet
from tfbuild.planning.jobs import Jobs
from tfbuild.planning.plan import FullPlan, KernelsPlan, Plan, read_native_files
from tfbuild.planning.render import render, render_repositories, write
from tfbuild.upstream.releases import load_releases
from tfcore.settings import ROOT, TEMPLATES

WHOLE = {"kernels": "kernels-haswell", "full": "full-skylake"}
"""By scope: the plan whose files are stored whole."""
COMMAND = "PYTHONPATH=build python -m tests.tools.regenerate"
GOLDEN = ROOT / "tests" / "golden"
TARGETS = ("skylake", "haswell", "zen3", "sapphirerapids", "neoverse_v1")
# Named, so that another choice of hot kernels changes no file. Two of them share a source.
KERNELS = "cwise_op_greater_equal,cwise_op_mul,cwise_op_tanh"
# What a dry run of a full build counts on.
MACHINE = memory.choose_budget(64_000, 16)


def cases() -> dict[str, Plan]:
    """Folder in tests/golden, or NAME.diff there → plan."""
    plans: dict[str, Plan] = {
        f"{scope}-{arch}": make(arch, kernels=KERNELS)
        for scope, make in (("kernels", planned), ("full", planned_full))
        for arch in TARGETS
    }
    linked = "-O3 -flto=thin"
    plans["kernels-haswell-lto"] = planned("haswell", kernels=KERNELS, flags=linked)
    for release in load_releases():
        # As TensorFlow has tested it: "clang 16.0.0".
        compiler, python = release.compiler.replace(" ", "@"), release.pythons[-1]
        plans[f"full-skylake-{release.version}"] = planned_full(
            release=release.version, compiler=compiler, python=python
        )
    return {name: _without_recipe_hash(plan) for name, plan in plans.items()}


def _without_recipe_hash(plan: Plan) -> Plan:
    """Our own C++ may change, and a template's comment, without changing every golden file."""
    if isinstance(plan, FullPlan):
        full = dataclasses.replace(plan.full_recipe, guard_sha256="0" * 64)
        return dataclasses.replace(plan, full_recipe=full)
    recipe = dataclasses.replace(plan.kernel_recipe, recipe_sha256="0" * 64)
    return dataclasses.replace(plan, kernel_recipe=recipe)


def rendered(plan: Plan) -> dict[str, str]:
    """Everything that a plan renders to, but for our own C++, which is copied as it is."""
    copied = {f"tensorwright/{name}" for name in read_native_files()}
    files = render(plan, TEMPLATES)
    files = {name: text for name, text in files.items() if name not in copied}
    if isinstance(plan, KernelsPlan):
        for repository, texts in render_repositories(plan, TEMPLATES).items():
            files |= {f"repositories/{repository}/{name}": texts[name] for name in texts}
    else:
        fleet = Fleet(plans=(plan,))
        jobs = Jobs(count=MACHINE.jobs, limited_by=MACHINE.limited_by)
        files["dry-run.txt"] = format_fleet(
            fleet, jobs, full_build.estimate(plan, MACHINE), TEMPLATES, {}
        )
    return files


def base_of(name: str) -> str:
    """The plan, of the same scope, that a plan is stored as a difference from."""
    return WHOLE[name.partition("-")[0]]


def compare(whole: Mapping[str, str], files: Mapping[str, str]) -> str:
    """The difference of all files without context, which with the whole files gives the others."""
    return "".join(
        line
        for name in sorted({*whole, *files})
        for line in difflib.unified_diff(
            whole.get(name, "").splitlines(keepends=True),
            files.get(name, "").splitlines(keepends=True),
            name,
            name,
            n=0,
        )
    )


def main() -> None:
    shutil.rmtree(GOLDEN, ignore_errors=True)
    files = {name: rendered(plan) for name, plan in cases().items()}
    for name, texts in files.items():
        if name == base_of(name):
            write(texts, GOLDEN / name)
        else:
            write({f"{name}.diff": compare(files[base_of(name)], texts)}, GOLDEN)
    for name, (request, vcpus) in container_files.CASES.items():
        write(container_files.contained(request, vcpus), GOLDEN / name)


if __name__ == "__main__":
    main()
