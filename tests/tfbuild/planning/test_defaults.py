"""What a wheel sets at run time: decided from evidence, carried as data, chosen on a CPU."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.builders.dispatchers import on_x86_64
from tests.builders.plans import planned, planned_full
from tests.builders.recorded_cpus import cpu_of, text_of
from tests.builders.report_comparisons import arm, cell
from tests.builders.report_comparisons import comparison as compared

from tfbench.arms.lever_table import LEVERS
from tfbuild.planning import defaults, guard
from tfbuild.planning.defaults import (
    Default,
    DefaultsRequest,
    LeverMeasurement,
    LeverRatio,
    MeasurementSource,
    choose_defaults,
    describe_levers,
    find_default_problems,
    load_levers,
    read_measurements,
)
from tfbuild.planning.fleet import build_fleet
from tfbuild.planning.render import render
from tfbuild.shipped import _tensorwright_defaults as shipped
from tfcore.cpus.cpu import compute_vcpus, read_cgroup_quota
from tfcore.cpus.features import load_features
from tfcore.cpus.targets import parse_target
from tfcore.errors import RecordError, UsageError
from tfcore.records import convert_record, decode_record, save
from tfcore.settings import TEMPLATES

VNNI = "avx512_vnni"
ONEDNN, THREADS, BF16 = load_levers()


def by_name(target: str, **wishes: Any) -> dict[str, Default]:
    actual = choose_defaults(parse_target(target), "2.14.1", DefaultsRequest(**wishes))
    return {default.lever.name: default for default in actual}


def measurement(
    *ratios: float,
    source: MeasurementSource = MeasurementSource.MEASURED,
    verdict: str = "faster",
    isa: str = "AVX2",
) -> LeverMeasurement:
    return LeverMeasurement(
        lever="onednn",
        source=source,
        isa=isa,
        cpu="a CPU",
        release="2.14.1",
        vcpus=2,
        ratios={
            f"workload {n}": LeverRatio(value=r, verdict=verdict) for n, r in enumerate(ratios)
        },
    )


# ---- what a wheel carries ----


def test_the_table_names_features_and_tfbenchs_levers() -> None:
    known = load_features("x86_64").keys()
    assert all(known >= {*lever.needs, *lever.unless} for lever in load_levers())
    by_lever = {name: {*lever.variables} for name, lever in LEVERS.items()}
    assert {*ONEDNN.set, *ONEDNN.leave} == by_lever["onednn"]
    assert {*THREADS.set, *THREADS.leave} == by_lever["intra"] | by_lever["inter"]
    assert {*BF16.set} == by_lever["bf16"]


def test_what_was_only_emulated_is_off_until_it_is_trusted() -> None:
    emulated = by_name("skylake_avx512")["onednn"]
    assert not emulated.on
    assert {lever_measurement.source for lever_measurement in emulated.evidence} == {
        MeasurementSource.EMULATED
    }
    assert by_name("skylake_avx512", trust_emulated=True)["onednn"].on


@pytest.mark.parametrize("target", ["haswell", "zen3"])
def test_what_was_measured_on_such_silicon_is_on(target: str) -> None:
    default = by_name(target)["onednn"]
    assert default.on
    measured = [
        lever_measurement
        for lever_measurement in default.evidence
        if lever_measurement.source is MeasurementSource.MEASURED
    ]
    assert {lever_measurement.vcpus for lever_measurement in measured} == {1, 2}
    assert all(lever_measurement.wins for lever_measurement in measured)


def test_a_comparison_from_such_silicon_decides() -> None:
    target, isa = "skylake_avx512", "AVX512_CORE"
    won, lost, unsure = (
        dataclasses.replace(lever_measurement, isa=isa)
        for lever_measurement in (
            measurement(1.3, 1.2),
            measurement(1.3, 0.8, verdict="slower"),
            measurement(1.3, verdict="inconclusive"),
        )
    )
    assert by_name(target, evidence=(won,))["onednn"].on
    assert not by_name(target, evidence=(lost,), trust_emulated=True)["onednn"].on
    assert not by_name(target, evidence=(won, lost))["onednn"].on
    assert not by_name(target, evidence=(unsure,))["onednn"].on
    assert not by_name(target, evidence=(dataclasses.replace(won, isa="AVX2"),))["onednn"].on
    older = dataclasses.replace(won, release="2.13.1")
    assert not by_name(target, evidence=(older,))["onednn"].on
    assert not by_name("haswell", evidence=(measurement(1.3, 0.8, verdict="slower"),))["onednn"].on


@pytest.mark.parametrize(
    ("release", "of"),
    [
        ("2.13.1", ""),
        ("2.15.1", "2.14.1"),
        ("2.19.1", ""),
        ("2.20.0", "2.20.0"),
        ("2.21.0", "2.20.0"),
    ],
)
def test_evidence_speaks_for_releases_that_are_alike(release: str, of: str) -> None:
    default = {
        target_default.lever.name: target_default
        for target_default in choose_defaults(parse_target("zen3"), release)
    }["onednn"]
    assert default.on == bool(of)
    assert {lever_measurement.release for lever_measurement in default.evidence} == (
        {of} if of else set()
    )
    assert not of or f"TensorFlow {of}" in defaults.describe(default)


def test_a_releases_own_evidence_decides_alone() -> None:
    lost = dataclasses.replace(measurement(0.8, verdict="slower"), release="2.21.0")
    wishes = DefaultsRequest(evidence=(lost,))
    actual = {
        default.lever.name: default
        for default in choose_defaults(parse_target("zen3"), "2.21.0", wishes)
    }
    assert not actual["onednn"].on
    assert actual["onednn"].evidence == (lost,)


@pytest.mark.parametrize("target", ["cascadelake", "icelake", "zen4", "sapphirerapids"])
def test_what_tensorflow_does_by_itself_is_no_default(target: str) -> None:
    assert "onednn" not in by_name(target, trust_emulated=True)


def test_the_control_sets_nothing() -> None:
    assert planned("stock").defaults == ()


def test_bfloat16_is_asked_for_and_named() -> None:
    assert "bf16" not in by_name("sapphirerapids", trust_emulated=True)
    plan = planned("sapphirerapids", bf16=True)
    assert plan.version == "2.14.1+sapphirerapids.bf16"
    assert [default.lever for default in plan.defaults if default.on and default.lever.opt_in] == [
        BF16
    ]
    assert plan.key != planned("sapphirerapids").key
    whole = planned_full("sapphirerapids", release="2.20.0", bf16=True)
    assert whole.local == "sapphirerapids.full.bf16"
    assert dict(whole.full_recipe.repo_env)["ML_WHEEL_VERSION_SUFFIX"] == f"+{whole.local}"
    fleet = build_fleet([plan, planned("haswell", bf16=True)])
    assert fleet.local.startswith("fleet.of")
    assert fleet.local.endswith(".bf16")
    with pytest.raises(UsageError, match=r"--bf16 .*AMX"):
        choose_defaults(parse_target("neoverse_v1"), "2.14.1", DefaultsRequest(bf16=True))


def test_arm_has_the_defaults_that_need_no_feature() -> None:
    assert [*by_name("neoverse_v1")] == ["threads"]


def test_a_default_that_is_none_of_ours_is_told() -> None:
    haswell, icelake = parse_target("haswell"), parse_target("icelake")
    ours = choose_defaults(haswell, "2.14.1")
    assert [*find_default_problems(ours, haswell)] == []
    evil = Default(lever=dataclasses.replace(ONEDNN, set={"LD_PRELOAD": "evil.so"}), on=True)
    assert "LD_PRELOAD=evil.so" in next(find_default_problems((evil,), haswell))
    assert "stock already has" in next(find_default_problems(ours, icelake))
    assert "twice" in next(find_default_problems((*ours, *ours), haswell))


def test_records_survive_json() -> None:
    for default in choose_defaults(parse_target("haswell"), "2.14.1", DefaultsRequest(bf16=True)):
        assert decode_record(Default, convert_record(default)) == default


# ---- what a comparison says ----


def comparison_of(
    folder: Path,
    *,
    before: Mapping[str, str],
    after: Mapping[str, str],
    features: frozenset[str] = frozenset({"avx2"}),
    gains: Mapping[str, float],
    other_wheel: bool = False,
    complete: bool = True,
) -> Path:
    stock, other_arm = arm("stock", env=before), arm("onednn", env=after)
    if not other_wheel:
        other_arm = dataclasses.replace(other_arm, wheel_sha256=stock.wheel_sha256)
    cells = tuple(cell(name, 2, {"onednn": gain}) for name, gain in gains.items())
    comparison = compared(*cells, arms=(stock, other_arm))
    cpu = dataclasses.replace(comparison.host.cpu, features=features)
    host = dataclasses.replace(comparison.host, cpu=cpu)
    path = folder / "comparison.json"
    save(path, dataclasses.replace(comparison, host=host, complete=complete))
    return path


GAINS = {"mnist_mlp": 1.2, "mnist_cnn": 1.5}
ON = {"TF_ENABLE_ONEDNN_OPTS": "1", "TF_DISABLE_MKL": "0"}
OFF = {"TF_ENABLE_ONEDNN_OPTS": "0", "TF_DISABLE_MKL": "1"}


def test_a_comparison_on_such_silicon_is_measured(tmp_path: Path) -> None:
    (lever_measurement,) = read_measurements(
        comparison_of(tmp_path, before={}, after=ON, gains=GAINS)
    )
    assert (lever_measurement.source, lever_measurement.isa, lever_measurement.lever) == (
        MeasurementSource.MEASURED,
        "AVX2",
        "onednn",
    )
    assert (lever_measurement.release, lever_measurement.vcpus) == ("2.14.1", 2)
    assert [*lever_measurement.ratios] == [*GAINS]
    assert lever_measurement.ratios["mnist_mlp"].verdict == "faster"
    assert lever_measurement.mean == pytest.approx((1.2 * 1.5) ** 0.5, rel=0.2)
    assert lever_measurement.wins
    assert by_name("haswell", evidence=(lever_measurement,))["onednn"].on


def test_a_capped_one_is_emulated(tmp_path: Path) -> None:
    cap = {"ONEDNN_MAX_CPU_ISA": "AVX512_CORE"}
    path = comparison_of(
        tmp_path,
        before=OFF | cap,
        after=ON | cap,
        features=frozenset({"avx2", VNNI}),
        gains=GAINS,
    )
    (lever_measurement,) = read_measurements(path)
    assert (lever_measurement.source, lever_measurement.isa) == (
        MeasurementSource.EMULATED,
        "AVX512_CORE",
    )
    assert "ONEDNN_MAX_CPU_ISA=AVX512_CORE" in lever_measurement.setting


@pytest.mark.parametrize(
    "options",
    [
        {"before": {}, "after": ON, "features": frozenset({VNNI})},  # (on there anyway)
        {"before": {}, "after": ON, "other_wheel": True},
        {"before": {}, "after": ON, "complete": False},
        {"before": {}, "after": ON | {"OMP_NUM_THREADS": "1"}},
        {"before": {}, "after": OFF},
        {"before": {}, "after": {}},
    ],
)
def test_another_comparison_says_nothing(tmp_path: Path, options: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        read_measurements(comparison_of(tmp_path, gains=GAINS, **options))


@pytest.mark.parametrize("text", ["", "{", '{"schema": 2}', '{"schema": 2, "arms": 1}', "[]"])
def test_a_damaged_comparison_is_told(tmp_path: Path, text: str) -> None:
    path = tmp_path / "comparison.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(RecordError):
        read_measurements(path)


# ---- what is said of a CPU ----


def test_what_holds_on_a_cpu_is_told() -> None:
    two = compute_vcpus(machine=16, affinity=16, quota=2.0)
    old, new = (
        describe_levers(cpu_of(name), two, "2.14.1") for name in ("haswell", "sapphirerapids")
    )
    assert old["onednn"].startswith("a tuned wheel can set TF_ENABLE_ONEDNN_OPTS=1: on, speedup")
    assert "speedup 1.42x measured (6 workloads, 1 vCPU of a virtual machine" in old["onednn"]
    assert new["onednn"] == f"nothing to set: stock does this itself on a CPU with {VNNI}"
    assert "TF_NUM_INTRAOP_THREADS=2" in old["threads"]
    assert old["bf16"] == "no effect on a CPU without amx_bf16"
    assert new["bf16"].startswith("with --bf16 a tuned wheel sets ONEDNN_DEFAULT_FPMATH_MODE=BF16")
    shown = "on, and changes results; speedup 1.00x measured (11 workloads, 1 vCPU of a virtual"
    assert shown in new["bf16"]
    free = compute_vcpus(machine=16, affinity=4, quota=None)
    assert "no CPU quota is lower" in describe_levers(cpu_of("haswell"), free, "2.14.1")["threads"]


# ---- what is chosen where it runs ----


def data_of(*targets: str, family: str = "x86_64", **wishes: Any) -> dict[str, Any]:
    plans = build_fleet(planned(target, **wishes) for target in targets).plans
    carriers = [(plan.target.local, plan.required, plan.defaults) for plan in plans]
    (text,) = guard.build_defaults_file(family, carriers).values()
    return dict(json.loads(text))


def machine(folder: Path, cpuinfo: str, quota: str = "max 100000") -> Path:
    """A root with proc and sys of a machine whose process has this quota."""
    files = {
        "proc/cpuinfo": cpuinfo,
        "proc/self/cgroup": "0::/\n",
        "sys/fs/cgroup/cpu.max": f"{quota}\n",
    }
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    return folder


@pytest.fixture
def older_glibc(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that does not tell what CPUID says: /proc/cpuinfo is read."""
    monkeypatch.setattr("tfbuild.shipped._tensorwright_cpu._leaf", lambda _: None)


