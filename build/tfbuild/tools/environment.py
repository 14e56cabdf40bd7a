"""Arms' virtual environments: one TensorFlow wheel each, with the same locked dependencies."""

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

from tfbuild import console
from tfbuild.errors import ChecksumError, CommandError, DownloadError, WheelError
from tfbuild.interpreters import find_python
from tfbuild.records import write_atomic
from tfbuild.run import run
from tfbuild.settings import Paths, lock_folder, require_disk
from tfbuild.tools import pip, sharing, uv
from tfbuild.tools.requirement import FOLDER, Exact, Locked, PackageLock, lock_for, parse_exact
from tfbuild.upstream import locked, releases
from tfbuild.upstream.download import Pin, find_cached, hash_file, verify_file
from tfbuild.upstream.releases import StockWheel

_BYTES = 1_500_000_000
MARK = "tensorwright.complete"
"""The file of a complete environment, with the SHA-256 of its wheel."""
_LOG = "install.log"
OTHER_BYTES = "DO NOT MATCH THE HASHES"
"""pip's own words for a file that is not the locked one."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Environment:
    """A complete virtual environment and the wheel that was installed into it. `launcher` goes
    before its Python where that is another architecture's."""

    folder: Path
    wheel: Path
    wheel_sha256: str
    launcher: tuple[str, ...] = ()

    @property
    def python(self) -> Path:
        return self.folder / "bin" / "python"

    @property
    def command(self) -> tuple[str | Path, ...]:
        """What starts its Python."""
        return (*self.launcher, self.python)


def fetch_wheel(requirement: str, pin: Pin, paths: Paths, given: Path | None = None) -> Path:
    """The pinned wheel of `requirement` (name==version), through pip and the user's own index
    settings, or from `given`. Raises DownloadError, ChecksumError.
    """
    if given is not None:
        return verify_file(given, pin)
    target = paths.downloads / pin.name
    # Looked at under the lock: what another run is writing is not a file that went bad.
    with lock_folder(paths.downloads, f"downloading {pin.name}", wait=True):
        if not find_cached(target, pin):
            _fetch_pinned(requirement, pin, paths)
        return verify_file(target, pin)


def fetch_stock(stock: StockWheel, paths: Paths, given: Path | None = None) -> Path:
    """A published wheel, as `fetch_wheel`; `given` may be the folder that it is in. Says so where
    it has to be fetched."""
    pin = Pin(name=stock.file, sha256=stock.sha256, size=stock.size)
    own = given / stock.file if given is not None and given.is_dir() else given
    here = own is not None or (paths.downloads / stock.file).is_file()
    with contextlib.nullcontext() if here else console.report_step(f"stock wheel {stock.file}"):
        return fetch_wheel(f"{stock.package}=={stock.version}", pin, paths, own)


def _fetch_pinned(requirement: str, pin: Pin, paths: Paths) -> None:
    require_disk(paths.downloads, 3 * (pin.size or 0), f"downloading {pin.name}")
    tag = pin.name.split("-")
    words = (
        *("--python-version", tag[2].removeprefix("cp"), "--implementation", "cp"),
        *(word for name in tag[4].removesuffix(".whl").split(".") for word in ("--platform", name)),
    )
    locked = Locked(exact=parse_exact(requirement), sha256=pin.sha256)
    try:
        _pip_download(locked, paths.downloads, *words)
    except CommandError as error:
        raise DownloadError(
            f"pip could not fetch {requirement} ({error.last_line})",
            hint="Check the network and pip's index settings, or pass --stock-wheel PATH",
        ) from error


def _pip_download(
    locked: Locked, folder: Path, *choice: str, interpreter: Path | None = None
) -> None:
    """The wheel of a locked requirement into `folder`, for an interpreter or for a choice of tags.
    Raises CommandError."""
    wanted = folder / f"{locked.sha256}.requirement"
    write_atomic(wanted, locked.line)
    try:
        pip.download(wanted, folder, "--only-binary=:all:", *choice, interpreter=interpreter)
    finally:
        wanted.unlink(missing_ok=True)


