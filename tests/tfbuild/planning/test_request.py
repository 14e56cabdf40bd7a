from __future__ import annotations

import dataclasses
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.builders.plans import plan_for, requested

from tfbuild.commands import Request
from tfbuild.planning.plan import make_full_plan, make_plan
from tfbuild.planning.request import choose_python, resolve, resolve_fleets
from tfbuild.planning.target_compiler import find_buildable_target
from tfbuild.upstream.releases import load_releases
from tfcore.cpus.compilers import find_compiler, read_macros
from tfcore.cpus.cpu import read_cpu
from tfcore.cpus.features import filter_codegen
from tfcore.cpus.flags import list_implied_features
from tfcore.cpus.targets import create_stock_target, find_missing_features, match_cpu
from tfcore.errors import CompilerError, ReleaseError, TargetError, TensorwrightError
from tfcore.run import run

PUBLISHED = ("-mavx",)
"""The flags of the published x86-64 wheels: avx_linux in TensorFlow's .bazelrc."""

OWN = f"{sys.version_info.major}.{sys.version_info.minor}"


@pytest.mark.toolchain
@pytest.mark.parametrize("name", ["g++", "clang-16"])
def test_a_compiler_that_is_here_is_asked_what_it_does(name: str) -> None:
    plan, compiler = plan_for(Request(arch="haswell", compiler=name, python="3.11"))
    chosen_compiler = find_compiler(name, "x86_64")
    assert compiler == chosen_compiler
    assert (plan.compiler, plan.compiler_version) == (
        chosen_compiler.family,
        chosen_compiler.version,
    )
    used = filter_codegen(list_implied_features(read_macros(chosen_compiler, plan.flags)), "x86_64")
    assert used <= set(plan.required)
    assert filter_codegen(plan.target.features, "x86_64") <= set(plan.required)


@pytest.mark.toolchain
def test_without_a_name_the_best_compiler_is_taken() -> None:
    _, compiler = plan_for(Request(arch="haswell", python="3.11"))
    assert compiler == find_compiler(None, "x86_64")


@pytest.mark.toolchain
def test_another_architecture_gets_a_compiler_for_it() -> None:
    plan, compiler = plan_for(Request(arch="neoverse_v1", python="3.11"))
    assert compiler.architecture == plan.target.family == "aarch64"
    assert "sve" in plan.required


def test_a_declared_compiler_is_believed_without_one_here(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    plan, _ = plan_for(Request(arch="skylake", compiler="clang@16.0.6"))
    assert plan.flags == ("-march=skylake", "-mtune=skylake")
    with pytest.raises(CompilerError, match="x86_64"):
        plan_for(Request(arch="skylake"))
    with pytest.raises(CompilerError, match="called clang-16"):
        plan_for(Request(arch="skylake", compiler="clang-16"))


@pytest.mark.parametrize("arch", ["native", "Native", " native "])
def test_native_becomes_a_name_and_features_that_this_cpu_has(arch: str) -> None:
    plan, compiler = plan_for(Request(arch=arch))
    assert plan.target == find_buildable_target(match_cpu(read_cpu()).native, compiler)
    assert plan.target.name != "native"
    assert find_missing_features(plan.target, read_cpu()) == ()
    assert not any("native" in flag for flag in plan.flags)


@pytest.mark.parametrize(
    ("request_", "error"),
    [
        (Request(arch="skylak"), TargetError),
        (Request(arch=""), TargetError),
        (Request(release="1.15"), ReleaseError),
        (Request(arch="skylake", compiler="tcc"), CompilerError),
    ],
)
def test_what_is_unknown_is_named(request_: Request, error: type[Exception]) -> None:
    with pytest.raises(error):
        plan_for(request_)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"release": "1.15", "arch": "skylak"}, "TensorFlow 1.15"),
        ({"release": "1.15", "arch": ","}, "--arch names no target"),
        ({"arch": "skylak", "flags": "-g"}, "no target skylak"),
        ({"compiler": "tcc@1", "flags": "-g"}, "tcc@1"),
        ({"flags": "-g", "pgo": "/nowhere.py"}, "-g is not allowed"),
        ({"pgo": "/nowhere.py", "source": "/nowhere"}, "--pgo /nowhere.py"),
        ({"evidence": "/nowhere.json", "source": "/nowhere"}, "/nowhere.json"),
        ({"source": "/nowhere", "package": "tf"}, "--source /nowhere"),
        ({"scope": "half", "python": "three"}, "--scope half"),
        ({"python": "three", "package": "tf"}, "--python three"),
        ({"package": "tf", "lto": True}, "--package tf"),
        ({"arch": "haswell,skylak", "package": "tf"}, "--package tf"),
    ],
)
def test_of_two_wrong_options_the_same_one_is_always_named(
    options: dict[str, Any], message: str
) -> None:
    with pytest.raises(TensorwrightError, match=re.escape(message)):
        resolve_fleets(requested(**{"python": "3.11"} | options), make_plan)


