from __future__ import annotations

import dataclasses
import enum
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from packaging.utils import parse_wheel_filename
from packaging.version import Version
from tests.builders.plans import planned, planned_full, requested

from tfbuild.planning.plan import KernelsPlan, Plan, estimate, make_plan, require_stock
from tfbuild.planning.request import resolve
from tfbuild.upstream.releases import find_kernel_facts, find_release, load_releases
from tfcore.cpus.compilers import Compiler
from tfcore.cpus.flags import compute_required_features
from tfcore.cpus.targets import Target, list_targets
from tfcore.errors import CompilerError, PythonError, ReleaseError, UsageError, WheelError
from tfcore.records import convert_record, format_canonical, hash_record
from tfcore.settings import ROOT

RELEASES = [release.version for release in load_releases()]
WITHOUT_KERNELS = [release.version for release in load_releases() if not release.kernels]
SKYLAKE = resolve(requested(kernels="mini"))
KERNELS = planned()
FULL = planned_full(release="2.20.0", compiler="clang@18.1.8")


def fields_of(record: Any, *path: str) -> Iterator[tuple[str, ...]]:
    """The path of every field of a record and of the records in it."""
    for field in dataclasses.fields(record):
        value = getattr(record, field.name)
        yield (*path, field.name)
        if dataclasses.is_dataclass(value):
            yield from fields_of(value, *path, field.name)


def changed(record: Any, path: tuple[str, ...]) -> Any:
    """The record with another value in one field."""
    name, *remainder = path
    value = getattr(record, name)
    other_value = changed(value, tuple(remainder)) if remainder else another(value)
    return dataclasses.replace(record, **{name: other_value})


def another(value: object) -> object:
    match value:
        case enum.Enum():
            return next(member for member in type(value) if member is not value)
        case str():
            return f"{value}x"
        case int():
            return value + 1
        case frozenset() | tuple():
            return type(value)([*value][:-1]) if value else type(value)(["new"])
        case None:
            return "something"
        case _:
            return None


@pytest.mark.parametrize("plan", [KERNELS, FULL], ids=["kernels", "full"])
def test_every_field_is_part_of_the_key(plan: Plan) -> None:
    keys = {path: changed(plan, path).key for path in fields_of(plan)}
    assert len(keys) > 30
    assert [path for path, key in keys.items() if key == plan.key] == []
    assert len(set(keys.values())) == len(keys)


@pytest.mark.parametrize(
    "other_fields",
    [
        {"arch": "haswell"},
        {"arch": "skylake+avx512f"},
        {"arch": "skylake/zen3"},
        {"arch": "stock"},
        {"scope": "full"},
        {"kernels": "mini"},
        {"package": "tensorflow"},
        {"python": "3.10"},
        {"compiler": "clang@17.0.6"},
        {"compiler": "gcc@16.0.6"},
    ],
    ids=str,
)
def test_every_choice_is_part_of_the_key(other_fields: dict[str, str]) -> None:
    assert make_plan(resolve(requested(**other_fields))).key != KERNELS.key


def test_releases_have_keys_of_their_own() -> None:
    keys = {planned_full(release=release).key for release in RELEASES}
    assert len(keys) == len(RELEASES)


def test_the_same_choice_has_the_same_key() -> None:
    assert planned().key == KERNELS.key
    assert planned(release="2.14").key == KERNELS.key
    named = planned(kernels="mini")
    assert planned(kernels=",".join(unit.name for unit in reversed(named.kernels))) == named


def test_the_key_is_the_hash_of_the_json_that_a_reader_gets() -> None:
    read = json.loads(json.dumps(convert_record(KERNELS)))
    assert hash_record(read) == KERNELS.key


def test_where_the_compiler_stands_is_no_part_of_the_plan() -> None:
    def plan(path: str) -> Plan:
        compiler = Compiler(
            family="clang", version="16.0.6", path=Path(path), architecture="x86_64"
        )
        return make_plan(dataclasses.replace(SKYLAKE, compiler=compiler))

    assert plan("/one/clang") == plan("/two/clang-16") == planned(kernels="mini")


