"""Which wheel each CPU's page lists."""

from __future__ import annotations

import dataclasses
import itertools
import random

import pytest
from archspec.cpu import TARGETS
from hypothesis import given
from hypothesis import strategies as st
from tests.builders.index_wheels import entry_of
from tests.builders.recorded_cpus import COMPLETE, cpu_of

from tfcore.cpus.targets import STOCK_SPECS, Target, list_targets, match_cpu, parse_target
from tfcore.errors import PublishError
from tfwheels.entry import Entry, WheelKind
from tfwheels.wheel_choice import (
    PageChoice,
    choose,
    choose_best,
    explain,
    explain_absence,
    find_missing_features,
    group_rivals,
    refuse_ambiguous,
)

STOCK = entry_of("2.14.1")


def tuned(*specs: str, python: str = "cp311", size: int = 1000, release: str = "2.14.1") -> Entry:
    """A wheel with a library for each spec."""
    local = ".".join(parse_target(spec).local for spec in specs)
    machine = parse_target(specs[0]).family
    version = f"{release}+{local}"
    return entry_of(version, targets=specs, python=python, machine=machine, size=size)


def choice_for(name: str, *entries: Entry) -> PageChoice | None:
    choices = choose(entries, parse_target(name))
    assert len(choices) <= 1
    return next(iter(choices), None)


def library_for(name: str, *entries: Entry) -> str:
    """The library that the page's wheel brings; "stock", or nothing where nothing is listed."""
    choice = choice_for(name, *entries)
    return (choice.library or "stock") if choice else ""


POOL = (
    STOCK,
    *map(tuned, ("x86_64_v3", "skylake", "skylake_avx512", "sapphirerapids", "zen2", "zen4")),
)
TABLE = {
    "icelake": "skylake_avx512",
    "cascadelake": "skylake_avx512",
    "skylake_avx512": "skylake_avx512",
    "cannonlake": "skylake",
    "alderlake": "skylake",
    "skylake": "skylake",
    "haswell": "x86_64_v3",
    "broadwell": "x86_64_v3",
    "x86_64_v3": "x86_64_v3",
    "x86_64_v4": "x86_64_v3",
    "zen": "x86_64_v3",
    "zen2": "zen2",
    "zen3": "zen2",
    "zen4": "zen4",
    "zen5": "zen4",
    "zen6": "zen4",
    "sapphirerapids": "sapphirerapids",
    "sandybridge": "stock",
    "ivybridge": "stock",
    # AVX is what the stock wheel cannot do without.
    **dict.fromkeys(("nehalem", "westmere", "core2", "nocona", "k10", "x86_64", "x86_64_v2"), ""),
    "aarch64": "",
    "neoverse_v1": "",
}


@pytest.mark.parametrize(("target", "library"), TABLE.items())
def test_every_cpu_gets_the_nearest_wheel(target: str, library: str) -> None:
    assert library_for(target, *POOL) == library


@pytest.mark.parametrize(
    ("target", "specs", "library"),
    [
        # An ancestor by its level, where archspec's order does not decide.
        ("zen4", ("zen3", "x86_64_v4"), "x86_64_v4"),
        ("zen4", ("zen3", "x86_64_v4+avx512_bf16/zen4"), "x86_64_v4+avx512_bf16/zen4"),
        ("skylake_avx512", ("skylake", "x86_64_v4"), "x86_64_v4"),
        ("icelake", ("cascadelake", "cannonlake"), "cascadelake"),
        # Features that are added must be there.
        ("x86_64_v4", ("x86_64_v4+avx512_bf16/zen4", "x86_64_v3"), "x86_64_v3"),
        ("sapphirerapids", ("icelake+avx512_bf16/sapphirerapids",), "icelake+avx512_bf16/sap"),
        ("icelake", ("icelake+avx512_bf16/sapphirerapids",), "stock"),
        # The maker: by the name, or by what the code is tuned for.
        ("zen5", ("x86_64_v4/icelake", "x86_64_v4/zen4"), "x86_64_v4/zen4"),
        ("icelake", ("x86_64_v4/icelake", "x86_64_v4/zen4"), "x86_64_v4/icelake"),
        ("x86_64_v4", ("x86_64_v4/icelake", "x86_64_v4"), "x86_64_v4"),
        # An ancestor before the maker, the maker before the number of features.
        ("zen3", ("x86_64_v3", "ivybridge"), "x86_64_v3"),
        ("zen4", ("nehalem/zen4", "westmere"), "nehalem/zen4"),
        ("zen4", ("nocona", "core2"), "core2"),
    ],
)
def test_how_near_a_library_is(target: str, specs: tuple[str, ...], library: str) -> None:
    actual = library_for(target, STOCK, *map(tuned, specs))
    assert actual.startswith(library)


