"""The kernel of a tuned wheel that serves a call site. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from tfbench.inside.call_sites import CallSite
from tfcore.comparisons.kernels import TypedOp


def find_registration(site: CallSite, registrations: Iterable[TypedOp]) -> TypedOp | None:
    """Find the registration that TensorFlow takes for the call site; None if stock's stays.

    As KernelAttrsMatch of tensorflow/core/framework/kernel_def_util.cc: every attribute that the
    registration limits has only types that it allows. Kernels with a label serve no plain op.
    """
    matches = (
        registration
        for registration in registrations
        if registration.op == site.op and _is_compatible(registration, site)
    )
    return next(matches, None)


def _is_compatible(choice: TypedOp, site: CallSite) -> bool:
    types, _, label = choice.types.partition(";")
    limits = (part.partition("=") for part in types.split(",") if part)
    return not label and all(
        name in site.types
        and set(site.types[name]) <= {int(number) for number in allowed.split("|")}
        for name, _, allowed in limits
    )
