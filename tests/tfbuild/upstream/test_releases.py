from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.version import Version
from tests.builders.trees import EVERY_RELEASE, facts_of
from tests.tools.locks import DEVELOPER, USER
from tests.tools.stock_listings import recorded

from tfbuild.packing import notices
from tfbuild.upstream.lock_files import LOCKS
from tfbuild.upstream.releases import (
    CPU_PACKAGES,
    Release,
    choose_cpu_package,
    fill_placeholders,
    find_bazel_sha256,
    find_kernel_facts,
    find_release,
    format_python_tag,
    load_bazels,
    load_releases,
    read_kernels_bazel,
    require_stock_wheel,
)
from tfcore import records
from tfcore.errors import PythonError, ReleaseError, WheelError
from tfcore.settings import ROOT

MACHINES = pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
WITH_KERNELS = pytest.mark.parametrize(
    "release",
    [release for release in load_releases() if release.kernels],
    ids=lambda release: release.version,
)
ABSEILS = "c79a7fea0e3cac04cd43f20e7b648e5a0ff8fa5344e644b0ee09ca1162b62747"
SHA256 = re.compile(r"[0-9a-f]{64}")


def test_every_series_from_2_8_to_2_21_is_there_in_order() -> None:
    series = [Version(release.version).release[:2] for release in load_releases()]
    assert series == [(2, minor) for minor in range(8, 22)]


@pytest.mark.parametrize("version", ["2.14", "2.14.1", "v2.14.1", " 2.14.1\n"])
def test_a_release_is_found_by_series_or_version(version: str) -> None:
    assert find_release(version).version == "2.14.1"


@pytest.mark.parametrize(
    ("version", "closest"), [("2.14.0", "2.14.1"), ("2.1", "2.8.4|2.1"), ("2.99.1", "2.")]
)
def test_an_unknown_release_names_the_closest_and_all(version: str, closest: str) -> None:
    with pytest.raises(ReleaseError, match=re.escape(f"TensorFlow {version} ")) as caught:
        find_release(version)
    assert re.search(closest, caught.value.hint)
    assert all(release.version in caught.value.hint for release in load_releases())


def test_a_word_is_no_release() -> None:
    with pytest.raises(ReleaseError, match="latest"):
        find_release("latest")


@EVERY_RELEASE
def test_hashes_are_whole_and_none_is_used_twice(release: Release) -> None:
    hashes = [release.archive.sha256, *(wheel.sha256 for wheel in release.wheels)]
    assert all(SHA256.fullmatch(text) for text in hashes)
    assert len(hashes) == len(set(hashes))


def test_a_pythons_tag_is_that_of_wheels() -> None:
    assert [format_python_tag(word) for word in ("3.9", "3.11")] == ["cp39", "cp311"]


@EVERY_RELEASE
def test_wheels_belong_to_the_release_and_to_its_pythons(release: Release) -> None:
    tags = set(map(format_python_tag, release.pythons))
    for wheel in release.wheels:
        assert wheel.version == release.version
        assert wheel.python_tag in tags
        assert wheel.platform in {"x86_64", "aarch64"}
        assert wheel.package in CPU_PACKAGES
        if wheel.package == "tensorflow-cpu-aws":
            assert wheel.platform == "aarch64"


@WITH_KERNELS
@MACHINES
def test_every_python_of_a_release_with_kernels_has_a_wheel(release: Release, machine: str) -> None:
    package = choose_cpu_package(release, machine)
    for python in release.pythons:
        assert (
            require_stock_wheel(release, package, format_python_tag(python), machine).package
            == package
        )


def test_each_machine_has_a_package_with_tensorflow_for_its_cpus() -> None:
    names = {
        (release.version, machine): choose_cpu_package(release, machine)
        for release in load_releases()
        for machine in ("x86_64", "aarch64")
    }
    assert {names[release.version, "x86_64"] for release in load_releases()} == {"tensorflow-cpu"}
    assert names["2.15.1", "aarch64"] == "tensorflow-cpu-aws"
    assert names["2.16.2", "aarch64"] == "tensorflow"


@EVERY_RELEASE
def test_the_newest_python_of_a_release_has_a_cpu_wheel(release: Release) -> None:
    tag = format_python_tag(release.pythons[-1])
    assert require_stock_wheel(release, "tensorflow-cpu", tag, "x86_64").python_tag == tag


@EVERY_RELEASE
def test_a_release_accepts_the_bazel_it_documents(release: Release) -> None:
    assert release.can_use_bazel(release.bazel)


@pytest.mark.parametrize(
    ("bazel", "accepted"),
    [("6.0.0", False), ("6.1.0", True), ("6.5.0", True), ("7.0.0", False), ("5.9.9", False)],
)
def test_the_bazel_range_has_two_ends(bazel: str, accepted: bool) -> None:
    assert find_release("2.14").can_use_bazel(bazel) is accepted


def test_the_host_flag_is_for_trees_that_share_flags_and_bazels_that_know_it() -> None:
    needing = [release for release in load_releases() if release.distinct_host]
    assert [release.version for release in needing] == [
        "2.8.4",
        "2.9.3",
        "2.10.1",
        "2.11.1",
        "2.12.1",
    ]
    assert all(Version(release.bazel) < Version("6") for release in needing)


