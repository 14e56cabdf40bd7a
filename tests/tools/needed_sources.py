"""Which sources the kernels of a recorded selection need, so that no others are compiled for them.

`python -m tests.tools.needed_sources SELECTION.json [SOURCE]` compiles what is selected of all
sources of its units, writes into the file those that register some of it or define what these
lack, and says what was left out. SOURCE are the release's sources where they cannot be fetched.
"""

from __future__ import annotations

import dataclasses
import re
import sys
from collections.abc import Mapping
from pathlib import Path

from tests.builders.plans import plan_for

from tfbuild import handlers
from tfbuild.commands import Request
from tfbuild.kernelbuild import closure
from tfbuild.kernelbuild import workspace as workspaces
from tfbuild.kernelbuild.build_setup import prepare_inputs
from tfbuild.kernelbuild.closure import Symbols
from tfbuild.planning.selection import Selection, read_selection
from tfbuild.upstream import kernels
from tfcore import settings
from tfcore.records import save
from tfcore.run import run
from tfcore.settings import Paths

_COUNTER = re.compile(r"^[0-9a-f]+ [bd] \S*tensorwright_counter_[0-9]+", re.MULTILINE)
"""What nm(1) says of a registration (native/registration.h)."""


def needed(symbols: Mapping[str, Symbols], registering: frozenset[str]) -> tuple[str, ...]:
    """Of the sources those that register something, and what they need of the others."""
    table = {source: (source,) for source in registering}
    owners = closure.find_owners(symbols, table)
    actual = (closure.find_closure(source, symbols, table, owners) for source in registering)
    return tuple(sorted(frozenset[str]().union(*actual)))


def sources_of(path: Path, source: Path | None, paths: Paths) -> tuple[str, ...]:
    """The needed ones of a recorded selection, whose own list says that there are all."""
    text = "" if source is None else str(source)
    chosen = read_selection(path)
    request = Request(arch=chosen.target, release=chosen.release, selection=str(path), source=text)
    plan, compiler = plan_for(request)
    inputs = prepare_inputs(plan, paths, source, None)
    room = workspaces.prepare_workspace(
        plan, compiler, handlers.choose_jobs(plan, ""), inputs, paths
    )
    workspaces.compile_units(room, plan.kernels, keep_going=False)
    objects = {name: workspaces.locate_object(room, name) for name in plan.sources_compiled}
    symbols = {name: closure.read_symbols(at) for name, at in objects.items()}
    registering = {name for name, at in objects.items() if _COUNTER.search(run(["nm", at]).output)}
    return needed(symbols, frozenset(registering))


def whole(selection: Selection) -> Selection:
    """The selection with all sources of its units."""
    units = kernels.select(",".join(selection.kernels), selection.release)
    all_names = {source for unit in units for source in unit.sources}
    return dataclasses.replace(selection, sources=tuple(sorted(all_names)))


def main(path: Path, source: Path | None) -> None:
    paths = settings.paths()
    before = whole(read_selection(path))
    all_path = paths.work / path.name
    save(all_path, dataclasses.replace(before, own=()))  # (these need what they need)
    actual = sources_of(all_path, source, paths)
    save(path, dataclasses.replace(before, sources=actual))
    print(f"{len(actual)} of {len(before.sources)} sources; not needed:")
    print(*(name for name in before.sources if name not in actual), sep="\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]) if sys.argv[2:] else None)
