"""The groups of fused ops: one folder each in tfbuild/native/ops, described by its op.toml.

Fused ops replace no kernel of TensorFlow, so that they cannot be selected by timing kernels, and a
library registers all kernels of a group.
"""

from __future__ import annotations

import functools
import itertools
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources

WORKSPACE_FOLDER = "tensorwright"
"""The folder of Tensorwright's own sources in a workspace."""
_OPS = "ops"
_PREFIX = "fused"


@dataclass(frozen=True, kw_only=True, slots=True)
class FusedGroup:
    """A kernel group with fused ops.

    `name` is what --kernels accepts: fused/NAME for native/ops/NAME. `sources` are paths in a
    workspace, `stock_sources` files below tensorflow/core/kernels that the group needs. Every op
    of `ops` has a kernel for each item of `types`, which are written as native/registration.h
    writes them. `default_targets` are the targets on whose vector instructions models were faster
    with the group: there, --kernels hot has it. Compiling a source takes `seconds` on one core,
    and `megabytes` of memory.
    """

    name: str
    sources: tuple[str, ...]
    stock_sources: tuple[str, ...]
    ops: tuple[str, ...]
    types: tuple[str, ...]
    default_targets: tuple[str, ...]
    seconds: float
    megabytes: int

    @property
    def registrations(self) -> tuple[tuple[str, str], ...]:
        """Op and types of all kernels."""
        return tuple(itertools.product(self.ops, self.types))


@functools.cache
def load_fused_groups() -> Mapping[str, FusedGroup]:
    """Return the groups by name, in order of the names."""
    folder = resources.files("tfbuild.native").joinpath(_OPS)
    texts = {
        entry.name: entry.joinpath("op.toml").read_text("utf-8")
        for entry in folder.iterdir()
        if entry.joinpath("op.toml").is_file()
    }
    groups = (_parse_group(name, text) for name, text in sorted(texts.items()))
    return {group.name: group for group in groups}


def _parse_group(name: str, text: str) -> FusedGroup:
    table = tomllib.loads(text)
    return FusedGroup(
        name=f"{_PREFIX}/{name}",
        sources=tuple(f"{WORKSPACE_FOLDER}/{_OPS}/{name}/{file}" for file in table["sources"]),
        stock_sources=tuple(table.get("stock_sources", ())),
        ops=tuple(table["ops"]),
        types=tuple(table["types"]),
        default_targets=tuple(table["default_targets"]),
        seconds=table["cost"]["seconds"],
        megabytes=table["cost"]["megabytes"],
    )