@pytest.mark.parametrize("plan", [KERNELS, FULL], ids=["kernels", "full"])
def test_nothing_of_this_machine_stands_in_a_plan(plan: Plan) -> None:
    text = format_canonical(plan)
    assert str(ROOT) not in text
    assert str(Path.home()) not in text


@pytest.mark.parametrize("target", list_targets(), ids=lambda target: target.name)
def test_versions_are_normal_for_every_target(target: Target) -> None:
    plan = planned_full(target.name, compiler="gcc@99.0")
    assert str(Version(plan.version)) == plan.version
    assert Version(plan.version).local == f"{target.local}.full"
    file = f"tensorflow_cpu-{plan.version}-cp311-cp311-linux_{target.family}.whl"
    assert str(parse_wheel_filename(file)[1]) == plan.version


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("arch", ["skylake", "haswell", "zen3", "sapphirerapids", "neoverse_v1"])
def test_a_full_build_can_be_planned_for_every_release(arch: str, release: str) -> None:
    plan = planned_full(arch, release=release)
    recipe = plan.full_recipe
    assert plan.kernels == ()
    assert plan.kernel_recipe is None
    assert "{" not in "".join(value for _, value in recipe.repo_env)
    assert len(dict(recipe.repo_env)) == len(recipe.repo_env)
    tuned = (*recipe.copts, *recipe.per_file_copts)
    assert all(any(flag in option for option in tuned) for flag in plan.flags)
    assert not any(flag in format_canonical(recipe.configure_env) for flag in plan.flags)


@pytest.mark.parametrize("release", WITHOUT_KERNELS)
def test_kernels_of_a_release_that_nobody_compiled_are_refused(release: str) -> None:
    with pytest.raises(ReleaseError, match=release) as caught:
        planned(release=release)
    assert "2.14.1" in caught.value.hint
    assert "--scope full" in caught.value.hint


def test_a_kernels_plan_compiles_as_the_release_does() -> None:
    recipe = KERNELS.kernel_recipe
    facts = find_kernel_facts(find_release("2.14.1"), "x86_64")
    assert {define.flag for define in facts.defines} <= set(recipe.copts)
    assert not {f"-D{define.name}" for define in facts.forbidden} & set(recipe.copts)
    assert "-ffp-contract=off" in recipe.copts
    assert not [option for option in recipe.copts if option.startswith(("-march", "-mtune"))]
    assert KERNELS.flags == ("-march=skylake", "-mtune=skylake")
    assert {f"-l:{Path(library).name}" for library in facts.libraries} <= set(recipe.linkopts)


@pytest.mark.parametrize(("compiler", "expected"), [("gcc@12.2.0", True), ("clang@16.0.6", False)])
def test_only_gcc_is_told_to_make_no_unique_symbols(compiler: str, *, expected: bool) -> None:
    recipe = planned(compiler=compiler).kernel_recipe
    assert ("-fno-gnu-unique" in recipe.copts) == expected


@pytest.mark.parametrize(
    ("compiler", "need", "path"),
    [("clang@16.0.6", "1", "{clang}"), ("gcc@12.2.0", "0", None)],
)
def test_configure_is_told_which_compiler(compiler: str, need: str, path: str | None) -> None:
    recipe = planned_full(compiler=compiler).full_recipe
    answers = dict(recipe.configure_env)
    assert answers["TF_NEED_CLANG"] == need
    assert answers.get("CLANG_COMPILER_PATH") == path


@pytest.mark.parametrize("release", RELEASES)
def test_bazel_names_the_wheel_from_2_20_on(release: str) -> None:
    plan = planned_full("x86_64_v4+avx512_bf16", release=release, package="tensorflow")
    env = dict(plan.full_recipe.repo_env)
    series = tuple(int(part) for part in release.split(".")[:2])
    suffix = f"+{plan.target.local}.full" if series >= (2, 20) else None
    assert env.get("ML_WHEEL_VERSION_SUFFIX") == suffix
    assert env.get("WHEEL_NAME") == ("tensorflow" if series >= (2, 17) else None)


