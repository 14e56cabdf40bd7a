"""Prices that nobody asks, for tests of what is made from them."""

from __future__ import annotations

from typing import Any

from tfbench.costs.prices import LineItem, Mode, Price


def price(name: str = "m8", usd_hour: float = 0.5, **fields: Any) -> Price:
    whole: dict[str, Any] = {
        "name": name,
        "provider": "cloud",
        "mode": Mode.ON_DEMAND,
        "items": (LineItem(name=name, usd_hour=usd_hour),),
        "as_of": "2020-02-29",
        "source": "a test",
    }
    return Price(**whole | fields)
