"""The console script, from the wheel of this checkout in an environment that has no checkout."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from tfcore.settings import ROOT

pytestmark = pytest.mark.toolchain


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Dependencies are those of this environment: only our own wheel is installed."""
    folder = tmp_path_factory.mktemp("installed")
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet")
    subprocess.run([*pip, "wheel", "--no-deps", "--wheel-dir", folder, ROOT], check=True)
    (wheel,) = folder.glob("tensorwright-*.whl")
    bare = folder / "environment"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", bare], check=True)
    site = bare / Path(sysconfig.get_path("purelib")).relative_to(sys.prefix)
    subprocess.run(
        [*pip, "--python", bare / "bin" / "python", "install", "--no-deps", wheel], check=True
    )
    (site / "dependencies.pth").write_text(f"{sysconfig.get_path('purelib')}\n", encoding="utf-8")
    return bare / "bin" / "tensorwright"


def tensorwright(script: Path, folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    env = {name: os.environ[name] for name in os.environ if name != "PYTHONPATH"}
    env |= {"TENSORWRIGHT_CACHE": str(folder / "cache"), "COLUMNS": "200"}
    return subprocess.run(
        [script, *words], cwd=folder, env=env, capture_output=True, text=True, check=False
    )


def test_it_says_what_this_cpu_is(script: Path, tmp_path: Path) -> None:
    done = tensorwright(script, tmp_path, "detect", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["cpu"]["architecture"] == platform.machine()


def test_it_plans_and_renders_as_in_a_checkout(script: Path, tmp_path: Path) -> None:
    words = ("--arch", "haswell", "--release", "2.14.1", "--compiler", "clang@16.0.6")
    done = tensorwright(script, tmp_path, "plan", *words, "--json")
    assert done.returncode == 0, done.stderr
    invoke = (sys.executable, "-m", "invoke", "--search-root", str(ROOT))
    checkout = [*invoke, "plan", *words, "--json"]
    stdout = subprocess.run(checkout, capture_output=True, text=True, check=True).stdout
    assert json.loads(done.stdout)["key"] == json.loads(stdout)["key"]
    rendered = tensorwright(script, tmp_path, "render", *words)
    assert rendered.returncode == 0, rendered.stderr
    assert list((tmp_path / "reports" / "rendered").rglob("BUILD.bazel"))


def test_it_reports_what_it_has_data_and_templates_for(script: Path, tmp_path: Path) -> None:
    done = tensorwright(script, tmp_path, "report", "--totals", "2017")
    assert done.returncode == 0, done.stderr
    assert list((tmp_path / "reports").rglob("report.html"))


def test_it_names_its_own_commands(script: Path, tmp_path: Path) -> None:
    listed = tensorwright(script, tmp_path, "--list").stdout
    assert "tensorwright --list all" in listed
    refused = tensorwright(script, tmp_path, "plan", "--arch", "no_such_cpu")
    assert refused.returncode == 11
    assert "tensorwright targets" in refused.stderr
    assert "invoke" not in listed + refused.stderr


def test_what_needs_a_checkout_says_so(script: Path, tmp_path: Path) -> None:
    done = tensorwright(script, tmp_path, "lint")
    assert done.returncode == 2
    assert "needs a checkout" in done.stderr
    assert done.stderr.count("\n") == 1
