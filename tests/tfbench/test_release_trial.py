"""What is recorded of a release that was added and tried."""

from __future__ import annotations

import dataclasses

from tests.builders import report_comparisons
from tests.builders.index_wheels import tuned_for

from tfbench.release_trial import describe_verified
from tfbuild.upstream.source_matching import SourceMatch


def test_what_was_built_of_which_sources_and_compared_is_recorded() -> None:
    comparison, facts = report_comparisons.sound(), tuned_for(("haswell",))
    count = len(facts.kernels)
    built = (
        f"{count} kernel group{'s' * (count != 1)}, 0 of them fused ops, built, tested and "
        "installed on Linux x86_64 with CPython 3.11; 3 models compared with stock on Example CPU "
        "@ 2.00GHz"
    )
    assert describe_verified(facts, comparison) == built
    match = SourceMatch(own=False, compared=10, differing=("tensorflow/core/a.h",))
    near = dataclasses.replace(facts, nearness=match)
    assert describe_verified(near, comparison) == f"{match.summary}; {built}"
