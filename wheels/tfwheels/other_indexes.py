"""Settings of pip and uv on this host that let other indexes serve a package of the same name.

The commands of `install-snippet` ignore them or pin hashes. Other commands do not: pip takes the
highest version of all indexes that it knows; uv takes a package from the first index that has it,
or, with an unsafe strategy, the highest version of all (uv's "Package indexes").
"""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from tfcore.errors import CommandError, ToolError
from tfcore.run import run

_PIP_SETTING = re.compile(r"[^.]+\.(?P<name>extra-index-url|find-links)=(?P<value>.+)")
_UV_VARIABLES = ("UV_INDEX", "UV_EXTRA_INDEX_URL", "UV_FIND_LINKS")
_UV_KEYS = ("index", "extra-index-url", "find-links")
_UV_STRATEGY = "UV_INDEX_STRATEGY"
_SAFE_STRATEGIES = ("", "first-index")
_ADDRESS = re.compile(r"[a-z+]+://[^\s'\"]+")


def describe_other_indexes(
    requirement: str, page: str, env: Mapping[str, str], home: Path
) -> Iterator[str]:
    """Yield a sentence for pip and one for uv if their settings name more indexes.

    It has the hosts of addresses only, because an address may contain a password. `home` is the
    user's folder of settings, such as ~/.config.
    """
    for tool, found in (("pip", _read_pip(env)), ("uv pip", _read_uv(env, home))):
        if found:
            name, shown = tool.split()[0], ", ".join(sorted(found))
            yield (
                f"{name} also asks other indexes on this host ({shown}). The commands above are "
                f"safe from that, but {tool} install --index-url {page} {requirement} may install "
                "a package of this name from there"
            )


def _read_pip(env: Mapping[str, str]) -> set[str]:
    """Return the settings that `pip config list` shows; none if Python has no pip."""
    try:
        listed = run([sys.executable, "-m", "pip", "config", "list"], env=env).output
    except (CommandError, ToolError):
        return set()
    rows = filter(None, map(_PIP_SETTING.fullmatch, listed.splitlines()))
    return {_format(row["name"], str(ast.literal_eval(row["value"]))) for row in rows}


def _read_uv(env: Mapping[str, str], home: Path) -> set[str]:
    """Return the settings in variables and in the configuration files of uv."""
    found = {_format(name, env[name]) for name in _UV_VARIABLES if env.get(name)}
    strategies = [env.get(_UV_STRATEGY, "")]
    own = env.get("UV_CONFIG_FILE")
    for path in [Path(own)] if own else [home / "uv/uv.toml", Path("/etc/uv/uv.toml")]:
        table = _read_toml(path)
        for part in (table, table.get("pip")):
            if not isinstance(part, dict):
                continue
            found |= {_format(key, str(part[key])) for key in _UV_KEYS if part.get(key)}
            strategies.append(str(part.get("index-strategy", "")))
    return found | {f"index-strategy {name}" for name in strategies if name not in _SAFE_STRATEGIES}


def _read_toml(path: Path) -> dict[str, Any]:
    """Return a file's table; an empty one if uv could not read it either."""
    try:
        return tomllib.loads(path.read_text("utf-8"))
    except (OSError, ValueError):
        return {}


def _format(name: str, value: str) -> str:
    return " ".join([name, *_list_hosts(_ADDRESS.findall(value))])


def _list_hosts(addresses: Iterable[str]) -> list[str]:
    return sorted({urlsplit(address).hostname or "" for address in addresses})
