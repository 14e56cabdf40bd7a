from __future__ import annotations

import dataclasses
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import tasks
from invoke.parser import Parser
from tests.builders.container_files import CASES, contained, fleet
from tests.tools.regenerate import COMMAND, GOLDEN

from tfbuild.commands import Request
from tfbuild.machine.programs import PROGRAMS
from tfbuild.planning.containers import BASE
from tfbuild.tools import doctor
from tfcore.errors import CompilerError, PythonError
from tfcore.settings import ROOT, paths

HADOLINT = Path(sys.executable).with_name("hadolint")
FULL = Request(arch="skylake", scope="full", compiler="clang@16.0.6")
KERNELS = dataclasses.replace(FULL, scope="kernels", kernels="mini")
FILES = ("build.Dockerfile", "compare.Dockerfile")


def command(text: str) -> list[str]:
    """The words of ENTRYPOINT."""
    match = re.search(r"^ENTRYPOINT (\[.*\])$", text, re.MULTILINE)
    assert match is not None
    words: list[str] = json.loads(match[1])
    return words


def packages(text: str) -> set[str]:
    match = re.search(r"--no-install-recommends \\\n((?: +\S+ \\\n)+)", text)
    assert match is not None
    return set(re.findall(r"(\S+) \\", match[1]))


def requested(words: list[str]) -> Request:
    """What tasks.py would make of the words."""
    program, *remainder = words
    assert program == "./inv"
    parsed: dict[str, Any] = dict(
        Parser(contexts=tasks.ns.to_contexts()).parse_argv(remainder)[0].as_kwargs
    )
    fields = {field.name for field in dataclasses.fields(Request)}
    return Request(**{name: value for name, value in parsed.items() if name in fields})


@pytest.mark.parametrize("name", CASES)
def test_containers_render_to_the_golden_files(name: str) -> None:
    golden_files = {path.name: path.read_text("utf-8") for path in (GOLDEN / name).iterdir()}
    assert golden_files == contained(*CASES[name]), f"if that is meant: {COMMAND}"


