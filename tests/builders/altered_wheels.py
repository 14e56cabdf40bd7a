"""Environments that look like the stock one and hold a TensorFlow that does something else."""

from __future__ import annotations

import shutil
from pathlib import Path


def altered(stock_python: Path, folder: Path, code: str) -> Path:
    """The Python of a new environment in `folder`, whose TensorFlow runs `code` once imported.

    All files are links to the stock environment's, but `tensorflow/__init__.py`, which makes it
    the environment's own TensorFlow.
    """
    root = stock_python.parents[1]
    (packages,) = root.glob("lib/python*/site-packages")
    own_path = folder / packages.relative_to(root)
    (own_path / "tensorflow").mkdir(parents=True)
    (folder / "bin").mkdir()
    shutil.copy(root / "pyvenv.cfg", folder)
    python = folder / "bin" / "python"
    python.symlink_to(stock_python.resolve())
    _link_all(packages, own_path, but="tensorflow")
    _link_all(packages / "tensorflow", own_path / "tensorflow", but="__init__.py")
    first = (packages / "tensorflow" / "__init__.py").read_text(encoding="utf-8")
    (own_path / "tensorflow" / "__init__.py").write_text(f"{first}\n{code}\n", encoding="utf-8")
    return python


def _link_all(source: Path, target: Path, but: str) -> None:
    for path in source.iterdir():
        if path.name not in (but, "__pycache__"):
            (target / path.name).symlink_to(path)
