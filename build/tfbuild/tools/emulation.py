"""Run the Python of another architecture: QEMU's user mode and a small Debian.

TensorFlow's wheel of that architecture runs in it, much slower. This tests the results of kernels
and detects SIGILL. It does not measure speed.
"""

from __future__ import annotations

import os
import platform
import re
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

from packaging.version import Version

from tfcore import console, packages
from tfcore.cpus.cpu import Cpu
from tfcore.cpus.features import load_features
from tfcore.errors import CommandError, ToolError
from tfcore.run import run
from tfcore.settings import Paths, expand_home, lock_folder, require_disk

SYSROOT = "TENSORWRIGHT_SYSROOT"
"""Variable with the folder of a system of the other architecture, instead of the created one."""
PYTHON = "3.11"
_SUITE, _PACKAGES = "bookworm", "python3,libstdc++6"
"""The Debian with this Python; every release from 2.12 on has a wheel for this Python."""
_QEMU_SUITE = "trixie"
"""A Debian whose QEMU is linked statically."""
_OLDEST = Version("8.1")
"""The oldest QEMU with FEAT_LSE2, a feature of newer Arm server cores."""
_EMULATED = ("aarch64",)
"""Emulated architectures. x86-64 is not one: QEMU has no AVX-512."""
_DEBIAN_NAMES = {"aarch64": "arm64", "x86_64": "amd64"}
_MODEL = "max,pauth-impdef=on"
"""All features of QEMU, with a pointer authentication that is fast to emulate."""
_SOURCES = ("/etc/apt/sources.list", "/etc/apt/sources.list.d/debian.sources")
_BYTES = 400_000_000
_MAKE_S = 1800.0
_ASK_S = 60.0
_ASK = (
    "import ctypes; ask = ctypes.CDLL(None).getauxval; ask.restype = ctypes.c_ulong; "
    "ask.argtypes = [ctypes.c_ulong]; print(ask(16), ask(26))"
)
"""Prints AT_HWCAP and AT_HWCAP2."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Emulator:
    """An emulator of another architecture's CPU that has `features`.

    `program` runs the architecture's programs; `sysroot` is a system of that architecture
    with a Python.
    """

    architecture: str
    program: Path
    version: str
    sysroot: Path
    features: frozenset[str]

    @property
    def name(self) -> str:
        """Return the program and its version."""
        return f"{self.program.name} {self.version}"

    @property
    def launcher(self) -> tuple[str, ...]:
        """Return the words that go before a program of the architecture."""
        return (str(self.program), "-L", str(self.sysroot), "-cpu", _MODEL)

    @property
    def interpreter(self) -> Path:
        return _locate_interpreter(self.sysroot)

    @property
    def cpu(self) -> Cpu:
        """Return the CPU that programs see."""
        return Cpu(
            architecture=self.architecture,
            vendor="QEMU",
            name=self.name,
            family=0,
            model=0,
            stepping=0,
            microcode="",
            hypervisor=None,
            features=self.features,
        )


def find_emulator(architecture: str, paths: Paths) -> Emulator:
    """Find QEMU for an architecture, and a Debian of that architecture.

    Each is created on the first call if the machine has none. Raises ToolError with the
    commands that install what is missing.
    """
    if architecture not in _EMULATED:
        raise ToolError(
            f"cannot test kernels for {architecture} on {platform.machine()}",
            hint=f"Build them on a machine with {architecture}",
        )
    if not can_emulate(architecture):
        raise ToolError(
            f"cannot test kernels for {architecture}: mmdebstrap, which fetches QEMU, is missing",
            hint=packages.suggest_install("mmdebstrap", "mmdebstrap")
            + f"; or build on a machine with {architecture}",
        )
    program = _find_program(architecture) or _fetch_program(architecture, paths)
    named_sysroot = os.environ.get(SYSROOT, "")
    sysroot = (
        expand_home(named_sysroot, SYSROOT).resolve()
        if named_sysroot
        else _fetch_sysroot(architecture, paths)
    )
    if not _locate_interpreter(sysroot).exists():
        raise ToolError(
            f"{sysroot} has no {_locate_interpreter(sysroot).name}",
            hint=f"Set {SYSROOT} to a system that has it",
        )
    return Emulator(
        architecture=architecture,
        program=program,
        version=str(_read_version(program)),
        sysroot=sysroot,
        features=_read_features(program, sysroot, architecture),
    )


def can_emulate(architecture: str) -> bool:
    """Return whether an architecture can be emulated here.

    It must differ from this machine's, and `find_emulator` must find its programs.
    """
    if architecture not in _EMULATED or architecture == platform.machine():
        return False
    is_complete = _find_program(architecture) is not None and bool(os.environ.get(SYSROOT))
    return is_complete or shutil.which("mmdebstrap") is not None


def _find_program(architecture: str) -> Path | None:
    """Find the machine's QEMU, if it is new enough."""
    program = shutil.which(f"qemu-{architecture}")
    return Path(program) if program and _read_version(Path(program)) >= _OLDEST else None


