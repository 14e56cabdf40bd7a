"""The table of a fleet's hosts, a TOML file (docs/fleet.md). Pure.

    [defaults]                  # what all hosts have, unless their own table says otherwise
    user = "ubuntu"

    [hosts.web-1]               # a name of your choice
    address = "10.0.0.4"
    vcpus = [1, 2, 4]

ReFrame puts addresses, options and paths into shell commands, so these have only characters that a
shell does not interpret.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from tfcore import durations
from tfcore.console import format_choices, suggest_spelling
from tfcore.errors import UsageError
from tfcore.records import parse_toml, read_text
from tfcore.settings import expand_home

SSH = "ssh"
PYTHON = "python3"
FOLDER = "~/.cache/tensorwright-fleet"
SCHEDULERS = (SSH, "local", "slurm", "squeue", "pbs", "torque", "lsf", "sge", "oar", "flux")
_NODE_OPTIONS = {"slurm": "--nodelist={}", "squeue": "--nodelist={}"}
_QUEUE_OPTIONS = {
    **dict.fromkeys(("slurm", "squeue"), "--partition={}"),
    **dict.fromkeys(("pbs", "torque", "lsf", "sge", "oar"), "-q {}"),
    "flux": "--queue={}",
}
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,62}")
_ADDRESS = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,252}")
"""No IPv6: rsync takes the colons for the name of a module."""
_USER = re.compile(r"[A-Za-z_][A-Za-z0-9._-]{0,31}")
_SSH_KEYS = ("address", "user", "port", "key")
_WORD = re.compile(r"[A-Za-z0-9@%+=:,./_~-]{1,1000}")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_MOST = 65535


@dataclass(frozen=True, kw_only=True, slots=True)
class FleetHost:
    """A host, or a node of a cluster, on which the wheels are compared.

    `options` are for the scheduler: of ssh, or of the command that submits jobs. `count` is the
    number of such hosts in the fleet, for costs. `folder` is where the host keeps Tensorwright, the
    wheels and unfinished comparisons. `limit_s` ends a comparison; 0 is no limit.
    """

    name: str
    scheduler: str = SSH
    address: str = ""
    options: tuple[str, ...] = ()
    vcpus: tuple[int, ...] = ()
    machine: str = ""
    count: int = 1
    python: str = PYTHON
    folder: str = FOLDER
    limit_s: float = 0.0
    environment: tuple[tuple[str, str], ...] = ()


_KEYS = (
    *(field.name for field in fields(FleetHost) if field.name not in {"name", "limit_s"}),
    *("user", "port", "key", "queue", "node", "limit"),
)


def load_hosts(path: Path) -> tuple[FleetHost, ...]:
    """Load the table. Raises UsageError for what is not in it, unknown or unsafe."""
    if not path.is_file():
        raise UsageError(
            f"file not found: {path}", hint="docs/fleet.md shows how to write a table of hosts"
        )
    try:
        text = read_text(path)
    except ValueError as error:
        raise UsageError(f"{path} is not a text ({error})") from error
    return parse_hosts(text, str(path))


def parse_hosts(text: str, where: str) -> tuple[FleetHost, ...]:
    """Parse the table. Raises UsageError."""
    try:
        table = parse_toml(text)
    except ValueError as error:
        raise UsageError(f"{where} is not TOML ({error})") from error
    _check_keys(where, table, ("defaults", "hosts"))
    defaults, hosts = (_require_table(where, table.get(key, {})) for key in ("defaults", "hosts"))
    if not hosts:
        raise UsageError(f"{where} has no hosts", hint="Add a table for each: [hosts.NAME]")
    _check_keys(f"{where}, defaults", defaults, _KEYS)
    return tuple(
        _parse_host(f"{where}, {name}", name, defaults, _require_table(f"{where}, {name}", row))
        for name, row in hosts.items()
    )


def _parse_host(
    where: str, name: str, defaults: Mapping[str, Any], own: Mapping[str, Any]
) -> FleetHost:
    _check_keys(where, own, _KEYS)
    row = {**defaults, **own}
    _match(where, "name", name, _NAME)
    read = _Reader(where, row)
    scheduler = read.text("scheduler", _WORD, SSH)
    if scheduler not in SCHEDULERS:
        raise UsageError(
            f"{where}: unknown scheduler {scheduler!r}",
            hint=suggest_spelling(scheduler, SCHEDULERS) or f"Known: {format_choices(SCHEDULERS)}",
        )
    is_remote = scheduler == SSH
    for key in _SSH_KEYS:
        if not is_remote and own.get(key):
            raise UsageError(f"{where}: {key} is for the scheduler {SSH}, not for {scheduler}")
    options = _list_ssh_options(read) if is_remote else _list_job_options(read, scheduler)
    return FleetHost(
        name=name,
        scheduler=scheduler,
        address=read.text("address", _ADDRESS, name) if is_remote else "",
        options=(*options, *read.words("options")),
        vcpus=tuple(sorted(set(read.numbers("vcpus")))),
        machine=read.any_text("machine"),
        count=read.number("count"),
        python=read.text("python", _WORD, PYTHON),
        folder=read.text("folder", _WORD, FOLDER),
        limit_s=_parse_limit(read),
        environment=read.variables("environment"),
    )


def _list_ssh_options(read: _Reader) -> tuple[str, ...]:
    """Return options that ssh and scp have in common."""
    key = read.text("key", _WORD)
    path = _match(read.where, "key", str(expand_home(key, "key")), _WORD) if key else ""
    pairs = {
        "User": read.text("user", _USER),
        "Port": str(read.number("port")) if "port" in read.row else "",
        "IdentityFile": path,
    }
    return tuple(f"-o {name}={value}" for name, value in pairs.items() if value)


def _list_job_options(read: _Reader, scheduler: str) -> tuple[str, ...]:
    words: list[str] = []
    for key, forms in (("queue", _QUEUE_OPTIONS), ("node", _NODE_OPTIONS)):
        value = read.text(key, _ADDRESS)
        if value and scheduler not in forms:
            raise UsageError(f"{read.where}: {key} is not known for {scheduler}: use options")
        if value:
            words.append(forms[scheduler].format(value))
    return tuple(words)


def _parse_limit(read: _Reader) -> float:
    text = read.any_text("limit")
    return durations.parse_duration(text, f"{read.where}: limit") if text else 0.0


@dataclass(frozen=True, slots=True)
class _Reader:
    """Reads the values of a host, each with a check. Every method raises UsageError."""

    where: str
    row: Mapping[str, Any]

    def any_text(self, key: str) -> str:
        value = self.row.get(key, "")
        if not isinstance(value, str):
            raise UsageError(f"{self.where}: {key} must be a text")
        return value

    def text(self, key: str, form: re.Pattern[str], default: str = "") -> str:
        value = self.any_text(key) or default
        return _match(self.where, key, value, form) if value else ""

    def number(self, key: str) -> int:
        value = self.row.get(key, 1)
        if type(value) is not int or not 1 <= value <= _MOST:
            raise UsageError(f"{self.where}: {key} must be a number from 1 to {_MOST}")
        return value

    def numbers(self, key: str) -> tuple[int, ...]:
        values = self.row.get(key, [])
        if not isinstance(values, list) or not all(
            type(value) is int and 1 <= value <= _MOST for value in values
        ):
            raise UsageError(f"{self.where}: {key} must be a list of numbers, such as [1, 2]")
        return tuple(values)

    def words(self, key: str) -> tuple[str, ...]:
        values = self.row.get(key, [])
        if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
            raise UsageError(
                f'{self.where}: {key} must be a list of texts, such as ["--exclusive"]'
            )
        return tuple(_match(self.where, key, value, _WORD) for value in values)

    def variables(self, key: str) -> tuple[tuple[str, str], ...]:
        values = _require_table(f"{self.where}: {key}", self.row.get(key, {}))
        for name, value in values.items():
            _match(self.where, key, name, _VARIABLE)
            if not isinstance(value, str):
                raise UsageError(f"{self.where}: the variable {name} must be a text")
        return tuple(values.items())


def is_safe(text: str) -> bool:
    """Return True if a shell interprets nothing in the text."""
    return bool(_WORD.fullmatch(text))


def _match(where: str, key: str, value: str, form: re.Pattern[str]) -> str:
    if not form.fullmatch(value):
        raise UsageError(
            f"{where}: {key} {value!r} has characters that are not allowed here",
            hint=f"Allowed: {form.pattern}",
        )
    return value


def _require_table(where: str, value: object) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise UsageError(f"{where} must be a table")
    return value


def _check_keys(where: str, table: Mapping[str, Any], known: tuple[str, ...]) -> None:
    for key in table:
        if key not in known:
            raise UsageError(
                f"{where}: unknown key {key!r}",
                hint=suggest_spelling(key, known) or f"Known: {format_choices(known)}",
            )
