"""`invoke flags`: a wheel per variant of the compiler's flags, each timed beside stock."""

from __future__ import annotations

import dataclasses
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from tfbench import options
from tfbench.arms import installs, lineup
from tfbench.kernels import selecting, variants
from tfbench.kernels.front import PROFILED
from tfbench.kernels.judging import RATE, Timed
from tfbench.kernels.known import Memory, identity
from tfbench.kernels.offer import Offer, read_offer
from tfbench.kernels.profiles import Spot, read_profile, spots
from tfbench.kernels.selecting import RESULT, Setting
from tfbench.kernels.timings import Bench
from tfbench.kernels.variants import Variant
from tfbench.measuring.host import Host, read_host
from tfbench.measuring.schedule import FEWEST_LAUNCHES
from tfbuild import front, settings, talk
from tfbuild.cpus import flags
from tfbuild.cpus.cpu import read_cpu, read_vcpus
from tfbuild.errors import UsageError
from tfbuild.planning.request import Request, plan_for
from tfbuild.planning.selection import Choice, Selection
from tfbuild.records import pretty, save

VARIANTS = "-O3; -mprefer-vector-width=256; -mprefer-vector-width=512"


@dataclass(frozen=True, kw_only=True, slots=True)
class ToSearch:
    """The options of `invoke flags` as they were typed. `request` says what is built, `variants`
    are flags with semicolons between; the target's own alone come first. `budget` is in minutes."""

    request: Request
    variants: str = VARIANTS
    profile: str = ""
    vcpus: str = "1"
    launches: str = "4"
    budget: str = ""
    seed: str = "1"
    out: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Asked:
    """Options that were looked at."""

    request: Request
    tries: tuple[tuple[str, ...], ...]
    spots: tuple[Spot, ...]
    threads: tuple[int, ...]
    launches: int
    seed: int
    budget_s: float | None


def search(wanted: ToSearch, *, as_json: bool) -> tuple[Selection, str]:
    """Build, time, choose: a selection of all kernels that were timed, with the flags of each
    source, for `invoke build --selection`, and what to print of it.

    What was timed is kept, so an interrupted search goes on where it was.
    """
    asked, places, host = _ask(wanted), settings.places(), read_host()
    out = Path(wanted.out) if wanted.out else places.new_report("flags")
    tried: list[Variant] = []
    kept: dict[Choice, str] = {}
    began, offer = time.monotonic(), None
    for words in asked.tries:
        spent = time.monotonic() - began
        if tried and asked.budget_s and spent * (1 + 1 / len(tried)) > asked.budget_s:
            talk.note(f"the time is up: {_called(words)} and what follows is not tried")
            break
        talk.say(f"variant {len(tried) + 1} of {len(asked.tries)}: {_called(words)}")
        request = dataclasses.replace(asked.request, flags=" ".join(words))
        wheel = front.build_wheel(request, keep_going=True).wheel
        offer = read_offer(wheel.resolve(), read_cpu())
        timed = _timed(offer, asked, host, out / str(len(tried) + 1))
        tried.append(Variant(flags=words, saved=variants.saved(timed, offer.units)))
        kept |= {each.choice: offer.units[each.choice] for each in timed}
    assert offer is not None  # noqa: S101  (there is a first variant)
    chosen = variants.fastest(tried, RATE)
    selection = _selection(offer, chosen, kept, host)
    save(out / RESULT, selection)
    talk.note(f"selection: {out / RESULT}")
    return selection, pretty(selection) if as_json else _described(chosen, out / RESULT)


def describe(wanted: ToSearch) -> str:
    """What would be built and timed. Nothing is done."""
    asked = _ask(wanted)
    return "".join(
        f"variant {number}: build with {_called(words)}, time its kernels with "
        f"{' and '.join(map(str, asked.threads))} threads in {asked.launches} launches\n"
        for number, words in enumerate(asked.tries, 1)
    )


