"""`invoke flags`: a wheel per compiler and per set of flags, each timed beside stock."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tfbench import options
from tfbench.commands import FlagsOptions, SelectOptions
from tfbench.kernels import flagsets, profile_guided
from tfbench.kernels.flag_table import build_table, format_flag_set
from tfbench.kernels.flagsets import FlagSet
from tfbench.kernels.handlers import check_options, time_kernels
from tfbench.kernels.keep_rules import RATE
from tfbench.kernels.selecting import KIND
from tfbench.kernels.wheel_kernels import WheelKernels
from tfbench.result_table import format_result
from tfbuild import console, durations, handlers, settings
from tfbuild.commands import BuildOptions, Request
from tfbuild.comparisons.host import read_host
from tfbuild.comparisons.kernels import TypedOp
from tfbuild.cpus import flags
from tfbuild.cpus.cpu import read_cpu
from tfbuild.cpus.targets import parse_target
from tfbuild.errors import UsageError
from tfbuild.planning.request import resolve_plan, resolve_release
from tfbuild.planning.selection import Selection, find_fused_ops
from tfbuild.records import format_now, save
from tfbuild.settings import Paths
from tfbuild.tools import pgo

NARROW = {"avx512f": "-mno-avx512f"}
"""Narrower vectors are faster if memory bounds a kernel, such as Mul and AddV2 on a Sapphire Rapids
class CPU."""


_LEARNED = ("the profile of the training program",)
"""Placeholder for the profile-guided set: its profile exists only after the training."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Config:
    """The checked options of `invoke flags`: what is built, by which compilers, with which
    flags, and how each wheel is timed.
    """

    request: Request
    compilers: tuple[str, ...]
    variants: tuple[tuple[str, ...], ...]
    training: Path | None
    timing: SelectOptions
    budget_s: float | None

    @property
    def most(self) -> int:
        return len(self.compilers) + len(self.sets)

    @property
    def sets(self) -> tuple[tuple[str, ...], ...]:
        """Return the sets of flags, that of the profile last."""
        return (*self.variants, *((_LEARNED,) if self.training else ()))

    def plan_builds(self, tried: Sequence[FlagSet]) -> Iterator[tuple[str, tuple[str, ...]]]:
        """Yield the compiler and the flags of each build.

        First each compiler with the target's flags alone; then the best of `tried`, as it is
        by then, with each set of flags.
        """
        yield from ((compiler, ()) for compiler in self.compilers)
        compiler = _choose_winner(tried).compiler
        yield from ((compiler, words) for words in self.sets)


def search(request: Request, wanted: FlagsOptions, *, as_json: bool) -> tuple[Selection, str]:
    """Build, time and choose; return the selection and the text to print.

    The selection has all kernels that were timed, with the flags of each source, for `invoke
    build --selection`. The wheels are candidates in the cache; the user's own wheels are
    unchanged. Timings are cached too, and a stopped search resumes if its `out` is given again.
    """
    config, paths = _read_config(request, wanted), settings.paths()
    out = Path(wanted.out) if wanted.out else paths.choose_report_folder("flags")
    console.print_note(f"resume a stopped search with --out {out}")
    tried: list[FlagSet] = []
    timed_units: dict[TypedOp, str] = {}
    began, wheel_kernels = time.monotonic(), None
    for number, (compiler, words) in enumerate(config.plan_builds(tried), 1):
        spent = time.monotonic() - began
        if tried and config.budget_s and spent * (1 + 1 / len(tried)) > config.budget_s:
            console.print_note(
                f"budget spent: {format_flag_set(compiler, words)} and later sets are skipped"
            )
            break
        console.print_message(
            f"flags {number} of {config.most}: {format_flag_set(compiler, words)}"
        )
        resolved = (_learn_flag(config, compiler, out, paths),) if words == _LEARNED else words
        wheel = _build_candidate(config, compiler, resolved, paths)
        wheel_kernels, rows = time_kernels(
            replace(config.timing, candidate=str(wheel), out=str(out / str(number)))
        )
        tried.append(
            FlagSet(
                compiler=compiler,
                flags=resolved,
                saved=flagsets.compute_savings(rows, wheel_kernels.units),
            )
        )
        timed_units |= {each.choice: wheel_kernels.units[each.choice] for each in rows}
    assert wheel_kernels is not None  # noqa: S101  (there is a first set)
    winner = _choose_winner(tried)
    if len(config.compilers) > 1:
        console.print_note(f"fastest compiler: build with --compiler {winner.compiler}")
    chosen = flagsets.choose_fastest([winner, *(each for each in tried if each.flags)], RATE)
    selection = _create_selection(wheel_kernels, chosen, timed_units)
    save(out / KIND.result, selection)
    console.print_note(f"selection: {out / KIND.result}")
    table = build_table(tried, chosen, out / KIND.result, winner.compiler)
    return selection, format_result(selection, table, as_json=as_json)


def _choose_winner(tried: Sequence[FlagSet]) -> FlagSet:
    """Choose the best compiler, from each one's build with the target's flags alone."""
    return flagsets.choose_best([flag_set for flag_set in tried if not flag_set.flags], RATE)


