"""The golden renders in tests/golden: which there are, and how they are written.

Write them anew with `PYTHONPATH=build python -m tests.regenerate`, then read the difference.
"""

from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path

from tests.planned import planned

from tfbuild.planning.plan import NATIVE, Plan
from tfbuild.planning.render import render, repositories, write
from tfbuild.settings import ROOT

COMMAND = "PYTHONPATH=build python -m tests.regenerate"
GOLDEN = Path(__file__).with_name("golden")
TEMPLATES = ROOT / "templates"
TARGETS = ("skylake", "haswell", "zen3", "sapphirerapids", "neoverse_v1")
# Named, so that another choice of hot kernels changes no file. Two of them share a source.
KERNELS = "cwise_op_greater_equal,cwise_op_mul,cwise_op_tanh"
# An old release, whose .bazelrc tunes the tools of the build too, and one whose Bazel names the
# wheel.
OTHER_RELEASES = {"2.9.3": ("gcc@9.3.1", "3.10"), "2.20.0": ("clang@18.1.8", "3.11")}


def cases() -> dict[str, Plan]:
    """Folder in tests/golden → plan."""
    plans = {
        f"{scope}-{arch}": planned(arch, scope=scope, kernels=KERNELS)
        for scope in ("kernels", "full")
        for arch in TARGETS
    }
    for release, (compiler, python) in OTHER_RELEASES.items():
        name = f"full-skylake-{release}"
        plans[name] = planned(scope="full", release=release, compiler=compiler, python=python)
    return {name: _without_recipe_hash(plan) for name, plan in plans.items()}


def _without_recipe_hash(plan: Plan) -> Plan:
    """Our own C++ may change, and a template's comment, without changing every golden file."""
    if plan.kernel_recipe is None:
        return plan
    recipe = dataclasses.replace(plan.kernel_recipe, recipe_sha256="0" * 64)
    return dataclasses.replace(plan, kernel_recipe=recipe)


def rendered(plan: Plan) -> dict[str, str]:
    """Everything that a plan renders to, but for our own C++, which is copied as it is."""
    copied = {f"tensorwright/{path.name}" for path in NATIVE.iterdir()}
    files = render(plan, TEMPLATES)
    files = {name: text for name, text in files.items() if name not in copied}
    if plan.kernel_recipe is not None:
        for repository, texts in repositories(plan, TEMPLATES).items():
            files |= {f"repositories/{repository}/{name}": texts[name] for name in texts}
    return files


def main() -> None:
    shutil.rmtree(GOLDEN, ignore_errors=True)
    for name, plan in cases().items():
        write(rendered(plan), GOLDEN / name)


if __name__ == "__main__":
    main()