def test_an_arm_core_gets_its_own_line_only() -> None:
    stock = entry_of("2.14.1", machine="aarch64")
    pool = (stock, tuned("neoverse_n1"), tuned("armv8.4a"), tuned("neoverse_v1"))
    assert library_for("neoverse_n1", *pool) == "neoverse_n1"
    assert library_for("neoverse_v1", *pool) == "neoverse_v1"
    # No descendant of neoverse_v1: it lacks three of its features.
    assert library_for("neoverse_v2", *pool) == "neoverse_n1"
    assert library_for("m1", *pool) == "armv8.4a"
    assert library_for("cortex_a72", *pool) == "stock"
    # archspec knows no features of these, so that of none of them is proof.
    assert library_for("aarch64", *pool) == "stock"
    assert library_for("armv8.2a", *pool) == "stock"
    assert library_for("armv8.5a", *pool) == "armv8.4a"
    assert library_for("icelake", *pool) == ""


def test_without_a_stock_wheel_a_cpu_that_none_fits_gets_nothing() -> None:
    assert library_for("haswell", tuned("zen4")) == ""


def test_a_fleet_counts_by_the_library_that_its_dispatcher_takes() -> None:
    fleet = tuned("zen4", "skylake_avx512", "haswell")
    assert library_for("zen5", STOCK, fleet) == "zen4"
    assert library_for("icelake", STOCK, fleet) == "skylake_avx512"
    assert library_for("broadwell", STOCK, fleet) == "haswell"
    assert library_for("sandybridge", STOCK, fleet) == "stock"
    assert library_for("icelake", STOCK, fleet, tuned("icelake")) == "icelake"


def test_of_the_same_library_the_smaller_file_is_taken() -> None:
    fleet, single = tuned("zen4", "haswell", size=2000), tuned("zen4", size=1000)
    for entries in itertools.permutations((fleet, single, STOCK)):
        choice = choice_for("zen5", *entries)
        assert choice is not None
        assert choice.entry == single


def test_wheels_that_differ_in_their_names_only_are_chosen_between_in_one_way() -> None:
    alike = [entry_of(f"2.14.1+{local}", targets=("zen4",)) for local in ("a", "b", "c")]
    target = parse_target("zen4")
    choices = {choose_best(tuple(order), target) for order in itertools.permutations(alike)}
    assert len({choice.entry for choice in choices if choice}) == 1


def test_a_wheel_that_says_any_machine_is_not_taken_on_a_foreign_one() -> None:
    arm = entry_of("2.14.1+armv8.4a", targets=("armv8.4a",), python="py3")
    intel = entry_of("2.14.1+x86.64", targets=("x86_64",), python="py3")
    assert library_for("neoverse_v1", intel) == ""
    assert library_for("icelake", arm) == ""
    assert library_for("icelake", intel) == "x86_64"


def test_versions_pythons_packages_and_machines_are_chosen_apart() -> None:
    wheels = (
        *POOL,
        entry_of("2.13.1"),
        tuned("haswell", release="2.13.1"),
        tuned("haswell", python="cp310"),
        entry_of("2.14.1", name="tensorflow"),
        entry_of("2.14.1", machine="aarch64"),
    )
    entries = {choice.entry for choice in choose(wheels, parse_target("zen4"))}
    assert {(entry.name, entry.version, entry.tags[0][:5]) for entry in entries} == {
        ("tensorflow-cpu", "2.14.1+zen4", "cp311"),
        ("tensorflow-cpu", "2.13.1", "cp311"),
        ("tensorflow", "2.14.1", "cp311"),
    }


def test_another_manylinux_or_spelling_of_the_version_is_no_other_place() -> None:
    newer = entry_of("2.14.1.0+zen4", targets=("zen4",))
    newer_libc = "tensorflow_cpu-2.14.1+zen4-cp311-cp311-manylinux_2_35_x86_64.whl"
    assert len(group_rivals([STOCK, newer])) == 1
    refuse_ambiguous("zen4", ["tensorflow_cpu-2.13.1-cp311-cp311-linux_x86_64.whl", newer_libc])
    with pytest.raises(PublishError):
        refuse_ambiguous("zen4", [STOCK.file, newer_libc])


