"""python -m tfbuild.probe REQUEST ANSWER

REQUEST is a JSON file {"libraries": {unit: path, …}, "claims": {unit: [[op, types], …], …},
"limit_s": time limit of one child, in seconds}. A unit is a kernel group. ANSWER is written as
JSON lines: one for the stock wheel's facts, and one for each group as soon as its result is known.
If the process that tested a group ended, the line has `lost`: how the process ended. A group
without a claim has its own library, and must register every stock kernel of its ops. Groups with
claims share a finished library, and each consists of the registrations that it claims.

TensorFlow is imported once. A forked child loads each library, so that each has a fresh registry
and a crash affects one group only. A forked worker per CPU tests one group after another.
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
from typing import Any

from tfbuild.probe import (
    agreement,
    fusing,
    large,
    parent,
    registry,
    trials,
    uncollected,
)
from tfbuild.probe.calls import Caller, Outcome

_DIGITS = 2  # bytes of a group's number; all numbers fit into a pipe's buffer
_SHARES = 4
"""Maximum number of children that test a group of fused ops at once: each needs some hundred MB."""
_JUDGED = "tested: "  # before a group's name, for the progress of the caller
_UNFED = "no test inputs were found for which the stock kernel gives values to compare"

_Pair = tuple[registry.Kernel, list[trials.ReferenceCase]]
"""A registration, and the cases found for it."""


def main(request: Path, answer: Path) -> None:
    parent.end_with_parent(os.getppid())
    request_data = json.loads(request.read_text())
    tf = uncollected.import_tensorflow()
    before = registry.list_registrations()
    answer.write_text("", encoding="utf-8")
    answer_file = os.open(answer, os.O_WRONLY | os.O_APPEND)
    _write_row(answer_file, {"stock": _read_stock_facts(tf)})
    units = {unit: Path(path) for unit, path in request_data["libraries"].items()}
    limit_s: int = request_data["limit_s"]
    claims = {
        unit: {(op, types) for op, types in rows} for unit, rows in request_data["claims"].items()
    }
    # The largest first, so that only short tests run at the end.
    order = sorted(units, key=lambda unit: -units[unit].stat().st_size)
    with tempfile.TemporaryDirectory() as scratch:

        def test_and_write(number: int) -> None:
            unit, folder = order[number], Path(scratch) / str(number)
            folder.mkdir()
            all_claims = {
                row for claim in claims if units[claim] == units[unit] for row in claims[claim]
            }
            load = functools.partial(
                _load_and_check, units[unit], before, claims.get(unit), all_claims
            )
            try:
                row = _test_unit(unit, units[unit], load, folder, limit_s)
            except ChildProcessError as error:
                row = {"lost": str(error)}
            _write_row(answer_file, {"unit": unit, **row})
            os.write(1, f"{_JUDGED}{unit}\n".encode())

        for number, ended in _distribute(len(order), test_and_write).items():
            _write_row(answer_file, {"unit": order[number], "lost": f"its worker {ended}"})


def _distribute(count: int, judge: Callable[[int], None]) -> dict[int, str]:
    """Process all numbers below `count` in forked workers, and return the lost numbers with a
    description of how their worker ended.

    A worker that dies loses the number that it was processing, and another worker takes its
    place.
    """
    queue_reader, queue_writer = os.pipe()
    os.write(queue_writer, b"".join(number.to_bytes(_DIGITS, "big") for number in range(count)))
    os.close(queue_writer)
    slots = min(count, len(os.sched_getaffinity(0)))
    # Shared memory: the number that each worker processes, plus 1; 0 if it is idle.
    current = memoryview(mmap.mmap(-1, mmap.PAGESIZE * (1 + slots // 1024))).cast("i")
    start = functools.partial(_fork_worker, os.getpid(), queue_reader, current, judge)
    running = {start(place): place for place in range(slots)}
    lost = {}
    while running:
        worker, status = os.wait()
        place = running.pop(worker)
        if current[place]:
            lost[current[place] - 1] = _describe_exit(status)
            current[place] = 0
            running[start(place)] = place
    return lost


def _fork_worker(
    ours: int, waiting: int, at: memoryview[int], judge: Callable[[int], None], place: int
) -> int:
    """Fork a worker, and return its process id."""
    worker = os.fork()
    if worker:
        return worker
    try:
        parent.end_with_parent(ours)
        while number := os.read(waiting, _DIGITS):
            at[place] = int.from_bytes(number, "big") + 1
            judge(at[place] - 1)
            at[place] = 0
    except Exception:  # noqa: BLE001  (it must not return into the parent's code)
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


def _test_unit(
    unit: str, path: Path, look: Callable[[], dict[str, Any]], folder: Path, limit_s: int
) -> dict[str, Any]:
    """Run the conformance test of a kernel group, and return its answer."""
    loaded = _run_forked(look, limit_s)
    if "reason" in loaded:
        return loaded
    kernels = [registry.Kernel(*row) for row in loaded["kernels"]]
    ops = {kernel.op for kernel in kernels}
    if (part := fusing.find_part(unit)) and ops:
        result = _test_fused(path, part, ops, limit_s)
        return result if "reason" in result else _create_answer(kernels, {}, result)
    try:
        cases_found = trials.find_cases(kernels, folder / "journals")
    except RuntimeError as error:
        return {"reason": str(error)}
    pairs = [
        (kernel, rows)
        for kernel, rows in zip(kernels, cases_found, strict=True)
        if rows or agreement.has_handmade_cases(kernel) or not agreement.is_reachable(kernel)
    ]
    failures = {
        kernel: _UNFED for kernel in kernels if kernel not in {paired for paired, _ in pairs}
    }
    state = folder / "tuned"
    compute = functools.partial(_compute_cases, path, pairs, state)
    failed = _run_forked(compute, limit_s) if pairs else {}
    if failed:
        return failed
    result = _compare_with_stock(pairs, state, limit_s) if pairs else {"refused": {}}
    if "reason" in result:
        return result
    return _create_answer(kernels, failures | result.pop("refused"), result)


def _create_answer(
    kernels: list[registry.Kernel], refused: Mapping[registry.Kernel, str], results: dict[str, Any]
) -> dict[str, Any]:
    """Return the results for the kernels that are not refused, or a reason if all are."""
    if len(refused) == len(kernels):
        first = kernels[0]
        return {"reason": f"{first.op} {registry.format_types(first)}: {refused[first]}"}
    passed = [kernel for kernel in kernels if kernel not in refused]
    return results | {
        "registrations": [(kernel.op, registry.format_types(kernel)) for kernel in passed],
        "refused": [
            (refused_kernel.op, registry.format_types(refused_kernel), reason)
            for refused_kernel, reason in refused.items()
        ],
    }


def _write_row(sink: int, row: dict[str, Any]) -> None:
    os.write(sink, (json.dumps(row) + "\n").encode())  # one append: rows do not mix


def _read_stock_facts(tf: Any) -> dict[str, Any]:
    return {
        "version": tf.__version__,
        "git_version": tf.version.GIT_VERSION,
        "compiler": tf.version.COMPILER_VERSION,
        "compile_flags": [flag for flag in tf.sysconfig.get_compile_flags() if flag[:2] != "-I"],
        "gpu": bool(tf.test.is_built_with_gpu_support()),
    }


def _load_and_check(
    path: Path,
    before: Counter[registry.Kernel],
    claimed: set[tuple[str, str]] | None,
    beside: set[tuple[str, str]],
) -> dict[str, Any]:
    """Load the library in a child, and check the kernels that it registers. `beside` are the
    claims of all kernel groups in the library.
    """
    registry.Library(path)
    after = registry.list_registrations()
    if claimed is None:
        reason = registry.find_registration_fault(before, after)
    else:
        reason = registry.find_claim_fault(before, after, claimed, beside)
    if reason:
        return {"reason": reason}
    kernels = sorted(
        (
            registration
            for registration in after - before
            if claimed is None or registry.get_name(registration) in claimed
        ),
        key=lambda kernel: (kernel.op, kernel.rule),
    )
    return {"kernels": [(k.op, k.device, k.rule, k.priority) for k in kernels]}


def _compute_cases(path: Path, pairs: list[_Pair], state: Path) -> dict[str, Any]:
    """Compute every case with the library's kernels in a child, and write the results to
    `state`: the outcomes, the ops that TensorFlow did not run, and the kernels that compute
    large arrays differently from small ones.
    """
    large.use_threads()
    library = registry.Library(path)
    call = Caller()
    outcomes = [[call(row.case) for row in rows] for _, rows in pairs]
    kernels = [kernel for kernel, _ in pairs]
    handmade = _compute_handmade(pairs)
    size_dependent = {
        kernel: difference
        for kernel, rows in pairs
        if (difference := large.find_difference(kernel.op, (row.case for row in rows), call))
    }
    return _dump((outcomes, handmade, _find_idle_ops(library, kernels), size_dependent), state)


def _compute_handmade(pairs: list[_Pair]) -> list[list[tuple[str, Outcome]]]:
    """Compute each kernel's handwritten cases."""
    return [
        list(agreement.compute_outcomes(kernel)) if agreement.has_handmade_cases(kernel) else []
        for kernel, _ in pairs
    ]


