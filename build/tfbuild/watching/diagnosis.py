"""Finds the cause of a failed build from its events and its log, and the remedy. Pure functions.

The patterns are messages of Bazel 4.2.3 and 7.7.1, clang 16, g++ 12 and gold in builds that were
made to fail. Messages of other linkers and compilers, and those about tests, time limits,
certificates and a wrong Bazel, were not seen here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import StrEnum

from tfbuild.watching.attempt import Attempt
from tfbuild.watching.events import BuildFailure, BuildOutcome, strip_colours

MOST_FETCHES = 3
_LONGEST = 300
_SIGKILL, _SIGILL = 9, 4


class Cause(StrEnum):
    DISK = "disk"
    MEMORY = "memory"
    HOST_TOOL = "host tool"
    BAZEL_VERSION = "Bazel version"
    CONFIG = "config"
    OPTION = "option"
    CHECKSUM = "checksum"
    DOWNLOAD = "download"
    REMOTE = "remote"
    CACHE = "cache"
    TARGET = "target"
    FLAG = "flag"
    TIMEOUT = "timeout"
    TEST = "test"
    LINK = "link"
    COMPILE = "compile"
    INTERRUPTED = "interrupted"
    UNKNOWN = "unknown"


@dataclass(frozen=True, kw_only=True, slots=True)
class Diagnosis:
    """The cause of a failed build.

    `deciding_line` is the line that decided, `what` the flag, config, option, target or
    address in it, `label` the Bazel label that failed; each is empty if unknown. `remedy` is
    for the user.
    """

    cause: Cause
    label: str = ""
    what: str = ""
    deciding_line: str = ""
    remedy: str


# The cause is the first entry that matches a line. Special entries precede general ones. A
# group is the `what` of the diagnosis.
_WORDS: tuple[tuple[Cause, tuple[str, ...]], ...] = (
    (Cause.DISK, ("No space left on device", "Disk quota exceeded", "File too large")),
    (
        Cause.MEMORY,
        (
            r"java\.lang\.OutOfMemoryError",
            "bazel ran out of memory",
            "Server terminated abruptly",
            "virtual memory exhausted",
            "[Cc]annot allocate memory",
            r"std::bad_alloc",
            r"failed: \(Killed\)",
            "unable to execute command: Killed",
            "error: Killed",
            "Killed signal terminated program",
            "terminated with signal 9",
        ),
    ),
    (Cause.HOST_TOOL, ("Illegal instruction",)),
    (
        Cause.BAZEL_VERSION,
        (
            r"requires Bazel (\d[\w.]*) \(specified in",
            "Please (?:up|down)grade your bazel",
            r"Current Bazel version is \S+ expected at least (\d[\w.]*)",
        ),
    ),
    (Cause.CONFIG, (r"Config value '?([^' ]+)'? is not defined in any \.rc file",)),
    (Cause.OPTION, (r"Unrecognized option: (\S+)", r"While parsing option (\S+):")),
    (Cause.CACHE, (r"error while parsing \.d file",)),
    (Cause.CHECKSUM, (r"(?:Error downloading \[([^],\s]+).*)?Checksum was \w+ but wanted \w+",)),
    (
        Cause.REMOTE,
        (
            "Failed to query remote execution capabilities",
            "Remote Execution Failure",
            "no longer available remotely",
            "BulkTransferException",
            r"\bUNAUTHENTICATED\b",
        ),
    ),
    (
        Cause.DOWNLOAD,
        (
            r"Error downloading \[([^],\s]+)",
            r"java\.io\.IOException: connect",
            "PKIX path building failed",
            r"Unknown host: (\S+)",
        ),
    ),
    (Cause.TARGET, ("no such (?:target|package) '([^']+)'",)),
    (
        Cause.FLAG,
        (
            "error: (?:unknown argument:?|unsupported option|unsupported argument) '(-[^']+)'",
            "unrecognized command[- ]line option ['\"](-[^'\"]+)",
            r"bad value \(?'([^']+)'\)? for '-m",
            "invalid feature modifier '([^']+)'",
        ),
    ),
    (Cause.TIMEOUT, (r"failed: \(Timeout\)", r"\bTIMEOUT: (//\S+)", "[Tt]imed out")),
    (Cause.TEST, (r"^(//\S+)\s+FAILED in ", r"\bFAIL: (//\S+)")),
    (
        Cause.LINK,
        (
            "undefined (?:reference|symbol)",
            "relocation truncated to fit",
            r"relocation \S+ out of range",
            "cannot find -l",
            "linker command failed",
            "ld returned 1 exit status",
        ),
    ),
    (Cause.INTERRUPTED, ("build interrupted",)),
    (Cause.COMPILE, (r"\berror: ",)),
)
_RULES = {cause: re.compile("|".join(words)) for cause, words in _WORDS}

# Bazel's exit codes, for builds without other evidence (Bazel's ExitCode.java).
_EXITS = {
    "COMMAND_LINE_ERROR": Cause.OPTION,
    "INTERRUPTED": Cause.INTERRUPTED,
    "OOM_ERROR": Cause.MEMORY,
    "REMOTE_ERROR": Cause.REMOTE,
    "REMOTE_ENVIRONMENTAL_ERROR": Cause.REMOTE,
    "REMOTE_CACHE_EVICTED": Cause.REMOTE,
}

_TEXTS = {
    Cause.DISK: ("the disk is full", "Free space in the cache folder, or set TENSORWRIGHT_CACHE"),
    Cause.MEMORY: ("out of memory", "Use fewer jobs: --jobs N"),
    Cause.HOST_TOOL: (
        "a tool of the build does not run on this machine",
        "It was compiled for another CPU. Pass no flag to host tools (--host_copt, CC_OPT_FLAGS)",
    ),
    Cause.BAZEL_VERSION: (
        "the Bazel version is wrong",
        "Set USE_BAZEL_VERSION to the version in the tree's .bazelversion",
    ),
    Cause.CONFIG: (
        "this tree has no such config",
        "Remove --config={what}: its .bazelrc does not define it",
    ),
    Cause.OPTION: (
        "this Bazel has no such option",
        "Set USE_BAZEL_VERSION to the version in the tree's .bazelversion",
    ),
    Cause.CHECKSUM: (
        "a download does not have the pinned hash",
        "A mirror or proxy changed it. Fetch the right archive with invoke vendor",
    ),
    Cause.DOWNLOAD: (
        "a download failed",
        "Try again, check HTTPS_PROXY and certificates, or build from a folder of invoke vendor",
    ),
    Cause.CACHE: (
        "a cache returned a result without its files",
        "Remove that entry from the shared cache, and remove the disk cache",
    ),
    Cause.REMOTE: (
        "the remote cache or executor failed",
        "Check --remote-cache, --remote-executor and --bazelrc, or remove them",
    ),
    Cause.TARGET: (
        "this tree has no such target",
        "Set --release to the tree's release: the target differs between releases",
    ),
    Cause.FLAG: (
        "the compiler does not know a flag",
        "Choose a newer compiler with --compiler, or an older target with --arch",
    ),
    Cause.TIMEOUT: ("a time limit was exceeded", "Use fewer jobs: --jobs N"),
    Cause.TEST: ("a test failed", "Read its log. A wheel needs no tests of the tree"),
    Cause.LINK: ("the linker failed", "Read the log from this label on"),
    Cause.COMPILE: ("a source does not compile", "Read the log from this label on"),
    Cause.INTERRUPTED: (
        "the build was interrupted",
        "Run it again: it continues. If the kernel killed it, use fewer jobs: --jobs N",
    ),
    Cause.UNKNOWN: ("the build failed", "Read the log from its first ERROR on"),
}

# The XNNPACK kernels that are compiled with a flag (gcc_x86_copts and copts in XNNPACK's
# build_params.bzl), by the names of its --define options. Only flags that a compiler in use may
# lack. A define that this XNNPACK does not know changes nothing.
_AVX512_LATE = ("avx512amx", "avx512fp16", "avx512bf16")
_XNNPACK = {
    "-mavxvnni": ("avxvnni",),
    "-mavxvnniint8": ("avxvnniint8",),
    "-mavx512fp16": ("avx512fp16",),
    "-mavx512bf16": ("avx512bf16",),
    "-mamx-tile": ("avx512amx",),
    "-mamx-int8": ("avx512amx",),
    "-mavx512vbmi": ("avx512vbmi",),
    "-mavx512vnni": (
        "avx512vnni", "avx256vnni", "avx512vnnigfni", "avx256vnnigfni", *_AVX512_LATE,
    ),
    "-mgfni": ("avxvnni", "avxvnniint8", "avx512vnnigfni", "avx256vnnigfni", *_AVX512_LATE),
    "i8mm": ("arm_i8mm",),
    "bf16": ("arm_bf16",),
    "sme": ("arm_sme",),
    "sme2": ("arm_sme2",),
}  # fmt: skip

_LABEL = re.compile(r"(?<![\w.~+-])@{0,2}[\w.~+-]*//[\w./+~-]*(?::[\w./+=,@~-]+)?")
_ADDRESS = re.compile(r"\w+://\S+")
_BEGINS = re.compile(r"^(?:\([\d:]+\) )?(?:ERROR|FATAL|java\.lang\.|Server terminated|FAIL: )")
_NOISE = re.compile(r"^(?:\([\d:]+\) )?(?:WARNING:|INFO:|DEBUG:|Loading:|Analyzing:|\[[\d,]+ / )")
_PASSWORD = re.compile(r"(?<=://)[^/@\s]+@")
# Text to remove from a message: Bazel's prefix, and a truncated command of hundreds of words.
_AROUND = re.compile(r"^(?:ERROR|FATAL): |: error executing [\w ]*command.*")
_FINAL = re.compile(r"GET returned 4\d\d|PKIX path")  # another attempt gets the same answer
_QUOTES = str.maketrans("\u2018\u2019", "''")  # gcc in a UTF-8 locale


def diagnose(outcome: BuildOutcome | None, log: str) -> Diagnosis:
    """Return why the build failed: by its first failed action, else by the log."""
    failures = () if outcome is None else outcome.failures
    log_lines = list(_find_error_lines(log))
    for failure in failures:
        diagnosis = _diagnose_signal(failure, log_lines) or _diagnose_text(
            _split_lines(failure), failure.label
        )
        if diagnosis is not None:
            return diagnosis
    label = failures[0].label if failures else ""
    diagnosis = _diagnose_text(log_lines, label)
    if diagnosis is not None:
        return diagnosis
    deciding_line = next((line for failure in failures for line in _split_lines(failure)), "")
    finished = outcome is not None and outcome.finished
    if not (finished or log_lines or failures):
        return _build_diagnosis(Cause.INTERRUPTED, label="", line="")
    cause = _EXITS.get(outcome.exit_name, Cause.UNKNOWN) if outcome else Cause.UNKNOWN
    return _build_diagnosis(cause, label=label, line=deciding_line or next(iter(log_lines), ""))


def _find_error_lines(log: str) -> Iterator[str]:
    """Yield the log's lines from its first error on, without warnings and progress.

    A mirror that answered 404 before another one served is a warning in every build.
    """
    begun = False
    for line in strip_colours(log).translate(_QUOTES).splitlines():
        begun = begun or bool(_BEGINS.match(line))
        if begun and line.strip() and not _NOISE.match(line):
            yield line


def _split_lines(failure: BuildFailure) -> list[str]:
    text = f"{failure.stderr}\n{failure.message}".translate(_QUOTES)
    return [line for line in text.splitlines() if line.strip()]


def _diagnose_signal(failure: BuildFailure, log_lines: list[str]) -> Diagnosis | None:
    """Diagnose a program that a signal ended; the log's words are only its evidence."""
    cause = {_SIGKILL: Cause.MEMORY, _SIGILL: Cause.HOST_TOOL}.get(failure.signal)
    if cause is None:
        return None
    lines = (line for line in (*_split_lines(failure), *log_lines) if _RULES[cause].search(line))
    line = next(lines, f"{failure.kind} was ended by signal {failure.signal}")
    return _build_diagnosis(cause, label=failure.label, line=line)


