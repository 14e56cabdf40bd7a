"""One wheel for several targets: what it takes on this CPU, on a weaker one, and when told."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.tried import Tried

from tfbuild.cpus.cpu import read_cpu
from tfbuild.kernelbuild import admission, assemble
from tfbuild.packing import tuned
from tfbuild.run import run

pytestmark = pytest.mark.toolchain

ARCHES = "haswell,x86_64_v3,skylake_avx512"


@pytest.fixture(scope="module")
def fleet(wheel_for: Callable[[str], Tried]) -> Tried:
    return wheel_for(ARCHES)


@pytest.fixture(scope="module")
def facts(fleet: Tried) -> tuned.Tuned:
    found = tuned.read_tuned(fleet.built.wheel)
    assert found is not None
    return found


def loaded(fleet: Tried, **env: str) -> tuple[str, str]:
    """The target that the dispatcher says it took, and its line on stderr."""
    script = (
        "import json, ctypes, pathlib, tensorflow as tf\n"
        "at = pathlib.Path(tf.__file__).parent / 'core/kernels/libtfkernel_tensorwright.so'\n"
        "own = ctypes.CDLL(str(at))\n"
        "own.tensorwright_loaded.restype = ctypes.c_char_p\n"
        "print(json.dumps((own.tensorwright_loaded() or b'').decode()))\n"
    )
    quiet = admission.probe_env() | {"TF_CPP_MIN_LOG_LEVEL": "1"}
    done = run([fleet.arm.python, "-P", "-c", script], env=quiet | env, timeout_s=600)
    said = [line for line in done.output.splitlines() if line.startswith("tensorwright")]
    return json.loads(done.output.splitlines()[-1]), "".join(said)


def test_every_target_has_its_library_the_most_able_first(facts: tuned.Tuned) -> None:
    assert facts.targets == ("skylake_avx512", "haswell", "x86_64_v3")
    assert len({library.sha256 for library in facts.libraries}) == 3
    assert [part.kernels for part in facts.libraries] == [facts.libraries[0].kernels] * 3


def test_the_first_library_that_this_cpu_can_run_is_taken(
    fleet: Tried, facts: tuned.Tuned, tmp_path: Path
) -> None:
    expected = tuned.chosen(facts, read_cpu())
    assert expected is not None
    found = assemble.smoke(fleet.arm, tmp_path)
    assert found["loaded"] == expected.name
    assert found["computes"]


@pytest.mark.parametrize("target", ["haswell", "x86.64.v3"])
def test_a_target_can_be_forced(fleet: Tried, target: str) -> None:
    assert loaded(fleet, TENSORWRIGHT_TARGET=target)[0] == target


def test_a_forced_target_is_still_checked_against_the_cpu(fleet: Tried) -> None:
    name, said = loaded(fleet, TENSORWRIGHT_TARGET="haswell", TENSORWRIGHT_MASK="aes")
    assert name == ""
    assert "haswell needs aes" in said


def test_a_cpu_without_a_feature_gets_the_next_library(fleet: Tried) -> None:
    assert loaded(fleet, TENSORWRIGHT_MASK="avx512f")[0] == "haswell"
    assert loaded(fleet, TENSORWRIGHT_MASK="avx512f,aes")[0] == "x86.64.v3"


def test_a_cpu_without_all_of_them_gets_the_stock_kernels_and_the_reasons(fleet: Tried) -> None:
    name, said = loaded(fleet, TENSORWRIGHT_MASK="avx2")
    assert name == ""
    for target in ("skylake.avx512", "haswell", "x86.64.v3"):
        assert f"{target} needs avx2" in said or f"{target} needs avx512" in said


def test_it_can_be_switched_off(fleet: Tried) -> None:
    assert loaded(fleet, TENSORWRIGHT_TARGET="off") == ("", "")


def test_a_damaged_library_hands_over_to_the_next(fleet: Tried, facts: tuned.Tuned) -> None:
    """Whatever this CPU would take first, its file is gone: then the one after it runs."""
    able = [
        each for each in facts.libraries if not set(each.required_features) - read_cpu().features
    ]
    first, second = able[0], able[1]
    library = next(fleet.arm.folder.rglob(Path(first.file).name))
    hidden = library.with_suffix(".hidden")
    library.rename(hidden)
    try:
        assert loaded(fleet)[0] == second.name
        library.write_bytes(hidden.read_bytes()[: first.size // 2])
        assert loaded(fleet)[0] == second.name
    finally:
        library.unlink(missing_ok=True)
        hidden.rename(library)


def test_the_size_of_each_library_is_told(fleet: Tried, facts: tuned.Tuned) -> None:
    assert [part.size for part in fleet.built.parts] == [each.size for each in facts.libraries]
