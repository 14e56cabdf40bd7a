"""Which machine of a price book stands for which number of vCPUs. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tfbench.costs.prices import Mode, Price, PriceBook, first_of
from tfbuild.console import format_vcpus
from tfbuild.errors import UsageError

_HINT = "Write machines as 2=n1-highcpu-2,8=n1-highcpu-8"


def parse_machines(text: str) -> dict[int, str]:
    """Names by vCPU count from `1=n1-highcpu-2,2=n1-highcpu-2`; none from an empty text.

    Raises UsageError.
    """
    names: dict[int, str] = {}
    for part in text.split(",") if text.strip() else ():
        count, equals, name = (word.strip() for word in part.partition("="))
        if not (equals and name and count.isdecimal() and int(count) > 0):
            raise UsageError(f"{part.strip()!r} does not name a machine", hint=_HINT)
        if int(count) in names:
            raise UsageError(f"two machines are named for {format_vcpus(int(count))}", hint=_HINT)
        names[int(count)] = name
    return names


def parse_mode(text: str) -> Mode | None:
    """None from an empty text. Raises UsageError."""
    if not text:
        return None
    if text not in set(Mode):
        raise UsageError(f"--mode {text} is unknown", hint=f"Use {', '.join(Mode)}")
    return Mode(text)


def find_machines(
    book: PriceBook, counts: Iterable[int], names: Mapping[int, str]
) -> dict[int, Price]:
    """The price for each number of vCPUs: of the machine that is named for it, else of the only one
    in the book that has as many and no accelerator.

    Raises UsageError for none, for several, for a name that is not in the book or has fewer vCPUs,
    and for one that is given for a number that is not among `counts`.
    """
    wanted = tuple(dict.fromkeys(counts))
    for count in names:
        if count not in wanted:
            measured = ", ".join(map(str, wanted))
            raise UsageError(
                f"{names[count]} is named for {format_vcpus(count)}, and {measured} were measured"
            )
    return {
        count: named(book, count, names[count]) if count in names else _only(book, count)
        for count in wanted
    }


def named(book: PriceBook, count: int, name: str) -> Price:
    """The price of a machine for so many vCPUs. Raises UsageError for one that has fewer."""
    price = book.price(name)
    if price.vcpus is not None and price.vcpus < count:
        raise UsageError(f"{price} has {price.vcpus:g} vCPUs, fewer than the {count} measured")
    return price


def _only(book: PriceBook, count: int) -> Price:
    fitting = [each for each in book.fitting if not each.accelerator]
    found = [each for each in fitting if each.vcpus == count]
    if len(found) == 1:
        return found[0]
    raise UsageError(
        f"the price book {book.name} has {len(found) or 'no'} machines with {format_vcpus(count)}",
        hint=f"Name one, as in {count}=NAME, of {first_of(found or fitting or book.names)}",
    )