TRUSTED = data_of("haswell", "skylake_avx512", "icelake", trust_emulated=True)


@pytest.mark.usefixtures("older_glibc")
@pytest.mark.parametrize(
    ("cpu", "target", "onednn"),
    [
        ("haswell", "haswell", True),
        ("zen3", "haswell", True),
        ("alderlake", "haswell", False),  # AVX_VNNI: on by itself
        ("skylake_avx512", "skylake.avx512", True),
        ("cascadelake", "skylake.avx512", False),
        ("icelake", "icelake", False),
        ("zen5", "icelake", False),
    ],
)
def test_a_recorded_cpu_gets_its_own(tmp_path: Path, cpu: str, target: str, onednn: bool) -> None:
    root = machine(tmp_path, text_of(cpu))
    expected = {"TF_ENABLE_ONEDNN_OPTS": "1"} if onednn else {}
    assert shipped.choose_settings(TRUSTED, {}, root) == (target, expected)


@pytest.mark.usefixtures("older_glibc")
def test_an_arm_build_is_chosen_for(tmp_path: Path) -> None:
    data = data_of("neoverse_n1", family="aarch64")
    assert (
        shipped.choose_settings(data, {}, machine(tmp_path, text_of("neoverse_v1")))[0]
        == "neoverse.n1"
    )
    assert shipped.choose_settings(data, {}, machine(tmp_path, text_of("a64fx")))[0] == ""


