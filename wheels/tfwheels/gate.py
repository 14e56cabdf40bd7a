"""The gate: a tuned wheel is published only with a comparison that speaks for it.

The interface to the benchmarks is the record of a comparison, never their code.

What counts as a verdict on a wheel is a finished comparison of exactly its bytes with the stock
wheel that it was made from, with the same settings, in which its own kernels were loaded. (A full
build is compared with the published wheel of its release, and all of it is its own.) Of that

- "faster" and "within noise" let it through. The second says that it is surely as fast, and a
  wheel of optimizer kernels may well show nothing in models that spend their time elsewhere.
- "inconclusive" is no verdict: the interval leaves room for a loss that anyone would mind.
- Requests (`invoke compare --phase infer`) can refuse it but are no verdict: what is published says
  how it trains.
- "slower" refuses it, over all workloads and in any single one, as `invoke compare --gate` does:
  the mean over workloads is nobody's model. A cell is called slower only beyond the noise that the
  baseline shows against itself.
- Losses or predictions that differ, and a worker that died, refuse it. Where a program amplifies
  rounding so that it explains what differs, the comparison is no verdict.

Every comparison given counts, so that a loss cannot be measured away by asking again.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from tfbuild.console import format_vcpus
from tfbuild.errors import GateError, RecordError
from tfbuild.measured.comparison import FILE, ArmFacts, Comparison, Overall, load
from tfbuild.measured.interval import Verdict
from tfbuild.packing.tuned import KernelLibrary, Tuned, TunedTree
from tfbuild.records import convert_record, format_canonical
from tfwheels import entry

PARITY = 1e-3
"""Largest difference that is let pass, however wide an arm's own tolerance was set."""
MOST_HIDDEN = 0.02
"""Largest --margin and --threshold behind which a loss may hide."""

_FORCED = "TENSORWRIGHT_TARGET"
# A path begins where no name does; icelake+avx512_bf16/zen4 and GNU/Linux are none.
_PATH = re.compile(r"(?<![\w.~+/-])[.~]{0,2}/[^\s:;,'\"()<>|]*")

_WORST_FIRST = tuple(Verdict)


