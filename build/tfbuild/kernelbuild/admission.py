"""What a kernel unit must show before it goes into the tuned library.

A unit that fails stays stock, with the reason. The static checks read the library; the dynamic ones
run in a real TensorFlow (tfbuild.probe).
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from tfbuild import console, settings
from tfbuild.binaries import elf
from tfbuild.cpus.cpu import MASK
from tfbuild.errors import CommandError, KernelError
from tfbuild.measured.kernels import TypedOp
from tfbuild.records import save
from tfbuild.run import run
from tfbuild.tools.environment import Environment
from tfbuild.upstream.kernels import FOLDER

LOST = "the probe ended before it was looked at"
_LOG = "probe.log"
_PACKAGE = Path(__file__).resolve().parents[1]
_PROBE_S = 3600.0
_PROBE_UNIT_S = 60.0
_CHILD_S = 600
_EMULATED = 12
"""How many times these limits an emulator has: aarch64's hot kernels took forty minutes under QEMU
on a busy machine."""
_TAIL_LINES = 8
_BY_END = {
    "SIGKILL": "Linux ends a process so when memory runs out. Free some, or let fewer CPUs work, "
    "each of which takes memory (taskset --cpu-list 0 invoke …)",
    "SIGILL": "An instruction was run that this CPU lacks: build with --arch native",
}
"""What to do, by a word of how the probe ended."""
JUDGED = "judged: "
"""The probe's word, before a unit's name, that it is done with one."""

# Objects that both libraries may have their own copy of, and why that is harmless.
HARMLESS_STATE = {
    r"Eigen::internal::manage_caching_sizes": "cache sizes: read from the CPU by either copy",
    r"guard variable for ": "the flag of an object that is listed itself",
    r"absl::.*::.*[pP]olic(y|ies)": "tables of constants in writable sections",
    r"::vmodule_activated$": "whether a VLOG is on: read from the environment by either copy",
    r"functor::Softplus<.*::threshold$": "a constant of the type, computed alike by either copy",
    r"std::ios_base::Init|std::__ioinit": "reference counted by the C++ runtime",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class RefusedKernel:
    """A kernel that stays stock though its unit is admitted: nothing was found to try it with, or
    it lies too far from the stock one."""

    op: str
    types: str
    reason: str


@dataclass(frozen=True, kw_only=True, slots=True)
class UnitVerdict:
    """Whether a unit is admitted; `reason` is empty if it is.

    `ulps` is the largest distance from the stock kernel per op, over `cases` cases of all
    `registrations`. `refused` are the other kernels of the unit, which stay stock. `state` are
    writable objects that the stock libraries have too.
    """

    unit: str
    reason: str = ""
    registrations: tuple[TypedOp, ...] = ()
    refused: tuple[RefusedKernel, ...] = ()
    cases: int = 0
    ulps: Mapping[str, float] = field(default_factory=dict)
    state: tuple[str, ...] = ()

    @property
    def admitted(self) -> bool:
        return not self.reason

    @property
    def lost(self) -> bool:
        """Whether it is no verdict: the probe ended, and that says nothing of the unit."""
        return self.reason.startswith(LOST)


def admit(
    libraries: Mapping[str, Path],
    *,
    staged: Path,
    stock_libraries: Iterable[Path],
    copts: tuple[str, ...],
    environment: Environment,
    folder: Path,
    compiled: Iterable[TypedOp] | None = None,
) -> tuple[UnitVerdict, ...]:
    """A verdict on each unit's library. Where only some kernels of the sources were `compiled`, a
    library has to register those of its ops; else all that stock has of them.

    Raises KernelError when the stock wheel was compiled with another ABI than the kernels.
    """
    if not libraries:
        return ()
    looked = _looked_at(libraries, staged, stock_libraries)
    rest = {unit: path for unit, path in libraries.items() if looked[unit].admitted}
    claims = None if compiled is None else _claims(rest, tuple(compiled))
    facts, rows = probe(rest, environment, folder, claims)
    _check_abi(facts, copts)
    late = {unit: verdict_of(unit, rows[unit], looked[unit].state) for unit in rest}
    return tuple((looked | late)[unit] for unit in libraries)


def _claims(
    libraries: Mapping[str, Path], compiled: tuple[TypedOp, ...]
) -> dict[str, tuple[TypedOp, ...]]:
    """Of the kernels that were compiled those of each library's ops."""
    ops = {unit: {op for op, _ in registered_by(path)} for unit, path in libraries.items()}
    return {unit: tuple(each for each in compiled if each.op in ops[unit]) for unit in libraries}


