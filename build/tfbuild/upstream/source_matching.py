"""Compares the headers of sources with those of the stock wheel.

Kernels are compiled with the wheel's headers, because these describe the layout of the code in its
libraries. A source that was written for other headers may not match them.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tfbuild.upstream.kernels import FOLDER
from tfcore.errors import KernelError

_SUFFIXES = (".h", ".inc")
_TOP = "tensorflow"


@dataclass(frozen=True, kw_only=True, slots=True)
class SourceMatch:
    """A comparison of source headers with those of a stock wheel.

    `own` is True for the release's own sources, by the pinned hash of their archive. `commit`
    is that of a checkout, if git reported it. `compared` is the number of headers that both
    have; `differing` are those that differ, as paths in the tree.
    """

    own: bool
    commit: str = ""
    compared: int
    differing: tuple[str, ...] = ()

    @property
    def exact(self) -> bool:
        return self.own or not self.differing

    @property
    def summary(self) -> str:
        """Return one line: whether the sources match, or how many headers differ."""
        if not self.differing:
            return f"matching sources: all {self.compared} headers equal the wheel's"
        of_kernels = sum(name.startswith(f"{FOLDER}/") for name in self.differing)
        differ = (
            f"{len(self.differing)} of {self.compared} headers differ from the wheel's, "
            f"{of_kernels} of them in core/kernels; the wheel's headers are used"
        )
        return f"the release's own sources: {differ}" if self.own else f"other sources: {differ}"


def compare(tree: Path, include: Path, *, is_own: bool, commit: str = "") -> SourceMatch:
    """Compare the headers of a source tree with those of a stock wheel.

    The wheel's folder `include` has them by the same paths. Line ends are ignored. Raises
    KernelError if they have none in common.
    """
    compared, differing = 0, []
    for path in sorted((tree / _TOP).rglob("*")):
        name = path.relative_to(tree).as_posix()
        if path.suffix in _SUFFIXES and (include / name).is_file():
            compared += 1
            if _read_bytes(path) != _read_bytes(include / name):
                differing.append(name)
    if not compared:
        raise KernelError(
            "the sources and the stock wheel have no header in common",
            hint="Pass TensorFlow's sources with --source",
        )
    return SourceMatch(own=is_own, commit=commit, compared=compared, differing=tuple(differing))


def _read_bytes(path: Path) -> bytes:
    return path.read_bytes().replace(b"\r\n", b"\n")
