"""What the admission of a finished wheel has found: a record beside it, bound to its bytes.

A wheel whose kernels were admitted as compiled for another target is not to be published before
`invoke admit` has run them on a CPU that has the features. A wheel for a fleet may take several
such machines: their records are one file.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tfbuild.errors import AdmissionError, KernelError, RecordError
from tfbuild.packing.tuned import Tuned
from tfbuild.records import decode_record, load, save

SCHEMA = 1
_ENDING = ".admitted.json"


@dataclass(frozen=True, kw_only=True, slots=True)
class UnitOutcome:
    """What was seen of a unit's kernels; `reason` is empty if they agree with the stock ones.

    `ulps` is the largest distance from the stock kernel per op, over `cases` cases.
    """

    cases: int = 0
    ulps: Mapping[str, float] = field(default_factory=dict)
    reason: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class AdmissionTrial:
    """A library's kernels as they ran on a CPU, whose `kind` tells it from others. `judge` is the
    hash of the code that compared them."""

    cpu: str
    kind: str
    judge: str
    units: Mapping[str, UnitOutcome]

    @property
    def failed(self) -> dict[str, str]:
        """Unit → why it is not admitted."""
        return {unit: each.reason for unit, each in self.units.items() if each.reason}


@dataclass(frozen=True, kw_only=True, slots=True)
class Record:
    """The trials of a wheel with these bytes, by the target of the library."""

    schema: int = SCHEMA
    wheel: str
    wheel_sha256: str
    targets: Mapping[str, AdmissionTrial]


@dataclass(frozen=True, kw_only=True, slots=True)
class AdmissionStatus:
    """What is known of a target's kernels: as what they were run when they were built, and the
    recorded `trial` of the finished library. `proven` if they ran on their own target and agreed
    with the stock ones."""

    target: str
    ran_as: tuple[str, ...]
    trial: AdmissionTrial | None
    proven: bool

    @property
    def failed(self) -> dict[str, str]:
        return self.trial.failed if self.trial else {}


def record_of(wheel: Path) -> Path:
    """Where a wheel's record lies."""
    return wheel.with_suffix(_ENDING)


def read_record(wheel: Path, sha256: str) -> Record | None:
    """The record of the wheel with these bytes; None where there is none of them.

    Raises RecordError for a file that is torn.
    """
    path = record_of(wheel)
    if not path.is_file():
        return None
    hint = "Remove it and run invoke admit again"
    try:
        found = decode_record(Record, load(path, schema=SCHEMA))
    except RecordError as error:
        raise RecordError(error.message, hint=hint) from error
    except (TypeError, ValueError, KeyError) as error:
        raise RecordError(f"{path} is no record of an admission ({error})", hint=hint) from error
    return found if found.wheel_sha256 == sha256 else None


def merged(old: Record | None, new: Record) -> Record:
    """Both, if they are of the same bytes; of a target that both have, the new one."""
    if old is None or old.wheel_sha256 != new.wheel_sha256:
        return new
    return Record(
        wheel=new.wheel, wheel_sha256=new.wheel_sha256, targets={**old.targets, **new.targets}
    )


def keep(wheel: Path, record: Record) -> Path:
    """Write the record beside its wheel. Raises DiskError."""
    path = record_of(wheel)
    save(path, record)
    return path


def standings(facts: Tuned, record: Record | None) -> tuple[AdmissionStatus, ...]:
    """One for each kernel library, in the wheel's order; a full build has none."""
    found = []
    for library in facts.libraries:
        trial = record.targets.get(library.target) if record else None
        units = {unit for unit, each in library.admission.items() if each.ops}
        at_build = library.ran_as == (library.target,)
        whole = trial is not None and units <= trial.units.keys()
        found.append(
            AdmissionStatus(
                target=library.target,
                ran_as=library.ran_as,
                trial=trial,
                proven=(at_build or whole) and not (trial and trial.failed),
            )
        )
    return tuple(found)


def standings_in(wheel: Path, facts: Tuned, sha256: str) -> tuple[AdmissionStatus, ...]:
    """Those of a wheel and the record beside it. Raises RecordError for a torn one."""
    return standings(facts, read_record(wheel, sha256))


def describe(standing: AdmissionStatus) -> str:
    """In a line, without the target."""
    if standing.ran_as == (standing.target,):
        begun = "admitted on its own target"
        return f"{begun}; {_tried(standing)}" if standing.trial else begun
    return f"admitted as {' and '.join(standing.ran_as)}; {_tried(standing)}"


def _tried(standing: AdmissionStatus) -> str:
    trial = standing.trial
    if trial is None:
        return "recorded admission: none"
    if trial.failed:
        return f"recorded admission: {', '.join(trial.failed)} failed on {trial.cpu}"
    return f"recorded admission: on {trial.cpu}"


def failures(found: Mapping[str, AdmissionTrial]) -> Iterator[str]:
    """A line for each kernel unit that is not admitted."""
    for target, trial in found.items():
        for unit, reason in trial.failed.items():
            yield f"kernel {unit} is not admitted on {target} ({trial.cpu}): {reason}"


def remedy(units: Mapping[str, str]) -> str:
    """What is to be done about units that failed."""
    return f"Do not publish it; build it again, with --without {','.join(units)}"


def judge(file: str, found: Mapping[str, AdmissionTrial]) -> None:
    """Raises KernelError when kernels of the wheel are not admitted."""
    failed = {unit: why for trial in found.values() for unit, why in trial.failed.items()}
    if failed:
        raise KernelError(f"{file}: {', '.join(failed)} failed admission", hint=remedy(failed))


def need_proven(wheel: Path, found: tuple[AdmissionStatus, ...]) -> None:
    """Raises AdmissionError for a wheel with kernels that failed, or that never ran on their own
    target."""
    for each in found:
        if each.failed:
            unit, reason = next(iter(each.failed.items()))
            raise AdmissionError(
                f"{wheel.name} is refused: kernel {unit} failed admission on {each.target}: "
                f"{reason}",
                hint=remedy(each.failed),
            )
    unproven = [each for each in found if not each.proven]
    if unproven:
        what = "; ".join(f"{each.target} is {describe(each)}" for each in unproven)
        targets = " and ".join(each.target for each in unproven)
        raise AdmissionError(
            f"{wheel.name} has kernels that never ran on their own target: {what}",
            hint=f"Run: invoke admit {wheel}, on a CPU that runs {targets}",
        )
