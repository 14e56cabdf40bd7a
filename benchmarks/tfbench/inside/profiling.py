"""Where a training step's time goes, as TensorFlow's own profiler sees it.

Runs inside an arm. Other passes bypass registered kernels (Grappler's `_Fused…`, oneDNN's `_Mkl…`,
XLA), so what tuned kernels cover is counted, not assumed.
"""

from __future__ import annotations

import ctypes
import re
import tempfile
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

# An executed op is traced as "node name:Type"; C++ scopes as "Class::Function".
_OP = re.compile(r"^[^:]+:(_?[A-Z]\w*)$")
# They contain other ops, whose time would count twice.
_CONTAINERS = {
    *("PartitionedCall", "StatefulPartitionedCall", "While", "StatelessWhile", "If", "StatelessIf"),
    *("Case", "StatelessCase", "IteratorGetNext", "IteratorGetNextSync"),
}
_HOST = "/host:CPU"


def profile(
    tf: Any,  # noqa: ANN401  (TensorFlow has no types)
    step: Callable[[], Any],
    steps: int,
    library: str | None,
) -> dict[str, Any]:
    """Seconds per op type over `steps` steps, and the executions of tuned kernels per op."""
    before = executions(library)
    with tempfile.TemporaryDirectory() as folder:
        options = tf.profiler.experimental.ProfilerOptions(
            host_tracer_level=2, python_tracer_level=0, device_tracer_level=0
        )
        tf.profiler.experimental.start(folder, options=options)
        for _ in range(steps):
            float(step())
        tf.profiler.experimental.stop()
        seconds: dict[str, float] = defaultdict(float)
        for op, duration_s in traced(Path(folder)):
            seconds[op] += duration_s
    return {
        "steps": steps,
        "op_s": dict(seconds),
        "executions": dict(executions(library) - before),
    }


def traced(folder: Path) -> Iterator[tuple[str, float]]:
    """Type and seconds of every op that was executed on the host."""
    from tensorflow.tsl.profiler.protobuf import xplane_pb2  # noqa: PLC0415

    for path in folder.rglob("*.xplane.pb"):
        space = xplane_pb2.XSpace.FromString(path.read_bytes())
        for plane in (plane for plane in space.planes if plane.name == _HOST):
            names = {number: row.name for number, row in plane.event_metadata.items()}
            for line in plane.lines:
                for event in line.events:
                    op = op_type(names[event.metadata_id])
                    if op is not None:
                        yield op, event.duration_ps / 1e12


def op_type(name: str) -> str | None:
    """The op type in a traced event's name; None for what is no op or contains others."""
    found = _OP.match(name)
    return found[1] if found and found[1] not in _CONTAINERS else None


def executions(library: str | None) -> Counter[str]:
    """How often each op's tuned kernels ran so far, by the library's own counters."""
    counts: Counter[str] = Counter()
    if library is None:
        return counts
    handle = ctypes.CDLL(library)
    handle.tensorwright_kernel_op.restype = ctypes.c_char_p
    handle.tensorwright_kernel_executions.restype = ctypes.c_ulonglong
    for index in range(handle.tensorwright_kernel_count()):
        counts[handle.tensorwright_kernel_op(index).decode()] += (
            handle.tensorwright_kernel_executions(index)
        )
    return counts
