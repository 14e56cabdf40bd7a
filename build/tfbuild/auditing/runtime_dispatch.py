"""Attribute instructions to code for the target or to code that is selected at run time.

TensorFlow has kernels for features far beyond its flags. They check the CPU before they run.
dispatched.toml lists the names of their functions, with reasons.
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
from tfcore.cpus.features import STOCK_BASELINE
from tfcore.errors import RecordError
from tfcore.records import decode_record, hash_record, load

SCHEMA = 1
_TABLE = Path(__file__).with_name("dispatched.toml")
_FEW = 3


@dataclass(frozen=True, kw_only=True, slots=True)
class Attribution:
    """The instructions of an x86-64 library beyond the stock wheel's flags, counted by needed
    feature and attributed to functions.

    `dispatched` counts instructions in code that is selected at run time, by its name in the
    table; `own` counts those in all other functions with a name, `nameless` those in functions
    without a name. `first` has the mangled names of a few functions of `own`, by feature.
    """

    schema: int = SCHEMA
    dispatched: Mapping[str, Mapping[str, int]]
    own: Mapping[str, int]
    nameless: Mapping[str, int]
    first: Mapping[str, tuple[str, ...]]


def attribute_instructions(path: Path) -> Attribution:
    """Attribute the instructions of a library to its functions.

    Raises WheelError.
    """
    dispatched: dict[str, Counter[str]] = {}
    named, nameless = Counter[str](), Counter[str]()
    first: dict[str, list[str]] = {}
    unexpected = census.count_by_function(path, STOCK_BASELINE)
    for name in sorted(unexpected):
        row = find_row(name) if name else ""
        if row:
            dispatched.setdefault(row, Counter()).update(unexpected[name])
            continue
        (named if name else nameless).update(unexpected[name])
        for feature in unexpected[name] if name else ():
            examples = first.setdefault(feature, [])
            if len(examples) < _FEW:
                examples.append(name)
    return Attribution(
        dispatched=dispatched,
        own=named,
        nameless=nameless,
        first={feature: tuple(names) for feature, names in first.items()},
    )


def get_record_path(sha256: str, folder: Path) -> Path:
    """Return the path of a library's attribution, named by its hash, the table and the decoders."""
    key = hash_record([sha256, _TABLE.read_text(encoding="utf-8"), instructions.DECODERS])
    return folder / f"{key}.json"


def load_attribution(record: Path) -> Attribution | None:
    """Return an earlier attribution; None if there is none, or it is unreadable."""
    try:
        return decode_record(Attribution, load(record, schema=SCHEMA))
    except (RecordError, TypeError, ValueError, KeyError):
        return None


@functools.lru_cache(1 << 16)
def find_row(symbol: str) -> str:
    """Return the row of the table that a function belongs to; empty for none."""
    return next(
        (name for name, pattern in _compile_patterns().items() if pattern.match(symbol)), ""
    )


@functools.cache
def _compile_patterns() -> Mapping[str, re.Pattern[str]]:
    rows = tomllib.loads(_TABLE.read_text(encoding="utf-8"))
    return {name: re.compile("|".join(row["symbols"])) for name, row in rows.items()}
