"""The gate: a tuned wheel is published only if a comparison supports it.

The gate reads the record of a comparison. It uses no code of the benchmarks.

A comparison gives a verdict on a wheel if it is finished, compares exactly the wheel's bytes with
its stock wheel under the same settings, and loaded the wheel's kernels. (A full build is compared
with the published wheel of its release; all its code counts as loaded.)

- "faster" and "equivalent" pass. "Equivalent" shows that the wheel is equally fast. A wheel of
  optimizer kernels may gain nothing on models that spend their time elsewhere.
- "inconclusive" is no verdict: the interval includes losses that matter.
- Inference (`invoke compare --phase infer`) can refuse a wheel but gives no verdict: the published
  figures are about training.
- "slower" refuses the wheel, over all workloads or in a single one, as `invoke compare --gate`
  does: users run single models, not the mean. A cell is slower only beyond the noise of the
  baseline against itself.
- Differing losses or predictions refuse the wheel. If a program amplifies rounding and this
  explains the difference, the comparison gives no verdict.
- A failed worker refuses the wheel, even if the worker never started.

All comparisons count, the given ones and those in the reports, so neither repeating a measurement
nor choosing one can hide a loss.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from tfbuild.kernelbuild import random_trials
from tfbuild.packing.tuned import KernelLibrary, Tuned, TunedTree
from tfcore.comparisons.comparison import (
    FILE,
    ArmFacts,
    ArmFailure,
    Comparison,
    Overall,
    load,
)
from tfcore.comparisons.deciding import find_decision, find_mean_decision
from tfcore.comparisons.interval import Verdict
from tfcore.console import format_vcpus
from tfcore.errors import GateError, RecordError
from tfcore.records import convert_record, format_canonical
from tfwheels import entry

PARITY = 1e-3
"""Largest accepted difference of losses or predictions, even if an arm's tolerance is larger."""
MOST_HIDDEN = 0.02
"""Largest accepted --margin and --threshold: larger ones can hide a loss."""

_FORCED = "TENSORWRIGHT_TARGET"
# A path starts outside a name; icelake+avx512_bf16/zen4 and GNU/Linux are not paths.
_PATH = re.compile(r"(?<![\w.~+/-])[.~]{0,2}/[^\s:;,'\"()<>|]*")

