"""Line-ups: the compared arms, on the command line or in TOML.

On the command line a line-up is the name of a preset (ladder, levers, mallocs, control, peers,
runtimes, backends), the path of a .toml file, or comma-separated arms. An arm is

    WHEEL                                  stock
    WHEEL:SETTING=VALUE:…                  stock:onednn=off:intra=1
    NAME=WHEEL                             old=tensorflow-cpu==2.13.1
    NAME=WHEEL:SETTING=VALUE:…             fast=tuned:malloc=jemalloc:env.TF_X=1

WHEEL is stock, tuned, control, the path of a .whl file, or one version of a package with `==`.
SETTING is a lever (see `levers`), `env.` followed by an environment variable, or `tolerance`. Quote
values that contain a comma or a colon: env.KMP_AFFINITY='fine,compact,1,0'. The default name of an
arm is its text, with dashes for characters that a name cannot contain. The first arm is the
baseline of all others.

In TOML each arm is an [[arm]] table with `name`, `wheel` (default: the name), levers, `env` and
`tolerance`. Paths of wheels are relative to the file's folder.
"""

from __future__ import annotations

import contextlib
import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tfbench.arms.lever_table import LEVERS, OTHER_BACKEND, OTHER_RUNTIME, Lever
from tfbench.arms.levers import (
    Pairs,
    check_variable,
    find_lever,
    suggest,
)
from tfbench.inside.phases import INFER, TRAIN
from tfbench.inside.runtimes import JAX, ONNX, OPENVINO
from tfbuild.tools.requirement import parse_exact
from tfcore.console import suggest_spelling
from tfcore.errors import UsageError
from tfcore.records import parse_toml, read_text
from tfcore.settings import expand_home

STOCK = "stock"
TUNED = "tuned"
CONTROL = "control"
WHEELS = (STOCK, TUNED, CONTROL)
PRESETS = Path(__file__).with_name("lineups")

