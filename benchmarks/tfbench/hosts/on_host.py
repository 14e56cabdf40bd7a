"""Compares the wheels on one host: start.sh runs it in the folder with job.json.

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
WORKED = (0, 25, 26)
"""Exit codes of `compare` with a result: also if a wheel failed, or computes something else."""
KEPT = ("comparison.json", "report.html", "report.md", "report.csv", "samples.jsonl")
LOCK, LOCK_FILE = "TENSORWRIGHT_FLEET_LOCK", "/tmp/tensorwright-fleet.lock"  # noqa: S108
"""The file that comparisons on one machine lock, and the variable that names another one."""
TICK_S = 2.0
OLD_S = 30 * 24 * 3600.0
"""A run that nobody continued for so long is deleted."""


class Failure(Exception):  # noqa: N818  (an outcome of a step, not a fault)
    """A step failed; the message is for the person who reads the report."""

    def __init__(self, step: str, message: str, code: int = 1) -> None:
        super().__init__(message)
        self.step, self.code = step, code


class Runner:
    """Runs Tensorwright's commands, one at a time, each in a process group that `stop` ends."""

    def __init__(self) -> None:
        self._lock = threading.RLock()  # (a signal may come at any time)
        self._process: subprocess.Popen[bytes] | None = None
        self._stopped = ""

    def check(self, step: str) -> None:
        """Raise Failure if the runner was stopped."""
        if self._stopped:
            raise Failure(step, self._stopped)

    def run(
        self, step: str, source: Path, env: dict[str, str], deadline: float | None, *words: str
    ) -> tuple[int, str]:
        """Run `./inv WORDS`, log to STEP.log; return its exit status and what it printed."""
        with Path(RESULTS, f"{step}.log").open("ab") as sink:
            with self._lock:
                self.check(step)
                process = self._process = subprocess.Popen(
                    ["./inv", *words],
                    cwd=source,
                    env=env,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=sink,
                    start_new_session=True,
                )
            if self._stopped:
                self.stop(self._stopped)
            left = None if deadline is None else max(deadline - time.monotonic(), 0.1)
            try:
                out, _ = process.communicate(timeout=left)
            except subprocess.TimeoutExpired:
                self.stop("the limit of this host is over")
                out, _ = process.communicate()
        self.check(step)
        return process.returncode, out.decode("utf-8", "replace")

    def stop(self, reason: str) -> None:
        """End what runs, and start nothing more."""
        with self._lock:
            self._stopped = self._stopped or reason
            process = self._process
        if process is None or process.poll() is not None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


def find_error(step: str) -> str:
    """Return the last error in a log, or its last line."""
    try:
        text = Path(RESULTS, f"{step}.log").read_text("utf-8", "replace")
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
            status = Path(f"/proc/{number}/stat").read_text("utf-8", "replace")
        except OSError:
            break
        number = int(status.rpartition(")")[2].split()[1])
    return parents


def watch_parents(runner: Runner) -> None:
    """Stop the runner when one of the processes that started this one is gone."""
    first = read_parents()

    def watch() -> None:
        while read_parents() == first:
            time.sleep(TICK_S)
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
    """Unpack the archive of Tensorwright, unless that was done before; delete other ones."""
    target = folder / ("source-" + archive["sha256"][:16])
    for old in folder.glob("source-*"):
        if old != target:
            shutil.rmtree(old, ignore_errors=True)
    if not target.is_dir():
        verify(Path(archive["file"]), archive["sha256"])
        part = folder / "source-part"
        with tarfile.open(archive["file"]) as packed:
            packed.extractall(part)  # noqa: S202  (our own archive, its checksum is right)
        part.rename(target)
    return target


def keep_wheels(wheels: list[dict[str, str]], folder: Path) -> list[Path]:
    """Copy the wheels into the folder, each under its checksum, and delete others there."""
    targets = [folder / wheel["sha256"][:16] / wheel["file"] for wheel in wheels]
    for old in folder.glob("*"):
        if old not in {target.parent for target in targets}:
            shutil.rmtree(old, ignore_errors=True)
    for wheel, target in zip(wheels, targets, strict=True):
        if not target.is_file():
            verify(Path(wheel["file"]), wheel["sha256"])
            target.parent.mkdir(parents=True, exist_ok=True)
            part = target.with_suffix(".part")
            shutil.copyfile(wheel["file"], part)
            part.replace(target)
    return targets


def delete_leftovers(folder: Path) -> None:
    """Delete the folders that ReFrame left here in earlier calls, and old runs."""
    listed = folder / "stages"
    here = str(Path.cwd())
    known = listed.read_text("utf-8").splitlines() if listed.is_file() else []
    for name in known:
        if name != here and Path(name).name.startswith("rfm."):
            shutil.rmtree(name, ignore_errors=True)
    listed.write_text(here + "\n", "utf-8")
    for run in (folder / "runs").glob("*"):
        if time.time() - run.stat().st_mtime > OLD_S:
            shutil.rmtree(run, ignore_errors=True)