_WORST_FIRST = tuple(Verdict)
_LEAST_PROGRAMS = 600
"""Random programs that ran fused ops, which --require-results needs."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Judgement:
    """The gate's result for a wheel.

    `verdicts` has one verdict per target and CPU, from the newest comparison that gives one.
    `faults` are reasons to refuse the wheel; `gaps` are the reasons why comparisons give no
    verdict. `silent` are the wheel's targets without a verdict. `published` has the comparisons of
    the verdicts and of the faults by file name, so that `--reindex` gets the same result from them;
    `evidence` has the names and SHA-256 hashes of those with faults. `reasons` are the gaps without
    the paths of this machine.
    """

    verdicts: tuple[entry.TargetVerdict, ...]
    faults: tuple[str, ...]
    gaps: tuple[str, ...]
    silent: tuple[str, ...]
    published: Mapping[str, bytes]
    evidence: tuple[tuple[str, str], ...] = ()
    reasons: tuple[str, ...] = ()

    @property
    def gating(self) -> entry.GateResult:
        """Return the result that an index records, without gaps if the wheel passed."""
        passed = bool(self.verdicts) and not self.faults
        return entry.GateResult(
            passed=passed,
            faults=tuple(map(_strip_text, self.faults)),
            evidence=self.evidence,
            gaps=() if passed else tuple(map(_strip_text, self.reasons)),
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class _Finding:
    """The result of an arm of the comparison at `path`; `gap` is why there is no verdict.

    `published` is the comparison's public form, with a verdict or a fault.
    """

    path: Path
    published: _PublicComparison | None = None
    target: str = ""
    verdict: entry.TargetVerdict | None = None
    faults: tuple[str, ...] = ()
    gap: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class _PublicComparison:
    """A comparison as it is stored beside the wheel `wheel`: see `serialize_public`."""

    wheel: str
    content: bytes

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.content).hexdigest()

    @property
    def file(self) -> str:
        return format_comparison_name(self.wheel, self.sha256)


def find_comparisons(reports: Path, sha256: str) -> tuple[Path, ...]:
    """Find the comparisons of a wheel among the reports, newest first.

    Damaged ones and those of another schema are skipped.
    """
    dated_paths: list[tuple[str, Path]] = []
    for path in reports.rglob(FILE):
        with contextlib.suppress(RecordError):
            comparison = load(path)
            hashes = {arm.wheel_sha256 for arm in comparison.arms}
            hashes |= {failure.wheel_sha256 for failure in _list_unstarted(comparison)}
            if sha256 in hashes:
                dated_paths.append((comparison.made, path))
    return tuple(path for _, path in sorted(dated_paths, reverse=True))


def require_passed(
    file: str, sha256: str, tuned: Tuned, comparisons: Sequence[Path], others: Sequence[Path] = ()
) -> Judgement:
    """Apply the gate to the wheel `file` with this SHA-256, see `judge_comparisons`.

    Raises GateError if the wheel has no verdict, is slower or computes other results, and
    RecordError.
    """
    judgement = judge_comparisons(file, sha256, tuned, comparisons, others)
    if judgement.faults:
        raise GateError(
            f"the gate refuses {file}: {'; '.join(judgement.faults)}",
            hint="--no-gate publishes it anyway; its page shows this result. Its comparisons in "
            "reports/ count even if --comparison names others",
        )
    if not judgement.verdicts:
        measure = (
            f"invoke compare{' --thorough' if judgement.gaps else ''} --candidate wheels/{file}"
        )
        raise GateError(
            f"{file} has no verdict: {'; '.join(judgement.gaps) or 'there is no comparison of it'}",
            hint=f"On a CPU that runs {' or '.join(tuned.targets)}, run: {measure}. For another "
            "folder than reports/, use --comparison PATH",
        )
    return judgement


def require_searched(wheel: str, sha256: str, reports: Path) -> None:
    """Raise GateError unless `reports` has enough random programs of a wheel without faults.

    All searches of the wheel count, so that a later one does not hide what an earlier one found.
    Programs that ran no fused op do not count, nor the same seed twice.
    """
    searches = [
        search
        for path in sorted(reports.glob(f"*/{random_trials.FILE}"))
        if (search := random_trials.load_search(path)).wheel_sha256 == sha256
    ]
    if wrong := sum(search.wrong for search in searches):
        raise GateError(
            f"{wrong} random programs compute wrong results with {wheel}, or crash",
            hint=f"See {random_trials.FILE} in {reports}, and build the wheel without the parts "
            "that are wrong",
        )
    by_seed: dict[int, int] = {}
    for search in searches:
        fused = sum(row.fused for row in search.families.values())
        by_seed[search.seed] = max(fused, by_seed.get(search.seed, 0))
    if (programs := sum(by_seed.values())) < _LEAST_PROGRAMS:
        raise GateError(
            f"{programs} random programs ran fused ops of {wheel}; --require-results needs "
            f"{_LEAST_PROGRAMS}",
            hint="Run: invoke selfcheck --results --candidate WHEEL, each time with another --seed",
        )


def judge_comparisons(
    file: str, sha256: str, tuned: Tuned, comparisons: Sequence[Path], others: Sequence[Path] = ()
) -> Judgement:
    """Apply the gate to a wheel without refusing it.

    The verdicts come from `comparisons`, reasons to refuse the wheel also from `others`. Raises
    RecordError.
    """
    findings = _list_findings(file, sha256, tuned, comparisons)
    faulty = [
        finding
        for finding in (*findings, *_list_findings(file, sha256, tuned, others))
        if finding.faults
    ]
    by_target: dict[tuple[str, str], _Finding] = {}
    for finding in findings:
        if finding.verdict is not None:
            by_target.setdefault((finding.target, finding.verdict.cpu), finding)
    covered = {target for target, _ in by_target}
    evidence = _collect_published(faulty)
    return Judgement(
        verdicts=tuple(
            finding.verdict for finding in by_target.values() if finding.verdict is not None
        ),
        faults=tuple(dict.fromkeys(fault for finding in faulty for fault in finding.faults)),
        gaps=tuple(f"{finding.path}: {finding.gap}" for finding in findings if finding.gap),
        silent=tuple(target for target in tuned.targets if target not in covered),
        published={
            file: public.content
            for file, public in (_collect_published(by_target.values()) | evidence).items()
        },
        evidence=tuple((file, public.sha256) for file, public in evidence.items()),
        reasons=tuple(dict.fromkeys(finding.gap for finding in findings if finding.gap)),
    )


def _collect_published(findings: Iterable[_Finding]) -> dict[str, _PublicComparison]:
    """Collect the public comparisons of the findings by file name."""
    return {
        finding.published.file: finding.published
        for finding in findings
        if finding.published is not None
    }


def serialize_public(comparison: Comparison) -> bytes:
    """Serialize a comparison in canonical form, without this machine's folders and user name.

    Each path is reduced to its last part (/srv/ann/arms/stock to `stock`), and each text to its
    first line, because the other lines contain a worker's output. The result is a valid comparison.
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
    return _PATH.sub(lambda match: PurePosixPath(match[0]).name, line)


