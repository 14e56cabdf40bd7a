"""One wheel for several targets: what it takes on this CPU, on a weaker one, and when told."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.builders.installed_wheel import Tried, own_arm
from tests.builders.later import later
from tests.builders.own_cpu import OwnCpu

from tfbuild.kernelbuild import admission, assemble
from tfbuild.packing import tuned
from tfcore.run import run

pytestmark = [pytest.mark.toolchain, pytest.mark.kernels]

THREE = "haswell,x86_64_v3,skylake_avx512"


@pytest.fixture(scope="module", params=["two", *later("three")])
def fleet(
    request: pytest.FixtureRequest, wheel_for: Callable[[str], Tried], own_cpu: OwnCpu
) -> Tried:
    """What this CPU is and an older target; in the second tier one that this CPU may lack, too."""
    return wheel_for({"two": own_cpu.two_targets, "three": THREE}[request.param])


@pytest.fixture(scope="module")
def facts(fleet: Tried) -> tuned.Tuned:
    tuned_facts = tuned.read_tuned(fleet.built.wheel)
    assert tuned_facts is not None
    return tuned_facts


def loaded(fleet: Tried, **env: str) -> tuple[str, str]:
    """The target that the dispatcher says it took, and its line on stderr."""
    script = (
        "import json, ctypes, pathlib, tensorflow as tf\n"
        "at = pathlib.Path(tf.__file__).parent / 'core/kernels/libtfkernel_tensorwright.so'\n"
        "own = ctypes.CDLL(str(at))\n"
        "own.tensorwright_loaded.restype = ctypes.c_char_p\n"
        "print(json.dumps((own.tensorwright_loaded() or b'').decode()))\n"
    )
    quiet = admission.build_probe_env() | {"TF_CPP_MIN_LOG_LEVEL": "1"}
    done = run([fleet.arm.python, "-P", "-c", script], env=quiet | env, timeout_s=600)
    output = [line for line in done.output.splitlines() if line.startswith("tensorwright")]
    return json.loads(done.output.splitlines()[-1]), "".join(output)


def test_every_target_has_its_library_the_most_able_first(fleet: Tried, facts: tuned.Tuned) -> None:
    first, *other_libraries = facts.libraries
    assert facts.targets == fleet.fleet.targets
    assert set(first.required_features) > frozenset[str]().union(
        *(library.required_features for library in other_libraries)
    )
    assert len({library.sha256 for library in facts.libraries}) == len(facts.targets)
    assert [part.kernels for part in other_libraries] == [first.kernels] * len(other_libraries)


def test_the_first_library_that_this_cpu_can_run_is_taken(
    fleet: Tried, facts: tuned.Tuned, own_cpu: OwnCpu, tmp_path: Path
) -> None:
    expected = tuned.choose_build(facts, own_cpu.cpu)
    assert expected is not None
    record = assemble.run_smoke_test(fleet.arm, tmp_path)
    assert record["loaded"] == expected.name
    assert record["computes"]


def test_a_target_can_be_forced(fleet: Tried, facts: tuned.Tuned) -> None:
    last = facts.libraries[-1].name
    assert loaded(fleet, TENSORWRIGHT_TARGET=last)[0] == last


def test_a_forced_target_is_still_checked_against_the_cpu(fleet: Tried, facts: tuned.Tuned) -> None:
    last = facts.libraries[-1].name
    name, text = loaded(fleet, TENSORWRIGHT_TARGET=last, TENSORWRIGHT_MASK="fma")
    assert name == ""
    assert f"{last} needs fma" in text


def test_a_cpu_without_a_feature_gets_the_next_library(fleet: Tried, facts: tuned.Tuned) -> None:
    masked: list[str] = []
    for better, worse in itertools.pairwise(facts.libraries):
        masked += sorted({*better.required_features} - {*worse.required_features})[:1]
        assert loaded(fleet, TENSORWRIGHT_MASK=",".join(masked))[0] == worse.name


def test_a_cpu_without_all_of_them_gets_the_stock_kernels_and_the_reasons(
    fleet: Tried, facts: tuned.Tuned
) -> None:
    name, text = loaded(fleet, TENSORWRIGHT_MASK="avx2")
    assert name == ""
    for library in facts.libraries:
        assert f"{library.name} needs " in text
    assert "avx2" in text


def test_it_can_be_switched_off(fleet: Tried) -> None:
    assert loaded(fleet, TENSORWRIGHT_TARGET="off") == ("", "")


def test_a_damaged_library_hands_over_to_the_next(
    fleet: Tried, facts: tuned.Tuned, own_cpu: OwnCpu, tmp_path: Path
) -> None:
    """Whatever this CPU would take first, its file is gone: then the one after it runs."""
    own_tried = own_arm(fleet, tmp_path)
    able = [
        kernel_library
        for kernel_library in facts.libraries
        if not set(kernel_library.required_features) - own_cpu.cpu.features
    ]
    first, second = able[0], able[1]
    library = next(own_tried.arm.folder.rglob(Path(first.file).name))
    content = library.read_bytes()
    library.unlink()
    assert loaded(own_tried)[0] == second.name
    library.write_bytes(content[: first.size // 2])
    assert loaded(own_tried)[0] == second.name


def test_the_size_of_each_library_is_told(fleet: Tried, facts: tuned.Tuned) -> None:
    assert [part.size for part in fleet.built.parts] == [
        library.size for library in facts.libraries
    ]
