"""Cells measured, each launch a process of its own; what they say is kept as it comes."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from random import Random
from types import MappingProxyType
from typing import Any

from tfbench.arms.arm import Arm
from tfbench.cells.cell import Cell, LaunchResult, Outcome
from tfbench.cells.limits import limited
from tfbench.engine import engine
from tfbench.engine.endings import clean_lines, find_explanation
from tfbench.engine.engine import RunProgress
from tfbench.engine.journal import JOURNAL, Keep, Kinds, open_journal
from tfbench.engine.workers import Session, build_worker_environment, start_session
from tfbuild import console
from tfbuild.errors import WorkerError

KINDS: Kinds[LaunchResult] = MappingProxyType({"cell": LaunchResult})
Progress = Callable[[int, int, str], None]
LIMIT_S = 600.0
_NO_MEMORY = re.compile(
    r"MemoryError|bad_alloc|Cannot allocate memory|ResourceExhausted|ended by SIGKILL|OOM when",
)
_LATE = re.compile(r"did not answer \w+ within")
_LOG = re.compile(r" \(its output: .*?\)")
_AGAIN = (Outcome.FAILED, Outcome.LATE)
_MANY = 160  # characters of a reason


@dataclass(frozen=True, kw_only=True, slots=True)
class Cells:
    """Cells as the engine runs them, by their arms' names; `out` gets the logs.

    Launch by launch, the cells of each in an order of chance: so what a machine does for a while
    does not fall on one cell. A place that a launch has marked gets no further one.
    """

    cells: Sequence[Cell]
    arms: Mapping[str, Arm]
    out: Path
    seed: int
    limit_s: float
    listen: Progress

    def counts(self, result: LaunchResult) -> bool:
        """What failed or took too long may end well the next time."""
        return result.outcome not in _AGAIN

    def following(self, entries: Sequence[LaunchResult], spent: RunProgress) -> Cell | None:
        known = {result.key: result.outcome for result in entries}
        marked = {
            cell.place for cell in self.cells if known.get(cell.key, Outcome.OK) is not Outcome.OK
        }
        waiting = [
            cell
            for cell in ordered(self.cells, self.seed)
            if cell.key not in known and cell.place not in marked
        ]
        if not waiting:
            return None
        self.listen(spent.launches, spent.launches + len(waiting), waiting[0].name)
        return waiting[0]

    def launch(self, cell: Cell, keep: Keep[LaunchResult]) -> None:
        result = run(cell, self.arms[cell.arm], self.out, limit_s=self.limit_s)
        keep(result)
        if result.outcome is not Outcome.OK:
            console.print_note(f"{cell.name}: {result.outcome.value}: {result.reason}")


def measure(
    cells: Sequence[Cell],
    arms: Mapping[str, Arm],
    out: Path,
    *,
    seed: int,
    limit_s: float = LIMIT_S,
) -> dict[str, LaunchResult]:
    """By key, what came of every cell; those that `out` knows already are not run again.

    Raises DiskError, RecordError.
    """
    with (
        open_journal(out / JOURNAL, KINDS) as (known, keep),
        console.track_progress("cells", len(cells)) as count,
    ):
        every = Cells(
            cells=cells, arms=arms, out=out, seed=seed, limit_s=limit_s, listen=count.advance
        )
        return {result.key: result for result in engine.run(every, known, keep)}


def ordered(cells: Sequence[Cell], seed: int) -> Iterator[Cell]:
    """Launch by launch, mixed."""
    for launch in sorted({cell.launch for cell in cells}):
        own = [cell for cell in cells if cell.launch == launch]
        chance = Random(f"{seed} {launch}")  # noqa: S311  (a schedule, not a secret)
        yield from chance.sample(own, len(own))


def run(cell: Cell, arm: Arm, out: Path, *, limit_s: float) -> LaunchResult:
    """One launch of a cell. Whatever its process does becomes an outcome. Raises DiskError."""
    logs = out / "logs"
    log = logs / f"{cell.key[:12]}.log"
    chance = Random(cell.key)  # noqa: S311  (bytes of padding, not a secret)
    env = build_worker_environment(arm, len(cell.vcpus), logs, chance)
    began = time.monotonic()
    with ExitStack() as stack:
        limits: dict[str, object] = {}
        if cell.memory_mb is not None:
            limits = stack.enter_context(limited(cell.memory_mb)).request
        worker = stack.enter_context(
            start_session(arm, {**env, **dict(cell.env)}, log, module=cell.module)
        )
        try:
            answer = _answer(worker, cell, limits, limit_s)
            outcome, reason = Outcome(answer.pop("outcome")), str(answer.pop("reason"))
        except WorkerError as error:
            outcome, reason = _marked(error, log, limited=bool(limits))
            answer = {}
    return LaunchResult(
        key=cell.key,
        outcome=outcome,
        reason=shortened(reason),
        seconds=time.monotonic() - began,
        answer=answer if outcome is Outcome.OK else {},
    )


def _answer(
    opened: Session, cell: Cell, limits: Mapping[str, object], limit_s: float
) -> dict[str, Any]:
    """What the process says. Raises WorkerError for an answer of another TensorFlow than the
    arm's, and for a tuned arm that ran stock kernels."""
    fields = {**cell.request, **limits, "vcpus": cell.vcpus}
    answer = opened.request("run", limit_s, **fields)
    if answer["outcome"] == Outcome.OK:
        opened.check_facts(answer, cell.vcpus)
    return answer


def _marked(error: WorkerError, log: Path, *, limited: bool) -> tuple[Outcome, str]:
    """What the end of a worker says."""
    first = _LOG.sub("", error.message.partition("\n")[0])
    if _LATE.search(first):
        return Outcome.LATE, first
    said = log.read_text(encoding="utf-8", errors="replace")
    lines = clean_lines(said)
    found = next((line for line in reversed(lines) if _NO_MEMORY.search(line)), "")
    if found or _NO_MEMORY.search(first):
        return Outcome.OUT_OF_MEMORY, found or "Linux ended the process"
    if limited and "was ended by" in first:  # (C++ that cannot allocate aborts, or worse)
        return Outcome.OUT_OF_MEMORY, f"the process {first.partition(' was ')[2]} at its limit"
    return Outcome.FAILED, find_explanation(said) if "exited with" in first else first


def shortened(reason: str) -> str:
    """The first line of a reason, as long as a line of a table may be."""
    line = reason.strip().partition("\n")[0]
    return line if len(line) <= _MANY else f"{line[: _MANY - 1]}…"
