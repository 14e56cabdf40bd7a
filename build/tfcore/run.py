"""Runs all subprocesses: argv as a list, stdout and stderr merged, a log, no orphans."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import shutil
import signal
import subprocess
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tfcore.errors import CommandError, TimeLimitError, ToolError
from tfcore.records import write_atomic

TAIL_LINES = 20
GRACE_S = 5.0
_NAME = re.compile(r"[A-Za-z_]\w*", re.ASCII)


@dataclass(frozen=True, kw_only=True, slots=True)
class Completed:
    """The result of a finished program: its merged output and how long it took."""

    argv: tuple[str, ...]
    returncode: int
    output: str
    seconds: float


def resolve_program(program: str, env: Mapping[str, str] | None = None) -> str:
    """Return the program's absolute path.

    Raises ToolError if it is not on PATH.
    """
    path = (os.environ if env is None else env).get("PATH")
    executable = shutil.which(program, path=path)
    if executable is None:
        raise ToolError(f"{program} is not installed", hint="Run: invoke doctor")
    return executable


def run(
    argv: Sequence[str | Path],
    *,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    log: Path | None = None,
    timeout_s: float | None = None,
    check: bool = True,
    on_line: Callable[[str], None] | None = None,
    on_start: Callable[[int], None] | None = None,
) -> Completed:
    """Run a program to its end and return its merged stdout and stderr.

    `env` replaces the whole environment. With `log`, the output is also written there as it
    comes, and a failure leaves `<log>.sh`, which runs the same command again. A timeout and
    Ctrl-C end the whole process group; `on_start` gets its number, with which another thread can
    kill it. Raises ToolError, TimeLimitError, or, with `check`, CommandError.
    """
    words = tuple(str(word) for word in argv)
    program = resolve_program(words[0], env)
    started = time.monotonic()
    lines: list[str] = []
    expired = threading.Event()
    with contextlib.ExitStack() as stack:
        sink = None
        if log is not None:
            log.parent.mkdir(parents=True, exist_ok=True)
            sink = stack.enter_context(log.open("w", encoding="utf-8"))
        process = stack.enter_context(_start_process(program, words, cwd, env))
        if on_start is not None:
            on_start(process.pid)
        if timeout_s is not None:
            timer = threading.Timer(timeout_s, _expire, (process.pid, expired))
            timer.daemon = True
            stack.callback(timer.cancel)
            timer.start()
        assert process.stdout is not None  # noqa: S101  (stdout=PIPE)
        for line in process.stdout:
            lines.append(line)
            if sink is not None:
                sink.write(line)
                sink.flush()
            if on_line is not None:
                on_line(line.rstrip("\n"))
        returncode = process.wait()
    done = Completed(
        argv=words,
        returncode=returncode,
        output="".join(lines),
        seconds=time.monotonic() - started,
    )
    if log is not None and (expired.is_set() or (check and returncode)):
        _write_script(log, words, cwd, env)
    if expired.is_set():
        raise TimeLimitError(_format_failure(done, log, f"exceeded its limit of {timeout_s:g} s"))
    if check and returncode:
        raise CommandError(_format_failure(done, log, _describe_exit(returncode)))
    return done


@contextlib.contextmanager
def _start_process(
    program: str, words: Sequence[str], cwd: Path | None, env: Mapping[str, str] | None
) -> Iterator[subprocess.Popen[str]]:
    try:
        process = subprocess.Popen(
            [program, *words[1:]],
            cwd=cwd,
            env=None if env is None else dict(env),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        )
    except OSError as error:
        raise ToolError(f"cannot start {program}: {error.strerror}") from error
    try:
        yield process
    except BaseException:
        # Even if the program has ended, its children may still run.
        stop_group(process)
        raise
    finally:
        if process.stdout is not None:
            process.stdout.close()


def stop_group(process: subprocess.Popen[str]) -> None:
    """Terminate the whole process group: SIGTERM, and after GRACE_S SIGKILL."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(GRACE_S)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _expire(group: int, expired: threading.Event) -> None:
    expired.set()
    kill_group(group)


def kill_group(group: int) -> None:
    """Kill a process group that `run` has started, if it still runs."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(group, signal.SIGKILL)


def _describe_exit(returncode: int) -> str:
    if returncode >= 0:
        return f"exited with {returncode}"
    return f"was ended by {signal.Signals(-returncode).name}"


def _format_failure(done: Completed, log: Path | None, outcome: str) -> str:
    tail = "\n".join(deque(done.output.splitlines(), TAIL_LINES))
    location = f" (whole output: {log})" if log is not None else ""
    shown = f":\n{tail}" if tail.strip() else ""
    return f"{Path(done.argv[0]).name} {outcome}{location}{shown}"


def _write_script(
    log: Path, words: Sequence[str], cwd: Path | None, env: Mapping[str, str] | None
) -> None:
    """Write a script that repeats the failed command.

    Only variables that we set are written: an inherited environment can hold secrets.
    """
    inherited = os.environ
    target_env = inherited if env is None else env
    dropped = [
        name for name in sorted(inherited) if name not in target_env and _NAME.fullmatch(name)
    ]
    changed = {name: value for name, value in target_env.items() if inherited.get(name) != value}
    text = ["#!/bin/sh", f"cd {shlex.quote(str(cwd or Path.cwd()))} || exit 1"]
    text += ["unset " + " ".join(dropped)] if dropped else []
    text += [f"export {name}={shlex.quote(value)}" for name, value in sorted(changed.items())]
    text += ["exec " + shlex.join(words), ""]
    script = log.with_name(log.name + ".sh")
    write_atomic(script, "\n".join(text))
    script.chmod(0o755)