@pytest.mark.parametrize("pythons", [release.pythons for release in load_releases()])
def test_the_python_is_this_one_or_the_newest_that_the_release_has(
    pythons: tuple[str, ...],
) -> None:
    newest = max(pythons, key=lambda python: tuple(int(part) for part in python.split(".")))
    assert choose_python(pythons) == (OWN if OWN in pythons else newest)


@pytest.mark.parametrize("option", ["evidence", "selection", "source", "pgo"])
def test_the_home_folder_is_found_where_no_shell_expands_it(
    option: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """As in --evidence=~/one.json."""
    monkeypatch.setenv("HOME", str(tmp_path))
    words: dict[str, Any] = {"arch": "skylake", "compiler": "clang@16.0.6", option: "~/none"}
    with pytest.raises(TensorwrightError, match=rf"{tmp_path}/none"):
        plan_for(Request(**words))


STOCK = Request(arch=" Stock ", release="2.14.1", python="3.11")
# Vectors, bits, division, a copy and a conversion: what tuning and features change.
SAMPLE = """
#include <cstdint>
#include <cstring>
void scale(float* to, const float* from, int n) {
  for (int i = 0; i < n; ++i) to[i] = from[i] * 2.5f + to[i];
}
int bits(const std::uint64_t* from, int n) {
  int sum = 0;
  for (int i = 0; i < n; ++i) sum += __builtin_popcountll(from[i]) + __builtin_ctzll(from[i]);
  return sum;
}
double mean(const int* from, int n) {
  double sum = 0;
  for (int i = 0; i < n; ++i) sum += from[i] / 7;
  return sum / n;
}
struct Row { char text[200]; };
void copy(Row* to, const Row* from) { std::memcpy(to, from, sizeof(Row)); }
"""


@pytest.mark.toolchain
@pytest.mark.parametrize("name", ["g++", "clang-16"])
def test_stock_is_what_the_published_wheels_flags_do(name: str) -> None:
    plan, compiler = plan_for(dataclasses.replace(STOCK, compiler=name))
    published = read_macros(compiler, PUBLISHED)
    assert read_macros(compiler, plan.flags) == published
    assert set(plan.required) == filter_codegen(list_implied_features(published), "x86_64")
    assert "-mtune=generic" in plan.flags


@pytest.mark.toolchain
@pytest.mark.parametrize("name", ["g++", "clang-16"])
@pytest.mark.parametrize("level", ["-O2", "-O3"])
def test_stock_makes_the_code_that_the_published_wheels_flags_make(
    name: str, level: str, tmp_path: Path
) -> None:
    source = tmp_path / "sample.cc"
    source.write_text(SAMPLE)

    def code(arch: str, flags: tuple[str, ...]) -> str:
        out = tmp_path / f"{arch}.s"
        run([find_compiler(name).path, *flags, level, "-S", source, "-o", out])
        return out.read_text()

    plan, _ = plan_for(dataclasses.replace(STOCK, compiler=name))
    haswell, _ = plan_for(dataclasses.replace(STOCK, arch="haswell", compiler=name))
    published = code("published", PUBLISHED)
    assert code("stock", plan.flags) == published
    assert code("haswell", haswell.flags) != published


@pytest.mark.parametrize("release", [release.version for release in load_releases()])
def test_stock_can_be_planned_for_every_release(release: str) -> None:
    request = Request(arch="stock", release=release, scope="full", compiler="clang@18.1.8")
    plan = make_full_plan(resolve(request))
    assert plan.version == f"{release}+stock.flags.full"
    assert plan.target == create_stock_target("x86_64")


def test_stock_on_a_machine_whose_stock_flags_are_unknown_is_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("platform.machine", lambda: "riscv64")
    with pytest.raises(TargetError, match="riscv64"):
        plan_for(dataclasses.replace(STOCK, compiler="clang@16.0.6"))
