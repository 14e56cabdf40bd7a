"""What a self-check makes of its trials; the trials themselves are in tests/integration."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from tests.builders.comparisons import host
from tests.builders.later import later
from tests.builders.processes import alive, children

from tfbench.arms.arm import Arm
from tfbench.engine.journal import open_journal
from tfbench.measuring import selfcheck
from tfbench.measuring.selfcheck import (
    KIND,
    KINDS,
    Progress,
    SelfCheck,
    Task,
    Trial,
    TrialFinding,
    TrialPart,
    TrialSetting,
    compute_median_widths,
    compute_rate,
    create_rows,
    run_competitor,
    run_trials,
)
from tfbench.reports import selfcheck_text
from tfcore import records
from tfcore.comparisons.host import read_host
from tfcore.comparisons.interval import Interval, Verdict
from tfcore.errors import (
    HostError,
    RecordError,
    SampleError,
    TensorwrightError,
    UsageError,
    WorkerError,
)
from tfcore.settings import ROOT


def interval(low: float, high: float) -> Interval:
    return Interval(value=math.sqrt(low * high), low=low, high=high)


def finding(low: float, high: float, *, truth: float = 1.0) -> TrialFinding:
    actual = interval(low, high)
    verdict = Verdict.FASTER if low > 1 else Verdict.INCONCLUSIVE
    return TrialFinding(
        truth=truth,
        interval=actual,
        medians=interval(1.5, 1.6),
        verdict=verdict,
    )


def trial(number: int, *findings: TrialFinding, part: str = "same") -> Trial:
    return Trial(
        part=part,
        number=number,
        seconds=10.0 + number,
        findings=findings if len(findings) > 1 else (*findings, finding(0.9, 1.1)),
        measuring=0.5,
        widths=((30.0, 0.04), (60.0, 0.02 + number / 100)),
    )


def check(*trials: Trial) -> SelfCheck:
    return SelfCheck(
        schema=2,
        made="2026-11-21T00:00:00+00:00",
        seconds=1.0,
        host=host(2),
        arm="stock.whl",
        rows=create_rows(trials),
        widths=compute_median_widths(trials),
    )


def test_a_row_counts_what_was_found_covered_and_undisturbed() -> None:
    trials = [
        trial(0, finding(0.9, 1.1)),
        trial(1, finding(1.01, 1.2)),
        trial(2, finding(0.8, 0.9)),
    ]
    row, other_row = create_rows(trials)
    assert (row.arm, other_row.arm) == ("stock again", "arm")
    assert (row.found.hits, row.found.trials) == (2, 3)
    assert row.said.hits == 1
    assert row.covered.hits == 1
    assert row.covered_by_medians.hits == 0
    assert other_row.found.hits == 0
    assert (row.seconds, row.measuring) == (11.0, 0.5)


def test_truths_and_parts_have_rows_of_their_own() -> None:
    both = (finding(0.9, 1.1), finding(0.8, 0.95, truth=1 / 1.1))
    rows = create_rows([trial(0, *both, part="slowed"), trial(1, *both, part="slowed, loaded")])
    assert [(row.part, row.truth) for row in rows] == [
        ("slowed", 1.0),
        ("slowed", 1 / 1.1),
        ("slowed, loaded", 1.0),
        ("slowed, loaded", 1 / 1.1),
    ]
    assert rows[1].covered.hits == 1


def test_widths_are_medians_over_the_longest_trials() -> None:
    short = Trial(part="same", number=9, seconds=1.0, findings=(), widths=((9.0, 9.0),))
    median_widths = compute_median_widths([short, trial(0), trial(2)])
    assert median_widths == ((3, 0.5, 0.04), (4, 1.0, 0.03))
    assert compute_median_widths([short]) == ()


@given(st.lists(st.booleans(), min_size=1, max_size=300))
def test_rates_have_exact_binomial_intervals(hits: list[bool]) -> None:
    rate = compute_rate(hits)
    low, high = stats.beta.ppf(
        [0.025, 0.975],
        [sum(hits) or 1, sum(hits) + 1],
        [len(hits) - sum(hits) + 1, (len(hits) - sum(hits)) or 1],
    )
    assert rate.low == pytest.approx(low if any(hits) else 0, abs=1e-9)
    assert rate.high == pytest.approx(high if not all(hits) else 1, abs=1e-9)


def test_it_fails_only_when_false_positives_are_clearly_too_many() -> None:
    false, right = finding(1.01, 1.2), finding(0.9, 1.1)
    few = check(*(trial(n, false if n < 16 else right) for n in range(200)))
    many = check(*(trial(n, false if n < 40 else right) for n in range(200)))
    assert few.passed
    assert not many.passed
    assert "The harness passes" in selfcheck_text.format_conclusion(few)
    assert "do not trust" in selfcheck_text.format_conclusion(many)
    assert "40 in 200 trials" in selfcheck_text.format_conclusion(many)


def test_a_few_trials_prove_nothing_and_it_says_so() -> None:
    assert "too few" in selfcheck_text.format_conclusion(check(trial(0, finding(0.9, 1.1))))


def test_table_and_page_show_each_row() -> None:
    self_check = check(*(trial(n, finding(0.9, 1.1)) for n in range(8)))
    table, page = (
        selfcheck_text.build_table(self_check).format_text(colour=False),
        selfcheck_text.render_markdown(self_check),
    )
    assert "\x1b" not in table
    for text in (table, page):
        assert "0.0% (0-37)" in text
        assert "50%" in text
        assert "1.0 min: 5.50%" in text


# --- the file of trials ---------------------------------------------------------------------------


def write(path: Path, *trials: Trial) -> None:
    with open_journal(path, KINDS) as (_, keep):
        for written_trial in trials:
            keep(written_trial)


@pytest.mark.parametrize("text", ["{", "{}", '{"is": "trial", "part": 3}', "[]"])
def test_another_file_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / KIND.journal).write_text(text + "\n", encoding="utf-8")
    records.save(tmp_path / KIND.spec, TrialSetting(host=host(2), arm=fake_arm(), seed=1))
    with pytest.raises(RecordError, match="line 1 ") as caught:
        ran(tmp_path)
    assert "--out" in caught.value.hint


def test_a_trial_without_a_time_is_refused() -> None:
    with pytest.raises(SampleError, match="invalid time"):
        dataclasses.replace(trial(0, finding(0.9, 1.1)), seconds=math.inf)


# --- going on -------------------------------------------------------------------------------------


def fake_arm() -> Arm:
    return Arm(name="stock", python=Path("/none/bin/python"), label="stock.whl")


def ran(
    out: Path, *parts: TrialPart, size: int = 2, seed: int = 1, listen: Progress = lambda *_: None
) -> tuple[Trial, ...]:
    return run_trials(fake_arm(), host(size), parts, seed=seed, out=out, on_progress=listen)


@pytest.mark.parametrize(
    ("size", "seed", "error", "named"),
    [
        (2, 2, UsageError, r"seed \(1, now 2\)"),
        (4, 1, HostError, r"host\.vcpus\.machine \(2, now 4"),
    ],
)
def test_trials_of_another_machine_or_seed_are_not_mixed(
    size: int, seed: int, error: type[TensorwrightError], named: str, tmp_path: Path
) -> None:
    assert ran(tmp_path) == ()
    write(tmp_path / KIND.journal, trial(0, finding(0.9, 1.1)))
    assert ran(tmp_path) == ()
    with pytest.raises(error, match=named):
        ran(tmp_path, size=size, seed=seed)


def test_what_is_there_is_not_made_again(tmp_path: Path) -> None:
    finished = [trial(number, finding(0.9, 1.1)) for number in range(3)]
    assert ran(tmp_path) == ()
    write(tmp_path / KIND.journal, *finished, trial(0, finding(0.9, 1.1), part="slowed"))
    assert list(ran(tmp_path, TrialPart(name="same", trials=2))) == finished


def test_only_trials_that_were_asked_for_are_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A larger check went before: its trials count in the answer, not in the progress."""

    def made(tasks: Sequence[Task], cpus: Sequence[int]) -> Iterator[Trial]:
        yield from (trial(task.number, finding(0.9, 1.1)) for task in tasks)

    monkeypatch.setattr(selfcheck, "_run_tasks", made)
    assert ran(tmp_path) == ()
    write(tmp_path / KIND.journal, *(trial(number, finding(0.9, 1.1)) for number in (0, 5, 6)))
    progress: list[tuple[int, int, str]] = []
    trials = ran(
        tmp_path,
        TrialPart(name="same", trials=3),
        listen=lambda done, total, _, remaining_s: progress.append((done, total, remaining_s)),
    )
    assert progress == [(2, 3, "about 30.0 s left"), (3, 3, "about 0.0 s left")]
    assert [counted.number for counted in trials] == [0, 5, 6, 1, 2]


