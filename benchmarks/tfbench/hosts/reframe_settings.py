"""ReFrame's settings for the hosts, and its command. Pure.

Source of the keys: ReFrame's configuration reference, `systems` and `partitions`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tfbench.hosts.bundle import CHECK
from tfbench.hosts.host_table import SSH, FleetHost

SYSTEM = "fleet"
_SSH_OPTIONS = (
    *("-o ConnectTimeout=20", "-o StrictHostKeyChecking=yes"),
    # A host that disappears is noticed after two minutes.
    *("-o ServerAliveInterval=15", "-o ServerAliveCountMax=8"),
)


def build_settings(hosts: Sequence[FleetHost], vcpus: Sequence[int]) -> dict[str, Any]:
    """Return the settings: each host is a partition. `vcpus` are those of hosts without any."""
    return {
        "systems": [
            {
                "name": SYSTEM,
                "hostnames": [".*"],
                "partitions": [_build_partition(host, vcpus) for host in hosts],
            }
        ],
        "environments": [{"name": "builtin"}],
        "general": [{"resolve_module_conflicts": False, "purge_environment": False}],
        "storage": [{"enable": False}],
        "logging": [
            {
                "handlers": [
                    {"type": "stream", "name": "stdout", "level": "info", "format": "%(message)s"}
                ]
            }
        ],
    }


def _build_partition(host: FleetHost, vcpus: Sequence[int]) -> dict[str, Any]:
    is_ssh = host.scheduler == SSH
    return {
        "name": host.name,
        "scheduler": host.scheduler,
        "launcher": "local",
        "environs": ["builtin"],
        "max_jobs": 1,
        "access": [*([f"#host={host.address}", *_SSH_OPTIONS] if is_ssh else ()), *host.options],
        "sched_options": {"ssh_hosts": [host.address]} if is_ssh else {},
        "extras": {"tensorwright": build_extras(host, vcpus)},
    }


def build_extras(host: FleetHost, vcpus: Sequence[int]) -> Mapping[str, Any]:
    """Return what the test needs to know about a host (fleet_check.py)."""
    return {
        "python": host.python,
        "folder": host.folder,
        "limit_s": host.limit_s,
        "vcpus": list(host.vcpus or vcpus),
        "environment": dict(host.environment),
    }


def build_command(reframe: Path, bundle: Path, settings: Path, prefix: Path) -> list[str | Path]:
    """Return the words that run the test on every host of the settings."""
    return [
        *(reframe, "-C", settings, "-c", bundle / CHECK, "--system", SYSTEM),
        *("--prefix", prefix, "--report-file", prefix / "report.json"),
        *("-S", f"bundle={bundle}", "--keep-stage-files", "--nocolor", "-r"),
    ]
