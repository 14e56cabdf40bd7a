"""Cells measured, each launch a process of its own; what they say is kept as it comes."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from random import Random
from typing import Any

from tfbench.arms.arm import Arm
from tfbench.cells.cell import Cell, Outcome, Told
from tfbench.cells.limits import limited
from tfbench.measuring.journal import appending, read_lines
from tfbench.measuring.sessions import Session, session, worker_environment
from tfbuild import talk
from tfbuild.errors import WorkerError
from tfbuild.records import plain, read

JOURNAL = "cells.jsonl"
LIMIT_S = 600.0
_NO_MEMORY = re.compile(
    r"MemoryError|bad_alloc|Cannot allocate memory|ResourceExhausted|ended by SIGKILL|OOM when",
)
_LATE = re.compile(r"did not answer \w+ within")
_LOG = re.compile(r" \(its output: .*?\)")
_ANSI = re.compile(r"\x1b\[[0-9;]*m")
_AGAIN = (Outcome.FAILED, Outcome.LATE)
_MANY = 160  # characters of a reason


def measure(
    cells: Sequence[Cell],
    arms: Mapping[str, Arm],
    out: Path,
    *,
    seed: int,
    limit_s: float = LIMIT_S,
) -> dict[str, Told]:
    """By key, what came of every cell; those that `out` knows already are not run again, but for
    what failed or took too long, which may end well the next time.

    Launch by launch, the cells of each in an order of chance: so what a machine does for a while
    does not fall on one cell. A place that a launch has marked gets no further one. Raises
    DiskError, RecordError.
    """
    known = {key: told for key, told in known_cells(out).items() if told.outcome not in _AGAIN}
    marked = {cell.place for cell in cells if cell.key in known and _is_marked(known[cell.key])}
    waiting = [cell for cell in ordered(cells, seed) if cell.key not in known]
    with appending(out / JOURNAL) as append, talk.counting("cells", len(waiting)) as count:
        for number, cell in enumerate(waiting):
            count.advance(number, detail=cell.name)
            if cell.place in marked:
                continue
            told = run(cell, arms[cell.arm], out, limit_s=limit_s)
            append(plain(told))
            known[told.key] = told
            if _is_marked(told):
                marked.add(cell.place)
                talk.note(f"{cell.name}: {told.outcome.value}: {told.reason}")
    return known


def known_cells(out: Path) -> dict[str, Told]:
    """What an earlier run has written there. Raises RecordError."""
    path = out / JOURNAL
    if not path.is_file():
        return {}
    return {told.key: told for told in read_lines(path, _told, "a cell")}


def _told(fields: Any) -> Told:  # noqa: ANN401  (JSON)
    whole = dict(fields)
    answer = whole.pop("answer")
    return Told(**{**whole, "outcome": read(Outcome, whole["outcome"])}, answer=answer)


def _is_marked(told: Told) -> bool:
    return told.outcome is not Outcome.OK


def ordered(cells: Sequence[Cell], seed: int) -> Iterator[Cell]:
    """Launch by launch, mixed."""
    for launch in sorted({cell.launch for cell in cells}):
        own = [cell for cell in cells if cell.launch == launch]
        chance = Random(f"{seed} {launch}")  # noqa: S311  (a schedule, not a secret)
        yield from chance.sample(own, len(own))


def run(cell: Cell, arm: Arm, out: Path, *, limit_s: float = LIMIT_S) -> Told:
    """One launch of a cell. Whatever its process does becomes an outcome. Raises DiskError."""
    logs = out / "logs"
    log = logs / f"{cell.key[:12]}.log"
    chance = Random(cell.key)  # noqa: S311  (bytes of padding, not a secret)
    env = worker_environment(arm, len(cell.vcpus), logs, chance)
    began = time.monotonic()
    with ExitStack() as stack:
        limits: dict[str, object] = {}
        if cell.memory_mb is not None:
            limits = stack.enter_context(limited(cell.memory_mb)).request
        opened = stack.enter_context(
            session(arm, {**env, **dict(cell.env)}, log, module=cell.module)
        )
        try:
            answer = _answer(opened, cell, limits, limit_s)
            outcome, reason = Outcome(answer.pop("outcome")), str(answer.pop("reason"))
        except WorkerError as error:
            outcome, reason = _marked(error, log, limited=bool(limits))
            answer = {}
    return Told(
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
        opened.need_own(answer, cell.vcpus)
    return answer


def _marked(error: WorkerError, log: Path, *, limited: bool) -> tuple[Outcome, str]:
    """What the end of a worker says."""
    first = _LOG.sub("", error.message.partition("\n")[0])
    if _LATE.search(first):
        return Outcome.LATE, first
    said = _ANSI.sub("", log.read_text(encoding="utf-8", errors="replace"))
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    found = next((line for line in reversed(lines) if _NO_MEMORY.search(line)), "")
    if found or _NO_MEMORY.search(first):
        return Outcome.OUT_OF_MEMORY, found or "Linux ended the process"
    if limited and "was ended by" in first:  # (C++ that cannot allocate aborts, or worse)
        return Outcome.OUT_OF_MEMORY, f"the process {first.partition(' was ')[2]} at its limit"
    return Outcome.FAILED, lines[-1] if lines and "exited with" in first else first


def shortened(reason: str) -> str:
    """The first line of a reason, as long as a line of a table may be."""
    line = reason.strip().partition("\n")[0]
    return line if len(line) <= _MANY else f"{line[: _MANY - 1]}…"
