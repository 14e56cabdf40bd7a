"""Find the CPU features that an instruction needs, by the names of features.toml.

On x86-64, iced-x86 reports the CPUID bits of every instruction. On aarch64, capstone disassembles
the instruction and patterns match its text: capstone 5 has no groups for features after Armv8.0.
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

from tfcore.cpus import features

UNDECODED = "undecoded"
"""Counted in place of a feature where the bytes are no instruction."""
DECODERS = {name: version(name) for name in ("iced-x86", "capstone")}

WORD = 4
"""Bytes of an aarch64 instruction."""
_BITS = 64

# Every x86-64 CPU has these (psABI baseline) or runs them as a NOP (PAUSE and ENDBR64).
BASELINE = frozenset(
    (
        *("INTEL8086", "INTEL186", "INTEL286", "INTEL386", "INTEL486", "X64"),
        *("FPU", "FPU287", "FPU387", "CMOV", "CX8", "CPUID", "TSC", "SYSCALL", "FXSR", "CLFSH"),
        *("MMX", "SSE", "SSE2", "MULTIBYTENOP", "PAUSE", "CET_IBT"),
    )
)
"""iced's names of the features that count as x86_64."""

# Instructions that need more or fewer features than iced reports.
_EXCEPTIONS: Mapping[int, tuple[str, ...]] = {
    Code.INVALID: (UNDECODED,),
    Code.LAHF: ("lahf_lm",),
    Code.SAHF: ("lahf_lm",),
    # Compilers write BSF as REP BSF, which decodes as TZCNT: it does not prove that BMI1 is needed.
    Code.TZCNT_R16_RM16: ("x86_64",),
    Code.TZCNT_R32_RM32: ("x86_64",),
    Code.TZCNT_R64_RM64: ("x86_64",),
}


def count_features(machine: str, functions: Iterable[bytes]) -> Counter[str]:
    """Count the instructions that need each feature.

    An instruction that needs several features counts for each. One that every CPU has counts
    for `machine`.
    """
    kinds: Counter[int] = Counter()
    needs = list_word_features if machine == "aarch64" else list_code_features
    for data in functions:
        if machine == "aarch64":
            kinds.update(_split_words(data))
            continue
        decoder = Decoder(_BITS, data)
        kinds.update(map(_CODE, decoder))
        kinds[Code.INVALID] -= _has_padding(decoder, data)
    total: Counter[str] = Counter()
    for kind, times in (+kinds).items():
        for name in needs(kind):
            total[name] += times
    return total


def decode(machine: str, data: bytes) -> Iterator[tuple[int, str, tuple[str, ...]]]:
    """Yield each instruction's offset in `data`, its text and the features that it needs."""
    if machine == "aarch64":
        for number, word in enumerate(_split_words(data)):
            yield number * WORD, _disassemble(word), list_word_features(word)
    else:
        decoder = Decoder(_BITS, data)
        for instruction in decoder:
            if not _has_padding(decoder, data):
                yield instruction.ip, str(instruction), list_code_features(instruction.code)


def _has_padding(decoder: Decoder, data: bytes) -> bool:
    """Return whether the data ends in half an instruction of padding.

    Linkers pad with zeros; two of them are an instruction, so an odd number leaves one.
    """
    return decoder.last_error == DecoderError.NO_MORE_BYTES and data.endswith(b"\0")


@functools.cache
def list_code_features(code: int) -> tuple[str, ...]:
    """Return the features that an instruction with iced's `code` needs.

    A feature that the table does not know keeps iced's name, in lower case.
    """
    if code in _EXCEPTIONS:
        return _EXCEPTIONS[code]
    instruction = Instruction()
    instruction.code = code  # type: ignore[assignment]  # iced's Code is int when it runs
    names = {_list_iced_names()[number] for number in instruction.cpuid_features()} - BASELINE
    return tuple(sorted(_map_iced_features().get(name, name.lower()) for name in names)) or (
        "x86_64",
    )


@functools.lru_cache(1 << 16)
def list_word_features(word: int) -> tuple[str, ...]:
    text = _disassemble(word)
    if not text:
        return (UNDECODED,)
    return tuple(name for name, begins in _compile_patterns() if begins(text)) or ("aarch64",)


_CODE = attrgetter("code")


@functools.cache
def _list_iced_names() -> Mapping[int, str]:
    return {number: name for name, number in vars(CpuidFeature).items() if name.isupper()}


@functools.cache
def _map_iced_features() -> Mapping[str, str]:
    """Return iced's feature names → the table's."""
    return {row.iced: row.name for row in features.load_features("x86_64").values() if row.iced}


def _split_words(data: bytes) -> memoryview[int]:
    return memoryview(data + bytes(-len(data) % WORD)).cast("I")


def _disassemble(word: int) -> str:
    instructions = _create_disassembler().disasm_lite(word.to_bytes(WORD, "little"), 0, 1)
    return next((f"{name} {operands}".strip() for _, _, name, operands in instructions), "")


@functools.cache
def _create_disassembler() -> Any:  # noqa: ANN401  (capstone has no types)
    return capstone.Cs(capstone.CS_ARCH_ARM64, capstone.CS_MODE_LITTLE_ENDIAN)


@functools.cache
def _compile_patterns() -> tuple[tuple[str, Any], ...]:
    rows = features.load_features("aarch64").values()
    return tuple((row.name, re.compile(row.capstone).match) for row in rows if row.capstone)
