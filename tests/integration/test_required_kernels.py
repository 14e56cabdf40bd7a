"""TENSORWRIGHT_REQUIRE in the real TensorFlow: the stock environment with a dispatcher over it."""

from __future__ import annotations

from pathlib import Path

import archspec.cpu
import pytest
from tests.builders.dispatchers import ABSENT, PRESENT, on_x86_64, target
from tests.builders.overlays import lay_over

from tfbuild.tools.environment import Environment

pytestmark = [on_x86_64, pytest.mark.toolchain]


def test_a_fallback_is_an_import_error_only_where_that_was_asked_for(
    stock_arm: Environment, tmp_path: Path
) -> None:
    overlay = lay_over(stock_arm, tmp_path, target("zen9", PRESENT[0], ABSENT[0]))
    plain = overlay.import_it()
    assert plain.returncode == 0
    assert float(plain.output.splitlines()[-1]) == pytest.approx(0.46211717)
    index = "https://wheels.example"
    required = overlay.import_it(TENSORWRIGHT_REQUIRE="1", TENSORWRIGHT_INDEX=index)
    assert required.returncode == 1
    host = archspec.cpu.host().name
    last = required.output.splitlines()[-1]
    assert last.startswith("ImportError: TENSORWRIGHT_REQUIRE is set")
    assert "zen9 needs reserved_bit" in last
    assert last.endswith(f" {host}: {index}/simple/{host}/")


def test_loaded_kernels_satisfy_the_requirement(stock_arm: Environment, tmp_path: Path) -> None:
    overlay = lay_over(stock_arm, tmp_path, target("zen4", *PRESENT))
    done = overlay.import_it(TENSORWRIGHT_REQUIRE="1")
    assert done.returncode == 0
    assert float(done.output.splitlines()[-1]) == pytest.approx(0.46211717)
