from __future__ import annotations

import json
import re
import shutil
import zipfile
from collections.abc import Mapping
from pathlib import Path

import pytest
from tests.builders.audit_cases import (
    CORE,
    DISPATCHER,
    INFO,
    STEM,
    TAGS,
    altered,
    fields_of,
    pin_stock,
    saying,
    stock_wheel,
    tuned_wheel,
)
from tests.builders.compiled_code import KERNEL, QUICK, REGISTERED, VNNI, library
from tests.builders.index_wheels import written
from tests.builders.xgetbv import XGETBV

from tfbuild.auditing.audit import SCHEMA, audit, check_audit, describe
from tfbuild.auditing.claims import Role
from tfbuild.auditing.libraries import inspect_library
from tfbuild.packing import notices
from tfbuild.planning import dispatcher
from tfbuild.upstream.download import hash_file
from tfcore.cpus.features import STOCK_BASELINE
from tfcore.cpus.targets import STOCK_FLAGS
from tfcore.errors import AuditError, ChecksumError, WheelError
from tfcore.records import format_json
from tfcore.settings import Paths

pytestmark = pytest.mark.toolchain


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Path]:
    """Libraries by name; what is called after a target is what its flags make of KERNEL."""
    folder = tmp_path_factory.mktemp("made")

    def kernels(name: str, march: str, *options: str, text: str = KERNEL + REGISTERED) -> Path:
        return library(folder, name, text, *QUICK, f"-march={march}", "-s", *options)

    return {
        "core": library(folder, "core", KERNEL, *QUICK, "-mavx"),
        "other core": library(folder, "other", KERNEL, *QUICK, "-mavx", "-O1"),
        "wide dispatcher": library(folder, "wide", XGETBV + KERNEL, *QUICK, "-mavx2"),
        "haswell": kernels("haswell", "haswell"),
        "skylake_avx512": kernels("skx", "skylake-avx512"),
        "smuggling haswell": kernels("smuggling", "haswell", text=KERNEL + REGISTERED + VNNI),
        STOCK_FLAGS: kernels("control", "x86-64", "-mavx"),
        "new glibc": library(
            folder, "new", "int dlclose(void*); int f(void) { return dlclose(f); }", "-O1"
        ),
    }


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    return Paths(root=tmp_path, cache=tmp_path / "cache", pool=tmp_path / "pool")


@pytest.fixture
def stock(made: Mapping[str, Path], tmp_path: Path) -> Path:
    return stock_wheel(tmp_path / "stock", {CORE: made["core"]})


def honest(stock: Path, kernel_libraries: Mapping[str, Path], *targets: str, **more: Path) -> Path:
    kernels = {target: kernel_libraries[target] for target in targets}
    return tuned_wheel(stock, kernels, more=more)


def test_an_honest_wheel_is_what_it_says(
    stock: Path, made: Mapping[str, Path], paths: Paths
) -> None:
    wheel_audit = audit(honest(stock, made, "skylake_avx512", "haswell"), paths=paths, stock=stock)
    check_audit(wheel_audit)
    assert wheel_audit.problems == ()
    assert wheel_audit.platform == "manylinux_2_17_x86_64"
    assert (wheel_audit.stock, wheel_audit.targets) == (stock.name, ("skylake_avx512", "haswell"))
    roles = {library.name: library.role for library in wheel_audit.libraries}
    assert roles == {
        "libtensorflow_cc.so.2": Role.STOCK,
        dispatcher.LIBRARY: Role.DISPATCHER,
        "haswell": Role.KERNELS,
        "skylake.avx512": Role.KERNELS,
    }
    by_name = {library.name: library for library in wheel_audit.libraries}
    assert by_name["libtensorflow_cc.so.2"].difference == {}
    assert "avx" in by_name["libtensorflow_cc.so.2"].census
    assert by_name[dispatcher.LIBRARY].census.keys() == {"x86_64", "xsave"}
    assert {"fma", "avx"} <= by_name["haswell"].census.keys()
    assert by_name["haswell"].difference == by_name["haswell"].census
    assert "fma" in by_name["haswell"].required


