"""python -m tfbuild.probe REQUEST ANSWER

REQUEST is a JSON file {"libraries": {unit: path, …}, "claims": {unit: [[op, types], …], …},
"limit_s": seconds that one child may take}; ANSWER is written as JSON lines, one for the stock
wheel's facts and one for each unit as soon as it is known; one that was lost with the process that
was at it says how that ended (`lost`). A unit without a claim has a library to itself, and must
register every stock kernel of its ops; one with a claim shares a finished library with others, and
is what it claims of that.

TensorFlow is imported once; every library is loaded in a forked child of its own, so that it meets
a fresh registry, and a crash is that unit's answer alone. A forked worker per CPU takes unit after
unit.
"""

from __future__ import annotations

import functools
import json
import mmap
import os
import pickle
import signal
import sys
import tempfile
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from tfbuild.probe import (
    agreement,
    fusing,
    large,
    loops,
    parent,
    products,
    registry,
    trials,
    uncollected,
    updates,
)
from tfbuild.probe.calls import Caller, Outcome

_DIGITS = 2  # bytes of a unit's number; all numbers fit a pipe's buffer
_SHARES = 4
"""Children that try a fused unit at once, at most: each holds some hundred MB."""
_JUDGED = "judged: "  # before a unit's name, for whoever waits
_UNFED = "no inputs were found of which the stock kernel makes something to compare"

_Pair = tuple[registry.Kernel, list[trials.Known]]
"""A registration, and the cases found for it."""


def main(request: Path, answer: Path) -> None:
    parent.end_with(os.getppid())
    wanted = json.loads(request.read_text())
    tf = uncollected.tensorflow()
    before = registry.registered()
    answer.write_text("", encoding="utf-8")
    sink = os.open(answer, os.O_WRONLY | os.O_APPEND)
    _write(sink, {"stock": _facts(tf)})
    units = {unit: Path(path) for unit, path in wanted["libraries"].items()}
    limit_s: int = wanted["limit_s"]
    claims = {unit: {(op, types) for op, types in rows} for unit, rows in wanted["claims"].items()}
    # The largest first: what is left at the end is short.
    order = sorted(units, key=lambda unit: -units[unit].stat().st_size)
    with tempfile.TemporaryDirectory() as scratch:

        def judge(number: int) -> None:
            unit, folder = order[number], Path(scratch) / str(number)
            folder.mkdir()
            beside = {
                row for other in claims if units[other] == units[unit] for row in claims[other]
            }
            look = functools.partial(_look, units[unit], before, claims.get(unit), beside)
            try:
                row = _judged(units[unit], look, folder, limit_s)
            except ChildProcessError as error:
                row = {"lost": str(error)}
            _write(sink, {"unit": unit, **row})
            os.write(1, f"{_JUDGED}{unit}\n".encode())

        for number, ended in _shared(len(order), judge).items():
            _write(sink, {"unit": order[number], "lost": f"its worker {ended}"})


