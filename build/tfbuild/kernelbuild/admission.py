"""The conformance test that a kernel group must pass to be part of a tuned library.

A kernel group that fails stays stock, and the reason is recorded. The static checks read the
library; the dynamic checks run it in a real TensorFlow (tfbuild.probe).
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

from tfbuild.binaries import elf
from tfbuild.tools.environment import Environment
from tfbuild.upstream.kernels import FOLDER
from tfcore import console, settings
from tfcore.comparisons.kernels import TypedOp
from tfcore.cpus.cpu import MASK
from tfcore.errors import CommandError, KernelError
from tfcore.records import save
from tfcore.run import run

LOST = "the probe ended before it tested this kernel group"
_LOG = "probe.log"
_PACKAGE = Path(__file__).resolve().parents[1]
_PROBE_S = 3600.0
_PROBE_UNIT_S = 60.0
_CHILD_S = 600
_EMULATED = 12
"""Factor of the time limits under an emulator. The `hot` kernels for aarch64 took forty minutes
under QEMU on a busy machine."""
_TAIL_LINES = 8
_BY_END = {
    "SIGKILL": "Linux sends SIGKILL when memory runs out. Free memory, or use fewer CPUs: each one "
    "needs memory (taskset --cpu-list 0 invoke …)",
    "SIGILL": "The code uses an instruction that this CPU lacks. Build with --arch native",
}
"""Remedies, by a word in the description of how the probe ended."""
JUDGED = "tested: "
"""Prefix of the line that the probe prints when it has tested a kernel group."""

# Objects of which each library may have a copy, and why that is harmless.
HARMLESS_STATE = {
    r"Eigen::internal::manage_caching_sizes": "cache sizes: each copy reads them from the CPU",
    r"guard variable for ": "the flag of an object that is checked itself",
    r"absl::.*::.*[pP]olic(y|ies)": "tables of constants in writable sections",
    r"::vmodule_activated$": "whether a VLOG is on: each copy reads it from the environment",
    r"functor::Softplus<.*::threshold$": "a constant of the type, equal in both copies",
    r"std::ios_base::Init|std::__ioinit": "reference counted by the C++ runtime",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class RefusedKernel:
    """A kernel that stays stock although its kernel group passed.

    No test inputs were found for it, or its results differ too much from the stock kernel's.
    """

    op: str
    types: str
    reason: str


@dataclass(frozen=True, kw_only=True, slots=True)
class UnitVerdict:
    """The conformance test result of a kernel group; `reason` is empty if it passed.

    `ulps` is the largest distance from the stock kernel per op, over `cases` cases of all
    `registrations`. `refused` are the other kernels of the group, which stay stock. `state`
    lists writable objects that the stock libraries have too.
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
        """Return whether the probe ended before it tested the group, so that this is no result."""
        return self.reason.startswith(LOST)


def run_conformance_tests(
    libraries: Mapping[str, Path],
    *,
    staged: Path,
    stock_libraries: Iterable[Path],
    copts: tuple[str, ...],
    environment: Environment,
    folder: Path,
    compiled: Iterable[TypedOp] | None = None,
) -> tuple[UnitVerdict, ...]:
    """Return the conformance test result of each kernel group's library.

    If only some kernels of the sources were `compiled`, a library must register those of its
    ops; otherwise it must register all that stock has of them.

    Raises KernelError if the stock wheel was compiled with another ABI than the kernels.
    """
    if not libraries:
        return ()
    static = _check_statically(libraries, staged, stock_libraries)
    candidates = {unit: path for unit, path in libraries.items() if static[unit].admitted}
    claims = None if compiled is None else _select_claims(candidates, tuple(compiled))
    facts, rows = run_probe(candidates, environment, folder, claims)
    _check_abi(facts, copts)
    tested = {unit: parse_verdict(unit, rows[unit], static[unit].state) for unit in candidates}
    return tuple((static | tested)[unit] for unit in libraries)


