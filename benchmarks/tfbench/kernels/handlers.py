"""Handlers of `invoke profile` and `invoke select`: options in, text out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tfbench import options
from tfbench.arms import installs, lineup
from tfbench.commands import ALL, TRAIN, ProfileOptions, SelectOptions
from tfbench.engine import folder
from tfbench.inside.workloads import list_request_workloads
from tfbench.kernels import selecting, table
from tfbench.kernels.keep_rules import RATE
from tfbench.kernels.profiles import Profile, profile_program, rank_call_sites, read_profile
from tfbench.kernels.selecting import SelectionResult, SelectionSetting, ServedCallSite
from tfbench.kernels.timing_cache import TimingCache
from tfbench.kernels.timings import Bench
from tfbench.kernels.wheel_kernels import WheelKernels, read_wheel_kernels
from tfbench.measuring.stopping import FEWEST_LAUNCHES
from tfbench.options import Subject
from tfbench.result_table import format_result
from tfbuild.commands import HOT, Request
from tfbuild.planning.plan import Scope
from tfbuild.upstream.kernels import load_known_sources
from tfcore import console, durations, settings
from tfcore.comparisons.host import read_host
from tfcore.cpus.cpu import read_cpu, read_vcpus
from tfcore.errors import UsageError
from tfcore.records import format_json, format_now, save, write_atomic
from tfcore.settings import Paths

PROFILED = Path(__file__).with_name("hot.json")
"""The profile of the six workloads, recorded by invoke profile on 2 vCPUs of the Sapphire Rapids
class."""
PROFILE = "profile.json"
_HANDING_ON = {"_Arg", "_Retval", "Identity", "IdentityN"}
"""Ops that only pass on their inputs: no kernel of them is faster."""
START_S, CELL_S = 15.0, 0.8
"""Seconds to start three workers, and to time one call site in them: upper bounds, measured on 2
busy vCPUs."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Options:
    """The checked options of `invoke select`; no wheel was read yet."""

    profile: Profile
    threads: tuple[int, ...]
    launches: int
    rate: float
    budget_s: float | None
    seed: int


@dataclass(frozen=True, kw_only=True, slots=True)
class _Config:
    """A wheel's kernels and the call sites that they serve; nothing is installed yet."""

    options: _Options
    choices: tuple[installs.ArmChoice, ...]
    wheel_kernels: WheelKernels
    served: tuple[ServedCallSite, ...]

    @property
    def estimate_s(self) -> float:
        """Return the estimated seconds of an uncached search; the confirmation takes less."""
        cells = self.options.launches * len(self.options.threads)
        return cells * (START_S + len(self.served) * CELL_S)


def profile(profile_options: ProfileOptions, *, as_json: bool) -> tuple[Profile, str]:
    """Profile on the stock wheel with one thread; return the record and the text to print."""
    paths, subjects = settings.paths(), _list_subjects(profile_options)
    steps = options.parse_integer(profile_options.steps, "--steps")
    folder, host = paths.choose_report_folder("profile"), read_host()
    out = _parse_output(profile_options.out) or folder / PROFILE
    with settings.lock_folder(paths.cache, "a profile"):
        specs = [lineup.make_spec(name=lineup.STOCK, wheel=lineup.STOCK)]
        (arm,) = installs.install(installs.choose(specs, "", paths), paths)
        programs = []
        for subject in subjects:
            with console.report_step(f"profile {subject[0]}, {steps} steps"):
                logs = folder / "logs"
                programs.append(
                    profile_program(arm, subject, host.affinity[:1], steps=steps, logs=logs)
                )
    record = Profile(
        made=format_now(),
        cpu=host.cpu.name,
        release=arm.label,
        vcpus=1,
        programs=tuple(programs),
    )
    save(out, record)
    console.print_note(f"profile: {out}")
    return record, format_json(record) if as_json else table.describe_profile(record)


def describe_profiling(profile_options: ProfileOptions) -> str:
    """Describe what would be profiled. Nothing is profiled."""
    steps = options.parse_integer(profile_options.steps, "--steps")
    _parse_output(profile_options.out)
    names = ", ".join(name for name, _ in _list_subjects(profile_options))
    return f"profile {names}: {steps} steps each on the stock wheel\n"


def select_program_kernels(program: str, request: Request) -> Request:
    """Profile a workload or a user's model; return the request with the kernels of its main ops.

    Raises UsageError if no kernel serves it, or the request already names kernels.
    """
    describe_program_kernels(program, request)
    record, _ = profile(ProfileOptions(workload=program), as_json=False)
    ops = list_compilable(record.programs[0].op_s, request.release)
    if not ops:
        raise UsageError(
            f"no kernel that can be compiled serves {program}",
            hint="oneDNN or stock kernels take its time: try invoke tune",
        )
    console.print_note(f"kernels: {', '.join(ops)}")
    return replace(request, kernels=",".join(ops))