def _list_findings(
    file: str, sha256: str, tuned: Tuned, comparisons: Iterable[Path]
) -> list[_Finding]:
    """List the findings of the comparisons, newest first.

    Raises RecordError.
    """
    loaded = sorted(
        ((load(path), path) for path in comparisons), key=lambda pair: pair[0].made, reverse=True
    )
    return [
        finding
        for comparison, path in loaded
        for finding in _read_findings(path, comparison, file, sha256, tuned)
    ]


def _read_findings(
    path: Path, comparison: Comparison, file: str, sha256: str, tuned: Tuned
) -> list[_Finding]:
    """Return one finding per arm that runs the wheel."""
    arms = [arm for arm in comparison.arms[1:] if arm.wheel_sha256 == sha256]
    unstarted = [
        failure for failure in _list_unstarted(comparison) if failure.wheel_sha256 == sha256
    ]
    if not arms and not unstarted:
        return [_Finding(path=path, gap="it compares other wheels")]
    public = _PublicComparison(wheel=file, content=_read_public(path, comparison, file))
    return [
        *(_build_finding(path, comparison, arm, public, tuned) for arm in arms),
        *(_build_failed_finding(path, comparison, failure, public, tuned) for failure in unstarted),
    ]


def _read_public(path: Path, comparison: Comparison, file: str) -> bytes:
    """Return the public form of a comparison.

    If the file is one that is stored beside the wheel, these are its own bytes: serialized by this
    version, it could have fields that it did not have when it was stored.
    """
    content = path.read_bytes()
    stored_name = format_comparison_name(file, hashlib.sha256(content).hexdigest())
    return content if path.name == stored_name else serialize_public(comparison)


def _list_unstarted(comparison: Comparison) -> list[ArmFailure]:
    """List the arms that started in no cell, each by its first failure."""
    started = {arm.name for arm in comparison.arms}
    failures = [failure for cell in comparison.cells for failure in cell.failures]
    by_arm = {failure.arm: failure for failure in reversed(failures)}
    return [by_arm[name] for name in sorted(by_arm.keys() - started)]


def _build_failed_finding(
    path: Path, comparison: Comparison, failure: ArmFailure, public: _PublicComparison, tuned: Tuned
) -> _Finding:
    """Build the finding of an arm that never started: a fault, or a gap if it proves nothing."""
    cpu = comparison.host.cpu
    settings = _select_settings(comparison.arms[0].env) if comparison.arms else {}
    if _select_settings(failure.env) != settings:
        return _Finding(path=path, gap=f"{failure.arm} and its baseline have different settings")
    if not any({*build.required_features} <= cpu.features for build in tuned.builds):
        return _Finding(path=path, gap=f"its CPU runs no code of {' or '.join(tuned.targets)}")
    faults = (f"{fault} (on {cpu.name})" for fault in _list_failures(comparison, failure.arm))
    return _Finding(path=path, published=public, faults=tuple(faults), gap="it has no timings")


def _build_finding(
    path: Path, comparison: Comparison, arm: ArmFacts, public: _PublicComparison, tuned: Tuned
) -> _Finding:
    cpu, library = comparison.host.cpu, _find_loaded(arm, tuned)
    gap = _find_mismatch(comparison, arm, library, tuned)
    if gap or library is None:
        return _Finding(path=path, gap=gap)
    target = library.target
    faults = tuple(
        f"{fault} (on {cpu.name}, {target})" for fault in _list_faults(comparison, arm.name)
    )
    rows = [overall for overall in comparison.overall if overall.speedup.arm == arm.name]
    worst = min(rows, key=lambda row: _rank_row(comparison, row), default=None)
    gap = _find_unclear(comparison, arm.name) or _explain_no_verdict(comparison, worst)
    if gap or worst is None:
        return _Finding(path=path, published=public, target=target, faults=faults, gap=gap)
    interval = worst.speedup.interval
    verdict = entry.TargetVerdict(
        target=target,
        verdict=str(find_mean_decision(comparison, worst).verdict),
        speedup=interval.value,
        low=interval.low,
        high=interval.high,
        cpu=cpu.name,
        file=public.file,
        sha256=public.sha256,
    )
    return _Finding(path=path, published=public, target=target, verdict=verdict, faults=faults)


