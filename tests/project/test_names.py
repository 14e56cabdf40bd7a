"""One name, one meaning: what the product calls its classes."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from tfcore.settings import ROOT

ROOTS = ("build", "wheels", "benchmarks")


def classes(text: str) -> Iterator[str]:
    """Those without an underscore before their names, inner ones too."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            yield node.name


def test_no_public_class_has_the_name_of_another() -> None:
    homes: dict[str, list[Path]] = defaultdict(list)
    for path in (path for root in ROOTS for path in (ROOT / root).rglob("*.py")):
        if "node_modules" not in path.parts:
            for name in classes(path.read_text("utf-8")):
                homes[name].append(path.relative_to(ROOT))
    assert len(homes) > 300
    assert {name: paths for name, paths in homes.items() if len(paths) > 1} == {}