def describe_program_kernels(program: str, request: Request) -> str:
    """Describe what `select_program_kernels` would do. Nothing is profiled.

    Raises UsageError if the request already names kernels.
    """
    if request.kernels != HOT or request.selection or request.scope != Scope.KERNELS:
        raise UsageError(
            "--workload cannot be combined with --kernels, --selection or --scope full",
            hint="Use one of them",
        )
    options.parse_subject(program)
    return f"profile {program} on the stock wheel, then build the kernels of its ops\n"


def list_compilable(op_s: Mapping[str, float], release: str) -> tuple[str, ...]:
    """List the ops whose kernels can be compiled and matter.

    `op_s` are the seconds by op. An op counts if it takes enough of the time, computes
    something, and is registered by a candidate source, as far as the release is known.
    """
    least = selecting.MATTERS * sum(op_s.values())
    sources = (row for row in load_known_sources(release).values() if row.is_candidate)
    registered = {op for row in sources for op in row.ops} - _HANDING_ON
    mattering = (op for op, seconds in op_s.items() if seconds >= least)
    return tuple(sorted(op for op in mattering if op in registered))


def select(select_options: SelectOptions, *, as_json: bool) -> tuple[SelectionResult, str]:
    """Time the wheel's kernels at the profile's call sites; return the selection and its text."""
    paths = settings.paths()
    if _needs_profile(select_options):
        select_options = _add_profile(select_options, paths)
    config = _read_config(select_options, paths)
    with settings.lock_folder(paths.cache, "a selection"):
        setting, bench, memory = _set_up(config, select_options.out, paths)
        console.print_note(f"timings and selection: {bench.out}")
        selected = selecting.select(setting, config.served, config.wheel_kernels, memory, bench)
    write_atomic(bench.out / "selection.md", table.render_markdown(selected))
    return selected, format_result(selected, table.build_table(selected), as_json=as_json)


def _set_up(config: _Config, out: str, paths: Paths) -> tuple[SelectionSetting, Bench, TimingCache]:
    """Install both arms, and choose where the times are written."""
    host = read_host()
    stock, tuned = installs.install(config.choices, paths)
    setting = SelectionSetting(
        cpu=host.cpu.name,
        arms=(stock, tuned),
        spots=tuple(call_site.site.key for call_site in config.served),
        threads=config.options.threads,
        launches=config.options.launches,
        rate=config.options.rate,
        seed=config.options.seed,
        budget_s=config.options.budget_s,
    )
    out_dir = folder.choose_folder(selecting.KIND, setting, out, paths)
    bench = Bench(stock=stock, tuned=tuned, cpus=host.affinity, out=out_dir)
    return setting, bench, TimingCache(folder=paths.cache / "timings", cpu=host.cpu.kind)


def describe_selecting(select_options: SelectOptions) -> str:
    """Describe what would be timed, and how long that takes. Nothing is timed."""
    if _needs_profile(select_options):
        profiling = describe_profiling(
            ProfileOptions(workload=select_options.workload, phase=select_options.phase)
        )
        return f"{profiling}then time the wheel's kernels at these call sites\n"
    config = _read_config(select_options, settings.paths())
    cells = len(config.served) * len(config.options.threads)
    budget = (
        console.format_duration(config.options.budget_s) if config.options.budget_s else "no limit"
    )
    share = sum(call_site.site.share for call_site in config.served)
    return (
        f"wheel      {config.wheel_kernels.wheel.name}\n"
        f"call sites {len(config.served)}, {share:.1%} of the op time\n"
        f"threads    {', '.join(map(str, config.options.threads))}\n"
        f"timings    {console.format_count(cells, 'cell')} (call sites times threads) in each of "
        f"{config.options.launches} launches, about "
        f"{console.format_duration(config.estimate_s)} without a cache; then the winners again\n"
        f"budget     {budget}\n"
    )


def _needs_profile(select_options: SelectOptions) -> bool:
    """Return whether a profile must be made first.

    Raises UsageError if a profile is named as well.
    """
    first = bool(select_options.workload) or options.parse_phase(select_options.phase) != TRAIN
    if first and select_options.profile:
        option = "--workload" if select_options.workload else "--phase"
        raise UsageError(f"{option} cannot be combined with --profile", hint="Use one of them")
    if select_options.workload:
        options.parse_subject(select_options.workload)
    return first