@contextlib.contextmanager
def lock(paths: list[Path], runner: Runner) -> Iterator[None]:
    """Wait until no other comparison runs here: two at once would disturb each other."""
    with contextlib.ExitStack() as stack:
        for path in paths:
            flags = os.O_RDONLY | os.O_NOFOLLOW
            try:
                number = os.open(path, flags | os.O_CREAT, 0o644)
            except PermissionError:  # (a file of another user)
                number = os.open(path, flags)
            stack.callback(os.close, number)
            while True:
                runner.check("wait")
                with contextlib.suppress(BlockingIOError):
                    fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                time.sleep(TICK_S / 4)
        yield


def choose_vcpus(asked: list[int], usable: int) -> list[int]:
    """Return the numbers of vCPUs to measure: what was asked for, as far as the host has it."""
    fitting = [number for number in asked if number <= usable]
    if asked and not fitting:
        raise Failure("compare", f"vcpus = {asked}, but only {usable} are usable here", 2)
    return fitting or [usable]


def is_complete(run: Path) -> bool:
    try:
        return bool(json.loads((run / "comparison.json").read_text("utf-8"))["complete"])
    except (OSError, ValueError, KeyError):
        return False


class HostJob:
    """The steps of a job on this host; `outcome` is what they find."""

    def __init__(
        self, job: dict[str, Any], folder: Path, runner: Runner, outcome: dict[str, Any]
    ) -> None:
        self.job, self.folder, self.runner, self.outcome = job, folder, runner, outcome
        self.deadline = time.monotonic() + job["limit_s"] if job["limit_s"] else None
        self.source = install_source(job["archive"], folder)
        self.env = {
            **os.environ,
            "PYTHON": sys.executable,
            "TENSORWRIGHT_CACHE": str(folder / "cache"),
            **job["environment"],
        }

    def run(self, step: str, *words: str) -> tuple[int, str]:
        return self.runner.run(step, self.source, self.env, self.deadline, *words)

    def detect(self) -> None:
        code, text = self.run("detect", "detect", "--json")
        if code:
            raise Failure("detect", find_error("detect"), code)
        found = json.loads(text)
        self.outcome["cpu"] = found["cpu"]["name"]
        self.outcome["target"] = found["match"]["best"]["name"]
        self.outcome["usable"] = found["vcpus"]["usable"]

    def admit(self, wheels: list[dict[str, str]], paths: list[Path]) -> dict[str, str]:
        """Test each wheel's kernels; return the reason for each wheel that cannot be used here."""
        refused: dict[str, str] = {}
        for wheel, path in zip(wheels, paths, strict=True):
            step = f"admit-{wheel['name']}"
            code, _ = self.run(step, "admit", str(path))
            if code in CANNOT_RUN:
                refused[wheel["name"]] = find_error(step)
            elif code:
                raise Failure(step, find_error(step), code)
        return refused

    def compare(self) -> None:
        """Detect the CPU, test the wheels and compare those that run here."""
        self.detect()
        wheels: list[dict[str, str]] = self.job["wheels"]
        paths = keep_wheels(wheels, self.folder / "wheels")
        refused = self.admit(wheels, paths)
        self.outcome["refused"] = sorted(refused.items())
        arms = [
            f"{wheel['name']}={path}"
            for wheel, path in zip(wheels, paths, strict=True)
            if wheel["name"] not in refused
        ]
        if not arms:
            return
        vcpus = choose_vcpus(self.job["vcpus"], self.outcome["usable"])
        words = [
            *self.job["compare"],
            *("--vcpus", ",".join(map(str, vcpus)), "--arms", ",".join(["stock", *arms])),
        ]
        run = self.folder / "runs" / self.compute_key(words)
        code = 0
        if not is_complete(run):
            code, _ = self.run("compare", "compare", "--out", str(run), *words)
        for name in KEPT:
            if (run / name).is_file():
                shutil.copy(run / name, RESULTS)
        if code not in WORKED or not is_complete(run):
            raise Failure("compare", find_error("compare"), code)

    def compute_key(self, words: list[str]) -> str:
        """Return the name of the run's folder. Another fleet, CPU or environment is another run."""
        facts = [self.job["fleet"], self.job["archive"]["sha256"], self.job["environment"], words]
        facts += [self.outcome["cpu"], self.outcome["target"]]
        return hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:16]


def work(job: dict[str, Any], outcome: dict[str, Any]) -> None:
    runner = Runner()
    watch_parents(runner)
    signal.signal(signal.SIGTERM, lambda *_: runner.stop("the scheduler ended the job"))
    folder = Path(job["folder"]).expanduser() / job["name"]
    folder.mkdir(parents=True, exist_ok=True)
    machine = Path(job["environment"].get(LOCK, LOCK_FILE))
    with lock([machine, folder / "lock"], runner):
        delete_leftovers(folder)
        HostJob(job, folder, runner, outcome).compare()


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
    except Exception as error:  # noqa: BLE001  (whatever it is, the host must answer)
        reason = f"{type(error).__name__}: {error}"
        outcome.update(status="failed", step="on_host.py", code=1, reason=reason)
    outcome["seconds"] = time.time() - began
    for row in (job["archive"], *job["wheels"]):  # what ReFrame need not copy back
        with contextlib.suppress(OSError):
            Path(row["file"]).unlink()
    part = Path(OUTCOME + ".part")
    part.write_text(json.dumps(outcome, indent=2), "utf-8")
    part.replace(OUTCOME)
    print(outcome["status"], outcome.get("reason", ""), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
