"""The one error tree. Each class is something a user can act on and has an exit code of its own.

A message says what failed and what was seen; `hint` says what to do next. Only commands print.
"""

from __future__ import annotations

import re
from typing import ClassVar

_WORD = re.compile(r"\S{401,}")
"""Longer than a path may be shown: no word of ours, but of a foreign file."""


class TensorwrightError(Exception):
    """Base class of all errors that a user sees as one line."""

    exit_code: ClassVar[int] = 1

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        if not self.hint:
            return _escape_unprintable(self.message)
        # A message that shows output or a list ends with its own line.
        between = "" if self.message.endswith("\n") else ". "
        return _escape_unprintable(f"{self.message}{between}{self.hint}")


def _escape_unprintable(text: str) -> str:
    """Return the text without control characters and with long words cut.

    What a message shows may come from a foreign file.
    """
    shown = _WORD.sub(lambda found: f"{found[0][:200]}…", text)
    return "".join(
        char if char.isprintable() or char in "\n\t" else char.encode("unicode_escape").decode()
        for char in shown
    )


class UsageError(TensorwrightError):
    """An option has a value that cannot be used."""

    exit_code = 2


class CpuError(TensorwrightError):
    """The CPU could not be read."""

    exit_code = 10


class TargetError(TensorwrightError):
    """An unknown target or feature."""

    exit_code = 11


class ReleaseError(TensorwrightError):
    """An unknown TensorFlow release."""

    exit_code = 12


class PythonError(TensorwrightError):
    """The release has no wheel for this Python, or that Python is not installed."""

    exit_code = 13


class CompilerError(TensorwrightError):
    """No compiler, an unknown one, or one too old for the target."""

    exit_code = 14


class ToolError(TensorwrightError):
    """A program that is needed is missing."""

    exit_code = 15


class DownloadError(TensorwrightError):
    """None of the sources that were tried could be fetched."""

    exit_code = 16


class ChecksumError(TensorwrightError):
    """A file whose bytes are not the pinned ones."""

    exit_code = 17


class DiskError(TensorwrightError):
    """Too little disk space, or a disk that ran full."""

    exit_code = 18


class CommandError(TensorwrightError):
    """A subprocess failed."""

    exit_code = 19

    @property
    def last_line(self) -> str:
        """Return the last line of the program's output, where most programs give the reason."""
        return self.message.strip().splitlines()[-1].strip()


class KernelError(TensorwrightError):
    """A kernel did not compile, or no kernel passed the conformance test."""

    exit_code = 20


class WheelError(TensorwrightError):
    """A wheel that is missing, malformed or not of the expected kind."""

    exit_code = 21


class BusyError(TensorwrightError):
    """Another run holds a folder that this one needs."""

    exit_code = 22


class DriftError(TensorwrightError):
    """Rendered files differ from those on disk (`render --check`)."""

    exit_code = 23


class HostError(TensorwrightError):
    """A machine that cannot run the wheel, or differs from the machine of another record."""

    exit_code = 24


class WorkerError(TensorwrightError):
    """A benchmark worker died, hung, or loaded another TensorFlow than its own.

    `arm` is the worker's arm.
    """

    exit_code = 25

    def __init__(self, message: str, *, hint: str = "", arm: str = "") -> None:
        super().__init__(message, hint=hint)
        self.arm = arm


class AgreementError(TensorwrightError):
    """Two wheels compute different results."""

    exit_code = 26


class SampleError(TensorwrightError):
    """Samples that cannot be evaluated: none, too few, unequal, or not numbers."""

    exit_code = 27


class RecordError(TensorwrightError):
    """A record file that is truncated, of another schema, or not JSON."""

    exit_code = 28


class FailedTests(TensorwrightError):  # noqa: N818  (the tests failed, not the program)
    """The project's own checks failed."""

    exit_code = 29


class TimeLimitError(CommandError):
    """A program ran past its time limit."""

    exit_code = 30


class RegressionError(TensorwrightError):
    """A candidate is slower than the baseline (`compare --gate`)."""

    exit_code = 31


class InconclusiveError(TensorwrightError):
    """A comparison that was inconclusive (`compare --gate`)."""

    exit_code = 32


class HarnessError(TensorwrightError):
    """The harness found differences where there are none (`selfcheck`)."""

    exit_code = 33


class AuditError(TensorwrightError):
    """A wheel that is not what it claims: instructions, hashes, tags or versions (`audit`)."""

    exit_code = 34


class GateError(TensorwrightError):
    """A wheel without a comparison that allows its publication (`publish`)."""

    exit_code = 35


class PublishError(TensorwrightError):
    """An index that refuses a file, or has other bytes under its name."""

    exit_code = 36


class PreflightError(TensorwrightError):
    """A machine on which a full build would fail hours later (`build --scope full`)."""

    exit_code = 37


class TreeError(TensorwrightError):
    """A source tree that is not TensorFlow's, or differs too much from the known releases."""

    exit_code = 38


class BuildError(TensorwrightError):
    """A full build that failed, with the cause that was found and its remedy."""

    exit_code = 39


class VendorError(TensorwrightError):
    """A vendor folder that is incomplete, or belongs to another plan."""

    exit_code = 40


class AdmissionError(TensorwrightError):
    """A wheel whose kernels never ran, or failed the conformance test, on their target
    (`publish`).
    """

    exit_code = 41


class RebuildError(TensorwrightError):
    """A wheel that cannot be rebuilt here, so that nothing is proven (`audit --rebuild`)."""

    exit_code = 42
