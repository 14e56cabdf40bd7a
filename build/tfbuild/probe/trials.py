"""Inputs found by trial: what the stock kernels accept of what is proposed.

Proposals are run by the stock kernels in a forked child, since unlawful inputs may abort the
process or block it. Such a proposal is not counted: another child goes on after it, from a journal
of every outcome so far.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import pickle
import resource
import signal
import traceback
from collections.abc import Generator, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tfbuild.probe import agreement, cases, parent, registry
from tfbuild.probe.calls import Caller, Outcome
from tfbuild.probe.proposals import Case, Input, propose
from tfbuild.probe.tolerances import TERMS

PROPOSALS = 320  # per registration and choice of types
_FEW = 24  # where the cases made by hand are enough
KEPT, EMPTY, REFUSED = 5, 1, 2
_KEPT_LATER = 2  # of an op's second registration on, whose first one says what is accepted
_LATER = 96
_EMPTY_BY = 32  # two proposals with empty arrays are among the first 32
_CALL_S = 5.0
_BLOCKED, _LOSSES = 4, 8  # a registration may cost eight children; one that blocks counts for four
_MEMORY = 8 << 30
_UNDEFINED = {"Cast", "_HostCast"}  # of what an integer cannot hold: C++ leaves the result open
# What TensorFlow's Python side raises for attributes, inputs and gradients that cannot be.
_REFUSALS = (TypeError, ValueError, LookupError, RuntimeError, OverflowError, AssertionError)


@dataclass(frozen=True, slots=True)
class Known:
    """A case and its outcome by the stock kernel. `scale` holds the sums of the magnitudes of the
    terms of each result, where the op adds up products; `index` is the proposal's number."""

    case: Case
    outcome: Outcome
    scale: Outcome | None = None
    index: int = 0


_Trial = Generator[Case, "Outcome | None", list[Known]]


def explore(op: Any, types: Mapping[str, int], order: Iterable[int], kept: int = KEPT) -> _Trial:  # noqa: ANN401
    """Proposes cases in an order, is sent the stock kernel's outcome of each (None: none came
    back), and returns those that are worth a comparison: of unlike shapes, awkward values and
    unaligned arrays poured into each; one with empty results; some that are refused. Empty if
    nothing is accepted."""
    accepted: dict[Any, Known] = {}
    empty: list[Known] = []
    refused: list[Known] = []
    for tried, index in enumerate(order):
        case = propose(op, types, index)
        outcome = yield case
        if outcome is None:
            continue
        known = Known(case, outcome, index=index)
        if isinstance(outcome, str):
            refused.append(known)
        elif not any(array.size for array in outcome):
            empty.append(known)
        elif len(accepted) < kept and (again := (yield case)) is not None and _near(known, again):
            accepted.setdefault(tuple(given.array.shape for given in case.inputs), known)
        if len(accepted) == kept and (empty or tried >= _EMPTY_BY):
            break
    if not accepted:
        return []
    found = empty[:EMPTY]
    for known in accepted.values():
        found += yield from _poured(known)
    lawful = [known for known in refused if known.outcome == "InvalidArgumentError"]
    return [*found, *lawful[:REFUSED]]


def _near(known: Known, again: Outcome) -> bool:
    """Whether the stock kernel repeats itself."""
    op = known.case.op
    return agreement.distance(op, known.outcome, again) <= agreement.allowed(op, again)


def _poured(known: Known) -> Generator[Case, Outcome | None, list[Known]]:
    """The case, with awkward numbers, with arrays that begin within a larger one, and its
    gradients."""
    found = []
    for case in (known.case, *_variants(known.case)):
        outcome = known.outcome if case is known.case else (yield case)
        if outcome is None:
            continue
        adds = case.op in TERMS and not case.gradient and not isinstance(outcome, str)
        scale = (yield _magnitudes(case)) if adds else None
        found.append(Known(case, outcome, scale, known.index))
    return found


def what(case: Case) -> str:
    """What a case computes, as tolerances are named."""
    return f"gradient of {case.op}" if case.gradient else case.op


def _magnitudes(case: Case) -> Case:
    return _changed(case, lambda given: np.abs(given.array))


def _variants(case: Case) -> list[Case]:
    rng = np.random.default_rng(len(case.inputs))
    sliced = dataclasses.replace(case, sliced=True)
    if not any(map(_floating, case.inputs)):
        return [sliced]
    if case.op in _UNDEFINED:
        return [sliced, dataclasses.replace(case, gradient=True)]
    special = _changed(case, lambda given: cases.special(given.array.dtype, given.array.shape, rng))
    return [special, sliced, dataclasses.replace(case, gradient=True)]


