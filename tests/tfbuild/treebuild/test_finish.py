from __future__ import annotations

import ast
import dataclasses
import json
import os
import re
import subprocess
import zipfile
from pathlib import Path

import archspec.cpu
import pytest
from tests.builders.audit_cases import altered
from tests.builders.dispatchers import on_x86_64
from tests.builders.full_wheel import LICENCE, PLAN, raw_wheel

from tfbuild.auditing.audit import audit, describe
from tfbuild.auditing.claims import Role
from tfbuild.packing import notices, sbom
from tfbuild.packing.tuned import choose_build, list_nearest_missing, read_tuned
from tfbuild.packing.wheel import read_identity, read_member, read_stem, verify_record
from tfbuild.planning import guard
from tfbuild.planning.plan import FullPlan, Scope
from tfbuild.shipped._tensorwright_cpu import RISK
from tfbuild.treebuild.finish import finish_wheel, try_wheel
from tfcore.cpus.cpu import read_cpu
from tfcore.errors import HostError, WheelError
from tfcore.settings import ROOT, Paths

pytestmark = [pytest.mark.toolchain, on_x86_64]

HASWELL = ("-march=haswell", "-ffp-contract=fast")
SOURCE = PLAN.sources[0].file.sha256
DISPATCHED = """
extern "C" __attribute__((noinline)) void {name}() {{
  __asm__ volatile("vpdpbusd %%zmm2, %%zmm1, %%zmm0" ::: "memory");
}}
"""


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    return Paths(root=tmp_path, cache=tmp_path / "cache", pool=tmp_path / "pool")


