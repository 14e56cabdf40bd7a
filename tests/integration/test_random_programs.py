"""Random programs compute with fused ops what they compute with TensorFlow's own kernels."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest
from tests.builders.fused_search import compiled_parts, searched

from tfbuild.tools.environment import Environment
from tfcore.settings import Paths

pytestmark = pytest.mark.toolchain

FEW, MANY = 34, 250
"""Programs of each family: 204 in all, and 1500."""
RARE = 0.3
"""The smallest share of programs of which something is fused: few of the products, the sizes of
most of which are small."""


@pytest.fixture(scope="module")
def libraries(paths: Paths) -> tuple[Path, ...]:
    return compiled_parts(paths)


@pytest.mark.parametrize("onednn", ["0", "1"])
def test_two_hundred_programs(
    onednn: str, stock_arm: Environment, libraries: tuple[Path, ...], tmp_path: Path
) -> None:
    """Half of them with oneDNN's operations."""
    counts = searched(
        stock_arm,
        libraries,
        tmp_path,
        seed=int(onednn),
        programs=FEW // 2,
        TF_ENABLE_ONEDNN_OPTS=onednn,
    )
    assert all(row.programs == FEW // 2 for row in counts.values())
    assert all(row.fused >= RARE * row.programs for row in counts.values())


@pytest.mark.slow
def test_many_programs_with_a_seed_of_today(
    stock_arm: Environment, libraries: tuple[Path, ...], tmp_path: Path
) -> None:
    """What fails can be run again: the seed is the number of the day."""
    seed = datetime.now(UTC).toordinal()
    searched(stock_arm, libraries, tmp_path, seed=seed, programs=MANY)
