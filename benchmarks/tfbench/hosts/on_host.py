"""Compares the wheels on one host: python3 on_host.py, in the folder with job.json.

Runs on the host alone, with Python's standard library. It writes outcome.json and the folder
`results` beside itself, and ends with 0 if it could write them. What takes long is kept in the
job's folder: Tensorwright with its environments, the wheels and the comparison, which a second call
continues. It stops when a process that started it is gone, as when a connection is lost.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

JOB, OUTCOME, RESULTS = "job.json", "outcome.json", "results"
CANNOT_RUN = (13, 21, 24)
"""Exit codes of `admit` for a wheel of another Python or CPU, and for one without kernels."""
KEPT = ("comparison.json", "report.html", "report.md", "report.csv", "samples.jsonl")
WATCH_S = 5.0
OLDEST = (3, 11)


class Failure(Exception):  # noqa: N818  (an outcome of a step, not a fault)
    """A step failed; the message is for the person who reads the report."""

    def __init__(self, step: str, message: str, code: int = 1) -> None:
        super().__init__(message)
        self.step, self.code = step, code


class Runner:
    """Runs Tensorwright's commands, one at a time, in a process group that `stop` ends."""

    def __init__(self, source: Path, env: dict[str, str], deadline: float | None) -> None:
        self._source, self._env, self._deadline = source, env, deadline
        self._process: subprocess.Popen[bytes] | None = None
        self.stopped = ""

    def run(self, name: str, *words: str) -> tuple[int, str]:
        """Run `./inv NAME WORDS`; return its exit status and what it printed last."""
        log = Path(RESULTS, f"{name}.log")
        with log.open("ab") as sink:
            self._process = subprocess.Popen(
                ["./inv", *words],
                cwd=str(self._source),
                env=self._env,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=sink,
                start_new_session=True,
            )
            left = None if self._deadline is None else max(self._deadline - time.monotonic(), 0.1)
            try:
                out, _ = self._process.communicate(timeout=left)
            except subprocess.TimeoutExpired:
                self.stop("the limit of this host is over")
                out, _ = self._process.communicate()
        if self.stopped:
            raise Failure(name, self.stopped)
        return self._process.returncode, out.decode("utf-8", "replace")

    def stop(self, reason: str) -> None:
        self.stopped = reason
        if self._process is not None and self._process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGTERM)
            try:
                self._process.wait(20)
            except subprocess.TimeoutExpired:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(self._process.pid, signal.SIGKILL)


def find_error(name: str) -> str:
    """Return the last error in a log, or its last line."""
    try:
        text = Path(RESULTS, f"{name}.log").read_text("utf-8", "replace")
    except OSError:
        return ""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("error: ")]
    return (errors or lines or [""])[-1][:1000]


def read_parents() -> list[int]:
    """Return the numbers of the processes that started this one, the nearest first."""
    parents: list[int] = []
    number = os.getppid()
    while number > 1:
        parents.append(number)
        try:
            status = Path(f"/proc/{number}/stat").read_text()
        except OSError:
            break
        number = int(status.rpartition(")")[2].split()[1])
    return parents


def watch_parents(runner: Runner) -> None:
    """Stop the runner when one of the processes that started this one is gone."""
    first = read_parents()

    def watch() -> None:
        while read_parents() == first:
            time.sleep(WATCH_S)
        runner.stop("the connection to this host was lost")

    threading.Thread(target=watch, daemon=True).start()


def verify(path: Path, sha256: str) -> None:
    """Raise Failure if the file has other bytes."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        for part in iter(lambda: file.read(1 << 20), b""):
            digest.update(part)
    if digest.hexdigest() != sha256:
        raise Failure("copy", f"{path.name} arrived with another checksum", 17)


def install_source(archive: dict[str, str], folder: Path) -> Path:
    """Unpack the archive of Tensorwright, unless that was done before."""
    target = folder / ("source-" + archive["sha256"][:16])
    if not target.is_dir():
        verify(Path(archive["file"]), archive["sha256"])
        part = folder / (target.name + ".part")
        shutil.rmtree(str(part), ignore_errors=True)
        with tarfile.open(archive["file"]) as packed:
            packed.extractall(str(part))  # noqa: S202  (our own archive, its checksum is right)
        part.rename(target)
    return target


def keep_wheel(wheel: dict[str, str], folder: Path) -> Path:
    """Move a wheel into the folder, under its checksum; return its path."""
    target = folder / "wheels" / wheel["sha256"][:16] / wheel["file"]
    if not target.is_file():
        verify(Path(wheel["file"]), wheel["sha256"])
        target.parent.mkdir(parents=True, exist_ok=True)
        part = target.with_suffix(".part")
        shutil.copyfile(wheel["file"], part)
        part.replace(target)
    return target


@contextlib.contextmanager
def lock(folder: Path) -> Iterator[None]:
    """Wait until no other comparison runs here: two at once would disturb each other."""
    with (folder / "lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def admit(runner: Runner, wheels: list[dict[str, str]], paths: list[Path]) -> dict[str, str]:
    """Test each wheel's kernels; return the reason for each wheel that cannot be used here."""
    refused: dict[str, str] = {}
    for wheel, path in zip(wheels, paths, strict=True):
        step = f"admit-{wheel['name']}"
        code, _ = runner.run(step, "admit", str(path))
        if code:
            reason = find_error(step)
            if code not in CANNOT_RUN:
                raise Failure(step, reason, code)
            refused[wheel["name"]] = reason
    return refused