def _changed(case: Case, change: Any) -> Case:  # noqa: ANN401
    inputs = tuple(
        dataclasses.replace(given, array=change(given)) if _floating(given) else given
        for given in case.inputs
    )
    return dataclasses.replace(case, inputs=inputs)


def _floating(given: Input) -> bool:
    # (TensorFlow's own types are of NumPy's kind V)
    return given.array.dtype.kind in "fcV" and given.role in {"array", "variable", "reference"}


def found(kernels: list[registry.Kernel], folder: Path) -> list[list[Known]]:
    """For each registration the cases that its stock kernel accepts; an empty list if none was
    found. `folder` keeps the journals. Raises RuntimeError when the search itself fails."""
    folder.mkdir()
    journals = [_Journal(folder / str(number)) for number in range(len(kernels))]
    while not journals[-1].done():
        status = _child(kernels, folder)
        begun = [journal for journal in journals if journal.path.exists()]
        if status > 0 or not begun:
            raise RuntimeError("the search for inputs failed")
        if not begun[-1].done():  # (a kernel may also end the process in peace)
            begun[-1].add("lost", _BLOCKED if status == -signal.SIGALRM else 1)
    return [journal.rows()[-1][1] for journal in journals]


class _Journal:
    """What became of the proposals of one registration, in order."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def add(self, *row: Any) -> None:  # noqa: ANN401
        with self.path.open("ab", buffering=0) as sink:
            sink.write(pickle.dumps(row))

    def done(self) -> bool:
        return self.path.exists() and self.rows()[-1][0] == "done"

    def rows(self) -> list[tuple[Any, ...]]:
        rows = []
        with self.path.open("rb") as source:
            while source.peek(1):
                rows.append(pickle.load(source))  # noqa: S301  (our own child wrote it)
        return rows


def _child(kernels: list[registry.Kernel], folder: Path) -> int:
    ours = os.getpid()
    child = os.fork()
    if child == 0:
        try:
            parent.end_with(ours)
            os.chdir(folder.parent)
            resource.setrlimit(resource.RLIMIT_DATA, (_MEMORY, _MEMORY))
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            _search(kernels, folder)
        except BaseException:  # noqa: BLE001  (a child never returns)
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def _search(kernels: list[registry.Kernel], folder: Path) -> None:
    from tensorflow.python.framework import op_def_registry  # noqa: PLC0415

    call = Caller()
    lucky: dict[str, list[int]] = {}
    for number, kernel in enumerate(kernels):
        journal = _Journal(folder / str(number))
        rows = journal.rows() if journal.path.exists() else []
        if not journal.done():
            journal.add("begun")
            op = op_def_registry.get(kernel.op)
            known = _tried(kernel, op, lucky.get(kernel.op, []), _Replay(rows, journal, call))
            journal.add("done", known)
            rows = [("done", known)]
        lucky.setdefault(kernel.op, sorted({known.index for known in rows[-1][1]}))


def _tried(kernel: registry.Kernel, op: Any, lucky: list[int], replay: _Replay) -> list[Known]:  # noqa: ANN401
    """What is accepted for any types that select a registration's kernel."""
    found: list[Known] = []
    few = _FEW if cases.suffice(op.name) else _LATER if lucky else PROPOSALS
    order = dict.fromkeys((*lucky, *range(few)))
    for types in agreement.assignments(op, registry.constraints(kernel)):
        trial = explore(op, types, order, _KEPT_LATER if lucky else KEPT)
        try:
            case = next(trial)
            while True:
                case = trial.send(replay(case))
        except StopIteration as end:
            found += end.value
        except NotImplementedError:  # (a function, or values of a type that NumPy lacks)
            continue
    return found


class _Replay:
    """Outcomes of cases, from the journal as far as it goes. None once they cost too much."""

    def __init__(self, rows: list[tuple[Any, ...]], journal: _Journal, call: Caller) -> None:
        self._known = [row[1] if row[0] == "outcome" else None for row in rows if row[0] != "begun"]
        self._lost = sum(row[1] for row in rows if row[0] == "lost")
        self._journal = journal
        self._call = call

    def __call__(self, case: Case) -> Outcome | None:
        if self._known:
            return self._known.pop(0)
        if self._lost >= _LOSSES:
            return None
        outcome: Outcome | None = None
        signal.setitimer(signal.ITIMER_REAL, _CALL_S)
        with contextlib.suppress(*_REFUSALS):
            outcome = self._call(case)
        signal.setitimer(signal.ITIMER_REAL, 0)
        self._journal.add("outcome", outcome)
        return outcome
