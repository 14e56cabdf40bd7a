"""Levels of CPUs as wheel variants, with variantlib to say whether they are any."""

from __future__ import annotations

import dataclasses
import itertools
import json
import sys
import zipfile
from pathlib import Path

import pytest
from archspec.cpu import TARGETS
from hypothesis import given
from hypothesis import strategies as st
from tests.builders.index_wheels import MANYLINUX, full_build_for, stand_in, tuned_for

from tfbuild.binaries.instructions import UNDECODED
from tfbuild.packing.tuned import Tuned
from tfbuild.packing.wheel import verify_record
from tfcore.cpus.compilers import find_compiler, read_macros
from tfcore.cpus.features import load_features
from tfcore.cpus.flags import (
    compute_march_flags,
    compute_required_features,
    list_implied_features,
)
from tfcore.cpus.targets import parse_target
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

TAGS = f"cp311-cp311-{MANYLINUX['x86_64']}"
ARM_TAGS = f"cp311-cp311-{MANYLINUX['aarch64']}"
V3, V4 = (f"tensorflow_cpu-2.14.1-{TAGS}-x86_64_{level}.whl" for level in ("v3", "v4"))
ARM = f"tensorflow_cpu-2.14.1-{ARM_TAGS}-aarch64_8.4a.whl"
FILES = {
    "x86_64": f"tensorflow_cpu-2.14.1+a-{TAGS}.whl",
    "aarch64": f"tensorflow_cpu-2.14.1+a-{ARM_TAGS}.whl",
}
FEATURES = {family: sorted(load_features(family)) for family in LEVELS}
FAMILIES = st.sampled_from(sorted(LEVELS))
LEVELS_X86 = LEVELS["x86_64"].features
VERSIONS = LEVELS["aarch64"].features


def tuned(
    folder: Path, *targets: str, version: str = "2.14.1+x86.64.v3", machine: str = "x86_64"
) -> Path:
    return stand_in(folder, version, targets=targets, machine=machine)


@pytest.fixture
def v3(tmp_path: Path) -> Path:
    return tuned(tmp_path / "pool", "x86_64_v3")


@pytest.fixture
def v4(tmp_path: Path) -> Path:
    return tuned(tmp_path / "pool", "x86_64_v4", version="2.14.1+x86.64.v4")


@pytest.fixture
def arm(tmp_path: Path) -> Path:
    # archspec lists none of its features, so the wheel says that it needs nothing
    return tuned(tmp_path / "pool", "armv8.4a", version="2.14.1+armv8.4a", machine="aarch64")


def label_of(wheel: Tuned, family: str = "x86_64") -> str:
    return choose_label(wheel, FILES[family])


# ---- levels ----


@pytest.mark.parametrize("level", ["v2", "v3", "v4"])
def test_the_features_of_a_level_are_that_level(level: str) -> None:
    assert find_level(TARGETS[f"x86_64_{level}"].features, "x86_64") == level


@pytest.mark.parametrize("family", LEVELS)
def test_each_level_holds_the_one_below(family: str) -> None:
    levels = LEVELS[family].features
    assert all(lower < higher for lower, higher in itertools.pairwise(levels.values()))
    assert {*list(levels.values())[-1]} <= {*FEATURES[family]}


@pytest.mark.parametrize(
    "target", ["haswell", "skylake", "skylake_avx512", "zen4", "neoverse_n1", "neoverse_v1", "m1"]
)
def test_a_real_cpu_is_no_level(target: str) -> None:
    assert find_level(TARGETS[target].features, str(TARGETS[target].family)) is None


@pytest.mark.parametrize(
    ("target", "version"),
    [
        ("thunderx2", "8.1a"),
        ("a64fx", "8.2a"),
        ("neoverse_n1", "8.2a"),
        ("m1", "8.4a"),
        ("ampere1", "8.4a"),
    ],
)
def test_a_core_has_every_feature_of_its_version(target: str, version: str) -> None:
    features = TARGETS[target].features
    assert [name for name, has in VERSIONS.items() if has <= features][-1] == version


