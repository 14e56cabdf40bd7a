"""TensorFlow's kernel registry, and the counters of a kernel library."""

from __future__ import annotations

import ctypes
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class Kernel:
    """A kernel registration: `rule` is the KernelDef without its priority, as text."""

    op: str
    device: str
    rule: str
    priority: int


def list_registrations() -> Counter[Kernel]:
    """Count all registrations of this process."""
    from tensorflow.python.framework import kernels

    return Counter(
        _create_kernel(definition) for definition in kernels.get_all_registered_kernels().kernel
    )


def _create_kernel(definition: Any) -> Kernel:
    priority = definition.priority
    definition.ClearField("priority")
    # The order of constraints is the order of the source's builder calls.
    return Kernel(definition.op, definition.device_type, str(definition), priority)


def list_constraints(kernel: Kernel) -> dict[str, tuple[int, ...]]:
    """Return the data types (numbers of types.proto) that each type attribute is limited to."""
    return {
        row.name: tuple(row.allowed_values.list.type)
        for row in _parse_definition(kernel).constraint
    }


def _parse_definition(kernel: Kernel) -> Any:
    from google.protobuf import text_format
    from tensorflow.core.framework import kernel_def_pb2

    return text_format.Parse(kernel.rule, kernel_def_pb2.KernelDef())


def format_types(kernel: Kernel) -> str:
    """Format the types that a registration is limited to, as native/registration.h writes them."""
    limits = sorted(
        f"{name}={'|'.join(map(str, allowed))}"
        for name, allowed in list_constraints(kernel).items()
    )
    label = _parse_definition(kernel).label
    return ",".join(limits) + (f";{label}" if label else "")


def list_raised_ops(number: int) -> set[str]:
    """Return the ops for which a CPU kernel of raised priority serves this type (of types.proto)
    as T.
    """
    return {
        kernel.op
        for kernel in list_registrations()
        if kernel.device == "CPU"
        and kernel.priority > 0
        and number in list_constraints(kernel).get("T", (number,))
    }


def get_name(kernel: Kernel) -> tuple[str, str]:
    """Return the op and the types of a registration, as a wheel names it."""
    return kernel.op, format_types(kernel)


OWN = "_Tensorwright"
"""Prefix of Tensorwright's ops, which have no stock kernel."""
BARRIER = f"{OWN}Barrier"
"""The op of native/low_precision.cc: part of no kernel group, so tuned.json does not claim it."""


def find_registration_fault(before: Counter[Kernel], after: Counter[Kernel]) -> str:
    """Return why the new registrations are not exactly the stock ones of their ops with the
    priority raised by one, or an empty string if they are.
    """
    reason = _find_added_fault(before, after)
    if reason:
        return reason
    ops = {kernel.op for kernel in after - before}
    for kernel in before:
        raised = Kernel(kernel.op, kernel.device, kernel.rule, kernel.priority + 1)
        if kernel.op in ops and kernel.device == "CPU" and raised not in after:
            return f"it lacks a stock kernel: {' '.join(kernel.rule.split())}"
    return ""


def find_claim_fault(
    before: Counter[Kernel],
    after: Counter[Kernel],
    claimed: set[tuple[str, str]],
    beside: set[tuple[str, str]],
) -> str:
    """Return why the new registrations are not valid, or an empty string if they are.

    Each must be a stock one with the priority raised by one, all in `claimed` must be
    registered, and none outside the claims of all groups in the library (`beside`).
    """
    reason = _find_added_fault(before, after)
    if reason:
        return reason
    added = {get_name(kernel) for kernel in after - before if kernel.op != BARRIER}
    for op, limits in sorted(claimed - added):
        return f"it does not register {op} {limits}".strip()
    for op, limits in sorted(added - beside):
        return f"its library registers {op} {limits}, which is not in tuned.json"
    return ""


def _find_added_fault(before: Counter[Kernel], after: Counter[Kernel]) -> str:
    """Return why a new registration is not a stock one with the priority raised by one, or an
    empty string if all are.
    """
    added = after - before
    if before - after:
        return "a stock registration disappeared"
    if not added:
        return "it registers no CPU kernel"
    for kernel, times in added.items():
        stock = Kernel(kernel.op, kernel.device, kernel.rule, kernel.priority - 1)
        definition = " ".join(kernel.rule.split())
        if times != 1:
            return f"it registers a kernel twice: {definition}"
        if stock not in before and not kernel.op.startswith(OWN):
            return f"no stock kernel has the definition: {definition}"
    return ""


def find_mapped_library(folder: str) -> Path | None:
    """Return the kernel library below `folder` that is mapped into this process (proc(5), maps),
    or None.
    """
    root = Path(folder).resolve()  # (paths in proc have no symbolic links)
    for line in Path("/proc/self/maps").read_text(encoding="utf-8").splitlines():
        path = line.partition("/")[1] + line.partition("/")[2]
        if path.startswith(f"{root}/"):
            return Path(path)
    return None


class Library:
    """A kernel library of this project, loaded into this process."""

    def __init__(self, path: Path) -> None:
        import tensorflow as tf

        tf.load_library(str(path))
        self._handle = ctypes.CDLL(str(path))
        self._handle.tensorwright_kernel_op.restype = ctypes.c_char_p
        self._handle.tensorwright_kernel_class.restype = ctypes.c_char_p
        self._handle.tensorwright_kernel_executions.restype = ctypes.c_ulonglong

    def list_executions(self) -> list[tuple[str, str, int]]:
        """Return the op, the kernel class and the number of executions of every kernel."""
        handle = self._handle
        return [
            (
                handle.tensorwright_kernel_op(index).decode(),
                handle.tensorwright_kernel_class(index).decode(),
                int(handle.tensorwright_kernel_executions(index)),
            )
            for index in range(handle.tensorwright_kernel_count())
        ]

    def count_fused_events(self) -> dict[str, int]:
        """Return the counters of fused ops, of their executions, and of the ops that were not
        fused, by reason (native/graph/events.h); empty for a library that fuses nothing.
        """
        handle = self._handle
        if not hasattr(handle, "tensorwright_fused_events"):
            return {}
        handle.tensorwright_fused_name.restype = ctypes.c_char_p
        handle.tensorwright_fused_count.restype = ctypes.c_ulonglong
        return {
            handle.tensorwright_fused_name(event).decode(): handle.tensorwright_fused_count(event)
            for event in range(handle.tensorwright_fused_events())
        }

    def count_executions(self, op: str) -> int:
        """Count the executions of all kernels of an op."""
        return sum(times for name, _, times in self.list_executions() if name == op)
