"""python -m tfbuild.probe REQUEST ANSWER

REQUEST is a JSON file {"libraries": {unit: path, …}}; ANSWER is written as JSON lines, one for the
stock wheel's facts and one for each unit as soon as it is known.

TensorFlow is imported once; every library is loaded in a forked child of its own, so that it meets
a fresh registry, and a crash is that unit's answer alone.
"""

from __future__ import annotations

import functools
import json
import os
import pickle
import signal
import sys
import tempfile
import traceback
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tfbuild.probe import agreement, registry

_LIMIT_S = 600


def main(request: Path, answer: Path) -> None:
    wanted = json.loads(request.read_text())
    import tensorflow as tf  # noqa: PLC0415

    before = registry.registered()
    with answer.open("w", encoding="utf-8") as sink, tempfile.TemporaryDirectory() as scratch:
        _write(sink, {"stock": _facts(tf)})
        for unit, path in wanted["libraries"].items():
            state = Path(scratch) / "outcomes"
            found = _forked(functools.partial(_admit, Path(path), before, state))
            if "reason" not in found:
                found = _agree(found["kernels"], state)
            _write(sink, {"unit": unit, **found})


def _write(sink: Any, row: dict[str, Any]) -> None:  # noqa: ANN401
    sink.write(json.dumps(row) + "\n")
    sink.flush()


def _facts(tf: Any) -> dict[str, Any]:  # noqa: ANN401
    return {
        "version": tf.__version__,
        "git_version": tf.version.GIT_VERSION,
        "compiler": tf.version.COMPILER_VERSION,
        "compile_flags": [flag for flag in tf.sysconfig.get_compile_flags() if flag[:2] != "-I"],
        "gpu": bool(tf.test.is_built_with_gpu_support()),
    }


def _admit(path: Path, before: Any, state: Path) -> dict[str, Any]:  # noqa: ANN401
    """In a child: load the library, look at what it registers, compute its cases."""
    library = registry.Library(path)
    after = registry.registered()
    reason = registry.difference(before, after)
    if reason:
        return {"reason": reason}
    kernels = sorted(after - before, key=lambda kernel: (kernel.op, kernel.rule))
    _compute(kernels, state)
    idle = _idle(library, kernels)
    if idle:
        return {"reason": f"TensorFlow did not run {', '.join(idle)}"}
    return {"kernels": [(k.op, k.device, k.rule, k.priority) for k in kernels]}


def _idle(library: registry.Library, kernels: list[registry.Kernel]) -> list[str]:
    """Kernels that were not executed, though a program can reach them."""
    idle = sorted((op, kernel) for op, kernel, count in library.executions() if not count)
    unreachable = Counter(kernel.op for kernel in kernels if not agreement.reachable(kernel))
    beyond = Counter(op for op, _ in idle) - unreachable
    return [f"{op} {kernel}" for op, kernel in idle if op in beyond]


def _compute(kernels: list[registry.Kernel], state: Path) -> dict[str, Any]:
    """Every case's outcome into `state`. The answer is empty: there is nothing to complain of."""
    results = [(kernel.op, *row) for kernel in kernels for row in agreement.outcomes(kernel)]
    with state.open("wb") as sink:
        pickle.dump(results, sink)
    return {}


def _agree(rows: list[list[Any]], state: Path) -> dict[str, Any]:
    """In the parent: the same cases with the stock kernels, in another child, and the distance."""
    kernels = [registry.Kernel(*row) for row in rows]
    with state.open("rb") as source:
        tuned = pickle.load(source)  # noqa: S301  (our own child wrote it a moment ago)
    failed = _forked(functools.partial(_compute, kernels, state))
    if failed:
        return {"reason": f"the stock kernels: {failed['reason']}"}
    with state.open("rb") as source:
        stock = pickle.load(source)  # noqa: S301
    worst: dict[str, float] = {}
    for (op, case, mine), (_, _, theirs) in zip(tuned, stock, strict=True):
        apart = agreement.distance(op, theirs, mine)
        if apart > agreement.allowed(op, theirs):
            return {"reason": f"{case}: {apart:.3g} ULPs from the stock kernel"}
        worst[op] = max(worst.get(op, 0.0), round(apart, 3))
    return {"kernels": len(kernels), "cases": len(tuned), "ulps": worst}


def _forked(work: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Run `work` in a child and return its answer; a crash becomes a reason."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        signal.alarm(_LIMIT_S)
        try:
            answer = work()
        except Exception as error:  # noqa: BLE001  (whatever it is, it is this unit's reason)
            traceback.print_exc()
            answer = {"reason": f"{type(error).__name__}: {error}".splitlines()[0]}
        with os.fdopen(writer, "w") as sink:
            sink.write(json.dumps(answer))
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as source:
        text = source.read()
    _, status = os.waitpid(child, 0)
    if text:
        return dict(json.loads(text))
    code = os.waitstatus_to_exitcode(status)
    name = signal.Signals(-code).name if code < 0 else f"exit code {code}"
    return {"reason": f"loading it alone ended with {name}"}


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