@pytest.mark.toolchain
@pytest.mark.parametrize("name", ["aarch64-linux-gnu-g++", "clang-16"])
@pytest.mark.parametrize("version", VERSIONS)
def test_a_version_has_what_compilers_enable_for_it(version: str, name: str) -> None:
    compiler = find_compiler(name, "aarch64")
    enabled = list_implied_features(read_macros(compiler, [f"-march=armv{version.strip('a')}-a"]))
    rows = load_features("aarch64")
    shown = {feature for feature in VERSIONS[version] if rows[feature].macro}
    silent = {feature for feature in shown if rows[feature].silent.get(compiler.family)}
    assert shown - silent <= enabled <= shown


@pytest.mark.toolchain
@pytest.mark.parametrize("name", ["aarch64-linux-gnu-g++", "clang-16"])
@pytest.mark.parametrize(
    ("arch", "version"),
    [
        ("aarch64", "8a"),
        ("armv8.1a", "8.1a"),
        ("armv8.2a", "8.1a"),  # what 8.2a adds, cache maintenance, is in no wheel
        ("armv8.3a", "8.3a"),
        ("armv8.4a", "8.4a"),
        ("armv8.5a", None),
    ],
)
def test_a_build_for_a_version_needs_no_more_than_it(
    arch: str, version: str | None, name: str
) -> None:
    target, compiler = parse_target(arch), find_compiler(name, "aarch64")
    macros = read_macros(compiler, compute_march_flags(target, compiler.family, compiler.version))
    assert find_level(compute_required_features(target, macros), "aarch64") == version


@given(st.data(), FAMILIES)
def test_a_level_has_every_feature_and_the_one_below_has_not(
    data: st.DataObject, family: str
) -> None:
    levels = LEVELS[family].features
    features = data.draw(st.sets(st.sampled_from(FEATURES[family])))
    level = find_level(features, family)
    fitting = [name for name, has in levels.items() if features <= has]
    assert level == (fitting[0] if fitting else None)
    for name in FEATURES[family]:
        if level is not None and name not in levels[level]:
            assert find_level({*features, name}, family) != level


def test_a_wheel_is_never_below_the_stock_code_in_it() -> None:
    assert label_of(tuned_for(("x86_64_v2",))) == "x86_64_v3"  # it needs AVX
    assert label_of(tuned_for(("x86_64_v4",))) == "x86_64_v4"


def test_a_wheel_for_several_levels_is_the_highest() -> None:
    assert label_of(tuned_for(("x86_64_v4", "x86_64_v3"))) == "x86_64_v4"


@pytest.mark.parametrize(
    ("wheel", "tags", "machines"),
    [
        (full_build_for("aarch64"), TAGS, "x86_64"),
        (tuned_for(("armv8.1a",)), TAGS, "x86_64"),
        (tuned_for(("x86_64_v3",)), ARM_TAGS, "aarch64"),
        (tuned_for(("x86_64_v3", "armv8.1a")), TAGS, "x86_64"),
        (tuned_for(("x86_64_v3",)), "py3-none-any", "aarch64 and x86_64"),
        (tuned_for(("x86_64_v3",)), "cp311-cp311-manylinux_2_17_ppc64le", "no known machine"),
    ],
)
def test_a_wheel_with_tags_of_another_machine_has_no_level(
    wheel: Tuned, tags: str, machines: str
) -> None:
    with pytest.raises(PublishError, match=f"and its tags are for {machines}$"):
        choose_label(wheel, f"tensorflow_cpu-2.14.1+a-{tags}.whl")


@pytest.mark.parametrize(
    ("used", "version"),
    [
        ((), "8a"),
        (("fp", "asimd"), "8a"),
        (("crc32",), "8.1a"),
        (("atomics", "asimdrdm"), "8.1a"),
        (("atomics", "fcma"), "8.3a"),
        (("lrcpc",), "8.3a"),
        (("ilrcpc",), "8.4a"),
        (("asimddp", "lrcpc"), "8.4a"),
    ],
)
def test_a_version_is_the_first_that_guarantees_every_instruction(
    used: tuple[str, ...], version: str
) -> None:
    wheel = counted("armv8.4a", **dict.fromkeys(("aarch64", *used), 1))
    assert label_of(wheel, "aarch64") == f"aarch64_{version}"


