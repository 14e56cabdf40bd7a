"""Measure cells. Each launch is a process; its result is stored at once."""

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
from tfbench.engine import engine
from tfbench.engine.endings import clean_lines, find_explanation
from tfbench.engine.engine import RunProgress
from tfbench.engine.journal import JOURNAL, Keep, Kinds, open_journal
from tfbench.engine.workers import Session, build_worker_environment, start_session
from tfbench.experiments.cell import Cell, LaunchResult, Outcome
from tfbench.experiments.limits import limit_memory
from tfcore import console
from tfcore.errors import WorkerError

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
class CellSchedule:
    """The cells as an experiment of the engine, with the arms by name. Logs are written to `out`.

    Launches run in order, and the cells of each launch in random order, so that a temporary
    disturbance does not affect only one cell. After a launch that is not OK, its place gets no
    further launches.
    """

    cells: Sequence[Cell]
    arms: Mapping[str, Arm]
    out: Path
    seed: int
    limit_s: float
    listen: Progress

    def is_reusable(self, result: LaunchResult) -> bool:
        """Return whether a result is final. Cells that failed or took too long are run again."""
        return result.outcome not in _AGAIN

    def choose_next(self, entries: Sequence[LaunchResult], spent: RunProgress) -> Cell | None:
        outcomes = {result.key: result.outcome for result in entries}
        failed_places = {
            cell.place
            for cell in self.cells
            if outcomes.get(cell.key, Outcome.OK) is not Outcome.OK
        }
        waiting = [
            cell
            for cell in shuffle_cells(self.cells, self.seed)
            if cell.key not in outcomes and cell.place not in failed_places
        ]
        if not waiting:
            return None
        self.listen(spent.launches, spent.launches + len(waiting), waiting[0].name)
        return waiting[0]

    def run_launch(self, cell: Cell, keep: Keep[LaunchResult]) -> None:
        result = run_cell(cell, self.arms[cell.arm], self.out, limit_s=self.limit_s)
        keep(result)
        if result.outcome is not Outcome.OK:
            console.print_note(f"{cell.name}: {result.outcome.value}: {result.reason}")


def run_cells(
    cells: Sequence[Cell],
    arms: Mapping[str, Arm],
    out: Path,
    *,
    seed: int,
    limit_s: float = LIMIT_S,
) -> dict[str, LaunchResult]:
    """Run every cell that has no result in `out`, and return all results by key.

    Raises DiskError, RecordError.
    """
    with (
        open_journal(out / JOURNAL, KINDS) as (known, keep),
        console.track_progress("cells", len(cells)) as count,
    ):
        schedule = CellSchedule(
            cells=cells, arms=arms, out=out, seed=seed, limit_s=limit_s, listen=count.advance
        )
        return {result.key: result for result in engine.run(schedule, known, keep)}


def shuffle_cells(cells: Sequence[Cell], seed: int) -> Iterator[Cell]:
    """Yield the cells launch by launch, in random order within a launch."""
    for launch in sorted({cell.launch for cell in cells}):
        cells_of_launch = [cell for cell in cells if cell.launch == launch]
        generator = Random(f"{seed} {launch}")  # noqa: S311  (a schedule, not a secret)
        yield from generator.sample(cells_of_launch, len(cells_of_launch))


def run_cell(cell: Cell, arm: Arm, out: Path, *, limit_s: float) -> LaunchResult:
    """Run one launch of a cell; any end of its process is an outcome. Raises DiskError."""
    logs = out / "logs"
    log = logs / f"{cell.key[:12]}.log"
    generator = Random(cell.key)  # noqa: S311  (bytes of padding, not a secret)
    env = build_worker_environment(arm, len(cell.vcpus), logs, generator)
    start_s = time.monotonic()
    with ExitStack() as stack:
        limits: dict[str, object] = {}
        if cell.memory_mb is not None:
            limits = stack.enter_context(limit_memory(cell.memory_mb)).request
        worker = stack.enter_context(
            start_session(arm, {**env, **dict(cell.env)}, log, module=cell.module)
        )
        try:
            answer = _request_answer(worker, cell, limits, limit_s)
            outcome, reason = Outcome(answer.pop("outcome")), str(answer.pop("reason"))
        except WorkerError as error:
            outcome, reason = _classify_error(error, log, limited=bool(limits))
            answer = {}
    return LaunchResult(
        key=cell.key,
        outcome=outcome,
        reason=shorten_reason(reason),
        seconds=time.monotonic() - start_s,
        answer=answer if outcome is Outcome.OK else {},
    )


def _request_answer(
    opened: Session, cell: Cell, limits: Mapping[str, object], limit_s: float
) -> dict[str, Any]:
    """Return the answer of the process.

    Raises WorkerError if the answer is from another TensorFlow than the arm's, or if a tuned arm
    ran stock kernels.
    """
    fields = {**cell.request, **limits, "vcpus": cell.vcpus}
    answer = opened.request("run", limit_s, **fields)
    if answer["outcome"] == Outcome.OK:
        opened.check_facts(answer, cell.vcpus)
    return answer


def _classify_error(error: WorkerError, log: Path, *, limited: bool) -> tuple[Outcome, str]:
    """Return the outcome and the reason for the error of a worker."""
    message = _LOG.sub("", error.message.partition("\n")[0])
    if _LATE.search(message):
        return Outcome.LATE, message
    output = log.read_text(encoding="utf-8", errors="replace")
    lines = clean_lines(output)
    memory_line = next((line for line in reversed(lines) if _NO_MEMORY.search(line)), "")
    if memory_line or _NO_MEMORY.search(message):
        return Outcome.OUT_OF_MEMORY, memory_line or "Linux killed the process"
    if limited and "was ended by" in message:  # (C++ aborts or crashes if it cannot allocate)
        return Outcome.OUT_OF_MEMORY, f"the process {message.partition(' was ')[2]} at its limit"
    return Outcome.FAILED, find_explanation(output) if "exited with" in message else message


def shorten_reason(reason: str) -> str:
    """Return the first line of a reason, cut to 160 characters for a table."""
    line = reason.strip().partition("\n")[0]
    return line if len(line) <= _MANY else f"{line[: _MANY - 1]}…"
