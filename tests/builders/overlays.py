"""A package of links over an installed one, in which single files are others."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tests.builders.dispatchers import install

from tfbuild.kernelbuild import admission
from tfbuild.planning.dispatcher import DispatchTarget
from tfbuild.planning.guard import INIT, amend_init, build_defaults_file, build_guard_files
from tfbuild.tools.environment import Environment
from tfcore.run import Completed, run

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
