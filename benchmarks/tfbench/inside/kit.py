"""Program of the kit: it times workloads on a machine without Tensorwright.

    python tensorwright-kit.pyz [--workloads …] [--launches …] [--out samples.jsonl]

It needs Python 3.10 or newer, NumPy, and TensorFlow, or Keras 3 with any backend
(KERAS_BACKEND=jax). Every launch is a separate process. Its result is appended to the file at once,
and launches that the file contains are not measured again. `invoke kit --read FILE` reads the file.
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
from tfbench.inside.worker import create_responder, serve_standard

SCHEMA = 1
SECONDS, LAUNCHES = 5.0, 3
LIMIT_S = 900.0


def main(arguments: Sequence[str] | None = None) -> None:
    words = sys.argv[1:] if arguments is None else list(arguments)
    if words == ["worker"]:
        serve_standard(create_responder(steps.run))
        return
    options = _parse_options(words)
    try:
        _measure(options)
    except KeyboardInterrupt:
        raise SystemExit("stopped; run the same command again to continue") from None


def _parse_options(words: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="tensorwright-kit", description="Time Keras workloads on this machine."
    )
    add = parser.add_argument
    add("--workloads", default="six", help="comma-separated workloads and sets (six, modern)")
    add("--phases", default="run", help="train,infer,… or run: the phases of a 2017 training run")
    add("--launches", type=int, default=LAUNCHES, help="processes per workload and phase")
    add("--seconds", type=float, default=SECONDS, help="seconds of timed steps per process")
    add("--arm", default="", help="name of this machine; default: its device")
    add("--seed", type=int, default=1)
    add("--out", type=Path, default=Path("samples.jsonl"))
    return parser.parse_args(words)


def _measure(options: argparse.Namespace) -> None:
    known = read_launches(options.out)
    _require_same_options(options, known)
    same = {"arm": options.arm, "seconds": options.seconds, "seed": options.seed}
    planned = plan_launches(options.workloads, options.phases, options.launches)
    requests = [{**request, **same} for request in planned]
    measured = {_build_key(line) for line in known}
    missing = [request for request in requests if _build_key(request) not in measured]
    _print_status(f"{len(missing)} of {len(requests)} launches to run; results: {options.out}")
    began = time.monotonic()
    for number, request in enumerate(missing, start=1):
        line = {**request, "schema": SCHEMA, "host": describe_host(), **run_launch(request)}
        with options.out.open("a", encoding="utf-8") as sink:
            sink.write(json.dumps(line) + "\n")
        remaining_s = (time.monotonic() - began) / number * (len(missing) - number)
        _print_status(
            f"{number} of {len(missing)}  {_format_line(line)}  about {remaining_s:.0f} s left"
        )
    _require_result({_build_key(request) for request in requests}, options.out)


def _require_same_options(options: argparse.Namespace, known: Sequence[Mapping[str, Any]]) -> None:
    """Exit with an error message if the file has launches of other lengths or another seed.

    Older kits did not record them.
    """
    for name in ("seconds", "seed"):
        value = getattr(options, name)
        others = [line[name] for line in known if line.get(name, value) != value]
        if others:
            raise SystemExit(
                f"error: {options.out} has launches with --{name} {others[0]}; use that, or give "
                "another --out"
            )


def _require_result(keys: Container[tuple[object, ...]], out: Path) -> None:
    """Exit with an error message if all of the requested launches failed."""
    lines = [line for line in read_launches(out) if _build_key(line) in keys]
    failures = [line for line in lines if line["outcome"] != steps.OK]
    if failures and len(failures) == len(lines):
        raise SystemExit(
            f"error: all {len(lines)} launches failed; the last: {_format_line(failures[-1])}. "
            "Fix that and give another --out: launches in this file are not run again"
        )


def plan_launches(workloads: str, phases: str, launches: int) -> Iterator[dict[str, Any]]:
    """Yield the requests of all launches.

    Exits with an error message for an unknown workload or phase.
    """
    from tfbench.inside.workloads import UnknownWorkloadError, expand_names, find_workload

    try:
        selected = [find_workload(name) for name in expand_names(workloads.split(","))]
    except UnknownWorkloadError as error:
        raise SystemExit(f"error: {error}") from None
    named = () if phases == "run" else tuple(phases.split(","))
    for phase in named:
        if phase not in (TRAIN, INFER, VALIDATE, AUGMENT):
            raise SystemExit(f"error: unknown phase {phase!r}; use train,infer or run")
    for launch in range(launches):
        for workload in selected:
            supported = workload.schedule.phases
            for phase in named or supported:
                if phase == INFER or phase in supported:
                    yield {"workload": workload.name, "phase": phase, "launch": launch}


def run_launch(request: Mapping[str, Any]) -> dict[str, Any]:
    """Run one launch in a separate process; return its answer, which always has an outcome."""
    request_line = json.dumps({"do": "run", "vcpus": [], "least": 10, **request}) + "\n"
    try:
        process = subprocess.run(  # (this file, with this Python)
            [sys.executable, sys.argv[0], "worker"],
            input=request_line,
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return {"outcome": "took too long", "reason": f"no answer within {LIMIT_S:g} s"}
    lines = [line for line in process.stdout.splitlines() if line.startswith("{")]
    if process.returncode == 0 and lines:
        answer = json.loads(lines[-1])
        assert isinstance(answer, dict)  # noqa: S101  (steps answers with objects only)
        return answer
    errors = [line for line in process.stderr.splitlines() if line.strip()]
    if process.returncode < 0:
        return {"outcome": "failed", "reason": f"ended by signal {-process.returncode}"}
    return {
        "outcome": "failed",
        "reason": errors[-1] if errors else f"exit code {process.returncode}",
    }


def describe_host() -> dict[str, Any]:
    """Return facts of this machine."""
    memory = 0
    if hasattr(os, "sysconf"):
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "cpu": _read_cpu_name(),
        "cpus": len(steps.read_affinity()),
        "memory_bytes": memory,
        "system": platform.platform(),
    }


def _read_cpu_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def read_launches(path: Path) -> list[dict[str, Any]]:
    """Return the launches of an earlier run, without an incomplete last line.

    Exits with an error message if the file is not one of the kit.
    """
    if not path.exists():
        return []
    try:
        lines = path.read_text(encoding="utf-8").split("\n")[:-1]
        launches = [json.loads(line) for line in lines]
        schemas = {_build_key(entry): entry["schema"] for entry in launches}
        if all(schema == SCHEMA for schema in schemas.values()):
            return launches
    except (ValueError, TypeError, KeyError, RecursionError):
        pass
    raise SystemExit(f"error: {path} is not a file of this kit; give another --out")


def _build_key(line: Mapping[str, Any]) -> tuple[object, ...]:
    return line["workload"], line["phase"], line["launch"], line["arm"]


def _format_line(line: Mapping[str, Any]) -> str:
    title = f"{line['workload']} {line['phase']}"
    if line["outcome"] != steps.OK:
        return f"{title}: {line['outcome']}: {line['reason']}"
    times = line["step_s"]
    return f"{title}: {1000 * sum(times) / len(times):.2f} ms per step on {line['device']}"


def _print_status(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
