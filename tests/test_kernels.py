from __future__ import annotations

import statistics
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfbuild.errors import UsageError
from tfbuild.upstream.kernels import FOLDER, KernelUnit, _table, cost, select

SETS: dict[str, list[str]] = _table()["set"]
UNITS: dict[str, list[str]] = _table()["unit"]
COSTS: dict[str, dict[str, int]] = _table()["cost"]


def names(choice: str) -> list[str]:
    return [unit.name for unit in select(choice)]


def test_sets_are_spelled_out_in_one_order() -> None:
    for name, members in SETS.items():
        assert names(name) == sorted(members)
    assert set(names("mini")) <= set(names("hot"))


def test_names_may_be_mixed_repeated_and_carry_a_suffix() -> None:
    assert names(" cwise_op_log.cc,mini,cwise_op_tanh , cwise_op_log") == [
        "cwise_op_log",
        "cwise_op_sigmoid",
        "cwise_op_tanh",
    ]


def test_a_name_that_is_not_in_the_table_means_its_one_source() -> None:
    (unit,) = select("cwise_op_log")
    assert unit.sources == (f"{FOLDER}/cwise_op_log.cc",)
    (unit,) = select("linalg/determinant_op")
    assert unit.sources == (f"{FOLDER}/linalg/determinant_op.cc",)
    assert unit.label == "linalg__determinant_op"


@pytest.mark.parametrize("name", UNITS)
def test_a_unit_has_all_of_its_sources(name: str) -> None:
    (unit,) = select(name)
    assert unit.name == name
    assert unit.sources == tuple(f"{FOLDER}/{file}" for file in UNITS[name])


def test_a_source_brings_the_unit_that_it_belongs_to() -> None:
    held = Counter(file for files in UNITS.values() for file in files)
    for name, files in UNITS.items():
        for file in files:
            if held[file] == 1:
                assert names(f"{file},{name}") == [name]


@pytest.mark.parametrize(
    "choice",
    [
        "",
        "hot,",
        "a b",
        "../evil",
        "/etc/passwd",
        "Relu",
        "relu-op",
        "a//b",
        "a/",
        "x;y",
        "--",
        "ü",
    ],
)
def test_odd_names_are_refused_with_what_is_known(choice: str) -> None:
    with pytest.raises(UsageError, match="is not the name of a kernel source") as caught:
        select(choice)
    assert all(name in caught.value.hint for name in SETS)


@given(st.text(max_size=20))
def test_whatever_is_chosen_stays_below_the_kernel_folder(choice: str) -> None:
    try:
        units = select(choice)
    except UsageError:
        return
    for unit in units:
        assert ".." not in unit.name
        assert all(source.startswith(f"{FOLDER}/") for source in unit.sources)
        assert "/" not in unit.label


def test_labels_stay_apart() -> None:
    units = select("hot,mini,cwise_op_log,linalg/determinant_op,sparse/add_op,add_op")
    assert len({unit.label for unit in units}) == len(units)


def test_the_cost_of_measured_sources_is_their_sum() -> None:
    file = "training_ops.cc"
    unit = KernelUnit(name="x", sources=(f"{FOLDER}/{file}", f"{FOLDER}/xent_op.cc"))
    found = cost((unit,))
    assert found.seconds == COSTS[file]["seconds"] + COSTS["xent_op.cc"]["seconds"]
    assert found.megabytes == max(COSTS[file]["megabytes"], COSTS["xent_op.cc"]["megabytes"])
    assert (found.measured, found.sources) == (2, 2)


def test_an_unmeasured_source_costs_the_median_and_the_most_memory() -> None:
    found = cost(select("no_such_kernel_op"))
    assert found.seconds == statistics.median(row["seconds"] for row in COSTS.values())
    assert found.megabytes == max(row["megabytes"] for row in COSTS.values())
    assert (found.measured, found.sources) == (0, 1)


def test_a_source_of_two_units_is_compiled_once() -> None:
    sources = (f"{FOLDER}/xent_op.cc",)
    twice = (KernelUnit(name="a", sources=sources), KernelUnit(name="b", sources=sources))
    assert cost(twice) == cost(twice[:1])


def test_nothing_costs_nothing() -> None:
    found = cost(())
    assert (found.seconds, found.megabytes, found.sources) == (0, 0, 0)
