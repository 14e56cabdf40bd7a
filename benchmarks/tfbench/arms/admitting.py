"""Kernels of a wheel that never ran on their own target are run before anything is measured."""

from __future__ import annotations

from pathlib import Path

from tfbuild import console
from tfbuild.cpus.cpu import Cpu
from tfbuild.errors import KernelError
from tfbuild.kernelbuild import finished
from tfbuild.packing import admitted, tuned
from tfbuild.packing.admitted import ConformanceStatus
from tfbuild.settings import Paths
from tfbuild.upstream.download import hash_file


def need_admitted(wheel: Path, cpu: Cpu, paths: Paths) -> None:
    """Admit the kernels of a wheel that this CPU takes, if they were run as others at most.

    Raises KernelError for kernels that fail, now or by the record, and what an admission raises.
    """
    found = standing_of(wheel, cpu)
    if found is None or found.proven:
        return
    if found.failed:
        raise KernelError(
            f"{wheel.name}: {', '.join(found.failed)} failed admission on {found.target}",
            hint=admitted.describe_remedy(found.failed),
        )
    console.print_message(
        f"{wheel.name}: {found.target} is {admitted.describe(found)}; its kernels run first"
    )
    record = finished.check_kernels(
        finished.load_finished_wheel(wheel, cpu), cpu, paths, {found.target}
    )
    admitted.check_trials(wheel.name, record.targets)


def standing_of(wheel: Path, cpu: Cpu) -> ConformanceStatus | None:
    """What is known of the kernels that this CPU takes of a wheel; None where it takes none."""
    facts = tuned.read_tuned(wheel)
    library = tuned.choose_build(facts, cpu) if facts else None
    if facts is None or library is None or not facts.libraries:
        return None
    every = admitted.read_statuses(wheel, facts, hash_file(wheel))
    return next(each for each in every if each.target == library.target)
