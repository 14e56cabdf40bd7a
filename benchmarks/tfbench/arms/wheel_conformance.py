"""Test a wheel's kernels before they are measured, if they never ran on their target."""

from __future__ import annotations

from pathlib import Path

from tfbuild.kernelbuild import finished_wheels
from tfbuild.packing import conformance, tuned
from tfbuild.packing.conformance import ConformanceStatus
from tfbuild.upstream.download import hash_file
from tfcore import console
from tfcore.cpus.cpu import Cpu
from tfcore.errors import KernelError
from tfcore.settings import Paths


def require_conformance(wheel: Path, cpu: Cpu, paths: Paths) -> None:
    """Require that a wheel's kernels for this CPU pass the conformance test.

    The test runs now unless they passed on their target. Raises KernelError for kernels that fail
    now or in the record, and the errors of a conformance test.
    """
    status = find_status(wheel, cpu)
    if status is None or status.proven:
        return
    if status.failed:
        raise KernelError(
            f"{wheel.name}: {', '.join(status.failed)} failed the conformance test of "
            f"{status.target}",
            hint=conformance.describe_remedy(status.failed),
        )
    console.print_message(
        f"{wheel.name}, {status.target}: {conformance.describe(status)}; "
        "its kernels are tested first"
    )
    record = finished_wheels.retest_kernels(
        finished_wheels.load_finished_wheel(wheel, cpu), cpu, paths, {status.target}
    )
    conformance.check_trials(wheel.name, record.targets)


def find_status(wheel: Path, cpu: Cpu) -> ConformanceStatus | None:
    """Return the conformance status of the kernels in the wheel that this CPU runs.

    Returns None if it runs none of them.
    """
    facts = tuned.read_tuned(wheel)
    library = tuned.choose_build(facts, cpu) if facts else None
    if facts is None or library is None or not facts.libraries:
        return None
    statuses = conformance.read_statuses(wheel, facts, hash_file(wheel))
    return next(status for status in statuses if status.target == library.target)