@pytest.mark.usefixtures("older_glibc")
@pytest.mark.parametrize(
    ("env", "target", "onednn"),
    [
        ({"TF_ENABLE_ONEDNN_OPTS": "0"}, "skylake.avx512", False),
        ({"TF_ENABLE_ONEDNN_OPTS": ""}, "skylake.avx512", False),
        ({"TF_DISABLE_MKL": "1"}, "skylake.avx512", False),
        ({"TENSORWRIGHT_TARGET": "off"}, "", False),
        ({"TENSORWRIGHT_TARGET": "haswell"}, "haswell", True),
        ({"TENSORWRIGHT_TARGET": "skylake_avx512"}, "skylake.avx512", True),
        ({"TENSORWRIGHT_TARGET": "icelake"}, "", False),
        ({"TENSORWRIGHT_TARGET": "zen9"}, "", False),
        ({"TENSORWRIGHT_MASK": "avx512f"}, "haswell", True),
        ({"TENSORWRIGHT_MASK": "avx512f,avx2"}, "", False),
        ({"TENSORWRIGHT_MASK": "AVX512F"}, "", False),
    ],
)
def test_the_environment_has_the_last_word(
    tmp_path: Path,
    env: dict[str, str],
    target: str,
    onednn: bool,
) -> None:
    actual, settings = shipped.choose_settings(
        TRUSTED, env, machine(tmp_path, text_of("skylake_avx512"))
    )
    assert (actual, bool(settings)) == (target, onednn)