@pytest.mark.toolchain
@pytest.mark.parametrize("request_", [FULL, KERNELS], ids=lambda case: case.scope)
def test_hadolint_finds_nothing(request_: Request, tmp_path: Path) -> None:
    for name, text in contained(request_, 4).items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    words: list[str | Path] = [HADOLINT, "--no-color", *(tmp_path / name for name in FILES)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.toolchain
def test_hadolint_finds_what_is_wrong(tmp_path: Path) -> None:
    path = tmp_path / "build.Dockerfile"
    path.write_text(contained(FULL)[path.name].replace(BASE, "debian:latest"), encoding="utf-8")
    done = subprocess.run([HADOLINT, path], capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "DL3007" in done.stdout


@pytest.mark.parametrize("name", FILES)
def test_images_start_from_a_pinned_base_and_end_as_a_plain_user(name: str) -> None:
    text = contained(FULL)[name]
    assert re.findall(r"^FROM (.*)$", text, re.MULTILINE) == [BASE]
    assert re.search(r":\S+@sha256:[0-9a-f]{64}$", BASE)
    assert re.findall(r"^USER (.*)$", text, re.MULTILINE) == ["$UID"]
    assert text.index("\nUSER ") < text.index("\nENTRYPOINT ")


@pytest.mark.parametrize("name", FILES)
def test_no_secret_has_a_place_in_an_image(name: str) -> None:
    text = contained(FULL)[name]
    assert re.findall(r"^ARG (\w+)", text, re.MULTILINE) == ["SNAPSHOT", "DEBIAN_FRONTEND", "UID"]
    set_here = " ".join(re.findall(r"^ENV (.*)$", text, re.MULTILINE))
    assert re.findall(r"(\w+)=", set_here) == ["TENSORWRIGHT_CACHE", "TENSORWRIGHT_WHEELS"]


@pytest.mark.slow
def test_what_is_copied_into_an_image_is_enough(tmp_path: Path) -> None:
    lines = contained(FULL)["build.Dockerfile.dockerignore"].splitlines()
    everything, *rules = [line for line in lines if not line.startswith("#")]
    assert everything == "*"
    kept_lines = [rule.removeprefix("!") for rule in rules if rule.startswith("!")]
    assert not {"wheels", ".git", "reports", "."} & set(kept_lines)
    for name in kept_lines:
        path = ROOT / name
        if path.is_dir():
            shutil.copytree(path, tmp_path / name, ignore=shutil.ignore_patterns("node_modules"))
        else:
            shutil.copy2(path, tmp_path / name)
    inv: list[str | Path] = [sys.executable, "-m", "invoke", "--search-root", tmp_path]
    for words in (["plan", "--arch=skylake", "--compiler=clang@16.0.6"], ["compare", "--help"]):
        done = subprocess.run([*inv, *words], cwd=tmp_path, capture_output=True, check=False)
        assert done.returncode == 0, done.stderr
    rendered = subprocess.run(
        [*inv, "report", "--totals=2017"], cwd=tmp_path, capture_output=True, check=False
    )
    assert rendered.returncode == 0, rendered.stderr


@pytest.mark.parametrize("request_", [FULL, KERNELS], ids=lambda case: case.scope)
def test_an_image_has_what_a_build_asks_for(request_: Request) -> None:
    installed = packages(contained(request_)["build.Dockerfile"])
    needed = {package for need in doctor.list_dependencies(paths()) for package in need.packages}
    assert needed <= installed
    if request_.scope == "full":
        base = {"coreutils"}  # no Debian is without them
        assert {program.package for program in PROGRAMS} - base <= installed
        assert {"python3-dev", "lld-16", "llvm-16"} <= installed


def test_gcc_needs_no_clang() -> None:
    text = contained(dataclasses.replace(FULL, compiler="gcc@12.2.0"))["build.Dockerfile"]
    installed = packages(text)
    assert "g++-12" in installed
    assert not any(name.startswith(("clang", "lld", "llvm")) for name in installed)
    assert requested(command(text)).compiler == "g++-12"


@pytest.mark.parametrize(
    "image_request",
    [
        FULL,
        KERNELS,
        dataclasses.replace(FULL, lto=True, release="2.16.2"),
        dataclasses.replace(KERNELS, arch="zen4,haswell"),
        dataclasses.replace(KERNELS, arch="x86_64_v4+avx512_bf16/zen4"),
        dataclasses.replace(KERNELS, arch="stock", package="tensorflow"),
    ],
    ids=lambda case: f"{case.scope}-{case.arch}",
)
def test_the_images_command_asks_for_the_same_plans(image_request: Request) -> None:
    words = command(contained(image_request)["build.Dockerfile"])
    again = dataclasses.replace(requested(words), compiler=image_request.compiler)
    assert fleet(again) == fleet(image_request)


@pytest.mark.toolchain
def test_the_images_compiler_makes_the_same_plan_as_here() -> None:
    local_request = dataclasses.replace(FULL, compiler="clang-16")
    words = command(contained(local_request)["build.Dockerfile"])
    assert fleet(requested(words)) == fleet(local_request)


@pytest.mark.parametrize(("vcpus", "cpus"), [(1, "0"), (2, "0-1"), (16, "0-15")])
def test_an_image_is_run_on_as_many_cpus_as_it_compares_on(vcpus: int, cpus: str) -> None:
    text = contained(FULL, vcpus)["compare.Dockerfile"]
    assert f"docker run --rm --init --cpuset-cpus {cpus} " in text
    assert command(text) == ["./inv", "compare", "--vcpus", str(vcpus)]


def test_without_a_number_all_cpus_are_used() -> None:
    for name in FILES:
        text = contained(FULL)[name]
        assert "--vcpus" not in text
        assert "--init --volume" in text


@pytest.mark.parametrize(
    ("image_request", "error", "message"),
    [
        (dataclasses.replace(FULL, compiler="clang@18.1.8"), CompilerError, "clang 18.1.8"),
        (dataclasses.replace(FULL, compiler="gcc@9.3.1"), CompilerError, "gcc 9.3.1"),
        (dataclasses.replace(FULL, release="2.9.3"), PythonError, "3.10"),
        (dataclasses.replace(FULL, python="3.12", release="2.16.2"), PythonError, "3.12"),
    ],
)
def test_what_debian_12_does_not_have_is_refused(
    image_request: Request, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=re.escape(message)):
        contained(image_request)
