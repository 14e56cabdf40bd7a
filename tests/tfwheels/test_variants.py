"""x86-64 levels as wheel variants, with variantlib to say whether they are any."""

from __future__ import annotations

import dataclasses
import json
import sys
import zipfile
from pathlib import Path

import pytest
from archspec.cpu import TARGETS
from hypothesis import given
from hypothesis import strategies as st
from tests.builders.index_wheels import full_build_for, stand_in, tuned_for

from tfbuild.binaries.instructions import UNDECODED
from tfbuild.packing.tuned import Tuned
from tfbuild.packing.wheel import verify_record
from tfcore.cpus.features import load_features
from tfcore.errors import PublishError
from tfcore.run import run
from tfcore.settings import ROOT
from tfwheels.variants import (
    FILE,
    LEVELS,
    SCHEMA,
    build_index_json,
    choose_label,
    find_level,
    format_index_name,
    format_variant_name,
    make_variant,
)

TAGS = "cp311-cp311-manylinux_2_17_x86_64.manylinux2014_x86_64"
V3, V4 = (f"tensorflow_cpu-2.14.1-{TAGS}-x86_64_{level}.whl" for level in ("v3", "v4"))
FEATURES = sorted(load_features("x86_64"))


def tuned(folder: Path, *targets: str, version: str = "2.14.1+x86.64.v3") -> Path:
    return stand_in(folder, version, targets=targets)


@pytest.fixture
def v3(tmp_path: Path) -> Path:
    return tuned(tmp_path / "pool", "x86_64_v3")


@pytest.fixture
def v4(tmp_path: Path) -> Path:
    return tuned(tmp_path / "pool", "x86_64_v4", version="2.14.1+x86.64.v4")


# ---- levels ----


@pytest.mark.parametrize("level", ["v2", "v3", "v4"])
def test_the_features_of_a_level_are_that_level(level: str) -> None:
    assert find_level(TARGETS[f"x86_64_{level}"].features) == level


def test_each_level_holds_the_one_below() -> None:
    assert LEVELS["v1"] < LEVELS["v2"] < LEVELS["v3"] < LEVELS["v4"]


@pytest.mark.parametrize("target", ["haswell", "skylake", "skylake_avx512", "zen4"])
def test_a_real_cpu_is_no_level(target: str) -> None:
    assert find_level(TARGETS[target].features) is None


@given(st.sets(st.sampled_from(FEATURES)))
def test_a_level_has_every_feature_and_the_one_below_has_not(features: set[str]) -> None:
    level = find_level(features)
    fitting = [name for name, has in LEVELS.items() if features <= has]
    assert level == (fitting[0] if fitting else None)
    for name in FEATURES:
        if level is not None and name not in LEVELS[level]:
            assert find_level({*features, name}) != level


def test_a_wheel_is_never_below_the_stock_code_in_it() -> None:
    assert choose_label(tuned_for(("x86_64_v2",)), "a.whl") == "x86_64_v3"  # it needs AVX
    assert choose_label(tuned_for(("x86_64_v4",)), "a.whl") == "x86_64_v4"


def test_a_wheel_for_several_levels_is_the_highest() -> None:
    assert choose_label(tuned_for(("x86_64_v4", "x86_64_v3")), "a.whl") == "x86_64_v4"


@pytest.mark.parametrize(
    "wheel", [full_build_for("aarch64"), full_build_for("armv9.2a"), tuned_for(("neoverse_v1",))]
)
def test_a_wheel_for_another_architecture_has_no_level(wheel: Tuned) -> None:
    with pytest.raises(PublishError, match="only x86-64 has levels"):
        choose_label(wheel, "a.whl")


def test_what_is_beyond_every_level_is_named() -> None:
    with pytest.raises(PublishError, match="aes, pclmulqdq"):
        choose_label(tuned_for(("haswell",)), "a.whl")