@pytest.mark.usefixtures("older_glibc")
def test_untrusted_and_bfloat16(tmp_path: Path) -> None:
    root = machine(tmp_path, text_of("skylake_avx512"))
    assert shipped.choose_settings(data_of("skylake_avx512"), {}, root) == ("skylake.avx512", {})
    data = data_of("skylake_avx512", bf16=True)
    assert shipped.choose_settings(data, {}, root) == ("skylake.avx512", {})
    newer = machine(tmp_path, text_of("sapphirerapids"))
    assert shipped.choose_settings(data, {}, newer)[1] == {"ONEDNN_DEFAULT_FPMATH_MODE": "BF16"}
    own_fields = {"DNNL_DEFAULT_FPMATH_MODE": "STRICT"}
    assert shipped.choose_settings(data, own_fields, newer)[1] == {}


@on_x86_64
def test_a_quota_below_the_affinity_sets_threads(tmp_path: Path) -> None:
    data = data_of("x86_64_v2")
    (threads,) = (
        default for default in data["targets"][0]["defaults"] if default["name"] == THREADS.name
    )
    threads["on"] = True
    mine = len(os.sched_getaffinity(0))
    root = machine(tmp_path, "", quota="10000 100000")
    both = dict.fromkeys(THREADS.set, "1") if mine > 1 else {}
    assert shipped.choose_settings(data, {}, root)[1] == both
    assert shipped.choose_settings(data, {"TF_NUM_INTEROP_THREADS": "3"}, root)[1] == {}
    assert (
        shipped.choose_settings(data, {}, machine(tmp_path, "", quota=f"{mine}00000 100000"))[1]
        == {}
    )
    assert shipped.choose_settings(data, {}, machine(tmp_path, ""))[1] == {}


