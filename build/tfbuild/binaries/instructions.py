"""Which CPU features an instruction needs, by the names of features.toml.

On x86-64 iced-x86 names the CPUID bits of every instruction. On aarch64 capstone writes the
instruction, and the features are told by its text: capstone 5 has no groups for what came after
Armv8.0.
"""

from __future__ import annotations

import functools
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from importlib.metadata import version
from operator import attrgetter
from typing import Any

import capstone  # type: ignore[import-untyped]
from iced_x86 import Code, CpuidFeature, Decoder, DecoderError, Instruction

from tfbuild.cpus import features

UNDECODED = "undecoded"
"""Stands for a place where no instruction could be read."""
DECODERS = {name: version(name) for name in ("iced-x86", "capstone")}

WORD = 4
"""Bytes of an aarch64 instruction."""
_BITS = 64

# Every x86-64 CPU has these (psABI, the baseline), or takes them for a NOP: PAUSE and ENDBR64.
BASELINE = frozenset(
    (
        *("INTEL8086", "INTEL186", "INTEL286", "INTEL386", "INTEL486", "X64"),
        *("FPU", "FPU287", "FPU387", "CMOV", "CX8", "CPUID", "TSC", "SYSCALL", "FXSR", "CLFSH"),
        *("MMX", "SSE", "SSE2", "MULTIBYTENOP", "PAUSE", "CET_IBT"),
    )
)
"""iced's names of what counts as x86_64."""

# Where iced's feature says less than the instruction needs, or more.
_EXCEPTIONS: Mapping[int, tuple[str, ...]] = {
    Code.INVALID: (UNDECODED,),
    Code.LAHF: ("lahf_lm",),
    Code.SAHF: ("lahf_lm",),
    # Compilers write BSF as REP BSF, which a CPU with BMI1 takes for TZCNT: no proof of BMI1.
    Code.TZCNT_R16_RM16: ("x86_64",),
    Code.TZCNT_R32_RM32: ("x86_64",),
    Code.TZCNT_R64_RM64: ("x86_64",),
}


def tally(machine: str, functions: Iterable[bytes]) -> Counter[str]:
    """How many instructions need each feature.

    One that needs several features counts for each. One that every CPU has counts for `machine`.
    """
    kinds: Counter[int] = Counter()
    needs = needs_of_word if machine == "aarch64" else needs_of_code
    for data in functions:
        if machine == "aarch64":
            kinds.update(_words(data))
            continue
        decoder = Decoder(_BITS, data)
        kinds.update(map(_CODE, decoder))
        kinds[Code.INVALID] -= _ends_in_padding(decoder, data)
    total: Counter[str] = Counter()
    for kind, times in (+kinds).items():
        for name in needs(kind):
            total[name] += times
    return total


def read(machine: str, data: bytes) -> Iterator[tuple[int, str, tuple[str, ...]]]:
    """Each instruction's place in `data`, its text and what it needs."""
    if machine == "aarch64":
        for number, word in enumerate(_words(data)):
            yield number * WORD, _text(word), needs_of_word(word)
    else:
        decoder = Decoder(_BITS, data)
        for instruction in decoder:
            if not _ends_in_padding(decoder, data):
                yield instruction.ip, str(instruction), needs_of_code(instruction.code)


def _ends_in_padding(decoder: Decoder, data: bytes) -> bool:
    """Linkers fill up with zeros. Two are an instruction, so of an odd number one is left."""
    return decoder.last_error == DecoderError.NO_MORE_BYTES and data.endswith(b"\0")


@functools.cache
def needs_of_code(code: int) -> tuple[str, ...]:
    """What an instruction of iced's `code` needs. A feature that the table does not know keeps
    iced's name, in small letters."""
    if code in _EXCEPTIONS:
        return _EXCEPTIONS[code]
    instruction = Instruction()
    instruction.code = code  # type: ignore[assignment]  # iced's Code is int when it runs
    names = {_iced_names()[number] for number in instruction.cpuid_features()} - BASELINE
    return tuple(sorted(_ours().get(name, name.lower()) for name in names)) or ("x86_64",)


@functools.lru_cache(1 << 16)
def needs_of_word(word: int) -> tuple[str, ...]:
    text = _text(word)
    if not text:
        return (UNDECODED,)
    return tuple(name for name, begins in _patterns() if begins(text)) or ("aarch64",)


_CODE = attrgetter("code")


@functools.cache
def _iced_names() -> Mapping[int, str]:
    return {number: name for name, number in vars(CpuidFeature).items() if name.isupper()}


@functools.cache
def _ours() -> Mapping[str, str]:
    """iced's names of features to those of the table."""
    return {row.iced: row.name for row in features.load_features("x86_64").values() if row.iced}


def _words(data: bytes) -> memoryview[int]:
    return memoryview(data + bytes(-len(data) % WORD)).cast("I")


def _text(word: int) -> str:
    found = _capstone().disasm_lite(word.to_bytes(WORD, "little"), 0, 1)
    return next((f"{name} {operands}".strip() for _, _, name, operands in found), "")


@functools.cache
def _capstone() -> Any:  # noqa: ANN401  (capstone has no types)
    return capstone.Cs(capstone.CS_ARCH_ARM64, capstone.CS_MODE_LITTLE_ENDIAN)


@functools.cache
def _patterns() -> tuple[tuple[str, Any], ...]:
    rows = features.load_features("aarch64").values()
    return tuple((row.name, re.compile(row.capstone).match) for row in rows if row.capstone)
