from __future__ import annotations

import re
import shlex
import subprocess
from pathlib import Path

import pytest
from tests.builders import container_files
from tests.builders.plans import planned, planned_full
from tests.tools.regenerate import (
    COMMAND,
    GOLDEN,
    WHOLE,
    base_of,
    cases,
    compare,
    rendered,
)

from tfbuild.planning import dispatcher
from tfbuild.planning.dispatcher import DispatchFeature, HwcapFeature
from tfbuild.planning.plan import NATIVE, Plan
from tfbuild.planning.render import build_dispatch_target, check, render, render_admitted, write
from tfbuild.tools import bazel
from tfbuild.upstream.releases import load_releases
from tfcore import settings
from tfcore.cpus.features import filter_codegen
from tfcore.cpus.targets import Target, list_targets
from tfcore.errors import DiskError, DriftError
from tfcore.run import run
from tfcore.settings import ROOT, TEMPLATES, Paths

CASES = cases()
RELEASES = [release.version for release in load_releases()]
COMPILERS = ["clang@16.0.6", "gcc@12.2.0"]


@pytest.mark.parametrize("name", WHOLE.values())
def test_a_plan_of_each_scope_renders_to_the_golden_files(name: str) -> None:
    folder = GOLDEN / name
    files = [path for path in folder.rglob("*") if path.is_file()]
    golden_files = {str(path.relative_to(folder)): path.read_text("utf-8") for path in files}
    rendered_files = rendered(CASES[name])
    assert sorted(golden_files) == sorted(rendered_files), f"if that is meant: {COMMAND}"
    for path, text in rendered_files.items():
        assert golden_files[path] == text, f"{name}/{path} differs; if that is meant: {COMMAND}"


@pytest.mark.parametrize("name", sorted({*CASES} - {*WHOLE.values()}))
def test_the_other_plans_differ_from_it_as_recorded(name: str) -> None:
    whole = rendered(CASES[base_of(name)])
    recorded = (GOLDEN / f"{name}.diff").read_text("utf-8")
    assert recorded == compare(whole, rendered(CASES[name])), f"if that is meant: {COMMAND}"


def test_no_golden_file_is_left_over() -> None:
    differences = {f"{name}.diff" for name in {*CASES} - {*WHOLE.values()}}
    assert sorted(path.name for path in GOLDEN.iterdir()) == sorted(
        {*WHOLE.values(), *differences, *container_files.CASES}
    )


@pytest.mark.parametrize("plan", CASES.values(), ids=CASES)
def test_nothing_of_this_machine_or_this_day_is_rendered(plan: Plan) -> None:
    text = "".join(rendered(plan).values())
    assert str(ROOT) not in text
    assert str(Path.home()) not in text
    days = re.compile(r"\b20\d\d-\d\d-\d\d\b")
    measured = (ROOT / "build/tfbuild/planning/defaults.toml").read_text("utf-8")
    assert {*days.findall(text)} <= {*days.findall(measured)}
    assert rendered(plan) == rendered(plan)


@pytest.mark.parametrize("plan", CASES.values(), ids=CASES)
def test_every_rendered_file_ends_with_one_newline_and_says_where_it_is_from(plan: Plan) -> None:
    for name, text in rendered(plan).items():
        if text and not name.endswith((".json", "dry-run.txt")):
            assert text.endswith("\n"), name
            assert not text.endswith("\n\n"), name
            assert not re.search(r"[ \t]$", text, re.MULTILINE), name
            assert ".j2" in "".join(text.splitlines(keepends=True)[:2]), name


def test_our_own_sources_are_rendered_as_they_are() -> None:
    files = render(planned(), TEMPLATES)
    paths = [path for path in NATIVE.rglob("*.*") if path.suffix in {".c", ".cc", ".h"}]
    assert len(paths) > 10
    for path in paths:
        name = path.relative_to(NATIVE)
        assert files[f"tensorwright/{name}"] == path.read_text("utf-8")
    assert not [name for name in files if name.endswith((".py", ".toml", ".md"))]


# The dispatcher ---------------------------------------------------------------------------------


@pytest.mark.parametrize("target", list_targets("x86_64"), ids=lambda target: target.name)
def test_the_dispatcher_asks_for_all_that_compilers_may_use(target: Target) -> None:
    plan = planned(target.name, compiler="gcc@99.0")
    row = build_dispatch_target(plan)
    feature_names = {feature.name for feature in row.features}
    assert filter_codegen(plan.required, "x86_64") <= feature_names <= set(plan.required)
    assert row.name == plan.target.local
    assert f'"{row.name}"' in render(plan, TEMPLATES)[f"tensorwright/{dispatcher.HEADER}"]


