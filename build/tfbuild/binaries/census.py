"""Count the instructions of a shared library by the CPU feature that they need.

Decoding restarts at each function. So data between two functions, as in hand-written assembler,
affects no later function, and the census of a library is the sum of the censuses of its pieces.
Data among code is counted as the instructions that it resembles, or as UNDECODED. Compilers put no
data among code.
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

from tfbuild.binaries import elf, instructions
from tfcore import console
from tfcore.cpus import features
from tfcore.cpus.cpu import read_vcpus
from tfcore.errors import CommandError

_PIECE = 4 << 20  # bytes of code per task of a process
_ALONE = 4 * _PIECE  # below this size, one process is faster

Found = TypeVar("Found")


@dataclass(frozen=True, kw_only=True, slots=True)
class Piece:
    """A piece of a library's code that can be counted independently: whole functions.

    `offset` is in the file; `cuts`, relative to it, are the offsets at which decoding restarts.
    """

    path: Path
    machine: str
    offset: int
    size: int
    cuts: tuple[int, ...]

    def read_functions(self) -> Iterator[tuple[int, bytes]]:
        """Yield each function's offset in the file and its bytes."""
        with self.path.open("rb") as file:
            file.seek(self.offset)
            data = file.read(self.size)
        for begin, end in itertools.pairwise((0, *self.cuts, self.size)):
            yield self.offset + begin, data[begin:end]


@dataclass(frozen=True, kw_only=True, slots=True)
class InstructionUse:
    """An instruction that needs `feature`.

    `place` is its section and offset, as in objdump; `function` is empty in a stripped library.
    """

    feature: str
    instruction: str
    place: str
    function: str

    def __str__(self) -> str:
        where = f"{self.function} ({self.place})" if self.function else self.place
        return f"{self.instruction} at {where}"


def count_instructions(path: Path) -> Mapping[str, int]:
    """Count the instructions of a library that need each feature.

    The names and the order are those of features.toml; an instruction that needs several
    features counts for each. The first name is the machine's own, x86_64 or aarch64:
    instructions that every such CPU has. The last are features that the table does not know,
    by iced's names in lower case, and instructions.UNDECODED.

    Raises WheelError if the file is not a complete library for these machines.
    """
    code = elf.read_code(path)
    total: Counter[str] = Counter()
    for counts in _count_pieces(split_code(path, code)):
        total.update(counts)
    known = (code.machine, *features.load_features(code.machine))
    other_features = sorted(total.keys() - {*known, instructions.UNDECODED})
    return {
        name: total[name]
        for name in (*known, *other_features, instructions.UNDECODED)
        if total[name]
    }


def find_uses(path: Path, feature_names: Collection[str], limit: int) -> tuple[InstructionUse, ...]:
    """Find a library's first instructions that need one of the features, one per function."""
    matches: list[InstructionUse] = []
    code = elf.read_code(path)
    functions = (
        function for piece in split_code(path, code) for function in piece.read_functions()
    )
    for begin, data in functions:
        decoded = instructions.decode(code.machine, data)
        first = next(
            (
                instruction
                for instruction in decoded
                if not set(feature_names).isdisjoint(instruction[2])
            ),
            None,
        )
        if first is None:
            continue
        place, text, needs = first
        section = code.find_section(begin)
        offset = begin + place - section.offset
        use = InstructionUse(
            feature=min(set(needs).intersection(feature_names)),
            instruction=text,
            place=f"{section.name}+{offset:#x}",
            function=elf.find_function(path, section.address + offset),
        )
        matches.append(use)
        if len(matches) == limit:
            break
    return tuple(matches)


