"""Finds test inputs by trial: runs proposals with the stock kernels, and keeps the accepted ones.

The stock kernels run in a forked child, since invalid inputs may abort or block the process. Such a
proposal is skipped: another child continues after it, from a journal of all outcomes so far.
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
_FEW = 24  # if the handwritten cases are enough
KEPT, EMPTY, REFUSED = 5, 1, 2
_KEPT_LATER = 2  # for later registrations of an op: the first one shows what is accepted
_LATER = 96
_EMPTY_BY = 32  # two proposals with empty arrays are among the first 32
_CALL_S = 5.0
_BLOCKED, _LOSSES = 4, 8  # lost children per registration; a blocked one counts as four
_MEMORY = 8 << 30
_UNDEFINED = {"Cast", "_HostCast"}  # C++ leaves casts undefined that overflow an integer
# Errors that TensorFlow's Python code raises for invalid attributes, inputs and gradients.
_REFUSALS = (TypeError, ValueError, LookupError, RuntimeError, OverflowError, AssertionError)


@dataclass(frozen=True, slots=True)
class ReferenceCase:
    """A case and its outcome by the stock kernel.

    `scale` holds the sums of the magnitudes of the terms of each result, if the op adds up
    products; `index` is the proposal's number.
    """

    case: Case
    outcome: Outcome
    scale: Outcome | None = None
    index: int = 0


_Trial = Generator[Case, "Outcome | None", list[ReferenceCase]]


def explore_cases(
    op: Any,
    types: Mapping[str, int],
    order: Iterable[int],
    limit: int = KEPT,
) -> _Trial:
    """Yield the proposed cases in `order`, receive the stock kernel's outcome of each (None if
    there is none), and return the cases worth comparing.

    These have different shapes, each with a variant of special values and one of unaligned
    arrays; one has empty results; some are refused. The list is empty if nothing is accepted.
    """
    accepted: dict[Any, ReferenceCase] = {}
    empty: list[ReferenceCase] = []
    refused: list[ReferenceCase] = []
    for attempt, index in enumerate(order):
        case = propose(op, types, index)
        outcome = yield case
        if outcome is None:
            continue
        known = ReferenceCase(case, outcome, index=index)
        if isinstance(outcome, str):
            refused.append(known)
        elif not any(array.size for array in outcome):
            empty.append(known)
        elif (
            len(accepted) < limit
            and (repeated := (yield case)) is not None
            and _is_repeatable(known, repeated)
        ):
            accepted.setdefault(tuple(source.array.shape for source in case.inputs), known)
        if len(accepted) == limit and (empty or attempt >= _EMPTY_BY):
            break
    if not accepted:
        return []
    selected = empty[:EMPTY]
    for known in accepted.values():
        selected += yield from _run_variants(known)
    valid_refusals = [known for known in refused if known.outcome == "InvalidArgumentError"]
    return [*selected, *valid_refusals[:REFUSED]]


def _is_repeatable(known: ReferenceCase, again: Outcome) -> bool:
    """Return whether a repeated run of the stock kernel gives the same outcome within the
    tolerance.
    """
    op = known.case.op
    return agreement.measure_distance(op, known.outcome, again) <= agreement.get_allowed_distance(
        op, again
    )


def _run_variants(known: ReferenceCase) -> Generator[Case, Outcome | None, list[ReferenceCase]]:
    """Return the outcomes of the case, of the case with special values, with arrays that begin
    within a larger one, and of its gradients.
    """
    references = []
    for case in (known.case, *_create_variants(known.case)):
        outcome = known.outcome if case is known.case else (yield case)
        if outcome is None:
            continue
        sums_terms = case.op in TERMS and not case.gradient and not isinstance(outcome, str)
        scale = (yield _take_magnitudes(case)) if sums_terms else None
        references.append(ReferenceCase(case, outcome, scale, known.index))
    return references


def get_tolerance_name(case: Case) -> str:
    """Return the name under which the tolerance of a case is defined."""
    return f"gradient of {case.op}" if case.gradient else case.op


def _take_magnitudes(case: Case) -> Case:
    return _replace_arrays(case, lambda op_input: np.abs(op_input.array))


def _create_variants(case: Case) -> list[Case]:
    rng = np.random.default_rng(len(case.inputs))
    sliced = dataclasses.replace(case, sliced=True)
    if not any(map(_is_floating, case.inputs)):
        return [sliced]
    if case.op in _UNDEFINED:
        return [sliced, dataclasses.replace(case, gradient=True)]
    special = _replace_arrays(
        case, lambda op_input: cases.draw_special(op_input.array.dtype, op_input.array.shape, rng)
    )
    return [special, sliced, dataclasses.replace(case, gradient=True)]


def _replace_arrays(case: Case, change: Any) -> Case:
    inputs = tuple(
        dataclasses.replace(source, array=change(source)) if _is_floating(source) else source
        for source in case.inputs
    )
    return dataclasses.replace(case, inputs=inputs)


def _is_floating(op_input: Input) -> bool:
    # (TensorFlow's own types have NumPy's kind V)
    return op_input.array.dtype.kind in "fcV" and op_input.role in {
        "array",
        "variable",
        "reference",
    }


def find_cases(kernels: list[registry.Kernel], folder: Path) -> list[list[ReferenceCase]]:
    """Find the cases that the stock kernel of each registration accepts; an empty list if there
    are none.

    `folder` keeps the journals. Raises RuntimeError if the search itself fails.
    """
    folder.mkdir()
    journals = [_Journal(folder / str(number)) for number in range(len(kernels))]
    while not journals[-1].is_done():
        status = _search_in_child(kernels, folder)
        started = [journal for journal in journals if journal.path.exists()]
        if status > 0 or not started:
            raise RuntimeError("the search for inputs failed")
        if not started[-1].is_done():  # (a kernel may also end the process with code 0)
            started[-1].add("lost", _BLOCKED if status == -signal.SIGALRM else 1)
    return [journal.read_rows()[-1][1] for journal in journals]


class _Journal:
    """A file of the outcomes of one registration's proposals, in order."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def add(self, *row: Any) -> None:
        with self.path.open("ab", buffering=0) as sink:
            sink.write(pickle.dumps(row))

    def is_done(self) -> bool:
        return self.path.exists() and self.read_rows()[-1][0] == "done"

    def read_rows(self) -> list[tuple[Any, ...]]:
        rows = []
        with self.path.open("rb") as source:
            while source.peek(1):
                rows.append(pickle.load(source))  # noqa: S301  (written by our child)
        return rows