def test_a_vector_unit_is_asked_of_the_operating_system_too() -> None:
    features = {
        feature.name: feature
        for feature in build_dispatch_target(planned("sapphirerapids")).features
        if isinstance(feature, DispatchFeature)
    }
    states = {name: feature.xcr0 for name, feature in features.items()}
    assert 0 < states["avx"] < states["avx512f"]
    assert states["avx512f"] & states["avx"] == states["avx"]
    assert states["sse2"] == 0


def test_linux_is_asked_for_the_features_of_an_arm_core() -> None:
    plan = planned("neoverse_v1", release="2.20.0")
    features = {
        feature.name: feature
        for feature in build_dispatch_target(plan).features
        if isinstance(feature, HwcapFeature)
    }
    assert features.keys() == set(plan.required)
    assert (features["sve"].word, features["sve"].bit) == (1, 22)
    assert (features["bf16"].word, features["bf16"].bit) == (2, 14)
    header = render(plan, TEMPLATES)[f"tensorwright/{dispatcher.HEADER}"]
    assert '{"sve", AT_HWCAP, 22},' in header


# The workspace of a kernels build -----------------------------------------------------------------


def test_only_kernel_sources_are_compiled_for_the_target() -> None:
    build = render(planned("skylake"), TEMPLATES)["BUILD.bazel"]
    rules = dict(re.findall(r'\bname = "([^"]+)",\n(.*?)\n\)\n', build, re.DOTALL))
    tuned = {name for name, rule in rules.items() if "TARGET_COPTS" in rule}
    sources = {name for name in rules if name.startswith("source_")}
    assert sources
    assert tuned == sources | {"structures_of_kernels"}
    assert build.count("-march=skylake") == 1
    assert "-march=x86-64" in rules[dispatcher.LIBRARY]
    assert "TARGET_COPTS" not in rules["counter"]


def test_a_source_of_ours_is_compiled_as_kernels_are() -> None:
    plan = planned("skylake", kernels="cwise_op_tanh,fused/updates")
    build = render(plan, TEMPLATES)["BUILD.bazel"]
    rules = dict(re.findall(r'\bname = "([^"]+)",\n(.*?)\n\)\n', build, re.DOTALL))
    ours, stock = rules["source_tensorwright__ops__updates__updates"], rules["source_cwise_op_tanh"]
    assert 'srcs = ["tensorwright/ops/updates/updates.cc"]' in ours
    assert 'srcs = ["@tf_source//:' in stock
    assert ("TARGET_COPTS" in ours, '":fused"' in ours, '":fused"' in stock) == (True, True, False)


def test_admission_changes_only_the_list_of_what_is_linked() -> None:
    plan = planned()
    name = "admitted.bzl"
    assert render(plan, TEMPLATES)[name] == render_admitted(plan.kernels, TEMPLATES)[name]
    first, *units = plan.kernels
    assert f'"{first.label}"' in render_admitted(plan.kernels, TEMPLATES)[name]
    assert f'"{first.label}"' not in render_admitted(tuple(units), TEMPLATES)[name]
    assert render_admitted((), TEMPLATES)[name].endswith("ADMITTED = [\n]\n")


# The configuration of a full build ----------------------------------------------------------------


@pytest.mark.parametrize("compiler", COMPILERS)
def test_configure_gets_every_answer_with_the_machines_own_paths(
    compiler: str, tmp_path: Path
) -> None:
    plan = planned_full(compiler=compiler)
    write(render(plan, TEMPLATES), tmp_path)
    script = f"set -eu; set -a; . {shlex.quote(str(tmp_path / 'configure.env'))}; env"
    env = {"PATH": "/usr/bin:/bin", "PYTHON_BIN": "/my tools/python", "CLANG": "/my tools/clang"}
    done = subprocess.run(["sh", "-c", script], env=env, capture_output=True, text=True, check=True)
    answers = dict(line.split("=", 1) for line in done.stdout.splitlines())
    paths = {"{python_bin}": "/my tools/python", "{clang}": "/my tools/clang"}
    for name, value in plan.full_recipe.configure_env:
        assert answers[name] == paths.get(value, value)


