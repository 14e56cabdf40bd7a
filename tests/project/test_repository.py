"""What must hold for the checkout as a whole."""

from __future__ import annotations

import ast
import lzma
import os
import re
import subprocess
from pathlib import Path

import pytest
import tasks

from tfcore.settings import ROOT

# Addresses of package registries, and folders of one person's machine.
FOREIGN = re.compile(
    r"//[a-z0-9.-]*(?:deb(?:ian)?|py(?:pi|thonhosted)|npm(?:js)?)\.(?:org|com|io)"
    r"|(?<![\w.~$})\"'])/(?:work|farm|root|home)/"
)
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


def git(*words: str) -> list[str]:
    done = subprocess.run(
        ["git", *words], cwd=ROOT, capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode in {0, 1}, done.stderr
    return done.stdout.splitlines()


def files() -> list[str]:
    """Everything that is tracked, or would be."""
    actual = git("ls-files", "--cached", "--others", "--exclude-standard")
    return [name for name in actual if (ROOT / name).is_file()]


@pytest.mark.parametrize(
    "name",
    [
        "build/tfbuild/new.py",
        "build/tfbuild/native/new.cc",
        "build/tfbuild/upstream/locks/new.txt",
        "build/npm/package-lock.json",
        "wheels/tfwheels/new.py",
        "benchmarks/tfbench/new.py",
        "templates/kernels/new.j2",
        "tests/test_new.py",
        "tests/data/cpuinfo/new",
        "tests/golden/kernels-new/BUILD.bazel",
        "tests/golden/kernels-new/.bazelrc",
        ".github/workflows/new.yml",
    ],
)
def test_no_source_is_ignored(name: str) -> None:
    """A bare build/ or wheels/ in some ignore file would hide our code from git and from ruff."""
    assert git("check-ignore", "--no-index", "--verbose", name) == []


@pytest.mark.parametrize(
    "name",
    [
        "wheels/tensorflow_cpu-2.14.1+skylake-cp311-cp311-linux_x86_64.whl",
        "wheels/tensorflow_cpu-2.14.1+skylake-cp311-cp311-linux_x86_64.json",
        "reports/rendered/plan.json",
        ".venv/bin/python",
        ".tensorwright/downloads/file",
    ],
)
def test_no_output_is_committed_by_accident(name: str) -> None:
    assert git("check-ignore", "--no-index", name) == [name]


def test_no_file_names_a_registry_or_a_folder_of_one_machine() -> None:
    actual = [
        f"{name}:{number}: {line.strip()[:120]}"
        for name in files()
        for number, line in enumerate(text_of(ROOT / name).splitlines(), 1)
        if FOREIGN.search(line)
    ]
    assert actual == []


def text_of(path: Path) -> str:
    """The text of a committed file, a compressed recording's as well."""
    content = path.read_bytes()
    return (lzma.decompress(content) if path.suffix == ".xz" else content).decode("utf-8")


@pytest.mark.parametrize(
    ("text", "foreign"),
    [
        ("https://deb.debian" + ".org/debian", True),
        ("https://files.python" + "hosted.org/x", True),
        ("registry: //registry.npm" + "js.org/", True),
        ("cd /ho" + "me/me/x", True),
        ("https://github.com/tensorflow", False),
        ("bazel-out/host/ and tests/home/x", False),
    ],
)
def test_what_is_foreign_is_seen(text: str, *, foreign: bool) -> None:
    assert bool(FOREIGN.search(text)) == foreign


def test_what_is_run_can_be_run() -> None:
    for name in ("inv", ".ci/run"):
        assert os.access(ROOT / name, os.X_OK)
        subprocess.run(["bash", "-n", ROOT / name], check=True)


def test_ci_runs_the_readmes_test_command() -> None:
    script = (ROOT / ".ci" / "run").read_text("utf-8").splitlines()
    command = "./inv test"
    assert script[-1] == f"exec {command}"
    assert command in (ROOT / "README.md").read_text("utf-8")


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_workflows_run_tasks_and_pin_what_they_use(path: Path) -> None:
    text = path.read_text("utf-8")
    ran = set(re.findall(r"^ +(?:- run: )?\./inv ([a-z-]+)", text, re.MULTILINE))
    assert ran
    assert ran <= set(tasks.ns.task_names)
    used = re.findall(r"uses: (\S+)", text)
    assert all(re.fullmatch(r"[\w.-]+/[\w.-]+@[0-9a-f]{40}", name) for name in used)
    assert "permissions: {}" in text
    assert "\t" not in text


@pytest.mark.parametrize(
    "path", sorted((ROOT / "tests" / "integration").glob("*.py")), ids=lambda path: path.stem
)
def test_integration_tests_ask_one_module_for_the_cpu(path: Path) -> None:
    """tests/builders/own_cpu.py: or they pass on the CPU that they were written on only."""
    tree = ast.parse(path.read_text("utf-8"))
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    names = {name.name for node in imports for name in node.names}
    texts = {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant)}
    assert names.isdisjoint({"read_cpu", "detect", "cpuinfo"})
    assert not any("/proc/cpuinfo" in str(text) for text in texts)
