from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import pytest
from tests.builders.index_wheels import tuned_for

from tfbuild.auditing.claims import Role, WheelLibrary, count_foreign, find_problems, is_idle
from tfbuild.packing.tuned import KernelLibrary, Tuned
from tfcore.cpus.targets import STOCK_FLAGS

HASWELL = {"x86_64": 90, "avx": 5, "avx2": 3, "fma": 2}
CONTROL = {"x86_64": 90, "sse4_1": 1, "avx": 5}


def tuned(*targets: str, **census: Mapping[str, int]) -> Tuned:
    """A record whose libraries count what `census` says by target, or HASWELL."""
    facts = tuned_for(targets)
    counted = (
        dataclasses.replace(library, census=census.get(library.target, HASWELL))
        for library in facts.libraries
    )
    return dataclasses.replace(facts, libraries=tuple(counted))


def shown(claim: KernelLibrary, **fields: Any) -> WheelLibrary:
    """A library that is just what is claimed, but for `fields`."""
    whole: dict[str, Any] = {
        "file": claim.file,
        "name": claim.name,
        "role": Role.KERNELS,
        "size": claim.size,
        "sha256": claim.sha256,
        "census": claim.census,
        "difference": claim.census,
        "required": claim.required_features,
        "floors": claim.floors,
        "needed": (),
        "isa_needed": "",
    }
    return WheelLibrary(**whole | fields)


DISPATCHER = dataclasses.replace(
    shown(tuned("haswell").libraries[0]),
    file="tensorflow/core/kernels/libtfkernel_tensorwright.so",
    name="libtfkernel_tensorwright.so",
    role=Role.DISPATCHER,
    census={"x86_64": 700, "xsave": 1},
    required=(),
)


def found(tuned_facts: Tuned, *libraries: WheelLibrary) -> list[str]:
    return list(find_problems(tuned_facts, (DISPATCHER, *libraries)))


def test_a_wheel_that_is_what_it_says_has_no_problem() -> None:
    facts = tuned("haswell", "skylake_avx512")
    assert found(facts, *map(shown, facts.libraries)) == []


@pytest.mark.parametrize(
    ("fields", "part"),
    [
        ({"size": 999}, "its size or hash"),
        ({"sha256": "5" * 64}, "its size or hash"),
        ({"floors": {"GLIBC": "2.34"}}, "it requires GLIBC 2.14, it requires GLIBC 2.34"),
        ({"floors": {}}, "it requires nothing"),
        ({"census": HASWELL | {"avx2": 4}}, "counts 3 instructions of avx2, it has 4"),
        ({"census": HASWELL | {"bmi1": 1}}, "counts 0 instructions of bmi1, it has 1"),
        ({"unregistered": ("Tanh",)}, "does not register Tanh"),
    ],
)
def test_what_is_not_as_claimed_is_said(fields: dict[str, Any], part: str) -> None:
    facts = tuned("haswell")
    (line,) = found(facts, shown(facts.libraries[0], **fields))
    assert line.startswith("haswell: ")
    assert part in line


def test_a_target_whose_features_are_not_asked_for_is_said() -> None:
    facts = tuned("haswell")
    less = dataclasses.replace(facts.libraries[0], required_features=("avx", "avx2"))
    (line,) = found(dataclasses.replace(facts, libraries=(less,)), shown(less))
    assert line.startswith("haswell: ")
    assert " abm, aes, bmi1" in line


@pytest.mark.parametrize("target", ["haswell", "skylake_avx512", "x86_64+fma"])
def test_flags_that_did_nothing_are_seen(target: str) -> None:
    facts = tuned(target, **{target: CONTROL})
    (line,) = found(facts, shown(facts.libraries[0]))
    assert "flags had no effect" in line


def test_a_target_without_wider_vectors_may_show_nothing_new() -> None:
    facts = tuned("ivybridge", ivybridge=CONTROL)
    assert found(facts, shown(facts.libraries[0])) == []
    assert not is_idle(shown(facts.libraries[0]))


def test_the_control_wheel_must_show_nothing_new() -> None:
    facts = tuned(STOCK_FLAGS, **{STOCK_FLAGS: CONTROL})
    library = shown(facts.libraries[0])
    assert found(facts, library) == []
    assert count_foreign(library, control=True) == {}
    loud = dataclasses.replace(library, census=HASWELL, required=("avx", "avx2", "fma"))
    assert count_foreign(loud, control=True) == {"avx2": 3, "fma": 2}


def test_foreign_instructions_are_those_that_are_not_asked_for() -> None:
    library = shown(tuned("haswell").libraries[0])
    more = dataclasses.replace(
        library, census=HASWELL | {"avx512f": 1, "rtm": 2, "sha_ni": 3, "undecoded": 4}
    )
    assert count_foreign(library, control=False) == {}
    assert count_foreign(more, control=False) == {
        "avx512f": 1,
        "rtm": 2,
        "sha_ni": 3,
        "undecoded": 4,
    }
    assert count_foreign(dataclasses.replace(more, role=Role.STOCK), control=False) == {}


def test_the_dispatcher_is_baseline_code() -> None:
    assert count_foreign(DISPATCHER, control=False) == {}
    newer = dataclasses.replace(DISPATCHER, census={**DISPATCHER.census, "popcnt": 1})
    assert count_foreign(newer, control=False) == {"popcnt": 1}


def test_what_is_missing_is_said() -> None:
    facts = tuned("haswell", "zen2")
    lines = find_problems(facts, (shown(facts.libraries[0]),))
    library, other_text = lines
    assert library == "zen2: tensorflow/core/kernels/tensorwright/zen2.so is missing"
    assert "dispatcher" in other_text


def test_a_library_outside_of_the_kernel_folder_is_said() -> None:
    facts = tuned("haswell")
    file = "tensorflow/core/kernels/tensorwright/more/haswell.so"
    stray = dataclasses.replace(facts.libraries[0], file=file)
    (line,) = found(dataclasses.replace(facts, libraries=(stray,)), shown(stray))
    assert line.endswith(" tensorflow/core/kernels/tensorwright")
    assert f" {file} " in f" {line} "


@pytest.mark.parametrize(
    ("fields", "part"),
    [
        ({"target": "haswel"}, " haswel)"),
        ({"name": "zen4"}, "the target haswell, whose name is haswell"),
    ],
)
def test_a_target_that_is_none_is_said(fields: dict[str, Any], part: str) -> None:
    facts = tuned("haswell")
    false = dataclasses.replace(facts.libraries[0], **fields)
    (line,) = found(dataclasses.replace(facts, libraries=(false,)), shown(false))
    assert part in line


def test_a_library_of_which_nothing_is_registered_is_said() -> None:
    facts = tuned("haswell")
    silent = dataclasses.replace(facts.libraries[0], registrations=())
    (line,) = found(dataclasses.replace(facts, libraries=(silent,)), shown(silent))
    assert line == "haswell: tuned.json lists no registrations of it"


def test_a_library_that_is_named_twice_is_said() -> None:
    facts = tuned("haswell")
    twice = dataclasses.replace(facts, libraries=facts.libraries * 2)
    (line,) = found(twice, shown(facts.libraries[0]))
    assert "tensorflow/core/kernels/tensorwright/haswell.so 2 times" in line


def test_a_marked_dispatcher_would_not_load_everywhere() -> None:
    facts = tuned("haswell")
    marked = dataclasses.replace(DISPATCHER, isa_needed="x86-64-v3")
    lines = find_problems(facts, (marked, shown(facts.libraries[0])))
    (line,) = lines
    assert "dispatcher" in line
    assert "x86-64-v3" in line
