"""Where a training step's time goes, as TensorFlow's own profiler sees it.

Runs inside an arm. Other passes bypass registered kernels (Grappler's `_Fused…`, oneDNN's `_Mkl…`,
XLA), so what tuned kernels cover is counted, not assumed.
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
# They contain other ops, whose time would count twice.
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
"""The level that is in force, an exported std::atomic<int> (traceme_recorder.h beside it)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Execution:
    """One execution of an op on the host, `began` seconds after an origin of the trace. `shapes`
    are dtype and shape of each input as op_kernel.cc writes them, (float[32,512];float[512]), with
    nothing for a resource; empty without detail."""

    node: str
    op: str
    shapes: str
    seconds: float
    began: float


def profile(
    tf: Any,  # noqa: ANN401  (TensorFlow has no types)
    step: Callable[[], Any],
    steps: int,
    library: str | None,
) -> dict[str, Any]:
    """Seconds per op type over `steps` steps, the executions of tuned kernels per op in them, and
    what was fused since the library was loaded."""
    before = executions(library)
    seconds: dict[str, float] = defaultdict(float)
    for each in observed(tf, step, steps, detailed=False):
        seconds[each.op] += each.seconds
    return {
        "steps": steps,
        "op_s": dict(seconds),
        "executions": dict(executions(library) - before),
        "fused": fused(library),
    }


def observed(
    tf: Any,  # noqa: ANN401
    step: Callable[[], Any],
    steps: int,
    *,
    detailed: bool,
) -> list[Execution]:
    """Every op that was executed in `steps` steps."""
    with tempfile.TemporaryDirectory() as folder:
        options = tf.profiler.experimental.ProfilerOptions(
            host_tracer_level=_VERBOSE if detailed else _PLAIN,
            python_tracer_level=0,
            device_tracer_level=0,
        )
        tf.profiler.experimental.start(folder, options=options)
        if detailed:
            _insist(Path(tf.__file__).parent / _FRAMEWORK)
        for _ in range(steps):
            float(step())
        tf.profiler.experimental.stop()
        return list(traced(Path(folder)))


def _insist(framework: Path) -> None:
    """Have the level that was asked for: TensorFlow 2.20 drops it ("host_tracer_level expects an i
    value") and traces without shapes. Releases without the symbol take the option."""
    with contextlib.suppress(OSError, ValueError):
        ctypes.c_int.in_dll(ctypes.CDLL(str(framework)), _LEVEL).value = _VERBOSE


def traced(folder: Path) -> Iterator[Execution]:
    """Every op that was executed on the host, from a profiler's log folder."""
    from tensorflow.tsl.profiler.protobuf import xplane_pb2  # noqa: PLC0415

    for path in folder.rglob("*.xplane.pb"):
        space = xplane_pb2.XSpace.FromString(path.read_bytes())
        for plane in (plane for plane in space.planes if plane.name == _HOST):
            names = {number: row.name for number, row in plane.event_metadata.items()}
            stats = {number: row.name for number, row in plane.stat_metadata.items()}
            for line in plane.lines:
                for event in line.events:
                    name = names[event.metadata_id]
                    op = op_type(name)
                    if op is not None:
                        yield Execution(
                            node=name.rpartition(":")[0],
                            op=op,
                            shapes=_shapes(event, stats),
                            seconds=event.duration_ps / 1e12,
                            began=line.timestamp_ns / 1e9 + event.offset_ps / 1e12,
                        )


def _shapes(event: Any, stats: dict[int, str]) -> str:  # noqa: ANN401  (an XEvent)
    """A text of a trace is kept once, among the names of statistics, and referred to."""
    for stat in event.stats:
        if stats[stat.metadata_id] == "shape":
            return stats[stat.ref_value] if stat.ref_value else str(stat.str_value)
    return ""


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


def fused(library: str | None) -> dict[str, int]:
    """What a library that fuses has counted so far, by its own words (native/fused/tally.h)."""
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