def _select_claims(
    libraries: Mapping[str, Path], compiled: tuple[TypedOp, ...]
) -> dict[str, tuple[TypedOp, ...]]:
    """Return the compiled kernels that belong to each library's ops."""
    ops = {unit: {op for op, _ in count_registrations(path)} for unit, path in libraries.items()}
    return {
        unit: tuple(kernel for kernel in compiled if kernel.op in ops[unit]) for unit in libraries
    }


def count_registrations(library: Path) -> Counter[tuple[str, str]]:
    """Count the registrations in a kernel group's library by op and kernel class."""
    return Counter((op, kernel) for op, kernel in elf.read_texts(library, _COUNTER, 2))


def transfer_verdicts(
    verdicts: Iterable[UnitVerdict],
    own_libraries: Mapping[str, Path],
    ran: Mapping[str, Path],
    *,
    staged: Path,
    stock_libraries: Iterable[Path],
) -> tuple[UnitVerdict, ...]:
    """Return the verdicts of kernel groups whose `own_libraries` this CPU cannot run.

    Other code of the same sources `ran` in their place. Static checks are run on the groups'
    own libraries.
    """
    tested = tuple(verdicts)
    passed = {
        verdict.unit: own_libraries[verdict.unit]
        for verdict in tested
        if verdict.admitted and verdict.unit in own_libraries
    }
    static = _check_statically(passed, staged, stock_libraries)
    for unit, library in passed.items():
        if static[unit].admitted and (reason := find_registration_difference(library, ran[unit])):
            static[unit] = UnitVerdict(unit=unit, reason=reason, state=static[unit].state)
    return tuple(
        replace(verdict, state=static[verdict.unit].state)
        if verdict.unit in static and static[verdict.unit].admitted
        else static.get(verdict.unit, verdict)
        for verdict in tested
    )


def find_registration_difference(library: Path, ran: Path) -> str:
    """Return why a library registers other kernels than the one that ran; "" if it does not.

    Kernels under an #ifdef of a CPU feature are in only one of them.
    """
    in_proxy, in_library = count_registrations(ran), count_registrations(library)
    for first, second, verb in (
        (in_proxy, in_library, "does not register"),
        (in_library, in_proxy, "registers"),
    ):
        for op, kernel in sorted(first - second):
            return f"the library for its own target {verb} {op} with {kernel}"
    return ""


def _check_statically(
    libraries: Mapping[str, Path], staged: Path, stock_libraries: Iterable[Path]
) -> dict[str, UnitVerdict]:
    """Check without running it that each library is closed and shares no state with stock."""
    exports = frozenset[str]().union(*(elf.list_exported(path) for path in stock_libraries))
    kernel_names, other_names = find_declared_names(staged)
    verdicts = {}
    for unit, library in libraries.items():
        state = elf.find_shared_objects(library, exports)
        reason = _find_static_defect(elf.list_undefined(library), state, kernel_names, other_names)
        verdicts[unit] = UnitVerdict(unit=unit, reason=reason, state=state)
    return verdicts


def _find_static_defect(
    taken: tuple[str, ...],
    state: tuple[str, ...],
    kernel_names: frozenset[str],
    other_names: frozenset[str],
) -> str:
    borrowed_names = find_borrowed_names(taken, kernel_names, other_names)
    if borrowed_names:
        return f"it uses {borrowed_names[0]} of the stock library"
    unknown = [name for name in state if not any(re.search(p, name) for p in HARMLESS_STATE)]
    if unknown:
        return f"it would share the state {unknown[0]} with the stock library"
    return ""


def find_borrowed_names(
    taken: Iterable[str], kernel_names: frozenset[str], other_names: frozenset[str]
) -> tuple[str, ...]:
    """Return the demangled names that a library takes from elsewhere but kernel sources define.

    Such code would run untuned. `kernel_names` and `other_names` are the names that headers
    below and beside the kernel folder declare.
    """
    return tuple(name for name in taken if _is_kernel_name(name, kernel_names, other_names))