def registered_by(library: Path) -> Counter[tuple[str, str]]:
    """Op and kernel class of every registration in a unit's library."""
    return Counter((op, kernel) for op, kernel in elf.read_texts(library, _COUNTER, 2))


def vouched(
    verdicts: Iterable[UnitVerdict],
    own: Mapping[str, Path],
    ran: Mapping[str, Path],
    *,
    staged: Path,
    stock_libraries: Iterable[Path],
) -> tuple[UnitVerdict, ...]:
    """The verdicts on units of which other code of the same sources `ran`, for their `own`
    libraries, which this CPU cannot run: what shows without running is looked at in these."""
    judged = tuple(verdicts)
    good = {each.unit: own[each.unit] for each in judged if each.admitted and each.unit in own}
    looked = _looked_at(good, staged, stock_libraries)
    for unit, library in good.items():
        if looked[unit].admitted and (reason := difference(library, ran[unit])):
            looked[unit] = UnitVerdict(unit=unit, reason=reason, state=looked[unit].state)
    return tuple(
        replace(each, state=looked[each.unit].state)
        if each.unit in looked and looked[each.unit].admitted
        else looked.get(each.unit, each)
        for each in judged
    )


def difference(library: Path, ran: Path) -> str:
    """Why a library registers other kernels than the one that ran; empty if it does not. What is
    under an #ifdef of a feature is in one of them only."""
    wanted, there = registered_by(ran), registered_by(library)
    for lost, gained, what in ((wanted, there, "does not register"), (there, wanted, "registers")):
        for op, kernel in sorted(lost - gained):
            return f"compiled for its own target it {what} {op} by {kernel}"
    return ""


def _looked_at(
    libraries: Mapping[str, Path], staged: Path, stock_libraries: Iterable[Path]
) -> dict[str, UnitVerdict]:
    """What each library shows without being run: that it is closed, and shares no state."""
    exports = frozenset[str]().union(*(elf.list_exported(path) for path in stock_libraries))
    own, others = declared(staged)
    found = {}
    for unit, library in libraries.items():
        state = elf.find_shared_objects(library, exports)
        reason = _static_reason(elf.list_undefined(library), state, own, others)
        found[unit] = UnitVerdict(unit=unit, reason=reason, state=state)
    return found


def _static_reason(
    taken: tuple[str, ...], state: tuple[str, ...], own: frozenset[str], others: frozenset[str]
) -> str:
    lent = borrowed(taken, own, others)
    if lent:
        return f"it takes {lent[0]} from the stock library"
    unknown = [name for name in state if not any(re.search(p, name) for p in HARMLESS_STATE)]
    if unknown:
        return f"it would share the state {unknown[0]} with the stock library"
    return ""


def borrowed(taken: Iterable[str], own: frozenset[str], others: frozenset[str]) -> tuple[str, ...]:
    """Of the demangled names that a library takes from elsewhere, those that kernel sources define:
    such code would run untuned. `own` and `others` are the names that headers below and beside
    the kernel folder declare."""
    return tuple(name for name in taken if _is_kernels(name, own, others))


def _is_kernels(name: str, own: frozenset[str], others: frozenset[str]) -> bool:
    plain = _without_arguments(name)
    if "tensorflow::functor::" in plain:
        return True
    namespace, *parts = plain.split("::")
    if namespace != "tensorflow":
        return False
    # The outermost name that a header declares says whose it is: members are called alike.
    whose = next((part for part in parts if part in own or part in others), None)
    return whose in own and whose not in others


