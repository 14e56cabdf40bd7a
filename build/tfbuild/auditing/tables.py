"""Read the tables in Tensorwright's libraries: the dispatcher's features, registered kernels.

The dispatcher's table has the layout of `struct tw_target` and `struct tw_feature` in
native/dispatcher.c. A registration has the layout of `Counter` in native/counter.h.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterator
from pathlib import Path, PurePosixPath

from tfbuild.binaries.elf import WORD
from tfbuild.binaries.image import Image, read_image
from tfbuild.packing.tuned import Tuned
from tfbuild.planning.dispatcher import (
    REGISTERS,
    TABLE,
    WORDS,
    DispatchFeature,
    DispatchTarget,
    HwcapFeature,
    build_target,
)
from tfcore.cpus.targets import parse_target
from tfcore.errors import TargetError, WheelError

_TARGET = 3 * WORD  # pointers to a target's name, library and features
_CPUID = struct.Struct("<IIIIQ")  # after the feature's name: leaf, subleaf, register, bit, XCR0
_HWCAP = struct.Struct("<QIxxxx")  # word of the auxiliary vector, bit
_MOST_TARGETS, _MOST_FEATURES = 64, 256


def read_table(path: Path) -> tuple[DispatchTarget, ...]:
    """Return the rows of a linked dispatcher, for x86-64 or aarch64.

    Raises WheelError for a file without a readable table.
    """
    image = read_image(path)
    if TABLE not in image.objects:
        raise WheelError(f"{path.name} has no table {TABLE}")
    begin, size = image.objects[TABLE]
    if size % _TARGET or not 0 < size <= _MOST_TARGETS * _TARGET:
        raise WheelError(f"the table {TABLE} of {path.name} has an invalid size ({size} bytes)")
    try:
        return tuple(
            DispatchTarget(
                name=image.read_string(image.read_pointer(at)),
                library=image.read_string(image.read_pointer(at + WORD)),
                features=tuple(_read_features(image, image.read_pointer(at + 2 * WORD))),
            )
            for at in range(begin, begin + size, _TARGET)
        )
    except TargetError as error:
        raise WheelError(f"the table {TABLE} of {path.name} is invalid: {error}") from error


def _read_features(image: Image, address: int) -> Iterator[DispatchFeature | HwcapFeature]:
    """Yield the features up to the row without a name.

    Raises WheelError, TargetError.
    """
    row = _CPUID if image.machine == "x86_64" else _HWCAP
    for number in range(_MOST_FEATURES):
        at = address + number * (WORD + row.size)
        name = image.read_pointer(at)
        if not name:
            return
        fields = row.unpack(image.read_constant(at + WORD, row.size))
        yield (_build_cpuid_feature if row is _CPUID else _build_hwcap_feature)(
            image.read_string(name), *fields
        )
    raise TargetError(f"a target has more than {_MOST_FEATURES} features")


def _build_cpuid_feature(name: str, *fields: int) -> DispatchFeature:
    leaf, subleaf, register, bit, xcr0 = fields
    if register >= len(REGISTERS):
        raise TargetError(f"{name} has the unknown register {register}")
    return DispatchFeature(
        name=name, leaf=leaf, subleaf=subleaf, register=REGISTERS[register], bit=bit, xcr0=xcr0
    )


def _build_hwcap_feature(name: str, *fields: int) -> HwcapFeature:
    word, bit = fields
    if word not in WORDS:
        raise TargetError(f"{name} has the unknown word {word} of the auxiliary vector")
    return HwcapFeature(name=name, word=WORDS[word], bit=bit)


def find_problems(facts: Tuned, path: Path) -> Iterator[str]:
    """Yield a line for each difference between a dispatcher's table and tuned.json.

    A dispatcher that checks fewer features than its kernel libraries need causes SIGILL on a
    CPU that lacks the others.
    """
    try:
        expected = tuple(
            build_target(
                entry.name,
                PurePosixPath(entry.file).name,
                entry.required_features,
                parse_target(entry.target).family,
            )
            for entry in facts.libraries
        )
        actual = read_table(path)
    except WheelError as error:
        yield f"the dispatcher's table cannot be read: {error.message}"
        return
    except TargetError as error:
        yield f"the dispatcher's table cannot be compared with tuned.json: {error.message}"
        return
    names, actual_names = ([entry.name for entry in rows] for rows in (expected, actual))
    if names != actual_names:
        listed = ", ".join(names)
        yield f"the dispatcher lists {', '.join(actual_names)}, tuned.json lists {listed}"
        return
    for expected_row, row in zip(expected, actual, strict=True):
        yield from (
            f"the dispatcher {difference} for {expected_row.name}"
            for difference in _compare_rows(expected_row, row)
        )


def _compare_rows(must: DispatchTarget, actual: DispatchTarget) -> Iterator[str]:
    if must.library != actual.library:
        yield f"opens {actual.library}, not {must.library},"
    required, checked = (
        {feature.name: feature for feature in row.features} for row in (must, actual)
    )
    if missing := [name for name in required if name not in checked]:
        yield f"does not check {', '.join(missing)}, which tuned.json requires,"
    if extra := [name for name in checked if name not in required]:
        yield f"checks {', '.join(extra)}, which tuned.json does not require,"
    for name, feature in checked.items():
        if name in required and required[name] != feature:
            yield f"checks {name} at {feature.place}, not at {required[name].place},"
    if required == checked and must.features != actual.features:
        yield "checks its features in another order, or one of them twice,"


def find_unregistered(path: Path, ops: Collection[str]) -> tuple[str, ...]:
    """Return those of the ops that a library does not register.

    A registration is a pair of pointers to the op's name and the kernel's class.

    Raises WheelError.
    """
    image = read_image(path)
    missing = {op.encode() for op in ops}
    longest = max(map(len, missing), default=0) + 1
    for place, target in image.pointers.items():
        if target and image.pointers.get(place + WORD):
            missing.discard(image.read_prefix(target, longest).partition(b"\0")[0])
    return tuple(sorted(op.decode() for op in missing))