def _ask(wanted: ToSearch) -> _Asked:
    """Raises UsageError, CompilerError, RecordError."""
    if wanted.request.flags or wanted.request.selection:
        raise UsageError("--flags and --selection are what is looked for here")
    words = [flags.extra_flags(text) for text in wanted.variants.split(";")]
    tries = tuple(dict.fromkeys([(), *words]))
    if len(tries) < 2:  # noqa: PLR2004  (one and another)
        raise UsageError("--variants names none", hint=f"Try --variants '{VARIANTS}'")
    # By their names, so that no selection of the hot kernels brings flags of its own.
    plan, _ = plan_for(wanted.request)
    kernels = ",".join(unit.name for unit in plan.kernels)
    return _Asked(
        request=dataclasses.replace(wanted.request, kernels=kernels),
        tries=tries,
        spots=spots(read_profile(Path(wanted.profile) if wanted.profile else PROFILED)),
        threads=options.vcpus(wanted.vcpus, read_vcpus().usable) or (1,),
        launches=options.whole(wanted.launches, "--launches", least=FEWEST_LAUNCHES),
        seed=options.whole(wanted.seed, "--seed", least=0),
        budget_s=60 * options.positive(wanted.budget, "--budget") if wanted.budget else None,
    )


def _called(words: tuple[str, ...]) -> str:
    return " ".join(words) or "the target's flags alone"


def _timed(offer: Offer, asked: _Asked, host: Host, out: Path) -> tuple[Timed, ...]:
    """The wheel's kernels at the profile's places; from the cache what is known."""
    places = settings.places()
    served = selecting.served_by(offer, asked.spots)
    if not served:
        raise UsageError(
            f"no kernel of {offer.wheel.name} serves a place of the profile",
            hint="Name others with --kernels, or give the --profile that it is for",
        )
    with settings.exclusive(places.cache, "a search of flags"):
        choices = installs.choose(lineup.read_lineup(), str(offer.wheel), places)
        stock, tuned = installs.install(choices, places)
        setting = Setting(
            cpu=host.cpu.name,
            arms=(stock, tuned),
            spots=tuple(each.spot.key for each in served),
            threads=asked.threads,
            launches=asked.launches,
            rate=RATE,
            seed=asked.seed,
            budget_s=None,
        )
        memory = Memory(folder=places.cache / "timings", cpu=identity(host.cpu))
        bench = Bench(stock=stock, tuned=tuned, cpus=host.affinity, out=out)
        selecting.begin(setting, out)
        _, found, _ = selecting.searched(setting, served, offer, memory, bench)
    return selecting.timed_of(served, asked.threads, found)


def _selection(
    offer: Offer, chosen: dict[str, Variant], kept: dict[Choice, str], host: Host
) -> Selection:
    """Of the units that have a variant."""
    found = {
        source: variant.flags
        for unit, variant in chosen.items()
        for source in offer.sources[unit]
        if variant.flags
    }
    return Selection(
        made=datetime.now(UTC).isoformat(timespec="seconds"),
        cpu=host.cpu.name,
        release=offer.release,
        target=offer.library.target,
        plan_key=offer.library.plan_key,
        rate=RATE,
        kernels=tuple(sorted(chosen)),
        flags=found,
        kept=tuple(sorted(choice for choice, unit in kept.items() if unit in chosen)),
        rows=(),
    )


def _described(chosen: dict[str, Variant], path: Path) -> str:
    lines = [
        f"{unit:<28}  {_called(variant.flags)}"
        for unit, variant in sorted(chosen.items())
        if variant.flags
    ]
    rest = sum(not variant.flags for variant in chosen.values())
    return "\n".join(
        (
            *lines,
            f"{rest} of {talk.count(len(chosen), 'unit')}: the target's flags alone are as fast.",
            f"Build it: invoke build --selection {path}. Then invoke select keeps what wins.",
            "",
        )
    )
