"""Profile training steps with TensorFlow's profiler.

Runs inside an arm. Graph passes replace ops (Grappler's `_Fused…`, oneDNN's `_Mkl…`, XLA), so the
executions of tuned kernels are counted, not assumed.
"""

from __future__ import annotations

import contextlib
import ctypes
import re
import tempfile
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# An executed op is traced as "node name:Type"; C++ scopes as "Class::Function".
_OP = re.compile(r"^[^:]+:(_?[A-Z]\w*)$")
# These ops contain other ops, whose time would count twice.
_CONTAINERS = {
    *("PartitionedCall", "StatefulPartitionedCall", "While", "StatelessWhile", "If", "StatelessIf"),
    *("Case", "StatelessCase", "IteratorGetNext", "IteratorGetNextSync"),
}
_HOST = "/host:CPU"
_PLAIN, _VERBOSE = 2, 3
"""Levels of the host tracer. The higher one makes the executor write the shapes of the inputs
(TfOpDetailsEnabled in tsl/profiler/lib/traceme.h)."""
_FRAMEWORK = "libtensorflow_framework.so.2"
_LEVEL = "_ZN3tsl8profiler8internal13g_trace_levelE"
"""The current level, an exported std::atomic<int> (traceme_recorder.h in the same folder)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Execution:
    """One execution of an op on the host, `began` seconds after the origin of the trace.

    `shapes` is the dtype and shape of each input in the format of op_kernel.cc,
    (float[32,512];float[512]), with an empty entry for a resource. It is empty if the trace has no
    shapes.
    """

    node: str
    op: str
    shapes: str
    seconds: float
    began: float


def profile_steps(
    tf: Any,
    step: Callable[[], Any],
    steps: int,
    library: str | None,
) -> dict[str, Any]:
    """Profile `steps` steps.

    Returns the seconds per op type, the executions of tuned kernels per op in these steps,
    and the counts of fused ops since the library was loaded.
    """
    before = count_executions(library)
    seconds: dict[str, float] = defaultdict(float)
    for execution in trace_steps(tf, step, steps, detailed=False):
        seconds[execution.op] += execution.seconds
    return {
        "steps": steps,
        "op_s": dict(seconds),
        "executions": dict(count_executions(library) - before),
        "fused": count_fused_events(library),
    }


def trace_steps(
    tf: Any,
    step: Callable[[], Any],
    steps: int,
    *,
    detailed: bool,
) -> list[Execution]:
    """Run `steps` steps under the profiler and return every execution of an op."""
    with tempfile.TemporaryDirectory() as folder:
        options = tf.profiler.experimental.ProfilerOptions(
            host_tracer_level=_VERBOSE if detailed else _PLAIN,
            python_tracer_level=0,
            device_tracer_level=0,
        )
        tf.profiler.experimental.start(folder, options=options)
        if detailed:
            _force_verbose_level(Path(tf.__file__).parent / _FRAMEWORK)
        for _ in range(steps):
            float(step())
        tf.profiler.experimental.stop()
        return list(read_trace(Path(folder)))


def _force_verbose_level(framework: Path) -> None:
    """Set the tracer's level to the verbose one.

    TensorFlow 2.20 ignores the option ("host_tracer_level expects an i value") and traces without
    shapes. Releases without the symbol accept the option.
    """
    with contextlib.suppress(OSError, ValueError):
        ctypes.c_int.in_dll(ctypes.CDLL(str(framework)), _LEVEL).value = _VERBOSE


def read_trace(folder: Path) -> Iterator[Execution]:
    """Yield every execution of an op on the host, from a profiler's log folder."""
    from tensorflow.tsl.profiler.protobuf import xplane_pb2

    for path in folder.rglob("*.xplane.pb"):
        space = xplane_pb2.XSpace.FromString(path.read_bytes())
        for plane in (plane for plane in space.planes if plane.name == _HOST):
            names = {number: row.name for number, row in plane.event_metadata.items()}
            stats = {number: row.name for number, row in plane.stat_metadata.items()}
            for line in plane.lines:
                for event in line.events:
                    name = names[event.metadata_id]
                    op = parse_op_type(name)
                    if op is not None:
                        yield Execution(
                            node=name.rpartition(":")[0],
                            op=op,
                            shapes=_read_shapes(event, stats),
                            seconds=event.duration_ps / 1e12,
                            began=line.timestamp_ns / 1e9 + event.offset_ps / 1e12,
                        )


def _read_shapes(event: Any, stats: dict[int, str]) -> str:
    """Return an event's shapes.

    A trace stores a repeated text once, among the names of statistics, and refers to it.
    """
    for stat in event.stats:
        if stats[stat.metadata_id] == "shape":
            return stats[stat.ref_value] if stat.ref_value else str(stat.str_value)
    return ""


def parse_op_type(name: str) -> str | None:
    """Return the op type in the name of a traced event.

    Returns None if the event is not an op, or an op that contains others.
    """
    match = _OP.match(name)
    return match[1] if match and match[1] not in _CONTAINERS else None


def count_executions(library: str | None) -> Counter[str]:
    """Return how often each op's tuned kernels ran so far, from the library's counters."""
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


def count_fused_events(library: str | None) -> dict[str, int]:
    """Return the library's counts of fusion events so far, by name (native/graph/events.h)."""
    handle = None if library is None else ctypes.CDLL(library)
    if handle is None or not hasattr(handle, "tensorwright_fused_events"):
        return {}
    handle.tensorwright_fused_name.restype = ctypes.c_char_p
    handle.tensorwright_fused_count.restype = ctypes.c_ulonglong
    counts = {
        handle.tensorwright_fused_name(event).decode(): int(handle.tensorwright_fused_count(event))
        for event in range(handle.tensorwright_fused_events())
    }
    return {name: count for name, count in counts.items() if count}
