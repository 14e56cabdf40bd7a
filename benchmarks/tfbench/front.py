"""What the tasks call: options in, text out."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from packaging.tags import parse_tag
from packaging.version import Version

from tfbench import report
from tfbench.arms import Arm
from tfbench.comparison import COMPARISON, QUICK, THOROUGH, check_cells, compare
from tfbench.results import Comparison, Effort
from tfbench.results import load as load_comparison
from tfbench.workloads import WORKLOADS
from tfbuild import detect, doctor, environment, releases, settings, talk, tuned, wheel
from tfbuild import front as builds
from tfbuild.cpu import read_cpu, read_vcpus
from tfbuild.download import Pin
from tfbuild.errors import HostError, UsageError, WheelError
from tfbuild.records import pretty, write_atomic
from tfbuild.request import Request
from tfbuild.settings import Places

QUICK_WORKLOADS = ("mnist_mlp", "lstm_text")
QUICKSTART = Effort(launches=4, blocks=20, budget_s=62.0)
MARKDOWN = "report.md"


@dataclass(frozen=True, kw_only=True, slots=True)
class Wanted:
    """The options of `invoke compare` as they were typed; an empty one means the default."""

    candidate: str = ""
    baseline: str = "stock"
    workloads: str = "all"
    vcpus: str = ""
    out: str = ""
    thorough: bool = False
    seed: str = "1"


@dataclass(frozen=True, kw_only=True, slots=True)
class Pair:
    """The wheels to compare; without a baseline the stock wheel of the candidate's release."""

    candidate: Path
    baseline: Path | None


def compare_wheels(
    wanted: Wanted, *, dry_run: bool = False, as_json: bool = False, effort: Effort | None = None
) -> str:
    """Measure, write samples, comparison and report, and return the table."""
    places = settings.places()
    pair = _pair(wanted, places)
    names = _workloads(wanted.workloads)
    usable = read_vcpus().usable
    vcpus = _numbers(wanted.vcpus, "--vcpus") or (usable,)
    check_cells(names, vcpus, usable)
    (seed,) = _numbers(wanted.seed, "--seed") or (1,)
    out = Path(wanted.out) if wanted.out else places.reports / _stamp()
    if dry_run:
        baseline = pair.baseline or "the stock wheel of the same release"
        return (
            f"baseline   {baseline}\ncandidate  {pair.candidate}\n"
            f"workloads  {', '.join(names)}\nvCPUs      {', '.join(map(str, vcpus))}\n"
            f"out        {out}\n"
        )
    with settings.exclusive(places.cache, "a comparison"):
        arms = _arms(pair, places)
        with talk.step(f"compare {', '.join(names)}"), talk.counting("launches", 1) as count:
            comparison = compare(
                arms,
                names,
                vcpus=vcpus,
                out=out,
                effort=effort or (THOROUGH if wanted.thorough else QUICK),
                seed=seed,
                on_progress=count.advance,
            )
    return _answer(comparison, out, places, as_json=as_json)


def _answer(comparison: Comparison, out: Path, places: Places, *, as_json: bool) -> str:
    page = out / MARKDOWN
    write_atomic(page, report.markdown(comparison, places.templates))
    if as_json:
        return pretty(comparison)
    return f"{report.table(comparison, colour=sys.stdout.isatty())}\nreport: {page}\n"


def _stamp() -> str:
    return datetime.now(UTC).strftime("%Y%m%d-%H%M%S")


def _workloads(text: str) -> tuple[str, ...]:
    return tuple(WORKLOADS) if text == "all" else tuple(word.strip() for word in text.split(","))


def _numbers(text: str, option: str) -> tuple[int, ...]:
    words = [word.strip() for word in text.split(",") if word.strip()]
    if not all(word.isdigit() for word in words):
        raise UsageError(f"{option} {text} is not a list of numbers", hint=f"Try {option} 1,2")
    return tuple(int(word) for word in words)


