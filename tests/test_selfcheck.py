"""What a self-check makes of its trials; the trials themselves are in tests/integration."""

from __future__ import annotations

import math
import os
import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from tests.invented import host

from tfbench.arms.arm import Arm
from tfbench.measuring import selfcheck
from tfbench.measuring.selfcheck import (
    Finding,
    SelfCheck,
    Trial,
    competing,
    rate,
    read_trials,
    rows,
    widths,
)
from tfbench.measuring.statistics import Interval, Verdict
from tfbench.reports import evidence
from tfbuild.errors import DiskError, RecordError, UsageError


def interval(low: float, high: float) -> Interval:
    return Interval(value=math.sqrt(low * high), low=low, high=high)


def finding(low: float, high: float, *, truth: float = 1.0) -> Finding:
    found = interval(low, high)
    verdict = Verdict.FASTER if low > 1 else Verdict.INCONCLUSIVE
    return Finding(truth=truth, interval=found, bootstrap=interval(1.5, 1.6), verdict=verdict)


def trial(number: int, *findings: Finding, part: str = "same") -> Trial:
    return Trial(
        part=part,
        number=number,
        seconds=10.0 + number,
        fair=number % 2 == 0,
        findings=findings,
        widths=((30.0, 0.04), (60.0, 0.02 + number / 100)),
    )


def check(*trials: Trial) -> SelfCheck:
    return SelfCheck(
        schema=1,
        made="2026-11-21T00:00:00+00:00",
        seconds=1.0,
        host=host(2),
        arm="stock.whl",
        rows=rows(trials),
        widths=widths(trials),
    )


def test_a_row_counts_what_was_found_covered_and_undisturbed() -> None:
    trials = [
        trial(0, finding(0.9, 1.1)),
        trial(1, finding(1.01, 1.2)),
        trial(2, finding(0.8, 0.9)),
    ]
    (row,) = rows(trials)
    assert (row.found.hits, row.found.trials) == (2, 3)
    assert row.said.hits == 1
    assert row.covered.hits == 1
    assert row.covered_by_bootstrap.hits == 0
    assert row.fair.hits == 2
    assert row.seconds == 11.0


def test_truths_and_parts_have_rows_of_their_own() -> None:
    both = (finding(0.9, 1.1), finding(0.8, 0.95, truth=1 / 1.1))
    found = rows([trial(0, *both, part="slowed"), trial(1, *both, part="slowed, loaded")])
    assert [(row.part, row.truth) for row in found] == [
        ("slowed", 1.0),
        ("slowed", 1 / 1.1),
        ("slowed, loaded", 1.0),
        ("slowed, loaded", 1 / 1.1),
    ]
    assert found[1].covered.hits == 1


def test_widths_are_medians_over_the_longest_trials() -> None:
    short = Trial(part="same", number=9, seconds=1.0, fair=True, findings=(), widths=((9.0, 9.0),))
    found = widths([short, trial(0), trial(2)])
    assert found == ((3, 0.5, 0.04), (4, 1.0, 0.03))
    assert widths([short]) == ()


@given(st.lists(st.booleans(), min_size=1, max_size=300))
def test_rates_have_exact_binomial_intervals(hits: list[bool]) -> None:
    found = rate(hits)
    low, high = stats.beta.ppf(
        [0.025, 0.975],
        [sum(hits) or 1, sum(hits) + 1],
        [len(hits) - sum(hits) + 1, (len(hits) - sum(hits)) or 1],
    )
    assert found.low == pytest.approx(low if any(hits) else 0, abs=1e-9)
    assert found.high == pytest.approx(high if not all(hits) else 1, abs=1e-9)


def test_it_fails_only_when_false_positives_are_clearly_too_many() -> None:
    false, right = finding(1.01, 1.2), finding(0.9, 1.1)
    few = check(*(trial(n, false if n < 16 else right) for n in range(200)))
    many = check(*(trial(n, false if n < 40 else right) for n in range(200)))
    assert few.passed
    assert not many.passed
    assert "may be trusted" in evidence.conclusion(few)
    assert "Do not trust" in evidence.conclusion(many)
    assert "40 in 200 trials" in evidence.conclusion(many)


def test_a_few_trials_prove_nothing_and_it_says_so() -> None:
    assert "too few" in evidence.conclusion(check(trial(0, finding(0.9, 1.1))))


def test_table_and_page_show_each_row() -> None:
    made = check(*(trial(n, finding(0.9, 1.1)) for n in range(8)))
    table, page = evidence.table(made, colour=False), evidence.markdown(made)
    assert "\x1b" not in table
    for text in (table, page):
        assert "0.0% (0-37)" in text
        assert "4 of 8" in text
        assert "1.0 min: 5.50%" in text


def test_trials_are_read_back(tmp_path: Path) -> None:
    path = tmp_path / "out" / "trials.jsonl"
    made = [trial(0, finding(0.9, 1.1)), trial(1, finding(0.8, 0.9, truth=0.97))]
    for each in made:
        selfcheck.append(path, each)
    assert read_trials(path) == made
    assert read_trials(tmp_path / "none") == []


@pytest.mark.parametrize("text", ["{", "{}", '{"part": 3}', "[]"])
def test_another_file_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "trials.jsonl"
    path.write_text(text + "\n", encoding="utf-8")
    with pytest.raises(RecordError, match="not a file of trials"):
        read_trials(path)


def test_trials_of_another_machine_or_seed_are_not_mixed(tmp_path: Path) -> None:
    arm = Arm(name="stock", python=Path("/none/bin/python"), label="stock.whl")

    def trials(size: int, seed: int) -> object:
        return selfcheck.run_trials(
            arm, host(size), (), seed=seed, out=tmp_path, on_progress=lambda *_: None
        )

    selfcheck.append(tmp_path / "trials.jsonl", trial(0, finding(0.9, 1.1)))
    assert trials(2, 1) == ()
    assert trials(2, 1) == ()
    for size, seed in ((2, 2), (4, 1)):
        with pytest.raises(UsageError, match="another machine, wheel or seed"):
            trials(size, seed)


def test_a_full_disk_is_told() -> None:
    with pytest.raises(DiskError, match="No space left"):
        selfcheck.append(Path("/dev/full"), trial(0, finding(0.9, 1.1)))


def test_the_competing_process_is_busy_and_ends() -> None:
    cpu = random.choice(sorted(os.sched_getaffinity(0)))  # noqa: S311
    with competing(cpu) as pid:
        assert Path(f"/proc/{pid}").exists()
    assert not Path(f"/proc/{pid}").exists()
