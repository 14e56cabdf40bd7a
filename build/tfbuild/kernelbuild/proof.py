"""Compares a wheel with its rebuild from its tuned.json, and reports what that proves.

The same bytes prove that the wheel comes from its sources, compiler and flags. If another compiler
made the rebuild, only what does not depend on the compiler is compared.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from tfbuild.binaries import elf
from tfbuild.kernelbuild.origin import Origin
from tfbuild.packing import tuned
from tfbuild.packing.file_differences import FileDifference, compare_files
from tfbuild.packing.tuned import KernelLibrary, Tuned
from tfbuild.packing.wheel import extract, read_member
from tfbuild.planning import dispatcher
from tfbuild.upstream.download import hash_file
from tfcore import console
from tfcore.errors import AuditError, RebuildError
from tfcore.records import convert_record, find_differences

SCHEMA = 1
_OP = re.compile(r"[A-Z]\w*(>\w+)*", re.ASCII)
_TYPES = re.compile(r"(\w+=[\d|]+(,\w+=[\d|]+)*)?(;.+)?", re.ASCII)
# The fields of tuned.json that depend on the compiler or on Bazel.
_MADE = frozenset(
    {
        *("compiler", "bazel", "key", "plan_key", "flags", "required_features"),
        *("size", "sha256", "floors", "census"),
    }
)
_TRUSTED = (
    "not tested again: the conformance test results in tuned.json (invoke admit runs the kernels)",
    "trusted: this user's cache of earlier builds (TENSORWRIGHT_CACHE=/an/empty/folder avoids it)",
)


class Proof(StrEnum):
    SAME = "the same bytes"
    OTHER = "other bytes"
    NONE = "not proven"


@dataclass(frozen=True, kw_only=True, slots=True)
class StepCounts:
    """The number of compiles and links run for a target, and of results from the disk cache.

    Results that neither counts were there already.
    """

    target: str
    run: int
    cached: int


@dataclass(frozen=True, kw_only=True, slots=True)
class RebuildResult:
    """The result of rebuilding a wheel.

    `compiler` and `bazel` are empty if it was not rebuilt. `reasons` are why nothing is
    proven; `findings` describe the difference in each file that differs, `agreeing` the parts
    that agree although the compiler differs.
    """

    schema: int = SCHEMA
    wheel: str
    proof: Proof
    compiler: str = ""
    bazel: str = ""
    steps: tuple[StepCounts, ...] = ()
    reasons: tuple[str, ...] = ()
    findings: tuple[str, ...] = ()
    agreeing: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class WheelPair:
    """A wheel and its rebuild (`fresh`).

    `papers` are the files in dist-info that follow from `origin`'s tuned.json; libraries are
    unpacked in `folder`.
    """

    wheel: Path
    fresh: Path
    origin: Origin
    made: Tuned
    papers: Mapping[str, bytes]
    folder: Path

    def extract_library(self, name: str) -> tuple[Path, Path]:
        """Extract a library from both wheels, and return the two paths."""
        tops = (self.folder / "there", self.folder / "here")
        for wheel, top in zip((self.wheel, self.fresh), tops, strict=True):
            extract(wheel, (name,), top / Path(name).name)
        original, rebuilt = (top / Path(name).name / name for top in tops)
        return original, rebuilt


def compare_wheels(pair: WheelPair, steps: tuple[StepCounts, ...]) -> RebuildResult:
    """Compare a wheel with its rebuild.

    The result is equal bytes, differences, or the reasons why nothing is proven. Raises WheelError
    for what cannot be read.
    """
    proof, reasons, findings, agreeing = Proof.SAME, list[str](), list[str](), list[str]()
    if (pair.wheel.name, hash_file(pair.wheel)) != (pair.fresh.name, hash_file(pair.fresh)):
        changed_files = compare_files(pair.wheel, pair.fresh)
        unknown, unlike = (
            list(_explain_unknown_plans(pair.origin)),
            list(_find_tool_differences(pair, changed_files)),
        )
        reasons = [*unknown, *unlike] or ([] if changed_files else [_explain_packing(pair)])
        agreed = {
            difference.file: _describe_agreement(pair, difference) if unlike and not unknown else ""
            for difference in changed_files
        }
        findings = [
            _describe_difference(pair, difference)
            for difference in changed_files
            if not agreed[difference.file]
        ]
        agreeing = [text for text in agreed.values() if text]
        agreeing += ["all other files are the same, byte for byte"] * bool(agreeing)
        doubted = unknown or (unlike and not findings) or not changed_files
        proof = Proof.NONE if doubted else Proof.OTHER
    return RebuildResult(
        wheel=pair.wheel.name,
        proof=proof,
        compiler=pair.made.compiler,
        bazel=pair.made.bazel,
        steps=steps,
        reasons=tuple(reasons),
        findings=tuple(findings),
        agreeing=tuple(agreeing),
    )


def _explain_packing(pair: WheelPair) -> str:
    if pair.wheel.name != pair.fresh.name:
        return f"its files are the same, but the rebuild is named {pair.fresh.name}"
    return "its files are the same, byte for byte, but compressed differently, as by another zlib"


def _explain_unknown_plans(origin: Origin) -> Iterator[str]:
    if origin.unknown:
        yield (
            f"this version of Tensorwright makes another plan for {' and '.join(origin.unknown)} "
            "than tuned.json has: another version built the wheel, or tuned.json was changed"
        )


def _find_tool_differences(pair: WheelPair, differences: Sequence[FileDifference]) -> Iterator[str]:
    """Yield how the tools here differ from those that made the wheel.

    Sources are its record, and the programs that its libraries name.
    """
    recorded, rebuilt = pair.origin.facts, pair.made
    if recorded.compiler != rebuilt.compiler:
        yield f"built by {recorded.compiler}, rebuilt by {rebuilt.compiler}"
    if recorded.bazel != rebuilt.bazel:
        yield f"built with Bazel {recorded.bazel}, rebuilt with Bazel {rebuilt.bazel}"
    for difference in differences:
        if difference.file.endswith(".so") and difference.both:
            original, current = (
                set(elf.read_producers(path)) for path in pair.extract_library(difference.file)
            )
            if original != current:
                only_original, only_current = (
                    "; ".join(sorted(names)) for names in (original - current, current - original)
                )
                name = Path(difference.file).name
                yield (
                    f"{name} records {only_original or 'no other program'}, in the rebuild "
                    f"{only_current or 'no other program'}"
                )


# ---- if the compiler is the same ----


def _describe_difference(pair: WheelPair, difference: FileDifference) -> str:
    """Describe in one line how a file differs."""
    if not difference.both:
        return (
            f"{difference.file} "
            f"{'is not in the rebuild' if difference.other is None else 'is missing'}"
        )
    sizes = f"{difference.size:,} bytes" + (
        f", rebuilt {difference.other:,}" if difference.size != difference.other else ""
    )
    text = f"{difference.file} ({sizes}) differs from byte {difference.at:,} on"
    if difference.file.endswith(".so"):
        section = elf.find_section(pair.extract_library(difference.file)[1], difference.at or 0)
        return f"{text}, in {section}" if section else text
    if difference.file.endswith(f".dist-info/{tuned.FILE}"):
        fields = list(_list_field_differences(pair))
        return f"{text}: {'; '.join(fields)}" if fields else text
    return text


def _list_field_differences(pair: WheelPair) -> Iterator[str]:
    """Yield the fields of tuned.json that differ, as `name (there, now here)`."""
    recorded, rebuilt = convert_record(pair.origin.facts), convert_record(pair.made)
    theirs, ours = recorded.pop("libraries"), rebuilt.pop("libraries")
    yield from find_differences(recorded, rebuilt)
    if [entry["name"] for entry in theirs] != [entry["name"] for entry in ours]:
        yield "the order of its libraries"
        return
    for their_record, our_record in zip(theirs, ours, strict=True):
        for entry in find_differences(their_record, our_record):
            yield f"{our_record['name']}: {entry}"


# ---- if the compiler differs ----


def _describe_agreement(pair: WheelPair, difference: FileDifference) -> str:
    """Describe what agrees in a file that another compiler made; "" if a required part differs."""
    if not difference.both:
        return ""
    folder, _, name = difference.file.rpartition(".dist-info/")
    if folder:
        return _describe_metadata_agreement(pair, name, difference.file)
    original, rebuilt = (
        pair.extract_library(difference.file) if difference.file.endswith(".so") else (None, None)
    )
    if original is None or rebuilt is None:
        return ""
    if original.name == dispatcher.LIBRARY:
        same = elf.read_constants(original) == elf.read_constants(rebuilt)
        return "the dispatcher has the same table of targets" if same else ""
    recorded_library = next(
        (lib for lib in pair.origin.facts.libraries if lib.file == difference.file), None
    )
    rebuilt_library = next(
        (lib for lib in pair.made.libraries if lib.file == difference.file), None
    )
    return (
        _describe_library_agreement(recorded_library, rebuilt_library, original, rebuilt)
        if recorded_library and rebuilt_library
        else ""
    )


def _describe_metadata_agreement(pair: WheelPair, name: str, file: str) -> str:
    if name == "RECORD":
        return "RECORD is correct"
    if read_member(pair.wheel, file) != pair.papers.get(name):
        return ""
    if name != tuned.FILE:
        return f"{name} follows from {tuned.FILE}"
    unexpected = [
        field for field in _list_field_differences(pair) if _parse_field_name(field) not in _MADE
    ]
    return "" if unexpected else f"{name} differs only in what depends on the compiler"


def _parse_field_name(field: str) -> str:
    """Return `census` of `haswell: census.avx2 (3, now 4)`."""
    return field.rpartition(": ")[2].partition(" ")[0].partition(".")[0]


def _describe_library_agreement(
    theirs: KernelLibrary, ours: KernelLibrary, their_path: Path, our_path: Path
) -> str:
    expected = {(kernel.op, kernel.types) for kernel in theirs.registrations}
    if expected != _read_registrations(their_path) or expected != _read_registrations(our_path):
        return ""
    kernels = f"{theirs.name} registers the same {console.format_count(len(expected), 'kernel')}"
    only_original, only_rebuilt = (
        {*theirs.census} - {*ours.census},
        {*ours.census} - {*theirs.census},
    )
    if not only_original and not only_rebuilt:
        return f"{kernels} and uses instructions of the same features"
    lists = (", ".join(sorted(names)) or "none" for names in (only_original, only_rebuilt))
    return "{}; features only in the wheel: {}; only in the rebuild: {}".format(kernels, *lists)


def _read_registrations(library: Path) -> set[tuple[str, str]]:
    """Read the rows of the library's table of registrations (native/selection.cc)."""
    pairs = elf.find_text_pairs(library)
    return {(op, types) for op, types in pairs if _OP.fullmatch(op) and _TYPES.fullmatch(types)}