def count_by_function(path: Path, allowed: Collection[str]) -> Mapping[str, Mapping[str, int]]:
    """Count an x86-64 library's instructions that need features beyond `allowed`, by function.

    Functions have the symbol names of the linker (mangled); code without a symbol is counted
    under the empty name. Data behind a function counts as part of it.

    Raises WheelError.
    """
    code = elf.read_code(path)
    known = frozenset((code.machine, *allowed))
    total: Counter[tuple[int, str]] = Counter()
    for counts in _map_pieces(split_code(path, code), partial(count_unexpected, known=known)):
        total.update(counts)
    addresses: dict[int, int] = {}
    for place, _ in total:
        section = code.find_section(place)
        addresses[place] = place - section.offset + section.address
    names = elf.find_symbols(path, addresses.values())
    by_name: dict[str, Counter[str]] = {}
    for (place, feature), times in total.items():
        by_name.setdefault(names[addresses[place]], Counter())[feature] += times
    return by_name


def split_code(path: Path, code: elf.Code, size: int = _PIECE) -> tuple[Piece, ...]:
    """Split a library's code into pieces of about `size` bytes.

    They end where a function does; on aarch64, whose instructions have one length, they end
    anywhere.
    """
    result: list[Piece] = []
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
                result.append(piece)
                begin, cuts = start, []
    return tuple(result)


def count_piece(piece: Piece) -> Counter[str]:
    return instructions.count_features(piece.machine, (data for _, data in piece.read_functions()))


def count_unexpected(piece: Piece, known: frozenset[str]) -> Counter[tuple[int, str]]:
    """Count the instructions that need each feature not in `known`, by the function's offset in
    the file.
    """
    counts: Counter[tuple[int, str]] = Counter()
    for begin, data in piece.read_functions():
        for name, times in instructions.count_features(piece.machine, (data,)).items():
            if name not in known:
                counts[begin, name] += times
    return counts


def _count_pieces(parts: Sequence[Piece]) -> Iterator[Counter[str]]:
    return _map_pieces(parts, count_piece)


def _map_pieces(
    parts: Sequence[Piece], job: Callable[[Piece], Counter[Found]]
) -> Iterator[Counter[Found]]:
    """Yield the result of `job` for each piece as it arrives, from one process per CPU.

    Raises CommandError if a process ends early.
    """
    total = sum(piece.size for piece in parts)
    if total < _ALONE:
        yield from map(job, parts)
        return
    name = parts[0].path.name
    with console.track_progress("MB", total >> 20) as progress:
        done = 0
        try:
            for size, counts in _map_in_processes(parts, job, read_vcpus().usable):
                done += size
                progress.advance(done >> 20, detail=name)
                yield counts
        except (EOFError, OSError) as error:
            raise CommandError(
                f"a process that counts the instructions of {name} ended early",
                hint="Free some memory, then run the same command again",
            ) from error


def _map_in_processes(
    parts: Sequence[Piece], job: Callable[[Piece], Counter[Found]], number: int
) -> Iterator[tuple[int, Counter[Found]]]:
    """Yield the size and the result of each piece.

    Raises EOFError or OSError if a process ends early.
    """
    context = multiprocessing.get_context("spawn")
    with contextlib.ExitStack() as stack:
        receivers: list[Connection] = []
        for share in (parts[first::number] for first in range(number)):
            receiver, sender = context.Pipe(duplex=False)
            stack.enter_context(receiver)
            process = context.Process(target=_process_share, args=(share, job, sender), daemon=True)
            with sender, _block_sigint():
                process.start()
            stack.callback(process.join)
            stack.callback(process.terminate)
            receivers.append(receiver)
        while receivers:
            for ready in wait(receivers):
                assert isinstance(ready, Connection)  # noqa: S101  (all are connections)
                answer = ready.recv()
                if answer is None:
                    receivers.remove(ready)
                else:
                    yield answer


@contextlib.contextmanager
def _block_sigint() -> Iterator[None]:
    """Block SIGINT in processes started within this context: this process ends them."""
    resource_tracker.ensure_running()  # its start would unblock SIGINT
    held = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, held)


def _process_share(
    share: Sequence[Piece], job: Callable[[Piece], Counter[Found]], end: Connection
) -> None:
    """Send the size and the result of each piece, then None; stop if the receiver has closed."""
    with end, contextlib.suppress(BrokenPipeError):
        for piece in share:
            end.send((piece.size, job(piece)))
        end.send(None)
