from __future__ import annotations

import pytest

from tfbuild.auditing.manylinux import choose_platform, find_breaches, find_policy
from tfcore.errors import AuditError

STOCK = (
    "cp311-cp311-manylinux2014_x86_64",
    "cp311-cp311-manylinux_2_17_x86_64",
)


def test_two_names_of_a_platform_are_one_policy() -> None:
    policy = find_policy(STOCK)
    assert policy is not None
    assert policy.name == "manylinux_2_17_x86_64"
    assert policy == find_policy(STOCK[:1]) == find_policy(STOCK[1:])


def test_the_oldest_platform_is_what_is_promised() -> None:
    newer = "cp311-cp311-manylinux_2_28_x86_64"
    policy = find_policy((*STOCK, newer))
    assert policy is not None
    assert policy.name == "manylinux_2_17_x86_64"
    assert find_policy((newer,)) != policy


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_linux_promises_nothing(machine: str) -> None:
    assert find_policy((f"cp311-cp311-linux_{machine}",)) is None


@pytest.mark.parametrize(
    "platform", ["manylinux_2_99_x86_64", "manylinux_2_17_sparc", "win_amd64", "any"]
)
def test_a_platform_that_nobody_knows_is_refused(platform: str) -> None:
    with pytest.raises(AuditError, match=platform):
        find_policy((f"cp311-cp311-{platform}",))


@pytest.mark.parametrize(
    ("floors", "needed", "problems"),
    [
        ({"GLIBC": "2.17", "GLIBCXX": "3.4.19"}, ["libc.so.6"], []),
        ({"GLIBC": "2.34"}, [], ["it requires GLIBC 2.34"]),
        ({"GLIBCXX": "3.4.30", "CXXABI": "1.3.13"}, [], ["GLIBCXX 3.4.30", "CXXABI 1.3.13"]),
        ({}, ["libtensorflow_cc.so.2", "ld-linux-x86-64.so.2"], []),
        ({}, ["libcudart.so.12"], ["it needs libcudart.so.12"]),
    ],
)
def test_what_a_platform_does_not_promise_is_said(
    floors: dict[str, str], needed: list[str], problems: list[str]
) -> None:
    policy = find_policy(STOCK)
    assert policy is not None
    breaches = list(find_breaches(policy, floors, needed, {"libtensorflow_cc.so.2"}))
    assert len(breaches) == len(problems)
    for line, part in zip(breaches, problems, strict=True):
        assert part in line
        assert line.endswith("which manylinux_2_17_x86_64 does not permit")


OLD = ({"GLIBC": "2.17", "GLIBCXX": "3.4.19"}, ("libc.so.6", "libtensorflow_framework.so.2"))
FRAMEWORK = ({"GLIBC": "2.14"}, ("libc.so.6",))


@pytest.mark.parametrize(
    ("floors", "needed", "platform"),
    [
        ({"GLIBC": "2.5"}, (), "manylinux_2_17_x86_64.manylinux2014_x86_64"),
        ({"GLIBC": "2.28", "GLIBCXX": "3.4.24"}, (), "manylinux_2_28_x86_64"),
        ({"GLIBC": "2.34"}, (), "manylinux_2_34_x86_64"),
        ({"GLIBC": "2.34"}, ("libmkl_rt.so.2",), "linux_x86_64"),
        ({"GLIBC": "2.99"}, (), "linux_x86_64"),
    ],
)
def test_the_platform_is_the_oldest_that_all_libraries_keep_to(
    floors: dict[str, str], needed: tuple[str, ...], platform: str
) -> None:
    libraries = {"libtensorflow_framework.so.2": FRAMEWORK, "libtensorflow_cc.so.2": OLD}
    assert choose_platform("x86_64", {**libraries, "more.so": (floors, needed)}) == platform


def test_a_library_that_is_not_in_the_wheel_is_missed() -> None:
    assert choose_platform("x86_64", {"libtensorflow_cc.so.2": OLD}) == "linux_x86_64"


def test_the_platforms_of_another_machine_are_its_own() -> None:
    assert choose_platform("aarch64", {"a.so": ({"GLIBC": "2.17"}, ())}) == (
        "manylinux_2_17_aarch64.manylinux2014_aarch64"
    )