def choose_vcpus(asked: list[int], usable: int) -> list[int]:
    """Return the numbers of vCPUs to measure: what was asked for, as far as the host has it."""
    fitting = [number for number in asked if number <= usable]
    if asked and not fitting:
        raise Failure("compare", f"vcpus = {asked}, but only {usable} are usable here", 2)
    return fitting or [usable]


def compare(job: dict[str, Any], folder: Path, outcome: dict[str, Any], runner: Runner) -> None:
    """Detect the CPU, test the wheels and compare those that run here."""
    code, text = runner.run("detect", "detect", "--json")
    if code:
        raise Failure("detect", find_error("detect"), code)
    detected = json.loads(text)
    outcome["cpu"], outcome["target"] = detected["cpu"]["name"], detected["match"]["best"]["name"]
    outcome["usable"] = usable_vcpus = detected["vcpus"]["usable"]
    wheels: list[dict[str, str]] = job["wheels"]
    paths = [keep_wheel(wheel, folder) for wheel in wheels]
    refused = admit(runner, wheels, paths)
    outcome["refused"] = sorted(refused.items())
    usable = [pair for pair in zip(wheels, paths, strict=True) if pair[0]["name"] not in refused]
    if not usable:
        return
    arms = ["stock", *(f"{wheel['name']}={path}" for wheel, path in usable)]
    vcpus = choose_vcpus(job["vcpus"], usable_vcpus)
    words = [*job["compare"], "--vcpus", ",".join(map(str, vcpus)), "--arms", ",".join(arms)]
    key = hashlib.sha256(json.dumps([job["name"], words]).encode()).hexdigest()[:16]
    run = folder / "runs" / key
    if not is_complete(run):
        code, _ = runner.run("compare", "compare", "--out", str(run), *words)
        if code:
            raise Failure("compare", find_error("compare"), code)
    for name in KEPT:
        if (run / name).is_file():
            shutil.copy(str(run / name), RESULTS)


def is_complete(run: Path) -> bool:
    try:
        return bool(json.loads((run / "comparison.json").read_text("utf-8"))["complete"])
    except (OSError, ValueError, KeyError):
        return False


def require_python() -> None:
    if sys.version_info < OLDEST:
        raise Failure(
            "start",
            f'Python {sys.version.split()[0]} is older than 3.11: name another with python = "…"',
            13,
        )


def work(job: dict[str, Any], outcome: dict[str, Any]) -> None:
    require_python()
    folder = Path(job["folder"]).expanduser()
    folder.mkdir(parents=True, exist_ok=True)
    deadline = time.monotonic() + job["limit_s"] if job["limit_s"] else None
    env = {
        **os.environ,
        "TENSORWRIGHT_CACHE": str(folder / "cache"),
        **job["environment"],
    }
    with lock(folder):
        runner = Runner(install_source(job["archive"], folder), env, deadline)
        watch_parents(runner)
        signal.signal(signal.SIGTERM, lambda *_: runner.stop("the scheduler ended the job"))
        compare(job, folder, outcome, runner)


def main() -> int:
    began = time.time()
    job: dict[str, Any] = json.loads(Path(JOB).read_text("utf-8"))
    Path(JOB).unlink()  # its variables are nobody else's business
    Path(RESULTS).mkdir(exist_ok=True)
    outcome: dict[str, Any] = {"schema": 1}
    try:
        work(job, outcome)
        outcome["status"] = "done"
    except Failure as failure:
        outcome.update(status="failed", step=failure.step, code=failure.code, reason=str(failure))
    except OSError as error:
        reason = f"{error.strerror or error} ({error.filename})"
        outcome.update(status="failed", step="files", code=18, reason=reason)
    outcome["seconds"] = time.time() - began
    for row in (job["archive"], *job["wheels"]):  # what ReFrame need not copy back
        with contextlib.suppress(OSError):
            Path(row["file"]).unlink()
    Path(OUTCOME).write_text(json.dumps(outcome, indent=2), "utf-8")
    print(outcome["status"], outcome.get("reason", ""), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