def _add_profile(select_options: SelectOptions, paths: Paths) -> SelectOptions:
    """Make a profile beside the timings, and return the options that name it.

    A stopped run has made it. Raises UsageError if it is of other programs.
    """
    folder = (
        Path(select_options.out) if select_options.out else paths.choose_report_folder("select")
    )
    path = folder / PROFILE
    profile_options = ProfileOptions(
        workload=select_options.workload, phase=select_options.phase, out=str(path)
    )
    if path.is_file():
        _require_profile_of(_list_subjects(profile_options), path)
    else:
        profile(profile_options, as_json=False)
    return replace(select_options, workload="", phase=TRAIN, profile=str(path), out=str(folder))


def _require_profile_of(subjects: Sequence[Subject], path: Path) -> None:
    """Raise UsageError if the profile is of other programs, or of another version of a file."""
    known = {program.name: program.sha256 for program in read_profile(path).programs}
    names = [name for name, _ in subjects]
    if names != [*known]:
        raise UsageError(
            f"{path} is the profile of {', '.join(known)}, not of {', '.join(names)}",
            hint="Give another --out",
        )
    for name, file in subjects:
        if file is not None and options.hash_path(file) != known[name]:
            raise UsageError(
                f"{path} is the profile of another version of {file}", hint="Give another --out"
            )


def _read_options(select_options: SelectOptions) -> _Options:
    return _Options(
        launches=options.parse_integer(
            select_options.launches, "--launches", least=FEWEST_LAUNCHES
        ),
        budget_s=durations.parse_duration(select_options.budget, "--budget")
        if select_options.budget
        else None,
        seed=options.parse_integer(select_options.seed, "--seed", least=0),
        rate=_parse_rate(select_options.rate),
        threads=_parse_threads(select_options.vcpus),
        profile=read_profile(Path(select_options.profile) if select_options.profile else PROFILED),
    )


def _read_config(select_options: SelectOptions, paths: Paths) -> _Config:
    """Read and check the options, the wheel and the call sites.

    Raises UsageError if the options do not fit, RecordError if the profile is invalid, and
    WheelError and HostError if the wheel does not fit.
    """
    config = _read_options(select_options)
    candidate = (
        settings.expand_home(select_options.candidate, "--candidate")
        if select_options.candidate
        else installs.find_newest_runnable(paths)
    )
    choices = installs.choose(lineup.read_lineup(), str(candidate), paths)
    wheel_kernels = read_wheel_kernels(candidate.resolve(), read_cpu())
    served = selecting.match_call_sites(wheel_kernels, rank_call_sites(config.profile))
    if not served:
        raise UsageError(
            f"no kernel of {candidate.name} serves a call site of the profile",
            hint="Profile your model: invoke profile --workload PATH",
        )
    return _Config(options=config, choices=choices, wheel_kernels=wheel_kernels, served=served)


def _list_subjects(profile_options: ProfileOptions) -> tuple[Subject, ...]:
    """List what is profiled.

    For inference it is what one client sends: the number of clients changes no shape. Raises
    UsageError if the options exclude each other.
    """
    if profile_options.workload and profile_options.workloads != ALL:
        raise UsageError("--workload cannot be combined with --workloads", hint="Use one of them")
    subjects: tuple[Subject, ...] = (
        (options.parse_subject(profile_options.workload),)
        if profile_options.workload
        else tuple((name, None) for name in options.parse_workloads(profile_options.workloads))
    )
    if options.parse_phase(profile_options.phase) == TRAIN:
        return subjects
    return tuple(
        (workload, file)
        for name, file in subjects
        for workload in list_request_workloads(name, vcpus=1)
    )


def _parse_output(text: str) -> Path | None:
    """Return the path of the profile; None for the default. Raises UsageError if it is a folder."""
    path = Path(text) if text else None
    if path is not None and path.is_dir():
        raise UsageError(
            f"--out {text} is a folder", hint=f"Give a file: --out {path / 'profile.json'}"
        )
    return path


def _parse_threads(text: str) -> tuple[int, ...]:
    """Parse the numbers of threads: by default one, and as many as there are usable CPUs."""
    usable = read_vcpus().usable
    return options.parse_vcpus(text, usable) or tuple(sorted({1, usable}))


def _parse_rate(text: str) -> float:
    rate = options.parse_positive(text, "--rate")
    if rate >= 1:
        raise UsageError(f"--rate {text} is not between 0 and 1", hint=f"Try --rate {RATE:g}")
    return rate
