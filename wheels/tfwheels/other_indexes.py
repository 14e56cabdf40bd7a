"""Settings of pip and uv on this host that let other indexes serve a package of the same name.

The commands of `install-snippet` ignore them or pin hashes. Other commands do not: pip takes the
highest version of all indexes that it knows; uv takes a package from the first index that has it,
or, with an unsafe strategy, the highest version of all (uv's "Package indexes").
"""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from tfbuild.tools import pip
from tfcore.errors import CommandError

_PIP_SETTING = re.compile(r"[^.]+\.(?P<name>extra-index-url|find-links)=(?P<value>.+)")
_UV_VARIABLES = ("UV_INDEX", "UV_EXTRA_INDEX_URL", "UV_FIND_LINKS")
_UV_KEYS = ("index", "extra-index-url", "find-links")
_FIRST_INDEX = "first-index"  # uv's default strategy
_ADDRESS = re.compile(r"[a-z+]+://[^\s'\"]+")


def describe_other_indexes(
    project: str, page: str, env: Mapping[str, str], config: Path
) -> Iterator[str]:
    """Yield a sentence for pip and one for uv if their settings name more indexes.

    It has the hosts of addresses only, because an address may contain a password. `config` is the
    user's folder of settings, such as ~/.config.
    """
    for tool, found in (("pip", _read_pip(env)), ("uv pip", _read_uv(env, config))):
        if found:
            name, shown = tool.split()[0], ", ".join(sorted(found))
            yield (
                f"{name} also asks other indexes on this host ({shown}). The commands above are "
                f"safe from that, but {tool} install --index-url {page} {project} may install a "
                "package of this name from there"
            )


def _read_pip(env: Mapping[str, str]) -> set[str]:
    """Return the settings that name indexes; none if this Python has no pip."""
    try:
        rows = map(_PIP_SETTING.fullmatch, pip.list_settings(env))
    except CommandError:
        return set()
    return {_format(row["name"], ast.literal_eval(row["value"])) for row in rows if row}


def _read_uv(env: Mapping[str, str], config: Path) -> set[str]:
    """Return the settings that name indexes, in variables and in uv's configuration files.

    A strategy is one of them only if there are other indexes.
    """
    found = {_format(name, env[name]) for name in _UV_VARIABLES if env.get(name)}
    strategy = env.get("UV_INDEX_STRATEGY", "")
    own = env.get("UV_CONFIG_FILE")
    for path in [Path(own)] if own else [config / "uv/uv.toml", Path("/etc/uv/uv.toml")]:
        table = _read_toml(path)
        for part in (table, table.get("pip")):
            if isinstance(part, dict):
                used = {key: _drop_explicit(part.get(key)) for key in _UV_KEYS}
                found |= {_format(key, str(value)) for key, value in used.items() if value}
                strategy = strategy or str(part.get("index-strategy", ""))
    if found and strategy not in ("", _FIRST_INDEX):
        found.add(f"index-strategy {strategy}")
    return found


def _read_toml(path: Path) -> dict[str, Any]:
    """Return a file's table; an empty one if uv could not read it either."""
    try:
        return tomllib.loads(path.read_text("utf-8"))
    except (OSError, ValueError):
        return {}


def _drop_explicit(value: object) -> object:
    """Drop indexes that uv asks only for the packages that are pinned to them."""
    if not isinstance(value, list):
        return value
    return [one for one in value if not (isinstance(one, dict) and one.get("explicit"))]


def _format(name: str, value: str) -> str:
    hosts = {urlsplit(address).hostname or "" for address in _ADDRESS.findall(value)}
    return " ".join([name, *sorted(hosts - {""})])
