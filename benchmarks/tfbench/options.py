"""Parsers of option values. All of them raise UsageError, which names the option."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TypeAlias

from tfbench.commands import ALL
from tfbench.inside.phases import INFER, TRAIN
from tfbench.inside.workload_name import format_own_name, parse_name
from tfbench.inside.workloads import NAMES, SETS, UnknownWorkloadError, expand_names, find_workload
from tfbuild.upstream.download import hash_file
from tfcore import console
from tfcore.console import suggest_spelling
from tfcore.errors import UsageError
from tfcore.records import hash_record
from tfcore.settings import expand_home

MODELS = f"Use the path of a model, or one of {', '.join(NAMES)}"
ANY = f"Use {', '.join(NAMES)}, or the sets {' and '.join(SETS)}"
Subject: TypeAlias = tuple[str, Path | None]
"""The name of a workload and None, or the workload name and the path of a user's file."""
_SUFFIXES = (".py", ".keras", ".h5", ".hdf5")
_SAVED_MODEL = "saved_model.pb"
_MOST = 2**31


def parse_words(text: str) -> tuple[str, ...]:
    """Parse comma-separated words, each once."""
    return tuple(dict.fromkeys(word.strip() for word in text.split(",") if word.strip()))


def check_word(kind: str, word: str, known: Collection[str], hint: str = "") -> str:
    """Return the word if it is known; `kind` says what it names, `hint` which words are known."""
    if word not in known:
        available = hint or f"Available: {', '.join(known)}"
        raise UsageError(
            f"unknown {kind} {word!r}", hint=suggest_spelling(word, known) or available
        )
    return word


def parse_workloads(text: str) -> tuple[str, ...]:
    """Parse comma-separated names of workloads, with sizes, and of sets.

    Each workload is returned once. `all` means the set `six`.
    """
    names = parse_words(text)
    if not names:
        raise UsageError("--workloads is empty", hint=ANY)
    return tuple(
        map(parse_workload, expand_names("six" if name == ALL else name for name in names))
    )


def parse_workload(text: str) -> str:
    """Parse the name of one workload, with sizes as in `resnet50:image=64:batch=8`."""
    _refuse_set(text)
    if parse_name(text).clients:
        raise UsageError(
            f"{text}: only inference has clients", hint="Use invoke compare --phase infer"
        )
    try:
        return find_workload(text).name
    except UnknownWorkloadError as error:
        name = text.partition(":")[0]
        hint = "" if name in NAMES else suggest_spelling(name, (*NAMES, *SETS)) or ANY
        raise UsageError(str(error), hint=hint) from error


def _refuse_set(text: str) -> None:
    name, _, sizes = text.partition(":")
    if name in SETS:
        members = ", ".join(SETS[name])
        reason = "so it takes no sizes" if sizes else "not one workload"
        raise UsageError(f"{name} is a set, {reason}", hint=f"Use one of {members}")


def parse_phase(text: str, known: Sequence[str] = (TRAIN, INFER)) -> str:
    """Parse --phase: training steps, inference, or epochs of `fit`."""
    if text not in known:
        hint = suggest_spelling(text, known) or f"Use {', '.join(known[:-1])} or {known[-1]}"
        raise UsageError(f"--phase {text} is unknown", hint=hint)
    return text


def parse_model_file(text: str) -> tuple[str, Path]:
    """Parse --workload that names a user's model file."""
    name, path = parse_subject(text)
    if path is None:
        raise UsageError(
            f"--workload takes a file, but {text} is a name", hint=f"Use --workloads {text}"
        )
    return name, path


def parse_subject(text: str) -> Subject:
    """Parse --workload: the name of a workload, or a user's model file."""
    if not text:
        raise UsageError("--workload is missing", hint=MODELS)
    if text.partition(":")[0] in NAMES:  # (also with sizes that do not exist)
        return parse_workload(text), None
    path = expand_home(text)
    if not path.exists():
        _refuse_set(text)
        if path.suffix in _SUFFIXES or len(path.parts) > 1:
            raise UsageError(f"file not found: {text}")
        hint = suggest_spelling(text, NAMES) or MODELS
        raise UsageError(f"unknown workload {text!r}", hint=hint)
    if not (path.is_file() and path.suffix in _SUFFIXES) and not (path / _SAVED_MODEL).is_file():
        raise UsageError(
            f"{text} is not a model",
            hint=f"Give a file that ends in {', '.join(_SUFFIXES)}, or the folder of a SavedModel",
        )
    return format_own_name(path.name), path.resolve()


def hash_path(path: Path) -> str:
    """Hash a file, or all files below a folder with their names."""
    if path.is_file():
        return hash_file(path)
    files = sorted(file for file in path.rglob("*") if file.is_file())
    return hash_record([(str(file.relative_to(path)), hash_file(file)) for file in files])


def parse_counts(text: str, option: str) -> tuple[int, ...]:
    """Parse comma-separated whole numbers; none for an empty text."""
    words = parse_words(text)
    if not all(word.isdecimal() for word in words):
        raise UsageError(
            f"{option} {text} is not a list of whole numbers", hint=f"Try {option} 1,2"
        )
    return tuple(dict.fromkeys(map(int, words)))


def parse_vcpus(text: str, usable: int) -> tuple[int, ...]:
    """Parse numbers of CPUs that are usable here; none for an empty text."""
    counts = parse_counts(text, "--vcpus")
    for number in counts:
        if not 1 <= number <= usable:
            raise UsageError(
                f"{console.format_vcpus(number)} cannot be measured here: {usable} are usable",
                hint=f"Use 1 to {usable}",
            )
    return counts


def parse_vcpu_count(text: str, usable: int) -> int:
    """Parse a number of CPUs that are usable here; all of them for an empty text."""
    counts = parse_vcpus(text, usable) or (usable,)
    if len(counts) > 1:
        raise UsageError(f"--vcpus {text} is not one number", hint="Give one of them")
    return counts[0]


def parse_integer(text: str, option: str, *, least: int = 1, most: int = _MOST) -> int:
    if not text.strip().isdecimal() or not least <= int(text) <= most:
        span = f"of at least {least}" if most == _MOST else f"from {least} to {most}"
        raise UsageError(
            f"{option} {text} is not a whole number {span}", hint=f"Try {option} {least}"
        )
    return int(text)


def parse_positive(text: str, option: str, least: float = 1e-9) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not least <= value < 1e9:  # noqa: PLR2004  (a NaN fails, too)
        raise UsageError(f"{option} {text} is not a number above 0", hint=f"Try {option} 1.5")
    return value


def parse_percent(text: str, option: str) -> float:
    """Parse 1.5 or 1.5% as 0.015."""
    return parse_positive(text.strip().removesuffix("%"), option, least=0.0) / 100
