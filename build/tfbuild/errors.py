"""The one error tree. Each class is something a user can act on and has an exit code of its own.

A message says what failed and what was seen; `hint` says what to do next. Only commands print.
"""

from __future__ import annotations

import re
from typing import ClassVar

_WORD = re.compile(r"\S{401,}")
"""Longer than a path may be shown: no word of ours, but of a foreign file."""


class TensorwrightError(Exception):
    """Base of everything that a user is told in one line."""

    exit_code: ClassVar[int] = 1

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        if not self.hint:
            return _printable(self.message)
        # A message that shows output or a list ends with its own line.
        between = "" if self.message.endswith("\n") else ". "
        return _printable(f"{self.message}{between}{self.hint}")


def _printable(text: str) -> str:
    """The text as a terminal can take it: what it shows may come from a foreign file."""
    shown = _WORD.sub(lambda found: f"{found[0][:200]}…", text)
    return "".join(
        each if each.isprintable() or each in "\n\t" else each.encode("unicode_escape").decode()
        for each in shown
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
    """A program that the work needs is missing."""

    exit_code = 15


class DownloadError(TensorwrightError):
    """Nothing that was tried could be fetched."""

    exit_code = 16


class ChecksumError(TensorwrightError):
    """Bytes that are not the pinned ones."""

    exit_code = 17


class DiskError(TensorwrightError):
    """Too little disk, or a disk that ran full."""

    exit_code = 18


class CommandError(TensorwrightError):
    """A program that we ran failed."""

    exit_code = 19

    @property
    def last_line(self) -> str:
        """Of what the program said: most of them give their reason there."""
        return self.message.strip().splitlines()[-1].strip()


class KernelError(TensorwrightError):
    """A kernel did not compile, or none was admitted."""

    exit_code = 20


class WheelError(TensorwrightError):
    """A wheel that is not what it should be."""

    exit_code = 21


class BusyError(TensorwrightError):
    """Another run holds what this one needs."""

    exit_code = 22


class DriftError(TensorwrightError):
    """Rendered files differ from what stands on disk (`render --check`)."""

    exit_code = 23


class HostError(TensorwrightError):
    """A machine that cannot run the wheel, or is not of the kind of another."""

    exit_code = 24


class WorkerError(TensorwrightError):
    """A benchmark worker died, hung, or loaded another TensorFlow than its own. `arm` is whose."""

    exit_code = 25

    def __init__(self, message: str, *, hint: str = "", arm: str = "") -> None:
        super().__init__(message, hint=hint)
        self.arm = arm


class AgreementError(TensorwrightError):
    """Two wheels do not compute the same."""

    exit_code = 26


class SampleError(TensorwrightError):
    """Samples that allow no answer: none, too few, unequal, or not numbers."""

    exit_code = 27


class RecordError(TensorwrightError):
    """A file of ours that is truncated, of another schema, or not JSON."""

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
    """A comparison that gave no answer (`compare --gate`)."""

    exit_code = 32


class HarnessError(TensorwrightError):
    """The harness found differences where there are none (`selfcheck`)."""

    exit_code = 33


class AuditError(TensorwrightError):
    """A wheel that is not what it says: instructions, hashes, tags or versions (`audit`)."""

    exit_code = 34


class GateError(TensorwrightError):
    """A wheel that no comparison lets through (`publish`)."""

    exit_code = 35


class PublishError(TensorwrightError):
    """An index that refuses, or that has other bytes under a name."""

    exit_code = 36


class PreflightError(TensorwrightError):
    """A machine on which a full build would fail hours later (`build --scope full`)."""

    exit_code = 37


class TreeError(TensorwrightError):
    """A source tree that is not TensorFlow's, or too different from what is known of it."""

    exit_code = 38


class BuildError(TensorwrightError):
    """A full build that failed, with the cause that was found and its remedy."""

    exit_code = 39


class VendorError(TensorwrightError):
    """A vendor folder that is not whole, or is of another plan."""

    exit_code = 40


class AdmissionError(TensorwrightError):
    """A wheel with kernels that never ran on their own target, or failed there (`publish`)."""

    exit_code = 41


class RebuildError(TensorwrightError):
    """A wheel that cannot be made again here, so that nothing is proven (`audit --rebuild`)."""

    exit_code = 42