@dataclass(frozen=True, kw_only=True, slots=True)
class Judgement:
    """The gate's judgement of a wheel by its comparisons.

    `verdicts` has one per target and CPU, of the first comparison that has an answer.
    `faults` are reasons to refuse the wheel, `gaps` say why a comparison is no verdict on it.
    `silent` are the targets of the wheel without a verdict. `published` holds the file of
    each verdict, `reasons` are the gaps without the paths of this machine.
    """

    verdicts: tuple[entry.TargetVerdict, ...]
    faults: tuple[str, ...]
    gaps: tuple[str, ...]
    silent: tuple[str, ...]
    published: Mapping[str, bytes]
    reasons: tuple[str, ...] = ()

    @property
    def gating(self) -> entry.GateResult:
        """Return the result that an index records; the gaps are dropped if the wheel passed."""
        passed = bool(self.verdicts) and not self.faults
        return entry.GateResult(
            passed=passed,
            faults=tuple(map(_strip_text, self.faults)),
            gaps=() if passed else tuple(map(_strip_text, self.reasons)),
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class _Finding:
    """A result of one arm of the comparison in the file `path`; without a verdict `gap` says
    why.
    """

    path: Path
    target: str = ""
    verdict: entry.TargetVerdict | None = None
    published: bytes = b""
    faults: tuple[str, ...] = ()
    gap: str = ""


def find_comparisons(reports: Path, sha256: str) -> tuple[Path, ...]:
    """Find the comparisons of a wheel among the reports, newest first.

    Damaged ones and those of another schema are skipped.
    """
    dated_paths: list[tuple[str, Path]] = []
    for path in reports.rglob(FILE):
        with contextlib.suppress(RecordError):
            comparison = load(path)
            if any(arm.wheel_sha256 == sha256 for arm in comparison.arms):
                dated_paths.append((comparison.made, path))
    return tuple(path for _, path in sorted(dated_paths, reverse=True))


def require_passed(file: str, sha256: str, tuned: Tuned, comparisons: Sequence[Path]) -> Judgement:
    """Judge the wheel `file` of that SHA-256 by its comparisons.

    Raises GateError for a wheel without a verdict, that is slower, or that computes something
    else, and RecordError.
    """
    judgement = judge_comparisons(file, sha256, tuned, comparisons)
    if judgement.faults:
        raise GateError(
            f"{file} is refused: {'; '.join(judgement.faults)}",
            hint="--no-gate publishes it with this verdict beside it",
        )
    if not judgement.verdicts:
        measure = (
            f"invoke compare{' --thorough' if judgement.gaps else ''} --candidate wheels/{file}"
        )
        raise GateError(
            f"{file} has no verdict: {'; '.join(judgement.gaps) or 'no comparison is about it'}",
            hint=f"Measure it: {measure}, on a CPU that runs {' or '.join(tuned.targets)}; or name "
            "what was measured elsewhere: --comparison PATH",
        )
    return judgement


def judge_comparisons(
    file: str, sha256: str, tuned: Tuned, comparisons: Sequence[Path]
) -> Judgement:
    """Judge a wheel by its comparisons, without refusing it.

    Raises RecordError.
    """
    findings = [
        finding for path in comparisons for finding in _read_findings(path, file, sha256, tuned)
    ]
    by_target: dict[tuple[str, str], _Finding] = {}
    for finding in findings:
        if finding.verdict is not None:
            by_target.setdefault((finding.target, finding.verdict.cpu), finding)
    covered = {target for target, _ in by_target}
    return Judgement(
        verdicts=tuple(
            finding.verdict for finding in by_target.values() if finding.verdict is not None
        ),
        faults=tuple(dict.fromkeys(fault for finding in findings for fault in finding.faults)),
        gaps=tuple(f"{finding.path}: {finding.gap}" for finding in findings if finding.gap),
        silent=tuple(target for target in tuned.targets if target not in covered),
        published={
            finding.verdict.file: finding.published
            for finding in by_target.values()
            if finding.verdict is not None
        },
        reasons=tuple(dict.fromkeys(finding.gap for finding in findings if finding.gap)),
    )


def serialize_public(comparison: Comparison) -> bytes:
    """Serialize a comparison in canonical form, without the machine's folders and its user.

    Every path is cut to its last part, `stock` of /srv/ann/arms/stock, and every text to its
    first line: the others hold a worker's output. The result is still a comparison.
    """
    return (format_canonical(_strip_paths(convert_record(comparison))) + "\n").encode()


def format_comparison_name(file: str, sha256: str) -> str:
    """Return the name of the comparison with that SHA-256 beside the wheel `file`."""
    return f"{file}.comparison-{sha256[:12]}.json"


def _strip_paths(value: Any) -> Any:  # noqa: ANN401  (JSON)
    if isinstance(value, str):
        return _strip_text(value)
    if isinstance(value, dict):
        return {name: _strip_paths(member) for name, member in value.items()}
    return [_strip_paths(member) for member in value] if isinstance(value, list) else value


def _strip_text(text: str) -> str:
    line = (text.splitlines() or [""])[0]
    if line.startswith("/") and ":" not in line:  # a path, perhaps with spaces
        return PurePosixPath(line).name
    return _PATH.sub(lambda found: PurePosixPath(found[0]).name, line)


def _read_findings(path: Path, file: str, sha256: str, tuned: Tuned) -> list[_Finding]:
    """Return one finding per arm that is the wheel."""
    comparison = load(path)
    arms = [arm for arm in comparison.arms[1:] if arm.wheel_sha256 == sha256]
    if not arms:
        return [_Finding(path=path, gap="it is about other wheels")]
    return [_build_finding(path, comparison, arm, file, tuned) for arm in arms]


def _build_finding(
    path: Path, comparison: Comparison, arm: ArmFacts, file: str, tuned: Tuned
) -> _Finding:
    cpu, library = comparison.host.cpu, _find_loaded(arm, tuned)
    gap = _find_mismatch(comparison, arm, library, tuned)
    if gap or library is None:
        return _Finding(path=path, gap=gap)
    target = library.target
    faults = tuple(
        f"{each} (on {cpu.name}, {target})" for each in _list_faults(comparison, arm.name)
    )
    rows = [each for each in comparison.overall if each.speedup.arm == arm.name]
    worst = min(rows, key=_rank_row, default=None)
    gap = _find_unclear(comparison, arm.name) or _explain_no_verdict(comparison, worst)
    if gap or worst is None:
        return _Finding(path=path, target=target, faults=faults, gap=gap)
    content = serialize_public(comparison)
    digest = hashlib.sha256(content).hexdigest()
    interval = worst.speedup.interval
    verdict = entry.TargetVerdict(
        target=target,
        verdict=worst.speedup.verdict,
        speedup=interval.value,
        low=interval.low,
        high=interval.high,
        cpu=cpu.name,
        file=format_comparison_name(file, digest),
        sha256=digest,
    )
    return _Finding(path=path, target=target, verdict=verdict, published=content, faults=faults)


def _find_loaded(arm: ArmFacts, tuned: Tuned) -> KernelLibrary | TunedTree | None:
    """Return the wheel's library that the worker had loaded, or all of a full build."""
    if tuned.tree is not None:
        return tuned.tree
    loaded = PurePosixPath(arm.kernel_library or "").name
    named = (each for each in tuned.libraries if PurePosixPath(each.file).name == loaded)
    return next(named, None)


def _find_mismatch(
    comparison: Comparison, arm: ArmFacts, library: KernelLibrary | TunedTree | None, tuned: Tuned
) -> str:
    """Return why the comparison is not of this wheel's code with stock code; empty if it is."""
    baseline = comparison.arms[0]
    if baseline.wheel_sha256 != tuned.stock_sha256 or baseline.kernel_library is not None:
        return f"its baseline {baseline.name} is not the stock wheel that tuned.json names"
    if _select_settings(arm) != _select_settings(baseline):
        return f"{arm.name} and {baseline.name} have other settings"
    idle = tuned.tree is None and arm.raised_kernels <= baseline.raised_kernels
    if library is None or idle:
        return f"{arm.name} loaded none of its kernels"
    absent = sorted({*library.required_features} - comparison.host.cpu.features)
    if absent:
        return f"its CPU lacks {', '.join(absent)} of {library.target}"
    return ""


def _select_settings(arm: ArmFacts) -> dict[str, str]:
    """Return an arm's environment, except the variable that chooses a library of a fleet wheel."""
    return {name: value for name, value in arm.env if name != _FORCED}


def _list_faults(comparison: Comparison, name: str) -> Iterator[str]:
    for cell in comparison.cells:
        where = f"{cell.workload} on {format_vcpus(cell.vcpus)}"
        if any(result.arm == name for result in cell.failures):
            yield f"its worker failed in {where}"
        agreements = [result for result in cell.agreements if result.arm == name]
        if not all(result.is_within(min(result.tolerance, PARITY)) for result in agreements):
            yield f"it computes something else than stock in {where}"
        if not agreements and not cell.failures:
            yield f"nothing shows that it computes the same as stock in {where}"
        for result in cell.speedups:
            if result.arm == name and result.verdict is Verdict.SLOWER:
                yield f"it is slower in {where} ({result.interval.value:.3f}x)"
    for row in comparison.overall:
        mean = row.speedup
        if mean.arm == name and mean.verdict is Verdict.SLOWER:
            where = f"over all workloads on {format_vcpus(row.vcpus)}"
            yield f"it is slower {where} ({mean.interval.value:.3f}x)"


def _find_unclear(comparison: Comparison, name: str) -> str:
    """Return where rounding explains differing losses or predictions, which prove no parity
    then.
    """
    for cell in comparison.cells:
        if any(agreement.arm == name and agreement.is_excused for agreement in cell.agreements):
            where = f"{cell.workload} on {format_vcpus(cell.vcpus)}"
            return f"rounding alone explains what differs in {where}, which shows no parity"
    return ""


def _rank_row(row: Overall) -> tuple[int, float]:
    """Return the sort key of the figures for a number of vCPUs; the least is published."""
    return _WORST_FIRST.index(row.speedup.verdict), row.speedup.interval.low


def _explain_no_verdict(comparison: Comparison, worst: Overall | None) -> str:
    """Explain why the comparison gives no answer; return "" if it does."""
    if not comparison.complete:
        return "it is not finished"
    if worst is None:
        return "nothing was timed"
    if any(cell.is_inference for cell in comparison.cells):
        return "it is of requests, not of training"
    if comparison.threshold > MOST_HIDDEN:
        return (
            f"its --threshold of {comparison.threshold:.1%} hides losses of more than "
            f"{MOST_HIDDEN:.0%}"
        )
    if worst.speedup.verdict is Verdict.WITHIN_NOISE and comparison.margin > MOST_HIDDEN:
        return (
            f"its --margin of {comparison.margin:.1%} holds losses of more than {MOST_HIDDEN:.0%}"
        )
    if worst.speedup.verdict is not Verdict.INCONCLUSIVE:
        return ""
    low, high = worst.speedup.interval.low, worst.speedup.interval.high
    return f"it is inconclusive on {format_vcpus(worst.vcpus)} ({low:.3f} to {high:.3f})"
