"""Handler of `invoke fleet`: compare wheels on many hosts with ReFrame, and report once."""

from __future__ import annotations

import os
import re
import secrets
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from tfbench import options
from tfbench.arms.installs import list_tuned
from tfbench.commands import FleetOptions
from tfbench.costs import catalog
from tfbench.costs.machines import parse_mode
from tfbench.costs.prices import PriceBook
from tfbench.engine import folder as folders
from tfbench.engine.folder import RunKind
from tfbench.hosts import bundle, pages, reframe_settings
from tfbench.hosts.bundle import FleetWheel
from tfbench.hosts.host_table import FleetHost, is_safe, load_hosts
from tfbench.hosts.results import (
    OUTCOME,
    HostResult,
    HostStatus,
    read_result,
)
from tfbench.hosts.summary import FleetResult, group_hosts
from tfbench.reports import page
from tfbench.result_table import format_result
from tfbuild.tools import environment
from tfcore import console, durations, settings
from tfcore.errors import CommandError, FleetError, RecordError, UsageError, WheelError
from tfcore.records import format_json, format_now, hash_record, load, read_text, save, write_atomic
from tfcore.run import run
from tfcore.settings import Paths

KIND = RunKind(name="fleet", prefix="fleet", result="fleet.json")
CSV = "fleet.csv"
REQUIREMENTS = Path(__file__).with_name("reframe.txt")
"""The locked packages of ReFrame's environment."""
_HOSTS = "hosts"
_SETTINGS = "settings.json"
_LOG = "fleet.log"
_ID = "id"
"""File with what identifies this fleet's runs on its hosts."""
_ROW = "row.json"
_OUTPUTS = ("rfm_job.out", "rfm_job.err")
_ENDED = re.compile(r"\[ +(?:OK|FAIL) +\].*@fleet:(?P<host>[\w-]+)\+")
_STDERR = re.compile(r"--- stderr ---\n(.*?)--- stderr ---", re.DOTALL)


@dataclass(frozen=True, kw_only=True, slots=True)
class FleetSpec:
    """What a fleet measures. A second call with an equal one continues the first."""

    schema: int = 1
    wheels: tuple[FleetWheel, ...]
    compare: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class FleetConfig:
    """The checked options of `invoke fleet`."""

    hosts: tuple[FleetHost, ...]
    wheels: tuple[Path, ...]
    spec: FleetSpec
    vcpus: tuple[int, ...]
    book: PriceBook | None


def read_config(fleet_options: FleetOptions, paths: Paths) -> FleetConfig:
    """Check the options. Raises UsageError, WheelError."""
    settings.require_checkout("invoke fleet")
    hosts = load_hosts(settings.expand_home(fleet_options.hosts, "--hosts"))
    wheels = settings.expand_paths(fleet_options.candidate, "--candidate") or (_find_newest(paths),)
    return FleetConfig(
        hosts=hosts,
        wheels=wheels,
        spec=FleetSpec(wheels=bundle.describe_wheels(wheels), compare=_list_words(fleet_options)),
        vcpus=options.parse_counts(fleet_options.vcpus, "--vcpus") if fleet_options.vcpus else (),
        book=_load_book(fleet_options, hosts),
    )


def _find_newest(paths: Paths) -> Path:
    """Return the newest tuned wheel of the pool, whatever CPU it is for."""
    for path, _ in list_tuned(paths):
        return path
    raise WheelError(f"no tuned wheel in {paths.pool}", hint="Build one: invoke build --arch A,B,…")


def _list_words(fleet_options: FleetOptions) -> tuple[str, ...]:
    """Return the options of `invoke compare` on the hosts. Raises UsageError."""
    if fleet_options.budget:
        durations.parse_duration(fleet_options.budget, "--budget")
    if fleet_options.precision:
        options.parse_percent(fleet_options.precision, "--precision")
    phase = options.parse_phase(fleet_options.phase)
    options.parse_workloads(fleet_options.workloads)
    pairs = {
        "--workloads": fleet_options.workloads,
        "--phase": phase,
        "--budget": fleet_options.budget,
        "--precision": fleet_options.precision,
    }
    words = [word for name, value in pairs.items() if value for word in (name, value)]
    return (*words, *(["--thorough"] if fleet_options.thorough else []))


def _load_book(fleet_options: FleetOptions, hosts: Sequence[FleetHost]) -> PriceBook | None:
    """Load the price book; check that it has every machine of the hosts. Raises UsageError."""
    region, mode = fleet_options.region, fleet_options.mode
    if not fleet_options.prices:
        if region or mode:
            raise UsageError("--region and --mode need --prices", hint="Add --prices, or drop them")
        return None
    machines = {host.machine for host in hosts if host.machine}
    book = catalog.find_book(fleet_options.prices, names=machines)
    book = book.restrict(region=region, mode=parse_mode(mode))
    for name in machines:
        book.find_price(name)
    return book