def create(
    wheel: Path,
    *,
    python: str,
    requirements: str,
    paths: Paths,
    links: Path | None = None,
    like: Environment | None = None,
) -> Environment:
    """An environment with `wheel` and the locked `requirements`, as text, that it depends on.

    It is keyed by what is in it, so it is made once. A half-made one is made anew. One `like` it,
    of the wheel that this one was made from and with the same dependencies, shares its files, so
    that only what differs is unpacked; then it has no scripts. The wheels of the requirements come
    from the folder `links`, if there is one, and from nowhere else. Raises PythonError,
    CommandError, WheelError.
    """
    sha256 = hash_file(wheel)
    folder = paths.arms / folder_key(python, sha256, requirements)
    environment = Environment(folder=folder, wheel=wheel, wheel_sha256=sha256)
    if (folder / MARK).is_file() and environment.python.exists():
        return environment
    require_disk(paths.arms, _BYTES, "an environment with TensorFlow")
    fits = like and like.folder.name == folder_key(python, like.wheel_sha256, requirements)
    if not (like and fits and _shared(environment, like, python)):
        _begin(folder, python)
        if requirements.strip():
            bare = create_bare(python=python, requirements=requirements, paths=paths, links=links)
            packages = (sharing.packages(each, python) for each in (bare.parents[1], folder))
            sharing.link(*packages, compiled=False)
        _install(environment)
    try:
        uv.check(environment.python, log=folder / _LOG)
    except CommandError as error:
        raise WheelError(f"{wheel.name} lacks what it needs: {uv.reason(error)}") from error
    write_atomic(folder / MARK, f"{sha256}\n")
    return environment


def folder_key(python: str, wheel_sha256: str, requirements: str) -> str:
    """The name of the folder of an environment with these."""
    return hashlib.sha256(f"{python}\n{wheel_sha256}\n{requirements}".encode()).hexdigest()[:16]


def _shared(environment: Environment, like: Environment, python: str) -> bool:
    """Make it from one like it, where that can be done. uv says whether it would take the wheel.

    What Python has compiled there is shared as well: to compile all of TensorFlow's takes longer
    than to unpack it.
    """
    folder = environment.folder
    _begin(folder, python)
    packages = sharing.packages(folder, python)
    sharing.link(sharing.packages(like.folder, python), packages, compiled=True)
    if not sharing.replace(like.wheel, environment.wheel, packages):
        return False
    _install(environment, "--dry-run", "--reinstall")
    return True


def _install(environment: Environment, *options: str) -> None:
    """Raises WheelError when uv refuses the wheel."""
    wheel, log = environment.wheel, environment.folder / _LOG
    try:
        uv.install(environment.python, *options, wheel, log=log)
    except CommandError as error:
        raise WheelError(f"{wheel.name} cannot be installed ({uv.reason(error)})") from error


def create_bare(*, python: str, requirements: str, paths: Paths, links: Path | None = None) -> Path:
    """The interpreter of an environment with the locked `requirements` alone: what a build of the
    whole tree runs its Python with. `links` as in create. Raises PythonError, CommandError.
    """
    key = hashlib.sha256(f"{python}\n{requirements}".encode()).hexdigest()[:16]
    folder = paths.arms / f"bare-{key}"
    interpreter = folder / "bin" / "python"
    if not (folder / MARK).is_file() or not interpreter.exists():
        _begin(folder, python)
        _install_locked(folder, requirements, links)
        write_atomic(folder / MARK, "no wheel\n")
    return interpreter


def _begin(folder: Path, python: str) -> None:
    """A new environment in `folder`."""
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
                python=_serving(interpreter),
            )
        source = ("--require-hashes", "--find-links", links or fetched)
        uv.install(interpreter, *source, "--requirement", locked_file, log=folder / _LOG)