def _is_kernel_name(name: str, kernel_names: frozenset[str], other_names: frozenset[str]) -> bool:
    plain = _strip_arguments(name)
    if "tensorflow::functor::" in plain:
        return True
    namespace, *parts = plain.split("::")
    if namespace != "tensorflow":
        return False
    # The outermost name that a header declares decides: members of several classes share names.
    owner = next((part for part in parts if part in kernel_names or part in other_names), None)
    return owner in kernel_names and owner not in other_names


def _strip_arguments(name: str) -> str:
    """Return a demangled name without arguments, template arguments, return type and qualifiers."""
    depth, chars = 0, []
    for char in _ABI_TAG.sub("", _OPERATOR.sub("operator", name)):
        if char in "<(":
            depth += 1
        elif char in ">)":
            depth -= 1
        elif depth == 0:
            chars.append(char)
    words = "".join(chars).replace(" const", "").split(" ")
    return next((word for word in reversed(words) if "::" in word), words[-1])


# Each registration has a counter (native/registration.h), which begins with the op and the class.
_COUNTER = re.compile(r"tensorwright_counter_[0-9]+")
_ABI_TAG = re.compile(r"\[abi:\w+\]")
_OPERATOR = re.compile(r"\boperator(\(\)|<=>|->\*?|<<=?|>>=?|[<>]=?)")
_CLASS = re.compile(r"\b(?:class|struct)\s+(?:[A-Z_]+\s+)?(\w+)[^;{}()]*\{")
_COMMENT = re.compile(r"//.*")
_FUNCTION = re.compile(r"^(?:[\w:<>,&*]+ )+[&*]?(\w+)\(", re.MULTILINE)


@functools.cache
def find_declared_names(staged: Path) -> tuple[frozenset[str], frozenset[str]]:
    """Return the classes and functions that headers in the kernel folder and beside it declare.

    Headers beside it are those of tensorflow/core; code elsewhere has another namespace.
    """
    kernel_names: set[str] = set()
    other_names: set[str] = set()
    for path in (staged / FOLDER).parent.rglob("*.h"):
        text = _COMMENT.sub("", path.read_text(encoding="utf-8", errors="replace"))
        names = kernel_names if path.is_relative_to(staged / FOLDER) else other_names
        names.update(_CLASS.findall(text))
        names.update(_FUNCTION.findall(text))
    return frozenset(kernel_names), frozenset(other_names)


def run_probe(
    libraries: Mapping[str, Path],
    environment: Environment,
    folder: Path,
    claims: Mapping[str, Iterable[TypedOp]] | None = None,
) -> tuple[dict[str, object], dict[str, dict[str, object]]]:
    """Run the probe; return the stock wheel's facts and a row for each kernel group.

    The row of a group that the probe did not reach has `lost`: how the probe ended.
    `claims` are the registrations of each group, if one finished library holds several
    groups.
    """
    request, answer = folder / "probe-request.json", folder / "probe-answer.jsonl"
    end_reason = "it reported no result"
    claimed = {unit: [(c.op, c.types) for c in kernels] for unit, kernels in (claims or {}).items()}
    factor = _EMULATED if environment.launcher else 1
    limit_s = _CHILD_S * factor
    save(request, {"libraries": dict(libraries), "claims": claimed, "limit_s": limit_s})
    answer.unlink(missing_ok=True)
    done = 0
    try:
        with console.track_progress("kernel groups", len(libraries)) as count:

            def on_line(line: str) -> None:
                nonlocal done
                if line.startswith(JUDGED):
                    done += 1
                    count.advance(done, detail=line.removeprefix(JUDGED))

            run(
                [*environment.command, "-m", "tfbuild.probe", request, answer],
                cwd=folder,
                env=build_probe_env(),
                log=folder / _LOG,
                timeout_s=max(_PROBE_S, _PROBE_UNIT_S * len(libraries)) * factor,
                on_line=on_line,
            )
    except CommandError as error:
        if not answer.is_file():
            raise KernelError(
                f"the stock wheel does not run here: {error.message}\n",
                hint=_describe_remedy(error.message).strip(),
            ) from error
        end_reason = error.message.splitlines()[0].partition(" (whole output")[0]
    rows = [json.loads(line) for line in answer.read_text("utf-8").splitlines()]
    lost = {unit: {"lost": end_reason} for unit in libraries}
    return rows[0]["stock"], lost | {row["unit"]: row for row in rows[1:]}


