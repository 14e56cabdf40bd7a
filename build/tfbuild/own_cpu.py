"""This CPU, for a person: what is asked first, so nothing is imported beside what it needs."""

from __future__ import annotations

from tfbuild.commands import default_release
from tfbuild.cpus import detect
from tfbuild.planning.defaults import of_cpu
from tfbuild.records import plain, pretty
from tfbuild.upstream.releases import find_release


def detected(*, as_json: bool) -> str:
    """What this CPU is, and what TensorFlow's run-time defaults are on it."""
    found = detect.detect()
    defaults = of_cpu(found.cpu, found.vcpus, find_release(default_release()).version)
    if as_json:
        return pretty(plain(found) | {"defaults": defaults})
    return f"{detect.describe(found, defaults)}\n"
