"""All errors. Each class is something that a user can act on, and has its own exit code.

The message says what failed and what was seen; `hint` says what to do next. Only commands print
errors.
"""

from __future__ import annotations

import re
from typing import ClassVar

_WORD = re.compile(r"\S{401,}")
"""A word longer than a path in a message may be. It comes from a foreign file."""


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
        # A message that ends with output or a list already ends its line.
        between = "" if self.message.endswith("\n") else ". "
        return _escape_unprintable(f"{self.message}{between}{self.hint}")


def _escape_unprintable(text: str) -> str:
    """Return the text without control characters and with long words cut.

    What a message shows may come from a foreign file.
    """
    shown = _WORD.sub(lambda match: f"{match[0][:200]}…", text)
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
    """The compiler is missing, unknown or too old for the target."""

    exit_code = 14


class ToolError(TensorwrightError):
    """A required program is missing."""

    exit_code = 15


class DownloadError(TensorwrightError):
    """A download failed from every source."""

    exit_code = 16


class ChecksumError(TensorwrightError):
    """A checksum does not match the pinned one."""

    exit_code = 17


class DiskError(TensorwrightError):
    """Too little disk space, or a file that cannot be read or written."""

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
    """A wheel is missing, malformed or of another kind."""

    exit_code = 21


class BusyError(TensorwrightError):
    """Another run uses a folder that this run needs."""

    exit_code = 22


class DriftError(TensorwrightError):
    """Rendered files differ from those on disk (`render --verify`)."""

    exit_code = 23


class HostError(TensorwrightError):
    """This machine cannot run the wheel, or differs from the machine of another record."""

    exit_code = 24


class WorkerError(TensorwrightError):
    """A benchmark worker died, hung, or loaded the wrong TensorFlow.

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
    """Samples are missing, too few, unequal or not numbers."""

    exit_code = 27


class RecordError(TensorwrightError):
    """A record file is truncated, of another schema or not JSON."""

    exit_code = 28


class FailedTests(TensorwrightError):  # noqa: N818  (the tests failed, not the program)
    """The project's own checks failed."""

    exit_code = 29


class TimeLimitError(CommandError):
    """A program exceeded its time limit."""

    exit_code = 30


class RegressionError(TensorwrightError):
    """An arm is slower than the baseline (`compare --gate`)."""

    exit_code = 31


class InconclusiveError(TensorwrightError):
    """A comparison is inconclusive (`compare --gate`)."""

    exit_code = 32


class HarnessError(TensorwrightError):
    """The harness found differences where none exist (`selfcheck`)."""

    exit_code = 33


class AuditError(TensorwrightError):
    """A wheel does not match its claims: instructions, hashes, tags or versions (`audit`)."""

    exit_code = 34


class GateError(TensorwrightError):
    """No comparison permits the publication of a wheel (`publish`)."""

    exit_code = 35


class PublishError(TensorwrightError):
    """An index refuses a file, or has other bytes under its name."""

    exit_code = 36


class PreflightError(TensorwrightError):
    """A full build on this machine would fail hours later (`build --scope full`)."""

    exit_code = 37


class TreeError(TensorwrightError):
    """A source tree is not TensorFlow's, or differs too much from the known releases."""

    exit_code = 38


class BuildError(TensorwrightError):
    """A full build failed; the message has the cause and the fix if they are known."""

    exit_code = 39


class VendorError(TensorwrightError):
    """A vendor folder is incomplete, or belongs to another plan."""

    exit_code = 40


class AdmissionError(TensorwrightError):
    """Kernels never ran on their own target, or failed the conformance test there (`publish`)."""

    exit_code = 41


class RebuildError(TensorwrightError):
    """A wheel cannot be rebuilt here, so nothing is proven (`audit --rebuild`)."""

    exit_code = 42


class WithdrawnError(TensorwrightError):
    """An installed wheel was withdrawn from its index (`check-installed`)."""

    exit_code = 43


class UnverifiedError(PublishError):
    """A catalog is unsigned, was changed, or is signed by another key."""

    exit_code = 44


class FleetError(TensorwrightError):
    """Hosts of a fleet have no result."""

    exit_code = 45