@pytest.mark.parametrize("name", ["aes", "asimdhp", "asimdfhm", "frint", "bf16", "sve", UNDECODED])
def test_an_instruction_that_no_version_guarantees_forbids(name: str) -> None:
    with pytest.raises(PublishError, match=rf"up to 8\.4a is known to have {name}\.") as caught:
        label_of(counted("armv8.4a", **{"aarch64": 9, name: 1}), "aarch64")
    assert "armv8.4a" in caught.value.hint


def test_what_is_beyond_every_level_is_named() -> None:
    with pytest.raises(PublishError, match="aes, pclmulqdq"):
        label_of(tuned_for(("haswell",)))


def counted(spec: str, **census: int) -> Tuned:
    """A wheel whose library is for `spec`, with these instructions."""
    whole = tuned_for((spec,))
    library = dataclasses.replace(whole.libraries[0], census=census)
    return dataclasses.replace(whole, libraries=(library,))


def test_a_library_that_was_not_counted_proves_nothing() -> None:
    with pytest.raises(PublishError, match=r"x86\.64\.v3"):
        label_of(counted("x86_64_v3"))


def test_an_instruction_that_is_not_asked_for_counts_too() -> None:
    assert label_of(counted("x86_64_v3", x86_64=9, avx2=1)) == "x86_64_v3"
    assert label_of(counted("x86_64_v3", x86_64=9, avx512vl=1)) == "x86_64_v4"


def test_a_feature_that_is_asked_for_and_not_used_counts_too() -> None:
    assert label_of(counted("x86_64_v4", x86_64=9)) == "x86_64_v4"


@pytest.mark.parametrize("name", ["aes", "3dnowprefetch", "cet_ss", "aarch64", UNDECODED])
def test_one_instruction_that_no_level_is_known_to_have_forbids(name: str) -> None:
    with pytest.raises(PublishError, match=f" {name}\\."):
        label_of(counted("x86_64_v3", **{"x86_64": 9, name: 1}))


@given(st.sets(st.sampled_from(FEATURES["x86_64"])), st.sampled_from(["x86_64_v3", "x86_64_v4"]))
def test_a_label_is_of_a_level_that_has_every_instruction(features: set[str], spec: str) -> None:
    wheel = counted(spec, **dict.fromkeys(("x86_64", *features), 1))
    if features <= LEVELS_X86["v4"]:
        level = LEVELS_X86[label_of(wheel).removeprefix("x86_64_")]
        assert features | {*wheel.libraries[0].required_features} <= level
    else:
        with pytest.raises(PublishError):
            label_of(wheel)


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
    assert document["default-priorities"] == {"namespace": ["x86_64"]}
    assert format_index_name(V3) == "tensorflow_cpu-2.14.1-variants.json"


def test_a_release_may_have_variants_of_both_architectures() -> None:
    """PEP 825: of two wheels' namespaces, the fewer are the first of the others."""
    both, one = (json.loads(build_index_json(files)) for files in ([ARM, V3], [ARM]))
    assert both["variants"].keys() == {"aarch64_8.4a", "x86_64_v3"}
    for document in (both, one):
        assert document["default-priorities"] == {"namespace": ["x86_64", "aarch64"]}
        assert document["variants"]["aarch64_8.4a"] == {"aarch64": {"version": ["8.4a"]}}
        assert document["providers"] == {
            "x86_64": {"requires": ["x86-64-variant-provider"]},
            "aarch64": {"requires": ["aarch64-variant-provider"]},
        }


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
    v3: Path, v4: Path, arm: Path, tmp_path: Path, variantlib: Path
) -> None:
    paths = [make_variant(wheel, tmp_path / "out") for wheel in (v3, v4, arm)]
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
    assert label_of(dataclasses.replace(tuned, tree=tree)) == "x86_64_v3"
