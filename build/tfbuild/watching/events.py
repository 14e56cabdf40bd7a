"""What Bazel says about a build in its event file, while it runs and after.

The file is the build event protocol as JSON lines (`--build_event_json_file`), after Bazel's
build_event_stream.proto and failure_details.proto. JSON leaves out what is zero, and writes 64-bit
numbers as strings. Read here are fields that 4.2.3 and 7.7.1 share, with one difference: which
runner took how many actions stands in buildMetrics in newer ones (runnerCount), and in both in the
log "process stats".
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import os
import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from tfbuild.records import MOST, parse_json
from tfbuild.watching.pace import Pace, Progress

Event = Mapping[str, Any]

_POLL_S = 0.2
_JOIN_S = 5.0
_STDERR_B = 1 << 16  # compilers give their reason first
_SIGNALS = range(129, 193)  # a shell's 128 + signal, which Bazel's runners report too
# Abort reasons that only say that something else failed, or that nothing was asked for.
_CONSEQUENCES = frozenset({"INCOMPLETE", "SKIPPED", "NO_ANALYZE", "NO_BUILD"})
_TESTS_THAT_FAILED = frozenset({"FAILED", "TIMEOUT", "REMOTE_FAILURE"})
_PROGRESS = re.compile(r"^(?:\([\d:]+\) )?\[(\d[\d,]*) / (\d[\d,]*)\] (.*)$")
_PROCESSES = re.compile(r"^[\d,]+ process(?:es)?: (.*)\.$")
_NUMBER = re.compile(r"-?[0-9]{1,19}")  # of 64 bits
_ANSI = re.compile(r"\x1b\[[\d;]*[A-Za-z]")


@dataclass(frozen=True, kw_only=True, slots=True)
class BuildFailure:
    """One thing that failed. `kind` is an action's mnemonic (CppCompile), a test's status, or the
    reason why something was aborted (LOADING_FAILURE). `exit_code` is the program's, 128 + signal
    where a signal ended it, 0 where no program ran.
    """

    label: str
    kind: str
    exit_code: int = 0
    message: str = ""
    stderr: str = ""

    @property
    def signal(self) -> int:
        """The signal that ended the program; 0 when none did."""
        return self.exit_code - 128 if self.exit_code in _SIGNALS else 0


@dataclass(frozen=True, kw_only=True, slots=True)
class BuildOutcome:
    """A build as its events tell it. `finished` is False when Bazel did not live to say how it
    ended, or refused its options. `runners` counts actions by who took them: "linux-sandbox",
    "disk cache hit", "remote cache hit", "internal". `seconds` is 0 when unfinished.
    """

    finished: bool
    exit_code: int = 0
    exit_name: str = ""
    failures: tuple[BuildFailure, ...] = ()
    actions_created: int = 0
    actions_executed: int = 0
    runners: Mapping[str, int] = field(default_factory=dict)
    seconds: float = 0.0


def options(path: Path) -> tuple[str, ...]:
    """Bazel options that write events to `path`, in time to follow them. Bazel keeps its progress
    lines back until 10 kB are together, which is minutes: a buffer of 1 byte holds none back.
    """
    return (f"--build_event_json_file={path}", "--bes_outerr_buffer_size=1")


def read_events(path: Path) -> Iterator[Event]:
    """Each event of the file. A line that cannot be read is left out: a build that was killed, or
    whose disk ran full, cuts the last one short, and what it said before is still worth reading.
    Of a line of more than MOST characters no part is an event.
    """
    with path.open(encoding="utf-8", errors="replace") as lines:
        while line := lines.readline(MOST):
            event = _parsed(line)
            if event is not None:
                yield event


def _parsed(line: str) -> Event | None:
    try:
        event = parse_json(line)
    except ValueError:
        return None
    return event if isinstance(event, dict) and isinstance(event.get("id"), dict) else None


def read_outcome(path: Path) -> BuildOutcome | None:
    """How the build ended. None without a file: Bazel ended before it wrote one.

    To be read before the next build, which uses the names of this one's stderr files again.
    """
    try:
        return outcome_of(read_events(path))
    except FileNotFoundError:
        return None


def outcome_of(events: Iterable[Event]) -> BuildOutcome:
    """The outcome that the events add up to. What is not of its kind counts as left out."""
    failures: list[BuildFailure] = []
    causes: list[
        BuildFailure
    ] = []  # of targets and of the build: said again where an action failed
    finished: Event | None = None
    metrics: Event = {}
    runners: dict[str, int] = {}
    for event in events:
        failure = _failure(event)
        if failure is not None:
            (failures if "completed" not in event else causes).append(failure)
        if "finished" in event:
            finished = _inner(event, "finished")
            detail = _text(_inner(finished, "failureDetail"), "message")
            causes += [BuildFailure(label="", kind="Build", message=detail)] if detail else []
        if "buildMetrics" in event:
            metrics = _inner(event, "buildMetrics")
        if "buildToolLogs" in event:
            runners = _processes(_inner(event, "buildToolLogs"))
    exit_code = _inner(finished or {}, "exitCode")
    actions = _inner(metrics, "actionSummary")
    return BuildOutcome(
        finished=finished is not None,
        exit_code=_number(exit_code, "code"),
        exit_name=_text(exit_code, "name"),
        failures=tuple(failures or causes),
        actions_created=_number(actions, "actionsCreated"),
        actions_executed=_number(actions, "actionsExecuted"),
        runners=_counted(_each(actions, "runnerCount")) or runners,
        seconds=_number(_inner(metrics, "timingMetrics"), "wallTimeInMs") / 1000,
    )


def _failure(event: Event) -> BuildFailure | None:
    identity = _inner(event["id"], next(iter(event["id"]), ""))
    pattern = identity.get("pattern")
    words = map(str, pattern) if isinstance(pattern, list) else ()
    label = _text(identity, "label") or " ".join(words)
    if "action" in event and not _inner(event, "action").get("success"):
        return _failed_action(label, _inner(event, "action"))
    aborted = _inner(event, "aborted")
    reason = _text(aborted, "reason")
    if "aborted" in event and reason not in _CONSEQUENCES:
        message = _text(aborted, "description")
        # An analysis that failed says why at what it failed for, and nothing here.
        if message or reason != "ANALYSIS_FAILURE":
            return BuildFailure(label=label, kind=reason or "UNKNOWN", message=message)
    status = _text(_inner(event, "testSummary"), "overallStatus")
    if status in _TESTS_THAT_FAILED:
        return BuildFailure(label=label, kind=f"Test {status}")
    detail = _inner(_inner(event, "completed"), "failureDetail")
    if detail:
        return BuildFailure(label=label, kind="Target", message=_text(detail, "message"))
    return None


def _failed_action(label: str, action: Event) -> BuildFailure:
    # In 4.2.3 `exitCode` is 1 for a program that a signal ended; the spawn's is the program's own.
    detail = _inner(action, "failureDetail")
    spawned = _number(_inner(detail, "spawn"), "spawnExitCode")
    return BuildFailure(
        label=label or _text(action, "label"),
        kind=_text(action, "type"),
        exit_code=spawned or _number(action, "exitCode"),
        message=_text(detail, "message"),
        stderr=_contents(_inner(action, "stderr")),
    )


def _inner(event: Event, name: str) -> Event:
    value = event.get(name)
    return value if isinstance(value, dict) else {}


def _each(event: Event, name: str) -> list[Event]:
    value = event.get(name)
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def _text(event: Event, name: str) -> str:
    value = event.get(name)
    return value if isinstance(value, str) else ""


def _number(event: Event, name: str) -> int:
    found = _NUMBER.fullmatch(str(event.get(name)))
    return int(found[0]) if found else 0


def _contents(file: Event) -> str:
    """What a file of an event holds, from the event or from this machine; "" when it is gone."""
    data = b""
    with contextlib.suppress(OSError, ValueError, binascii.Error):
        if "contents" in file:
            data = base64.b64decode(_text(file, "contents"), validate=True)
        place = urlsplit(_text(file, "uri"))
        if place.scheme == "file" and (path := Path(unquote(place.path))).is_file():
            with path.open("rb") as stream:
                data = stream.read(_STDERR_B)
    return plain(data[:_STDERR_B].decode(errors="replace"))


def plain(text: str) -> str:
    """Text without the colours that compilers write even into files."""
    return _ANSI.sub("", text)


def _counted(runners: Iterable[Event]) -> dict[str, int]:
    """Of `runnerCount`: its entry "total" is the sum of the others."""
    named = {_text(entry, "name"): _number(entry, "count") for entry in runners}
    return {name: count for name, count in named.items() if name not in {"", "total"}}


def _processes(logs: Event) -> dict[str, int]:
    """Of "18 processes: 12 internal, 6 linux-sandbox."."""
    named = (log for log in _each(logs, "log") if _text(log, "name") == "process stats")
    found = _PROCESSES.match(next((_contents(log).strip() for log in named), ""))
    parts = [part.partition(" ") for part in found[1].split(", ")] if found else []
    return {name: int(count) for count, _, name in parts if _NUMBER.fullmatch(count)}


@contextlib.contextmanager
def following(path: Path, on_progress: Callable[[Progress], None]) -> Iterator[None]:
    """Tell `on_progress`, from a thread, how far the build has come that writes its events to
    `path` inside the block. What an earlier build left there is cut off first; the file stays, and
    so does its mode. Progress is a service: what goes wrong with it ends it, and never the build.
    """
    with contextlib.suppress(OSError):
        os.truncate(path, 0)
    ended = threading.Event()
    thread = threading.Thread(target=_follow, args=(path, on_progress, ended), daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join(_JOIN_S)


def _follow(path: Path, on_progress: Callable[[Progress], None], ended: threading.Event) -> None:
    pace = Pace()
    with contextlib.suppress(Exception):
        for line in _tail(path, ended):
            said = _said(_text(_inner(_parsed(line) or {}, "progress"), "stderr"))
            if said is not None:
                on_progress(pace.fed(time.monotonic(), *said))


def _said(stderr: str) -> tuple[int, int, str] | None:
    """Done, total and what runs, of the last progress line in what Bazel printed."""
    for line in reversed(plain(stderr).splitlines()):
        found = _PROGRESS.match(line)
        if found:
            done, total, detail = found.groups()
            return int(done.replace(",", "")), int(total.replace(",", "")), detail
    return None


def _tail(path: Path, ended: threading.Event) -> Iterator[str]:
    """Whole lines as they come, and what is left when `ended`."""
    while not path.exists():
        if ended.wait(_POLL_S):
            return
    with path.open("rb") as stream:
        rest = b""
        while True:
            last = ended.is_set()
            *lines, rest = (rest + stream.read()).split(b"\n")
            yield from (line.decode(errors="replace") for line in lines)
            if last:
                return
            ended.wait(_POLL_S)