def _without_arguments(name: str) -> str:
    """A demangled name without template and function arguments, return type and qualifiers."""
    depth, kept = 0, []
    for letter in _ABI_TAG.sub("", _OPERATOR.sub("operator", name)):
        if letter in "<(":
            depth += 1
        elif letter in ">)":
            depth -= 1
        elif depth == 0:
            kept.append(letter)
    words = "".join(kept).replace(" const", "").split(" ")
    return next((word for word in reversed(words) if "::" in word), words[-1])


# Each registration has one (native/registration.h): it begins with the op and the kernel's class.
_COUNTER = re.compile(r"tensorwright_counter_[0-9]+")
_ABI_TAG = re.compile(r"\[abi:\w+\]")
_OPERATOR = re.compile(r"\boperator(\(\)|<=>|->\*?|<<=?|>>=?|[<>]=?)")
_CLASS = re.compile(r"\b(?:class|struct)\s+(?:[A-Z_]+\s+)?(\w+)[^;{}()]*\{")
_COMMENT = re.compile(r"//.*")
_FUNCTION = re.compile(r"^(?:[\w:<>,&*]+ )+[&*]?(\w+)\(", re.MULTILINE)


@functools.cache
def declared(staged: Path) -> tuple[frozenset[str], frozenset[str]]:
    """Names of classes and functions that the headers of the kernel folder declare, and those of
    the headers beside it (tensorflow/core; what lies elsewhere has a namespace of its own)."""
    own: set[str] = set()
    others: set[str] = set()
    for path in (staged / FOLDER).parent.rglob("*.h"):
        text = _COMMENT.sub("", path.read_text(encoding="utf-8", errors="replace"))
        into = own if path.is_relative_to(staged / FOLDER) else others
        into.update(_CLASS.findall(text))
        into.update(_FUNCTION.findall(text))
    return frozenset(own), frozenset(others)


def probe(
    libraries: Mapping[str, Path],
    environment: Environment,
    folder: Path,
    claims: Mapping[str, Iterable[TypedOp]] | None = None,
) -> tuple[dict[str, object], dict[str, dict[str, object]]]:
    """The stock wheel's facts, and a row for each unit. One that the probe did not get to says how
    that ended (`lost`).

    `claims` are the registrations of each unit, where several units are in one finished library.
    """
    request, answer = folder / "probe-request.json", folder / "probe-answer.jsonl"
    ended = "it says nothing of it"
    said = {unit: [(c.op, c.types) for c in each] for unit, each in (claims or {}).items()}
    times = _EMULATED if environment.launcher else 1
    limit_s = _CHILD_S * times
    save(request, {"libraries": dict(libraries), "claims": said, "limit_s": limit_s})
    answer.unlink(missing_ok=True)
    done = 0
    try:
        with console.track_progress("kernel units", len(libraries)) as count:

            def on_line(line: str) -> None:
                nonlocal done
                if line.startswith(JUDGED):
                    done += 1
                    count.advance(done, detail=line.removeprefix(JUDGED))

            run(
                [*environment.command, "-m", "tfbuild.probe", request, answer],
                cwd=folder,
                env=probe_env(),
                log=folder / _LOG,
                timeout_s=max(_PROBE_S, _PROBE_UNIT_S * len(libraries)) * times,
                on_line=on_line,
            )
    except CommandError as error:
        if not answer.is_file():
            raise KernelError(
                f"the stock wheel does not run here: {error.message}\n",
                hint=_remedy(error.message).strip(),
            ) from error
        ended = error.message.splitlines()[0].partition(" (whole output")[0]
    rows = [json.loads(line) for line in answer.read_text("utf-8").splitlines()]
    lost = {unit: {"lost": ended} for unit in libraries}
    return rows[0]["stock"], lost | {row["unit"]: row for row in rows[1:]}


