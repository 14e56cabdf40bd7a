"""What a tuned wheel gets into its dist-info: the record, the bill of materials, and what licences
ask for. All but a licence follows from the record and the stock wheel, so an audit makes it again.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from tfbuild.packing import notices, sbom, tuned
from tfbuild.packing.tuned import Tuned, TunedTree
from tfbuild.planning import guard

FILES = (tuned.FILE, sbom.FILE, notices.FILE)
"""In dist-info of any tuned wheel."""
_CHANGED = {guard.INIT: "run-time defaults first; a check at its end, for TENSORWRIGHT_REQUIRE"}


def of_kernels(
    facts: Tuned,
    stock: Path,
    *,
    package: str,
    version: str,
    stock_file: str,
    added: Iterable[str],
    licences: Iterable[str] = (),
) -> dict[str, bytes]:
    """FILES of a wheel of kernels, by their places in dist-info. `stock` is the stock wheel, which
    was published as `stock_file`; `added` are the members added elsewhere, `licences` those that
    are added to dist-info. Raises WheelError for a stock wheel whose headers state no versions.
    """
    compiled = notices.compiled_in(stock)
    return {
        tuned.FILE: facts.to_bytes(),
        sbom.FILE: sbom.document(
            facts, package=package, version=version, stock_file=stock_file, compiled=compiled
        ),
        notices.FILE: notices.statement(
            facts,
            version=version,
            stock_file=stock_file,
            changed=_CHANGED,
            added=_every(added, licences),
            compiled=compiled,
        ),
    }


def of_tree(
    facts: Tuned,
    tree: TunedTree,
    *,
    package: str,
    version: str,
    added: Iterable[str],
    own: bool,
    licences: Iterable[str] = (),
) -> dict[str, bytes]:
    """FILES of a full build, as `of_kernels`; `own` says whether TensorFlow's build made the
    third-party notices."""
    return {
        tuned.FILE: facts.to_bytes(),
        sbom.FILE: sbom.full_build_document(facts, tree, package=package, version=version),
        notices.FILE: notices.full_build_statement(
            facts, tree, version=version, added=_every(added, licences), own=own
        ),
    }


def _every(added: Iterable[str], licences: Iterable[str]) -> list[str]:
    """All that is added, as it is named where the version does not stand."""
    return [*added, *(f"*.dist-info/{name}" for name in (*licences, *FILES))]