def _shared(count: int, judge: Callable[[int], None]) -> dict[int, str]:
    """Do all numbers below `count`, each in one of the workers. One that dies takes its own number
    along, and another takes its place: the numbers that were lost so, and how their worker ended.
    """
    waiting, filled = os.pipe()
    os.write(filled, b"".join(number.to_bytes(_DIGITS, "big") for number in range(count)))
    os.close(filled)
    places = min(count, len(os.sched_getaffinity(0)))
    # The number that each worker is at and 1 more, or 0: the memory is everybody's.
    at = memoryview(mmap.mmap(-1, mmap.PAGESIZE * (1 + places // 1024))).cast("i")
    start = functools.partial(_worker, os.getpid(), waiting, at, judge)
    running = {start(place): place for place in range(places)}
    lost = {}
    while running:
        worker, status = os.wait()
        place = running.pop(worker)
        if at[place]:
            lost[at[place] - 1] = _end(status)
            at[place] = 0
            running[start(place)] = place
    return lost


def _worker(
    ours: int, waiting: int, at: memoryview[int], judge: Callable[[int], None], place: int
) -> int:
    """Fork one, and return its process id."""
    worker = os.fork()
    if worker:
        return worker
    try:
        parent.end_with(ours)
        while number := os.read(waiting, _DIGITS):
            at[place] = int.from_bytes(number, "big") + 1
            judge(at[place] - 1)
            at[place] = 0
    except Exception:  # noqa: BLE001  (it must not leave by the parent's way out)
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


def _judged(
    path: Path, look: Callable[[], dict[str, Any]], folder: Path, limit_s: int
) -> dict[str, Any]:
    """A unit's answer."""
    seen = _forked(look, limit_s)
    if "reason" in seen:
        return seen
    kernels = [registry.Kernel(*row) for row in seen["kernels"]]
    ops = {kernel.op for kernel in kernels}
    for part in (updates, loops, products):
        if ops <= {*part.OPS}:
            found = _fused(path, part, limit_s)
            return found if "reason" in found else _answer(kernels, {}, found)
    try:
        known = trials.found(kernels, folder / "journals")
    except RuntimeError as error:
        return {"reason": str(error)}
    pairs = [
        (kernel, rows)
        for kernel, rows in zip(kernels, known, strict=True)
        if rows or agreement.feedable(kernel) or not agreement.reachable(kernel)
    ]
    refused = {kernel: _UNFED for kernel in kernels if kernel not in {each for each, _ in pairs}}
    state = folder / "tuned"
    compute = functools.partial(_compute, path, pairs, state)
    failed = _forked(compute, limit_s) if pairs else {}
    if failed:
        return failed
    found = _agree(pairs, state, limit_s) if pairs else {"refused": {}}
    if "reason" in found:
        return found
    return _answer(kernels, refused | found.pop("refused"), found)


def _answer(
    kernels: list[registry.Kernel], refused: Mapping[registry.Kernel, str], found: dict[str, Any]
) -> dict[str, Any]:
    """What was found, for the kernels that are not refused. Where all are, there is a reason."""
    if len(refused) == len(kernels):
        first = kernels[0]
        return {"reason": f"{first.op} {registry.types(first)}: {refused[first]}"}
    good = [kernel for kernel in kernels if kernel not in refused]
    return found | {
        "registrations": [(kernel.op, registry.types(kernel)) for kernel in good],
        "refused": [(each.op, registry.types(each), why) for each, why in refused.items()],
    }


def _write(sink: int, row: dict[str, Any]) -> None:
    os.write(sink, (json.dumps(row) + "\n").encode())  # one append: rows of workers do not mix


def _facts(tf: Any) -> dict[str, Any]:  # noqa: ANN401
    return {
        "version": tf.__version__,
        "git_version": tf.version.GIT_VERSION,
        "compiler": tf.version.COMPILER_VERSION,
        "compile_flags": [flag for flag in tf.sysconfig.get_compile_flags() if flag[:2] != "-I"],
        "gpu": bool(tf.test.is_built_with_gpu_support()),
    }


def _look(
    path: Path,
    before: Counter[registry.Kernel],
    claimed: set[tuple[str, str]] | None,
    beside: set[tuple[str, str]],
) -> dict[str, Any]:
    """In a child: load the library and look at what it registers. `beside` are the claims of all
    units in it."""
    registry.Library(path)
    after = registry.registered()
    if claimed is None:
        reason = registry.difference(before, after)
    else:
        reason = registry.untrue(before, after, claimed, beside)
    if reason:
        return {"reason": reason}
    kernels = sorted(
        (each for each in after - before if claimed is None or registry.name(each) in claimed),
        key=lambda kernel: (kernel.op, kernel.rule),
    )
    return {"kernels": [(k.op, k.device, k.rule, k.priority) for k in kernels]}


def _compute(path: Path, pairs: list[_Pair], state: Path) -> dict[str, Any]:
    """In a child: every case's outcome with the library's kernels, the ops that TensorFlow did not
    run, and the kernels that compute large arrays otherwise than small ones, into `state`."""
    large.use_threads()
    library = registry.Library(path)
    call = Caller()
    tried = [[call(row.case) for row in rows] for _, rows in pairs]
    kernels = [kernel for kernel, _ in pairs]
    made = _made(pairs)
    unlike = {
        kernel: why
        for kernel, rows in pairs
        if (why := large.difference(kernel.op, (row.case for row in rows), call))
    }
    return _dump((tried, made, _idle(library, kernels), unlike), state)


def _made(pairs: list[_Pair]) -> list[list[tuple[str, Outcome]]]:
    """Each kernel's outcomes of the cases that are made by hand."""
    return [
        list(agreement.outcomes(kernel)) if agreement.feedable(kernel) else []
        for kernel, _ in pairs
    ]


def _fused(path: Path, part: ModuleType, limit_s: int) -> dict[str, Any]:
    """The cases of a fused unit, shared by children that run at once: it takes as long as all other
    units together."""
    shares = min(_SHARES, len(os.sched_getaffinity(0)))
    work = [functools.partial(_fuse, path, part, share, shares) for share in range(shares)]
    started = [_started(each, limit_s) for each in work]
    found: list[dict[str, Any]] = []
    lost: ChildProcessError | None = None
    for reader, child in started:
        try:
            found.append(_ended(reader, child))
        except ChildProcessError as error:
            lost = error
    if lost is not None:
        raise lost
    if failed := [each for each in found if "reason" in each]:
        return failed[0]
    worst = max(each["ulps"] for each in found)
    return {"cases": sum(each["cases"] for each in found), "ulps": dict.fromkeys(part.OPS, worst)}


def _fuse(path: Path, part: ModuleType, share: int, shares: int) -> dict[str, Any]:
    """In a child: whether what is fused leaves what stock kernels leave, in its share of the
    cases."""
    import tensorflow as tf  # noqa: PLC0415

    large.use_threads()
    library = registry.Library(path)
    cases = dict([*part.cases().items()][share::shares])
    stay = () if library.multiplies() else part.MULTIPLIED
    worst = 0.0
    for name, case in cases.items():
        before = library.fused()[part.RUNS]
        outcomes = fusing.both(functools.partial(case, tf), part.PART)
        if apart := part.difference(*outcomes):
            return {"reason": f"{name}: {apart}"}
        if library.fused()[part.RUNS] == before and name not in stay:
            return {"reason": f"{name}: nothing was fused"}
        worst = max(worst, part.ulps(*outcomes))
    return {"cases": len(cases), "ulps": worst}


def _dump(what: Any, state: Path) -> dict[str, Any]:  # noqa: ANN401
    with state.open("wb") as sink:
        pickle.dump(what, sink)
    return {}


def _idle(library: registry.Library, kernels: list[registry.Kernel]) -> set[str]:
    """The ops of which kernels in the library were not executed though there are cases for them:
    more than those without a case, or that no program can reach."""
    executions = library.executions()
    fed = Counter(kernel.op for kernel in kernels if agreement.reachable(kernel))
    spare = Counter(op for op, *_ in executions) - fed
    beyond = Counter(op for op, _, count in executions if not count) - spare
    return set(beyond)


def _agree(pairs: list[_Pair], state: Path, limit_s: int) -> dict[str, Any]:
    """In the parent: what the library computed against the stock kernels, which compute the cases
    made by hand in another child. `refused` are the kernels that lie too far from them."""
    with state.open("rb") as source:
        tried, tuned, idle, unlike = pickle.load(source)  # noqa: S301  (our own child wrote it a moment ago)
    failed = _forked(lambda: _dump(_made(pairs), state), limit_s)
    if failed:
        return {"reason": f"the stock kernels: {failed['reason']}"}
    with state.open("rb") as source:
        stock = pickle.load(source)  # noqa: S301
    refused: dict[registry.Kernel, str] = {}
    worst: dict[str, float] = {}
    count = 0
    for (kernel, rows), found, ours, theirs in zip(pairs, tried, tuned, stock, strict=True):
        if kernel.op in idle:
            refused[kernel] = "TensorFlow did not run it"
            continue
        if kernel in unlike:
            refused[kernel] = unlike[kernel]
            continue
        shown = not agreement.reachable(kernel)
        for op, case, right, mine, scale in _compared(kernel, rows, found, ours, theirs):
            apart = agreement.distance(op, right, mine, scale)
            count += 1
            shown = shown or (not isinstance(right, str) and any(each.size for each in right))
            if apart > agreement.allowed(op, right):
                refused.setdefault(kernel, f"{case}: {apart:.3g} ULPs from the stock kernel")
            else:
                worst[op] = max(worst.get(op, 0.0), round(apart, 3))
        if not shown:
            refused.setdefault(kernel, _UNFED)
    return {"cases": count, "ulps": worst, "refused": refused}


def _compared(
    kernel: registry.Kernel,
    rows: list[trials.Known],
    found: list[Outcome],
    ours: list[tuple[str, Outcome]],
    theirs: list[tuple[str, Outcome]],
) -> Iterator[tuple[str, str, Outcome, Outcome, Outcome | None]]:
    """Op, case, the stock kernel's outcome, the library's, and the scale of each case."""
    for (case, right), (_, mine) in zip(theirs, ours, strict=True):
        yield kernel.op, case, right, mine, None
    for row, mine in zip(rows, found, strict=True):
        yield trials.what(row.case), str(row.case), row.outcome, mine, row.scale


def _forked(work: Callable[[], dict[str, Any]], limit_s: int) -> dict[str, Any]:
    """Run `work` in a child and return its answer, see `_ended`."""
    return _ended(*_started(work, limit_s))


def _started(work: Callable[[], dict[str, Any]], limit_s: int) -> tuple[int, int]:
    """Run `work` in a child: the file that its answer comes from, and its process id."""
    reader, writer = os.pipe()
    ours = os.getpid()
    child = os.fork()
    if child == 0:
        parent.end_with(ours)
        os.close(reader)
        signal.alarm(limit_s)
        try:
            answer = work()
        except Exception as error:  # noqa: BLE001  (whatever it is, it is this unit's reason)
            traceback.print_exc()
            answer = {"reason": f"{type(error).__name__}: {error}".splitlines()[0]}
        with os.fdopen(writer, "w") as sink:
            sink.write(json.dumps(answer))
        os._exit(0)
    os.close(writer)
    return reader, child


def _ended(reader: int, child: int) -> dict[str, Any]:
    """The answer of a child; a crash becomes a reason. Raises ChildProcessError for one that was
    killed: no kernel does that to itself."""
    with os.fdopen(reader) as source:
        text = source.read()
    _, status = os.waitpid(child, 0)
    if text:
        return dict(json.loads(text))
    if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL:
        raise ChildProcessError(f"the process that ran it {_end(status)}")
    return {"reason": f"the process that ran it {_end(status)}"}


def _end(status: int) -> str:
    """How a process ended, by what waitpid(2) says of it."""
    code = os.waitstatus_to_exitcode(status)
    return f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with code {code}"


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