@pytest.mark.parametrize("release", RELEASES)
def test_tools_of_the_build_are_never_compiled_for_the_target(release: str) -> None:
    """Up to 2.12 TensorFlow's own .bazelrc makes them share the target's configuration."""
    plan = planned_full(release=release)
    distinct = "--distinct_host_configuration=true" in plan.full_recipe.options
    assert distinct == (release in {"2.8.4", "2.9.3", "2.10.1", "2.11.1", "2.12.1"})


def test_xnnpack_keeps_its_own_flags_on_aarch64() -> None:
    plan = planned_full("neoverse_v1")
    assert plan.full_recipe.copts == ()
    assert plan.full_recipe.per_file_copts == ("-.*XNNPACK/.*@-mcpu=neoverse-v1",)


def test_sources_come_from_the_releases_home_and_where_it_is_known_from_debian() -> None:
    assert [pin.kind for pin in KERNELS.sources] == ["home", "debian"]
    assert [pin.kind for pin in FULL.sources] == ["home"]
    for pin in (*KERNELS.sources, *FULL.sources):
        assert len(bytes.fromhex(pin.file.sha256)) == 32
    assert KERNELS.sources[0].origin.endswith("/v2.14.1.tar.gz")
    assert KERNELS.sources[0].origin.startswith("https://")


def test_a_plan_asks_for_all_that_the_compiler_may_use() -> None:
    """gcc's and clang's skylake use PREFETCHW, which archspec's does not name."""
    macros = {"__x86_64__": "1", "__PRFCHW__": "1"}
    plan = make_plan(dataclasses.replace(SKYLAKE, macros=macros))
    assert set(plan.required) == compute_required_features(SKYLAKE.target, macros)
    assert "3dnowprefetch" in plan.required
    assert list(plan.required) == sorted(plan.required)


@pytest.mark.parametrize("python", ["3.8", "3.13"])
def test_a_python_that_the_release_has_no_wheel_for_is_refused(python: str) -> None:
    with pytest.raises(PythonError, match=f"Python {python}") as caught:
        planned(python=python)
    assert "3.9, 3.10, 3.11" in caught.value.hint


@pytest.mark.parametrize("options", [{"scope": "full"}, {"package": "tensorflow"}])
def test_a_package_can_be_planned_for_a_machine_that_it_has_no_wheel_for(
    options: dict[str, str],
) -> None:
    plan = make_plan(resolve(requested("neoverse_v1", **options)))
    assert plan.flags == ("-mcpu=neoverse-v1",)
    with pytest.raises(WheelError, match=r"cp311 .*aarch64") as caught:
        require_stock(plan)
    assert "tensorflow-cpu on x86_64" in caught.value.hint


def test_kernels_for_aarch64_are_compiled_as_its_wheels_are() -> None:
    plan = planned("neoverse_v1", release="2.20.0")
    recipe = plan.kernel_recipe
    assert plan.package == "tensorflow"
    assert require_stock(plan).name.endswith("_aarch64.whl")
    assert {"-DDNNL_AARCH64_USE_ACL=1", "-O3"} <= set(recipe.copts)
    assert "-DTF_LLVM_X86_AVAILABLE=1" not in recipe.copts
    # Eigen::half stays what it is in the stock libraries, whatever the core has.
    assert [name for name in recipe.copts if name.startswith("-U__ARM_FEATURE_FP16")]
    assert any("mkl_dnn_acl_compatible" in root for root in recipe.include_roots)
    assert "-march=armv8-a" in recipe.dispatcher_copts
    assert planned("neoverse_v1").package == "tensorflow-cpu-aws"


