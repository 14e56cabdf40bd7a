"""What the task calls: forms of fit timed, and the terms that they give."""

from __future__ import annotations

import sys
from dataclasses import dataclass

from tfbench import options
from tfbench.arms.installs import Choice
from tfbench.cells import experiment, running
from tfbench.cells.cell import Cell, Outcome, Seen, gathered
from tfbench.inside import fitting
from tfbench.inside.fitting import Form
from tfbench.inside.workload import BATCHES
from tfbench.inside.workloads import PROGRAM, is_own
from tfbench.measuring.host import read_host
from tfbench.measuring.statistics import FEWEST_LAUNCHES
from tfbench.overhead import results, terms, text
from tfbench.overhead.results import Overhead
from tfbuild import settings, talk
from tfbuild.cpus.cpu import read_vcpus
from tfbuild.errors import WorkerError
from tfbuild.records import plain, pretty, save
from tfbuild.settings import Places

KIND = "overhead"
WORKLOAD = "iris_mlp"
EPOCHS, STEPS = 20, 6
"""Of the article's script: 105 irises in batches of 20, 20 times. Others have BATCHES."""
ROUNDS = 5


@dataclass(frozen=True, kw_only=True, slots=True)
class Wanted:
    """The options of `invoke overhead` as they were typed; an empty one means the default."""

    workload: str = WORKLOAD
    arms: str = ""
    device: str = ""
    epochs: str = str(EPOCHS)
    vcpus: str = ""
    launches: str = "5"
    out: str = ""
    seed: str = "1"


@dataclass(frozen=True, kw_only=True, slots=True)
class Question:
    """The same, read and checked. `forms` are what is timed, the script's own first."""

    workload: str
    program: str
    arms: tuple[str, ...]
    device: str
    forms: tuple[Form, ...]
    vcpus: tuple[int, ...]
    launches: int
    seed: int

    def cells(self) -> tuple[Cell, ...]:
        return tuple(
            Cell(
                arm=arm,
                place=(("arm", arm), ("device", self.device or "CPU")),
                launch=launch,
                module=fitting.__name__,
                request={
                    "workload": self.workload,
                    "seed": self.seed + launch,
                    "rounds": ROUNDS,
                    "device": self.device,
                    "forms": plain(self.forms),
                },
                vcpus=self.vcpus,
                env=self._env(),
            )
            for launch in range(self.launches)
            for arm in self.arms
        )

    def _env(self) -> tuple[tuple[str, str], ...]:
        own = ((PROGRAM, self.program),) if is_own(self.workload) else ()
        # An empty list hides every GPU, which other experiments want.
        seen = (("CUDA_VISIBLE_DEVICES", "0"),) if "GPU" in self.device.upper() else ()
        return (*own, *seen)


def measure_overhead(wanted: Wanted, *, as_json: bool = False) -> tuple[Overhead, str]:
    """Time the fits, write the result and its reports; the record and what to print of it.

    Raises UsageError, WheelError, WorkerError, DiskError.
    """
    places = settings.places()
    choices = experiment.choose_arms(wanted.arms, places)
    question = read(wanted, choices)
    with settings.exclusive(places.cache, "a measurement"):
        found = measure(question, choices, wanted.out, places)
    return found, pretty(found) if as_json else text.table(found, colour=sys.stdout.isatty())


def measure(
    question: Question, choices: tuple[Choice, ...], wanted_out: str, places: Places
) -> Overhead:
    """The result, written with its report. The caller holds the cache."""
    arms = experiment.install_arms(choices, places)
    asked = (question, experiment.wheels(arms))
    out = experiment.find_folder(KIND, asked, wanted_out, places)
    experiment.begin(KIND, asked, out)
    cells = question.cells()
    with talk.step(f"fit {question.workload} in {talk.count(len(question.forms), 'form')}"):
        told = running.measure(cells, arms, out, seed=question.seed)
    seen = gathered(cells, told)
    found = Overhead(
        made=experiment.now(),
        host=read_host(),
        workload=question.workload,
        vcpus=len(question.vcpus),
        seed=question.seed,
        wheels=experiment.wheels(arms),
        answers=tuple(
            results.answered(each, question.forms) for each in seen if each.outcome is Outcome.OK
        ),
        marks=tuple(_mark(each) for each in seen if each.outcome is not Outcome.OK),
    )
    if not found.answers:
        raise WorkerError(f"no fit could be timed: {found.marks[0][1]}")
    figures = {text.KEY: text.figures(found)}
    experiment.write_report(out, text.document(found), places.templates, figures)
    save(out / experiment.result_file(KIND), found)
    return found


def describe(wanted: Wanted) -> str:
    """What would be timed. Nothing is installed."""
    places = settings.places()
    choices = experiment.choose_arms(wanted.arms, places)
    question = read(wanted, choices)
    forms = "".join(
        f"  {each.epochs} x fit of repeat({each.repeat}), "
        f"steps_per_execution={each.steps_per_execution}\n"
        for each in question.forms
    )
    return (
        f"workload   {question.workload}\n"
        f"arms       {', '.join(question.arms)}\n"
        f"vCPUs      {len(question.vcpus)}\n"
        f"launches   {question.launches}, {ROUNDS} rounds each of\n{forms}"
        f"out        {wanted.out or places.new_report(KIND)}\n"
    )


def read(wanted: Wanted, choices: tuple[Choice, ...]) -> Question:
    """Raises UsageError."""
    workload, program = options.subject(wanted.workload)
    affinity = read_host().affinity
    steps = STEPS if workload == WORKLOAD else BATCHES
    counts = options.vcpus(wanted.vcpus, read_vcpus().usable)
    return Question(
        workload=workload,
        program=str(program or ""),
        arms=tuple(choice.spec.name for choice in choices),
        device=wanted.device,
        forms=tuple(terms.forms(options.whole(wanted.epochs, "--epochs", least=2), steps)),
        vcpus=affinity[: counts[0]] if counts else affinity,
        launches=options.whole(wanted.launches, "--launches", least=FEWEST_LAUNCHES),
        seed=options.whole(wanted.seed, "--seed", least=0),
    )


def _mark(seen: Seen) -> tuple[str, str]:
    return str(seen.place["arm"]), f"{seen.outcome.value}: {seen.reason}"