def test_a_person_sees_the_difference_and_the_verdict(
    stock: Path, made: Mapping[str, Path], paths: Paths
) -> None:
    wheel_audit = audit(honest(stock, made, "haswell"), paths=paths, stock=stock)
    text = describe(wheel_audit)
    lines = text.splitlines()
    assert lines[-1] == "The audit passed."
    assert f"stock     {stock.name}" in lines
    (head,) = (line for line in lines if line.startswith("instructions"))
    assert head.split("  ")[-1] == "haswell"
    (fused,) = (line.split() for line in lines if line.startswith("fma "))
    assert int(fused[-1]) > 0
    (idle,) = (line.split() for line in lines if line.startswith("pclmulqdq"))
    assert idle[-1] == "0"
    assert not any(line != line.rstrip() for line in lines)


def test_the_answer_for_a_machine_is_whole(
    stock: Path, made: Mapping[str, Path], paths: Paths
) -> None:
    wheel_audit = audit(honest(stock, made, "haswell"), paths=paths, stock=stock)
    fields = json.loads(format_json(wheel_audit))
    assert fields["schema"] == SCHEMA
    assert fields["libraries"][0]["role"] in {role.value for role in Role}
    assert str(paths.cache) not in format_json(wheel_audit)


def test_a_hidden_instruction_is_named(stock: Path, made: Mapping[str, Path], paths: Paths) -> None:
    wheel = tuned_wheel(stock, {"haswell": made["smuggling haswell"]})
    wheel_audit = audit(wheel, paths=paths, stock=stock)
    (problem,) = wheel_audit.problems
    assert problem.startswith("haswell: 1 avx512_vnni instruction, ")
    assert "vpdpbusd zmm0" in problem
    assert "smuggled (.text+0x" in problem
    assert describe(wheel_audit).splitlines()[-1] == f"problem: {problem}"
    with pytest.raises(AuditError, match="haswell: 1 avx512_vnni instruction") as error:
        check_audit(wheel_audit)
    assert error.value.exit_code == 34
    assert len(str(error.value).splitlines()) == 1


def test_flags_that_did_nothing_are_seen(
    stock: Path, made: Mapping[str, Path], paths: Paths
) -> None:
    wheel = tuned_wheel(stock, {"haswell": made[STOCK_FLAGS]})
    (problem,) = audit(wheel, paths=paths, stock=stock).problems
    assert problem.startswith("haswell: its flags")


def test_the_control_wheel_has_what_stock_has_and_no_more(
    stock: Path, made: Mapping[str, Path], paths: Paths
) -> None:
    wheel_audit = audit(honest(stock, made, STOCK_FLAGS), paths=paths, stock=stock)
    assert wheel_audit.problems == ()
    (kernels,) = (
        wheel_library
        for wheel_library in wheel_audit.libraries
        if wheel_library.role is Role.KERNELS
    )
    assert kernels.census.keys() <= STOCK_BASELINE | {"x86_64"}
    tuned = tuned_wheel(stock, {STOCK_FLAGS: made["haswell"]})
    problems = audit(tuned, paths=paths, stock=stock).problems
    assert {"fma", "abm"} <= {problem.split()[2] for problem in problems}


def test_a_dispatcher_that_not_every_cpu_can_run_is_seen(
    stock: Path, made: Mapping[str, Path], paths: Paths
) -> None:
    wheel = tuned_wheel(stock, {"haswell": made["haswell"]}, made["wide dispatcher"])
    problems = audit(wheel, paths=paths, stock=stock).problems
    assert any(
        f"{dispatcher.LIBRARY}: " in problem and " avx instruction" in problem
        for problem in problems
    )