def describe(fleet_options: FleetOptions) -> str:
    """Describe what would be measured where. Nothing is copied or started."""
    paths = settings.paths()
    config = read_config(fleet_options, paths)
    lines = [f"wheel  {wheel.name}: {wheel.file}" for wheel in config.spec.wheels]
    lines += [f"host   {host.name}: {_describe_host(host, config)}" for host in config.hosts]
    return "\n".join([*lines, f"on each: invoke compare {' '.join(config.spec.compare)}", ""])


def _describe_host(host: FleetHost, config: FleetConfig) -> str:
    where = host.address or host.scheduler
    vcpus = ", ".join(map(str, host.vcpus or config.vcpus)) or "all"
    return f"{where}, vCPUs: {vcpus}, folder {host.folder}"


def prepare(fleet_options: FleetOptions) -> str:
    """Write the files for the hosts and the settings to a folder, for the user's own ReFrame."""
    paths = settings.paths()
    config = read_config(fleet_options, paths)
    target = settings.expand_home(fleet_options.prepare, "--prepare").resolve()
    _require_safe(target, "--prepare")
    _write_files(target, config, config.hosts, secrets.token_hex(8), paths)
    words = reframe_settings.build_command(
        Path("reframe"), target, target / _SETTINGS, target / "reframe"
    )
    return (
        f"{target}\nRun the test with ReFrame and these hosts:\n"
        f"  {' '.join(map(str, words))}\n"
        f"or with settings of your own instead of {_SETTINGS} ({bundle.CHECK} says how).\n"
    )


def _require_safe(folder: Path, option: str) -> None:
    """Raise UsageError for a folder whose path ReFrame's commands would take apart."""
    if not is_safe(str(folder)):
        raise UsageError(
            f"{option} {folder}: the path has characters that ReFrame's commands do not take",
            hint="Use a path without spaces and special characters",
        )


def _write_files(
    target: Path, config: FleetConfig, hosts: Sequence[FleetHost], fleet: str, paths: Paths
) -> None:
    target.mkdir(mode=0o700, parents=True, exist_ok=True)
    wheels, compare = config.spec.wheels, config.spec.compare
    bundle.write_bundle(target, wheels, config.wheels, compare, fleet=fleet, root=paths.root)
    # Variables of hosts may be secrets, so only the user may read the settings.
    (target / _SETTINGS).unlink(missing_ok=True)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
    with os.fdopen(os.open(target / _SETTINGS, flags, 0o600), "w", encoding="utf-8") as file:
        file.write(format_json(reframe_settings.build_settings(hosts, config.vcpus)))


def measure_fleet(fleet_options: FleetOptions, *, as_json: bool) -> tuple[FleetResult, str]:
    """Measure on all hosts without a result; return the result of all, and its text."""
    paths = settings.paths()
    config = read_config(fleet_options, paths)
    out = folders.choose_folder(KIND, config.spec, fleet_options.out, paths)
    _require_safe(out.resolve(), "--out")
    with settings.lock_folder(out, "a fleet"):
        folders.begin(KIND, config.spec, out)
        for leftover in out.glob(".work-*"):  # of a call that was killed
            shutil.rmtree(leftover)
        open_hosts = [host for host in config.hosts if not _is_done(out, host, config)]
        done = len(config.hosts) - len(open_hosts)
        if done:
            console.print_note(f"{console.format_count(done, 'host')} with a result: not repeated")
        missing = _run_hosts(out, config, open_hosts, paths) if open_hosts else {}
        result = _build_result(out, config, missing)
        save(out / KIND.result, result)
        write_atomic(out / CSV, pages.format_csv(result))
        html = page.write_page(out, pages.build_document(result), {}, paths.templates)
    text = format_result(result, pages.build_table(result), as_json=as_json)
    return result, text if as_json else f"{text}report: {html}\n"


def require_complete(result: FleetResult) -> None:
    """Raise FleetError if hosts have no result."""
    if result.missing:
        names = ", ".join(name for name, _ in result.missing)
        raise FleetError(
            f"{len(result.missing)} of {len(result.hosts) + len(result.missing)} hosts have no "
            f"result: {names}",
            hint="Mend what is wrong with them and run the same command again: it continues",
        )


def _is_done(out: Path, host: FleetHost, config: FleetConfig) -> bool:
    """Return whether a host has a result, and its row of the table is still the same."""
    folder = out / _HOSTS / host.name
    try:
        same = load(folder / _ROW, schema=None) == _describe_row(host, config)
        found = _read_result(folder, host, config)
    except RecordError:
        return False
    return same and found.outcome.status is HostStatus.DONE


def _describe_row(host: FleetHost, config: FleetConfig) -> dict[str, str]:
    """Identify what is measured on a host. Prices and limits may change; variables are hashed."""
    extras = reframe_settings.build_extras(host, config.vcpus)
    measured = {key: value for key, value in extras.items() if key != "limit_s"}
    where = (host.scheduler, host.address, *host.options)
    return {"row": hash_record([*where, measured])}


