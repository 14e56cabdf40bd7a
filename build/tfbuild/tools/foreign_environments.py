"""Create environments of another architecture: pip unpacks wheels, QEMU runs Python."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from tfbuild.tools import shared_files
from tfbuild.tools.emulation import PYTHON, Emulator
from tfbuild.tools.environment import BYTES, MARK, Environment, compute_folder_key
from tfbuild.upstream.download import hash_file
from tfcore.errors import CommandError, WheelError
from tfcore.records import write_atomic
from tfcore.run import run
from tfcore.settings import Paths, require_disk

_FIRST_GLIBC = 17
_LAST_GLIBC = 36
"""Minor versions of glibc 2: of the oldest manylinux tag, and of the emulator's Debian."""
_INSTALL_S = 1800.0


def create(
    wheel: Path,
    emulator: Emulator,
    *,
    requirements: str,
    paths: Paths,
    sibling: Environment | None = None,
) -> Environment:
    """Create an environment of the emulator's architecture and Python, like environment.create.

    Nothing of it is run. Raises WheelError if pip refuses a wheel, DiskError.
    """
    sha256 = hash_file(wheel)
    environment = Environment(
        folder=paths.arms / compute_folder_key(PYTHON, sha256, requirements),
        wheel=wheel,
        wheel_sha256=sha256,
        launcher=emulator.launcher,
    )
    mark = environment.folder / MARK
    if mark.is_file() and environment.python.exists():
        return environment
    require_disk(paths.arms, BYTES, "an environment with TensorFlow")
    _create_skeleton(environment, emulator)
    if not (
        sibling
        and _share_packages(
            environment, sibling, compute_folder_key(PYTHON, sibling.wheel_sha256, requirements)
        )
    ):
        _install(environment, emulator, requirements)
    write_atomic(mark, f"{sha256}\n")
    return environment


def _create_skeleton(environment: Environment, emulator: Emulator) -> None:
    """Create what venv does (PEP 405): a link to an interpreter, and a file that names its home."""
    shutil.rmtree(environment.folder, ignore_errors=True)
    environment.python.parent.mkdir(parents=True)
    environment.python.symlink_to(emulator.interpreter)
    lines = (f"home = {emulator.interpreter.parent}", "include-system-site-packages = false", "")
    write_atomic(environment.folder / "pyvenv.cfg", "\n".join(lines))


def _share_packages(environment: Environment, sibling: Environment, folder_key: str) -> bool:
    """Create the packages from those of `sibling`, if its folder's name is `folder_key`.

    Return whether that was possible.
    """
    if sibling.folder.name != folder_key:
        return False
    source = next((sibling.folder / "lib").glob("python3.*/site-packages"))
    packages = environment.folder / source.relative_to(sibling.folder)
    shared_files.link_packages(source, packages, compiled=True)
    if shared_files.replace_wheel(sibling.wheel, environment.wheel, packages):
        return True
    shutil.rmtree(packages)
    return False


def _install(environment: Environment, emulator: Emulator, requirements: str) -> None:
    """Install the wheel and its locked requirements, chosen for the emulator's Python."""
    wheel_line = (
        f"{environment.wheel.resolve().as_uri()} --hash=sha256:{environment.wheel_sha256}\n"
    )
    requirements_file = environment.folder / "requirements.txt"
    write_atomic(requirements_file, requirements + wheel_line)
    words: list[str | Path] = [sys.executable, "-m", "pip", "install", "--quiet", "--no-compile"]
    words += ["--disable-pip-version-check", "--no-deps", "--require-hashes"]
    words += ["--only-binary=:all:", "--implementation", "cp", "--python-version", PYTHON]
    for tag in _list_platform_tags(emulator.architecture):
        words += ["--platform", tag]
    words += ["--target", shared_files.locate_packages(environment.folder, PYTHON)]
    try:
        run(
            [*words, "--requirement", requirements_file],
            log=environment.folder / "pip.log",
            timeout_s=_INSTALL_S,
        )
    except CommandError as error:
        raise WheelError(f"pip refuses {environment.wheel.name} ({error.last_line})") from error


def _list_platform_tags(architecture: str) -> list[str]:
    """Return the platform tags (PEP 600) that the emulator's Debian accepts."""
    numbered = [f"manylinux_2_{n}_{architecture}" for n in range(_FIRST_GLIBC, _LAST_GLIBC + 1)]
    return [*numbered, f"manylinux2014_{architecture}"]
