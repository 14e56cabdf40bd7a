"""How an option is declared: once, as a field of a frozen record, with its default and its help.

Standard library only: what lists the commands waits for it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

_KEY = "option"
_T = TypeVar("_T", str, bool)


@dataclass(frozen=True, kw_only=True, slots=True)
class Option:
    """`field` is the record's, `name` what is typed behind two hyphens, and `old` what was typed
    for it once and is read still. Without a default it must be given, by its place."""

    field: str
    name: str
    help: str
    old: tuple[str, ...] = ()
    default: str | bool | None = None

    @property
    def is_switch(self) -> bool:
        return isinstance(self.default, bool)


@dataclass(frozen=True, kw_only=True, slots=True)
class OptionSubset:
    """Those options of a record that a command has. `given` are other defaults, and values that the
    command fixes; `helps` is the help of options that mean less than elsewhere."""

    record: type
    names: tuple[str, ...]
    given: Mapping[str, str | bool]
    helps: Mapping[str, str]


def option(default: _T, text: str, *, old: Sequence[str] = ()) -> _T:
    """A field that is an option; an underscore behind it, as of `import_`, is not typed."""
    return field(default=default, metadata={_KEY: (text, tuple(old))})


def required(text: str) -> str:
    """A field that is given by its place on the line."""
    made: str = field(metadata={_KEY: (text, ())})
    return made


def part(
    record: type,
    *names: str,
    given: Mapping[str, str | bool] | None = None,
    helps: Mapping[str, str] | None = None,
) -> OptionSubset:
    """Raises ValueError for what is no option of the record."""
    known = {each.field for each in options_of(record)}
    if unknown := {*names, *(helps or {})} - known:
        raise ValueError(f"{record.__name__} has no option {', '.join(sorted(unknown))}")
    return OptionSubset(record=record, names=names, given=given or {}, helps=helps or {})


def options_of(source: type | OptionSubset) -> tuple[Option, ...]:
    """In the order of their fields. Fields that were not declared as options are none."""
    if isinstance(source, OptionSubset):
        return tuple(
            dataclasses.replace(
                each,
                default=source.given.get(each.field, each.default),
                help=source.helps.get(each.field, each.help),
            )
            for each in options_of(source.record)
            if each.field in source.names
        )
    return tuple(
        Option(
            field=each.name,
            name=each.name.rstrip("_").replace("_", "-"),
            help=text,
            old=old,
            default=None if each.default is dataclasses.MISSING else each.default,
        )
        for each in dataclasses.fields(source)
        if _KEY in each.metadata
        for text, old in [each.metadata[_KEY]]
    )


def made(source: type | OptionSubset, values: Mapping[str, Any]) -> Any:  # noqa: ANN401  (of any record)
    """The record, of the values by the names of fields; others' options are left alone."""
    own = {each.field: values[each.field] for each in options_of(source)}
    if isinstance(source, OptionSubset):
        return source.record(**{**source.given, **own})
    return source(**own)