def _test_fused(path: Path, part: str, ops: set[str], limit_s: int) -> dict[str, Any]:
    """Run the cases of a group of fused ops in several children at once, as it takes as long as
    all other kernel groups together.
    """
    shares = min(_SHARES, len(os.sched_getaffinity(0)))
    tasks = [functools.partial(_test_share, path, part, share, shares) for share in range(shares)]
    children = [_start_child(task, limit_s) for task in tasks]
    answers: list[dict[str, Any]] = []
    lost: ChildProcessError | None = None
    for reader, child in children:
        try:
            answers.append(_wait_for_child(reader, child))
        except ChildProcessError as error:
            lost = error
    if lost is not None:
        raise lost
    if failed := [answer for answer in answers if "reason" in answer]:
        return failed[0]
    worst = max(answer["ulps"] for answer in answers)
    return {
        "cases": sum(answer["cases"] for answer in answers),
        "ulps": dict.fromkeys(sorted(ops), worst),
    }


def _test_share(path: Path, part: str, share: int, shares: int) -> dict[str, Any]:
    """Check in a child, for its share of the cases, that fused ops give the results of the stock
    kernels.

    Stock runs before the library is loaded, because a library may also have tuned kernels of the
    ops that stock runs.
    """
    import tensorflow as tf
    from tensorflow.python.eager import context

    large.use_threads()
    programs = fusing.load_programs(part)
    cases = {
        name: functools.partial(case, tf)
        for name, case in [*programs.cases().items()][share::shares]
    }
    os.environ |= programs.SETTINGS
    stock = {name: fusing.run_with_switch(case, "0") for name, case in cases.items()}
    library = registry.Library(path)
    context.context().clear_kernel_cache()
    worst = 0.0
    for name, case in cases.items():
        before = library.count_fused_events()[programs.RUNS]
        outcomes = (stock.pop(name), fusing.run_with_switch(case, part))
        if mismatch := programs.difference(*outcomes):
            return {"reason": f"{name}: {mismatch}"}
        if library.count_fused_events()[programs.RUNS] == before:
            return {"reason": f"{name}: no op was fused"}
        worst = max(worst, programs.ulps(*outcomes))
    return {"cases": len(cases), "ulps": worst}


