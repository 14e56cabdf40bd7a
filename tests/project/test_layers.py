"""Imports go one way, read from the source: nothing is imported here."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tfcore.settings import ROOT

# Lowest first: a module imports only what stands before it.
TFCORE = {
    "cpus": ("features", "cpu", "models", "targets", "detect", "compilers", "flags"),
    "comparisons": (
        *("interval", "decision", "effort", "host", "kernels", "comparison", "deciding"),
    ),
}
TFBUILD = {
    "upstream": (
        *(
            "releases",
            "lock_files",
            "release_rows",
            "stock_listing",
            "fused_ops",
            "kernels",
            "source_matching",
            "registrations",
            "download",
            "source",
        ),
        *("local_sources",),
    ),
    "planning": (
        *(
            "dispatcher",
            "defaults",
            "guard",
            "selection",
            "target_compiler",
            "plan",
            "newest_release",
            "fleet",
            "request",
            "render",
        ),
        *("proxy_targets", "containers", "jobs"),
    ),
    "binaries": ("elf", "image", "instructions", "census"),
    "packing": (
        "zip_structure",
        "wheel",
        "file_differences",
        "repack",
        "tuned",
        "conformance",
        "notices",
        "sbom",
        "package_metadata",
    ),
    "auditing": (
        *("runtime_dispatch", "tables", "libraries", "manylinux", "claims", "archive_layout"),
        *("alterations", "audit"),
    ),
    "tools": (
        "pip",
        "uv",
        "requirement",
        "shared_files",
        "installed",
        "environment",
        "emulation",
        "foreign_environments",
        "bazel",
        "pgo",
        "apt",
        "doctor",
    ),
    "kernelbuild": (
        *("structures", "admission", "verdicts", "build_setup", "workspace", "closure", "assemble"),
        *(
            "pool",
            "build",
            "finished_wheels",
            "origin",
            "proof",
            "rebuild",
            "survey",
            "survey_page",
        ),
        "random_trials",
    ),
    "machine": ("memory", "checklist", "disks", "network", "programs", "preflight"),
    "remote": ("bazelrc", "headers", "caches", "toolchain"),
    "watching": ("attempt", "pace", "events", "diagnosis"),
    "vendoring": ("declarations", "resolved_repositories", "vendor_folder", "vendor"),
    "treebuild": (*("stages", "tree", "differences", "site", "compiling", "finish", "build"),),
}
TFWHEELS = (
    "commands",
    *("check_wheel", "layout", "entry", "keys", "provenance"),
    *("wheel_choice", "page_fields", "pages", "withdrawal"),
    *("gate", "folder", "bucket", "store", "catalog", "remote", "reader", "signed_catalog"),
    *("trust", "catalog_state", "rebuild_statement", "publish", "upload"),
    *(
        "dependencies",
        "snippet",
        "other_indexes",
        "check_index",
        "check_installed",
        "signed_files",
        "serve",
        "variants",
        "level_variants",
        "candidates",
        "summary",
    ),
    *("handlers",),
)
TENSORWRIGHT = (
    *("command", "commandline", "build", "measure", "publish", "articles", "project", "program"),
    "__main__",
)
PROBE = (
    *(
        "parent",
        "imported",
        "uncollected",
        "registry",
        "cases",
        "draws",
        "proposals",
        "calls",
        "tolerances",
        "agreement",
        "trials",
        "fusing",
        "float64",
        "choices",
        "random_programs",
        "random_search",
    ),
    *("large", "battery", "smoke", "full_build", "__main__"),
)
TFBENCH = {
    "inside": (
        *(
            "phases",
            "compile_arguments",
            "runtimes",
            "meters",
            "slices",
            "epochs",
            "jax_steps",
            "bins",
            "parameters",
            "synthetic",
            "augmentation",
            "workload",
            "workload_name",
            "classics",
            "modern",
            "nets",
        ),
        *("language", "iris", "digits", "workloads", "inputs", "server"),
        *("programs", "profiling", "step_parts", "worker"),
        *("steps", "kit", "convergence", "fitting", "groups", "replicas", "call_sites", "timing"),
        *("importing",),
        *("training",),
    ),
    "arms": ("arm", "lever_table", "levers", "lineup", "wheel_conformance", "installs"),
    "engine": ("journal", "folder", "schedule", "endings", "workers", "engine"),
    "measuring": (
        *("statistics", "stopping", "repetition", "samples", "gates"),
        *("agreement", "observations", "measurement", "summary", "comparing"),
        *("replay", "selfcheck", "matching", "merging"),
    ),
    "kernels": (
        *(
            "profiles",
            "serving",
            "keep_rules",
            "timing_cache",
            "wheel_kernels",
            "workers",
            "timings",
            "selecting",
        ),
        *("table", "handlers"),
    ),
    "costs": (*("prices", "machines", "catalog", "cost", "runs", "article", "kit_runs", "bill"),),
    "reports": (
        *(
            "wording",
            "templating",
            "document",
            "findings",
            "columns",
            "ladder",
            "scaling",
            "method",
            "details",
            "cost_section",
            "chapters",
        ),
        *("canvas", "charts", "plots", "pyperf", "csv_table", "report", "page"),
        *("selfcheck_text", "reporting"),
    ),
    "experiments": (
        *("cell", "limits", "cell_schedule", "speeds", "table_page", "experiment"),
        *("throughput", "sizing", "fit_terms", "overhead", "import_launches", "startup"),
        "articles",
    ),
    "kit": ("archive", "phases", "handler"),
    "hosts": (
        *("on_host", "fleet_check", "host_table", "bundle", "reframe_settings"),
        *("results", "summary", "pages", "handler"),
    ),
    "tuning": ("changes", "search", "results", "trial", "running", "text", "handler"),
}
EXPERIMENTS = {
    "accuracy": (
        *("median", "curve", "curve_file", "datasets", "results", "text", "imported", "handler"),
    ),
    "strategies": ("strategy", "published", "matrix", "results", "text", "handler"),
}
# A package imports only those before it, and the modules beside them are in the same order.
PACKAGES = {
    "build/tfcore": (
        *("errors", "durations", "records", "console", "run", "packages", "settings", "option"),
        *TFCORE,
    ),
    "build/tfbuild": (
        "interpreters",
        "commands",
        *TFBUILD,
        "host_cpu",
        "terminal_tables",
        "release_check",
        "release_add",
        "missing_tools",
        "full_build",
        "plan_text",
        "checks",
        "handlers",
    ),
    "benchmarks/tfbench": (
        "result_table",
        "inside",
        "arms",
        "commands",
        "options",
        *list(TFBENCH)[2:],
        "result_check",
        "handlers",
        "release_trial",
    ),
    "benchmarks/tfbench/experiments": (
        *TFBENCH["experiments"][:-1],
        *EXPERIMENTS,
        "articles",
    ),
}
# Folders that hold what is put into wheels or run inside an arm.
NOT_OURS_TO_IMPORT = {"native", "probe", "shipped"}
# What an arm's own environment has.
WORKERS = {
    "benchmarks/tfbench/inside": TFBENCH["inside"],
    "build/tfbuild/probe": PROBE,
    "build/tfbuild/shipped": ("_tensorwright", "_tensorwright_cpu", "_tensorwright_defaults"),
}
IN_AN_ARM = {"numpy", "tensorflow", "google", "ml_dtypes"}
# The probe finds the conformance programs of fused ops there.
FOUND_BY_NAME = {"tfbuild.native", "tfbuild.native.ops"}


def imports(path: Path, *, at_top: bool = False) -> Iterator[str]:
    """Every dotted name that a file imports, `from a import b` as both a and a.b."""
    tree = ast.parse(path.read_text("utf-8"), str(path))
    for node in tree.body if at_top else ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        if isinstance(node, ast.ImportFrom):
            assert node.module is not None
            module = node.module
            if node.level:
                # What is shipped is a part of the package tensorflow there.
                assert path.parent.name == "shipped", f"{path}: a relative import"
                module = f"tfbuild.shipped.{module}"
            yield module
            yield from (f"{module}.{alias.name}" for alias in node.names)


def siblings(path: Path, package: str) -> set[str]:
    """The modules of `package` that a file imports."""
    prefix = f"{package}."
    names = (name for name in imports(path) if name.startswith(prefix))
    return {name.removeprefix(prefix).partition(".")[0] for name in names}


def roots(path: Path, *, at_top: bool = False) -> set[str]:
    return {name.partition(".")[0] for name in imports(path, at_top=at_top)}


def modules(folder: str) -> list[Path]:
    return sorted(path for path in (ROOT / folder).glob("*.py") if path.stem != "__init__")


@pytest.mark.parametrize(
    ("folder", "package", "order"),
    [
        *((f"build/tfcore/{name}", f"tfcore.{name}", TFCORE[name]) for name in TFCORE),
        *((f"build/tfbuild/{name}", f"tfbuild.{name}", TFBUILD[name]) for name in TFBUILD),
        ("build/tfbuild/probe", "tfbuild.probe", PROBE),
        ("wheels/tfwheels", "tfwheels", TFWHEELS),
        ("build/tensorwright", "tensorwright", TENSORWRIGHT),
        *((f"benchmarks/tfbench/{name}", f"tfbench.{name}", TFBENCH[name]) for name in TFBENCH),
        *(
            (
                f"benchmarks/tfbench/experiments/{name}",
                f"tfbench.experiments.{name}",
                EXPERIMENTS[name],
            )
            for name in EXPERIMENTS
        ),
    ],
)
def test_modules_import_only_what_stands_below_them(
    folder: str, package: str, order: tuple[str, ...]
) -> None:
    files = {path.stem: path for path in modules(folder)}
    assert sorted(files) == sorted(order), "every module needs a place in the order"
    for name, path in files.items():
        below = set(order[: order.index(name)])
        used = siblings(path, package) & set(files)
        assert used <= below, f"{name} imports {sorted(used - below)}, which do not stand below it"


@pytest.mark.parametrize("root", PACKAGES)
def test_packages_are_in_one_order(root: str) -> None:
    order = PACKAGES[root]
    package = ".".join(Path(root).parts[1:])
    packages = {path.stem for path in (ROOT / root).iterdir()} - {"__init__", "__pycache__"}
    assert packages - NOT_OURS_TO_IMPORT == set(order), "every package needs a place in the order"
    for place, name in enumerate(order):
        module = (ROOT / root / name).with_suffix(".py")
        for path in [module] if module.is_file() else (ROOT / root / name).rglob("*.py"):
            assert siblings(path, package) <= set(order[: place + 1]), path


@pytest.mark.parametrize(
    ("folder", "other_names"),
    [
        ("build/tfcore", {"tfbuild", "tfbench", "tfwheels", "tensorwright"}),
        ("build/tfbuild", {"tfbench", "tfwheels", "tensorwright"}),
        ("benchmarks/tfbench", {"tfwheels", "tensorwright"}),
        ("wheels/tfwheels", {"tfbench", "tensorwright"}),
    ],
)
def test_packages_do_not_import_each_other(folder: str, other_names: set[str]) -> None:
    for path in (ROOT / folder).rglob("*.py"):
        assert not roots(path) & other_names, path


def test_the_toolchain_never_imports_what_only_an_arm_has() -> None:
    workers = {ROOT / folder / f"{name}.py" for folder in WORKERS for name in WORKERS[folder]}
    for folder in ("build", "wheels", "benchmarks/tfbench"):
        for path in (ROOT / folder).rglob("*.py"):
            if path not in workers and "node_modules" not in path.parts:
                assert not roots(path) & {"tensorflow", "keras", "ml_dtypes"}, path
    assert "tensorflow" not in roots(ROOT / "tasks.py")


@pytest.mark.parametrize("folder", WORKERS)
def test_workers_import_only_what_an_arm_has(folder: str) -> None:
    package = ".".join(Path(folder).parts[1:])
    allowed = IN_AN_ARM | sys.stdlib_module_names
    for name in WORKERS[folder]:
        path = ROOT / folder / f"{name}.py"
        foreign = {actual for actual in imports(path) if actual.partition(".")[0] not in allowed}
        foreign -= FOUND_BY_NAME
        assert siblings(path, package) <= set(WORKERS[folder]), path
        assert all(f"{actual}.".startswith(f"{package}.") for actual in foreign), path


def test_conformance_programs_import_the_probe_and_what_an_arm_has() -> None:
    paths = sorted((ROOT / "build/tfbuild/native").rglob("*.py"))
    assert len([path for path in paths if path.name == "cases.py"]) == 5
    allowed = IN_AN_ARM | sys.stdlib_module_names
    for path in paths:
        foreign = {name for name in imports(path) if name.partition(".")[0] not in allowed}
        assert all(f"{name}.".startswith("tfbuild.probe.") for name in foreign), path
        assert "tensorflow" not in roots(path, at_top=True), path


@pytest.mark.parametrize("folder", WORKERS)
def test_workers_import_tensorflow_only_once_they_run(folder: str) -> None:
    """Threads and logging are set before it is loaded."""
    for name in WORKERS[folder]:
        assert "tensorflow" not in roots(ROOT / folder / f"{name}.py", at_top=True)


OURS = {"tfcore", "tfbuild", "tfbench", "tfwheels"}
LIGHT = {
    *("tfbuild.commands", "tfcore.errors", "tfcore.option"),
    *("tfbench.commands", "tfwheels.commands"),
    *("tfbench.arms.lever_table", "tfbench.inside.compile_arguments", "tfbench.inside.runtimes"),
}
"""Those of ours, beside the commands themselves, that a list of them waits for."""


def test_commands_import_what_they_run_only_inside_functions() -> None:
    light = [path for name in LIGHT for path in ROOT.glob(f"*/{name.replace('.', '/')}.py")]
    assert len(light) == len(LIGHT)
    for path in (ROOT / "tasks.py", *modules("build/tensorwright"), *light):
        names = set(imports(path, at_top=True))
        ours = {name for name in names if name.partition(".")[0] in OURS}
        assert all({name, name.rpartition(".")[0]} & LIGHT for name in ours), path
        other_names = {name.partition(".")[0] for name in names - ours}
        assert other_names <= {"invoke", "tensorwright", *sys.stdlib_module_names}, path
    assert {"tfbuild", "tfbench"} <= roots(ROOT / "build/tensorwright/build.py")


def test_no_test_module_imports_another() -> None:
    """What two of them need is in tests/builders."""
    for path in (ROOT / "tests").rglob("*.py"):
        names = {part for name in imports(path) for part in name.split(".")[1:]}
        assert not [name for name in names if name.startswith("test_")], path