def test_a_full_build_without_a_manylinux_tag_stands_in_the_place_of_stock() -> None:
    """The tag linux_x86_64 is for hosts with any C library, so also for those of stock."""
    full = full_build("zen4")
    tags = ("cp311-cp311-linux_x86_64",)
    full = dataclasses.replace(full, file=f"tensorflow_cpu-{full.version}-{tags[0]}.whl", tags=tags)
    for order in itertools.permutations((STOCK, full, tuned("haswell"))):
        taken = [choice_for(name, *order) for name in ("zen4", "haswell", "sandybridge")]
        files = [choice.entry.file for choice in taken if choice]
        assert files == [full.file, tuned("haswell").file, STOCK.file]


SPECS = (
    *(target.name for target in list_targets()),
    "x86_64_v4+avx512_bf16/zen4",
    "x86_64_v3/zen4",
    "icelake+avx512_bf16/sapphirerapids",
    "haswell+avx512f",
    "armv8.4a+sve",
)
FAMILIES = {
    family: [spec for spec in SPECS if parse_target(spec).family == family]
    for family in ("x86_64", "aarch64")
}


@st.composite
def wheels(draw: st.DrawFn) -> Entry:
    family = draw(st.sampled_from(sorted(FAMILIES)))
    specs = draw(st.lists(st.sampled_from(FAMILIES[family]), max_size=3, unique=True))
    release = draw(st.sampled_from(("2.14.1", "2.13.1")))
    full = draw(st.booleans())
    if specs and full:
        return full_build(specs[0])
    if not specs:
        return entry_of(release, machine=family)
    return tuned(*specs, size=draw(st.sampled_from((1000, 2000))), release=release)


def runnable(name: str) -> Entry:
    """A wheel for a target that its CPUs run: a full build where they cannot run stock code."""
    return full_build(name) if find_missing_features(parse_target(name)) else tuned(name)


def by_file(entry: Entry) -> str:
    return entry.file


pools = st.lists(wheels(), max_size=8, unique_by=by_file)
targets = st.sampled_from(list_targets())


@given(pools, targets)
def test_what_is_chosen_runs_on_the_target(entries: list[Entry], target: Target) -> None:
    for choice in choose(entries, target):
        assert choice.entry.kind is (WheelKind.TUNED if choice.library else WheelKind.STOCK)
        if choice.library:
            library = parse_target(choice.library)
            assert library.features <= target.features
            assert library.family == target.family
            assert choice.library in choice.entry.targets
            line = {target.name, *(uarch.name for uarch in TARGETS[target.name].ancestors)}
            assert target.family == "x86_64" or library.name in line
        if not choice.entry.whole and target.family == "x86_64":
            assert "avx" in target.features


@given(pools, targets)
def test_a_page_is_never_ambiguous(entries: list[Entry], target: Target) -> None:
    files = [choice.entry.file for choice in choose(entries, target)]
    refuse_ambiguous(target.name, files)
    versions = [file.split("-")[1].partition("+")[0] for file in files]
    assert len(versions) == len(set(versions))


@given(pools, targets, st.randoms(use_true_random=False))
def test_the_order_of_wheels_changes_nothing(
    entries: list[Entry], target: Target, chance: random.Random
) -> None:
    shuffled = list(entries)
    chance.shuffle(shuffled)
    assert choose(shuffled, target) == choose(entries, target)


@given(pools, wheels(), targets)
def test_a_wheel_that_is_added_changes_only_pages_that_list_it(
    entries: list[Entry], added: Entry, target: Target
) -> None:
    other_entries = [entry for entry in entries if entry.file != added.file]
    before = {choice.entry for choice in choose(other_entries, target)}
    after = {choice.entry for choice in choose([*other_entries, added], target)}
    assert after - before <= {added}
    if added not in after:
        assert after == before
    # And one that fits is not passed over for the stock wheel.
    if added.kind is WheelKind.STOCK:
        assert not [entry for entry in before - after if entry.kind is WheelKind.TUNED]


@given(targets)
def test_a_wheel_for_the_target_itself_is_always_taken(target: Target) -> None:
    other_entries = [tuned(spec) for spec in FAMILIES[target.family] if spec != target.name]
    assert library_for(target.name, STOCK, *other_entries, runnable(target.name)) == target.name


@given(targets)
def test_archspecs_order_is_kept(target: Target) -> None:
    """Of two ancestors one of which descends from the other, the descendant is nearer."""
    ancestors = [uarch.name for uarch in TARGETS[target.name].ancestors]
    make = full_build if find_missing_features(target) else tuned
    for older, newer in itertools.permutations(ancestors, 2):
        if older in {uarch.name for uarch in TARGETS[newer].ancestors}:
            assert library_for(target.name, make(older), make(newer)) == newer


