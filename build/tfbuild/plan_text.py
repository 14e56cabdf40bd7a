"""Formats a plan as text: its decisions, and the estimated time, memory and disk. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from tfbuild.planning import defaults
from tfbuild.planning.fleet import Fleet
from tfbuild.planning.jobs import Jobs
from tfbuild.planning.plan import Estimate, FullPlan, KernelsPlan, Plan
from tfbuild.planning.render import render
from tfbuild.tools.pgo import INSTRUMENT
from tfbuild.upstream import releases
from tfbuild.upstream.source import SourcePin
from tfcore import console

Row = tuple[str, str]


def format_fleet(
    fleet: Fleet[Plan],
    jobs: Jobs,
    guess: Estimate,
    templates: Path,
    ran_as: Mapping[str, str],
    pythons: Sequence[str] = (),
) -> str:
    """Format the plan of a wheel, with a row for each decision.

    `ran_as` gives, by target, the proxy target or emulator that its kernels would run as
    here, if any. `pythons` are the other Pythons: each gets a wheel with the same libraries.
    """
    plan = fleet.first
    rows = [
        ("plan", fleet.key[:16]),
        (
            "wheel",
            f"{plan.package} {fleet.version} for Python {', '.join((plan.python, *pythons))}",
        ),
        ("scope", plan.scope.value),
        *(row for fleet_plan in fleet.plans for row in _list_target_rows(fleet_plan)),
        ("compiler", f"{plan.compiler} {plan.compiler_version}"),
        ("Bazel", f"{plan.bazel}, run by bazelisk"),
        ("sources", "\nor ".join(map(_format_source, plan.sources))),
        *(
            _list_full_rows(plan, templates)
            if isinstance(plan, FullPlan)
            else _list_kernel_rows(plan)
        ),
        *(("proxy", _format_proxy(*proxy)) for proxy in ran_as.items() if proxy[0] != proxy[1]),
        ("jobs", f"{jobs.count} in parallel, limited by {jobs.limited_by}"),
        ("time", f"about {console.format_duration(guess.seconds)}"),
        ("memory", f"about {console.format_size(guess.memory_mb * 1e6)}"),
        ("disk", f"about {console.format_size(guess.disk_mb * 1e6)}"),
        ("basis", guess.basis),
        ("verified", plan.release_record.verified),
    ]
    return "".join(_format_row(name, text) for name, text in rows)


def _format_proxy(target: str, ran_as: str) -> str:
    if not ran_as:
        return f"{target} cannot be built here: this CPU and QEMU can run no proxy target"
    return (
        f"this CPU cannot run {target}, so its kernels are compiled for {ran_as} and tested as "
        f"that; then run invoke admit on a CPU that can run {target}"
    )


def _format_source(pin: SourcePin) -> str:
    origin = f"Debian source package {pin.origin}" if pin.kind == "debian" else pin.origin
    return f"{pin.file.name}  ({origin})" if origin else pin.file.name


def _format_row(name: str, text: str) -> str:
    first, *other_lines = text.splitlines() or [""]
    return f"{name:<9} {first}\n" + "".join(f"{'':<9} {line}\n" for line in other_lines)


def _list_target_rows(plan: Plan) -> list[Row]:
    target = plan.target
    return [
        ("target", f"{target.spec} ({target.family}, {target.vendor})"),
        ("flags", " ".join(plan.flags)),
        *(("default", defaults.describe(default)) for default in plan.defaults),
    ]


def _list_kernel_rows(plan: KernelsPlan) -> Iterator[Row]:
    yield (
        "stock",
        plan.stock.name if plan.stock else "none is published for this Python and machine",
    )
    yield "kernels", " ".join(unit.name for unit in plan.kernels)
    yield "command", "bazelisk build //:candidates"


def _list_full_rows(plan: FullPlan, templates: Path) -> Iterator[Row]:
    recipe = plan.full_recipe
    yield "tested", f"by TensorFlow with {plan.release_record.compiler}"
    answers = releases.fill_placeholders(recipe.configure_env, python_bin="PYTHON", clang="CLANG")
    yield "answers", "\n".join(f"{name}={value}" for name, value in answers)
    lines = render(plan, templates)["tensorwright.bazelrc"].splitlines()
    yield "bazelrc", "\n".join(line for line in lines if line and not line.startswith("#"))
    yield "stages", "\n".join(f"{i}. {stage}" for i, stage in enumerate(_list_stages(plan), 1))


def _list_stages(plan: FullPlan) -> Iterator[str]:
    recipe = plan.full_recipe
    build = f"bazelisk build {' '.join(recipe.options)} {recipe.target}"
    yield "preflight: memory, disk, compiler, glibc, network, clock"
    yield (
        f"sources: unpack {plan.sources[0].file.name}; versions that it states override the "
        "release table"
    )
    yield "configure: python configure.py with the answers above"
    if recipe.training:
        yield f"instrument: {build} {INSTRUMENT}"
        yield f"train: run the program of SHA-256 {recipe.training[:16]} with that wheel"
    profile = " --fdo_optimize=PROFILE" if recipe.training else ""
    yield f"build: {build}{profile}"
    if recipe.wheel_folder:
        yield f"collect: {recipe.wheel_folder}/*.whl"
    else:
        yield f"pack: {recipe.program} FOLDER{' --cpu' if plan.package == 'tensorflow-cpu' else ''}"
    yield f"finish: version {plan.version}, platform tag, tuned.json, a CPU check at import"
    yield "check: audit, install and try the wheel; put it in wheels/ with a manifest"