_TOML = ".toml"
_WHEEL = ".whl"
_ENV = "env."
_TOLERANCE = "tolerance"
_SETTINGS = (*LEVERS, f"{_ENV}NAME", _TOLERANCE)
_KEYS = ("name", "wheel", "env", _TOLERANCE, *LEVERS)
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,63}")
_NAMED = re.compile(rf"\s*(?P<name>{_NAME.pattern})\s*=(?!=)(?P<rest>.*)", re.DOTALL)
_QUOTED = re.compile(r"'([^']*)'|\"([^\"]*)\"")
_TOKEN = re.compile(rf"{_QUOTED.pattern}|.", re.DOTALL)
_FEWEST = 2
_RUNTIME_LEVERS = (OTHER_RUNTIME, OTHER_BACKEND)
_PHASES = {ONNX: (INFER,), OPENVINO: (INFER,), JAX: (TRAIN, INFER)}
"""The phases of `compare` that each runtime computes."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ArmSpec:
    """An arm before anything is installed.

    `wheel` is one of WHEELS, a path, or PACKAGE==VERSION. `tolerance` is the user's, as in
    `Arm`; None if the levers and the wheel determine it.
    """

    name: str
    wheel: str
    levers: Pairs = ()
    env: Pairs = ()
    tolerance: float | None = None

    @property
    def runtime(self) -> str:
        """Return the package that computes the model; empty for TensorFlow."""
        return next((value for name, value in self.levers if name in _RUNTIME_LEVERS), "")

    @property
    def settings(self) -> Pairs:
        """Return the settings as they are written."""
        return (*self.levers, *((f"{_ENV}{name}", value) for name, value in self.env))


def read_lineup(text: str = "", *, baseline: str = STOCK) -> tuple[ArmSpec, ...]:
    """Read the arms that a text names; an empty text means the baseline and tuned.

    `baseline` is the wheel of the first arm if the text names no arms. Raises UsageError.
    """
    written = text.strip()
    if written and baseline != STOCK:
        raise UsageError(
            f"the baseline is set twice: by --baseline {baseline} and by the first arm of --arms",
            hint="Remove --baseline",
        )
    if not written:
        return create_default_lineup(baseline)
    if written in list_presets():
        return read_toml(PRESETS / f"{written}{_TOML}")
    if written.endswith(_TOML):
        return read_toml(expand_home(written))
    return parse_lineup(written)


def list_presets() -> tuple[str, ...]:
    return tuple(sorted(path.stem for path in PRESETS.glob(f"*{_TOML}")))


def create_default_lineup(baseline: str) -> tuple[ArmSpec, ...]:
    name = STOCK if baseline == STOCK else "baseline"
    return make_spec(name=name, wheel=baseline), make_spec(name=TUNED, wheel=TUNED)


def parse_lineup(text: str) -> tuple[ArmSpec, ...]:
    """Parse comma-separated arms.

    Raises UsageError.
    """
    parts = _split(text, ",")
    if parts == [text] and re.fullmatch(r"\w+", text) and text not in WHEELS:
        known = dict.fromkeys((*list_presets(), *WHEELS))  # (control is both)
        raise UsageError(
            f"{text!r} is neither a line-up nor a wheel",
            hint=suggest_spelling(text, known)
            or f"Use one of {', '.join(sorted(known))}, a .toml or .whl file, or PACKAGE==VERSION",
        )
    return _check_lineup([parse_arm(part) for part in parts])


def parse_arm(text: str) -> ArmSpec:
    """Parse one arm of the command line.

    Raises UsageError.
    """
    with _locate_errors(f"arm {text.strip()!r}"):
        named = _NAMED.fullmatch(text)
        head, *fields = _split(named["rest"] if named else text, ":")
        wheel = _unquote(head)
        settings = [_parse_setting(field) for field in fields]
        return make_spec(
            name=named["name"] if named else _derive_name(wheel, settings),
            wheel=wheel,
            levers=[pair for pair in settings if pair[0] in LEVERS],
            env=[
                (name.removeprefix(_ENV), value)
                for name, value in settings
                if name.startswith(_ENV)
            ],
            wide=_get_single([value for name, value in settings if name == _TOLERANCE]),
        )


def make_spec(
    *,
    name: str,
    wheel: str,
    levers: Iterable[tuple[str, str]] = (),
    env: Iterable[tuple[str, str]] = (),
    wide: str | None = None,
) -> ArmSpec:
    """Create a checked arm; `wide` is its tolerance as text.

    Raises UsageError.
    """
    levers, env = tuple(levers), tuple(env)
    check_wheel(wheel)
    check_name(name)
    found = [find_lever(lever, value) for lever, value in levers]
    for lever, value in levers:
        if lever in _RUNTIME_LEVERS:
            _check_runtime(lever, value, wheel, found)
    for variable, value in env:
        check_variable(variable, value)
    _require_unique([*(lever for lever, _ in levers)])
    set_by_levers = (variable for lever in found for variable in lever.variables)
    _require_unique([*set_by_levers, *(variable for variable, _ in env)])
    return ArmSpec(
        name=name,
        wheel=wheel,
        levers=levers,
        env=env,
        tolerance=None if wide is None else _parse_tolerance(wide),
    )


def _check_runtime(lever: str, runtime: str, wheel: str, levers: Iterable[Lever]) -> None:
    """Raise UsageError for a wheel or a lever that has no effect with another runtime."""
    if wheel in {TUNED, CONTROL} or is_path(wheel):
        raise UsageError(
            f"{runtime} does not run the kernels of {wheel}",
            hint=f"Use {STOCK}:{lever}={runtime}",
        )
    unused = [row.name for row in levers if runtime not in row.runtimes]
    if unused:
        raise UsageError(f"{unused[0]} has no effect in {runtime}", hint="Remove it")


def require_phase(specs: Iterable[ArmSpec], phase: str = "") -> None:
    """Raise UsageError for an arm whose runtime is not measured in this phase of `compare`.

    Other commands measure no other runtimes; they pass no phase.
    """
    for spec in specs:
        phases = _PHASES.get(spec.runtime, (phase,))
        if phase not in phases:
            raise UsageError(
                f"arm {spec.name}: {spec.runtime} is only compared in {' and '.join(phases)}",
                hint=f"Use invoke compare --phase {' or '.join(phases)}, or remove this arm",
            )


def check_name(name: str) -> None:
    if not _NAME.fullmatch(name):
        raise UsageError(
            f"invalid arm name {name!r}",
            hint="Use up to 64 letters, digits, . _ + and -, beginning with a letter or digit",
        )


def check_wheel(wheel: str) -> None:
    """Raise UsageError if the text does not name a wheel."""
    if wheel in WHEELS or (is_path(wheel) and wheel.isprintable()):
        return
    if "=" in wheel:
        parse_exact(wheel)
        return
    choices = f"Use {', '.join(WHEELS)}, the path of a .whl file, or PACKAGE==VERSION"
    raise UsageError(
        f"{wheel!r} is not a wheel" if wheel else "the wheel is missing",
        hint=suggest_spelling(wheel, WHEELS) or choices,
    )


def is_path(wheel: str) -> bool:
    return wheel.endswith(_WHEEL)


def read_toml(path: Path) -> tuple[ArmSpec, ...]:
    """Read the [[arm]] tables of a file.

    Raises UsageError that names the file and the arm.
    """
    with _locate_errors(str(path)):
        try:
            table = parse_toml(read_text(path))
        except OSError as error:
            raise UsageError(f"cannot be read: {error.strerror}") from error
        except ValueError as error:  # (also if it is not UTF-8)
            raise UsageError(" ".join(str(error).split())) from error
        return parse_tables(table, path.parent)


def parse_tables(table: Mapping[str, Any], folder: Path) -> tuple[ArmSpec, ...]:
    """Parse the arms of a TOML document; paths of wheels are relative to `folder`.

    Raises UsageError.
    """
    _check_keys(table, ("arm",))
    rows = table.get("arm", [])
    if not (isinstance(rows, list) and all(isinstance(row, dict) for row in rows)):
        raise UsageError("write arms as [[arm]] tables")
    specs = []
    for number, row in enumerate(rows, start=1):
        with _locate_errors(f"arm {number} ({row.get('name', 'without a name')!r})"):
            specs.append(_parse_row(row, folder))
    return _check_lineup(specs)


def _parse_row(row: Mapping[str, Any], folder: Path) -> ArmSpec:
    _check_keys(row, _KEYS)
    name = _get_text(row, "name")
    wheel = _get_text(row, "wheel") if "wheel" in row else name
    env = row.get("env", {})
    if not isinstance(env, dict):
        raise UsageError("write env as {NAME = …}")
    return make_spec(
        name=name,
        wheel=str(folder / expand_home(wheel)) if is_path(wheel) else wheel,
        levers=[(lever, _format_word(row[lever], lever)) for lever in LEVERS if lever in row],
        env=[(variable, _format_plain(value, variable)) for variable, value in env.items()],
        wide=_format_plain(row[_TOLERANCE], _TOLERANCE) if _TOLERANCE in row else None,
    )


def _check_lineup(specs: Sequence[ArmSpec]) -> tuple[ArmSpec, ...]:
    """Check that there are two or more arms with different names, and return them.

    Raises UsageError.
    """
    if len(specs) < _FEWEST:
        raise UsageError(
            f"a comparison needs at least two arms, got {len(specs)}",
            hint="Give the baseline first: stock,tuned",
        )
    names = Counter(spec.name for spec in specs)
    duplicates = [name for name, count in names.items() if count > 1]
    if duplicates:
        raise UsageError(
            f"two arms have the name {duplicates[0]}",
            hint=f"Give one of them another name: other={duplicates[0]}",
        )
    return tuple(specs)


def _require_unique(names: Sequence[str]) -> None:
    duplicates = [name for name, count in Counter(names).items() if count > 1]
    if duplicates:
        raise UsageError(f"{duplicates[0]} is set twice", hint="Remove one of them")


@contextlib.contextmanager
def _locate_errors(where: str) -> Iterator[None]:
    """Prefix the message of a UsageError with its location."""
    try:
        yield
    except UsageError as error:
        raise UsageError(f"{where}: {error.message}", hint=error.hint) from error


def _split(text: str, separator: str) -> list[str]:
    """Split text at separators outside quotes; the quotes are kept.

    Raises UsageError for an unclosed quote.
    """
    parts = [""]
    for token in _TOKEN.finditer(text):
        if token[0] in {"'", '"'}:
            raise UsageError(f"unclosed quote: {text[token.start() :]!r}")
        if token[0] == separator:
            parts.append("")
        else:
            parts[-1] += token[0]
    return parts


def _unquote(text: str) -> str:
    return _QUOTED.sub(lambda match: match[1] or match[2] or "", text.strip())


def _parse_setting(field: str) -> tuple[str, str]:
    """Parse NAME=VALUE.

    Raises UsageError for an unknown setting.
    """
    name, equals, value = field.partition("=")
    name = name.strip()
    if name not in LEVERS and name != _TOLERANCE and not name.startswith(_ENV):
        raise UsageError(f"unknown setting {name!r}", hint=suggest(name, _SETTINGS))
    if not equals:
        raise UsageError(f"{name!r} has no value", hint="Write NAME=VALUE")
    return name, _unquote(value)


def _derive_name(wheel: str, settings: Iterable[tuple[str, str]]) -> str:
    """Derive the default name of an arm. A wheel's path becomes its package and version."""
    short = "-".join(Path(wheel).name.split("-")[:2]) if is_path(wheel) else wheel
    words = (short, *(word for setting in settings for word in setting))
    return re.sub(r"[^A-Za-z0-9._+-]+", "-", "-".join(words).replace("==", "-")).strip("-")


def _get_single(values: Sequence[str]) -> str | None:
    _require_unique([_TOLERANCE] * len(values))
    return values[0] if values else None


def _parse_tolerance(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value < 1:
        raise UsageError(f"{_TOLERANCE} is {text!r}, but must be a number between 0 and 1")
    return value


def _check_keys(table: Mapping[str, Any], known: Sequence[str]) -> None:
    for key in table:
        if key not in known:
            raise UsageError(f"unknown key {key!r}", hint=suggest(key, known))


def _get_text(row: Mapping[str, Any], key: str) -> str:
    value = row.get(key)
    if value is None:
        raise UsageError(f"{key} is missing")
    if not isinstance(value, str):
        raise UsageError(f"{key} is {value!r}, which is not text")
    return value


def _format_word(value: object, lever: str) -> str:
    """Format a lever's value as on the command line; TOML may write true and false."""
    if isinstance(value, bool):
        return "on" if value else "off"
    return _format_plain(value, lever)


def _format_plain(value: object, key: str) -> str:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise UsageError(f"{key} is {value!r}, which is neither text nor a number")
    return str(value)
