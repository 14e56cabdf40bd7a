from __future__ import annotations

import json
import subprocess
import sys
import time

import pytest
from tests.builders.recorded_cpus import COMPLETE, cpu_of

from tfcore.cpus.cpu import compute_vcpus
from tfcore.cpus.detect import Detection, describe, detect, examine
from tfcore.cpus.targets import find_missing_features, parse_target
from tfcore.records import format_json
from tfcore.settings import ROOT

BUILD = ROOT / "build"


def examined(name: str, quota: float | None = None) -> Detection:
    return examine(cpu_of(name), compute_vcpus(machine=8, affinity=4, quota=quota))


@pytest.mark.parametrize(
    ("name", "unused"),
    [
        ("haswell", "AVX2 FMA"),
        ("skylake_avx512", "AVX2 AVX512F FMA"),
        ("cascadelake", "AVX2 AVX512F AVX512_VNNI FMA"),
        # As TensorFlow 2.14.1 itself printed it on that machine.
        ("x86_64_v4-masked-zen4", "AVX2 AVX512F AVX512_VNNI AVX512_BF16 FMA"),
        (
            "sapphirerapids",
            "AVX2 AVX512F AVX512_VNNI AVX512_BF16 AVX_VNNI AMX_TILE AMX_INT8 AMX_BF16 FMA",
        ),
        ("neoverse_v1", ""),
    ],
)
def test_unused_instructions_are_named_as_tensorflow_names_them(name: str, unused: str) -> None:
    assert " ".join(examined(name).unused) == unused


def test_a_release_with_another_baseline_leaves_less_unused() -> None:
    cpu = cpu_of("haswell")
    cpus = compute_vcpus(machine=1, affinity=1, quota=None)
    assert examine(cpu, cpus, cpu.features).unused == ()


@pytest.mark.parametrize(
    ("name", "level"),
    [("haswell", 3), ("skylake", 3), ("skylake_avx512", 4), ("zen3", 3), ("zen4", 4)],
)
def test_levels(name: str, level: int) -> None:
    assert examined(name).level == level


def test_arm_has_no_level() -> None:
    assert examined("neoverse_n1").level is None


@pytest.mark.parametrize("name", COMPLETE)
def test_descriptions_fit_a_terminal_and_say_the_answers(name: str) -> None:
    detection = examined(name)
    text = describe(detection)
    lines = text.splitlines()
    assert len(lines) <= 20
    assert max(map(len, lines)) <= 100
    assert detection.cpu.name in text
    joined = "".join(text.split())
    assert detection.match.native.spec in joined
    assert all(miss.name in text for miss in detection.match.near)
    assert all("".join(note.split()) in joined for note in detection.notes)


def test_hidden_features_that_no_compiler_uses_are_explained() -> None:
    detection = examined("x86_64_v4-masked-zen4")
    text = "compilers do not use flush_l1d, pku unless the source asks for it, so native is tuned "
    assert text + "for zen4, and a wheel for zen4 runs here" in detection.notes
    assert find_missing_features(parse_target("zen4"), detection.cpu) == ()


def test_hidden_features_that_compilers_use_are_not_excused() -> None:
    assert not any("compilers do not use" in note for note in examined("skylake-aws-8175m").notes)


def test_a_quota_below_affinity_is_a_warning() -> None:
    assert any("pin to CPUs" in note for note in examined("haswell", quota=1.5).notes)
    assert not any("pin to CPUs" in note for note in examined("haswell", quota=4.0).notes)
    assert "quota 1.5" in describe(examined("haswell", quota=1.5))


@pytest.mark.parametrize("name", COMPLETE)
def test_json_holds_everything(name: str) -> None:
    detection = examined(name)
    fields = json.loads(format_json(detection))
    assert fields["cpu"]["features"] == sorted(detection.cpu.features)
    assert fields["match"]["best"]["name"] == name.partition("-")[0]
    assert fields["vcpus"]["usable"] == 4
    assert fields["notes"] == list(detection.notes)


def test_this_machine_is_detected() -> None:
    detection = detect()
    assert detection.match.best.features <= detection.cpu.features
    assert describe(detection)


def test_detection_takes_no_second() -> None:
    """A fresh interpreter, imports included; py-cpuinfo alone would take more than a second."""
    program = "import tfcore.cpus.detect as d; d.describe(d.detect())"
    argv = [sys.executable, "-c", program]
    best = float("inf")
    for _ in range(3):
        started = time.perf_counter()
        subprocess.run(argv, check=True, cwd=BUILD, env={"PYTHONPATH": str(BUILD)})
        best = min(best, time.perf_counter() - started)
    assert best < 1.0