def describe(request: Request, wanted: FlagsOptions) -> str:
    """Describe the builds and timings that a search would make. Nothing is built."""
    config = _read_config(request, wanted)
    threads, launches = config.timing.vcpus.replace(",", " and "), config.timing.launches
    first, *others = config.compilers
    names = [format_flag_set(compiler, ()) for compiler in config.compilers]
    best = "the best compiler" if others else first
    names += [format_flag_set(best, words) for words in config.sets]
    return "".join(
        f"flags {number}: build with {name}, time its kernels with {threads} "
        f"thread{'s' * (threads != '1')} in {launches} launches\n"
        for number, name in enumerate(names, 1)
    )


def _read_config(request: Request, wanted: FlagsOptions) -> _Config:
    """Read and check the options.

    Raises UsageError if they do not fit, RecordError if the profile is invalid, CompilerError.
    """
    if request.flags or request.selection:
        raise UsageError("invoke flags does not take --flags or --selection", hint="Remove them")
    # Resolved once, or each build would look for the newest release again.
    request = resolve_release(replace(request, source=wanted.source), settings.paths())
    names = options.parse_words(request.compiler) or ("",)
    plan, *_ = [resolve_plan(replace(request, compiler=name))[0] for name in names]
    defaults = [
        "-O3",
        *(NARROW[feature] for feature in sorted(NARROW.keys() & plan.target.features)),
    ]
    texts = wanted.flag_sets.split(";") if wanted.flag_sets else defaults
    variants = tuple(dict.fromkeys(filter(None, map(flags.parse_extra_flags, texts))))
    if not variants and not wanted.pgo and len(names) == 1:
        raise UsageError("--flag-sets is empty", hint=f"Try --flag-sets '{'; '.join(defaults)}'")
    for name in names if wanted.pgo else ():
        plan, compiler = resolve_plan(replace(request, compiler=name, flags=flags.COUNTING))
        pgo.require_support(compiler, plan.required, read_cpu())
    timing = SelectOptions(
        profile=wanted.profile, vcpus=wanted.vcpus, launches=wanted.launches, seed=wanted.seed
    )
    check_options(timing)
    # Explicit names, so that no recorded selection adds its flags.
    units = ",".join(unit.name for unit in plan.kernels)
    return _Config(
        request=replace(request, kernels=units),
        compilers=names,
        variants=variants,
        training=_resolve_program(wanted.pgo),
        timing=timing,
        budget_s=durations.parse_duration(wanted.budget, "--budget") if wanted.budget else None,
    )


def _resolve_program(path: str) -> Path | None:
    """Resolve the path of the training program. Raises UsageError if there is no such file."""
    if path and not Path(path).is_file():
        raise UsageError(f"--pgo {path}: no such file", hint="Give a Python program")
    return Path(path).resolve() if path else None


def _build_candidate(config: _Config, compiler: str, words: tuple[str, ...], paths: Paths) -> Path:
    """Build a wheel with these flags, in a pool of its own since all sets have the same version."""
    request = replace(config.request, compiler=compiler, flags=" ".join(words))
    pool = paths.cache / "candidates"
    build_options = BuildOptions(source=request.source, keep_going=True)
    (built,) = handlers.build_wheel(request, build_options, pool=pool)
    return built.wheel.resolve()


def _learn_flag(config: _Config, compiler: str, out: Path, paths: Paths) -> str:
    """Return the flag of the profile that the training program's run gives.

    The profile is also copied to `out`, beside the selection that names it.
    """
    assert config.training is not None  # noqa: S101  (or there is no such set)
    profile = profile_guided.find_earlier_profile(out)
    if profile is None:
        _, used_compiler = resolve_plan(replace(config.request, compiler=compiler))
        wheel = _build_candidate(config, compiler, (flags.COUNTING,), paths)
        profile = profile_guided.record_profile(
            wheel, config.training, used_compiler, out=out, paths=paths
        )
    word = pgo.store_profile(profile, paths)
    pgo.copy_profiles(flags.list_profile_hashes((word,)), out, paths)
    return word


def _create_selection(
    wheel_kernels: WheelKernels, chosen: Mapping[str, FlagSet], kept: Mapping[TypedOp, str]
) -> Selection:
    """Create the selection, with the flags of the kernel groups that have any."""
    flags_by_source = {
        source: best.flags
        for unit, best in chosen.items()
        for source in wheel_kernels.sources[unit]
        if best.flags
    }
    return Selection(
        made=format_now(),
        cpu=read_host().cpu.name,
        release=wheel_kernels.release,
        target=wheel_kernels.library.target,
        plan_key=wheel_kernels.library.plan_key,
        rate=RATE,
        kernels=tuple(sorted(chosen)),
        flags=flags_by_source,
        kept=tuple(sorted(choice for choice, unit in kept.items() if unit in chosen)),
        rows=(),
        own=find_fused_ops(wheel_kernels.release, parse_target(wheel_kernels.library.target)),
    )
