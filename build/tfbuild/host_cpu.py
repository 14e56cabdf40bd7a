"""The report of `invoke detect`. Imports little, so that the command starts fast."""

from __future__ import annotations

from tfbuild.commands import get_default_release
from tfbuild.planning.defaults import describe_levers
from tfbuild.upstream.releases import find_release
from tfcore.cpus import detect
from tfcore.records import convert_record, format_json


def describe_cpu(*, as_json: bool) -> str:
    """Describe this CPU and TensorFlow's run-time defaults on it, as text or JSON."""
    detection = detect.detect()
    defaults = describe_levers(
        detection.cpu, detection.vcpus, find_release(get_default_release()).version
    )
    if as_json:
        return format_json(convert_record(detection) | {"defaults": defaults})
    return f"{detect.describe(detection, defaults)}\n"
