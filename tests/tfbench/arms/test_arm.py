from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from tests.builders.journals import STOCK, TUNED

from tfbench.arms.arm import Arm, build_environment, check_arms, create_repeat
from tfcore.errors import UsageError


@pytest.mark.parametrize("arms", [(), (STOCK,)])
def test_a_comparison_needs_two_arms(arms: tuple[Arm, ...]) -> None:
    with pytest.raises(UsageError, match=f"two arms, .*{len(arms)}"):
        check_arms(arms)
    check_arms((STOCK, TUNED))


@pytest.mark.parametrize(
    "arms", [(STOCK, STOCK), (STOCK, TUNED, STOCK), (STOCK, TUNED, create_repeat(STOCK))]
)
def test_arms_have_names_of_their_own(arms: tuple[Arm, ...]) -> None:
    """The baseline's second worker has one, too."""
    with pytest.raises(UsageError, match="same name"):
        check_arms(arms)
    check_arms((STOCK, create_repeat(TUNED)))


def test_a_twin_is_the_same_but_for_its_name() -> None:
    repeat = create_repeat(TUNED)
    assert repeat.name != TUNED.name
    assert dataclasses.replace(repeat, name=TUNED.name) == TUNED


def started(arm: Arm, *, vcpus: int = 2, **inherited: str) -> dict[str, str]:
    return build_environment(
        arm, vcpus=vcpus, home=Path("/nowhere"), padding=100, inherited=inherited
    )


def test_a_worker_sees_little_of_the_callers_environment() -> None:
    env = started(
        STOCK, PATH="/bin", LD_PRELOAD="spy.so", TF_ENABLE_ONEDNN_OPTS="0", PYTHONPATH="/mine"
    )
    assert env["PATH"] == "/bin"
    assert env["HOME"] == "/nowhere"
    assert env["CUDA_VISIBLE_DEVICES"] == ""
    assert len(env["TENSORWRIGHT_PADDING"]) == 100
    assert {"LD_PRELOAD", "TF_ENABLE_ONEDNN_OPTS", "PYTHONPATH"}.isdisjoint(env)


@pytest.mark.parametrize("vcpus", [1, 2, 64])
def test_all_thread_pools_are_as_large_as_the_cell(vcpus: int) -> None:
    env = started(STOCK, vcpus=vcpus)
    names = ("TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS", "OMP_NUM_THREADS")
    assert [env[name] for name in names] == [str(vcpus)] * 3


def test_the_arms_own_values_win() -> None:
    settings = (("OMP_NUM_THREADS", "7"), ("ONEDNN_MAX_CPU_ISA", "AVX"), ("KMP_BLOCKTIME", "200"))
    env = started(dataclasses.replace(TUNED, env=settings))
    assert {name: env[name] for name, _ in settings} == dict(settings)
    assert env["TF_NUM_INTRAOP_THREADS"] == "2"


def test_the_arms_prefix_is_its_environment_even_where_python_is_a_link(tmp_path: Path) -> None:
    python = tmp_path / "arm" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.symlink_to("/usr/bin/env")
    assert dataclasses.replace(STOCK, python=python).prefix == tmp_path / "arm"