def _dump(value: Any, state: Path) -> dict[str, Any]:
    with state.open("wb") as sink:
        pickle.dump(value, sink)
    return {}


def _find_idle_ops(library: registry.Library, kernels: list[registry.Kernel]) -> set[str]:
    """Return the ops whose kernels in the library were not executed although they have cases.

    An op may have as many idle kernels as have no case, or as no program can reach.
    """
    executions = library.list_executions()
    reachable = Counter(kernel.op for kernel in kernels if agreement.is_reachable(kernel))
    uncovered = Counter(op for op, *_ in executions) - reachable
    idle = Counter(op for op, _, count in executions if not count) - uncovered
    return set(idle)


def _compare_with_stock(pairs: list[_Pair], state: Path, limit_s: int) -> dict[str, Any]:
    """Compare the library's results with those of the stock kernels in the parent, after another
    child has computed the handwritten cases with the stock kernels.

    `refused` are the kernels whose results are too far from the stock kernels'.
    """
    with state.open("rb") as source:
        all_outcomes, tuned, idle, unlike = pickle.load(source)  # noqa: S301  (from our child)
    failed = _run_forked(lambda: _dump(_compute_handmade(pairs), state), limit_s)
    if failed:
        return {"reason": f"the stock kernels: {failed['reason']}"}
    with state.open("rb") as source:
        stock = pickle.load(source)  # noqa: S301
    refused: dict[registry.Kernel, str] = {}
    worst: dict[str, float] = {}
    count = 0
    for (kernel, rows), case_outcomes, ours, theirs in zip(
        pairs, all_outcomes, tuned, stock, strict=True
    ):
        if kernel.op in idle:
            refused[kernel] = "TensorFlow did not run it"
            continue
        if kernel in unlike:
            refused[kernel] = unlike[kernel]
            continue
        compared = not agreement.is_reachable(kernel)
        for op, case, expected, actual, scale in _pair_outcomes(
            kernel, rows, case_outcomes, ours, theirs
        ):
            distance = agreement.measure_distance(op, expected, actual, scale)
            count += 1
            compared = compared or (
                not isinstance(expected, str) and any(array.size for array in expected)
            )
            if distance > agreement.get_allowed_distance(op, expected):
                refused.setdefault(kernel, f"{case}: {distance:.3g} ULPs from the stock kernel")
            else:
                worst[op] = max(worst.get(op, 0.0), round(distance, 3))
        if not compared:
            refused.setdefault(kernel, _UNFED)
    return {"cases": count, "ulps": worst, "refused": refused}


