"""Create the package metadata of a tuned wheel: tuned.json, the bill of materials, the notices.

These files follow from tuned.json and the stock wheel, so an audit creates them again and compares.
An added licence is the only exception.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from tfbuild.packing import notices, sbom, tuned
from tfbuild.packing.tuned import Tuned, TunedTree
from tfbuild.planning import guard

FILES = (tuned.FILE, sbom.FILE, notices.FILE)
"""Files in dist-info of every tuned wheel."""
_CHANGED = {guard.INIT: "run-time defaults first; a check at its end, for TENSORWRIGHT_REQUIRE"}


def build_kernels_metadata(
    facts: Tuned,
    stock: Path,
    *,
    package: str,
    version: str,
    stock_file: str,
    added: Iterable[str],
    licences: Iterable[str] = (),
) -> dict[str, bytes]:
    """Return FILES of a wheel of kernels, by their paths in dist-info.

    `stock` is the stock wheel, which was published as `stock_file`; `added` are the members
    added elsewhere, `licences` those added to dist-info.

    Raises WheelError for a stock wheel whose headers state no versions.
    """
    compiled = notices.list_header_libraries(stock)
    return {
        tuned.FILE: facts.to_bytes(),
        sbom.FILE: sbom.render_document(
            facts, package=package, version=version, stock_file=stock_file, compiled=compiled
        ),
        notices.FILE: notices.render_notice(
            facts,
            version=version,
            stock_file=stock_file,
            changed=_CHANGED,
            added=_list_added(added, licences),
            compiled=compiled,
        ),
    }


def build_tree_metadata(
    facts: Tuned,
    tree: TunedTree,
    *,
    package: str,
    version: str,
    added: Iterable[str],
    has_third_party: bool,
    licences: Iterable[str] = (),
) -> dict[str, bytes]:
    """Return FILES of a full build, like `build_kernels_metadata`; `has_third_party` is whether
    TensorFlow's build wrote the third-party notices.
    """
    return {
        tuned.FILE: facts.to_bytes(),
        sbom.FILE: sbom.render_full_build_document(facts, tree, package=package, version=version),
        notices.FILE: notices.render_full_build_notice(
            facts,
            tree,
            version=version,
            added=_list_added(added, licences),
            has_third_party=has_third_party,
        ),
    }


def _list_added(added: Iterable[str], licences: Iterable[str]) -> list[str]:
    """List all added members, by names without the version."""
    return [*added, *(f"*.dist-info/{name}" for name in (*licences, *FILES))]
