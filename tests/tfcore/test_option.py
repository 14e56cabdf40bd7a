"""Options are declared once, and records are made of what was typed."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from tfcore.option import Option, build_record, list_options, option, required, select_options


@dataclass(frozen=True, kw_only=True, slots=True)
class Example:
    wheel: str = required("a path")
    dry_run: bool = option(False, "do nothing")
    import_: str = option("none", "a file", old=("csv",))
    inner: str = "kept"


def test_fields_carry_default_and_help() -> None:
    assert list_options(Example) == (
        Option(field="wheel", name="wheel", help="a path"),
        Option(field="dry_run", name="dry-run", help="do nothing", default=False),
        Option(field="import_", name="import", help="a file", old=("csv",), default="none"),
    )
    assert [task_option.is_switch for task_option in list_options(Example)] == [False, True, False]


def test_a_record_is_made_of_its_own_values() -> None:
    typed = {"wheel": "a.whl", "dry_run": True, "import_": "x", "of_another": "y"}
    assert build_record(Example, typed) == Example(wheel="a.whl", dry_run=True, import_="x")


def test_a_part_has_some_options_with_its_own_words_and_fixes_others() -> None:
    some = select_options(
        Example,
        "wheel",
        "import_",
        defaults={"import_": "own", "inner": "i"},
        helps={"import_": "told"},
    )
    wheel, read = list_options(some)
    assert (wheel.name, wheel.help) == ("wheel", "a path")
    assert (read.default, read.help) == ("own", "told")
    record = build_record(some, {"wheel": "a.whl", "import_": "typed"})
    assert record == Example(wheel="a.whl", import_="typed", inner="i")


@pytest.mark.parametrize("names", [("wheel", "nothing"), ("inner",)])
def test_a_part_of_what_is_no_option_is_refused(names: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match=f"Example has no option {names[-1]}"):
        select_options(Example, *names)