def need_judged(verdicts: Iterable[UnitVerdict], folder: Path) -> None:
    """Raises KernelError for units that were lost with the probe that ran in `folder`: a wheel
    without them would be another one, and what was judged is not judged again."""
    lost = [verdict for verdict in verdicts if verdict.lost]
    if not lost:
        return
    log = folder / _LOG
    said = log.read_text("utf-8", errors="replace").splitlines() if log.is_file() else []
    tail = [line for line in said if not line.startswith(JUDGED)][-_TAIL_LINES:]
    shown = "".join(f"{line}\n" for line in (":", *tail)) if tail else ""
    name, reason = lost[0].unit, lost[0].reason
    again = "Then run the same command again, which goes on there; should the probe end so again, "
    raise KernelError(
        f"{console.format_count(len(lost), 'kernel unit')} of this wheel could not be judged. {name}: "
        f"{reason} (whole output: {log}){shown}",
        hint=f"{_remedy(reason)}{again}build without the kernel: invoke build --without {name}",
    )


def _remedy(ended: str) -> str:
    """What to do where the probe ended so, as a sentence; empty if nothing is known."""
    return next((f"{_BY_END[word]}. " for word in _BY_END if word in ended), "")


def probe_env() -> dict[str, str]:
    """A quiet TensorFlow on the CPU, and this package on the path.

    A mask of the caller's goes on: what runs in it must see the CPU that we see.
    PYTHONSAFEPATH keeps the working directory off it. Before 3.11 Python knows neither that nor -P:
    so a probe is run in a folder of ours.
    """
    mask = os.environ.get(MASK, "")
    return {
        **({MASK: mask} if mask else {}),
        "PATH": "/usr/bin:/bin",
        "PYTHONPATH": str(settings.prepare_import_root(_PACKAGE)),
        "PYTHONSAFEPATH": "1",
        "CUDA_VISIBLE_DEVICES": "",
        "TF_CPP_MIN_LOG_LEVEL": "3",
        # oneDNN's graph pass would put its own ops in the place of those that are looked at.
        "TF_ENABLE_ONEDNN_OPTS": "0",
    }


def _check_abi(facts: Mapping[str, object], copts: tuple[str, ...]) -> None:
    """What the stock wheel says of its own ABI must be among the options that kernels get."""
    said = facts["compile_flags"]
    assert isinstance(said, list)  # noqa: S101  (the probe writes a list)
    absent = [flag for flag in said if flag.startswith("-D") and flag not in copts]
    if absent:
        raise KernelError(
            f"the stock wheel was compiled with {' '.join(absent)}, the kernels were not",
            hint="The release table must name it (build/tfbuild/upstream/releases.toml)",
        )


def verdict_of(unit: str, row: Mapping[str, object], state: tuple[str, ...]) -> UnitVerdict:
    """What the probe's row of a unit says."""
    if "lost" in row:
        return UnitVerdict(unit=unit, reason=f"{LOST}: {row['lost']}", state=state)
    if "reason" in row:
        return UnitVerdict(unit=unit, reason=str(row["reason"]), state=state)
    ulps, registrations, refused = row["ulps"], row["registrations"], row["refused"]
    assert isinstance(ulps, dict)  # noqa: S101  (the probe writes a table)
    assert isinstance(registrations, list)  # noqa: S101  (and lists)
    assert isinstance(refused, list)  # noqa: S101
    return UnitVerdict(
        unit=unit,
        registrations=tuple(TypedOp(op=op, types=types) for op, types in registrations),
        refused=tuple(
            RefusedKernel(op=op, types=types, reason=reason) for op, types, reason in refused
        ),
        cases=int(str(row["cases"])),
        ulps=ulps,
        state=state,
    )


def judge_sha256() -> str:
    """The hash of the code that judges units: a verdict holds as long as it stays the same."""
    paths = (Path(__file__), *sorted((_PACKAGE / "probe").glob("*.py")))
    digest = hashlib.sha256()
    for path in paths:
        digest.update(path.read_bytes())
    return digest.hexdigest()


def registered(
    verdicts: Iterable[UnitVerdict], selection: Iterable[TypedOp] | None
) -> tuple[TypedOp, ...]:
    """The kernels of the admitted units, or those of them that are selected."""
    every = {each for verdict in verdicts for each in verdict.registrations}
    return tuple(sorted(every if selection is None else every.intersection(selection)))
