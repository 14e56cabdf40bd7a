"""Program of the kit: workloads timed on a machine that has nothing of this project.

    python tensorwright-kit.pyz [--workloads …] [--launches …] [--out samples.jsonl]

It needs Python 3.10 or newer, NumPy, and TensorFlow, or Keras 3 with any backend
(KERAS_BACKEND=jax). Every launch is a process of its own; what it says is appended to the file as
it comes, and what stands there already is not measured again. `invoke kit --read FILE` reads it.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Container, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tfbench.inside import steps
from tfbench.inside.phases import AUGMENT, INFER, TRAIN, VALIDATE
from tfbench.inside.worker import only, serve_standard

SCHEMA = 1
SECONDS, LAUNCHES = 5.0, 3
LIMIT_S = 900.0


def main(arguments: Sequence[str] | None = None) -> None:
    given = sys.argv[1:] if arguments is None else list(arguments)
    if given == ["worker"]:
        serve_standard(only(steps.run))
        return
    options = _options(given)
    try:
        _measure(options)
    except KeyboardInterrupt:
        raise SystemExit("stopped. The same command goes on where this one was") from None


def _options(given: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="tensorwright-kit", description="Time Keras workloads on this machine."
    )
    add = parser.add_argument
    add("--workloads", default="six", help="names and sets (six, modern) with commas between")
    add("--phases", default="run", help="train,infer,…, or run: those of the 2017 training runs")
    add("--launches", type=int, default=LAUNCHES, help="processes per workload and phase")
    add("--seconds", type=float, default=SECONDS, help="timed steps of each, in seconds")
    add("--arm", default="", help="what this machine is called; its device by default")
    add("--seed", type=int, default=1)
    add("--out", type=Path, default=Path("samples.jsonl"))
    return parser.parse_args(given)


def _measure(options: argparse.Namespace) -> None:
    requests = list(planned(options.workloads, options.phases, options.launches))
    known = {_place(line) for line in read(options.out)}
    _say(f"{len(requests)} launches, what is known is not run again; results: {options.out}")
    began, done = time.monotonic(), 0
    for number, request in enumerate(requests, start=1):
        if _place(request) in known:
            continue
        answer = launch({**request, "seconds": options.seconds, "seed": options.seed})
        line = {**request, "schema": SCHEMA, "arm": options.arm, "host": host(), **answer}
        with options.out.open("a", encoding="utf-8") as sink:
            sink.write(json.dumps(line) + "\n")
        done += 1
        left = (time.monotonic() - began) / done * (len(requests) - number)
        _say(f"{number} of {len(requests)}  {_line(line)}  about {left:.0f} s left")
    _need_one({_place(request) for request in requests}, options.out)


def _need_one(places: Container[tuple[object, ...]], out: Path) -> None:
    """Exits with a line where no launch of these gave a time."""
    found = [line for line in read(out) if _place(line) in places]
    lost = [line for line in found if line["outcome"] != steps.OK]
    if lost and len(lost) == len(found):
        raise SystemExit(
            f"error: none of {len(found)} launches gave a time, the last: {_line(lost[-1])}. "
            "Mend that, and give another --out: what stands in this one is not run again"
        )


def planned(workloads: str, phases: str, launches: int) -> Iterator[dict[str, Any]]:
    """What is asked, launch by launch. Exits with a line for what there is not."""
    from tfbench.inside.workloads import UnknownWorkloadError, expanded, find  # noqa: PLC0415

    try:
        found = [find(name) for name in expanded(workloads.split(","))]
    except UnknownWorkloadError as error:
        raise SystemExit(f"error: {error}") from None
    named = () if phases == "run" else tuple(phases.split(","))
    for phase in named:
        if phase not in (TRAIN, INFER, VALIDATE, AUGMENT):
            raise SystemExit(f"error: there is no phase {phase!r}; use train,infer or run")
    for launch in range(launches):
        for workload in found:
            own = workload.schedule.phases
            for phase in named or own:
                if phase == INFER or phase in own:
                    yield {"workload": workload.name, "phase": phase, "launch": launch}


def launch(request: Mapping[str, Any]) -> dict[str, Any]:
    """One process. However it ends, there is an outcome."""
    words = json.dumps({"do": "run", "vcpus": [], "least": 10, **request}) + "\n"
    try:
        done = subprocess.run(  # (this file again, by this Python)
            [sys.executable, sys.argv[0], "worker"],
            input=words,
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return {"outcome": "took too long", "reason": f"no answer within {LIMIT_S:g} s"}
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode == 0 and lines:
        answer = json.loads(lines[-1])
        assert isinstance(answer, dict)  # noqa: S101  (steps answers with objects only)
        return answer
    said = [line for line in done.stderr.splitlines() if line.strip()]
    if done.returncode < 0:
        return {"outcome": "failed", "reason": f"ended by signal {-done.returncode}"}
    return {"outcome": "failed", "reason": said[-1] if said else f"exit code {done.returncode}"}


def host() -> dict[str, Any]:
    """What machine this is, as far as it says."""
    memory = 0
    if hasattr(os, "sysconf"):
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "cpu": _cpu(),
        "cpus": len(steps.affinity()),
        "memory_bytes": memory,
        "system": platform.platform(),
    }


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def read(path: Path) -> list[dict[str, Any]]:
    """Whole lines of an earlier run; half a line at its end is left out. Exits for a file of
    something else."""
    if not path.exists():
        return []
    try:
        lines = path.read_text(encoding="utf-8").split("\n")[:-1]
        found = [json.loads(line) for line in lines]
        schemas = {_place(each): each["schema"] for each in found}
        if all(schema == SCHEMA for schema in schemas.values()):
            return found
    except (ValueError, TypeError, KeyError, RecursionError):
        pass
    raise SystemExit(f"error: {path} is no file of this kit; give another --out")


def _place(line: Mapping[str, Any]) -> tuple[object, ...]:
    return line["workload"], line["phase"], line["launch"]


def _line(line: Mapping[str, Any]) -> str:
    what = f"{line['workload']} {line['phase']}"
    if line["outcome"] != steps.OK:
        return f"{what}: {line['outcome']}: {line['reason']}"
    times = line["step_s"]
    return f"{what}: {1000 * sum(times) / len(times):.2f} ms a step on {line['device']}"


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
