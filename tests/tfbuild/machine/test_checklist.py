from __future__ import annotations

import pytest

from tfbuild.machine.checklist import (
    CheckVerdict,
    build_finding,
    build_unknown,
    render_table,
    require_no_fatal,
)
from tfcore.errors import PreflightError

FULL = build_finding("disk", "1 GB free", "16 GB", CheckVerdict.FATAL, "Free some space.")
OLD = build_finding("compiler", "gcc 9", "gcc 12", CheckVerdict.WARNING, "Take a newer one.")
GOOD = build_finding("memory", "64 GB", "12 GB", None, "Add memory.")
UNSEEN = build_unknown("clock", "no host to compare with", "within 60 s")


def test_a_good_finding_needs_no_advice() -> None:
    assert (GOOD.verdict, GOOD.advice) == (CheckVerdict.OK, "")


def test_only_what_is_fatal_stops_a_build() -> None:
    require_no_fatal([OLD, GOOD, UNSEEN])
    require_no_fatal([])


def test_every_fatal_finding_is_named_with_what_to_do() -> None:
    missing = build_finding("git", "not on PATH", "git", CheckVerdict.FATAL, "Install it.")
    with pytest.raises(PreflightError) as caught:
        require_no_fatal([FULL, OLD, missing])
    head, disk, git, hint = str(caught.value).splitlines()
    assert "2 reasons" in head
    assert disk == "  - disk: 1 GB free; required: 16 GB. Free some space."
    assert git == "  - git: not on PATH; required: git. Install it."
    assert "--no-preflight" in hint
    assert caught.value.exit_code == 37


def test_the_table_is_aligned_and_advice_stands_below_its_line() -> None:
    assert render_table([FULL, GOOD, UNSEEN]).splitlines() == [
        "fatal    disk    1 GB free                16 GB",
        "         Free some space.",
        "ok       memory  64 GB                    12 GB",
        "unknown  clock   no host to compare with  within 60 s",
    ]
    assert not render_table([])