@pytest.mark.parametrize("release", RELEASES)
def test_the_tuning_stands_in_copt_only(release: str) -> None:
    plan = planned_full(release=release)
    lines = render(plan, TEMPLATES)["tensorwright.bazelrc"].splitlines()
    tuned = [line for line in lines if any(flag in line for flag in plan.flags)]
    assert tuned == [f"build:tensorwright --copt={flag}" for flag in plan.flags]
    assert not [line for line in lines if "host_copt" in line]
    assert not any(flag in render(plan, TEMPLATES)["configure.env"] for flag in plan.flags)


def test_link_time_optimization_stands_in_both_steps() -> None:
    plan = planned_full(lto=True)
    lines = render(plan, TEMPLATES)["tensorwright.bazelrc"].splitlines()
    assert "build:tensorwright --copt=-flto=thin" in lines
    assert "build:tensorwright --linkopt=-flto=thin" in lines


@pytest.fixture(scope="module")
def real_bazel() -> bazel.Bazel:
    return bazel.find_bazel(settings.paths(), planned().bazel)


@pytest.mark.toolchain
@pytest.mark.parametrize("plan", [planned(), planned_full("neoverse_v1")])
def test_bazel_knows_every_option_that_is_rendered(
    plan: Plan, real_bazel: bazel.Bazel, tmp_path: Path
) -> None:
    files = render(plan, TEMPLATES)
    text = files.get(".bazelrc") or files["tensorwright.bazelrc"]
    lines = [line for line in text.splitlines() if line.startswith("build")]
    options = [line.partition(" ")[2] for line in lines]
    assert len(options) > 5
    (tmp_path / "WORKSPACE").touch()
    paths = Paths(root=ROOT, cache=tmp_path / "cache", pool=tmp_path / "pool")
    words = [real_bazel.bazelisk, *bazel.build_startup_options(real_bazel, paths)]
    words += ["canonicalize-flags", "--for_command=build", "--", *options]
    env = bazel.build_environment(real_bazel.use)
    done = run([str(word) for word in words], cwd=tmp_path, env=env, timeout_s=300)
    known = {line.partition("=")[0] for line in done.output.splitlines()}
    assert {option.partition("=")[0].replace("--no", "--") for option in options} <= known


# Files on disk ------------------------------------------------------------------------------------


def test_what_was_written_is_what_the_plan_renders(tmp_path: Path) -> None:
    files = render(planned(), TEMPLATES)
    write(files, tmp_path)
    check(files, tmp_path)


def test_files_that_are_as_they_should_be_are_not_touched(tmp_path: Path) -> None:
    files = render(planned_full(), TEMPLATES)
    write(files, tmp_path)
    before = {path: path.stat().st_ino for path in tmp_path.iterdir()}
    (tmp_path / "configure.env").write_text("other\n")
    write(files, tmp_path)
    after = {path: path.stat().st_ino for path in tmp_path.iterdir()}
    assert [path.name for path in before if before[path] != after[path]] == ["configure.env"]
    check(files, tmp_path)


@pytest.mark.parametrize(
    ("content", "shown"),
    [
        (b"build:tensorwright --copt=-O3\n", "-build:tensorwright --copt=-O3"),
        (b"", "+build:tensorwright --copt=-march=skylake"),
        (b"\xff\xfe\x00", "-\ufffd\ufffd\x00"),
    ],
)
def test_a_changed_file_is_shown_as_a_difference(
    content: bytes, shown: str, tmp_path: Path
) -> None:
    files = render(planned_full(), TEMPLATES)
    write(files, tmp_path)
    (tmp_path / "tensorwright.bazelrc").write_bytes(content)
    with pytest.raises(DriftError, match=r"tensorwright\.bazelrc") as caught:
        check(files, tmp_path)
    assert shown in caught.value.message.splitlines()


def test_other_line_ends_are_a_difference(tmp_path: Path) -> None:
    files = render(planned_full(), TEMPLATES)
    write(files, tmp_path)
    path = tmp_path / "configure.env"
    path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))
    with pytest.raises(DriftError, match=r"configure\.env"):
        check(files, tmp_path)


def test_a_missing_file_is_a_difference(tmp_path: Path) -> None:
    files = render(planned(), TEMPLATES)
    write(files, tmp_path)
    (tmp_path / "BUILD.bazel").unlink()
    with pytest.raises(DriftError, match=r"BUILD\.bazel"):
        check(files, tmp_path)


def test_a_folder_that_cannot_be_made_is_a_disk_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(DiskError, match=str(tmp_path / "file")):
        write(render(planned(), TEMPLATES), tmp_path / "file" / "out")