def counted(spec: str, **census: int) -> Tuned:
    """A wheel whose library is for `spec`, with these instructions."""
    whole = tuned_for((spec,))
    library = dataclasses.replace(whole.libraries[0], census=census)
    return dataclasses.replace(whole, libraries=(library,))


def test_a_library_that_was_not_counted_proves_nothing() -> None:
    with pytest.raises(PublishError, match=r"x86\.64\.v3"):
        choose_label(counted("x86_64_v3"), "a.whl")


def test_an_instruction_that_is_not_asked_for_counts_too() -> None:
    assert choose_label(counted("x86_64_v3", x86_64=9, avx2=1), "a.whl") == "x86_64_v3"
    assert choose_label(counted("x86_64_v3", x86_64=9, avx512vl=1), "a.whl") == "x86_64_v4"


def test_a_feature_that_is_asked_for_and_not_used_counts_too() -> None:
    assert choose_label(counted("x86_64_v4", x86_64=9), "a.whl") == "x86_64_v4"


@pytest.mark.parametrize("name", ["aes", "3dnowprefetch", "cet_ss", "aarch64", UNDECODED])
def test_one_instruction_that_no_level_is_known_to_have_forbids(name: str) -> None:
    with pytest.raises(PublishError, match=f" {name}\\."):
        choose_label(counted("x86_64_v3", **{"x86_64": 9, name: 1}), "a.whl")


@given(st.sets(st.sampled_from(FEATURES)), st.sampled_from(["x86_64_v3", "x86_64_v4"]))
def test_a_label_is_of_a_level_that_has_every_instruction(features: set[str], spec: str) -> None:
    wheel = counted(spec, **dict.fromkeys(("x86_64", *features), 1))
    if features <= LEVELS["v4"]:
        level = LEVELS[choose_label(wheel, "a.whl").removeprefix("x86_64_")]
        assert features | {*wheel.libraries[0].required_features} <= level
    else:
        with pytest.raises(PublishError):
            choose_label(wheel, "a.whl")


# ---- names ----


def test_a_variant_is_of_the_public_version() -> None:
    file = f"tensorflow_cpu-2.14.1+x86.64.v3-{TAGS}.whl"
    assert format_variant_name(file, "x86_64_v3") == V3
    assert format_variant_name("a-1.0-2b-py3-none-any.whl", "x86_64_v4") == (
        "a-1.0-2b-py3-none-any-x86_64_v4.whl"
    )


@pytest.mark.parametrize("file", ["", "a.whl", "a-1.0.whl", "a-x-py3-none-any.whl"])
def test_a_variant_needs_the_name_of_a_wheel(file: str) -> None:
    with pytest.raises(PublishError):
        format_variant_name(file, "x86_64_v3")


# ---- the wheel ----


def test_a_variant_says_what_its_label_means(v3: Path, tmp_path: Path) -> None:
    variant = make_variant(v3, tmp_path / "out")
    assert variant.name == V3 == format_variant_name(v3.name, "x86_64_v3")
    with zipfile.ZipFile(variant) as archive:
        document = json.loads(archive.read(f"tensorflow_cpu-2.14.1.dist-info/{FILE}"))
        metadata = archive.read("tensorflow_cpu-2.14.1.dist-info/METADATA")
    assert document["$schema"] == SCHEMA
    assert document["variants"] == {"x86_64_v3": {"x86_64": {"level": ["v3"]}}}
    assert b"\nVersion: 2.14.1\n" in metadata


def test_a_variant_holds_what_the_wheel_holds(v3: Path, tmp_path: Path) -> None:
    variant = make_variant(v3, tmp_path / "out")
    before = {line.name.split("/")[-1]: line.digest for line in verify_record(v3)}
    after = {line.name.split("/")[-1]: line.digest for line in verify_record(variant)}
    assert after.keys() - before.keys() == {FILE}
    assert [name for name in before if before[name] != after[name]] == ["METADATA"]


