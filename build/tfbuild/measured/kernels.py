"""What was measured of single kernels."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True, order=True)
class TypedOp:
    """A registration: an op and the types that it is limited to.

    Types are written as in native/registration.h, such as T=1 or T=1|2,Tidx=3 (numbers of
    types.proto), empty for none.
    """

    op: str
    types: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class KernelRow:
    """One kernel at one call site of a profile.

    Times are seconds per execution of the stock and the tuned kernel. `shapes` are the
    inputs' as the profiler writes them, float[128,512];float[], `attributes` those of the op
    that matter; `share` is that of the call site in the profile's time. `ratio` is stock over
    tuned, above 1 if the tuned kernel is faster, with its interval; `p` is the probability of
    so much gain if there is none. `confirmed` is the interval (value, low, high) of a fresh
    run, None without one. `kept` is True if the registration was selected, `reason` why it
    was not.
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
    """The measurements that the kernels of a library (a file name) were chosen by, and their
    machine.
    """

    library: str
    measured_on: str
    rows: tuple[KernelRow, ...]