@pytest.mark.parametrize(
    ("config", "first", "last"),
    [
        ("avx_linux", "2.8", "2.21"),
        ("avx2_linux", "2.8", "2.13"),
        ("mkl_aarch64_threadpool", "2.10", "2.21"),
        ("noaws", "2.8", "2.17"),
        ("clang_local", "2.21", "2.21"),
    ],
)
def test_configs_come_and_go(config: str, first: str, last: str) -> None:
    having = [release.version for release in load_releases() if config in release.configs]
    assert having[0].startswith(f"{first}.")
    assert having[-1].startswith(f"{last}.")
    assert len(having) == int(last.removeprefix("2.")) - int(first.removeprefix("2.")) + 1


@EVERY_RELEASE
def test_a_config_that_a_release_needs_is_one_that_it_has(release: Release) -> None:
    assert {option.removeprefix("--config=") for option in release.options} <= {*release.configs}


def test_clang_is_a_question_since_2_14() -> None:
    asking = [
        release.version
        for release in load_releases()
        if "TF_NEED_CLANG" in dict(release.configure_env)
    ]
    assert asking == [release.version for release in load_releases()][6:]
    assert asking[0] == "2.14.1"


@EVERY_RELEASE
def test_every_question_is_answered_or_kept_from_being_asked(release: Release) -> None:
    answered = dict(release.configure_env).keys()
    questions = facts_of(release.version)["questions"]
    assert set(questions) <= answered | set(release.unasked)
    assert answered.isdisjoint(release.unasked)


def test_a_release_without_a_question_gets_no_answer_for_it() -> None:
    answered = [
        release.version
        for release in load_releases()
        if "TF_NEED_TENSORRT" in dict(release.configure_env)
    ]
    assert len(answered) == 13
    assert "2.21.0" not in answered


@EVERY_RELEASE
def test_what_was_verified_is_said_for_each_scope(release: Release) -> None:
    assert release.verified.endswith(f"full scope: {release.verified_full}")
    assert release.verified.startswith("kernels scope: ") == bool(release.kernels)


def test_target_and_folder_change_together() -> None:
    for release in load_releases():
        by_rule = release.wheel_target.endswith(":wheel")
        assert by_rule == bool(release.wheel_folder)
        assert by_rule == (Version(release.version) >= Version("2.17"))
        assert by_rule == ("WHEEL_NAME" in dict(release.repo_env))


def test_names_in_braces_are_replaced_and_none_is_left() -> None:
    for release in load_releases():
        pairs = fill_placeholders(
            release.repo_env + release.configure_env,
            python="3.11",
            python_bin="/usr/bin/python3",
            clang="/usr/bin/clang-16",
        )
        assert not [value for _, value in pairs if "{" in value]
    assert ("TF_PYTHON_VERSION", "3.11") in fill_placeholders(
        find_release("2.14").repo_env, python="3.11"
    )


def test_a_missing_name_is_an_error() -> None:
    with pytest.raises(KeyError, match="python"):
        fill_placeholders(find_release("2.14").repo_env)


@pytest.mark.parametrize("tag", ["cp39", "cp310", "cp311"])
def test_the_2_14_wheels_have_sizes(tag: str) -> None:
    wheel = require_stock_wheel(find_release("2.14"), "tensorflow-cpu", tag, "x86_64")
    assert wheel.size is not None
    assert wheel.size > 190_000_000


def test_a_python_without_any_wheel_names_those_that_have_one() -> None:
    with pytest.raises(PythonError, match=r"Python 3\.12") as caught:
        require_stock_wheel(find_release("2.14"), "tensorflow-cpu", "cp312", "x86_64")
    assert "3.9, 3.10, 3.11" in caught.value.hint


def test_a_machine_without_a_wheel_names_what_exists() -> None:
    with pytest.raises(WheelError, match=r"cp311 .*aarch64") as caught:
        require_stock_wheel(find_release("2.14"), "tensorflow-cpu", "cp311", "aarch64")
    assert "tensorflow-cpu on x86_64" in caught.value.hint
    assert "tensorflow-cpu-aws on aarch64" in caught.value.hint


def test_kernels_of_a_release_that_the_table_lacks_are_an_error_that_names_those_it_has() -> None:
    with pytest.raises(ReleaseError, match=r"2\.13\.1") as caught:
        find_kernel_facts(find_release("2.13"), "x86_64")
    assert "2.14.1, 2.15.1" in caught.value.hint
    assert "2.21.0" in caught.value.hint


@MACHINES
@WITH_KERNELS
def test_kernel_defines_are_unambiguous(release: Release, machine: str) -> None:
    facts = find_kernel_facts(release, machine)
    names = [define.name for define in facts.defines + facts.forbidden]
    assert len(names) == len(set(names))
    flags = [define.flag for define in facts.defines]
    assert "-DEIGEN_USE_AVX512_GEMM_KERNELS=0" in flags
    assert "-DINTEL_MKL" in flags