def _search_in_child(kernels: list[registry.Kernel], folder: Path) -> int:
    parent_id = os.getpid()
    child = os.fork()
    if child == 0:
        try:
            parent.end_with_parent(parent_id)
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
    from tensorflow.python.framework import op_def_registry

    call = Caller()
    accepted_indices: dict[str, list[int]] = {}
    for number, kernel in enumerate(kernels):
        journal = _Journal(folder / str(number))
        rows = journal.read_rows() if journal.path.exists() else []
        if not journal.is_done():
            journal.add("begun")
            op = op_def_registry.get(kernel.op)
            known = _find_accepted(
                kernel, op, accepted_indices.get(kernel.op, []), _Replay(rows, journal, call)
            )
            journal.add("done", known)
            rows = [("done", known)]
        accepted_indices.setdefault(kernel.op, sorted({known.index for known in rows[-1][1]}))


def _find_accepted(
    kernel: registry.Kernel,
    op: Any,
    lucky: list[int],
    replay: _Replay,
) -> list[ReferenceCase]:
    """Return the cases that are accepted for any types that select a registration's kernel."""
    accepted: list[ReferenceCase] = []
    limit = _FEW if cases.has_sufficient_cases(op.name) else _LATER if lucky else PROPOSALS
    order = dict.fromkeys((*lucky, *range(limit)))
    for types in agreement.iter_type_assignments(op, registry.list_constraints(kernel)):
        trial = explore_cases(op, types, order, _KEPT_LATER if lucky else KEPT)
        try:
            case = next(trial)
            while True:
                case = trial.send(replay(case))
        except StopIteration as end:
            accepted += end.value
        except NotImplementedError:  # (takes a function, or a type that NumPy lacks)
            continue
    return accepted


class _Replay:
    """Outcomes of cases, read from the journal as far as it goes, then computed. None once they
    have cost too many children.
    """

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
