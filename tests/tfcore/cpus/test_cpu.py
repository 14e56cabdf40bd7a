from __future__ import annotations

import math
import os
from pathlib import Path

import pytest
from archspec.cpu import TARGETS
from hypothesis import given
from hypothesis import strategies as st
from tests.builders.recorded_cpus import cpu_of, text_of

from tfcore.cpus.cpu import (
    MASK,
    apply_mask,
    compute_vcpus,
    compute_x86_64_level,
    parse_cpuinfo,
    read_cgroup_quota,
    read_cpu,
    read_numa_nodes,
    read_vcpus,
)
from tfcore.cpus.features import load_features
from tfcore.errors import CpuError, UsageError


def test_an_x86_block_is_read_whole() -> None:
    cpu = parse_cpuinfo(text_of("skylake"))
    assert cpu.architecture == "x86_64"
    assert cpu.vendor == "GenuineIntel"
    assert cpu.name == "Intel(R) Core(TM) i7-6700 CPU @ 3.40GHz"
    assert (cpu.family, cpu.model, cpu.stepping) == (6, 94, 3)
    assert cpu.microcode == "0xc2"
    assert cpu.hypervisor is False
    assert {"sse3", "abm", "avx2", "fma", "3dnowprefetch"} <= cpu.features
    assert "avx512f" not in cpu.features


def test_an_arm_block_is_read_whole() -> None:
    cpu = parse_cpuinfo(text_of("neoverse_v1"))
    assert (cpu.architecture, cpu.vendor, cpu.name) == ("aarch64", "ARM", "ARM part 0xd40")
    assert (cpu.family, cpu.model, cpu.stepping) == (8, 0xD40, 1)
    assert cpu.hypervisor is None
    assert {"sve", "bf16", "i8mm"} <= cpu.features


def test_a_virtual_machine_is_seen() -> None:
    assert parse_cpuinfo(text_of("x86_64_v4-masked-zen4")).hypervisor is True


def test_only_what_all_processors_have_counts() -> None:
    text = text_of("skylake")
    first, second = text.split("\n\n")[:2]
    cpu = parse_cpuinfo(first + "\n\n" + second.replace(" avx2 ", " ") + "\n\n")
    assert "avx2" in parse_cpuinfo(text).features
    assert "avx2" not in cpu.features


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("truncated", "processor 0 .*flags, bogomips"),
        ("truncated-second-processor", "processor 1 .*flags, bogomips"),
    ],
)
def test_a_truncated_file_is_refused(name: str, message: str) -> None:
    with pytest.raises(CpuError, match=message):
        parse_cpuinfo(text_of(name))


@given(st.data())
def test_a_file_cut_anywhere_is_refused_or_read_right(data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(["zen3", "skylake", "neoverse_v1"]))
    text = text_of(name)
    whole = parse_cpuinfo(text)
    cut = text[: data.draw(st.integers(0, len(text)))]
    try:
        cpu = parse_cpuinfo(cut)
    except CpuError:
        return
    assert cpu.features == whole.features


def test_flags_wrapped_by_a_mailer_are_refused() -> None:
    text = text_of("zen3").replace(" mmx fxsr sse sse2", "\nmmx fxsr sse sse2")
    with pytest.raises(CpuError, match="sse2"):
        parse_cpuinfo(text)


@pytest.mark.parametrize("text", ["", "\n", "Hardware\t: BCM2835\n"])
def test_no_processor_is_refused(text: str) -> None:
    with pytest.raises(CpuError, match="no processor"):
        parse_cpuinfo(text)


def test_another_architecture_is_refused() -> None:
    with pytest.raises(CpuError, match="vendor_id"):
        parse_cpuinfo("processor\t: 0\ncpu\t\t: POWER9, altivec supported\n\n")


def test_this_machine_is_read() -> None:
    cpu = read_cpu()
    assert cpu.features
    assert cpu.architecture == os.uname().machine


def test_py_cpuinfo_answers_where_the_kernel_does_not(tmp_path: Path) -> None:
    cpu = read_cpu(tmp_path / "absent")
    plain = read_cpu()
    assert (cpu.architecture, cpu.vendor, cpu.name) == (
        plain.architecture,
        plain.vendor,
        plain.name,
    )
    assert cpu.features >= plain.features
    # On a Zen 5, Linux 6.18 logged "RDSEED32 is broken. Disabling the corresponding CPUID bit." and
    # did not list rdseed; the CPUID instruction still reports it.
    listed = Path("/proc/cpuinfo").read_text("utf-8").split()
    assert cpu.features - plain.features <= {"rdseed"}.difference(listed)


@pytest.mark.parametrize("level", [1, 2, 3, 4])
def test_levels_are_those_of_the_psabi(level: int) -> None:
    name = "x86_64" if level == 1 else f"x86_64_v{level}"
    assert compute_x86_64_level(frozenset(TARGETS[name].features)) == level


