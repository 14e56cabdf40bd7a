"""invoke fleet for stand-ins: PROGRAM ROOT CACHE HOSTS WHEEL OUT."""

from __future__ import annotations

import sys
from pathlib import Path
from unittest import mock

from tfbench.commands import FleetOptions
from tfbench.hosts.handler import measure_fleet
from tfcore import settings
from tfcore.settings import Paths


def main() -> None:
    root, cache, hosts, wheel, out = sys.argv[1:]
    paths = Paths(root=Path(root), cache=Path(cache), pool=Path(wheel).parent)
    with mock.patch.object(settings, "paths", return_value=paths):
        measure_fleet(FleetOptions(hosts=hosts, candidate=wheel, out=out), as_json=False)


if __name__ == "__main__":
    main()