def _pair(wanted: Wanted, places: Places) -> Pair:
    candidate = _existing(wanted.candidate) if wanted.candidate else newest_runnable(places)
    facts = tuned.read_tuned(candidate)
    if facts is not None:
        tuned.need_runnable(candidate, facts, read_cpu())
    baseline = None if wanted.baseline == "stock" else _existing(wanted.baseline)
    return Pair(candidate=candidate, baseline=baseline)


def _existing(text: str) -> Path:
    path = Path(text).expanduser()
    if not path.is_file():
        raise WheelError(f"there is no wheel {path}", hint="Give the path of a .whl file")
    return path.resolve()


def newest_runnable(places: Places) -> Path:
    """The wheel of the pool that was built last among those that this CPU can run."""
    cpu = read_cpu()
    found = sorted(places.pool.glob("*.whl"), key=lambda path: path.stat().st_mtime, reverse=True)
    for path in found:
        facts = tuned.read_tuned(path)
        if facts is not None and not tuned.lacking(facts, cpu):
            return path
    if found:
        raise HostError(
            f"none of the {len(found)} wheels in {places.pool} runs on this CPU",
            hint="Build one for it: invoke build --arch native",
        )
    raise WheelError(f"there is no wheel in {places.pool} yet", hint="Make one: invoke build")


def _arms(pair: Pair, places: Places) -> tuple[Arm, Arm]:
    """The two environments, each with its wheel and the same locked dependencies."""
    baseline = pair.baseline or _stock(pair.candidate, places)
    name = "stock" if pair.baseline is None else "baseline"
    return _arm(name, baseline, places), _arm("tuned", pair.candidate, places)


def _stock(candidate: Path, places: Places) -> Path:
    stock = _stock_wheel(candidate)
    requirement = f"{stock.package}=={stock.version}"
    pin = Pin(name=stock.file, sha256=stock.sha256, size=stock.size)
    return environment.fetch_wheel(requirement, pin, places)


def _stock_wheel(path: Path) -> releases.StockWheel:
    """The published wheel that a wheel was made from, or is."""
    identity = wheel.read_identity(path)
    release = releases.find_release(Version(identity.version).public)
    tags = parse_tag(identity.tags[0])
    interpreter = next(iter(tags)).interpreter
    machine = "aarch64" if identity.tags[0].endswith("aarch64") else "x86_64"
    return releases.stock_wheel(release, identity.name, interpreter, machine)


def _arm(name: str, path: Path, places: Places) -> Arm:
    stock = _stock_wheel(path)
    version = f"{stock.python_tag[2]}.{stock.python_tag[3:]}"
    lock = releases.dependency_lock(stock).name
    with talk.step(f"environment of {name}: {path.name}"):
        made = environment.create(path, python=version, lock=lock, places=places)
    return Arm(
        name=name,
        python=made.python,
        label=path.name,
        wheel_sha256=made.wheel_sha256,
        tuned=tuned.read_tuned(path) is not None,
    )


def report_again(path: str, *, as_json: bool) -> str:
    """The table of a comparison that was measured before, and its report written anew."""
    places = settings.places()
    found = Path(path) if path else _newest(places)
    if found.is_dir():
        found = found / COMPARISON
    return _answer(load_comparison(found), found.parent, places, as_json=as_json)


def _newest(places: Places) -> Path:
    every = sorted(places.reports.glob(f"*/{COMPARISON}"), key=lambda path: path.stat().st_mtime)
    if not every:
        raise UsageError("no comparison was measured yet", hint="Run: invoke compare")
    return every[-1]


def quickstart(*, install: bool) -> None:
    """Set up, detect, build the hot kernels, compare two workloads, report."""
    places = settings.places()
    request = Request()
    with talk.step("set-up"):
        version = releases.pinned_bazel(releases.find_release(request.release))
        doctor.prepare(places, version, install=install, fetch=install)
    talk.say(detect.describe(detect.detect()))
    built = builds.build_wheel(request)
    talk.say(builds.describe_built(built, as_json=False).rstrip())
    wanted = Wanted(
        candidate=str(built.wheel),
        workloads=",".join(QUICK_WORKLOADS),
        out=str(places.reports / "quickstart"),
    )
    print(compare_wheels(wanted, effort=QUICKSTART), end="")