def test_the_same_wheel_gives_the_same_variant(v3: Path, tmp_path: Path) -> None:
    first, again = (make_variant(v3, tmp_path / place).read_bytes() for place in ("a", "b"))
    assert first == again


def test_a_wheel_that_is_not_tuned_is_no_variant(tmp_path: Path) -> None:
    plain = stand_in(tmp_path, "2.14.1")
    with pytest.raises(PublishError, match="tuned wheel"):
        make_variant(plain, tmp_path / "out")


# ---- the file of the index ----


def test_the_index_says_what_every_label_means() -> None:
    document = json.loads(build_index_json([V4, V3]))
    assert document["variants"] == {
        "x86_64_v3": {"x86_64": {"level": ["v3"]}},
        "x86_64_v4": {"x86_64": {"level": ["v4"]}},
    }
    assert format_index_name(V3) == "tensorflow_cpu-2.14.1-variants.json"


def test_the_order_of_variants_does_not_matter() -> None:
    assert build_index_json([V3, V4]) == build_index_json([V4, V3])


@pytest.mark.parametrize(
    ("variants", "message"),
    [
        ([], "0 releases"),
        ([V3, V3], "twice"),
        ([V3, V4.replace("2.14.1", "2.15.0")], "2 releases"),
        ([V3.replace("-x86_64_v3", "")], "name of a variant"),
        ([V3.replace("v3", "v5")], "name of a variant"),
        ([V3.replace("-x86_64_v3", "-v3")], "name of a variant"),
    ],
)
def test_variants_that_do_not_belong_together_are_refused(
    variants: list[str], message: str
) -> None:
    with pytest.raises(PublishError, match=message):
        build_index_json(variants)


# ---- the real tools ----


@pytest.fixture(scope="module")
def variantlib(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """variantlib's command, in an environment that holds nothing else."""
    folder = tmp_path_factory.mktemp("variantlib")
    run([sys.executable, "-m", "venv", "--without-pip", folder])
    lock = ROOT / "tests" / "data" / "variantlib.txt"
    pip = (sys.executable, "-m", "pip", "--python", str(folder), "install", "--quiet", "--no-deps")
    run([*pip, "--require-hashes", "--only-binary=:all:", "--requirement", lock], timeout_s=300)
    return folder / "bin" / "variantlib"


@pytest.mark.toolchain
def test_variantlib_reads_our_wheels_and_makes_the_same_index(
    v3: Path, v4: Path, tmp_path: Path, variantlib: Path
) -> None:
    paths = [make_variant(wheel, tmp_path / "out") for wheel in (v3, v4)]
    read = run([variantlib, "analyze-wheel", "-i", paths[0]], cwd=tmp_path).output
    assert "Label: `x86_64_v3`" in read
    assert "x86_64 :: level :: v3" in read
    log = run([variantlib, "generate-index-json", "-d", tmp_path / "out"], cwd=tmp_path).output
    assert "ERROR" not in log
    theirs = json.loads(
        (tmp_path / "out" / format_index_name(paths[0].name)).read_text(encoding="utf-8")
    )
    ours = json.loads(build_index_json([path.name for path in paths]))
    # variantlib writes the draft's address in its own form, and reads any.
    assert (theirs.pop("$schema"), ours.pop("$schema")) == (
        "https://variants-schema.wheelnext.dev/v0.2.0.json",
        SCHEMA,
    )
    assert theirs == ours


def test_a_full_build_is_of_the_level_that_it_asks_for() -> None:
    """Its instructions beyond that stand in code that is chosen at run time."""
    tuned = full_build_for("x86_64_v3")
    assert tuned.tree is not None
    (file,) = tuned.tree.libraries
    census = {**tuned.tree.libraries[file].census, "avx512f": 1, "amx_int8": 1}
    library = dataclasses.replace(tuned.tree.libraries[file], census=census)
    tree = dataclasses.replace(tuned.tree, libraries={file: library})
    assert choose_label(dataclasses.replace(tuned, tree=tree), "a.whl") == "x86_64_v3"