def _read_result(folder: Path, host: FleetHost, config: FleetConfig) -> HostResult:
    wheels = [wheel.name for wheel in config.spec.wheels]
    return read_result(folder, wheels, name=host.name, machine=host.machine, count=host.count)


def _run_hosts(
    out: Path, config: FleetConfig, hosts: Sequence[FleetHost], paths: Paths
) -> Mapping[str, str]:
    """Run the comparison on these hosts; return the reasons for those that sent nothing back."""
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    with console.report_step("ReFrame"):
        interpreter = environment.create_bare(
            python=python, requirements=read_text(REQUIREMENTS), paths=paths
        )
    if not (out / _ID).is_file():
        write_atomic(out / _ID, secrets.token_hex(8))
    fleet = read_text(out / _ID)
    with TemporaryDirectory(prefix=".work-", dir=out) as folder:
        work = Path(folder).resolve()
        _write_files(work, config, hosts, fleet, paths)
        prefix = work / "reframe"
        try:
            _run_reframe(interpreter.with_name("reframe"), work, prefix, out, len(hosts))
        finally:
            # Also if the call is stopped: what came back is kept.
            kept = {host.name for host in hosts if _keep_files(prefix, out, host, config)}
        reasons = _read_reasons(prefix / "report.json")
    if not (reasons or kept):
        raise CommandError("ReFrame ran on no host", hint=f"Its output is in {out / _LOG}")
    unknown = f"no answer; see {out / _LOG}"
    return {host.name: reasons.get(host.name) or unknown for host in hosts if host.name not in kept}


def _run_reframe(reframe: Path, work: Path, prefix: Path, out: Path, hosts: int) -> None:
    words = reframe_settings.build_command(reframe, work, work / _SETTINGS, prefix)
    env = {name: value for name, value in os.environ.items() if not name.startswith("RFM_")}
    ended: list[str] = []
    with (
        console.report_step(f"compare on {console.format_count(hosts, 'host')}"),
        console.track_progress("hosts", hosts) as count,
    ):

        def follow(line: str) -> None:
            match = _ENDED.search(line)
            if match:
                ended.append(match["host"])
                count.advance(len(ended), detail=f"{match['host']} ended")

        # It fails if the test fails on one host; what came back from each decides.
        run(words, env=env, log=out / _LOG, check=False, on_line=follow)


def _keep_files(prefix: Path, out: Path, host: FleetHost, config: FleetConfig) -> bool:
    """Move what came back from a host to its folder; return whether its outcome did."""
    stages = sorted((prefix / "stage" / reframe_settings.SYSTEM / host.name).glob("*/*"))
    if not stages:
        return False
    stage, kept = stages[-1], out / _HOSTS / host.name
    shutil.rmtree(kept, ignore_errors=True)
    kept.mkdir(parents=True)
    if (stage / "results").is_dir():
        shutil.copytree(stage / "results", kept, dirs_exist_ok=True)
    for name in (OUTCOME, *_OUTPUTS):
        if (stage / name).is_file():
            shutil.copy(stage / name, kept)
    save(kept / _ROW, _describe_row(host, config))
    return (kept / OUTCOME).is_file()


def _read_reasons(report: Path) -> dict[str, str]:
    """Return ReFrame's reasons for failures, by host."""
    try:
        runs = load(report, schema=None)["runs"]
        cases = [case for row in runs for case in row["testcases"]]
        return {
            str(case["partition"]): shorten_reason(str(case.get("fail_reason") or case["result"]))
            for case in cases
        }
    except (RecordError, KeyError, TypeError):
        return {}


def shorten_reason(text: str) -> str:
    """Return the line of ReFrame's reason that says what went wrong: the last one of a program's
    errors, or the first of another reason.
    """
    printed = _STDERR.search(text)
    lines = [line.strip() for line in (printed[1] if printed else "").splitlines()]
    last = next((line for line in reversed(lines) if line), "")
    return (last or text.strip().partition("\n")[0] or "no reason given")[:300]


def _build_result(out: Path, config: FleetConfig, missing: Mapping[str, str]) -> FleetResult:
    finished: list[HostResult] = []
    without = dict(missing)
    for host in config.hosts:
        if host.name in missing:
            continue
        try:
            found = _read_result(out / _HOSTS / host.name, host, config)
        except RecordError as error:
            without[host.name] = error.message
            continue
        if found.outcome.status is HostStatus.FAILED:
            without[host.name] = pages.describe_failure(found.outcome)
        else:
            finished.append(found)
    return FleetResult(
        made=format_now(),
        wheels=config.spec.wheels,
        compare=config.spec.compare,
        hosts=tuple(finished),
        missing=tuple(without.items()),
        kinds=group_hosts(finished, config.book),
        complete=not without,
        book=f"{config.book.name}, {config.book.as_of}" if config.book else "",
    )
