"""Arms' virtual environments: one TensorFlow wheel each, with the same locked dependencies."""

from __future__ import annotations

import hashlib
import shutil
import sys
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from tfbuild.download import Pin, kept, sha256_of, verified
from tfbuild.errors import CommandError, DownloadError, PythonError, WheelError
from tfbuild.records import write_atomic
from tfbuild.run import run
from tfbuild.settings import Places, need_disk

_BYTES = 1_500_000_000
_MARK = "tensorwright.complete"


@dataclass(frozen=True, kw_only=True, slots=True)
class Environment:
    """A complete virtual environment and the wheel that was installed into it."""

    folder: Path
    wheel: Path
    wheel_sha256: str

    @property
    def python(self) -> Path:
        return self.folder / "bin" / "python"


def find_python(version: str) -> Path:
    """The interpreter for "3.11": this one if it is that, else python3.11 on PATH."""
    if version == f"{sys.version_info.major}.{sys.version_info.minor}":
        return Path(sys.executable)
    found = shutil.which(f"python{version}")
    if found is None:
        raise PythonError(
            f"Python {version} is not on PATH",
            hint=f"Install it, or choose another with --python (this one is {sys.version_info[0]}."
            f"{sys.version_info[1]})",
        )
    return Path(found)


def fetch_wheel(requirement: str, pin: Pin, places: Places, given: Path | None = None) -> Path:
    """The pinned wheel of `requirement` (name==version), through pip and the user's own index
    settings, or from `given`. Raises DownloadError, ChecksumError.
    """
    if given is not None:
        return verified(given, pin)
    target = places.downloads / pin.name
    if kept(target, pin):
        return target
    need_disk(places.downloads, 3 * (pin.size or 0), f"downloading {pin.name}")
    wanted = places.downloads / f"{pin.name}.requirement"
    write_atomic(wanted, f"{requirement} --hash=sha256:{pin.sha256}\n")
    tag = pin.name.split("-")
    words = [
        *(sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-cache-dir"),
        *("--require-hashes", "--only-binary=:all:", "--dest", str(places.downloads)),
        *("--python-version", tag[2].removeprefix("cp"), "--implementation", "cp"),
        *(word for name in tag[4].removesuffix(".whl").split(".") for word in ("--platform", name)),
        *("--requirement", str(wanted)),
    ]
    try:
        run(words, timeout_s=3600)
    except CommandError as error:
        raise DownloadError(
            f"pip could not fetch {requirement} ({_last(error)})",
            hint="Check the network and pip's index settings, or pass --stock-wheel PATH",
        ) from error
    finally:
        wanted.unlink(missing_ok=True)
    return verified(target, pin)


def create(wheel: Path, *, python: str, lock: str, places: Places) -> Environment:
    """An environment with `wheel` and the dependencies of `lock` (a file in tfbuild/locks).

    It is keyed by what is in it, so it is made once. A half-made one is made anew. Raises
    PythonError, CommandError, WheelError.
    """
    text = resources.files("tfbuild").joinpath("locks", lock).read_text("utf-8")
    return create_locked(wheel, python=python, requirements=text, places=places)


def create_locked(wheel: Path, *, python: str, requirements: str, places: Places) -> Environment:
    """As `create`, with the text of the locked requirements."""
    sha256 = sha256_of(wheel)
    key = hashlib.sha256(f"{python}\n{sha256}\n{requirements}".encode()).hexdigest()[:16]
    folder = places.arms / key
    environment = Environment(folder=folder, wheel=wheel, wheel_sha256=sha256)
    if (folder / _MARK).is_file() and environment.python.exists():
        return environment
    need_disk(places.arms, _BYTES, "an environment with TensorFlow")
    shutil.rmtree(folder, ignore_errors=True)
    run([find_python(python), "-m", "venv", "--without-pip", folder])
    locked_file = folder / "requirements.txt"
    write_atomic(locked_file, requirements)
    log = folder / "pip.log"
    pip = (sys.executable, "-m", "pip", "--python", str(environment.python))
    quiet = ("--quiet", "--no-deps", "--no-compile", "--disable-pip-version-check")
    locked = ("--require-hashes", "--only-binary=:all:", "--requirement", str(locked_file))
    run([*pip, "install", *quiet, *locked], log=log, timeout_s=1800)
    try:
        run([*pip, "install", *quiet, "--no-index", wheel], log=log, timeout_s=1800)
    except CommandError as error:
        raise WheelError(f"pip refuses {wheel.name} ({_last(error)})") from error
    try:
        run([*pip, "check"], log=log, timeout_s=300)
    except CommandError as error:
        raise WheelError(f"pip check: {_last(error)}") from error
    write_atomic(folder / _MARK, f"{sha256}\n")
    return environment


def discard(wheel_sha256: str, places: Places) -> None:
    """Remove the environments of a wheel that is no more: each takes more than a gigabyte."""
    for mark in places.arms.glob(f"*/{_MARK}"):
        if mark.read_text(encoding="utf-8").strip() == wheel_sha256:
            shutil.rmtree(mark.parent, ignore_errors=True)


def _last(error: CommandError) -> str:
    return error.message.strip().splitlines()[-1].strip()