@given(
    path=st.sampled_from(["/", "/a", "/a/b"]),
    quotas=st.dictionaries(
        st.sampled_from(["", "a/", "a/b/"]),
        st.one_of(st.just(-1), st.integers(1000, 6_400_000)),
    ),
    layout=st.sampled_from(["v2", "unified", "cpu", "cpu,cpuacct"]),
)
def test_the_quota_is_what_we_read(
    tmp_path_factory: pytest.TempPathFactory, path: str, quotas: dict[str, int], layout: str
) -> None:
    root = tmp_path_factory.mktemp("root")
    version_2 = layout in {"v2", "unified"}
    mount = root / "sys/fs/cgroup" / ("" if layout == "v2" else layout)
    (root / "proc/self").mkdir(parents=True)
    line = f"0::{path}\n" if version_2 else f"3:cpu,cpuacct:{path}\n2:memory:/x\n"
    (root / "proc/self/cgroup").write_text(line, encoding="utf-8")
    for folder, quota in quotas.items():
        (mount / folder).mkdir(parents=True, exist_ok=True)
        files = {"cpu.cfs_quota_us": f"{quota}\n", "cpu.cfs_period_us": "100000\n"}
        if version_2:
            files = {"cpu.max": f"{'max' if quota < 0 else quota} 100000\n"}
        for name, text in files.items():
            (mount / folder / name).write_text(text, encoding="utf-8")
    ours = read_cgroup_quota(root)
    rounded = None if ours is None else compute_vcpus(machine=512, affinity=512, quota=ours).usable
    assert shipped.read_quota(root) == rounded


