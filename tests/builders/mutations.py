"""Small sound inputs, mutated: what a file may hold that is torn, foreign or hostile."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

DEEP = "as deep as it goes"
"""Stands in a tree for lists in lists, more than JSON's own functions can write."""
_LARGE = "more than a float can be"
_HOSTILE = (
    *(b"", b"\0", b"\n", b"\r", b"\t", b",", b'"', b"'", b"=", b":", b"/", b"../", b"\x1b[2J"),
    *(b"\xff\xfe", b"\xed\xa0\x80", b"\xc2\x85", b"\xef\xbb\xbf", "²٣".encode()),
    *(b"[" * 3000, b'{"a":' * 3000, b"9" * 5000, b"1e999", b"-1", b"NaN", b"A" * 200_000),
)
_EDGES = (0, 1, 0x7F, 0xFF, 0x7FFF, 0xFFFF, 2**31 - 1, 2**32 - 1, 2**63 - 1, 2**64 - 1)
_WRONG: tuple[Any, ...] = (
    *(None, True, 0, -1, 2**63, 10**30, 0.0, 1e-320, 1e308, float("nan"), float("inf")),
    *("", "x", "x" * 70_000, "\0", "\ud800", "\n", "\x1b[2J", "../x", "²", "1", _LARGE, DEEP),
    *([], {}, [[]], [None], {"": ""}, ["x", 1]),
)


def flip_bit(path: Path, place: int | None = None) -> None:
    """Change the byte at `place`, or that in the middle."""
    data = bytearray(path.read_bytes())
    data[len(data) // 2 if place is None else place] ^= 1
    path.write_bytes(data)


@st.composite
def torn(draw: st.DrawFn, sound: bytes) -> bytes:
    """The bytes after one to four changes: a byte is another, a part is missing, there twice,
    somewhere else or hostile, or a number of 2 to 8 bytes is as small or large as it can be."""
    data = sound
    for _ in range(draw(st.integers(1, 4))):
        places = (draw(st.integers(0, len(data))) for _ in range(2))
        begin, end = sorted(places)
        match draw(st.sampled_from(("byte", "cut", "drop", "twice", "move", "hostile", "number"))):
            case "byte":
                data = data[:begin] + draw(st.binary(min_size=1, max_size=1)) + data[begin + 1 :]
            case "cut":
                data = data[:begin]
            case "drop":
                data = data[:begin] + data[end:]
            case "twice":
                data = data[:end] + data[begin:]
            case "move":
                data = data[end:] + data[begin:end] + data[:begin]
            case "hostile":
                data = data[:begin] + draw(st.sampled_from(_HOSTILE)) + data[begin:]
            case "number":
                size = draw(st.sampled_from((2, 4, 8)))
                edge = draw(st.sampled_from(_EDGES)) & (256**size - 1)
                data = data[:begin] + edge.to_bytes(size, "little") + data[begin + size :]
    return data


@st.composite
def altered(draw: st.DrawFn, tree: Any) -> bytes:
    """The text of a JSON tree in which at one to three places something else stands, is missing, or
    has another name."""
    for _ in range(draw(st.integers(1, 3))):
        places = list(_places(tree))
        place = places[draw(st.integers(0, len(places) - 1))]
        tree = _changed(tree, place, _change(draw))
    text = json.dumps(tree).replace(f'"{_LARGE}"', "9" * 400)
    return text.replace(f'"{DEEP}"', "[" * 900 + "]" * 900).encode()


def _change(draw: st.DrawFn) -> Callable[[Any, Any], None]:
    """What is done to a container, list or object, at one of its places."""

    def change(container: Any, key: Any) -> None:
        match draw(st.sampled_from(("wrong", "wrong", "missing", "named", "twice"))):
            case "missing":
                del container[key]
            case "named" if isinstance(container, dict):
                container[draw(st.sampled_from(("", "x" * 5000, "\ud800")))] = container.pop(key)
            case "twice" if isinstance(container, list):
                container.append(container[key])
            case _:
                container[key] = draw(st.sampled_from(_WRONG))

    return change


def _places(tree: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The way to each value, which begins with that to the whole."""
    yield (0, *place)
    if isinstance(tree, dict | list):
        for key in tree if isinstance(tree, dict) else range(len(tree)):
            yield from _places(tree[key], (*place, key))


def _changed(tree: Any, place: tuple[Any, ...], change: Callable[[Any, Any], None]) -> Any:
    """A copy of the tree, changed at the place."""
    whole = [json.loads(json.dumps(tree))]
    container: Any = whole
    *way, last = place
    for key in way:
        container = container[key]
    change(container, last)
    return whole[0] if whole else None
