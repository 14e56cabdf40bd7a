from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfbuild.kernelbuild.closure import (
    Symbols,
    build_units,
    find_closure,
    find_owners,
    read_symbols,
)
from tfcore.errors import CommandError
from tfcore.run import run


def symbols(taken: str = "", strong: str = "", weak: str = "") -> Symbols:
    return Symbols(
        taken=frozenset(taken.split()),
        strong=frozenset(strong.split()),
        weak=frozenset(weak.split()),
    )


def grown(objects: dict[str, Symbols], table: dict[str, tuple[str, ...]]) -> dict[str, str]:
    """Unit → its sources, in one line."""
    actual = build_units(objects, table).values()
    return {u.name: " ".join(Path(source).stem for source in u.sources) for u in actual}


def test_a_unit_grows_by_what_defines_what_it_lacks() -> None:
    """As the binary ops do: their shared state needs the fill functor."""
    objects = {
        "sub.cc": symbols("BinaryOp tensor"),
        "common.cc": symbols("Fill tensor", strong="BinaryOp"),
        "fill.cc": symbols("tensor", weak="Fill"),
    }
    table = {"sub.cc": ("Sub",), "common.cc": (), "fill.cc": ()}
    assert grown(objects, table) == {"sub": "sub common fill"}


def test_a_unit_has_every_source_of_its_ops() -> None:
    objects = {"add_1.cc": symbols(), "add_2.cc": symbols(), "relu.cc": symbols()}
    objects |= {"leaky.cc": symbols(), "other.cc": symbols()}
    table = {
        "add_1.cc": ("Add",),
        "add_2.cc": ("Add", "AddV2"),
        "leaky.cc": ("Leaky",),
        "relu.cc": ("Relu", "Leaky"),
        "other.cc": ("Other",),
    }
    assert grown(objects, table) == {
        "add": "add_2 add_1",
        "other": "other",
        "relu": "relu leaky",
    }


def test_sources_that_need_each_other_are_one_unit() -> None:
    objects = {"a.cc": symbols("g", "f"), "b.cc": symbols("f", "g")}
    assert grown(objects, {"a.cc": ("A",), "b.cc": ("B", "C")}) == {"b": "b a"}


def test_what_one_of_them_defines_is_not_looked_for_elsewhere() -> None:
    objects = {
        "a.cc": symbols("f", weak="g"),
        "b.cc": symbols("g", strong="f"),
        "c.cc": symbols(strong="g"),
    }
    table = {"a.cc": ("A",), "b.cc": (), "c.cc": ()}
    assert grown(objects, table) == {"a": "a b"}


def test_a_real_definition_is_taken_before_a_templates() -> None:
    objects = {"a.cc": symbols("f"), "b.cc": symbols(weak="f"), "c.cc": symbols("x y", "f")}
    assert grown(objects, {"a.cc": ("A",), "b.cc": (), "c.cc": ()}) == {"a": "a c"}


def test_a_unit_with_a_source_that_does_not_compile_is_none() -> None:
    objects = {"a.cc": symbols(), "b.cc": symbols()}
    table = {"a.cc": ("A", "B"), "b.cc": ("C",), "broken.cc": ("B",)}
    assert grown(objects, table) == {"b": "b"}
    assert find_closure("a.cc", objects, table, find_owners(objects, table)) == {
        "a.cc",
        "broken.cc",
    }


NAMES = st.sampled_from("abcdefgh")
OBJECTS = st.dictionaries(
    st.sampled_from([f"s{n}.cc" for n in range(8)]),
    st.builds(
        Symbols, taken=st.frozensets(NAMES), strong=st.frozensets(NAMES), weak=st.frozensets(NAMES)
    ),
    min_size=1,
)


@given(OBJECTS, st.data())
def test_whatever_grows_is_closed(objects: dict[str, Symbols], data: st.DataObject) -> None:
    ops = st.lists(st.sampled_from(["A", "B", "C"]), unique=True, max_size=2).map(tuple)
    table = {source: data.draw(ops) for source in objects}
    units = build_units(objects, table)
    assert units.keys() == {source for source in objects if table[source]}
    for source, unit in units.items():
        own_names = {Path(name).name for name in unit.sources}
        assert source in own_names
        lacks = set().union(*(objects[name].taken for name in own_names))
        lacks -= set().union(*(objects[name].strong | objects[name].weak for name in own_names))
        other_names = objects.keys() - own_names
        assert not any(lacks & (objects[name].strong | objects[name].weak) for name in other_names)
        assert not any(set(table[name]) & set(table[source]) for name in other_names)


@pytest.mark.toolchain
def test_the_symbols_of_a_real_object(tmp_path: Path) -> None:
    source, path = tmp_path / "x.cc", tmp_path / "x.o"
    source.write_text("""
        int outside(int);
        extern int taken;
        template <class T> struct Functor { T Do(T value) { return value + taken; } };
        template struct Functor<int>;
        static int hidden(int value) { return value; }
        int strong(int value) { return outside(hidden(value)); }
        int data = 3;
        """)
    run(["g++", "-c", "-fPIC", "-o", path, source])
    actual = read_symbols(path)
    assert {"_Z7outsidei", "taken"} <= actual.taken
    assert {"_Z6strongi", "data"} == actual.strong
    assert "_ZN7FunctorIiE2DoEi" in actual.weak


@pytest.mark.toolchain
def test_a_file_that_is_no_object_is_told(tmp_path: Path) -> None:
    torn = tmp_path / "x.o"
    torn.write_bytes(b"\x7fELF torn")
    with pytest.raises(CommandError, match="nm exited"):
        read_symbols(torn)
