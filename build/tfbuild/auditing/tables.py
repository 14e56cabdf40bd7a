"""Tables in our own libraries: what the dispatcher asks the CPU for, what kernels are registered.

The dispatcher's table has the layout of `struct tw_target` and `struct tw_feature` in
native/dispatcher.c, a registration that of `Counter` in native/counter.h.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterator
from pathlib import Path, PurePosixPath

from tfbuild.binaries.image import WORD, Image, read_image
from tfbuild.cpus.targets import parse_target
from tfbuild.errors import TargetError, WheelError
from tfbuild.packing.tuned import Tuned
from tfbuild.planning.dispatcher import (
    REGISTERS,
    TABLE,
    WORDS,
    DispatchFeature,
    DispatchTarget,
    HwcapFeature,
    target_of,
)

_TARGET = 3 * WORD  # a target's name, its library, its features
_CPUID = struct.Struct("<IIIIQ")  # after the feature's name: leaf, subleaf, register, bit, XCR0
_HWCAP = struct.Struct("<QIxxxx")  # word of the auxiliary vector, bit
_MOST_TARGETS, _MOST_FEATURES = 64, 256


def table_of(path: Path) -> tuple[DispatchTarget, ...]:
    """The rows of a linked dispatcher, for x86-64 or aarch64. Raises WheelError for a file without
    a table that can be read."""
    image = read_image(path)
    if TABLE not in image.objects:
        raise WheelError(f"{path.name} has no table {TABLE}")
    begin, size = image.objects[TABLE]
    if size % _TARGET or not 0 < size <= _MOST_TARGETS * _TARGET:
        raise WheelError(f"{path.name} has a table of {size} bytes, which are no targets")
    try:
        return tuple(
            DispatchTarget(
                name=image.text(image.pointer(at)),
                library=image.text(image.pointer(at + WORD)),
                features=tuple(_features(image, image.pointer(at + 2 * WORD))),
            )
            for at in range(begin, begin + size, _TARGET)
        )
    except TargetError as error:
        raise WheelError(f"{path.name} has a table that no dispatcher has: {error}") from error


def _features(image: Image, address: int) -> Iterator[DispatchFeature | HwcapFeature]:
    """Up to the row without a name. Raises WheelError, TargetError."""
    row = _CPUID if image.machine == "x86_64" else _HWCAP
    for number in range(_MOST_FEATURES):
        at = address + number * (WORD + row.size)
        name = image.pointer(at)
        if not name:
            return
        fields = row.unpack(image.constant(at + WORD, row.size))
        yield (_cpuid if row is _CPUID else _hwcap)(image.text(name), *fields)
    raise TargetError(f"a target has more than {_MOST_FEATURES} features")


def _cpuid(name: str, *fields: int) -> DispatchFeature:
    leaf, subleaf, register, bit, xcr0 = fields
    if register >= len(REGISTERS):
        raise TargetError(f"{name} is asked of register {register}")
    return DispatchFeature(
        name=name, leaf=leaf, subleaf=subleaf, register=REGISTERS[register], bit=bit, xcr0=xcr0
    )


def _hwcap(name: str, *fields: int) -> HwcapFeature:
    word, bit = fields
    if word not in WORDS:
        raise TargetError(f"{name} is asked of word {word} of the auxiliary vector")
    return HwcapFeature(name=name, word=WORDS[word], bit=bit)


def problems(facts: Tuned, path: Path) -> Iterator[str]:
    """Where a dispatcher asks for other things than tuned.json says of its kernel libraries, a line
    each. One that asks for less ends in SIGILL on a CPU that lacks the rest."""
    try:
        wanted = tuple(
            target_of(
                each.name,
                PurePosixPath(each.file).name,
                each.required_features,
                parse_target(each.target).family,
            )
            for each in facts.libraries
        )
        actual = table_of(path)
    except WheelError as error:
        yield f"what the dispatcher asks cannot be read: {error.message}"
        return
    except TargetError as error:
        yield f"what the dispatcher asks cannot be compared with tuned.json: {error.message}"
        return
    names, there = ([each.name for each in rows] for rows in (wanted, actual))
    if names != there:
        said = ", ".join(names)
        yield f"the dispatcher chooses among {', '.join(there)}, tuned.json names {said}"
        return
    for must, row in zip(wanted, actual, strict=True):
        yield from (f"the dispatcher {what} for {must.name}" for what in _unlike(must, row))


def _unlike(must: DispatchTarget, actual: DispatchTarget) -> Iterator[str]:
    if must.library != actual.library:
        yield f"opens {actual.library}, not {must.library},"
    wanted, asked = ({each.name: each for each in row.features} for row in (must, actual))
    if lost := [name for name in wanted if name not in asked]:
        yield f"does not ask for {', '.join(lost)}, which tuned.json requires,"
    if more := [name for name in asked if name not in wanted]:
        yield f"asks for {', '.join(more)}, which tuned.json does not require,"
    for name, each in asked.items():
        if name in wanted and wanted[name] != each:
            yield f"asks for {name} in another place ({each.place}, not {wanted[name].place})"
    if wanted == asked and must.features != actual.features:
        yield "asks in another order, or for a feature twice,"


def unregistered(path: Path, ops: Collection[str]) -> tuple[str, ...]:
    """Those of the ops of which a library has no registration: a pair of pointers to the op's name
    and the kernel's class. Raises WheelError."""
    image = read_image(path)
    wanted = {op.encode() for op in ops}
    longest = max(map(len, wanted), default=0) + 1
    for place, to in image.pointers.items():
        if to and image.pointers.get(place + WORD):
            wanted.discard(image.begin(to, longest).partition(b"\0")[0])
    return tuple(sorted(op.decode() for op in wanted))
