from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from tests.builders.comparisons import arm, host
from tests.builders.recorded_cpus import HONEST, cpu_of

from tfbench.measuring.matching import MAY_DIFFER, compare_arms, compare_hosts
from tfcore.comparisons.host import Host
from tfcore.cpus.cpu import Cpu, Vcpus

OTHER_CPU = {
    "architecture": "aarch64",
    "vendor": "AuthenticAMD",
    "name": "Another CPU",
    "family": 25,
    "model": 1,
    "stepping": 5,
    "microcode": "0x2",
    "hypervisor": False,
    "features": frozenset({"avx2", "amx_bf16"}),
}
OTHER_HOST: dict[str, Any] = {
    "kernel": "6.2.0",
    "hugepages": "always",
    "clocksource": "hpet",
    "governor": "powersave",
}


def other_cpu(name: str) -> Host:
    mine = host()
    changed = dataclasses.replace(mine.cpu, **{name: OTHER_CPU[name]})  # type: ignore[arg-type]
    return host(cpu=changed)


def test_every_field_of_a_host_is_looked_at_or_may_differ() -> None:
    assert {field.name for field in dataclasses.fields(Cpu)} == set(OTHER_CPU)
    assert {field.name for field in dataclasses.fields(Host)} == {"cpu", *OTHER_HOST, *MAY_DIFFER}


def test_machines_of_one_kind_may_be_of_different_sizes() -> None:
    assert compare_hosts(host(2), host(2)) == ()
    quota = Vcpus(machine=64, affinity=8, quota=3.5, usable=4)
    assert compare_hosts(host(2), host(64, vcpus=quota)) == ()


@pytest.mark.parametrize("name", sorted(set(OTHER_CPU) - {"features"}))
def test_a_cpu_of_another_kind_is_named_with_both_values(name: str) -> None:
    (field_difference,) = compare_hosts(host(), other_cpu(name))
    value = getattr(host().cpu, name)
    assert str(field_difference) == f"CPU {name} ({value} vs. {OTHER_CPU[name]})"


def test_of_the_features_only_those_that_differ_are_named() -> None:
    (field_difference,) = compare_hosts(host(), other_cpu("features"))
    assert str(field_difference) == "CPU features on one machine only (avx512f fma vs. amx_bf16)"
    fewer = dataclasses.replace(host().cpu, features=frozenset({"avx2"}))
    (field_difference,) = compare_hosts(host(), host(cpu=fewer))
    assert (field_difference.one, field_difference.other) == ("avx512f fma", "none")


@pytest.mark.parametrize("name", sorted(OTHER_HOST))
def test_a_system_of_another_kind_is_named_with_both_values(name: str) -> None:
    (field_difference,) = compare_hosts(host(), host(**{name: OTHER_HOST[name]}))
    value = getattr(host(), name) or "unknown"
    assert str(field_difference) == f"{name} ({value} vs. {OTHER_HOST[name]})"


@pytest.mark.parametrize("name", HONEST)
def test_a_recorded_cpu_is_like_itself_only(name: str) -> None:
    measured_host = host(cpu=cpu_of(name))
    assert compare_hosts(measured_host, measured_host) == ()
    for second in set(HONEST) - {name}:
        if cpu_of(second) != cpu_of(name):
            assert compare_hosts(measured_host, host(cpu=cpu_of(second)))


@pytest.mark.parametrize(
    ("field", "value", "expected"),
    [
        ("wheel_sha256", "abc", "stock: wheel_sha256 (stock-sha256 vs. abc)"),
        ("wheel_sha256", "", "stock: wheel_sha256 (stock-sha256 vs. unknown)"),
        ("env", (("A", "1"), ("B", "2")), "stock: env (none vs. A=1 B=2)"),
        ("tensorflow", "2.15.0", "stock: tensorflow (2.14.1 vs. 2.15.0)"),
        ("git_version", "v2.15", "stock: git_version (v2.14.1 vs. v2.15)"),
        ("python", "3.11.8", "stock: python (3.11.7 vs. 3.11.8)"),
        ("numpy", "1.26.3", "stock: numpy (1.26.4 vs. 1.26.3)"),
    ],
)
def test_another_arm_is_named_with_both_values(field: str, value: object, expected: str) -> None:
    (field_difference,) = compare_arms(arm("stock"), arm("stock", **{field: value}))
    assert str(field_difference) == expected


def test_an_arm_may_stand_elsewhere() -> None:
    moved = arm("stock", label="another", tensorflow_file="/elsewhere/__init__.py")
    assert compare_arms(arm("stock"), moved) == ()
