"""The estimator that is used, held to what it promises on made-up machines."""

from __future__ import annotations

import functools
from typing import TypeAlias

import pytest
from tests.builders.later import later
from tests.builders.simulated_machines import MACHINES, Level, Machine
from tests.tools.estimators import Times, half, judged, mean, middle, own, wall

from tfbench.measuring.samples import list_step_seconds
from tfbench.measuring.statistics import compute_level

FEW, MANY = 60, 400
BY_NAME = {machine.name: machine for machine in MACHINES}
TRIALS = [FEW, *later(MANY)]

Figures: TypeAlias = tuple[float, float, float, float]
every_machine = pytest.mark.parametrize("machine", MACHINES, ids=lambda machine: machine.name)
few_and_many = pytest.mark.parametrize("trials", TRIALS)


@functools.cache
def figures(
    name: str, trials: int, seconds: Times = list_step_seconds, by: Level = compute_level
) -> Figures:
    return judged(BY_NAME[name], seconds, by, trials)


@every_machine
@few_and_many
def test_stock_is_seldom_called_different_from_stock(machine: Machine, trials: int) -> None:
    false, *_ = figures(machine.name, trials)
    assert false <= 0.10


@every_machine
@few_and_many
def test_five_per_cent_are_seen(machine: Machine, trials: int) -> None:
    _, detected, _, _ = figures(machine.name, trials)
    assert detected >= 0.90


@every_machine
@few_and_many
def test_the_interval_holds_the_truth(machine: Machine, trials: int) -> None:
    _, _, held, _ = figures(machine.name, trials)
    assert held >= 0.85


@few_and_many
@pytest.mark.parametrize("other_level", [mean, middle])
def test_under_bursts_the_fastest_slices_are_known_better(trials: int, other_level: Level) -> None:
    assert figures("bursts", trials)[3] < 0.8 * figures("bursts", trials, own, other_level)[3]


@few_and_many
def test_slices_tell_more_of_short_bursts_than_samples(trials: int) -> None:
    assert figures("short bursts", trials)[3] < 0.8 * figures("short bursts", trials, own, half)[3]


@few_and_many
@pytest.mark.parametrize("name", ["steal", "busy process"])
def test_where_others_take_the_cpu_own_time_is_known_better(trials: int, name: str) -> None:
    assert figures(name, trials)[3] < 0.8 * figures(name, trials, wall)[3]


@few_and_many
def test_on_a_quiet_machine_the_fastest_slices_cost_little(trials: int) -> None:
    assert figures("quiet", trials)[3] < 1.1 * figures("quiet", trials, wall, mean)[3]


def test_these_machines_are_noisy_enough_to_tell_estimators_apart() -> None:
    """The mean of wall times, as one would take it, misses 5 % on them, or finds what is not."""
    for name in ("bursts", "steal", "busy process"):
        false, detected, held, _ = figures(name, FEW, wall, mean)
        assert false > 0.10 or detected < 0.90 or held < 0.85
