"""TENSORWRIGHT_FUSE, as the kernel library reads it."""

from __future__ import annotations

import ctypes

import pytest
from tests.builders.compiled_code import headers

pytestmark = pytest.mark.toolchain

SOURCE = """
#include "graph/switches.h"
extern "C" bool wanted(const char* part) { return tensorwright::IsFusionEnabled(part); }
extern "C" bool named(const char* part) { return tensorwright::IsFusionEnabled(part, false); }
extern "C" bool stored() { return tensorwright::AreGraphsStored(); }
"""


@pytest.fixture(scope="module")
def switches(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    actual = headers(tmp_path_factory.mktemp("switches"), SOURCE)
    actual.wanted.restype = actual.named.restype = actual.stored.restype = ctypes.c_bool
    return actual


@pytest.mark.parametrize(
    ("value", "on"),
    [
        (None, "loops updates"),
        ("", "loops updates"),
        ("1", "loops updates"),
        ("0", ""),
        ("off", ""),
        ("loops", "loops"),
        ("updates", "updates"),
        ("updates,loops", "loops updates"),
        ("-loops", "updates"),
        ("-updates", "loops"),
        ("-updates,-loops", ""),
        ("updates,-updates", ""),
        ("updates,0", ""),
        ("1,-loops", "updates"),
        (",loops,", "loops"),
        ("loop", ""),  # (a name of none leaves that one on alone)
        ("-loop", "loops updates"),
    ],
)
def test_parts_that_work(
    switches: ctypes.CDLL, value: str | None, on: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if value is None:
        monkeypatch.delenv("TENSORWRIGHT_FUSE", raising=False)
    else:
        monkeypatch.setenv("TENSORWRIGHT_FUSE", value)
    assert [part for part in ("loops", "updates") if switches.wanted(part.encode())] == on.split()


@pytest.mark.parametrize(
    ("value", "on"),
    [
        ("", False),
        ("1", False),
        ("loops", True),
        ("-updates", False),
        ("1,loops", True),
        ("0", False),
    ],
)
def test_a_part_that_works_only_where_it_is_named(
    switches: ctypes.CDLL, value: str, on: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TENSORWRIGHT_FUSE", value)
    assert switches.named(b"loops") is on


@pytest.mark.parametrize(("folder", "is_stored"), [(None, False), ("", False), ("cache", True)])
def test_graphs_are_stored_in_a_folder_that_is_named(
    switches: ctypes.CDLL, folder: str | None, is_stored: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TF_GRAPH_CACHING", raising=False)
    if folder is not None:
        monkeypatch.setenv("TF_GRAPH_CACHING", folder)
    assert switches.stored() is is_stored
