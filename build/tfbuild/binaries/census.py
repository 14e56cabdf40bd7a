"""The instructions of a shared library, counted by the CPU feature that each needs.

Decoding starts anew at each function, so that a table between two of them, as hand-written
assembler has, spoils nothing beyond the next one; and a library that is cut at functions has the
census of its pieces. Data is counted as the instructions that it looks like, or as UNDECODED.
Compilers put none among their code.
"""

from __future__ import annotations

import bisect
import contextlib
import itertools
import multiprocessing
import signal
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import TypeVar

from tfbuild import console
from tfbuild.binaries import elf, instructions
from tfbuild.cpus import features
from tfbuild.cpus.cpu import read_vcpus
from tfbuild.errors import CommandError

_PIECE = 4 << 20  # bytes of code that a process takes at a time
_ALONE = 4 * _PIECE  # less is counted sooner than processes start

Found = TypeVar("Found")


@dataclass(frozen=True, kw_only=True, slots=True)
class Piece:
    """Code of a library that can be counted by itself: whole functions.

    `offset` is in the file; `cuts`, counted from there, are where decoding starts anew.
    """

    path: Path
    machine: str
    offset: int
    size: int
    cuts: tuple[int, ...]

    def functions(self) -> Iterator[tuple[int, bytes]]:
        """The bytes of each and where in the file they begin."""
        with self.path.open("rb") as file:
            file.seek(self.offset)
            data = file.read(self.size)
        for begin, end in itertools.pairwise((0, *self.cuts, self.size)):
            yield self.offset + begin, data[begin:end]


@dataclass(frozen=True, kw_only=True, slots=True)
class InstructionUse:
    """An instruction that needs `feature`. `place` is section and offset, as objdump counts them;
    `function` is empty in a stripped library."""

    feature: str
    instruction: str
    place: str
    function: str

    def __str__(self) -> str:
        where = f"{self.function} ({self.place})" if self.function else self.place
        return f"{self.instruction} at {where}"


def census(path: Path) -> Mapping[str, int]:
    """How many instructions of a library need each feature, by the names of features.toml and in
    its order; an instruction that needs several counts for each.

    First comes the machine's own name, x86_64 or aarch64: instructions that every CPU of it has.
    Last come features that the table does not know, by iced's names in small letters, and
    instructions.UNDECODED. Raises WheelError for what is no whole library of these machines.
    """
    code = elf.code(path)
    total: Counter[str] = Counter()
    for found in _counted(pieces(path, code)):
        total.update(found)
    known = (code.machine, *features.load_features(code.machine))
    others = sorted(total.keys() - {*known, instructions.UNDECODED})
    return {name: total[name] for name in (*known, *others, instructions.UNDECODED) if total[name]}


def uses(path: Path, wanted: Collection[str], limit: int) -> tuple[InstructionUse, ...]:
    """The first instructions of a library that need a feature of `wanted`, one of each function."""
    found: list[InstructionUse] = []
    code = elf.code(path)
    functions = (each for piece in pieces(path, code) for each in piece.functions())
    for begin, data in functions:
        read = instructions.read(code.machine, data)
        first = next((each for each in read if not set(wanted).isdisjoint(each[2])), None)
        if first is None:
            continue
        place, text, needs = first
        section = code.section_at(begin)
        offset = begin + place - section.offset
        use = InstructionUse(
            feature=min(set(needs).intersection(wanted)),
            instruction=text,
            place=f"{section.name}+{offset:#x}",
            function=elf.function_at(path, section.address + offset),
        )
        found.append(use)
        if len(found) == limit:
            break
    return tuple(found)


def unexpected(path: Path, allowed: Collection[str]) -> Mapping[str, Mapping[str, int]]:
    """How many instructions of an x86-64 library need each feature beyond `allowed`, by function.

    Functions have the names of symbols, as the linker has them (mangled); what no symbol names is
    counted under the empty name. Data behind a function counts as its own. Raises WheelError.
    """
    code = elf.code(path)
    known = frozenset((code.machine, *allowed))
    found: Counter[tuple[int, str]] = Counter()
    for each in _from_each(pieces(path, code), partial(count_unexpected, known=known)):
        found.update(each)
    addresses: dict[int, int] = {}
    for place, _ in found:
        section = code.section_at(place)
        addresses[place] = place - section.offset + section.address
    names = elf.symbols_at(path, addresses.values())
    by_name: dict[str, Counter[str]] = {}
    for (place, feature), times in found.items():
        by_name.setdefault(names[addresses[place]], Counter())[feature] += times
    return by_name


