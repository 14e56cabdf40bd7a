"""The machine of a price book for each number of vCPUs. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tfbench.costs.prices import Mode, Price, PriceBook, format_first
from tfcore.console import format_choices, format_vcpus
from tfcore.errors import UsageError

_HINT = "Write machines as 2=n1-highcpu-2,8=n1-highcpu-8"


def parse_machines(text: str) -> dict[int, str]:
    """Parse machine names by vCPU count from `1=n1-highcpu-2,2=n1-highcpu-2`.

    An empty text gives none. Raises UsageError if the text is invalid.
    """
    names: dict[int, str] = {}
    for part in text.split(",") if text.strip() else ():
        count, equals, name = (word.strip() for word in part.partition("="))
        if not (equals and name and count.isdecimal() and int(count) > 0):
            raise UsageError(f"invalid machine {part.strip()!r}", hint=_HINT)
        if int(count) in names:
            raise UsageError(f"two machines are given for {format_vcpus(int(count))}", hint=_HINT)
        names[int(count)] = name
    return names


def parse_mode(text: str) -> Mode | None:
    """Parse a mode; None for an empty text. Raises UsageError if it is unknown."""
    if not text:
        return None
    if text not in set(Mode):
        raise UsageError(f"--mode {text} is unknown", hint=f"Use {format_choices(tuple(Mode))}")
    return Mode(text)


def find_machines(
    book: PriceBook, counts: Iterable[int], names: Mapping[int, str]
) -> dict[int, Price]:
    """Find the price for each number of vCPUs.

    It is that of the machine named for the number, else of the only one in the book with that
    many vCPUs and no accelerator. Raises UsageError if there is none or several, if a name is
    not in the book or has fewer vCPUs, and if a machine is named for a number that is not
    among `counts`.
    """
    requested = tuple(dict.fromkeys(counts))
    for count in names:
        if count not in requested:
            measured = ", ".join(map(str, requested))
            raise UsageError(
                f"{names[count]} is given for {format_vcpus(count)}, but only {measured} were "
                "measured"
            )
    return {
        count: find_machine(book, count, names[count])
        if count in names
        else _find_only_machine(book, count)
        for count in requested
    }


def find_machine(book: PriceBook, count: int, name: str) -> Price:
    """Find the price of a machine for this many vCPUs.

    Raises UsageError if the machine is unknown or has fewer.
    """
    price = book.find_price(name)
    if price.vcpus is not None and price.vcpus < count:
        raise UsageError(f"{price} has {price.vcpus:g} vCPUs, fewer than the {count} measured")
    return price


def _find_only_machine(book: PriceBook, count: int) -> Price:
    candidates = [price for price in book.fitting if not price.accelerator]
    matches = [price for price in candidates if price.vcpus == count]
    if len(matches) == 1:
        return matches[0]
    raise UsageError(
        f"the price book {book.name} has {len(matches) or 'no'} machines with "
        f"{format_vcpus(count)}",
        hint=f"Choose one with --machines {count}=NAME: "
        f"{format_first(matches or candidates or book.names)}",
    )