@pytest.mark.parametrize(
    ("define", "first", "last"),
    [
        ("EIGEN_AVOID_STL_ARRAY", "2.14.1", "2.21.0"),
        ("EIGEN_MPL2_ONLY", "2.14.1", "2.15.1"),
        ("EIGEN_ALLOW_UNALIGNED_SCALARS", "2.16.2", "2.21.0"),
        ("TF_LLVM_X86_AVAILABLE", "2.17.1", "2.21.0"),
    ],
)
def test_defines_come_and_go_with_the_release(define: str, first: str, last: str) -> None:
    having = [
        release.version
        for release in load_releases()
        if release.kernels
        and define
        in {definition.name for definition in find_kernel_facts(release, "x86_64").defines}
    ]
    assert (having[0], having[-1]) == (first, last)


@WITH_KERNELS
def test_the_stock_wheel_has_every_folder_and_library_that_the_table_names(
    release: Release,
) -> None:
    facts, listed = find_kernel_facts(release, "x86_64"), recorded(release)
    folders = {f"tensorflow/include/{name}" for name in listed["folders"]} | {"tensorflow/include"}
    assert set(facts.include_roots) <= folders
    assert set(facts.libraries) <= set(listed["libraries"])
    assert listed["wheel"] in {wheel.file for wheel in release.wheels}


@WITH_KERNELS
def test_the_wheels_licences_are_where_they_are_looked_for(release: Release) -> None:
    """TensorFlow's own is missing from 2.16 on, and Abseil's has lost its folder."""
    listed = recorded(release)
    named = f"tensorflow_cpu-{release.version}.dist-info/LICENSE"
    general = "tensorflow/include/LICENSE"
    abseil = "tensorflow/include/external/com_google_absl/LICENSE"
    before = release.version < "2.16"
    assert (named in listed["licences"]) == (abseil in listed["licences"]) == before
    assert (general in listed["licences"]) != before
    assert listed["licences"].get(named, notices.LICENCE_SHA256) == notices.LICENCE_SHA256
    assert listed["licences"][abseil if before else general] == ABSEILS
    assert listed["eigen_version"] == (release.version >= "2.21")


def test_a_release_is_a_record_with_a_key() -> None:
    first, second = (records.hash_record(find_release(version)) for version in ("2.14", "2.15"))
    assert first == records.hash_record(find_release("2.14.1"))
    assert first != second


def test_bazel_binaries_are_pinned_once_each() -> None:
    pins = load_bazels()
    assert len({(pin.version, pin.platform) for pin in pins}) == len(pins)
    assert all(SHA256.fullmatch(pin.sha256) for pin in pins)
    assert find_bazel_sha256("6.5.0", "linux-x86_64") != find_bazel_sha256("6.5.0", "linux-arm64")
    assert find_bazel_sha256("6.1.0", "linux-x86_64") is None


def pinned(lock: Path) -> dict[str, set[str]]:
    """Every requirement of a lock with its hashes. Fails on a line not pinned to one version."""
    text = re.sub(r"\\\n\s*", " ", lock.read_text(encoding="utf-8"))
    actual: dict[str, set[str]] = {}
    for line in text.splitlines():
        if not line or line.startswith("#"):
            continue
        spec, *hashes = line.split(" --hash=sha256:")
        requirement = Requirement(spec)
        (version,) = requirement.specifier
        assert version.operator == "=="
        actual.setdefault(requirement.name, set()).update(digest.strip() for digest in hashes)
    return actual


@pytest.mark.parametrize(
    "lock", [*sorted(LOCKS.glob("*.txt")), USER, DEVELOPER], ids=lambda path: path.stem
)
def test_a_lock_hashes_everything_and_names_no_host(lock: Path) -> None:
    for name, hashes in pinned(lock).items():
        assert hashes, name
        assert all(SHA256.fullmatch(digest) for digest in hashes), name
    assert "://" not in lock.read_text(encoding="utf-8")


@pytest.mark.parametrize("lock", sorted(LOCKS.glob("*.txt")), ids=lambda path: path.stem)
def test_an_arm_gets_tensorflow_from_its_wheel_and_the_rest_from_the_lock(lock: Path) -> None:
    names = pinned(lock).keys()
    assert "tensorflow-cpu" not in names
    assert {"keras", "numpy", "protobuf", "setuptools", "wheel"} <= names


def test_bazelisk_is_locked_by_content_and_not_by_host() -> None:
    lock = json.loads((ROOT / "build/npm/package-lock.json").read_text(encoding="utf-8"))
    packages = {name: fields for name, fields in lock["packages"].items() if name}
    assert packages.keys() == {"node_modules/@bazel/bazelisk"}
    for fields in packages.values():
        assert fields["integrity"].startswith("sha512-")
        assert "resolved" not in fields


def test_kernels_are_built_with_a_bazel_whose_bytes_are_pinned() -> None:
    assert find_bazel_sha256(read_kernels_bazel(), "linux-x86_64")
    assert find_bazel_sha256(read_kernels_bazel(), "linux-arm64")
