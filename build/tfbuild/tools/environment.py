"""Create the virtual environments of arms: one TensorFlow wheel each, the same dependencies."""

from __future__ import annotations

import contextlib
import hashlib
import platform
import shutil
import sys
import tempfile
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from packaging.specifiers import SpecifierSet

from tfbuild.interpreters import find_python
from tfbuild.tools import pip, shared_files, uv
from tfbuild.tools.requirement import (
    FOLDER,
    ExactRequirement,
    LockedRequirement,
    PackageLock,
    parse_exact,
    resolve_lock,
)
from tfbuild.upstream import lock_files, releases
from tfbuild.upstream.download import Pin, hash_file, keep_verified, verify_file
from tfbuild.upstream.releases import StockWheel
from tfcore import console
from tfcore.errors import ChecksumError, CommandError, DownloadError, WheelError
from tfcore.records import write_atomic
from tfcore.run import run
from tfcore.settings import Paths, lock_folder, require_disk

BYTES = 1_500_000_000
"""Disk space for a wheel of TensorFlow, or for an environment with it."""
MARK = "tensorwright.complete"
"""File in a complete environment that contains the SHA-256 of its wheel."""
_LOG = "install.log"
OTHER_BYTES = "DO NOT MATCH THE HASHES"
"""Part of pip's message for a file that does not match its lock."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Environment:
    """A complete virtual environment and the wheel that was installed into it.

    `launcher` is the emulator's command, for a Python of another architecture.
    """

    folder: Path
    wheel: Path
    wheel_sha256: str
    launcher: tuple[str, ...] = ()

    @property
    def python(self) -> Path:
        return self.folder / "bin" / "python"

    @property
    def command(self) -> tuple[str | Path, ...]:
        """Return the words that start its Python."""
        return (*self.launcher, self.python)


def fetch_wheel(requirement: str, pin: Pin, paths: Paths, local_file: Path | None = None) -> Path:
    """Fetch the pinned wheel of `requirement` (name==version), or check `local_file`.

    pip downloads it with the user's own index settings. Raises DownloadError, ChecksumError.
    """
    if local_file is not None:
        return verify_file(local_file, pin)
    target = paths.downloads / pin.name
    # Checked under the lock: a file that another run is writing is not damaged.
    with lock_folder(paths.downloads, f"downloading {pin.name}", wait=True):
        if not keep_verified(target, pin):
            _fetch_pinned(requirement, pin, paths)
        return verify_file(target, pin)


def fetch_stock(stock: StockWheel, paths: Paths, local_path: Path | None = None) -> Path:
    """Fetch a published wheel as `fetch_wheel` does; `local_path` may be the folder that has it.

    Prints a step if it has to be downloaded.
    """
    pin = Pin(name=stock.file, sha256=stock.sha256, size=stock.size)
    path = local_path / stock.file if local_path is not None and local_path.is_dir() else local_path
    is_local = path is not None or (paths.downloads / stock.file).is_file()
    with contextlib.nullcontext() if is_local else console.report_step(f"stock wheel {stock.file}"):
        return fetch_wheel(f"{stock.package}=={stock.version}", pin, paths, path)


def _fetch_pinned(requirement: str, pin: Pin, paths: Paths) -> None:
    require_disk(paths.downloads, 3 * (pin.size or 0), f"downloading {pin.name}")
    tag = pin.name.split("-")
    words = (
        *("--python-version", tag[2].removeprefix("cp"), "--implementation", "cp"),
        *(word for name in tag[4].removesuffix(".whl").split(".") for word in ("--platform", name)),
    )
    locked = LockedRequirement(exact=parse_exact(requirement), sha256=pin.sha256)
    try:
        _download_wheel(locked, paths.downloads, *words)
    except CommandError as error:
        raise DownloadError(
            f"pip could not download {requirement} ({error.last_line})",
            hint="Check the network and pip's index settings, or pass --stock-wheel PATH",
        ) from error


def _download_wheel(
    locked: LockedRequirement, folder: Path, *choice: str, interpreter: Path | None = None
) -> None:
    """Download the wheel of a locked requirement into `folder`.

    It is chosen for an interpreter or by tags (`choice`). Raises CommandError.
    """
    requirements_file = folder / f"{locked.sha256}.requirement"
    write_atomic(requirements_file, locked.line)
    try:
        pip.download(
            requirements_file, folder, "--only-binary=:all:", *choice, interpreter=interpreter
        )
    finally:
        requirements_file.unlink(missing_ok=True)


def create(
    wheel: Path,
    *,
    python: str,
    requirements: str,
    paths: Paths,
    links: Path | None = None,
    sibling: Environment | None = None,
) -> Environment:
    """Create an environment with `wheel` and its locked `requirements`, as text.

    It is keyed by its contents, so it is created once. An incomplete one is created again. A
    `sibling` environment, with the wheel that this one was built from and the same dependencies,
    shares its files: only files that differ are unpacked, and the environment has no scripts.
    With a folder `links`, the wheels of the requirements come only from that folder.

    Raises PythonError, CommandError, WheelError.
    """
    sha256 = hash_file(wheel)
    folder = paths.arms / compute_folder_key(python, sha256, requirements)
    environment = Environment(folder=folder, wheel=wheel, wheel_sha256=sha256)
    if (folder / MARK).is_file() and environment.python.exists():
        return environment
    require_disk(paths.arms, BYTES, "an environment with TensorFlow")
    fits = sibling and sibling.folder.name == compute_folder_key(
        python, sibling.wheel_sha256, requirements
    )
    if not (sibling and fits and _share_files(environment, sibling, python)):
        _create_venv(folder, python)
        if requirements.strip():
            bare = create_bare(python=python, requirements=requirements, paths=paths, links=links)
            packages = (
                shared_files.locate_packages(root, python) for root in (bare.parents[1], folder)
            )
            shared_files.link_packages(*packages, compiled=False)
        _install(environment)
    try:
        uv.check(environment.python, log=folder / _LOG)
    except CommandError as error:
        raise WheelError(f"{wheel.name} lacks dependencies: {uv.extract_reason(error)}") from error
    write_atomic(folder / MARK, f"{sha256}\n")
    return environment


def compute_folder_key(python: str, wheel_sha256: str, requirements: str) -> str:
    """Return the name of the folder of an environment with these contents."""
    return hashlib.sha256(f"{python}\n{wheel_sha256}\n{requirements}".encode()).hexdigest()[:16]


def _share_files(environment: Environment, sibling: Environment, python: str) -> bool:
    """Create the environment from its `sibling`; return whether that was possible.

    uv checks whether it would accept the wheel. Python's compiled files are shared as well:
    compiling all of TensorFlow's takes longer than unpacking it.
    """
    folder = environment.folder
    _create_venv(folder, python)
    packages = shared_files.locate_packages(folder, python)
    shared_files.link_packages(
        shared_files.locate_packages(sibling.folder, python), packages, compiled=True
    )
    if not shared_files.replace_wheel(sibling.wheel, environment.wheel, packages):
        return False
    _install(environment, "--dry-run", "--reinstall")
    return True


def _install(environment: Environment, *options: str) -> None:
    """Install the wheel. Raises WheelError if uv refuses it."""
    wheel, log = environment.wheel, environment.folder / _LOG
    try:
        uv.install(environment.python, *options, wheel, log=log)
    except CommandError as error:
        raise WheelError(
            f"{wheel.name} cannot be installed ({uv.extract_reason(error)})"
        ) from error


def create_bare(*, python: str, requirements: str, paths: Paths, links: Path | None = None) -> Path:
    """Create an environment with the locked `requirements` alone; return its interpreter.

    A full build runs its Python in it. `links` as in `create`. Raises PythonError, CommandError.
    """
    key = hashlib.sha256(f"{python}\n{requirements}".encode()).hexdigest()[:16]
    folder = paths.arms / f"bare-{key}"
    interpreter = folder / "bin" / "python"
    if not (folder / MARK).is_file() or not interpreter.exists():
        _create_venv(folder, python)
        _install_locked(folder, requirements, links)
        write_atomic(folder / MARK, "no wheel\n")
    return interpreter


def _create_venv(folder: Path, python: str) -> None:
    """Create a new environment in `folder`."""
    shutil.rmtree(folder, ignore_errors=True)
    run([find_python(python), "-m", "venv", "--without-pip", folder])


def _install_locked(folder: Path, requirements: str, links: Path | None) -> None:
    locked_file, interpreter = folder / "requirements.txt", folder / "bin" / "python"
    write_atomic(locked_file, requirements)
    if not requirements.strip():
        return
    with tempfile.TemporaryDirectory(dir=folder, prefix=".wheels-") as fetched:
        if links is None:
            pip.download(
                locked_file,
                Path(fetched),
                "--only-binary=:all:",
                interpreter=interpreter,
                python=_find_pip_python(interpreter),
            )
        source = ("--require-hashes", "--find-links", links or fetched)
        uv.install(interpreter, *source, "--requirement", locked_file, log=folder / _LOG)


def _find_pip_python(interpreter: Path) -> Path:
    """Return a Python whose pip works for the interpreter of an environment.

    It is the running Python or, if its pip does not support the interpreter's version, a Python
    of that version with its bundled pip.
    """
    folder = interpreter.parents[1]
    python = next((folder / "lib").glob("python3.*")).name.removeprefix("python")
    known = SpecifierSet(metadata.metadata("pip")["Requires-Python"])
    if known.contains(f"{python}.99"):
        return Path(sys.executable)
    serving = folder.with_name(f"pip-{python}") / "bin" / "python"
    if not (serving.parents[1] / MARK).is_file():
        run([find_python(python), "-m", "venv", "--clear", serving.parents[1]])
        write_atomic(serving.parents[1] / MARK, "pip alone\n")
    return serving


def create_from_requirement(
    requirement: str, *, python: str, paths: Paths, more: str = ""
) -> Environment:
    """Create an environment with a package and its dependencies.

    `requirement` is name==version. A shipped lock is preferred to the one that `resolve_lock`
    keeps. `more` has locked requirements that are none of its dependencies. Raises UsageError,
    PythonError, DownloadError, ChecksumError, WheelError.
    """
    exact = parse_exact(requirement)
    interpreter = find_python(python)
    stock = _find_published(exact, python)
    if stock is not None and (shipped := _read_shipped_lock(stock)):
        wheel = fetch_stock(stock, paths)
        return create(wheel, python=python, requirements=shipped + more, paths=paths)
    lock = _resolve_lock(exact, stock, python, paths)
    wheel = _fetch_locked(lock.own, interpreter, paths)
    return create(wheel, python=python, requirements=lock.requirements + more, paths=paths)


def resolve_requirements(exact: ExactRequirement, *, python: str, paths: Paths) -> str:
    """Return the locked requirements of a package, by the locks of `create_from_requirement`.

    Raises PythonError, DownloadError, ChecksumError.
    """
    stock = _find_published(exact, python)
    shipped = _read_shipped_lock(stock) if stock is not None else ""
    return shipped or _resolve_lock(exact, stock, python, paths).requirements


def _find_published(exact: ExactRequirement, python: str) -> StockWheel | None:
    tag = releases.format_python_tag(python)
    return releases.find_stock_wheel(exact.name, exact.version, tag, platform.machine())


def _read_shipped_lock(stock: StockWheel) -> str:
    """Read the lock in upstream/locks; "" if there is none."""
    try:
        return lock_files.load_requirements(stock)
    except WheelError:
        return ""


def _resolve_lock(
    exact: ExactRequirement, stock: StockWheel | None, python: str, paths: Paths
) -> PackageLock:
    interpreter = find_python(python)
    pinned = None if stock is None else stock.sha256
    return resolve_lock(exact, python=python, interpreter=interpreter, pinned=pinned, paths=paths)


def _fetch_locked(locked: LockedRequirement, interpreter: Path, paths: Paths) -> Path:
    """Fetch the locked wheel into a folder named by its hash.

    Only the index knows the file's name.
    """
    folder = paths.downloads / locked.sha256[:16]
    with lock_folder(folder, f"downloading {locked.exact}", wait=True):
        return _find_wheel(folder, locked) or _download_locked(locked, interpreter, folder, paths)


def _download_locked(
    locked: LockedRequirement, interpreter: Path, folder: Path, paths: Paths
) -> Path:
    require_disk(paths.downloads, BYTES, f"downloading {locked.exact}")
    try:
        _download_wheel(locked, folder, interpreter=interpreter)
    except CommandError as error:
        if OTHER_BYTES in error.message:
            raise ChecksumError(
                f"the index's file of {locked.exact} does not match its lock ({error.last_line})",
                hint=f"Find the cause before you delete the lock in {paths.cache / FOLDER}",
            ) from error
        raise DownloadError(
            f"pip could not download {locked.exact} ({error.last_line})",
            hint="Check the network and pip's index settings",
        ) from error
    wheel = _find_wheel(folder, locked)
    if wheel is None:
        raise DownloadError(f"pip downloaded no wheel of {locked.exact} to {folder}")
    return wheel


def _find_wheel(folder: Path, locked: LockedRequirement) -> Path | None:
    paths = (
        keep_verified(path, Pin(name=path.name, sha256=locked.sha256))
        for path in folder.glob("*.whl")
    )
    return next(filter(None, paths), None)


def discard(wheel_sha256: str, paths: Paths) -> None:
    """Remove the environments of an unused wheel: each takes more than a gigabyte."""
    for mark in paths.arms.glob(f"*/{MARK}"):
        if mark.read_text(encoding="utf-8").strip() == wheel_sha256:
            shutil.rmtree(mark.parent, ignore_errors=True)