@pytest.mark.parametrize(
    "text",
    ["\n\n", "nonsense\n", "0::/\udcff\n", "0::/a\n"],
    ids=["blank", "words", "bytes", "zero"],
)
def test_an_odd_cgroup_is_none(text: str, tmp_path: Path) -> None:
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "sys/fs/cgroup/a").mkdir(parents=True)
    (tmp_path / "sys/fs/cgroup/a/cpu.max").write_text("100000 0\n")
    (tmp_path / "proc/self/cgroup").write_bytes(text.encode(errors="surrogateescape"))
    assert shipped.read_quota(tmp_path) is None


def test_onednns_name_of_a_cpu() -> None:
    assert defaults.find_isa(cpu_of("haswell").features) == "AVX2"
    assert defaults.find_isa(cpu_of("skylake_avx512").features) == "AVX512_CORE"
    assert defaults.find_isa(frozenset()) == ""


@pytest.mark.parametrize(
    ("arch", "release", "guarded"),
    [("zen3", "2.14.1", True), ("sapphirerapids", "2.14.1", False), ("stock", "2.14.1", False)],
)
def test_where_onednn_is_made_the_default_its_unsupported_types_are_guarded(
    arch: str, release: str, guarded: bool
) -> None:
    plan = planned(arch, release=release)
    assert defaults.needs_low_precision_guard(plan.defaults) is guarded
    assert ('name = "low_precision"' in render(plan, TEMPLATES)["BUILD.bazel"]) is guarded


def test_a_full_build_which_lacks_the_guard_leaves_onednn_off() -> None:
    for release, on in (("2.14.1", False), ("2.20.0", True)):
        plan = planned_full("zen3", release=release)
        states = {default.lever.name: default.on for default in plan.defaults}
        assert states["onednn"] is on
        (text,) = (
            defaults.describe(default)
            for default in plan.defaults
            if default.lever.name == "onednn"
        )
        assert ("off, because a full build lacks the pass" in text) is not on


def test_a_kernel_build_with_a_loss_does_not_name_the_full_build() -> None:
    lost = measurement(0.9, verdict="slower")
    default = by_name("zen3", evidence=(lost,))["onednn"]
    assert not default.on
    assert "full build" not in defaults.describe(default)


@pytest.mark.usefixtures("older_glibc")
def test_guarded_defaults_are_set_only_where_the_kernel_library_is_loaded(tmp_path: Path) -> None:
    root = machine(tmp_path, text_of("zen3"))
    data = data_of("zen3")
    assert shipped.choose_settings(data, {}, root)[1]["TF_ENABLE_ONEDNN_OPTS"] == "1"
    assert (
        "TF_ENABLE_ONEDNN_OPTS"
        not in shipped.choose_settings(data, {}, root, loads_kernels=False)[1]
    )
    package = tmp_path / "site-packages" / "tensorflow"
    package.mkdir(parents=True)
    assert shipped.loads_kernel_libraries(package, {})
    assert not shipped.loads_kernel_libraries(tmp_path / "deps" / "tensorflow", {})
    elsewhere = {"TF_PLUGGABLE_DEVICE_LIBRARY_PATH": "/x.so"}
    assert not shipped.loads_kernel_libraries(package, elsewhere)
    plugin = package.parent / "tensorflow-plugins" / "x.so"
    plugin.parent.mkdir()
    assert shipped.loads_kernel_libraries(package, {})
    plugin.touch()
    assert not shipped.loads_kernel_libraries(package, {})