@pytest.fixture(scope="module")
def haswell(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return raw_wheel(tmp_path_factory.mktemp("haswell"), *HASWELL)


def finished(raw: Path, paths: Paths, plan: FullPlan = PLAN, licence: bytes = LICENCE) -> Path:
    return finish_wheel(
        raw, plan, paths=paths, bazel="6.1.0", source_sha256=SOURCE, licence=licence
    )


def test_a_full_build_says_what_it_is(haswell: Path, paths: Paths) -> None:
    wheel = finished(haswell, paths)
    identity = read_identity(wheel)
    assert identity.version == "2.14.1+haswell.full"
    assert read_stem(wheel) == "tensorflow_cpu-2.14.1+haswell.full"
    (tag,) = {name.partition("_x86_64")[0] for name in identity.tags if "manylinux_" in name}
    assert tag.startswith("cp311-cp311-manylinux_2_")
    verify_record(wheel)
    info = f"{read_stem(wheel)}.dist-info"
    assert b"Version: 2.14.1+haswell.full\n" in read_member(wheel, f"{info}/METADATA")
    assert f"Tag: {identity.tags[0]}".encode() in read_member(wheel, f"{info}/WHEEL")
    assert read_member(wheel, f"{info}/{notices.LICENCE}") == LICENCE
    facts = read_tuned(wheel)
    assert facts is not None
    assert facts.tree is not None
    assert (facts.scope, facts.targets, facts.libraries) == (Scope.FULL, ("haswell",), ())
    assert facts.tree.required_features == PLAN.required
    (library,) = facts.tree.libraries.values()
    assert library.census["fma"] > 0
    document = json.loads(read_member(wheel, f"{info}/{sbom.FILE}"))
    assert {component["name"] for component in document["components"]} >= {
        "tensorflow",
        *facts.tree.libraries,
    }


def test_a_checkout_is_not_said_to_be_the_release(haswell: Path, paths: Paths) -> None:
    wheel = finish_wheel(
        haswell, PLAN, paths=paths, bazel="6.1.0", source_sha256="", licence=LICENCE
    )
    info = f"{read_stem(wheel)}.dist-info"
    document = json.loads(read_member(wheel, f"{info}/{sbom.FILE}"))
    (sources,) = (
        component for component in document["components"] if component["bom-ref"] == "sources"
    )
    assert not {"hashes", "purl"} & sources.keys()
    notice = read_member(wheel, f"{info}/{notices.FILE}")
    assert re.search(rb"the user's source tree\nwhich", notice)


def test_the_same_build_gives_the_same_bytes(haswell: Path, paths: Paths) -> None:
    first = finished(haswell, paths).read_bytes()
    assert finished(haswell, paths).read_bytes() == first


def test_a_version_that_bazel_was_told_is_not_told_twice(tmp_path: Path, paths: Paths) -> None:
    raw = raw_wheel(tmp_path / "raw", *HASWELL, env={"ML_WHEEL_VERSION_SUFFIX": "+haswell.full"})
    assert "+haswell.full-" in raw.name
    assert read_identity(finished(raw, paths)).version == "2.14.1+haswell.full"


def test_a_library_that_asks_for_what_no_policy_has_keeps_the_plain_tag(
    tmp_path: Path, paths: Paths
) -> None:
    raw = raw_wheel(tmp_path / "raw", *HASWELL, "-Wl,--no-as-needed", "-ltinfo")
    assert read_identity(finished(raw, paths)).tags == ("cp311-cp311-linux_x86_64",)


def test_without_a_licence_it_is_not_finished(haswell: Path, paths: Paths) -> None:
    with pytest.raises(WheelError, match="LICENSE"):
        finished(haswell, paths, licence=b"")
    assert not [*paths.cache.rglob("*full*.whl")]


# ---- the audit ----


def test_an_honest_full_build_passes(haswell: Path, paths: Paths) -> None:
    wheel_audit = audit(finished(haswell, paths), paths=paths)
    assert wheel_audit.problems == ()
    assert wheel_audit.remarks == ()
    assert {library.role for library in wheel_audit.libraries} == {Role.TREE}
    assert describe(wheel_audit).splitlines()[-1].startswith("The audit passed")


def test_flags_that_did_nothing_are_seen_though_others_ask_the_cpu(
    tmp_path: Path, paths: Paths
) -> None:
    code = DISPATCHED.format(name="xnn_f32_gemm_ukernel_4x16__avx512vnni")
    fma = code.replace("vpdpbusd %%zmm2, %%zmm1, %%zmm0", "vfmadd231ps %%ymm2, %%ymm1, %%ymm0")
    raw = raw_wheel(tmp_path / "raw", "-mavx", extra=fma)
    (problem,) = audit(finished(raw, paths), paths=paths).problems
    assert problem.startswith("its flags")


def test_code_that_is_chosen_at_run_time_may_be_for_any_cpu(tmp_path: Path, paths: Paths) -> None:
    extra = DISPATCHED.format(name="xnn_qs8_gemm_ukernel_4x16__avx512vnni")
    wheel_audit = audit(
        finished(raw_wheel(tmp_path / "raw", *HASWELL, extra=extra), paths), paths=paths
    )
    assert wheel_audit.problems == ()
    assert wheel_audit.libraries[0].census["avx512_vnni"] == 1


def test_other_code_beyond_the_target_is_named(tmp_path: Path, paths: Paths) -> None:
    extra = DISPATCHED.format(name="smuggled")
    wheel_audit = audit(
        finished(raw_wheel(tmp_path / "raw", *HASWELL, extra=extra), paths), paths=paths
    )
    (problem,) = wheel_audit.problems
    assert problem.startswith("tensorflow/libtensorflow_cc.so.2: 1 avx512_vnni instruction, ")
    assert problem.endswith(" smuggled")


def test_without_names_nothing_is_judged_and_that_is_said(tmp_path: Path, paths: Paths) -> None:
    extra = "static " + DISPATCHED.format(name="hidden").strip().removeprefix('extern "C" ')
    extra += '\nextern "C" void seen() { hidden(); }\n'
    raw = raw_wheel(tmp_path / "raw", *HASWELL, "-s", extra=extra)
    wheel_audit = audit(finished(raw, paths), paths=paths)
    assert wheel_audit.problems == ()
    text = (
        "tensorflow/libtensorflow_cc.so.2: 1 avx512_vnni instruction not checked: no function name"
    )
    assert text in wheel_audit.remarks
    assert f"remark: {text}" in describe(wheel_audit).splitlines()


def altering(wheel: Path, name: str, old: bytes, new: bytes) -> Path:
    info = f"{read_stem(wheel)}.dist-info/"
    member = name.replace("INFO/", info)
    data = read_member(wheel, member)
    assert old in data
    return altered(wheel, {member: data.replace(old, new)})


@pytest.mark.parametrize(
    ("member", "old", "new", "message"),
    [
        (guard.INIT, guard.FIRST, b"", "does not check the CPU"),
        (guard.INIT, guard.FIRST, b"import os\n" + guard.FIRST, "does not check the CPU"),
        (guard.NEEDS, b'"avx2"', b'"sse2x"', "_tensorwright_cpu.json"),
        ("INFO/METADATA", b"+haswell.full", b"+zen4.full", "METADATA"),
        ("INFO/WHEEL", b"manylinux_2_", b"manylinux_3_", "WHEEL"),
        ("INFO/tuned.json", b'"fma"', b'"fmx"', "fmx"),
        ("INFO/tuned.json", b': "haswell"', b': "haswall"', "haswall"),
        ("INFO/tuned.json", b"cc.so.2", b"dd.so.2", "tensorflow/lib"),
    ],
)
def test_what_was_changed_afterwards_is_seen(
    member: str, old: bytes, new: bytes, message: str, haswell: Path, paths: Paths
) -> None:
    wheel = altering(finished(haswell, paths), member, old, new)
    assert any(message in problem for problem in audit(wheel, paths=paths).problems)


def test_a_file_of_ours_that_the_notice_does_not_name_is_seen(haswell: Path, paths: Paths) -> None:
    name = guard.DATA.encode()
    wheel = altering(finished(haswell, paths), f"INFO/{notices.FILE}", b"  " + name + b"\n", b"")
    assert any(notices.FILE in problem for problem in audit(wheel, paths=paths).problems)


# ---- at import ----


def imported(wheel: Path, folder: Path, *under: str, **env: str) -> tuple[int, str]:
    """Exit status and last line of a Python that imports it and adds up some ones."""
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    code = "import tensorflow as tf; print(tf.reduce_sum(tf.ones([8, 8])))"
    done = subprocess.run(
        [*under, "/usr/bin/python3", "-c", code],
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(folder), **env},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout.splitlines()[-1]


def fits_here() -> bool:
    return not set(PLAN.required) - read_cpu().features


@pytest.mark.skipif(not fits_here(), reason="this CPU is older than haswell")
def test_a_cpu_that_has_all_imports_it(haswell: Path, paths: Paths, tmp_path: Path) -> None:
    assert imported(finished(haswell, paths), tmp_path / "site") == (0, "64.0")


def test_a_masked_feature_refuses_the_import(haswell: Path, paths: Paths, tmp_path: Path) -> None:
    wheel = finished(haswell, paths)
    status, last = imported(wheel, tmp_path / "site", TENSORWRIGHT_MASK="fma,avx2")
    assert status == 1
    assert re.match("ImportError: .*haswell, .* avx2, fma", last)
    assert f"{archspec.cpu.host().name}: the page simple/" in last
    assert f"{RISK}=1" in last
    status, last = imported(wheel, tmp_path / "site", TENSORWRIGHT_MASK="FMA")
    assert status == 1
    assert re.match("ImportError: .*TENSORWRIGHT_MASK names 'FMA'", last)
    mask = {"TENSORWRIGHT_MASK": "fma", RISK: "1"}
    if fits_here():
        assert imported(wheel, tmp_path / "site", **mask) == (0, "64.0")


def test_an_emulated_cpu_is_asked_and_not_its_host(
    haswell: Path, paths: Paths, tmp_path: Path
) -> None:
    """qemu-x86_64 shows the host's /proc/cpuinfo."""
    wheel = finished(haswell, paths)
    status, last = imported(wheel, tmp_path / "old", "qemu-x86_64", "-cpu", "SandyBridge")
    assert status == 1
    assert "abm, avx2, bmi1, bmi2, f16c, fma, movbe" in last
    if fits_here():
        assert "/proc/cpuinfo" in last
    status, last = imported(wheel, tmp_path / "new", "qemu-x86_64", "-cpu", "Haswell")
    assert (status, last) == (0, "64.0")


def test_it_is_tried_in_an_environment_of_its_own(haswell: Path, paths: Paths) -> None:
    wheel = finished(haswell, paths)
    facts, cpu = read_tuned(wheel), read_cpu()
    assert facts is not None
    record = try_wheel(wheel, PLAN, requirements="", cpu=cpu, paths=paths)
    if list_nearest_missing(facts, cpu):
        assert record == {"refused": [*list_nearest_missing(facts, cpu)]}
        assert choose_build(facts, cpu) is None
    else:
        assert (record["version"], record["sum"], record["losses"]) == ("2.14.1", 262144.0, [])


def test_a_wheel_that_cannot_be_imported_is_no_wheel(haswell: Path, paths: Paths) -> None:
    wheel = finished(haswell, paths)
    broken = altering(wheel, guard.INIT, b"import ctypes", b"import nothing_of_that_name")
    with pytest.raises(HostError):
        try_wheel(broken, PLAN, requirements="", cpu=read_cpu(), paths=paths)


def test_a_plan_without_a_published_wheel_names_none(haswell: Path, paths: Paths) -> None:
    facts = read_tuned(finished(haswell, paths, dataclasses.replace(PLAN, stock=None)))
    assert facts is not None
    assert facts.stock_sha256 == ""


@pytest.mark.parametrize(
    ("files", "oldest"),
    [
        ("shipped/*.py", (3, 7)),  # TensorFlow 2.8
        ("probe/whole.py", (3, 7)),
        ("probe/*.py", (3, 9)),  # 2.14.1, the release whose kernels are built
    ],
)
def test_what_runs_in_a_users_python_is_written_for_the_oldest(
    files: str, oldest: tuple[int, int]
) -> None:
    for path in (ROOT / "build/tfbuild").glob(files):
        ast.parse(path.read_text("utf-8"), str(path), feature_version=oldest)