def _serving(interpreter: Path) -> Path:
    """A Python whose pip works for the interpreter of an environment: this one, or, where that is
    too old for its pip, one with the pip that came with it."""
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


def create_required(requirement: str, *, python: str, paths: Paths) -> Environment:
    """An environment with the package of `requirement` (name==version) and what it needs.

    A lock that is shipped is taken; else the one that lock_for keeps. Raises UsageError,
    PythonError, DownloadError, ChecksumError, WheelError.
    """
    exact = parse_exact(requirement)
    interpreter = find_python(python)
    stock = _published(exact, python)
    if stock is not None and (shipped := _shipped_lock(stock)):
        wheel = fetch_stock(stock, paths)
        return create(wheel, python=python, requirements=shipped, paths=paths)
    lock = _kept_lock(exact, stock, python, paths)
    wheel = _fetch_locked(lock.own, interpreter, paths)
    return create(wheel, python=python, requirements=lock.requirements, paths=paths)


def needs_of(exact: Exact, *, python: str, paths: Paths) -> str:
    """The locked requirements of a package, from the same locks as create_required's.

    Raises PythonError, DownloadError, ChecksumError.
    """
    stock = _published(exact, python)
    shipped = _shipped_lock(stock) if stock is not None else ""
    return shipped or _kept_lock(exact, stock, python, paths).requirements


def _published(exact: Exact, python: str) -> StockWheel | None:
    tag = releases.format_python_tag(python)
    return releases.find_stock_wheel(exact.name, exact.version, tag, platform.machine())


def _shipped_lock(stock: StockWheel) -> str:
    """The text of the lock in upstream/locks; empty when there is none."""
    try:
        return locked.load_requirements(stock)
    except WheelError:
        return ""


def _kept_lock(exact: Exact, stock: StockWheel | None, python: str, paths: Paths) -> PackageLock:
    interpreter = find_python(python)
    pinned = None if stock is None else stock.sha256
    return lock_for(exact, python=python, interpreter=interpreter, pinned=pinned, paths=paths)


def _fetch_locked(locked: Locked, interpreter: Path, paths: Paths) -> Path:
    """The locked wheel, in a folder named by its hash: only the index knows the file's name."""
    folder = paths.downloads / locked.sha256[:16]
    with lock_folder(folder, f"downloading {locked.exact}", wait=True):
        return _only_wheel(folder, locked) or _download_locked(locked, interpreter, folder, paths)


def _download_locked(locked: Locked, interpreter: Path, folder: Path, paths: Paths) -> Path:
    require_disk(paths.downloads, _BYTES, f"downloading {locked.exact}")
    try:
        _pip_download(locked, folder, interpreter=interpreter)
    except CommandError as error:
        if OTHER_BYTES in error.message:
            raise ChecksumError(
                f"the index has another file of {locked.exact} than its lock ({error.last_line})",
                hint=f"Find out why before you delete its lock in {paths.cache / FOLDER}",
            ) from error
        raise DownloadError(
            f"pip could not fetch {locked.exact} ({error.last_line})",
            hint="Check the network and pip's index settings",
        ) from error
    found = _only_wheel(folder, locked)
    if found is None:
        raise DownloadError(f"pip left no wheel of {locked.exact} in {folder}")
    return found


def _only_wheel(folder: Path, locked: Locked) -> Path | None:
    paths = (
        find_cached(path, Pin(name=path.name, sha256=locked.sha256))
        for path in folder.glob("*.whl")
    )
    return next(filter(None, paths), None)


def discard(wheel_sha256: str, paths: Paths) -> None:
    """Remove the environments of a wheel that is no more: each takes more than a gigabyte."""
    for mark in paths.arms.glob(f"*/{MARK}"):
        if mark.read_text(encoding="utf-8").strip() == wheel_sha256:
            shutil.rmtree(mark.parent, ignore_errors=True)