def _fetch_program(architecture: str, paths: Paths) -> Path:
    root = _fetch_packages(_QEMU_SUITE, platform.machine(), "qemu-user", paths)
    return root / "usr" / "bin" / f"qemu-{architecture}"


def _fetch_sysroot(architecture: str, paths: Paths) -> Path:
    return _fetch_packages(_SUITE, architecture, _PACKAGES, paths)


def _fetch_packages(suite: str, architecture: str, packages: str, paths: Paths) -> Path:
    """Fetch packages of a Debian into the cache, verified by apt; return the folder.

    They are unpacked but not configured, which needs no root and no emulation.
    """
    folder = paths.tools / f"{suite}-{architecture}-{packages.partition(',')[0]}"
    with lock_folder(paths.tools, f"creating {folder.name}", wait=True):
        if not folder.is_dir():
            require_disk(paths.tools, _BYTES, f"creating {folder.name}")
            with console.report_step(
                f"mmdebstrap: {packages} of Debian {suite} for {architecture}"
            ):
                _unpack_packages(suite, architecture, packages, folder)
    return folder


def _unpack_packages(suite: str, architecture: str, packages: str, folder: Path) -> None:
    words: list[str | Path] = ["mmdebstrap", "--quiet", "--variant=extract"]
    words += [f"--architectures={_DEBIAN_NAMES[architecture]}", f"--include={packages}"]
    with tempfile.TemporaryDirectory(prefix=f"{folder.name}.", dir=folder.parent) as scratch:
        root = Path(scratch) / "root"
        try:
            run([*words, suite, root, *_list_sources(suite)], timeout_s=_MAKE_S)
        except CommandError as error:
            raise ToolError(
                f"mmdebstrap could not download {packages} for {architecture}: {error.last_line}",
                hint=f"Check apt's sources; or put QEMU {_OLDEST} on PATH and set {SYSROOT} to a "
                "system of that architecture",
            ) from error
        root.rename(folder)


def _list_sources(suite: str) -> list[str]:
    """Return the machine's lists of sources if it has this Debian: they may name a mirror."""
    release = Path("/etc/os-release")
    os_release = release.read_text(encoding="utf-8") if release.is_file() else ""
    is_same = re.search(rf"(?m)^VERSION_CODENAME={suite}$", os_release)
    return [path for path in _SOURCES if is_same and Path(path).is_file()]


def _locate_interpreter(sysroot: Path) -> Path:
    return sysroot / "usr" / "bin" / f"python{PYTHON}"


def _read_version(program: Path) -> Version:
    output = run([program, "--version"], timeout_s=_ASK_S, check=False).output
    match = re.search(r"version (\d+(?:\.\d+)+)", output)
    return Version(match[1] if match else "0")


def _read_features(program: Path, sysroot: Path, architecture: str) -> frozenset[str]:
    """Read the features that Linux would report to a program of the emulated CPU."""
    words: list[str | Path] = [program, "-L", sysroot, "-cpu", _MODEL, _locate_interpreter(sysroot)]
    words += ["-I", "-S", "-c", _ASK]
    try:
        output = run(words, timeout_s=_ASK_S).output.split()
    except CommandError as error:
        raise ToolError(
            f"{program.name} does not run the Python of {sysroot}: {error.last_line}",
            hint="Delete the folder; the next run creates it again",
        ) from error
    values = dict(enumerate(map(int, output), start=1))
    return frozenset(
        row.name
        for row in load_features(architecture).values()
        if row.hwcap is not None and values[row.hwcap.word] >> row.hwcap.bit & 1
    )
