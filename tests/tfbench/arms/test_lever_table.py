from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from tfbench.arms import lever_table
from tfbench.arms.lever_table import ISAS, LEVERS, SEARCHED, SearchContext, ValueKind
from tfbench.arms.levers import resolve_lever
from tfbench.commands import TuneOptions
from tfbench.inside.compile_arguments import JIT
from tfbench.inside.runtimes import BACKEND, RUNTIME
from tfcore.option import list_options
from tfcore.settings import ROOT

CONTEXT = SearchContext(
    vcpus=2, onednn=True, steps_per_sample=250.0, mallocs=("jemalloc",), wheels=("tuned",)
)
VARIABLES = [variable for lever in LEVERS.values() for variable in lever.variables]


def nowhere(name: str) -> Path:
    return Path(f"/nowhere/{name}.so")


def test_every_row_is_a_lever_of_arms_or_of_a_search() -> None:
    names = {lever.name for lever in lever_table._TABLE}
    assert names - {*LEVERS} == {"wheel", "steps_per_execution"} <= {*SEARCHED}


def test_every_lever_takes_its_words() -> None:
    for lever in LEVERS.values():
        assert lever.words or lever.takes == ValueKind.NUMBER
        for word in lever.words:
            assert len(resolve_lever(lever.name, word, nowhere)) == len(lever.variables)


def test_the_docs_have_every_lever() -> None:
    page = (ROOT / "docs/comparing.md").read_text("utf-8")
    for lever in LEVERS.values():
        (row,) = (line for line in page.splitlines() if line.startswith(f"| `{lever.name}` |"))
        assert lever.doc in row


def test_no_two_levers_set_the_same_variable() -> None:
    assert len({*VARIABLES}) == len(VARIABLES)


def test_a_search_has_its_levers_in_the_order_of_stopped_runs() -> None:
    assert tuple(SEARCHED) == (
        *("wheel", "onednn", "intra", "inter", "malloc", "bf16"),
        *("steps_per_execution", "jit_compile"),
    )


def test_the_help_of_a_search_has_its_levers() -> None:
    (text,) = (option.help for option in list_options(TuneOptions) if option.name == "levers")
    assert text == (
        "comma-separated changes to try: wheel, onednn, intra, inter, malloc, bf16 (with "
        "--allow-bf16), steps_per_execution, jit_compile; default: all"
    )


def test_a_search_tries_other_values_than_the_default() -> None:
    tried = {name: [*lever.list_tried_values(CONTEXT)] for name, lever in SEARCHED.items()}
    assert tried == {
        "wheel": ["tuned"],
        "onednn": ["off"],
        "intra": ["1"],
        "inter": ["1"],
        "malloc": ["jemalloc"],
        "bf16": ["on"],
        "steps_per_execution": ["8"],
        "jit_compile": ["True"],
    }
    assert not [*LEVERS["isa"].list_tried_values(CONTEXT)]


@pytest.mark.parametrize(
    ("onednn", "words"), [(True, ["off"]), (False, ["on"]), (None, ["on", "off"])]
)
def test_a_default_is_not_tried(onednn: bool | None, words: list[str]) -> None:
    context = dataclasses.replace(CONTEXT, onednn=onednn)
    assert [*LEVERS["onednn"].list_tried_values(context)] == words


@pytest.mark.parametrize(
    ("vcpus", "intra", "inter"),
    [(1, [], []), (2, ["1"], ["1"]), (3, ["1"], ["1"]), (8, ["1", "4"], ["1"])],
)
def test_fewer_threads_are_tried_where_there_are_fewer(
    vcpus: int, intra: list[str], inter: list[str]
) -> None:
    context = dataclasses.replace(CONTEXT, vcpus=vcpus)
    assert [*LEVERS["intra"].list_tried_values(context)] == intra
    assert [*LEVERS["inter"].list_tried_values(context)] == inter


@pytest.mark.parametrize(("steps", "values"), [(15.9, []), (16.0, ["8"])])
def test_many_batches_in_one_execution_are_tried_where_a_sample_holds_them(
    steps: float, values: list[str]
) -> None:
    context = dataclasses.replace(CONTEXT, steps_per_sample=steps)
    assert [*SEARCHED["steps_per_execution"].list_tried_values(context)] == values


@pytest.mark.toolchain
def test_the_stock_wheel_knows_every_name(stock_python: Path) -> None:
    """As strings in its libraries. oneDNN puts its prefix and the rest together when it looks."""
    libraries = sorted(stock_python.parents[1].glob("lib/*/site-packages/tensorflow/lib*.so.2"))
    assert len(libraries) == 2
    content = b"".join(path.read_bytes() for path in libraries)
    other_names = {"LD_PRELOAD", JIT, RUNTIME, BACKEND}  # of the linker, the worker and Keras
    names = [name.removeprefix("ONEDNN_") for name in VARIABLES if name not in other_names]
    isas = [name.lower() for name in ISAS]
    missing = [name for name in (*names, *isas) if name.encode() not in content]
    # The one that only MKL builds read; in those OMP_NUM_THREADS is their OpenMP library's.
    assert missing in ([], ["TF_DISABLE_MKL"], ["TF_DISABLE_MKL", "OMP_NUM_THREADS"])
