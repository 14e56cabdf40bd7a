"""Whose instructions they are: code for the target, or code that is chosen at run time.

TensorFlow holds kernels for CPUs far beyond its flags, which ask the CPU before they run. Those are
told by the names of their functions; dispatched.toml has them with the reasons.
"""

from __future__ import annotations

import functools
import re
import tomllib
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tfbuild.binaries import census, instructions
from tfbuild.cpus.features import STOCK_BASELINE
from tfbuild.errors import RecordError
from tfbuild.records import decode_record, hash_record, load

SCHEMA = 1
_TABLE = Path(__file__).with_name("dispatched.toml")
_FEW = 3


@dataclass(frozen=True, kw_only=True, slots=True)
class Attribution:
    """How many instructions of an x86-64 library need each feature that the stock wheel's flags do
    not bring, by whose they are.

    `dispatched` counts those in code that is chosen at run time, by its name in the table; `own`
    those in all other functions, `nameless` those in functions without a name. `first` has the
    names, mangled, of a few of the functions in `own`, by feature.
    """

    schema: int = SCHEMA
    dispatched: Mapping[str, Mapping[str, int]]
    own: Mapping[str, int]
    nameless: Mapping[str, int]
    first: Mapping[str, tuple[str, ...]]


def attribute(path: Path) -> Attribution:
    """Look at every function of a library. Raises WheelError."""
    dispatched: dict[str, Counter[str]] = {}
    own, nameless = Counter[str](), Counter[str]()
    first: dict[str, list[str]] = {}
    unexpected = census.unexpected(path, STOCK_BASELINE)
    for name in sorted(unexpected):
        row = row_of(name) if name else ""
        if row:
            dispatched.setdefault(row, Counter()).update(unexpected[name])
            continue
        (own if name else nameless).update(unexpected[name])
        for feature in unexpected[name] if name else ():
            shown = first.setdefault(feature, [])
            if len(shown) < _FEW:
                shown.append(name)
    return Attribution(
        dispatched=dispatched,
        own=own,
        nameless=nameless,
        first={feature: tuple(names) for feature, names in first.items()},
    )


def record_of(sha256: str, folder: Path) -> Path:
    """Where `folder` keeps what was found in a library: by its hash, the table and the decoders."""
    key = hash_record([sha256, _TABLE.read_text(encoding="utf-8"), instructions.DECODERS])
    return folder / f"{key}.json"


def kept(record: Path) -> Attribution | None:
    """What an earlier look found; None if there was none, or it is unreadable."""
    try:
        return decode_record(Attribution, load(record, schema=SCHEMA))
    except (RecordError, TypeError, ValueError, KeyError):
        return None


@functools.lru_cache(1 << 16)
def row_of(symbol: str) -> str:
    """The row of the table that a function is of; empty for none."""
    return next((name for name, pattern in _patterns().items() if pattern.match(symbol)), "")


@functools.cache
def _patterns() -> Mapping[str, re.Pattern[str]]:
    rows = tomllib.loads(_TABLE.read_text(encoding="utf-8"))
    return {name: re.compile("|".join(row["symbols"])) for name, row in rows.items()}