def _find_loaded(arm: ArmFacts, tuned: Tuned) -> KernelLibrary | TunedTree | None:
    """Return the library that the worker loaded, or the whole of a full build."""
    if tuned.tree is not None:
        return tuned.tree
    loaded = PurePosixPath(arm.kernel_library or "").name
    named = (library for library in tuned.libraries if PurePosixPath(library.file).name == loaded)
    return next(named, None)


def _find_mismatch(
    comparison: Comparison, arm: ArmFacts, library: KernelLibrary | TunedTree | None, tuned: Tuned
) -> str:
    """Return why the comparison does not compare this wheel's code with stock; "" if it does."""
    baseline = comparison.arms[0]
    if baseline.wheel_sha256 != tuned.stock_sha256 or baseline.kernel_library is not None:
        return f"its baseline {baseline.name} is not the stock wheel that tuned.json names"
    if _select_settings(arm.env) != _select_settings(baseline.env):
        return f"{arm.name} and {baseline.name} have different settings"
    idle = tuned.tree is None and arm.raised_kernels <= baseline.raised_kernels
    if library is None or idle:
        return f"{arm.name} loaded none of its kernels"
    absent = sorted({*library.required_features} - comparison.host.cpu.features)
    if absent:
        return f"its CPU lacks {', '.join(absent)}, which {library.target} needs"
    return ""


def _select_settings(env: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Return an arm's settings, except the variable that chooses a library of a fleet wheel."""
    return {name: value for name, value in env if name != _FORCED}


def _list_failures(comparison: Comparison, name: str) -> Iterator[str]:
    for cell in comparison.cells:
        if any(result.arm == name for result in cell.failures):
            yield f"its worker failed in {cell.workload} on {format_vcpus(cell.vcpus)}"


def _list_faults(comparison: Comparison, name: str) -> Iterator[str]:
    yield from _list_failures(comparison, name)
    for cell in comparison.cells:
        where = f"{cell.workload} on {format_vcpus(cell.vcpus)}"
        agreements = [result for result in cell.agreements if result.arm == name]
        if not all(result.is_within(min(result.tolerance, PARITY)) for result in agreements):
            yield f"its results differ from stock in {where}"
        if not agreements and not cell.failures:
            yield f"no losses or predictions were compared in {where}"
        speedup = cell.get_result(name).speedup
        if speedup and find_decision(comparison, cell, name).verdict is Verdict.SLOWER:
            yield f"it is slower in {where} ({speedup.interval.value:.3f}x)"
    for row in comparison.overall:
        mean, decision = row.speedup, find_mean_decision(comparison, row)
        if mean.arm == name and decision.verdict is Verdict.SLOWER:
            where = f"over all workloads on {format_vcpus(row.vcpus)}"
            yield f"it is slower {where} ({mean.interval.value:.3f}x)"


def _find_unclear(comparison: Comparison, name: str) -> str:
    """Return where only rounding explains differing losses or predictions; empty if nowhere."""
    for cell in comparison.cells:
        if any(agreement.arm == name and agreement.is_excused for agreement in cell.agreements):
            where = f"{cell.workload} on {format_vcpus(cell.vcpus)}"
            return f"only rounding explains the different results in {where}"
    return ""


def _rank_row(comparison: Comparison, row: Overall) -> tuple[int, float]:
    """Return the sort key of a row for a number of vCPUs; the lowest row is published."""
    verdict = find_mean_decision(comparison, row).verdict
    return _WORST_FIRST.index(verdict), row.speedup.interval.low


def _explain_no_verdict(comparison: Comparison, worst: Overall | None) -> str:
    """Explain why the comparison gives no verdict; return "" if it gives one."""
    if not comparison.complete:
        return "it is not finished"
    if worst is None:
        return "it has no timings"
    if any(cell.is_inference for cell in comparison.cells):
        return "it measures inference, not training"
    if comparison.threshold > MOST_HIDDEN:
        return (
            f"its --threshold of {comparison.threshold:.1%} can hide losses of more than "
            f"{MOST_HIDDEN:.0%}"
        )
    verdict = find_mean_decision(comparison, worst).verdict
    if verdict is Verdict.EQUIVALENT and comparison.margin > MOST_HIDDEN:
        return (
            f"its --margin of {comparison.margin:.1%} can hide losses of more than "
            f"{MOST_HIDDEN:.0%}"
        )
    if verdict is not Verdict.INCONCLUSIVE:
        return ""
    low, high = worst.speedup.interval.low, worst.speedup.interval.high
    return f"it is inconclusive on {format_vcpus(worst.vcpus)} ({low:.3f} to {high:.3f})"