@given(
    st.frozensets(st.sampled_from(sorted(load_features("x86_64")))),
    st.frozensets(st.sampled_from(sorted(load_features("x86_64")))),
)
def test_more_features_never_lower_the_level(some: frozenset[str], more: frozenset[str]) -> None:
    assert compute_x86_64_level(some) <= compute_x86_64_level(some | more)


def write(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text, encoding="utf-8")
    return root


def test_the_least_quota_above_counts_in_version_2(tmp_path: Path) -> None:
    root = write(
        tmp_path,
        {
            "proc/self/cgroup": "0::/a/b\n",
            "sys/fs/cgroup/a/b/cpu.max": "max 100000\n",
            "sys/fs/cgroup/a/cpu.max": "150000 100000\n",
            "sys/fs/cgroup/cpu.max": "400000 100000\n",
        },
    )
    assert read_cgroup_quota(root) == 1.5


def test_a_container_sees_its_own_root_only(tmp_path: Path) -> None:
    root = write(
        tmp_path,
        {"proc/self/cgroup": "0::/docker/0123\n", "sys/fs/cgroup/cpu.max": "50000 100000\n"},
    )
    assert read_cgroup_quota(root) == 0.5


@pytest.mark.parametrize("mount", ["cpu,cpuacct", "cpu"])
def test_version_1_is_read(tmp_path: Path, mount: str) -> None:
    root = write(
        tmp_path,
        {
            "proc/self/cgroup": "5:memory:/x\n4:cpu,cpuacct:/x\n",
            f"sys/fs/cgroup/{mount}/x/cpu.cfs_quota_us": "250000\n",
            f"sys/fs/cgroup/{mount}/x/cpu.cfs_period_us": "100000\n",
            f"sys/fs/cgroup/{mount}/cpu.cfs_quota_us": "-1\n",
            f"sys/fs/cgroup/{mount}/cpu.cfs_period_us": "100000\n",
        },
    )
    assert read_cgroup_quota(root) == 2.5


def test_cpus_have_the_nodes_that_linux_links_them_to(tmp_path: Path) -> None:
    for cpu, node in ((0, 0), (1, 0), (10, 1)):
        folder = tmp_path / f"sys/devices/system/cpu/cpu{cpu}"
        (folder / f"node{node}").mkdir(parents=True)
        (folder / "topology").mkdir()
    assert read_numa_nodes({0, 1, 10}, tmp_path) == {0: 0, 1: 0, 10: 1}
    assert read_numa_nodes({1, 2}, tmp_path) == {1: 0}
    assert read_numa_nodes({0}, tmp_path / "no sysfs") == {}


def test_no_quota(tmp_path: Path) -> None:
    assert read_cgroup_quota(tmp_path) is None
    root = write(tmp_path, {"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "max 100000\n"})
    assert read_cgroup_quota(root) is None


@given(
    machine=st.integers(1, 512),
    affinity=st.integers(1, 512),
    quota=st.none() | st.floats(0.01, 600),
)
def test_usable_is_never_more_than_affinity_or_quota(
    machine: int, affinity: int, quota: float | None
) -> None:
    usable = compute_vcpus(machine=machine, affinity=affinity, quota=quota).usable
    assert 1 <= usable <= affinity
    assert quota is None or usable <= math.ceil(quota)


def test_this_machine_has_vcpus() -> None:
    vcpus = read_vcpus()
    assert vcpus.affinity == len(os.sched_getaffinity(0))
    assert 1 <= vcpus.usable <= vcpus.affinity <= vcpus.machine


def test_a_mask_hides_features_as_the_dispatcher_reads_it(tmp_path: Path) -> None:
    path = tmp_path / "cpuinfo"
    path.write_text(text_of("skylake"))
    whole = read_cpu(path, {})
    assert read_cpu(path, {MASK: ""}) == whole
    less = read_cpu(path, {MASK: "avx2,,fma,sve"})  # (one of another architecture, which it lacks)
    assert whole.features - less.features == {"avx2", "fma"}
    assert less.kind != whole.kind


@pytest.mark.parametrize(
    ("mask", "expected"),
    [
        ("AVX2", r": 'AVX2'\. Did you mean avx2"),
        ("fma,avx521f", r": 'avx521f'\. Did you mean avx512f"),
        ("avx2, fma", r": ' fma'\. Did you mean fma"),
        ("lzcnt", r": 'lzcnt'\. (Did you mean|build/tfcore/cpus/features\.toml)"),
        ("?", r": '\?'\. build/tfcore/cpus/features\.toml lists the names"),
    ],
)
def test_a_mask_with_a_name_that_is_none_is_a_usage_error(mask: str, expected: str) -> None:
    with pytest.raises(UsageError, match=expected):
        apply_mask(cpu_of("skylake"), mask)
