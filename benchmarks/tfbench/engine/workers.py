"""Worker processes. In every case a worker ends with its session."""

from __future__ import annotations

import contextlib
import json
import math
import os
import selectors
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any, Literal

from tfbench.arms.arm import Arm, build_environment
from tfbench.engine.endings import find_explanation
from tfbench.engine.schedule import draw_launch_order, draw_padding
from tfcore import settings
from tfcore.errors import DiskError, WorkerError
from tfcore.run import stop_group

WORKER = "tfbench.inside.worker"
PACKAGE = Path(__file__).resolve().parents[1]
"""The folder of the package `tfbench`, which the worker imports; -P excludes other folders."""
LOAD_LIMIT_S = 300.0
STEPS_LIMIT_S = 120.0


class Session:
    """A session of requests to one worker.

    Every failure is a WorkerError with the line of the worker's output that explains it.
    """

    def __init__(self, arm: Arm, process: subprocess.Popen[str], log: Path) -> None:
        self.arm = arm
        self._process = process
        self._log = log
        self._unread = b""

    @property
    def pid(self) -> int:
        return self._process.pid

    def start_load(
        self, workload: str, seed: int, vcpus: tuple[int, ...], *, nudged: bool = False
    ) -> None:
        """Start to load; `finish_load` reads the answer. All arms can load at the same time."""
        self.send("load", workload=workload, seed=seed, vcpus=vcpus, nudged=nudged)

    def finish_load(self, vcpus: tuple[int, ...]) -> dict[str, Any]:
        """Wait until the worker has loaded, and return its facts.

        Raises WorkerError if its TensorFlow is not from the arm's environment, its CPUs are not
        the requested ones, or the arm is tuned and its tuned kernels did not load.
        """
        facts = self.receive("load", LOAD_LIMIT_S)
        self.check_facts(facts, vcpus)
        return facts

    def check_facts(self, facts: Mapping[str, Any], vcpus: tuple[int, ...]) -> None:
        """Raise WorkerError if the worker's facts are not as `finish_load` requires."""
        require_own_tensorflow(self.arm, facts["tensorflow_file"])
        self._require_cpus(facts, vcpus)
        if self.arm.tuned and facts["kernel_library"] is None:
            raise self._create_error(
                "ran stock kernels: its tuned kernels did not load",
                hint="Build for this CPU with --arch native",
            )

    def _require_cpus(self, facts: Mapping[str, Any], vcpus: tuple[int, ...]) -> None:
        if tuple(facts["vcpus"]) != vcpus:
            raise self._create_error(f"got CPUs {facts['vcpus']}, not {list(vcpus)}")

    def start_check(self, steps: int) -> None:
        """Start the first steps; `finish_check` reads the answer."""
        self.send("check", steps=steps)

    def finish_check(self) -> dict[str, Any]:
        """Return the first losses, the predictions after them, and the time of these steps."""
        return self.receive("check", STEPS_LIMIT_S)

    def pin_cpus(self, vcpus: tuple[int, ...]) -> None:
        """Pin the worker to other CPUs, as many as it loaded on."""
        facts = self.request("settle", STEPS_LIMIT_S, vcpus=vcpus)
        self._require_cpus(facts, vcpus)

    def sample(self, phase: str, steps: int, together: int = 1) -> dict[str, Any]:
        """Take a sample: the worker's times and meters, and `elapsed_s` by our clock.

        Its slices consist of groups of `together` steps.

        Raises WorkerError for a time that is not a positive number.
        """
        began = time.monotonic()
        answer = self.request("sample", STEPS_LIMIT_S, phase=phase, steps=steps, together=together)
        for subject, name in (("a sample", "wall_s"), ("its canary", "canary_s")):
            seconds = answer[name]
            if not (math.isfinite(seconds) and seconds > 0):
                raise self._create_error(
                    f"reports {seconds} s for {subject}, which is not a positive time"
                )
        return answer | {"elapsed_s": time.monotonic() - began}

    def profile(self, steps: int) -> dict[str, Any]:
        return self.request("profile", STEPS_LIMIT_S, steps=steps)

    def read_peak_mb(self) -> float:
        return float(self.request("status", STEPS_LIMIT_S)["peak_mb"])

    def request(self, do: str, limit_s: float, **fields: object) -> dict[str, Any]:
        """Send a request and return its answer.

        Raises WorkerError if the worker ends, hangs or sends an invalid answer.
        """
        self.send(do, **fields)
        return self.receive(do, limit_s)

    def send(self, do: str, **fields: object) -> None:
        assert self._process.stdin is not None  # noqa: S101  (it is a pipe)
        try:
            self._process.stdin.write(json.dumps({"do": do, **fields}) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise self._create_end_error(do) from None

    def receive(self, do: str, limit_s: float) -> dict[str, Any]:
        line = self._read_line(do, time.monotonic() + limit_s, limit_s)
        try:
            answer = json.loads(line)
        except ValueError as error:
            raise self._create_error(f"answered {do} with {line[:80]!r}") from error
        assert isinstance(answer, dict)  # noqa: S101  (worker.py answers with objects only)
        return answer

    def _read_line(self, do: str, deadline: float, limit_s: float) -> bytes:
        assert self._process.stdout is not None  # noqa: S101  (it is a pipe)
        source = self._process.stdout.fileno()
        with selectors.DefaultSelector() as selector:
            selector.register(source, selectors.EVENT_READ)
            while b"\n" not in self._unread:
                if not selector.select(max(0.0, deadline - time.monotonic())):
                    raise self._create_error(f"did not answer {do} within {limit_s:g} s")
                chunk = os.read(source, 65536)
                if not chunk:
                    raise self._create_end_error(do)
                self._unread += chunk
        line, _, self._unread = self._unread.partition(b"\n")
        return line

    def _create_end_error(self, do: str) -> WorkerError:
        try:
            code = self._process.wait(5)
        except subprocess.TimeoutExpired:
            return self._create_error(f"closed its output during {do}")
        if code >= 0:
            return self._create_error(f"exited with {code} during {do}")
        name = _find_signal_name(-code)
        hint = (
            "Check the memory: Linux kills processes when it runs out" if name == "SIGKILL" else ""
        )
        return self._create_error(f"was ended by {name} during {do}", hint=hint)

    def _create_error(self, problem: str, *, hint: str = "") -> WorkerError:
        reason = find_explanation(self._log.read_text(encoding="utf-8", errors="replace"))
        return WorkerError(
            f"the worker of arm {self.arm.name} {problem} (its output: {self._log})"
            + (f": {reason}" if reason else ""),
            hint=hint,
            arm=self.arm.name,
        )


def _find_signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # (Python names only the first and the last of the real-time signals)
        return f"signal {number}"


def require_own_tensorflow(arm: Arm, file: str) -> None:
    """Raise WorkerError if the imported file is not in the arm's environment."""
    if not Path(file).is_relative_to(arm.prefix.resolve()):
        raise WorkerError(
            f"arm {arm.name} imported TensorFlow from {file}, "
            f"not from its environment {arm.prefix}",
            hint="Delete the arm's virtual environment and run the command again",
            arm=arm.name,
        )


def build_worker_environment(
    arm: Arm, vcpus: int, folder: Path, chance: Random | None = None
) -> dict[str, str]:
    """Build the environment of an arm's worker; its home is an empty folder in `folder`.

    `chance` draws the size of its padding. Raises DiskError.
    """
    home = folder / "home"
    try:
        home.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DiskError(f"cannot create {home}: {error.strerror}") from error
    size = draw_padding(chance) if chance else 0
    return build_environment(arm, vcpus=vcpus, home=home, padding=size, inherited=os.environ)


@contextlib.contextmanager
def start_session(
    arm: Arm,
    env: Mapping[str, str],
    log: Path,
    *,
    module: str = WORKER,
    mode: Literal["w", "a"] = "w",
) -> Iterator[Session]:
    """Start the arm's worker, and end its process group when the context ends.

    The worker runs `module`. `mode` "a" appends to the log of an earlier worker. The worker has
    its own process group, so Ctrl-C reaches only this process; if this process is killed, the
    worker is killed, too. Raises WorkerError if the worker does not start, DiskError if its log or
    its temporary folder cannot be created.
    """
    with _create_temporary() as folder:
        folders = {"TMPDIR": folder, "PYTHONPATH": str(settings.prepare_import_root(PACKAGE))}
        process = _start_process(arm, {**env, **folders}, log, module=module, mode=mode)
        try:
            yield Session(arm, process, log)
        finally:
            stop_group(process)
            for pipe in (process.stdin, process.stdout):
                with contextlib.suppress(BrokenPipeError):
                    if pipe is not None:
                        pipe.close()


@contextlib.contextmanager
def _create_temporary() -> Iterator[str]:
    """Create a folder for the worker's temporary files.

    TensorFlow (autograph/pyct/loader.py) removes its files when its process exits, but workers are
    killed. Raises DiskError.
    """
    try:
        folder = tempfile.TemporaryDirectory(prefix="tensorwright-", ignore_cleanup_errors=True)
    except OSError as error:
        raise DiskError(f"cannot create a temporary folder: {error.strerror}") from error
    with folder as path:
        yield path


def _start_process(
    arm: Arm, env: Mapping[str, str], log: Path, *, module: str, mode: Literal["w", "a"]
) -> subprocess.Popen[str]:
    try:
        log.parent.mkdir(parents=True, exist_ok=True)
        output = log.open(mode, encoding="utf-8")
    except OSError as error:
        raise DiskError(f"cannot write {log}: {error.strerror}") from error
    with output as sink:
        try:
            return subprocess.Popen(
                [str(arm.python), "-P", "-m", module, str(os.getpid())],
                env=env,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=sink,
                text=True,
                start_new_session=True,
            )
        except OSError as error:
            raise WorkerError(
                f"the worker of arm {arm.name} did not start: {arm.python}: {error.strerror}",
                arm=arm.name,
            ) from error


@contextlib.contextmanager
def start_sessions(
    arms: Sequence[Arm],
    vcpus: Sequence[int],
    chance: Random,
    log: Path,
    *,
    module: str = WORKER,
    mode: Literal["w", "a"] = "w",
) -> Iterator[dict[str, Session]]:
    """Start the workers of all arms in random order, and yield their sessions by name.

    Each has its own log: `log` followed by the arm's name. No request is sent yet. Raises
    WorkerError if one does not start, DiskError.
    """
    sessions: dict[str, Session] = {}
    with contextlib.ExitStack() as stack:
        for arm in draw_launch_order(arms, chance):
            worker_env = build_worker_environment(arm, len(vcpus), log.parent, chance)
            path = log.with_name(f"{log.name}-{arm.name.replace(' ', '-')}.log")
            worker = start_session(arm, worker_env, path, module=module, mode=mode)
            sessions[arm.name] = stack.enter_context(worker)
        yield {arm.name: sessions[arm.name] for arm in arms}
