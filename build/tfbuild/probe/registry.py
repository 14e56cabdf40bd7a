"""TensorFlow's kernel registry, and a kernel library's own counters."""

from __future__ import annotations

import ctypes
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class Kernel:
    """One registration: `rule` is the KernelDef without its priority, as text."""

    op: str
    device: str
    rule: str
    priority: int


def registered() -> Counter[Kernel]:
    """Every registration that the process has now."""
    from tensorflow.python.framework import kernels  # noqa: PLC0415

    return Counter(
        _kernel(definition) for definition in kernels.get_all_registered_kernels().kernel
    )


def _kernel(definition: Any) -> Kernel:  # noqa: ANN401  (a protocol buffer of the arm's release)
    priority = definition.priority
    definition.ClearField("priority")
    # The order of constraints is the order of the source's builder calls.
    return Kernel(definition.op, definition.device_type, str(definition), priority)


def constraints(kernel: Kernel) -> dict[str, tuple[int, ...]]:
    """The data types (numbers of types.proto) that each type attribute is limited to."""
    return {row.name: tuple(row.allowed_values.list.type) for row in _definition(kernel).constraint}


def _definition(kernel: Kernel) -> Any:  # noqa: ANN401
    from google.protobuf import text_format  # noqa: PLC0415
    from tensorflow.core.framework import kernel_def_pb2  # noqa: PLC0415

    return text_format.Parse(kernel.rule, kernel_def_pb2.KernelDef())


def types(kernel: Kernel) -> str:
    """The types that a registration is limited to, as native/registration.h writes them."""
    limits = sorted(
        f"{name}={'|'.join(map(str, allowed))}" for name, allowed in constraints(kernel).items()
    )
    label = _definition(kernel).label
    return ",".join(limits) + (f";{label}" if label else "")


def raised(number: int) -> set[str]:
    """The ops of which a raised CPU kernel serves this type (of types.proto) as T."""
    return {
        kernel.op
        for kernel in registered()
        if kernel.device == "CPU"
        and kernel.priority > 0
        and number in constraints(kernel).get("T", (number,))
    }


def name(kernel: Kernel) -> tuple[str, str]:
    """The op and the types of a registration, as a wheel names it."""
    return kernel.op, types(kernel)


OWN = "_Tensorwright"
"""How the ops begin that are ours: they have no stock kernel."""


def difference(before: Counter[Kernel], after: Counter[Kernel]) -> str:
    """Why the new registrations are not all the stock ones of their ops raised by one; empty if
    they are."""
    reason = _foreign(before, after)
    if reason:
        return reason
    ops = {kernel.op for kernel in after - before}
    for kernel in before:
        raised = Kernel(kernel.op, kernel.device, kernel.rule, kernel.priority + 1)
        if kernel.op in ops and kernel.device == "CPU" and raised not in after:
            return f"it lacks a stock kernel: {' '.join(kernel.rule.split())}"
    return ""


def untrue(
    before: Counter[Kernel],
    after: Counter[Kernel],
    claimed: set[tuple[str, str]],
    beside: set[tuple[str, str]],
) -> str:
    """Why the new registrations are not stock ones raised by one, `claimed` among them, or go
    beyond all that are claimed for the library (`beside`); empty if all is well."""
    reason = _foreign(before, after)
    if reason:
        return reason
    there = {name(kernel) for kernel in after - before}
    for op, limits in sorted(claimed - there):
        return f"it does not register {op} {limits}".strip()
    for op, limits in sorted(there - beside):
        return f"its library registers {op} {limits}, which tuned.json does not name"
    return ""


def _foreign(before: Counter[Kernel], after: Counter[Kernel]) -> str:
    """Why a new registration is not a stock one raised by one; empty if all are."""
    added = after - before
    if before - after:
        return "a stock registration disappeared"
    if not added:
        return "it registers no CPU kernel"
    for kernel, times in added.items():
        twin = Kernel(kernel.op, kernel.device, kernel.rule, kernel.priority - 1)
        where = " ".join(kernel.rule.split())
        if times != 1:
            return f"it registers a kernel twice: {where}"
        if twin not in before and not kernel.op.startswith(OWN):
            return f"no stock kernel has the definition: {where}"
    return ""


def mapped(folder: str) -> Path | None:
    """The kernel library below `folder` that this process has in its memory (proc(5), maps)."""
    real = Path(folder).resolve()  # (what the kernel shows has no links in it)
    for line in Path("/proc/self/maps").read_text(encoding="utf-8").splitlines():
        path = line.partition("/")[1] + line.partition("/")[2]
        if path.startswith(f"{real}/"):
            return Path(path)
    return None


class Library:
    """A kernel library of ours in this process."""

    def __init__(self, path: Path) -> None:
        import tensorflow as tf  # noqa: PLC0415

        tf.load_library(str(path))
        self._handle = ctypes.CDLL(str(path))
        self._handle.tensorwright_kernel_op.restype = ctypes.c_char_p
        self._handle.tensorwright_kernel_class.restype = ctypes.c_char_p
        self._handle.tensorwright_kernel_executions.restype = ctypes.c_ulonglong

    def executions(self) -> list[tuple[str, str, int]]:
        """Op, kernel class and number of executions of every kernel."""
        handle = self._handle
        return [
            (
                handle.tensorwright_kernel_op(index).decode(),
                handle.tensorwright_kernel_class(index).decode(),
                int(handle.tensorwright_kernel_executions(index)),
            )
            for index in range(handle.tensorwright_kernel_count())
        ]

    def fused(self) -> dict[str, int]:
        """What was fused, how often it ran, and what was left alone and why (native/fused/tally.h);
        nothing of a library that fuses nothing."""
        handle = self._handle
        if not hasattr(handle, "tensorwright_fused_events"):
            return {}
        handle.tensorwright_fused_name.restype = ctypes.c_char_p
        handle.tensorwright_fused_count.restype = ctypes.c_ulonglong
        return {
            handle.tensorwright_fused_name(event).decode(): handle.tensorwright_fused_count(event)
            for event in range(handle.tensorwright_fused_events())
        }

    def multiplies(self) -> bool:
        """Whether it computes products, where it fuses them: not with AVX-512, by which minimal
        filtering alone is faster than oneDNN (native/fused/faster.h)."""
        handle = self._handle
        return not hasattr(handle, "tensorwright_multiplies") or bool(
            handle.tensorwright_multiplies()
        )

    def count(self, op: str) -> int:
        """Executions of all of an op's kernels."""
        return sum(times for name, _, times in self.executions() if name == op)