# --- its processes --------------------------------------------------------------------------------

# A worker that never answers, with its output open, and ends with its input.
STAND_IN = """\
#!/bin/sh
exec cat 3>&1 >&2
"""


def descendants(pid: int) -> set[int]:
    return children(pid).union(*map(descendants, children(pid)))


def named(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    except OSError:
        return ""


def wait_until(holds: Callable[[], bool], limit_s: float = 60.0) -> None:
    until = time.monotonic() + limit_s
    while not holds():
        assert time.monotonic() < until, "it did not come to that"
        time.sleep(0.01)


def test_the_competing_process_keeps_one_cpu_busy_and_ends() -> None:
    cpu = random.choice(sorted(os.sched_getaffinity(0)))  # noqa: S311
    with run_competitor(cpu) as pid:
        wait_until(lambda: os.sched_getaffinity(pid) == {cpu})
        wait_until(lambda: ticks(pid) > 5)
    assert not Path(f"/proc/{pid}").exists()


def ticks(pid: int) -> int:
    """The CPU time of a process in user mode."""
    stat = Path(f"/proc/{pid}/stat").read_text(encoding="ascii")
    return int(stat.rpartition(")")[2].split()[11])


CHECK = """
import os, sys
from pathlib import Path
from tfbench.arms.arm import Arm
from tfcore.comparisons.host import read_host
from tfbench.measuring.selfcheck import TrialPart, run_trials

if __name__ == "__main__":
    python, out = map(Path, sys.argv[1:])
    arm = Arm(name="stock", python=python, label="stock.whl")
    part = TrialPart(name="same, loaded", trials=8, loaded=True)
    try:
        run_trials(arm, read_host(), [part], seed=1, out=out, on_progress=print)
    except KeyboardInterrupt:
        sys.exit(130)
"""


@contextlib.contextmanager
def checking(folder: Path) -> Iterator[subprocess.Popen[str]]:
    """A self-check in a group of its own, whose workers never answer."""
    python = folder / "arm" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(STAND_IN, encoding="utf-8")
    python.chmod(0o755)
    script = folder / "check.py"
    script.write_text(CHECK, encoding="utf-8")
    roots = os.pathsep.join(str(ROOT / name) for name in ("build", "benchmarks"))
    with subprocess.Popen(
        [sys.executable, script, python, folder / "out"],
        env=os.environ | {"PYTHONPATH": roots},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            yield process
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


def busy(pid: int) -> bool:
    """Whether every CPU has its competing process and a worker."""
    words = [named(descendant) for descendant in descendants(pid)]
    cpus = len(os.sched_getaffinity(0))
    return min(sum(kind in word for word in words) for kind in ("select", "cat")) >= cpus


def starting(pid: int) -> bool:
    """Whether it has begun to start its pool."""
    return any("spawn_main" in named(descendant) for descendant in descendants(pid))


@pytest.mark.parametrize("moment", [starting, *later(busy)])
def test_ctrl_c_ends_every_process_without_a_word(
    moment: Callable[[int], bool], tmp_path: Path
) -> None:
    """The terminal sends it to the whole group, whatever it is doing then."""
    with checking(tmp_path) as process:
        wait_until(lambda: moment(process.pid))
        processes = descendants(process.pid)
        os.killpg(process.pid, signal.SIGINT)
        text, _ = process.communicate(timeout=60)
        assert (process.returncode, text) == (130, "")
        wait_until(lambda: not any(map(alive, processes)))


def test_an_interrupt_of_the_check_alone_ends_its_processes_too(tmp_path: Path) -> None:
    with checking(tmp_path) as process:
        wait_until(lambda: busy(process.pid))
        processes = descendants(process.pid)
        process.send_signal(signal.SIGINT)
        text, _ = process.communicate(timeout=60)
        assert (process.returncode, text) == (130, "")
        wait_until(lambda: not any(map(alive, processes)))


def test_each_process_has_a_cpu_for_itself(tmp_path: Path) -> None:
    cpus = sorted(os.sched_getaffinity(0))
    with checking(tmp_path) as process:
        wait_until(lambda: busy(process.pid))
        pool = [pid for pid in children(process.pid) if "spawn_main" in named(pid)]
        assert sorted(map(os.sched_getaffinity, pool), key=min) == [{cpu} for cpu in cpus]


def test_a_trial_that_fails_ends_the_others(tmp_path: Path) -> None:
    """The arm has no Python at all."""
    parts = [TrialPart(name="same", trials=4)]
    with pytest.raises(WorkerError, match="did not start"):
        run_trials(
            fake_arm(), read_host(), parts, seed=1, out=tmp_path, on_progress=lambda *_: None
        )
    assert multiprocessing.active_children() == []