def _pair_outcomes(
    kernel: registry.Kernel,
    rows: list[trials.ReferenceCase],
    outcomes: list[Outcome],
    ours: list[tuple[str, Outcome]],
    theirs: list[tuple[str, Outcome]],
) -> Iterator[tuple[str, str, Outcome, Outcome, Outcome | None]]:
    """Yield the op, the case, the stock kernel's outcome, the library's outcome and the scale of
    each case.
    """
    for (case, expected), (_, actual) in zip(theirs, ours, strict=True):
        yield kernel.op, case, expected, actual, None
    for row, actual in zip(rows, outcomes, strict=True):
        yield trials.get_tolerance_name(row.case), str(row.case), row.outcome, actual, row.scale


def _run_forked(work: Callable[[], dict[str, Any]], limit_s: int) -> dict[str, Any]:
    """Run `work` in a child, and return its answer; see `_wait_for_child`."""
    return _wait_for_child(*_start_child(work, limit_s))


def _start_child(work: Callable[[], dict[str, Any]], limit_s: int) -> tuple[int, int]:
    """Run `work` in a child, and return the file descriptor of its answer and its process id."""
    reader, writer = os.pipe()
    parent_id = os.getpid()
    child = os.fork()
    if child == 0:
        parent.end_with_parent(parent_id)
        os.close(reader)
        signal.alarm(limit_s)
        try:
            answer = work()
        except Exception as error:  # noqa: BLE001  (any error is the reason of this group)
            traceback.print_exc()
            answer = {"reason": f"{type(error).__name__}: {error}".splitlines()[0]}
        with os.fdopen(writer, "w") as sink:
            sink.write(json.dumps(answer))
        os._exit(0)
    os.close(writer)
    return reader, child


def _wait_for_child(reader: int, child: int) -> dict[str, Any]:
    """Return the answer of a child; a crash becomes a reason. Raises ChildProcessError if the
    child was killed by SIGKILL: no kernel does that to itself.
    """
    with os.fdopen(reader) as source:
        text = source.read()
    _, status = os.waitpid(child, 0)
    if text:
        return dict(json.loads(text))
    if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL:
        raise ChildProcessError(f"the process that ran it {_describe_exit(status)}")
    return {"reason": f"the process that ran it {_describe_exit(status)}"}


def _describe_exit(status: int) -> str:
    """Describe how a process ended, from its status of waitpid(2)."""
    code = os.waitstatus_to_exitcode(status)
    return f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with code {code}"


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
