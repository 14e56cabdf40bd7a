from __future__ import annotations

import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
import tasks
from invoke.parser import Parser

from tfbuild.planning.containers import BASE
from tfbuild.remote import caches
from tfcore.cpus.features import load_features
from tfcore.settings import ROOT

FOLDER = ROOT / ".github" / "workflows"
BUILD = (FOLDER / "build-wheel.yml").read_text("utf-8")
TOOLS = Path(sys.executable).parent
WRITE = "Write the bazelrc to a file that only its owner can read"
SECRET = "Bearer not-for-argv"  # noqa: S105  (invented)


def lint(*words: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(words, capture_output=True, text=True, check=False, timeout=60)


def script(step: str) -> str:
    """The shell text of a step of build-wheel."""
    own_text = r"(?: {8,}\S.*\n)*?"  # its other keys
    pattern = rf"name: {re.escape(step)}\n{own_text} {{8}}run: \|\n((?: {{10}}.*\n|\n)+)"
    match = re.search(pattern, BUILD)
    assert match is not None, step
    return textwrap.dedent(match[1])


def run_step(step: str, folder: Path, **env: str) -> str:
    """Run a step's script as the runner does, beside an ./inv that says how it was called."""
    inv = folder / "inv"
    inv.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n', encoding="utf-8")
    inv.chmod(0o755)
    fields = {"JOBS": "", "REMOTE_CACHE": "", "TARGET": "skylake", "RELEASE": "2.14.1"}
    fields |= {"PATH": os.environ["PATH"], "RUNNER_TEMP": str(folder)}
    fields |= {"GITHUB_OUTPUT": str(folder / "output"), "SCOPE": "full"} | env
    words = ["bash", "--noprofile", "--norc", "-euo", "pipefail", "-c", script(step)]
    done = subprocess.run(
        words, cwd=folder, env=fields, capture_output=True, text=True, check=True, timeout=60
    )
    return done.stdout


def options(message: str) -> dict[str, object]:
    """What tasks.py reads from the words that ./inv was called with."""
    parser = Parser(contexts=tasks.ns.to_contexts())
    context = parser.parse_argv(message.splitlines())[0]
    assert context.name == "build"
    return dict(context.as_kwargs)


@pytest.mark.toolchain
def test_zizmor_finds_nothing() -> None:
    done = lint(TOOLS / "zizmor", "--offline", "--no-progress", "--color=never", FOLDER)
    assert done.returncode == 0, done.stdout


@pytest.mark.toolchain
def test_zizmor_finds_an_input_in_a_script(tmp_path: Path) -> None:
    path = tmp_path / "bad.yml"
    path.write_text(BUILD.replace('"$TARGET"', "${{ inputs.release }}"), encoding="utf-8")
    done = lint(TOOLS / "zizmor", "--offline", "--no-progress", "--color=never", path)
    assert done.returncode != 0
    assert "template-injection" in done.stdout


@pytest.mark.toolchain
def test_workflows_are_of_githubs_schema(tmp_path: Path) -> None:
    check = (TOOLS / "check-jsonschema", "--builtin-schema", "vendor.github-workflows")
    done = lint(*check, *sorted(FOLDER.glob("*.yml")))
    assert done.returncode == 0, done.stdout
    bad = tmp_path / "bad.yml"
    bad.write_text(BUILD.replace("timeout-minutes:", "timeout_minutes:"), encoding="utf-8")
    assert lint(*check, bad).returncode == 1


def test_wheels_are_built_in_the_containers_base() -> None:
    assert re.findall(r"^ +image: (.*)$", BUILD, re.MULTILINE) == [BASE]


def test_a_kernels_build_gets_its_options(tmp_path: Path) -> None:
    record = options(run_step("./inv build", tmp_path, SCOPE="kernels", JOBS="2"))
    assert (record["arch"], record["release"], record["scope"]) == ("skylake", "2.14.1", "kernels")
    assert (record["install"], record["jobs"]) == (True, "2")
    assert not record["auto_fix"]


def test_a_full_build_gets_the_remote_cache_and_its_headers_as_a_file(tmp_path: Path) -> None:
    lines = f'build "--remote_header=Authorization={SECRET}"\nbuild --remote_timeout=9s'
    run_step(WRITE, tmp_path, BAZELRC=lines)
    text = run_step("./inv build", tmp_path, REMOTE_CACHE="https://cache.example")
    record = options(text)
    remote = caches.resolve_remote(
        cache=str(record["remote_cache"]), rc=Path(str(record["bazelrc"]))
    )
    caches.check_settings(remote)
    assert remote.cache == "https://cache.example"
    assert remote.rc.secrets == (("Authorization", SECRET),)
    assert remote.rc.get_values("remote_timeout") == ("9s",)
    assert "Bearer" not in text
    assert record["auto_fix"]


def test_without_a_secret_there_is_no_bazelrc(tmp_path: Path) -> None:
    run_step(WRITE, tmp_path, BAZELRC="")
    assert not (tmp_path / "bazelrc").exists()
    record = options(run_step("./inv build", tmp_path, REMOTE_CACHE="https://cache.example"))
    assert record["bazelrc"] == ""


@pytest.mark.parametrize("target", ["x86_64_v4+avx512_bf16/zen4", "a b", "$(touch seen)", "x;y"])
def test_a_target_is_one_word_and_names_an_artifact(target: str, tmp_path: Path) -> None:
    assert options(run_step("./inv build", tmp_path, TARGET=target))["arch"] == target
    assert not (tmp_path / "seen").exists()
    name = (tmp_path / "output").read_text("utf-8")
    assert re.fullmatch(r"name=[A-Za-z0-9._+-]+\n", name)


def test_secrets_are_seen_by_the_one_step_that_writes_them() -> None:
    assert len(re.findall(r"secrets\.", BUILD)) == 1
    step = BUILD.index("BAZELRC: ${{ secrets.")
    assert BUILD.rindex("- name:", 0, step) == BUILD.index("- name: Write the bazelrc")


def test_each_night_a_cpu_without_avx512_is_tried() -> None:
    night = (FOLDER / "nightly.yml").read_text("utf-8")
    mask = re.search(r'TENSORWRIGHT_MASK: "(.+)"', night)
    assert mask is not None
    newer = ("avx512", "amx_", "avx_")
    hidden = {name for name in load_features("x86_64") if name.startswith(newer)}
    assert {*mask[1].split(",")} == hidden
