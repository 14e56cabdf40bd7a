from __future__ import annotations

from pathlib import Path

import pytest
from tests.kernel_places import place

from tfbench.inside.places import Place
from tfbench.kernels.profiles import Profile, Program, Weighed, read_profile, spots
from tfbuild.errors import RecordError
from tfbuild.records import save


def program(name: str, *rows: tuple[Place, float, float]) -> Program:
    return Program(
        name=name,
        steps=1,
        step_s=1.0,
        parameters=1,
        op_s={},
        places=tuple(Weighed(place=p, calls=calls, seconds=s) for p, calls, s in rows),
    )


def profile(*programs: Program) -> Profile:
    return Profile(made="2026-01-01", cpu="a CPU", release="2.14.1", vcpus=1, programs=programs)


def test_programs_weigh_the_same_however_long_they_take() -> None:
    big, small = place("Tanh", 1000), place("Tanh", 10)
    found = spots(
        profile(
            program("long", (big, 2, 90.0), (small, 10, 10.0)),
            program("short", (small, 1000, 2.0)),
        )
    )
    assert [(each.place, round(each.share, 6)) for each in found] == [(small, 0.55), (big, 0.45)]
    assert [each.most for each in found] == [1.0, 0.9]


def test_a_call_takes_what_it_takes_where_there_are_most() -> None:
    small = place("Tanh", 10)
    both = profile(program("a", (small, 1, 5.0)), program("b", (small, 1000, 2.0)))
    (found,) = spots(both)
    assert found.call_s == pytest.approx(0.002)


def test_a_profile_is_read_as_it_was_saved(tmp_path: Path) -> None:
    written = profile(program("a", (place("Tanh", 2, 3), 1, 5.0)))
    save(tmp_path / "profile.json", written)
    assert read_profile(tmp_path / "profile.json") == written


@pytest.mark.parametrize("text", ["", "{}", '{"schema": 1}', '{"schema": 1, "programs": 3}'])
def test_what_is_no_profile_is_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "profile.json").write_text(text, encoding="utf-8")
    with pytest.raises(RecordError):
        read_profile(tmp_path / "profile.json")
