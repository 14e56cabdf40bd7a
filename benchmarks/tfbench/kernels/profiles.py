"""Where the time of some programs goes, call site by call site, on the stock wheel."""

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
from tfbench.options import Subject
from tfbuild import settings
from tfbuild.errors import CommandError, RecordError, UsageError, WorkerError
from tfbuild.records import decode_record, hash_record, load, save
from tfbuild.run import run

SCHEMA = 1
WORTH = 0.0001
"""A call site with less of its program's op time is not kept."""
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
    """A workload, or a user's model by its file's name. `step_s` is a step without the profiler,
    `op_s` are seconds per step by op type with it. Older records have no `parts` of the step."""

    name: str
    steps: int
    step_s: float
    parameters: int
    op_s: Mapping[str, float]
    places: tuple[ProfiledCallSite, ...]
    parts: StepParts | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Profile:
    """Programs on one CPU and one TensorFlow, with `vcpus` threads."""

    schema: int = SCHEMA
    made: str
    cpu: str
    release: str
    vcpus: int
    programs: tuple[ProfiledProgram, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class RankedCallSite:
    """A call site over all programs: `share` of their op time, each weighing the same, `most` in
    the one where it is largest, and the seconds of one call where it is called most."""

    key: str
    place: CallSite
    share: float
    most: float
    call_s: float


def read_profile(path: Path) -> Profile:
    """Raises RecordError for a file that is none."""
    try:
        found = decode_record(Profile, load(path, schema=SCHEMA))
        for program in found.programs:
            _check(program)
    except (TypeError, ValueError, KeyError) as error:
        raise RecordError(f"{path} is no profile ({error})") from error
    return found


def _check(program: ProfiledProgram) -> None:
    """Raises ValueError for call sites that take no time, or are never called."""
    for row in program.places:
        if not (row.calls > 0 and row.seconds > 0):
            raise ValueError(f"{row.place.op} takes {row.seconds} s in {row.calls} calls")


def ranked_call_sites(profile: Profile) -> tuple[RankedCallSite, ...]:
    """The call sites of all programs, the ones that take longest first."""
    shares: dict[str, list[float]] = defaultdict(list)
    calls: dict[str, ProfiledCallSite] = {}
    for each in profile.programs:
        total = sum(row.seconds for row in each.places)
        for row in of_rows(gathered(each.places)):
            key = hash_record(row.place)
            shares[key].append(row.seconds / total)
            calls[key] = max(row, calls.get(key, row), key=lambda found: found.calls)
    found = (
        RankedCallSite(
            key=key,
            place=row.place,
            share=sum(shares[key]) / len(profile.programs),
            most=max(shares[key]),
            call_s=row.seconds / row.calls,
        )
        for key, row in calls.items()
    )
    return tuple(sorted(found, key=lambda site: (-site.share, site.key)))


def gathered(rows: Sequence[ProfiledCallSite]) -> Iterator[ProfiledCallSite]:
    """The same where what has another size in each step, such as a batch's distinct words, is one
    call site: that of the middle size, with all calls. Else each size would be too rare to
    matter."""
    varying: dict[str, list[ProfiledCallSite]] = defaultdict(list)
    for row in rows:
        if row.calls < 1:
            varying[_sketch(row.place)].append(row)
        else:
            yield row
    for alike in varying.values():
        alike.sort(key=lambda row: (_elements(row.place), row.place.shapes))
        yield replace(
            alike[len(alike) // 2],
            calls=math.fsum(row.calls for row in alike),
            seconds=math.fsum(row.seconds for row in alike),
        )


def _sketch(site: CallSite) -> str:
    """What call sites that differ in sizes only have in common; a variable keeps its size."""
    inputs = tuple(
        each if each.variable else replace(each, shape=(0,) * len(each.shape), values=None)
        for each in site.inputs
    )
    return hash_record(replace(site, inputs=inputs))


def _elements(site: CallSite) -> int:
    return sum(math.prod(each.shape) for each in site.inputs)


def of_rows(rows: Iterable[ProfiledCallSite]) -> Iterator[ProfiledCallSite]:
    """The same where a variable whose rows are read or updated is timed as such (inside.timing).

    Stock TensorFlow copies it from then on, at every read and before every update of the whole
    (tensorflow/core/kernels/training_op_helpers.h). So updates of the whole are marked, and reads
    count for the updates of rows, which are timed with one.
    """
    every = tuple(rows)
    updates, reads = (
        defaultdict[CallSiteInput, float](float),
        defaultdict[CallSiteInput, float](float),
    )
    sparse = {_variable(row.place) for row in every if row.place.op in _OF_ROWS} - {None}
    for row in every:
        variable = _variable(row.place)
        if variable and row.place.op in timing.UPDATING_ROWS:
            updates[variable] += row.calls
        elif variable and row.place.op == _READ:
            reads[variable] += row.seconds
    for row in every:
        site, variable = row.place, _variable(row.place)
        if variable and site.op in timing.UPDATING_ROWS:
            own = reads[variable] * row.calls / updates[variable]
            yield replace(row, seconds=row.seconds + own)
        elif site.op in _OF_ALL and variable in sparse:
            marked = {**site.attributes, timing.BY_ROWS: "b: true"}
            yield replace(row, place=replace(site, attributes=marked))
        elif site.op != _READ or variable not in updates:
            yield row


def _variable(site: CallSite) -> CallSiteInput | None:
    """The variable that an op works on, if the trace tells which."""
    return site.inputs[0] if site.inputs and site.inputs[0].variable else None


def profiled(
    arm: Arm, program: Subject, vcpus: tuple[int, ...], *, steps: int, logs: Path
) -> ProfiledProgram:
    """Run a workload, or the model in a user's file, in the arm under TensorFlow's profiler.

    Raises UsageError for a file that cannot be used, WorkerError when the process fails.
    """
    name, file = program
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
    found = json.loads(answer.read_text(encoding="utf-8"))
    if "problem" in found:
        raise UsageError(f"{file}: {found['problem']}")
    least = WORTH * sum(found["op_s"].values())
    found["places"] = [row for row in found["places"] if row["seconds"] >= least]
    kept = ("steps", "step_s", "parameters", "op_s", "places", "parts")
    return decode_record(ProfiledProgram, {"name": name} | {key: found[key] for key in kept})
