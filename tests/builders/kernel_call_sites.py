"""Call sites of a program and times of them, as the tests of selections need them."""

from __future__ import annotations

from tfbench.inside.call_sites import CallSite, CallSiteInput
from tfbench.kernels.keep_rules import Series, TimedCallSite
from tfbench.kernels.profiles import RankedCallSite
from tfcore.comparisons.kernels import TypedOp
from tfcore.records import hash_record

FLOAT, INT32 = 1, 3
TANH = TypedOp(op="Tanh", types=f"T={FLOAT}")


def call_site(op: str = "Tanh", *shape: int) -> CallSite:
    return CallSite(
        op=op, types={"T": (FLOAT,)}, inputs=(CallSiteInput(dtype="float", shape=shape),)
    )


def ranked(op: str = "Tanh", *shape: int, share: float = 0.1) -> RankedCallSite:
    site = call_site(op, *shape)
    return RankedCallSite(key=hash_record(site), place=site, share=share, most=share, call_s=1e-5)


def series(*launches: float) -> Series:
    """Launches with that ln(stock / tuned); stock differs from itself by a thousandth."""
    stock = tuple((-1) ** number * 5e-4 for number in range(len(launches)))
    return Series(
        stock_s=2e-5,
        tuned_s=1e-5,
        stock=stock,
        again=tuple(-value for value in stock),
        tuned=tuple(-value for value in launches),
    )


def timed(
    where: RankedCallSite, *launches: float, choice: TypedOp = TANH, threads: int = 1
) -> TimedCallSite:
    return TimedCallSite(site=where, choice=choice, threads=threads, series=series(*launches))
