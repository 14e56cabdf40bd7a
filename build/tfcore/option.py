"""Declares options as fields of frozen records, each with its default and its help.

Standard library only, because --list imports it and must be fast.
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
    """A command-line option.

    `field` is the record's field, `name` is typed after two hyphens, and `old` are former
    names that are still accepted. An option without a default is a required positional
    argument.
    """

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
    """Some of a record's options, for one command.

    `given` replaces defaults, and fixes the values of other fields; `helps` replaces help
    texts, for options that accept less than elsewhere.
    """

    record: type
    names: tuple[str, ...]
    given: Mapping[str, str | bool]
    helps: Mapping[str, str]


def option(default: _T, text: str, *, old: Sequence[str] = ()) -> _T:
    """Declare a field that is an option.

    The option has no trailing underscore: `import_` becomes --import.
    """
    return field(default=default, metadata={_KEY: (text, tuple(old))})


def required(text: str) -> str:
    """Declare a field that is a required positional argument."""
    declared: str = field(metadata={_KEY: (text, ())})
    return declared


def select_options(
    record: type,
    *names: str,
    defaults: Mapping[str, str | bool] | None = None,
    helps: Mapping[str, str] | None = None,
) -> OptionSubset:
    """Return some of a record's options, optionally with other defaults and help.

    Raises ValueError if the record has no such option.
    """
    fields = {entry.field for entry in list_options(record)}
    if unknown := {*names, *(helps or {})} - fields:
        raise ValueError(f"{record.__name__} has no option {', '.join(sorted(unknown))}")
    return OptionSubset(record=record, names=names, given=defaults or {}, helps=helps or {})


def list_options(source: type | OptionSubset) -> tuple[Option, ...]:
    """Return the options of a record in the order of its fields.

    Fields that were not declared as options are excluded.
    """
    if isinstance(source, OptionSubset):
        return tuple(
            dataclasses.replace(
                entry,
                default=source.given.get(entry.field, entry.default),
                help=source.helps.get(entry.field, entry.help),
            )
            for entry in list_options(source.record)
            if entry.field in source.names
        )
    return tuple(
        Option(
            field=entry.name,
            name=entry.name.rstrip("_").replace("_", "-"),
            help=text,
            old=old,
            default=None if entry.default is dataclasses.MISSING else entry.default,
        )
        for entry in dataclasses.fields(source)
        if _KEY in entry.metadata
        for text, old in [entry.metadata[_KEY]]
    )


def build_record(source: type | OptionSubset, values: Mapping[str, Any]) -> Any:  # noqa: ANN401  (a record of any type)
    """Return the record with these values, by the names of fields.

    Values of other records' options are ignored.
    """
    selected = {entry.field: values[entry.field] for entry in list_options(source)}
    if isinstance(source, OptionSubset):
        return source.record(**{**source.given, **selected})
    return source(**selected)
