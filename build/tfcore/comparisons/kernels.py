"""Measurements of single kernels."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True, order=True)
class TypedOp:
    """A registration: an op and the types that it is limited to.

    Types are written as in native/registration.h, such as T=1 or T=1|2,Tidx=3 (numbers of
    types.proto); empty for no limit.
    """

    op: str
    types: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class KernelRow:
    """One kernel at one call site of a profile.

    Times are seconds per execution of the stock and the tuned kernel. `shapes` are those
    of the inputs as the profiler writes them, float[128,512];float[]. `attributes` are the op's
    relevant attributes. `share` is the call site's share of the profile's time. `ratio` is
    stock over tuned, above 1 if the tuned kernel is faster, with its interval; `p` is its
    p-value under the hypothesis of no gain. `confirmed` is the interval (value, low, high) of
    a new run, None without one. `kept` is True if the registration was selected; `reason` is
    why it was not.
    """

    op: str
    types: str
    attributes: str
    shapes: str
    threads: int
    share: float
    stock_s: float
    tuned_s: float
    ratio: float
    low: float
    high: float
    p: float
    confirmed: tuple[float, float, float] | None = None
    kept: bool = False
    reason: str = ""

    @property
    def choice(self) -> TypedOp:
        return TypedOp(op=self.op, types=self.types)


@dataclass(frozen=True, kw_only=True, slots=True)
class KernelTable:
    """The measurements behind the selected kernels of a library, and their machine.

    `library` is a file name.
    """

    library: str
    measured_on: str
    rows: tuple[KernelRow, ...]