def reasons(target: str, *entries: Entry) -> dict[str, str]:
    choice = choice_for(target, *entries)
    assert choice is not None
    fields = explain(choice, parse_target(target))
    assert set(fields) == {entry.file for entry in entries}
    assert next(iter(fields)) == choice.entry.file
    return {file.split("-")[1].removeprefix("2.14.1"): reason for file, reason in fields.items()}


def test_a_choice_explains_itself() -> None:
    assert reasons("icelake", *POOL, tuned("skylake_avx512", "haswell", size=2000)) == {
        "+skylake.avx512": "its kernels for skylake_avx512 are the nearest that icelake can run",
        "": "a tuned wheel fits",
        "+sapphirerapids": "icelake lacks amx_bf16, amx_int8, amx_tile, avx512_bf16, cldemote "
        "and 4 more",
        "+skylake": "its kernels for skylake are not the nearest",
        "+skylake.avx512.haswell": "it is for the same target, and its file is not smaller",
        "+x86.64.v3": "its kernels for x86_64_v3 are not the nearest",
        "+zen2": "icelake lacks clzero, fsgsbase, sse4a",
        "+zen4": "icelake lacks avx512_bf16, clzero, flush_l1d, fsgsbase, pku and 1 more",
    }
    assert reasons("zen4", STOCK, tuned("zen4"))["+zen4"] == "it has kernels for zen4"


def test_a_full_build_for_a_cpu_without_avx_says_why_the_others_cannot_run() -> None:
    fields = reasons("nehalem", *POOL, tuned("nehalem"), full_build("nehalem"))
    assert next(iter(fields.values())) == "it is a full build for nehalem"
    for version in ("", "+nehalem", "+zen4"):
        assert fields[version] == "nehalem lacks avx, which its stock code needs"
    assert "ivybridge" in reasons("ivybridge", *POOL)[""]


def test_an_arm_wheel_says_whose_line_it_is_for() -> None:
    arm = (entry_of("2.14.1", machine="aarch64"), tuned("armv8.4a"))
    reason = reasons("armv8.2a", *arm)["+armv8.4a"]
    assert reason.startswith("armv8.2a ")
    assert reason.endswith(" armv8.4a")


# ---- CPUs without what stock TensorFlow is compiled for ----


@pytest.mark.parametrize("target", list_targets(), ids=lambda target: target.name)
def test_a_target_lists_stock_code_only_with_all_that_it_is_compiled_for(target: Target) -> None:
    (stock,) = (parse_target(s) for s in STOCK_SPECS if parse_target(s).family == target.family)
    wheels = (
        entry_of("2.14.1", machine=target.family),
        *(tuned(spec) for spec in FAMILIES[target.family]),
    )
    runs = target.features | {"sse", "sse2"} >= stock.features
    assert bool(choose(wheels, target)) is runs
    assert bool(explain_absence(target)) is not runs
    assert choice_for(target.name, *wheels, full_build(target.name)) is not None


@pytest.mark.parametrize("hidden", [(), ("avx", "avx2"), ("sse4_2", "avx")], ids=str)
@pytest.mark.parametrize("name", COMPLETE)
def test_a_recorded_cpu_is_never_given_code_that_would_kill_it(
    name: str, hidden: tuple[str, ...]
) -> None:
    """As it is, and as a hypervisor shows it that hides AVX with all that builds on it."""
    cpu = cpu_of(name)
    if hidden:
        older = ("avx", "fma", "f16c", "xop", "vaes", "vpclmulqdq", "gfni")
        gone = {*hidden, *(feature for feature in cpu.features if feature.startswith(older))}
        cpu = dataclasses.replace(cpu, features=cpu.features - gone)
    target = match_cpu(cpu).best
    pool = [tuned(spec) for spec in FAMILIES[target.family]]
    pool += [full_build(spec) for spec in ("x86_64", "nehalem", "haswell")]
    stock = entry_of("2.14.1", machine=target.family)
    for choice in choose([stock, *pool], target):
        assert choice.entry.whole or cpu.architecture == "aarch64" or "avx" in cpu.features
        assert {*choice.entry.required} <= cpu.features | {"sse", "sse2"}
    if cpu.architecture == "x86_64":
        assert bool(choose([stock], target)) is not bool(hidden)