def require_tested(verdicts: Iterable[UnitVerdict], folder: Path) -> None:
    """Raise KernelError if the probe in `folder` ended before it tested some kernel groups.

    A wheel without them would be another wheel, and groups that were tested are not tested
    again.
    """
    lost = [verdict for verdict in verdicts if verdict.lost]
    if not lost:
        return
    log = folder / _LOG
    lines = log.read_text("utf-8", errors="replace").splitlines() if log.is_file() else []
    tail = [line for line in lines if not line.startswith(JUDGED)][-_TAIL_LINES:]
    shown = "".join(f"{line}\n" for line in (":", *tail)) if tail else ""
    name, reason = lost[0].unit, lost[0].reason
    retry = "Run the same command again: it continues there. If the probe ends in the same way, "
    raise KernelError(
        f"{console.format_count(len(lost), 'kernel group')} of this wheel could not be tested. "
        f"{name}: {reason} (whole output: {log}){shown}",
        hint=f"{_describe_remedy(reason)}{retry}build without the group: invoke build "
        f"--without {name}",
    )


def _describe_remedy(ended: str) -> str:
    """Return what to do about a probe that ended this way, as a sentence; "" if unknown."""
    return next((f"{_BY_END[word]}. " for word in _BY_END if word in ended), "")


def build_probe_env() -> dict[str, str]:
    """Return a probe's environment: a quiet TensorFlow on the CPU, and this package on the path.

    The CPU mask of the caller is passed on, so that both see the same CPU features.
    PYTHONSAFEPATH keeps the working directory off the path. Python before 3.11 has neither
    that nor -P, so a probe runs in a folder of Tensorwright.
    """
    mask = os.environ.get(MASK, "")
    return {
        **({MASK: mask} if mask else {}),
        "PATH": "/usr/bin:/bin",
        "PYTHONPATH": str(settings.prepare_import_root(_PACKAGE)),
        "PYTHONSAFEPATH": "1",
        "CUDA_VISIBLE_DEVICES": "",
        "TF_CPP_MIN_LOG_LEVEL": "3",
        # oneDNN's graph pass would replace the ops under test by its own.
        "TF_ENABLE_ONEDNN_OPTS": "0",
    }


def _check_abi(facts: Mapping[str, object], copts: tuple[str, ...]) -> None:
    """Check that the stock wheel's own ABI flags are among the options of the kernels."""
    stock_flags = facts["compile_flags"]
    assert isinstance(stock_flags, list)  # noqa: S101  (the probe writes a list)
    absent = [flag for flag in stock_flags if flag.startswith("-D") and flag not in copts]
    if absent:
        raise KernelError(
            f"the stock wheel was compiled with {' '.join(absent)}, the kernels were not",
            hint="Add the flags to the release in build/tfbuild/upstream/releases.toml",
        )


def parse_verdict(unit: str, row: Mapping[str, object], state: tuple[str, ...]) -> UnitVerdict:
    """Parse the probe's row of a kernel group."""
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


def hash_test_code() -> str:
    """Return the SHA-256 of the conformance test code: a verdict holds while it stays the same."""
    paths = (Path(__file__), *sorted((_PACKAGE / "probe").glob("*.py")))
    digest = hashlib.sha256()
    for path in paths:
        digest.update(path.read_bytes())
    return digest.hexdigest()


def select_registrations(
    verdicts: Iterable[UnitVerdict], selection: Iterable[TypedOp] | None
) -> tuple[TypedOp, ...]:
    """Return the kernels of the groups that passed, or those of them that are selected."""
    kernels = {kernel for verdict in verdicts for kernel in verdict.registrations}
    return tuple(sorted(kernels if selection is None else kernels.intersection(selection)))
