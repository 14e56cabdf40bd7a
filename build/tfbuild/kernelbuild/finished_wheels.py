"""The conformance test of a finished wheel, on a CPU that can run its kernel libraries.

It needs no compiler and no sources: it compares the kernels of each kernel group with those of the
stock wheel that the wheel was built from.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from tfbuild.kernelbuild import admission
from tfbuild.kernelbuild.admission import UnitVerdict
from tfbuild.packing import conformance, tuned
from tfbuild.packing.conformance import ConformanceRecord, ConformanceTrial, UnitOutcome
from tfbuild.packing.tuned import KernelLibrary, Tuned
from tfbuild.packing.wheel import extract, read_identity
from tfbuild.tools import environment
from tfbuild.tools.environment import Environment
from tfbuild.upstream import lock_files, releases
from tfbuild.upstream.download import hash_file
from tfbuild.upstream.releases import StockWheel
from tfcore import console
from tfcore.cpus.cpu import Cpu
from tfcore.errors import HostError, WheelError
from tfcore.settings import Paths


@dataclass(frozen=True, kw_only=True, slots=True)
class FinishedWheel:
    """A kernel wheel, the stock wheel it was built from, and the libraries this CPU runs."""

    wheel: Path
    sha256: str
    facts: Tuned
    stock: StockWheel
    libraries: tuple[KernelLibrary, ...]


def load_finished_wheel(wheel: Path, cpu: Cpu) -> FinishedWheel:
    """Load a wheel whose kernels can be tested here.

    Raises WheelError for a wheel without kernel libraries, or of an unknown stock wheel, and
    HostError if this CPU runs none of its libraries.
    """
    facts = tuned.read_tuned(wheel)
    if facts is None or facts.tree is not None:
        kind = "a full build" if facts else "not a tuned wheel"
        raise WheelError(
            f"{wheel.name} is {kind}: it has no kernels to compare with the stock kernels",
            hint="Run invoke compare to see whether it computes the same",
        )
    libraries = tuned.list_runnable(facts, cpu)
    if not libraries:
        raise HostError(
            f"{wheel.name} is built for {', '.join(facts.targets)}, but this CPU lacks "
            f"{', '.join(tuned.list_nearest_missing(facts, cpu))}",
            hint="Run invoke admit on a machine that has them",
        )
    return FinishedWheel(
        wheel=wheel,
        sha256=hash_file(wheel),
        facts=facts,
        stock=_find_stock_wheel(wheel, facts),
        libraries=libraries,
    )


def _find_stock_wheel(wheel: Path, facts: Tuned) -> StockWheel:
    identity = read_identity(wheel)
    tag = releases.format_python_tag(identity.python)
    stock = releases.find_stock_wheel(identity.name, facts.release, tag, identity.machine)
    if stock is None or stock.sha256 != facts.stock_sha256:
        raise WheelError(
            f"{wheel.name} was built from a stock wheel that this version does not know",
            hint="Build it again",
        )
    return stock


def retest_kernels(
    finished_wheel: FinishedWheel, cpu: Cpu, paths: Paths, targets: Collection[str] = ()
) -> ConformanceRecord:
    """Test the kernels of the wheel's libraries, or of those for `targets`, and save the record.

    The record is a file beside the wheel. Raises WheelError for a library whose hash differs
    from tuned.json, RecordError for a torn record, and what fetching and installing the stock
    wheel raises.
    """
    previous = conformance.read_record(finished_wheel.wheel, finished_wheel.sha256)
    folder = paths.work / f"admit-{finished_wheel.sha256[:16]}"
    with console.report_step("stock environment"):
        arm = _create_stock_environment(finished_wheel, paths)
    trials = {}
    for library in finished_wheel.libraries:
        if not targets or library.target in targets:
            with (
                console.report_step(
                    f"conformance test: {library.target} of {finished_wheel.wheel.name}"
                ),
                _extract_library(finished_wheel.wheel, library, folder) as path,
            ):
                trials[library.target] = _test_library(library, path, arm, cpu, folder)
    record = ConformanceRecord(
        wheel=finished_wheel.wheel.name, wheel_sha256=finished_wheel.sha256, targets=trials
    )
    conformance.save_record(finished_wheel.wheel, conformance.merge_records(previous, record))
    for line in conformance.describe_failures(trials):
        console.warn(line)
    return record


def _create_stock_environment(finished_wheel: FinishedWheel, paths: Paths) -> Environment:
    wheel = environment.fetch_stock(finished_wheel.stock, paths)
    requirements = lock_files.load_requirements(finished_wheel.stock)
    python = read_identity(finished_wheel.wheel).python
    return environment.create(wheel, python=python, requirements=requirements, paths=paths)


@contextlib.contextmanager
def _extract_library(wheel: Path, library: KernelLibrary, folder: Path) -> Iterator[Path]:
    """Extract the library's file for the duration of the block."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="unpacked.", dir=folder) as unpacked:
        extract(wheel, (library.file,), Path(unpacked) / "wheel")
        path = Path(unpacked) / "wheel" / library.file
        if hash_file(path) != library.sha256:
            raise WheelError(
                f"{library.file} in {wheel.name} does not have the SHA-256 in its tuned.json",
                hint="Do not publish it; build it again",
            )
        yield path


def _test_library(
    library: KernelLibrary, path: Path, arm: Environment, cpu: Cpu, folder: Path
) -> ConformanceTrial:
    claims = {
        unit: registrations
        for unit in library.admission
        if (registrations := library.list_registrations(unit))
    }
    _, rows = admission.run_probe(dict.fromkeys(claims, path), arm, folder, claims)
    verdicts = {unit: admission.parse_verdict(unit, rows[unit], ()) for unit in claims}
    admission.require_tested(verdicts.values(), folder)
    return ConformanceTrial(
        cpu=cpu.name,
        kind=cpu.kind,
        judge=admission.hash_test_code(),
        units={unit: convert_verdict(verdict) for unit, verdict in verdicts.items()},
    )


def convert_verdict(verdict: UnitVerdict) -> UnitOutcome:
    """Convert a verdict on kernels that are registered already: none of them may be refused."""
    refused = (f"{kernel.op} {kernel.types}: {kernel.reason}" for kernel in verdict.refused)
    return UnitOutcome(
        cases=verdict.cases, ulps=verdict.ulps, reason=verdict.reason or next(refused, "")
    )
