"""Which kernel of a tuned wheel serves a call site. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from tfbench.inside.call_sites import CallSite
from tfbuild.measured.kernels import TypedOp


def serving(site: CallSite, registrations: Iterable[TypedOp]) -> TypedOp | None:
    """The registration that TensorFlow takes for the call site, None where stock's stays.

    As KernelAttrsMatch of tensorflow/core/framework/kernel_def_util.cc: every attribute that the
    registration limits has only types that it allows. Kernels with a label serve no plain op.
    """
    fitting = (each for each in registrations if each.op == site.op and _allows(each, site))
    return next(fitting, None)


def _allows(choice: TypedOp, site: CallSite) -> bool:
    types, _, label = choice.types.partition(";")
    limits = (part.partition("=") for part in types.split(",") if part)
    return not label and all(
        name in site.types and set(site.types[name]) <= {int(each) for each in allowed.split("|")}
        for name, _, allowed in limits
    )
