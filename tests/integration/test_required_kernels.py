"""TENSORWRIGHT_REQUIRE in the real TensorFlow: the stock environment with a dispatcher over it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import archspec.cpu
import pytest
from tests.tfbuild.planning.test_dispatcher import ABSENT, PRESENT, install, on_x86_64, target

from tfbuild.kernelbuild import admission
from tfbuild.planning.dispatcher import DispatchTarget
from tfbuild.planning.guard import INIT, amend_init, build_defaults_file, build_guard_files
from tfbuild.run import Completed, run
from tfbuild.tools.environment import Environment

pytestmark = [on_x86_64, pytest.mark.toolchain]

PROGRAM = "import tensorflow as tf; print(float(tf.tanh(tf.constant([0.5]))[0]))"


def link_all(origin: Path, copy: Path, *but: str) -> None:
    """`copy` becomes a folder with links to everything in `origin`, but for some names."""
    copy.mkdir(exist_ok=True)
    for entry in origin.iterdir():
        if entry.name not in but:
            (copy / entry.name).symlink_to(entry)


@dataclass(frozen=True, kw_only=True, slots=True)
class Overlay:
    """The site-packages of an environment as links, with a guarded TensorFlow."""

    arm: Environment
    site: Path

    def import_it(self, **env: str) -> Completed:
        known = admission.build_probe_env() | {"PYTHONPATH": str(self.site)} | env
        return run([self.arm.python, "-c", PROGRAM], env=known, cwd=self.site, check=False)


def lay_over(arm: Environment, folder: Path, *targets: DispatchTarget) -> Overlay:
    stock = next(arm.folder.glob("lib/python*/site-packages"))
    # TensorFlow looks for its kernels only where a path says site-packages.
    site = folder / "site-packages"
    install(site, *targets)
    link_all(stock, site, "tensorflow")
    package, ours = stock / "tensorflow", site / "tensorflow"
    link_all(package, ours, "core", "__init__.py")
    link_all(package / "core", ours / "core", "kernels")
    link_all(package / "core" / "kernels", ours / "core" / "kernels")
    init = amend_init((package / "__init__.py").read_bytes())
    members = {INIT: init, **build_guard_files("x86_64"), **build_defaults_file("x86_64", [])}
    for name, content in members.items():
        (site / name).write_bytes(content)
    return Overlay(arm=arm, site=site)


def test_a_fallback_is_an_import_error_only_where_that_was_asked_for(
    stock_arm: Environment, tmp_path: Path
) -> None:
    overlay = lay_over(stock_arm, tmp_path, target("zen9", PRESENT[0], ABSENT[0]))
    plain = overlay.import_it()
    assert plain.returncode == 0
    assert float(plain.output.splitlines()[-1]) == pytest.approx(0.46211717)
    index = "https://wheels.example"
    required = overlay.import_it(TENSORWRIGHT_REQUIRE="1", TENSORWRIGHT_INDEX=index)
    assert required.returncode == 1
    host = archspec.cpu.host().name
    last = required.output.splitlines()[-1]
    assert last.startswith("ImportError: TENSORWRIGHT_REQUIRE is set")
    assert "zen9 needs reserved_bit" in last
    assert last.endswith(f" {host}: {index}/simple/{host}/")


def test_loaded_kernels_satisfy_the_requirement(stock_arm: Environment, tmp_path: Path) -> None:
    overlay = lay_over(stock_arm, tmp_path, target("zen4", *PRESENT))
    done = overlay.import_it(TENSORWRIGHT_REQUIRE="1")
    assert done.returncode == 0
    assert float(done.output.splitlines()[-1]) == pytest.approx(0.46211717)
