from __future__ import annotations

from pathlib import Path

import pytest

from tfbuild.upstream.source_matching import SourceMatch, compare
from tfcore.errors import KernelError

TREE = {
    "tensorflow/core/framework/op.h": "#pragma once\n",
    "tensorflow/core/kernels/fill_functor.h": "int a;\n",
    "tensorflow/core/kernels/cwise_op_tanh.cc": "int b;\n",
    "tensorflow/core/util/only_here.h": "int c;\n",
}
WHEEL = {name: text for name, text in TREE.items() if "only_here" not in name}


def written(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(text.encode())
    return folder


def compared(tmp_path: Path, wheel: dict[str, str], *, own_flag: bool = False) -> SourceMatch:
    tree = written(tmp_path / "tree", TREE)
    return compare(tree, written(tmp_path / "include", wheel), is_own=own_flag)


def test_equal_headers_are_exact_whatever_else_there_is(tmp_path: Path) -> None:
    other_fields = {**WHEEL, "tensorflow/core/kernels/cwise_op_tanh.cc": "other", "Eigen/Core": "x"}
    nearness = compared(tmp_path, other_fields)
    assert nearness == SourceMatch(own=False, compared=2)
    assert nearness.exact
    assert nearness.summary == "matching sources: all 2 headers equal the wheel's"


def test_ends_of_lines_make_no_difference(tmp_path: Path) -> None:
    assert compared(tmp_path, {n: t.replace("\n", "\r\n") for n, t in WHEEL.items()}).exact


def test_what_differs_is_named_and_counted(tmp_path: Path) -> None:
    name = "tensorflow/core/kernels/fill_functor.h"
    nearness = compared(tmp_path, {**WHEEL, name: "long a;\n"})
    assert nearness.differing == (name,)
    assert not nearness.exact
    assert nearness.summary == (
        "other sources: 1 of 2 headers differ from the wheel's, 1 of them in core/kernels; "
        "the wheel's headers are used"
    )


def test_the_releases_own_archive_is_exact_and_what_differs_is_said(tmp_path: Path) -> None:
    changed = {**WHEEL, "tensorflow/core/framework/op.h": "generated\n"}
    nearness = compared(tmp_path, changed, own_flag=True)
    assert nearness.exact
    assert nearness.summary.startswith("the release's own sources: 1 of 2 headers differ")


def test_nothing_in_common_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(KernelError, match="no header in common"):
        compared(tmp_path, {"Eigen/Core": "x"})
