"""What the task calls: throughput at each batch size."""

from __future__ import annotations

import sys
from dataclasses import dataclass

from tfbench import options
from tfbench.arms.installs import Choice
from tfbench.cells import experiment, running
from tfbench.cells.cell import Cell, Outcome, gathered
from tfbench.costs import catalog
from tfbench.costs.machines import parse_mode
from tfbench.costs.prices import Price
from tfbench.inside import steps
from tfbench.inside.workloads import NAMES, PROGRAM, find, sized
from tfbench.measuring.host import read_host
from tfbench.throughput import results, text
from tfbench.throughput.results import Throughput
from tfbuild import settings, talk
from tfbuild.cpus.cpu import read_vcpus
from tfbuild.errors import UsageError
from tfbuild.records import pretty, save
from tfbuild.settings import Places

KIND = "throughput"
WORKLOAD = "resnet50"
WARM_UP, STEPS = 10, 100
"""Those of tf_cnn_benchmarks."""
_AUGMENTATION = {"off": (False,), "on": (True,), "both": (False, True)}


@dataclass(frozen=True, kw_only=True, slots=True)
class Wanted:
    """The options of `invoke throughput` as they were typed; an empty one means the default."""

    workloads: str = WORKLOAD
    workload: str = ""
    batches: str = "16,32,64"
    image: str = ""
    augmentation: str = "off"
    arms: str = ""
    vcpus: str = ""
    steps: str = str(STEPS)
    launches: str = "3"
    prices: str = ""
    machine: str = ""
    mode: str = ""
    region: str = ""
    out: str = ""
    seed: str = "1"


@dataclass(frozen=True, kw_only=True, slots=True)
class Question:
    """The same, read and checked. `program` is the path of a user's own workload; 0 stands for the
    batch that is its own."""

    workloads: tuple[str, ...]
    program: str
    batches: tuple[int, ...]
    augmentation: tuple[bool, ...]
    arms: tuple[str, ...]
    vcpus: tuple[int, ...]
    steps: int
    launches: int
    seed: int
    price: Price | None = None

    def cells(self) -> tuple[Cell, ...]:
        return tuple(
            self._cell(arm, workload, batch, augmented, launch)
            for launch in range(self.launches)
            for workload in self.workloads
            for batch in self.batches
            for augmented in self.augmentation
            for arm in self.arms
        )

    def _cell(self, arm: str, workload: str, batch: int, augmented: bool, launch: int) -> Cell:
        place = (("arm", arm), ("workload", workload), ("batch", batch), ("augmented", augmented))
        return Cell(
            arm=arm,
            place=place,
            launch=launch,
            module=steps.__name__,
            request={
                "workload": sized(workload, batch=batch) if batch else workload,
                "phase": steps.TRAIN,
                "augmented": augmented,
                "seed": self.seed,
                "warm_up": min(WARM_UP, self.steps),
                "steps": self.steps,
            },
            vcpus=self.vcpus,
            env=((PROGRAM, self.program),) if self.program else (),
        )


def measure_throughput(wanted: Wanted, *, as_json: bool = False) -> tuple[Throughput, str]:
    """Measure, write the result and its reports; the record and what to print of it.

    Raises UsageError, WheelError, DiskError.
    """
    places = settings.places()
    choices = experiment.choose_arms(wanted.arms, places)
    question = read(wanted, choices)
    with settings.exclusive(places.cache, "a measurement"):
        found = measure(question, choices, wanted.out, places)
    return found, pretty(found) if as_json else text.table(found, colour=sys.stdout.isatty())


def measure(
    question: Question, choices: tuple[Choice, ...], wanted_out: str, places: Places
) -> Throughput:
    """The result, written with its report. The caller holds the cache."""
    arms = experiment.install_arms(choices, places)
    asked = (question, experiment.wheels(arms))
    out = experiment.find_folder(KIND, asked, wanted_out, places)
    experiment.begin(KIND, asked, out)
    cells = question.cells()
    with talk.step(f"train {', '.join(question.workloads)}"):
        told = running.measure(cells, arms, out, seed=question.seed)
    seen = gathered(cells, told)
    answers = [answer for each in seen if each.outcome is Outcome.OK for answer in each.answers]
    found = Throughput(
        made=experiment.now(),
        host=read_host(),
        device=answers[0]["device"] if answers else "CPU",
        vcpus=len(question.vcpus),
        seed=question.seed,
        steps=question.steps,
        wheels=experiment.wheels(arms),
        rows=results.rows(seen),
        price=question.price,
    )
    experiment.write_report(
        out, text.document(found), places.templates, {text.KEY: text.figures(found)}
    )
    save(out / experiment.result_file(KIND), found)
    return found