def test_a_newer_glibc_than_the_tag_says_is_seen(
    stock: Path, made: Mapping[str, Path], paths: Paths
) -> None:
    wheel = honest(stock, made, "haswell", **{"tensorflow/new.so": made["new glibc"]})
    problems = audit(wheel, paths=paths, stock=stock).problems
    assert any(re.match(r"tensorflow/new\.so: .* GLIBC 2\.3", problem) for problem in problems)
    assert any(problem.startswith("tensorflow/new.so is neither in stock") for problem in problems)
    with pytest.raises(AuditError, match=r"\(and [0-9]+ more\)"):
        check_audit(audit(wheel, paths=paths, stock=stock))


def test_a_library_of_another_machine_is_seen(
    made: Mapping[str, Path], paths: Paths, tmp_path: Path
) -> None:
    arm = library(tmp_path, "arm", KERNEL, *QUICK, compiler="aarch64-linux-gnu-gcc")
    stock = stock_wheel(tmp_path / "stock", {CORE: arm})
    problems = audit(stock, paths=paths).problems
    (problem,) = problems
    assert all(name in problem for name in (CORE, "aarch64", "manylinux_2_17_x86_64"))


def test_a_stock_library_that_was_changed_is_counted_again(
    stock: Path, made: Mapping[str, Path], paths: Paths
) -> None:
    changed = stock_wheel(stock.parent / "changed", {CORE: made["other core"]})
    wheel = honest(changed, made, "haswell")
    wheel = saying(wheel, stock, stock_sha256=hash_file(stock))
    wheel_audit = audit(wheel, paths=paths, stock=stock)
    assert wheel_audit.problems == (f"{CORE} differs from stock",)
    (core,) = (
        wheel_library for wheel_library in wheel_audit.libraries if wheel_library.file == CORE
    )
    before, after = (inspect_library(made[name]).census for name in ("core", "other core"))
    assert core.difference == {
        name: after.get(name, 0) - before.get(name, 0)
        for name in {**before, **after}
        if after.get(name, 0) != before.get(name, 0)
    }


# ---- a wheel that has more, less or other files than it must ----


def test_what_the_notice_does_not_say_is_seen(
    stock: Path, made: Mapping[str, Path], paths: Paths
) -> None:
    wheel, name = honest(stock, made, "haswell"), f"{INFO}/{notices.FILE}"
    with zipfile.ZipFile(wheel) as archive:
        text = archive.read(name).decode()
    less = text.replace(f"  {DISPATCHER}\n", "").replace("  *.dist-info/METADATA\n", "  gone.py\n")
    wheel_audit = audit(altered(wheel, {name: less.encode()}), paths=paths, stock=stock)
    assert wheel_audit.problems == (
        f"{name} differs from the file that this version of Tensorwright writes",
    )


def test_a_wheel_under_another_name_or_tag_is_seen(
    stock: Path, made: Mapping[str, Path], paths: Paths
) -> None:
    wheel = honest(stock, made, "haswell")
    renamed = wheel.with_name(wheel.name.replace("+tried", "+zen4"))
    shutil.copy(wheel, renamed)
    problems = audit(renamed, paths=paths, stock=stock).problems
    assert f"its file name does not match {STEM}.dist-info" in problems
    assert f"{INFO}/METADATA names tensorflow-cpu 2.14.1+tried" in problems
    retagged = wheel.with_name(wheel.name.replace("cp311-cp311", "cp310-cp310"))
    shutil.copy(wheel, retagged)
    problems = audit(retagged, paths=paths, stock=stock).problems
    assert f"the tags in its file name differ from {stock.name}" in problems
    assert f"the tags in {INFO}/WHEEL differ from the file name" in problems


def test_a_stock_library_that_is_called_a_kernel_library_is_seen(
    stock: Path, made: Mapping[str, Path], paths: Paths
) -> None:
    """tuned.json cannot excuse what is not in the folder of kernel libraries."""
    wheel, name = honest(stock, made, "haswell"), f"{INFO}/tuned.json"
    with zipfile.ZipFile(wheel) as archive:
        record = json.loads(archive.read(name))
    swapped = made["haswell"].read_bytes()
    record["libraries"][0]["file"] = CORE
    members = {name: json.dumps(record).encode(), CORE: swapped}
    wheel_audit = audit(altered(wheel, members), paths=paths, stock=stock)
    assert f"{CORE} differs from stock" in wheel_audit.problems
    assert any(f"{CORE} is not in tensorflow/core" in problem for problem in wheel_audit.problems)
    (core,) = (
        wheel_library for wheel_library in wheel_audit.libraries if wheel_library.file == CORE
    )
    assert core.role is Role.CHANGED


