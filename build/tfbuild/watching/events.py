"""Reads Bazel's event file, during a build and after it.

The file is the build event protocol as JSON lines (`--build_event_json_file`), after Bazel's
build_event_stream.proto and failure_details.proto. JSON omits zero values, and writes 64-bit
numbers as strings. All fields read here exist in 4.2.3 and 7.7.1, except one: the number of actions
per runner is in buildMetrics (runnerCount) only in newer versions. Both have it in the log
"process stats".
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

from tfbuild.watching.pace import Pace, Progress
from tfcore.records import MOST, parse_json

Event = Mapping[str, Any]

_POLL_S = 0.2
_JOIN_S = 5.0
_STDERR_B = 1 << 16  # compilers print the reason first
_SIGNALS = range(129, 193)  # 128 + signal, as shells and Bazel's runners report it
# Abort reasons that follow from another failure, or from an empty request.
_CONSEQUENCES = frozenset({"INCOMPLETE", "SKIPPED", "NO_ANALYZE", "NO_BUILD"})
_TESTS_THAT_FAILED = frozenset({"FAILED", "TIMEOUT", "REMOTE_FAILURE"})
_PROGRESS = re.compile(r"^(?:\([\d:]+\) )?\[(\d[\d,]*) / (\d[\d,]*)\] (.*)$")
_PROCESSES = re.compile(r"^[\d,]+ process(?:es)?: (.*)\.$")
_NUMBER = re.compile(r"-?[0-9]{1,19}")  # of 64 bits
_ANSI = re.compile(r"\x1b\[[\d;]*[A-Za-z]")


@dataclass(frozen=True, kw_only=True, slots=True)
class BuildFailure:
    """A failure of a build.

    `kind` is an action's mnemonic (CppCompile), a test's status, or the reason why something
    was aborted (LOADING_FAILURE). `exit_code` is the program's, 128 + signal if a signal
    ended it, 0 if no program ran.
    """

    label: str
    kind: str
    exit_code: int = 0
    message: str = ""
    stderr: str = ""

    @property
    def signal(self) -> int:
        """Return the signal that ended the program; 0 if none did."""
        return self.exit_code - 128 if self.exit_code in _SIGNALS else 0


@dataclass(frozen=True, kw_only=True, slots=True)
class BuildOutcome:
    """The outcome of a build, by its events.

    `finished` is False if Bazel ended before it reported its end, or refused its options.
    `runners` counts actions by runner: "linux-sandbox", "disk cache hit", "remote cache hit",
    "internal". `seconds` is 0 if unfinished.
    """

    finished: bool
    exit_code: int = 0
    exit_name: str = ""
    failures: tuple[BuildFailure, ...] = ()
    actions_created: int = 0
    actions_executed: int = 0
    runners: Mapping[str, int] = field(default_factory=dict)
    seconds: float = 0.0


def build_options(path: Path) -> tuple[str, ...]:
    """Return Bazel options that write events to `path`, in time to follow them.

    Bazel keeps its progress lines back until 10 kB are together, which is minutes: a buffer
    of 1 byte holds none back.
    """
    return (f"--build_event_json_file={path}", "--bes_outerr_buffer_size=1")


def read_events(path: Path) -> Iterator[Event]:
    """Yield the events of the file; skip lines that cannot be read.

    A build that was killed, or whose disk ran full, cuts the last line short, but the lines
    before it are still worth reading. A line of more than MOST characters is skipped whole.
    """
    with path.open(encoding="utf-8", errors="replace") as lines:
        while line := lines.readline(MOST):
            event = _parse_event(line)
            if event is not None:
                yield event


def _parse_event(line: str) -> Event | None:
    try:
        event = parse_json(line)
    except ValueError:
        return None
    return event if isinstance(event, dict) and isinstance(event.get("id"), dict) else None


def read_outcome(path: Path) -> BuildOutcome | None:
    """Read how the build ended. None without a file: Bazel ended before it wrote one.

    Read it before the next build, which uses the names of this one's stderr files again.
    """
    try:
        return build_outcome(read_events(path))
    except FileNotFoundError:
        return None


def build_outcome(events: Iterable[Event]) -> BuildOutcome:
    """Build the outcome of the events. A value of another type counts as missing."""
    failures: list[BuildFailure] = []
    causes: list[BuildFailure] = []  # of targets and of the build: used if no action failed
    finished: Event | None = None
    metrics: Event = {}
    runners: dict[str, int] = {}
    for event in events:
        failure = _parse_failure(event)
        if failure is not None:
            (failures if "completed" not in event else causes).append(failure)
        if "finished" in event:
            finished = _get_object(event, "finished")
            detail = _get_text(_get_object(finished, "failureDetail"), "message")
            causes += [BuildFailure(label="", kind="Build", message=detail)] if detail else []
        if "buildMetrics" in event:
            metrics = _get_object(event, "buildMetrics")
        if "buildToolLogs" in event:
            runners = _parse_processes(_get_object(event, "buildToolLogs"))
    exit_code = _get_object(finished or {}, "exitCode")
    actions = _get_object(metrics, "actionSummary")
    return BuildOutcome(
        finished=finished is not None,
        exit_code=_get_number(exit_code, "code"),
        exit_name=_get_text(exit_code, "name"),
        failures=tuple(failures or causes),
        actions_created=_get_number(actions, "actionsCreated"),
        actions_executed=_get_number(actions, "actionsExecuted"),
        runners=_count_runners(_get_objects(actions, "runnerCount")) or runners,
        seconds=_get_number(_get_object(metrics, "timingMetrics"), "wallTimeInMs") / 1000,
    )


def _parse_failure(event: Event) -> BuildFailure | None:
    identity = _get_object(event["id"], next(iter(event["id"]), ""))
    pattern = identity.get("pattern")
    words = map(str, pattern) if isinstance(pattern, list) else ()
    label = _get_text(identity, "label") or " ".join(words)
    if "action" in event and not _get_object(event, "action").get("success"):
        return _parse_failed_action(label, _get_object(event, "action"))
    aborted = _get_object(event, "aborted")
    reason = _get_text(aborted, "reason")
    if "aborted" in event and reason not in _CONSEQUENCES:
        message = _get_text(aborted, "description")
        # A failed analysis reports its reason in the event of the target, not here.
        if message or reason != "ANALYSIS_FAILURE":
            return BuildFailure(label=label, kind=reason or "UNKNOWN", message=message)
    status = _get_text(_get_object(event, "testSummary"), "overallStatus")
    if status in _TESTS_THAT_FAILED:
        return BuildFailure(label=label, kind=f"Test {status}")
    detail = _get_object(_get_object(event, "completed"), "failureDetail")
    if detail:
        return BuildFailure(label=label, kind="Target", message=_get_text(detail, "message"))
    return None


def _parse_failed_action(label: str, action: Event) -> BuildFailure:
    # In 4.2.3 `exitCode` is 1 for a program that a signal ended; the spawn has the real code.
    detail = _get_object(action, "failureDetail")
    spawned = _get_number(_get_object(detail, "spawn"), "spawnExitCode")
    return BuildFailure(
        label=label or _get_text(action, "label"),
        kind=_get_text(action, "type"),
        exit_code=spawned or _get_number(action, "exitCode"),
        message=_get_text(detail, "message"),
        stderr=_read_contents(_get_object(action, "stderr")),
    )


def _get_object(event: Event, name: str) -> Event:
    value = event.get(name)
    return value if isinstance(value, dict) else {}


def _get_objects(event: Event, name: str) -> list[Event]:
    value = event.get(name)
    return [entry for entry in value if isinstance(entry, dict)] if isinstance(value, list) else []


def _get_text(event: Event, name: str) -> str:
    value = event.get(name)
    return value if isinstance(value, str) else ""


def _get_number(event: Event, name: str) -> int:
    match = _NUMBER.fullmatch(str(event.get(name)))
    return int(match[0]) if match else 0


def _read_contents(file: Event) -> str:
    """Read a file of an event, from the event or from this machine; "" if it is gone."""
    data = b""
    with contextlib.suppress(OSError, ValueError, binascii.Error):
        if "contents" in file:
            data = base64.b64decode(_get_text(file, "contents"), validate=True)
        address = urlsplit(_get_text(file, "uri"))
        if address.scheme == "file" and (path := Path(unquote(address.path))).is_file():
            with path.open("rb") as stream:
                data = stream.read(_STDERR_B)
    return strip_colours(data[:_STDERR_B].decode(errors="replace"))


def strip_colours(text: str) -> str:
    """Remove the colours that compilers write even into files."""
    return _ANSI.sub("", text)


def _count_runners(runners: Iterable[Event]) -> dict[str, int]:
    """Return the counts of `runnerCount` without its entry "total", the sum of the others."""
    named = {_get_text(entry, "name"): _get_number(entry, "count") for entry in runners}
    return {name: count for name, count in named.items() if name not in {"", "total"}}


def _parse_processes(logs: Event) -> dict[str, int]:
    """Parse the log "process stats": "18 processes: 12 internal, 6 linux-sandbox."."""
    named = (log for log in _get_objects(logs, "log") if _get_text(log, "name") == "process stats")
    match = _PROCESSES.match(next((_read_contents(log).strip() for log in named), ""))
    parts = [part.partition(" ") for part in match[1].split(", ")] if match else []
    return {name: int(count) for count, _, name in parts if _NUMBER.fullmatch(count)}


@contextlib.contextmanager
def follow_events(path: Path, on_progress: Callable[[Progress], None]) -> Iterator[None]:
    """Report to `on_progress`, from a thread, the progress of the build inside the block.

    The build writes its events to `path`. The events of an earlier build are cut off first;
    the file stays, and so does its mode. Errors of the reporting end it, and never the build.
    """
    with contextlib.suppress(OSError):
        os.truncate(path, 0)
    ended = threading.Event()
    thread = threading.Thread(target=_report_progress, args=(path, on_progress, ended), daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join(_JOIN_S)


def _report_progress(
    path: Path, on_progress: Callable[[Progress], None], ended: threading.Event
) -> None:
    pace = Pace()
    with contextlib.suppress(Exception):
        for line in _read_lines(path, ended):
            progress = _parse_progress(
                _get_text(_get_object(_parse_event(line) or {}, "progress"), "stderr")
            )
            if progress is not None:
                on_progress(pace.update(time.monotonic(), *progress))


def _parse_progress(stderr: str) -> tuple[int, int, str] | None:
    """Return done, total and what runs, of the last progress line in Bazel's output."""
    for line in reversed(strip_colours(stderr).splitlines()):
        match = _PROGRESS.match(line)
        if match:
            done, total, detail = match.groups()
            return int(done.replace(",", "")), int(total.replace(",", "")), detail
    return None


def _read_lines(path: Path, ended: threading.Event) -> Iterator[str]:
    """Yield whole lines as they come, and the rest when `ended`."""
    while not path.exists():
        if ended.wait(_POLL_S):
            return
    with path.open("rb") as stream:
        partial = b""
        while True:
            last = ended.is_set()
            *lines, partial = (partial + stream.read()).split(b"\n")
            yield from (line.decode(errors="replace") for line in lines)
            if last:
                return
            ended.wait(_POLL_S)
