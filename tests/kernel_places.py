"""Places of a program and times of them, as the tests of selections need them."""

from __future__ import annotations

from tfbench.inside.places import Place, PlaceInput
from tfbench.kernels.judging import Series, TimedSpot
from tfbench.kernels.profiles import Spot
from tfbuild.measured.kernels import TypedOp
from tfbuild.records import key_of

FLOAT, INT32 = 1, 3
TANH = TypedOp(op="Tanh", types=f"T={FLOAT}")


def place(op: str = "Tanh", *shape: int) -> Place:
    return Place(op=op, types={"T": (FLOAT,)}, inputs=(PlaceInput(dtype="float", shape=shape),))


def spot(op: str = "Tanh", *shape: int, share: float = 0.1) -> Spot:
    found = place(op, *shape)
    return Spot(key=key_of(found), place=found, share=share, most=share, call_s=1e-5)


def series(*launches: float) -> Series:
    """Launches with that ln(stock / tuned); stock differs from itself by a thousandth."""
    stock = tuple((-1) ** number * 5e-4 for number in range(len(launches)))
    return Series(
        stock_s=2e-5,
        tuned_s=1e-5,
        stock=stock,
        again=tuple(-each for each in stock),
        tuned=tuple(-each for each in launches),
    )


def timed(where: Spot, *launches: float, choice: TypedOp = TANH, threads: int = 1) -> TimedSpot:
    return TimedSpot(spot=where, choice=choice, threads=threads, series=series(*launches))
