"""Profiles of programs on the stock wheel: the time of each call site."""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tfbench.arms.arm import Arm
from tfbench.engine.workers import PACKAGE, build_worker_environment
from tfbench.inside import call_sites, timing
from tfbench.inside.call_sites import CallSite, CallSiteInput
from tfbench.inside.step_parts import StepParts
from tfbench.inside.workloads import PROGRAM
from tfbench.options import Subject, hash_path
from tfcore import settings
from tfcore.errors import CommandError, RecordError, UsageError, WorkerError
from tfcore.records import decode_record, hash_record, load, save
from tfcore.run import run

SCHEMA = 1
WORTH = 0.0001
"""Call sites with a smaller share of their program's op time are dropped."""
_LIMIT_S = 900.0
_READ = "ReadVariableOp"
_OF_ROWS = {"ResourceGather", *timing.UPDATING_ROWS}
_OF_ALL = {"AssignAddVariableOp", "AssignSubVariableOp"}


@dataclass(frozen=True, kw_only=True, slots=True)
class ProfiledCallSite:
    """A call site with its calls and seconds per step."""

    place: CallSite
    calls: float
    seconds: float


@dataclass(frozen=True, kw_only=True, slots=True)
class ProfiledProgram:
    """The profile of a workload, or of a user's model by its file's name.

    `step_s` is a step without the profiler, `op_s` are seconds per step by op type with it.
    Older records have no `parts` of the step, and no hash of a user's file.
    """

    name: str
    sha256: str = ""
    steps: int
    step_s: float
    parameters: int
    op_s: Mapping[str, float]
    places: tuple[ProfiledCallSite, ...]
    parts: StepParts | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Profile:
    """The profiles of programs on one CPU and one TensorFlow, with `vcpus` threads."""

    schema: int = SCHEMA
    made: str
    cpu: str
    release: str
    vcpus: int
    programs: tuple[ProfiledProgram, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class RankedCallSite:
    """A call site over all programs.

    `share` is its share of their op time, with equal weights; `most` is its largest share in one
    program; `call_s` is the seconds of one call in the program that calls it most.
    """

    key: str
    place: CallSite
    share: float
    most: float
    call_s: float


def read_profile(path: Path) -> Profile:
    """Read a profile. Raises RecordError if the file is not one."""
    try:
        profile = decode_record(Profile, load(path, schema=SCHEMA))
        for program in profile.programs:
            _check_program(program)
    except (TypeError, ValueError, KeyError) as error:
        raise RecordError(f"{path} is not a valid profile ({error})") from error
    return profile


def _check_program(program: ProfiledProgram) -> None:
    """Raise ValueError if a call site takes no time or is never called."""
    for row in program.places:
        if not (row.calls > 0 and row.seconds > 0):
            raise ValueError(f"invalid time of {row.place.op}: {row.seconds} s, {row.calls} calls")


def rank_call_sites(profile: Profile) -> tuple[RankedCallSite, ...]:
    """Rank the call sites of all programs, those that take longest first."""
    shares: dict[str, list[float]] = defaultdict(list)
    calls: dict[str, ProfiledCallSite] = {}
    for program in profile.programs:
        total = sum(row.seconds for row in program.places)
        for row in adjust_row_variables(merge_varying_sizes(program.places)):
            key = hash_record(row.place)
            shares[key].append(row.seconds / total)
            calls[key] = max(row, calls.get(key, row), key=lambda candidate: candidate.calls)
    sites = (
        RankedCallSite(
            key=key,
            place=row.place,
            share=sum(shares[key]) / len(profile.programs),
            most=max(shares[key]),
            call_s=row.seconds / row.calls,
        )
        for key, row in calls.items()
    )
    return tuple(sorted(sites, key=lambda site: (-site.share, site.key)))


def merge_varying_sizes(rows: Sequence[ProfiledCallSite]) -> Iterator[ProfiledCallSite]:
    """Merge call sites whose size differs in each step, such as a batch's distinct words.

    They become one call site of the median size, with all calls; else each size would be too
    rare to matter.
    """
    varying: dict[str, list[ProfiledCallSite]] = defaultdict(list)
    for row in rows:
        if row.calls < 1:
            varying[_hash_without_sizes(row.place)].append(row)
        else:
            yield row
    for similar in varying.values():
        similar.sort(key=lambda row: (_count_elements(row.place), row.place.shapes))
        yield replace(
            similar[len(similar) // 2],
            calls=math.fsum(row.calls for row in similar),
            seconds=math.fsum(row.seconds for row in similar),
        )


def _hash_without_sizes(site: CallSite) -> str:
    """Hash what call sites that differ only in sizes have in common; a variable keeps its size."""
    inputs = tuple(
        site_input
        if site_input.variable
        else replace(site_input, shape=(0,) * len(site_input.shape), values=None)
        for site_input in site.inputs
    )
    return hash_record(replace(site, inputs=inputs))


def _count_elements(site: CallSite) -> int:
    return sum(math.prod(site_input.shape) for site_input in site.inputs)


def adjust_row_variables(rows: Iterable[ProfiledCallSite]) -> Iterator[ProfiledCallSite]:
    """Adjust the call sites of variables whose rows are read or updated, so that they are timed
    as such (inside.timing).

    Stock TensorFlow copies such a variable from then on, at every read and before every
    update of the whole (tensorflow/core/kernels/training_op_helpers.h). So updates of the
    whole are marked, and reads count for the updates of rows, which are timed with one.
    """
    all_rows = tuple(rows)
    updates, reads = (
        defaultdict[CallSiteInput, float](float),
        defaultdict[CallSiteInput, float](float),
    )
    sparse = {_get_variable(row.place) for row in all_rows if row.place.op in _OF_ROWS} - {None}
    for row in all_rows:
        variable = _get_variable(row.place)
        if variable and row.place.op in timing.UPDATING_ROWS:
            updates[variable] += row.calls
        elif variable and row.place.op == _READ:
            reads[variable] += row.seconds
    for row in all_rows:
        site, variable = row.place, _get_variable(row.place)
        if variable and site.op in timing.UPDATING_ROWS:
            read_s = reads[variable] * row.calls / updates[variable]
            yield replace(row, seconds=row.seconds + read_s)
        elif site.op in _OF_ALL and variable in sparse:
            marked = {**site.attributes, timing.BY_ROWS: "b: true"}
            yield replace(row, place=replace(site, attributes=marked))
        elif site.op != _READ or variable not in updates:
            yield row


def _get_variable(site: CallSite) -> CallSiteInput | None:
    """Return the variable that an op works on, if the trace shows it."""
    return site.inputs[0] if site.inputs and site.inputs[0].variable else None


def profile_program(
    arm: Arm, program: Subject, vcpus: tuple[int, ...], *, steps: int, logs: Path
) -> ProfiledProgram:
    """Run a workload, or the model in a user's file, in the arm under TensorFlow's profiler.

    Raises UsageError if the file cannot be used, and WorkerError if the process fails.
    """
    name, file = program
    sha256 = "" if file is None else hash_path(file)
    label = name.replace(":", "-").replace("/", "-")
    request, answer = logs / f"{label}.request", logs / f"{label}.answer"
    save(request, {"workload": name, "seed": 1, "vcpus": vcpus, "steps": steps})
    env = build_worker_environment(arm, len(vcpus), logs)
    env |= {"PYTHONPATH": str(settings.prepare_import_root(PACKAGE))}
    env |= {} if file is None else {PROGRAM: str(file)}
    try:
        run(
            [arm.python, "-P", "-m", call_sites.__name__, request, answer],
            env=env,
            log=logs / f"{label}.log",
            timeout_s=_LIMIT_S,
        )
    except CommandError as error:
        raise WorkerError(f"{name} could not be profiled: {error.message}", arm=arm.name) from error
    result = json.loads(answer.read_text(encoding="utf-8"))
    if "problem" in result:
        raise UsageError(f"{file}: {result['problem']}")
    least = WORTH * sum(result["op_s"].values())
    result["places"] = [row for row in result["places"] if row["seconds"] >= least]
    fields = ("steps", "step_s", "parameters", "op_s", "places", "parts")
    measured = {key: result[key] for key in fields}
    return decode_record(ProfiledProgram, {"name": name, "sha256": sha256} | measured)