def test_the_stock_wheel_is_the_package_that_was_asked_for() -> None:
    assert require_stock(KERNELS).name.startswith("tensorflow_cpu-2.14.1-cp311-")
    assert require_stock(planned(package="tensorflow")).name.startswith("tensorflow-2.14.1-cp311-")
    later = planned_full("neoverse_v1", release="2.20.0", package="tensorflow")
    assert require_stock(later).name.endswith("_aarch64.whl")


@pytest.mark.parametrize(
    ("choice", "message"),
    [
        ({"scope": "half"}, "--scope half is unknown. Use kernels or full"),
        (
            {"package": "tf"},
            "--package tf is unknown. Use tensorflow, tensorflow-cpu or tensorflow-cpu-aws",
        ),
        ({"python": "3.11.7"}, "--python 3.11.7"),
        ({"python": "three"}, "--python three"),
        ({"kernels": "../x"}, "'../x'"),
        ({"kernels": ""}, "''"),
    ],
)
def test_unusable_choices_are_named(choice: dict[str, str], message: str) -> None:
    with pytest.raises(UsageError) as caught:
        planned(**{"arch": "skylake"} | choice)
    assert message in str(caught.value)


def test_a_compiler_too_old_for_the_target_is_refused_with_the_one_needed() -> None:
    with pytest.raises(CompilerError, match="sapphirerapids") as caught:
        planned("sapphirerapids", compiler="gcc@9.3.1")
    assert "gcc 11" in caught.value.hint


@pytest.mark.parametrize("plan", [KERNELS, planned(kernels="mini")])
@given(jobs=st.integers(min_value=1, max_value=512))
def test_more_jobs_take_less_time_and_more_memory(plan: KernelsPlan, jobs: int) -> None:
    fewer, more = estimate(plan, jobs), estimate(plan, jobs + 1)
    assert 0 < more.seconds < fewer.seconds
    assert 0 < fewer.memory_mb <= more.memory_mb
    assert 0 < fewer.disk_mb == more.disk_mb
    assert fewer.basis


def test_more_kernels_take_more_time() -> None:
    assert estimate(planned(kernels="mini"), 1).seconds < estimate(KERNELS, 1).seconds


def test_a_control_differs_from_a_tuned_plan_in_target_and_defaults_only() -> None:
    control, tuned = planned("stock", kernels="mini"), planned(kernels="mini")
    retargeted = dataclasses.replace(
        control,
        target=tuned.target,
        flags=tuned.flags,
        required=tuned.required,
        defaults=tuned.defaults,
    )
    assert retargeted == tuned
    assert control.version == "2.14.1+stock.flags"


# A full build's options ---------------------------------------------------------------------------


def test_how_a_tree_is_built_is_in_its_version_and_its_key(tmp_path: Path) -> None:
    program = tmp_path / "training.py"
    program.write_text("1\n")
    plain, lto = planned_full(), planned_full(lto=True)
    pgo = planned_full(lto=True, pgo=str(program))
    assert [plan.local for plan in (plain, lto, pgo)] == [
        "skylake.full",
        "skylake.full.lto",
        "skylake.full.lto.pgo",
    ]
    program.write_text("2\n")
    other_value = planned_full(lto=True, pgo=str(program))
    assert len({plan.key for plan in (plain, lto, pgo, other_value)}) == 4


def test_options_of_the_tree_are_for_clang_and_the_full_scope() -> None:
    with pytest.raises(CompilerError, match=r"--lto .*clang"):
        planned_full(compiler="gcc@12.2.0", lto=True)
    with pytest.raises(UsageError, match="--scope full"):
        planned(lto=True)
    with pytest.raises(UsageError, match=r"/nowhere/training\.py"):
        planned_full(pgo="/nowhere/training.py")


@pytest.mark.parametrize(("release", "python"), [("2.8.4", "3.11"), ("2.21.0", "3.9")])
def test_a_python_that_the_tree_cannot_be_built_for_is_refused(release: str, python: str) -> None:
    with pytest.raises(PythonError, match=f"for Python {python}") as caught:
        planned_full(release=release, python=python)
    assert "--python" in caught.value.hint