def _diagnose_text(lines: list[str], label: str) -> Diagnosis | None:
    for cause, words in _RULES.items():
        for line in lines:
            match = words.search(line)
            if match:
                detail = next((part for part in match.groups() if part), "")
                return _build_diagnosis(
                    cause, label=label or _find_label(line), line=line, detail=detail
                )
    return None


def _find_label(line: str) -> str:
    """Return the first label in a line; an address is not a label."""
    match = _LABEL.search(_ADDRESS.sub("", line))
    return match[0] if match else ""


def _build_diagnosis(cause: Cause, *, label: str, line: str, detail: str = "") -> Diagnosis:
    remedy = _TEXTS[cause][1].format(what=detail)
    if cause is Cause.FLAG and _list_defines(detail):
        remedy = f"Use --define {','.join(_list_defines(detail))}"
    return Diagnosis(
        cause=cause,
        label=label,
        what=_PASSWORD.sub("", detail),
        deciding_line=_PASSWORD.sub("", _AROUND.sub("", line.strip()))[:_LONGEST],
        remedy=remedy,
    )


def _list_defines(flag: str) -> tuple[str, ...]:
    return tuple(f"xnn_enable_{isa}=false" for isa in _XNNPACK.get(flag, ()))


def plan_next_attempt(attempt: Attempt, diagnosis: Diagnosis) -> Attempt | None:
    """Return the attempt that may succeed where this one failed; None if the user must act."""
    if diagnosis.cause is Cause.MEMORY and attempt.jobs > 1:
        return replace(attempt, jobs=attempt.jobs // 2)
    if diagnosis.cause is Cause.FLAG:
        new = [name for name in _list_defines(diagnosis.what) if name not in attempt.defines]
        return replace(attempt, defines=(*attempt.defines, *new)) if new else None
    if diagnosis.cause is Cause.CACHE and not attempt.distrusting:
        return replace(attempt, distrusting=True)
    final = _FINAL.search(diagnosis.deciding_line)
    if diagnosis.cause is Cause.DOWNLOAD and not final and attempt.fetches < MOST_FETCHES:
        return replace(attempt, fetches=attempt.fetches + 1)
    return None


def explain(diagnosis: Diagnosis) -> tuple[str, str]:
    """Return one line of what failed, where and why, and the hint of what to do."""
    summary = _TEXTS[diagnosis.cause][0]
    where = f" at {diagnosis.label}" if diagnosis.label else ""
    reason = f": {diagnosis.deciding_line}" if diagnosis.deciding_line else ""
    return f"{summary}{where}{reason}", diagnosis.remedy