def pieces(path: Path, code: elf.Code, size: int = _PIECE) -> tuple[Piece, ...]:
    """A library's code in pieces of about `size` bytes.

    They end where a function does. Instructions of aarch64 have one length, so there they end
    anywhere.
    """
    found: list[Piece] = []
    for section in code.sections:
        begin, end = section.offset, section.offset + section.size
        first, last = bisect.bisect(code.starts, begin), bisect.bisect_left(code.starts, end)
        starts: Sequence[int] = code.starts[first:last]
        if code.machine == "aarch64":
            step = max(size - size % instructions.WORD, instructions.WORD)
            starts = range(begin + step, end, step)
        cuts: list[int] = []
        for start in (*starts, end):
            if start < end and start - begin < size:
                cuts.append(start - begin)
            elif start > begin:
                piece = Piece(
                    path=path,
                    machine=code.machine,
                    offset=begin,
                    size=start - begin,
                    cuts=tuple(cuts),
                )
                found.append(piece)
                begin, cuts = start, []
    return tuple(found)


def count(piece: Piece) -> Counter[str]:
    return instructions.tally(piece.machine, (data for _, data in piece.functions()))


def count_unexpected(piece: Piece, known: frozenset[str]) -> Counter[tuple[int, str]]:
    """How many instructions need each feature that is not `known`, by where in the file their
    function begins."""
    found: Counter[tuple[int, str]] = Counter()
    for begin, data in piece.functions():
        for name, times in instructions.tally(piece.machine, (data,)).items():
            if name not in known:
                found[begin, name] += times
    return found


def _counted(parts: Sequence[Piece]) -> Iterator[Counter[str]]:
    return _from_each(parts, count)


def _from_each(
    parts: Sequence[Piece], job: Callable[[Piece], Counter[Found]]
) -> Iterator[Counter[Found]]:
    """What `job` finds in each piece as it comes, from as many processes as there are CPUs."""
    total = sum(piece.size for piece in parts)
    if total < _ALONE:
        yield from map(job, parts)
        return
    name = parts[0].path.name
    with console.track_progress("MB", total >> 20) as progress:
        done = 0
        try:
            for size, found in _from_processes(parts, job, read_vcpus().usable):
                done += size
                progress.advance(done >> 20, detail=name)
                yield found
        except (EOFError, OSError) as error:
            raise CommandError(
                f"a process that counted the instructions of {name} was ended",
                hint="Run the same command again, with more memory free",
            ) from error


def _from_processes(
    parts: Sequence[Piece], job: Callable[[Piece], Counter[Found]], number: int
) -> Iterator[tuple[int, Counter[Found]]]:
    """Size of each piece and what was found. Raises EOFError or OSError when a process ends
    early."""
    context = multiprocessing.get_context("spawn")
    with contextlib.ExitStack() as stack:
        ends: list[Connection] = []
        for share in (parts[first::number] for first in range(number)):
            end, theirs = context.Pipe(duplex=False)
            stack.enter_context(end)
            process = context.Process(target=_do_share, args=(share, job, theirs), daemon=True)
            with theirs, _ctrl_c_held():
                process.start()
            stack.callback(process.join)
            stack.callback(process.terminate)
            ends.append(end)
        while ends:
            for ready in wait(ends):
                assert isinstance(ready, Connection)  # noqa: S101  (what was waited for)
                answer = ready.recv()
                if answer is None:
                    ends.remove(ready)
                else:
                    yield answer


@contextlib.contextmanager
def _ctrl_c_held() -> Iterator[None]:
    """A process that is started in here never gets SIGINT: ending it is up to this one."""
    resource_tracker.ensure_running()  # when it starts, it lets SIGINT through again
    held = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, held)


def _do_share(
    share: Sequence[Piece], job: Callable[[Piece], Counter[Found]], end: Connection
) -> None:
    """What a process does: each piece's size and findings, then None. Ends when nobody listens."""
    with end, contextlib.suppress(BrokenPipeError):
        for piece in share:
            end.send((piece.size, job(piece)))
        end.send(None)