def file(version: str, tags: str = "cp311-cp311-manylinux_2_17_x86_64", name: str = "a") -> str:
    return f"{name}-{version}-{tags}.whl"


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (file("1+zen4"), file("1+icelake")),
        (file("1"), file("1+icelake")),
        (file("1.0"), file("1+icelake")),
        (file("1+zen4"), file("1+icelake", "cp311-cp311-manylinux_2_35_x86_64")),
        (file("1+zen4"), file("1+icelake", "cp311-cp311-linux_x86_64")),
        (
            file("1+zen4", "cp311-cp311-musllinux_1_1_x86_64"),
            file("1+icelake", "cp311-cp311-linux_x86_64"),
        ),
        (file("1+zen4"), file("1+icelake", "cp39-abi3-manylinux_2_17_x86_64")),
        (file("1+zen4"), file("1+icelake", "py3-none-any")),
        (file("1+zen4", "py2.py3-none-any"), file("1+icelake", "py3-none-any")),
        (
            file("1+zen4", "cp311-cp311-macosx_11_0_universal2"),
            file("1+icelake", "cp311-cp311-macosx_11_0_arm64"),
        ),
        (file("1+zen4", name="A_b"), file("1+icelake", name="a_B")),
    ],
)
def test_an_ambiguous_page_is_refused_and_both_files_are_named(first: str, second: str) -> None:
    with pytest.raises(PublishError) as caught:
        refuse_ambiguous("simple/zen4/a/", [first, file("1", name="b"), second])
    assert first in caught.value.message
    assert second in caught.value.message


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (file("1+zen4"), file("2+icelake")),
        (file("1+zen4"), file("1+icelake", name="b")),
        (file("1+zen4"), file("1+zen4", "cp311-cp311-manylinux_2_35_x86_64")),
        (file("1+zen4"), file("1+icelake", "cp310-cp310-manylinux_2_17_x86_64")),
        (file("1+zen4"), file("1+icelake", "cp311-cp311-manylinux_2_17_aarch64")),
        (file("1+zen4"), file("1+icelake", "cp311-cp311-musllinux_1_1_x86_64")),
        (file("1+zen4"), file("1+icelake", "cp311-cp311-win_amd64")),
        (file("1+zen4"), file("1+icelake", "cp313-cp313t-manylinux_2_17_x86_64")),
    ],
)
def test_a_page_from_which_every_host_can_take_one_only_passes(first: str, second: str) -> None:
    refuse_ambiguous("simple/zen4/a/", [first, second])


# ---- full builds ----


def full_build(spec: str, *, more: tuple[str, ...] = (), size: int = 2000) -> Entry:
    """A full build that asks for the target's features and `more`."""
    target = parse_target(spec)
    version = f"2.14.1+{target.local}.full"
    entry = entry_of(version, targets=(spec,), machine=target.family, size=size)
    return dataclasses.replace(entry, whole=True, required=(*sorted(target.features), *more))


def test_of_two_wheels_for_a_target_the_full_build_is_taken() -> None:
    kernels, full = tuned("skylake"), full_build("skylake")
    choice = choice_for("skylake", STOCK, kernels, full)
    assert choice is not None
    assert choice.entry == full
    assert explain(choice, parse_target("skylake")) == {
        full.file: "it is a full build for skylake",
        kernels.file: "it has only kernels for that target, and the other is a full build",
        STOCK.file: "a tuned wheel fits",
    }


def test_nearer_kernels_are_taken_before_a_full_build_for_an_older_cpu() -> None:
    assert library_for("skylake_avx512", full_build("haswell"), tuned("skylake_avx512")) == (
        "skylake_avx512"
    )


@pytest.mark.parametrize("name", ["haswell", "x86_64_v3", "sandybridge", "zen2"])
def test_a_full_build_is_never_listed_for_a_cpu_that_lacks_a_feature(name: str) -> None:
    assert library_for(name, STOCK, full_build("skylake_avx512")) == "stock"


def test_what_archspec_does_not_name_is_asked_of_other_makers_only() -> None:
    """The compilers' skylake has PREFETCHW, archspec's has not."""
    unnamed = full_build("nehalem", more=("gfni",))
    assert library_for("nehalem", STOCK, unnamed) == "nehalem"
    assert library_for("haswell", STOCK, unnamed) == "nehalem"
    assert library_for("zen3", STOCK, full_build("nehalem")) == "nehalem"
    assert library_for("zen3", STOCK, unnamed) == "stock"
    choice = choice_for("zen3", STOCK, unnamed)
    assert choice is not None
    assert explain(choice, parse_target("zen3"))[unnamed.file] == "zen3 lacks gfni"