# ---- as text ----


def describe(result: RebuildResult) -> str:
    """Render the result as text, a line for each finding."""
    lines = [_describe_proof(result)]
    lines += [f"  {entry}" for entry in (*result.reasons, *result.findings)]
    lines += [f"  agrees: {entry}" for entry in result.agreeing]
    lines += [f"  {entry.target}: {_describe_steps(entry)}" for entry in result.steps]
    if result.compiler:
        lines += [f"  {entry}" for entry in _TRUSTED]
    return "\n".join([*lines, ""])


def _describe_proof(result: RebuildResult) -> str:
    tools = f"{result.compiler} and Bazel {result.bazel}"
    texts = {
        Proof.SAME: f"the same bytes with {tools}",
        Proof.OTHER: f"other bytes with {tools}",
        Proof.NONE: "not proven",
    }
    return f"rebuild: {texts[result.proof]}"


def _describe_steps(steps: StepCounts) -> str:
    ran = console.format_count(steps.run, "compile or link", "compiles and links")
    cached = console.format_count(steps.cached, "result")
    if not steps.run and not steps.cached:
        return "nothing was compiled: an earlier build of this user left all results"
    return f"{ran} run now, {cached} from the disk cache"


def require_proof(result: RebuildResult) -> None:
    """Raise AuditError for other bytes, RebuildError if nothing is proven."""
    if result.proof is Proof.OTHER:
        raise AuditError(
            f"{result.wheel} differs from its rebuild: {result.findings[0]}",
            hint="Do not publish it; build it again",
        )
    if result.proof is Proof.NONE:
        raise RebuildError(f"the rebuild proves nothing about {result.wheel}: {result.reasons[0]}")