def test_a_dispatcher_in_another_place_is_none(
    stock: Path, made: Mapping[str, Path], paths: Paths
) -> None:
    elsewhere = f"tensorflow/python/{dispatcher.LIBRARY}"
    wheel = honest(stock, made, "haswell", **{elsewhere: made["wide dispatcher"]})
    wheel_audit = audit(wheel, paths=paths, stock=stock)
    assert any(
        problem.startswith(f"{elsewhere} is neither in stock") for problem in wheel_audit.problems
    )


def test_a_pinned_stock_wheel_cannot_be_denied(
    stock: Path, made: Mapping[str, Path], paths: Paths
) -> None:
    """A wheel that names other bytes would else be compared with nothing."""
    (problem,) = audit(honest(stock, made, "haswell"), paths=paths).problems
    assert problem.startswith("tuned.json names a stock wheel other than")


def test_without_a_stock_wheel_it_is_said_to_be_missing(
    stock: Path, made: Mapping[str, Path], paths: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    pin_stock(monkeypatch, stock)
    wheel = altered(honest(stock, made, "haswell"), {"evil.pth": b"import evil"})
    wheel_audit = audit(wheel, paths=paths)
    assert wheel_audit.stock == ""
    assert wheel_audit.problems == ()
    assert {wheel_library.role for wheel_library in wheel_audit.libraries} == {
        Role.OTHER,
        Role.DISPATCHER,
        Role.KERNELS,
    }
    assert {wheel_library.difference for wheel_library in wheel_audit.libraries} == {None}
    assert "stock     not available" in describe(wheel_audit)
    assert "not compared" in describe(wheel_audit).splitlines()[-1]


def test_a_stock_wheel_that_nobody_published_is_a_problem(
    made: Mapping[str, Path], paths: Paths, tmp_path: Path
) -> None:
    unknown = stock_wheel(tmp_path / "stock", {CORE: made["core"]}, TAGS.replace("cp311", "cp312"))
    wheel = honest(unknown, made, "haswell")
    (problem,) = audit(wheel, paths=paths).problems
    assert problem.startswith("no stock wheel of tensorflow-cpu 2.14.1 for cp312-cp312-")
    assert audit(wheel, paths=paths, stock=unknown).problems == ()


def test_a_stranger_in_the_kernels_place_is_not_called_kernels(
    stock: Path, made: Mapping[str, Path], paths: Paths
) -> None:
    library = "tensorflow/core/kernels/tensorwright/haswell.so"
    wheel = altered(honest(stock, made, "haswell"), {library: made["core"].read_bytes()})
    wheel_audit = audit(wheel, paths=paths, stock=stock)
    (stranger,) = (
        wheel_library for wheel_library in wheel_audit.libraries if wheel_library.file == library
    )
    assert stranger.role is Role.FALSE
    rows = [line.split("  ")[0] for line in describe(wheel_audit).splitlines()]
    assert Role.FALSE.value in rows
    assert "haswell" not in rows


def test_another_stock_wheel_is_refused(
    stock: Path, made: Mapping[str, Path], paths: Paths
) -> None:
    other_path = stock_wheel(stock.parent / "other", {CORE: made["other core"]})
    with pytest.raises(ChecksumError):
        audit(honest(stock, made, "haswell"), paths=paths, stock=other_path)


def test_a_wheel_without_tuned_kernels_is_looked_at_too(stock: Path, paths: Paths) -> None:
    wheel_audit = audit(stock, paths=paths)
    check_audit(wheel_audit)
    assert "not a tuned wheel" in describe(wheel_audit)
    assert [wheel_library.role for wheel_library in wheel_audit.libraries] == [Role.OTHER]
    (same,) = audit(stock, paths=paths, stock=stock).libraries
    assert (same.role, same.difference) == (Role.STOCK, {})


def test_bytes_that_are_not_records_are_refused(
    stock: Path, made: Mapping[str, Path], paths: Paths
) -> None:
    wheel = honest(stock, made, "haswell")
    with zipfile.ZipFile(wheel) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    written(wheel, members | {DISPATCHER: made["wide dispatcher"].read_bytes()})
    with pytest.raises(AuditError, match="RECORD"):
        audit(wheel, paths=paths, stock=stock)


def test_a_platform_that_nobody_knows_is_refused(
    made: Mapping[str, Path], paths: Paths, tmp_path: Path
) -> None:
    tags = "cp311-cp311-manylinux_2_99_x86_64"
    wheel = stock_wheel(tmp_path / "stock", {CORE: made["core"]}, tags)
    with pytest.raises(AuditError, match="manylinux_2_99_x86_64"):
        audit(wheel, paths=paths)


def test_a_library_that_is_not_whole_is_refused(
    made: Mapping[str, Path], paths: Paths, tmp_path: Path
) -> None:
    half = tmp_path / "half.so"
    half.write_bytes(made["core"].read_bytes()[:900])
    wheel = stock_wheel(tmp_path / "stock", {CORE: half})
    with pytest.raises(WheelError, match=r"libtensorflow_cc\.so\.2"):
        audit(wheel, paths=paths)
    assert not list((paths.cache / "census").iterdir())


def test_the_same_bytes_are_counted_once(
    stock: Path, made: Mapping[str, Path], paths: Paths
) -> None:
    """What the cache says is taken, so nothing was counted; what it cannot say is counted anew."""
    first = audit(stock, paths=paths)
    (kept_path,) = (paths.cache / "census").iterdir()
    assert kept_path.name == f"{hash_file(made['core'])}.json"
    whole = kept_path.read_text()
    kept_path.write_text(whole.replace('"x86_64": ', '"x86_64": 1000'))
    assert audit(stock, paths=paths).libraries[0].census["x86_64"] > 10_000
    for torn in ("", "{", "[]", whole[:90], whole.replace("iced-x86", "iced-x87")):
        kept_path.write_text(torn)
        assert audit(stock, paths=paths) == first
        assert kept_path.read_text() == whole


def test_other_bytes_under_the_pinned_stock_wheels_name_are_not_taken(
    stock: Path, paths: Paths
) -> None:
    """Nor removed: another process may be just writing them."""
    paths.downloads.mkdir(parents=True)
    path = Path(shutil.copy(stock, paths.downloads))
    assert audit(stock, paths=paths).stock == ""
    assert path.is_file()


def test_the_audit_says_how_each_library_was_admitted(
    stock: Path, made: Mapping[str, Path], paths: Paths
) -> None:
    wheel = honest(stock, made, "skylake_avx512", "haswell")
    record = fields_of(wheel)
    record["libraries"][0]["admission"]["cwise_op_tanh"]["ran_as"] = "haswell"
    wheel_audit = audit(saying(wheel, stock, **record), paths=paths, stock=stock)
    check_audit(wheel_audit)
    lines = describe(wheel_audit).splitlines()
    assert (
        "kernels   skylake_avx512: passed the conformance test as haswell; conformance record: none"
    ) in lines
    assert "kernels   haswell: passed the conformance test on its own target" in lines
    assert [admission.proven for admission in wheel_audit.admissions] == [False, True]


def test_a_unit_of_which_nothing_says_how_it_was_admitted_is_a_problem(
    stock: Path, made: Mapping[str, Path], paths: Paths
) -> None:
    wheel = honest(stock, made, "haswell")
    record = fields_of(wheel)
    record["libraries"][0]["admission"] = {}
    wheel_audit = audit(saying(wheel, stock, **record), paths=paths, stock=stock)
    assert wheel_audit.problems == (
        "haswell: tuned.json does not list a conformance test for each of its kernel groups",
    )
