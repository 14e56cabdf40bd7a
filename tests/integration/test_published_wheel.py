"""A wheel that was really built, from the audit to an import of what was installed."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.builders.gate_comparisons import compared
from tests.builders.installed_wheel import Tried
from tests.builders.invoke_calls import Tasks, started
from tests.builders.later import later
from tests.builders.own_cpu import own_cpu
from tests.builders.served_index import running

from tfbuild.kernelbuild import admission
from tfbuild.packing.repack import repack
from tfbuild.packing.tuned import KernelLibrary, read_tuned
from tfbuild.packing.wheel import open_wheel
from tfcore.run import run
from tfcore.settings import paths as users_paths
from tfwheels.serve import TreeServer

pytestmark = pytest.mark.toolchain

STOCK = "2.14.1"
WANTED = "tensorflow-cpu==2.14.1"
LOADED = """
import json, pathlib, sys
import tensorflow as tf
maps = pathlib.Path("/proc/self/maps").read_text().split()
libraries = sorted({word for word in maps if "libtensorwright_kernels" in word})
print(json.dumps([tf.__file__, libraries, float(tf.tanh(0.0))]))
"""
ENV = {
    name: value for name, value in os.environ.items() if not name.startswith(("PIP_", "UV_"))
} | {"PIP_CONFIG_FILE": os.devnull, "UV_NO_CONFIG": "1", "no_proxy": "127.0.0.1"}


@pytest.fixture(scope="module")
def invoke(tmp_path_factory: pytest.TempPathFactory) -> Tasks:
    """With the user's own cache: it has the stock wheel, and what was counted in it."""
    tasks = Tasks(tmp_path_factory.mktemp("published"))
    tasks.env["TENSORWRIGHT_CACHE"] = str(users_paths().cache)
    return tasks


@pytest.fixture(scope="module")
def published(invoke: Tasks, native: Tried) -> dict[str, Any]:
    """What `invoke publish` said of the index that it has made, as JSON."""
    compared(invoke.folder / "measured", native.built.wheel)
    words = ("--to", "index", "--wheels", str(native.built.wheel), "--json")
    done = invoke("publish", *words, "--comparison", "measured")
    assert done.returncode == 0, done.stderr
    document: dict[str, Any] = json.loads(done.stdout)
    return document


@pytest.fixture(scope="module")
def served(invoke: Tasks, published: dict[str, Any]) -> Iterator[TreeServer]:
    with running(TreeServer(invoke.folder / published["index"], 0)) as server:
        yield server


def packages(python: Path) -> Path:
    (path,) = python.parents[1].glob("lib/python*/site-packages")
    return path


def install(name: str, index: str, python: Path, stock_python: Path) -> str:
    """Install what is wanted from an index into a new environment; the version that came."""
    run([stock_python, "-m", "venv", "--without-pip", python.parents[1]])
    pip: tuple[str | Path, ...] = (sys.executable, "-m", "pip", "--isolated", "--python", python)
    pip = (*pip, "install", "--no-cache-dir", "--no-compile", "--disable-pip-version-check")
    uv = (Path(sys.executable).with_name("uv"), "pip", "install", "--no-cache", "--python", python)
    begin = (*pip, "--index-url", index) if name == "pip" else (*uv, "--default-index", index)
    run([*begin, "--no-deps", "--quiet", WANTED], env=ENV, timeout_s=300)
    (info,) = packages(python).glob("tensorflow_cpu-*.dist-info")
    return info.name.removeprefix("tensorflow_cpu-").removesuffix(".dist-info")


def tuned_target(published: dict[str, Any], wheel: Path) -> str:
    """This host's own target if its page lists the wheel, else another: a virtual machine may have
    features that no other CPU of its name has."""
    listing = [
        target
        for target, listed in published["choices"].items()
        if [file["file"] for file in listed] == [wheel.name]
    ]
    if not listing:
        pytest.skip("this CPU has a feature that no target of archspec has")
    own_name = own_cpu().match.best.name
    return own_name if own_name in listing else listing[0]


def libraries(tried: Tried) -> tuple[KernelLibrary, ...]:
    facts = read_tuned(tried.built.wheel)
    assert facts is not None
    return facts.libraries


# ---- audit ----


def test_the_audit_says_that_it_is_what_it_says(invoke: Tasks, native: Tried) -> None:
    done = invoke("audit", str(native.built.wheel))
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[-1] == "The audit passed."
    assert f"targets   {native.plan.target.spec}" in lines
    assert any(line.startswith("as stock ") for line in lines)


