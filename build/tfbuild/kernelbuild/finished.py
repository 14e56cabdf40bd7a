"""The real admission of a finished wheel: its kernel libraries, run on a CPU that can run them.

No compiler and no sources are needed: each unit's kernels are held against those of the stock wheel
that the wheel was made from.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from tfbuild import console
from tfbuild.cpus.cpu import Cpu
from tfbuild.errors import HostError, WheelError
from tfbuild.kernelbuild import admission
from tfbuild.kernelbuild.admission import UnitVerdict
from tfbuild.packing import admitted, tuned
from tfbuild.packing.admitted import ConformanceRecord, ConformanceTrial, UnitOutcome
from tfbuild.packing.tuned import KernelLibrary, Tuned
from tfbuild.packing.wheel import extract, read_identity
from tfbuild.settings import Paths
from tfbuild.tools import environment
from tfbuild.tools.environment import Environment
from tfbuild.upstream import locked, releases
from tfbuild.upstream.download import hash_file
from tfbuild.upstream.releases import StockWheel


@dataclass(frozen=True, kw_only=True, slots=True)
class Finished:
    """A wheel of kernels, the stock wheel that it was made from, and those of its libraries that
    this CPU runs."""

    wheel: Path
    sha256: str
    facts: Tuned
    stock: StockWheel
    libraries: tuple[KernelLibrary, ...]


def finished(wheel: Path, cpu: Cpu) -> Finished:
    """What can be admitted of a wheel here.

    Raises WheelError for one without kernel libraries, or of an unknown stock wheel, and HostError
    where this CPU runs none of them.
    """
    facts = tuned.read_tuned(wheel)
    if facts is None or facts.tree is not None:
        what = "a full build" if facts else "not a tuned wheel"
        raise WheelError(
            f"{wheel.name} is {what}: it has no kernels to hold against the stock ones",
            hint="invoke compare says whether it computes the same",
        )
    runs = tuned.list_runnable(facts, cpu)
    if not runs:
        raise HostError(
            f"{wheel.name} is built for {', '.join(facts.targets)}, and this CPU lacks "
            f"{', '.join(tuned.list_nearest_missing(facts, cpu))}",
            hint="Admit it on a machine that has them",
        )
    return Finished(
        wheel=wheel,
        sha256=hash_file(wheel),
        facts=facts,
        stock=_stock(wheel, facts),
        libraries=runs,
    )


def _stock(wheel: Path, facts: Tuned) -> StockWheel:
    identity = read_identity(wheel)
    tag = releases.format_python_tag(identity.python)
    found = releases.find_stock_wheel(identity.name, facts.release, tag, identity.machine)
    if found is None or found.sha256 != facts.stock_sha256:
        raise WheelError(
            f"{wheel.name} was made from a stock wheel that is not known here",
            hint="Build it anew",
        )
    return found


def admit(
    found: Finished, cpu: Cpu, paths: Paths, targets: Collection[str] = ()
) -> ConformanceRecord:
    """Run the kernels of the wheel's libraries, or of those for `targets`, and write what came of
    it into the record beside the wheel.

    Raises WheelError for a library that is not what the wheel says, RecordError for a torn record,
    and what fetching and installing the stock wheel raises.
    """
    before = admitted.read_record(found.wheel, found.sha256)
    folder = paths.work / f"admit-{found.sha256[:16]}"
    with console.report_step("stock environment"):
        arm = _stock_environment(found, paths)
    trials = {}
    for library in found.libraries:
        if not targets or library.target in targets:
            with (
                console.report_step(f"admission: {library.target} of {found.wheel.name}"),
                _extracted(found.wheel, library, folder) as path,
            ):
                trials[library.target] = _tried(library, path, arm, cpu, folder)
    new = ConformanceRecord(wheel=found.wheel.name, wheel_sha256=found.sha256, targets=trials)
    admitted.save_record(found.wheel, admitted.merge_records(before, new))
    for line in admitted.describe_failures(trials):
        console.warn(line)
    return new


def _stock_environment(found: Finished, paths: Paths) -> Environment:
    wheel = environment.fetch_stock(found.stock, paths)
    needs = locked.load_requirements(found.stock)
    python = read_identity(found.wheel).python
    return environment.create(wheel, python=python, requirements=needs, paths=paths)


@contextlib.contextmanager
def _extracted(wheel: Path, library: KernelLibrary, folder: Path) -> Iterator[Path]:
    """The library's file, as long as it is needed."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="unpacked.", dir=folder) as unpacked:
        extract(wheel, (library.file,), Path(unpacked) / "wheel")
        path = Path(unpacked) / "wheel" / library.file
        if hash_file(path) != library.sha256:
            raise WheelError(
                f"{wheel.name} has another {library.file} than its tuned.json says",
                hint="Do not publish it; build it anew",
            )
        yield path


def _tried(
    library: KernelLibrary, path: Path, arm: Environment, cpu: Cpu, folder: Path
) -> ConformanceTrial:
    claims = {
        unit: registrations
        for unit in library.admission
        if (registrations := library.list_registrations(unit))
    }
    _, rows = admission.probe(dict.fromkeys(claims, path), arm, folder, claims)
    found = {unit: admission.verdict_of(unit, rows[unit], ()) for unit in claims}
    admission.need_judged(found.values(), folder)
    return ConformanceTrial(
        cpu=cpu.name,
        kind=cpu.kind,
        judge=admission.judge_sha256(),
        units={unit: outcome(verdict) for unit, verdict in found.items()},
    )


def outcome(verdict: UnitVerdict) -> UnitOutcome:
    """What a verdict says of kernels that are registered already: none of them may be refused."""
    refused = (f"{each.op} {each.types}: {each.reason}" for each in verdict.refused)
    return UnitOutcome(
        cases=verdict.cases, ulps=verdict.ulps, reason=verdict.reason or next(refused, "")
    )