def describe(wanted: Wanted) -> str:
    """What would be measured. Nothing is installed."""
    places = settings.places()
    question = read(wanted, experiment.choose_arms(wanted.arms, places))
    return (
        f"workloads    {', '.join(question.workloads)}\n"
        f"batches      {', '.join(map(str, question.batches))}\n"
        f"augmentation {wanted.augmentation}\n"
        f"arms         {', '.join(question.arms)}\n"
        f"vCPUs        {len(question.vcpus)}\n"
        f"processes    {len(question.cells())}, {question.steps} steps each\n"
        f"out          {wanted.out or places.new_report(KIND)}\n"
    )


def read(wanted: Wanted, choices: tuple[Choice, ...]) -> Question:
    """Raises UsageError."""
    if wanted.workload:
        return _read_own(wanted, choices)
    image = options.whole(wanted.image, "--image") if wanted.image else None
    names = tuple(
        options.workload(sized(name, image=image) if image else name)
        for name in options.workloads(wanted.workloads)
    )
    batches = options.counts(wanted.batches, "--batches")
    if not batches or 0 in batches:
        raise UsageError(f"--batches {wanted.batches} names no batch", hint="Try --batches 16,32")
    for name in names:
        for batch in batches:
            options.workload(sized(name, batch=batch))
    if wanted.augmentation not in _AUGMENTATION:
        raise UsageError(
            f"--augmentation {wanted.augmentation} is unknown",
            hint=f"Use {', '.join(_AUGMENTATION)}",
        )
    augmentation = _AUGMENTATION[wanted.augmentation]
    _need_images(names, augmentation)
    return _question(wanted, choices, names, batches, augmentation)


def _read_own(wanted: Wanted, choices: tuple[Choice, ...]) -> Question:
    name, path = options.own_file(wanted.workload)
    if wanted.augmentation != "off" or wanted.image:
        raise UsageError(
            "a workload of one's own is trained as it is", hint="Leave --image, --augmentation out"
        )
    return _question(wanted, choices, (name,), (0,), (False,), str(path))


def _question(
    wanted: Wanted,
    choices: tuple[Choice, ...],
    names: tuple[str, ...],
    batches: tuple[int, ...],
    augmentation: tuple[bool, ...],
    program: str = "",
) -> Question:
    affinity = read_host().affinity
    counts = options.vcpus(wanted.vcpus, read_vcpus().usable)
    return Question(
        workloads=names,
        program=program,
        batches=batches,
        augmentation=augmentation,
        arms=tuple(choice.spec.name for choice in choices),
        vcpus=affinity[: counts[0]] if counts else affinity,
        steps=options.whole(wanted.steps, "--steps"),
        launches=options.whole(wanted.launches, "--launches"),
        seed=options.whole(wanted.seed, "--seed", least=0),
        price=_price(wanted),
    )


def _need_images(names: tuple[str, ...], augmentation: tuple[bool, ...]) -> None:
    for name in names:
        if any(augmentation) and find(name).image is None:
            nets = ", ".join(each for each in NAMES if find(each).image is not None)
            raise UsageError(f"{name} takes no images to augment", hint=f"Use one of {nets}")


def _price(wanted: Wanted) -> Price | None:
    """What the named machine costs by the named book; None without a book. Raises UsageError."""
    prices, machine = wanted.prices, wanted.machine
    if not prices:
        if machine:
            raise UsageError(f"--machine {machine} needs prices", hint="Add --prices BOOK")
        return None
    book = catalog.find(prices, names=(machine,) if machine else ())
    if not machine:
        raise UsageError(
            "--prices needs a machine", hint=f"Add --machine, one of {', '.join(book.names)}"
        )
    return book.price(machine, region=wanted.region, mode=parse_mode(wanted.mode))
