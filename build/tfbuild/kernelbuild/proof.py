"""A wheel held against the one that was made again of what it says: what that proves.

The same bytes prove that the wheel is what its sources, compiler and flags make. Where another
compiler made the other one, what is left to say is what does not depend on it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from tfbuild import console
from tfbuild.binaries import elf
from tfbuild.errors import AuditError, RebuildError
from tfbuild.kernelbuild.origin import Origin
from tfbuild.packing import tuned
from tfbuild.packing.file_differences import FileDifference, compare_files
from tfbuild.packing.tuned import KernelLibrary, Tuned
from tfbuild.packing.wheel import extract, read_member
from tfbuild.planning import dispatcher
from tfbuild.records import convert_record, find_differences
from tfbuild.upstream.download import hash_file

SCHEMA = 1
_OP = re.compile(r"[A-Z]\w*(>\w+)*", re.ASCII)
_TYPES = re.compile(r"(\w+=[\d|]+(,\w+=[\d|]+)*)?(;.+)?", re.ASCII)
# The fields of tuned.json in which another compiler or Bazel may show.
_MADE = frozenset(
    {
        *("compiler", "bazel", "key", "plan_key", "flags", "required_features"),
        *("size", "sha256", "floors", "census"),
    }
)
_TRUSTED = (
    "what admission found is as tuned.json says it: invoke admit runs the kernels",
    "results of earlier builds are this user's: TENSORWRIGHT_CACHE=/an/empty/folder takes none",
)


class Proof(StrEnum):
    SAME = "the same bytes"
    OTHER = "other bytes"
    NONE = "not proven"


@dataclass(frozen=True, kw_only=True, slots=True)
class Steps:
    """How many compiles and links were run for a target, and how many results of earlier ones were
    taken from the disk cache; what is in neither was there."""

    target: str
    run: int
    cached: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Rebuilt:
    """What came of making a wheel again with `compiler` and `bazel`: both empty where it was not.

    `reasons` are why nothing is proven; `findings` say of each file that is not the same in what,
    `agreeing` what is the same all the same.
    """

    schema: int = SCHEMA
    wheel: str
    proof: Proof
    compiler: str = ""
    bazel: str = ""
    steps: tuple[Steps, ...] = ()
    reasons: tuple[str, ...] = ()
    findings: tuple[str, ...] = ()
    agreeing: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Pair:
    """A wheel, and the one that was made again (`fresh`). `papers` are what `origin`'s tuned.json
    makes of the files in dist-info; libraries are unpacked in `folder`."""

    wheel: Path
    fresh: Path
    origin: Origin
    made: Tuned
    papers: Mapping[str, bytes]
    folder: Path

    def files(self, name: str) -> tuple[Path, Path]:
        """The paths of a library of both wheels, unpacked."""
        tops = (self.folder / "there", self.folder / "here")
        for wheel, top in zip((self.wheel, self.fresh), tops, strict=True):
            extract(wheel, (name,), top / Path(name).name)
        there, here = (top / Path(name).name / name for top in tops)
        return there, here


def prove(pair: Pair, steps: tuple[Steps, ...]) -> Rebuilt:
    """What a pair of wheels proves: equal bytes, differences, or reasons why nothing is proven.
    Raises WheelError for what cannot be read."""
    proof, reasons, findings, agreeing = Proof.SAME, list[str](), list[str](), list[str]()
    if (pair.wheel.name, hash_file(pair.wheel)) != (pair.fresh.name, hash_file(pair.fresh)):
        found = compare_files(pair.wheel, pair.fresh)
        unknown, unlike = list(_unknown(pair.origin)), list(_unlike(pair, found))
        reasons = [*unknown, *unlike] or ([] if found else [_packed(pair)])
        agreed = {
            each.file: _agreement(pair, each) if unlike and not unknown else "" for each in found
        }
        findings = [_finding(pair, each) for each in found if not agreed[each.file]]
        agreeing = [what for what in agreed.values() if what]
        agreeing += ["all other files are the same, byte for byte"] * bool(agreeing)
        doubted = unknown or (unlike and not findings) or not found
        proof = Proof.NONE if doubted else Proof.OTHER
    return Rebuilt(
        wheel=pair.wheel.name,
        proof=proof,
        compiler=pair.made.compiler,
        bazel=pair.made.bazel,
        steps=steps,
        reasons=tuple(reasons),
        findings=tuple(findings),
        agreeing=tuple(agreeing),
    )


def _packed(pair: Pair) -> str:
    if pair.wheel.name != pair.fresh.name:
        return f"its files are the same, but it is called {pair.fresh.name}"
    return "its files are the same, byte for byte, but packed otherwise, as another zlib does it"


def _unknown(origin: Origin) -> Iterator[str]:
    if origin.unknown:
        yield (
            f"the plan of {' and '.join(origin.unknown)} in tuned.json is none of this version of "
            "Tensorwright: another one made it, or tuned.json was changed"
        )


def _unlike(pair: Pair, found: Sequence[FileDifference]) -> Iterator[str]:
    """What is other here than where the wheel was made: what it says, and what its libraries do."""
    said, made = pair.origin.facts, pair.made
    if said.compiler != made.compiler:
        yield f"made by {said.compiler}, here is {made.compiler}"
    if said.bazel != made.bazel:
        yield f"made with Bazel {said.bazel}, here is {made.bazel}"
    for each in found:
        if each.file.endswith(".so") and each.both:
            there, here = (set(elf.read_producers(path)) for path in pair.files(each.file))
            if there != here:
                more, less = ("; ".join(sorted(names)) for names in (there - here, here - there))
                name = Path(each.file).name
                yield f"{name} names {more or 'no other program'}, here {less or 'no other'}"


# ---- where the compiler is the same ----


def _finding(pair: Pair, each: FileDifference) -> str:
    """In what a file is not the same, as a line."""
    if not each.both:
        return f"{each.file} {'is not made here' if each.other is None else 'is missing'}"
    sizes = f"{each.size:,} bytes" + (f", here {each.other:,}" if each.size != each.other else "")
    what = f"{each.file} ({sizes}) differs from byte {each.at:,} on"
    if each.file.endswith(".so"):
        section = elf.find_section(pair.files(each.file)[1], each.at or 0)
        return f"{what}, in {section}" if section else what
    if each.file.endswith(f".dist-info/{tuned.FILE}"):
        fields = list(_fields(pair))
        return f"{what}: {'; '.join(fields)}" if fields else what
    return what


def _fields(pair: Pair) -> Iterator[str]:
    """The fields of tuned.json that are not the same, as `name (there, now here)`."""
    said, made = convert_record(pair.origin.facts), convert_record(pair.made)
    theirs, ours = said.pop("libraries"), made.pop("libraries")
    yield from find_differences(said, made)
    if [each["name"] for each in theirs] != [each["name"] for each in ours]:
        yield "the order of its libraries"
        return
    for one, other in zip(theirs, ours, strict=True):
        for each in find_differences(one, other):
            yield f"{other['name']}: {each}"


# ---- where it is another ----


def _agreement(pair: Pair, each: FileDifference) -> str:
    """What is the same in a file that another compiler made; empty where something is not that
    must be."""
    if not each.both:
        return ""
    folder, _, name = each.file.rpartition(".dist-info/")
    if folder:
        return _of_paper(pair, name, each.file)
    there, here = pair.files(each.file) if each.file.endswith(".so") else (None, None)
    if there is None or here is None:
        return ""
    if there.name == dispatcher.LIBRARY:
        same = elf.read_constants(there) == elf.read_constants(here)
        return "the dispatcher has the same table of targets" if same else ""
    said = next((lib for lib in pair.origin.facts.libraries if lib.file == each.file), None)
    ours = next((lib for lib in pair.made.libraries if lib.file == each.file), None)
    return _of_library(said, ours, there, here) if said and ours else ""


def _of_paper(pair: Pair, name: str, file: str) -> str:
    if name == "RECORD":
        return "RECORD is right"
    if read_member(pair.wheel, file) != pair.papers.get(name):
        return ""
    if name != tuned.FILE:
        return f"{name} follows from {tuned.FILE}"
    false = [each for each in _fields(pair) if _name_of(each) not in _MADE]
    return "" if false else f"{name} says nothing else that the compiler does not decide"


def _name_of(field: str) -> str:
    """`census` of `haswell: census.avx2 (3, now 4)`."""
    return field.rpartition(": ")[2].partition(" ")[0].partition(".")[0]


def _of_library(said: KernelLibrary, ours: KernelLibrary, there: Path, here: Path) -> str:
    wanted = {(each.op, each.types) for each in said.registrations}
    if wanted != _registered(there) or wanted != _registered(here):
        return ""
    kernels = f"{said.name} registers the same {console.format_count(len(wanted), 'kernel')}"
    more, less = {*said.census} - {*ours.census}, {*ours.census} - {*said.census}
    if not more and not less:
        return f"{kernels} and uses instructions of the same features"
    lists = (", ".join(sorted(names)) or "none" for names in (more, less))
    return "{}; of features it alone uses {}, the one made here {}".format(kernels, *lists)


def _registered(library: Path) -> set[tuple[str, str]]:
    """The rows of its table of what is registered (native/selection.cc)."""
    pairs = elf.find_text_pairs(library)
    return {(op, types) for op, types in pairs if _OP.fullmatch(op) and _TYPES.fullmatch(types)}


# ---- for a person ----


def describe(found: Rebuilt) -> str:
    """The proof as text: a line for each finding."""
    lines = [_verdict(found)]
    lines += [f"  {each}" for each in (*found.reasons, *found.findings)]
    lines += [f"  agrees: {each}" for each in found.agreeing]
    lines += [f"  {each.target}: {_work(each)}" for each in found.steps]
    if found.compiler:
        lines += [f"  {each}" for each in _TRUSTED]
    return "\n".join([*lines, ""])


def _verdict(found: Rebuilt) -> str:
    with_ = f"made again by {found.compiler} with Bazel {found.bazel}"
    said = {
        Proof.SAME: f"the same bytes, {with_}",
        Proof.OTHER: f"other bytes than those {with_}",
        Proof.NONE: "not proven",
    }
    return f"rebuild: {said[found.proof]}"


def _work(steps: Steps) -> str:
    ran = console.format_count(steps.run, "compile or link", "compiles and links")
    cached = console.format_count(steps.cached, "result")
    if not steps.run and not steps.cached:
        return "nothing was compiled, all was there from an earlier build of this user"
    return f"{ran} run now, {cached} from the disk cache"


def judge(found: Rebuilt) -> None:
    """Raises AuditError for other bytes, RebuildError where nothing is proven."""
    if found.proof is Proof.OTHER:
        raise AuditError(
            f"{found.wheel} is not what its plan makes: {found.findings[0]}",
            hint="Do not publish it; build it anew",
        )
    if found.proof is Proof.NONE:
        raise RebuildError(f"nothing is proven of {found.wheel}: {found.reasons[0]}")
