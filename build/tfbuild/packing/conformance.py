"""The conformance record of a finished wheel: a file beside it, bound to its hash.

A wheel whose kernels were tested on a proxy target must not be published before `invoke admit` has
tested them on a CPU that has the target's features. A wheel for a fleet can need several machines:
one file has the results of all.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tfbuild.packing.tuned import Tuned
from tfcore.errors import AdmissionError, KernelError, RecordError
from tfcore.records import decode_record, load, save

SCHEMA = 1
_ENDING = ".admitted.json"


@dataclass(frozen=True, kw_only=True, slots=True)
class UnitOutcome:
    """The result of a kernel group's conformance test; `reason` is empty if its kernels agree
    with the stock ones.

    `ulps` is the largest distance from the stock kernel per op, over `cases` cases.
    """

    cases: int = 0
    ulps: Mapping[str, float] = field(default_factory=dict)
    reason: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class ConformanceTrial:
    """A conformance test of a library's kernels on a CPU, whose `kind` distinguishes it from
    others. `judge` is the hash of the code that compared its results.
    """

    cpu: str
    kind: str
    judge: str
    units: Mapping[str, UnitOutcome]

    @property
    def failed(self) -> dict[str, str]:
        """The kernel groups that failed: name → reason."""
        return {unit: outcome.reason for unit, outcome in self.units.items() if outcome.reason}


@dataclass(frozen=True, kw_only=True, slots=True)
class ConformanceRecord:
    """The conformance trials of a wheel with this hash, by the target of the library."""

    schema: int = SCHEMA
    wheel: str
    wheel_sha256: str
    targets: Mapping[str, ConformanceTrial]


@dataclass(frozen=True, kw_only=True, slots=True)
class ConformanceStatus:
    """The conformance status of a target's kernels.

    `ran_as` are the targets that they were compiled for in the test of the build, `trial` is the
    recorded test of the finished library. `proven` if they passed on their own target.
    """

    target: str
    ran_as: tuple[str, ...]
    trial: ConformanceTrial | None
    proven: bool

    @property
    def failed(self) -> dict[str, str]:
        return self.trial.failed if self.trial else {}


def get_record_path(wheel: Path) -> Path:
    """Return the path of a wheel's record."""
    return wheel.with_suffix(_ENDING)


def read_record(wheel: Path, sha256: str) -> ConformanceRecord | None:
    """Return the record of the wheel with this hash; None if there is none.

    Raises RecordError for a damaged file.
    """
    path = get_record_path(wheel)
    if not path.is_file():
        return None
    hint = "Delete it, then run invoke admit again"
    try:
        record = decode_record(ConformanceRecord, load(path, schema=SCHEMA))
    except RecordError as error:
        raise RecordError(error.message, hint=hint) from error
    except (TypeError, ValueError, KeyError) as error:
        raise RecordError(f"{path} is not a conformance record ({error})", hint=hint) from error
    return record if record.wheel_sha256 == sha256 else None


def merge_records(old: ConformanceRecord | None, new: ConformanceRecord) -> ConformanceRecord:
    """Return both records merged if they are of the same wheel hash; for a target in both, the
    new trial.
    """
    if old is None or old.wheel_sha256 != new.wheel_sha256:
        return new
    return ConformanceRecord(
        wheel=new.wheel, wheel_sha256=new.wheel_sha256, targets={**old.targets, **new.targets}
    )


def save_record(wheel: Path, record: ConformanceRecord) -> Path:
    """Write the record beside its wheel.

    Raises DiskError.
    """
    path = get_record_path(wheel)
    save(path, record)
    return path


def list_statuses(facts: Tuned, record: ConformanceRecord | None) -> tuple[ConformanceStatus, ...]:
    """Return the status of each kernel library, in the wheel's order; a full build has none."""
    statuses = []
    for library in facts.libraries:
        trial = record.targets.get(library.target) if record else None
        units = {unit for unit, conformance in library.admission.items() if conformance.ops}
        at_build = library.ran_as == (library.target,)
        complete = trial is not None and units <= trial.units.keys()
        statuses.append(
            ConformanceStatus(
                target=library.target,
                ran_as=library.ran_as,
                trial=trial,
                proven=(at_build or complete) and not (trial and trial.failed),
            )
        )
    return tuple(statuses)


def read_statuses(wheel: Path, facts: Tuned, sha256: str) -> tuple[ConformanceStatus, ...]:
    """Return the statuses of a wheel from the record beside it.

    Raises RecordError for a damaged record.
    """
    return list_statuses(facts, read_record(wheel, sha256))


def describe(status: ConformanceStatus) -> str:
    """Describe a status in one line, without the target."""
    if status.ran_as == (status.target,):
        at_build = "passed the conformance test on its own target"
        return f"{at_build}; {_describe_trial(status)}" if status.trial else at_build
    targets = " and ".join(status.ran_as)
    return f"passed the conformance test as {targets}; {_describe_trial(status)}"


def _describe_trial(status: ConformanceStatus) -> str:
    trial = status.trial
    if trial is None:
        return "conformance record: none"
    if trial.failed:
        return f"conformance record: {', '.join(trial.failed)} failed on {trial.cpu}"
    return f"conformance record: passed on {trial.cpu}"


def describe_failures(trials: Mapping[str, ConformanceTrial]) -> Iterator[str]:
    """Yield a line for each kernel group that failed the conformance test."""
    for target, trial in trials.items():
        for unit, reason in trial.failed.items():
            yield (
                f"kernel group {unit} failed the conformance test on {target} ({trial.cpu}): "
                f"{reason}"
            )


def describe_remedy(units: Mapping[str, str]) -> str:
    """Return the advice for kernel groups that failed."""
    return f"Do not publish the wheel. Build it again with --without {','.join(units)}"


def check_trials(file: str, trials: Mapping[str, ConformanceTrial]) -> None:
    """Raise KernelError if kernels of the wheel failed the conformance test."""
    failed = {unit: reason for trial in trials.values() for unit, reason in trial.failed.items()}
    if failed:
        raise KernelError(
            f"{file}: {', '.join(failed)} failed the conformance test",
            hint=describe_remedy(failed),
        )


def check_proven(wheel: Path, statuses: tuple[ConformanceStatus, ...]) -> None:
    """Raise AdmissionError for a wheel with kernels that failed the conformance test, or that were
    not tested on their own target.
    """
    for status in statuses:
        if status.failed:
            unit, reason = next(iter(status.failed.items()))
            raise AdmissionError(
                f"{wheel.name} is refused: kernel group {unit} failed the conformance test on "
                f"{status.target}: {reason}",
                hint=describe_remedy(status.failed),
            )
    unproven = [status for status in statuses if not status.proven]
    if unproven:
        descriptions = "; ".join(f"{status.target} {describe(status)}" for status in unproven)
        targets = " and ".join(status.target for status in unproven)
        raise AdmissionError(
            f"{wheel.name} has kernels that were not tested on their own target: {descriptions}",
            hint=f"Run invoke admit {wheel} on a CPU that runs {targets}",
        )