def test_a_changed_byte_in_the_kernels_is_found(
    invoke: Tasks, native: Tried, tmp_path: Path
) -> None:
    wheel = Path(shutil.copy(native.built.wheel, tmp_path))
    library = libraries(native)[0]
    with open_wheel(wheel) as archive:
        member = archive.getinfo(library.file)
    with wheel.open("r+b") as file:
        file.seek(member.header_offset + member.compress_size // 2)
        (byte,) = file.read(1)
        file.seek(-1, os.SEEK_CUR)
        file.write(bytes([byte ^ 1]))
    done = invoke("audit", str(wheel))
    assert (done.returncode, done.stdout) == (34, "")
    assert done.stderr.startswith(f"error: {wheel.name} ")
    assert library.file in done.stderr


@pytest.mark.slow
def test_a_claim_of_fewer_features_is_found(invoke: Tasks, native: Tried, tmp_path: Path) -> None:
    """The dispatcher would let the kernels onto a CPU that lacks fma."""
    facts = read_tuned(native.built.wheel)
    assert facts is not None
    (library,) = facts.libraries
    fewer = tuple(name for name in library.required_features if name != "fma")
    assert fewer != library.required_features
    false = dataclasses.replace(
        facts, libraries=(dataclasses.replace(library, required_features=fewer),)
    )
    info = f"tensorflow_cpu-{native.fleet.version}.dist-info/tuned.json"
    wheel = repack(
        native.built.wheel,
        local=None,
        add={},
        out_dir=tmp_path,
        dist_info_files={},
        edit={info: lambda _: false.to_bytes()},
    )
    done = invoke("audit", str(wheel))
    assert done.returncode == 34
    lines = done.stdout.splitlines()
    actual = [line for line in lines if line.startswith(f"problem: {library.name}: ")]
    assert any(line.endswith(f"does not require fma for {library.target}") for line in actual)
    assert done.stderr.startswith(f"error: {wheel.name} ")


def test_ctrl_c_ends_an_audit_and_all_that_it_started(
    invoke: Tasks, native: Tried, tmp_path: Path
) -> None:
    """With an empty cache every library is looked at, in several processes."""
    words = ("audit", str(native.built.wheel), "--no-fetch")
    with started(invoke, *words, TENSORWRIGHT_CACHE=str(tmp_path / "cache")) as process:
        while not list((tmp_path / "cache").rglob("*.so*")):
            assert process.poll() is None, "the audit has ended before it was stopped"
            time.sleep(0.05)
        os.killpg(process.pid, signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (130, "")
    assert err.startswith("stopped")
    assert err.count("\n") == 1
    assert not list((tmp_path / "cache").rglob("*.so*"))
    with pytest.raises(ProcessLookupError):
        os.killpg(process.pid, 0)


# ---- publish ----


def test_each_page_lists_the_tuned_wheel_or_the_stock_one(
    published: dict[str, Any], native: Tried
) -> None:
    lacking = published["lacking"]
    assert lacking["nehalem"] == ["avx"]
    for name, listed in published["choices"].items():
        assert bool(listed) is (name not in lacking)
        for choice in listed:
            assert choice["version"] in {native.fleet.version, STOCK}
            assert choice["why"].keys() >= {native.built.wheel.name, choice["file"]}, name
    assert [page_choice["version"] for page_choice in published["choices"]["ivybridge"]] == [STOCK]


def test_the_verdict_of_a_comparison_is_published_beside_the_wheel(
    invoke: Tasks, published: dict[str, Any], native: Tried
) -> None:
    wheel = native.built.wheel
    judgement = published["judgements"][wheel.name]
    assert judgement["passed"]
    (verdict,) = judgement["verdicts"]
    assert [verdict[name] for name in ("speedup", "low", "high")] == [1.3, 1.2, 1.4]
    pool = invoke.folder / published["index"] / "pool" / "tensorflow-cpu"
    (beside,) = pool.glob("*.comparison-*.json")
    assert beside.name.startswith(wheel.name)


# ---- install ----


@pytest.mark.parametrize("name", ["pip", *later("uv")])
def test_an_older_cpu_gets_the_stock_wheel(
    name: str, served: TreeServer, stock_python: Path, tmp_path: Path
) -> None:
    python = tmp_path / "env" / "bin" / "python"
    assert install(name, f"{served.url}/simple/ivybridge/", python, stock_python) == STOCK
    assert not list(tmp_path.rglob("*tensorwright*"))


@pytest.mark.parametrize("name", ["uv", *later("pip")])
def test_a_cpu_that_runs_it_gets_the_tuned_wheel_and_loads_its_kernels(
    name: str,
    served: TreeServer,
    published: dict[str, Any],
    native: Tried,
    stock_python: Path,
    tmp_path: Path,
) -> None:
    """What TensorFlow depends on comes from the environment of the stock wheel, behind its own. It
    looks for kernels in a folder called site-packages only."""
    python = tmp_path / "env" / "bin" / "python"
    index = f"{served.url}/simple/{tuned_target(published, native.built.wheel)}/"
    assert install(name, index, python, stock_python) == native.fleet.version
    (packages(python) / "behind.pth").write_text(f"{packages(stock_python)}\n", encoding="utf-8")
    done = run([python, "-P", "-c", LOADED], env=admission.build_probe_env(), timeout_s=300)
    module, loaded, zero = json.loads(done.output.splitlines()[-1])
    assert Path(module).is_relative_to(tmp_path)
    assert loaded == [str(packages(python) / library.file) for library in libraries(native)]
    assert zero == 0.0
