from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from tests.builders.comparisons import host
from tests.builders.kernel_call_sites import call_site, series

from tfbench.kernels.timing_cache import TimingCache

TIMED = series(0.1, 0.2)


def memory(folder: Path, cpu: str = "a") -> TimingCache:
    return TimingCache(folder=folder, cpu=cpu)


def test_what_was_timed_is_recalled(tmp_path: Path) -> None:
    memory(tmp_path).save_series("recipe", call_site("Tanh", 4), 2, TIMED)
    assert memory(tmp_path).load_series("recipe", call_site("Tanh", 4), 2) == TIMED


@pytest.mark.parametrize(
    ("cpu", "recipe", "shape", "threads"),
    [("b", "recipe", 4, 2), ("a", "other", 4, 2), ("a", "recipe", 5, 2), ("a", "recipe", 4, 1)],
)
def test_another_cpu_code_place_or_thread_count_is_timed_anew(
    cpu: str, recipe: str, shape: int, threads: int, tmp_path: Path
) -> None:
    memory(tmp_path).save_series("recipe", call_site("Tanh", 4), 2, TIMED)
    assert memory(tmp_path, cpu).load_series(recipe, call_site("Tanh", shape), threads) is None


@pytest.mark.parametrize("content", ["", "{", '{"schema": 1}', '{"schema": 2, "series": {}}'])
def test_a_damaged_file_is_timed_anew(content: str, tmp_path: Path) -> None:
    memory(tmp_path).save_series("recipe", call_site(), 1, TIMED)
    (path,) = tmp_path.rglob("*.json")
    path.write_text(content, encoding="utf-8")
    assert memory(tmp_path).load_series("recipe", call_site(), 1) is None


def test_a_hidden_feature_makes_another_cpu() -> None:
    cpu = host(4).cpu
    other_cpu = dataclasses.replace(cpu, features=cpu.features | {"amx_tile"})
    assert cpu.kind != other_cpu.kind
