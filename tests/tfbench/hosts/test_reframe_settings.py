"""ReFrame's settings: a partition per host, with what the test needs to know about it."""

from __future__ import annotations

from pathlib import Path

from tfbench.hosts.host_table import parse_hosts
from tfbench.hosts.reframe_settings import build_command, build_settings

TABLE = """
[hosts.web]
address = "10.0.0.4"
user = "ubuntu"
environment = { A = "b" }

[hosts.batch]
scheduler = "slurm"
queue = "cpu"
vcpus = [1, 8]
limit = "2h"
"""


def test_each_host_is_a_partition() -> None:
    settings = build_settings(parse_hosts(TABLE, "hosts.toml"), (2,))
    (system,) = settings["systems"]
    web, batch = system["partitions"]
    assert web["access"][0] == "#host=10.0.0.4"
    assert web["access"][-1] == "-o User=ubuntu"
    assert "-o StrictHostKeyChecking=yes" in web["access"]
    assert web["sched_options"] == {"ssh_hosts": ["10.0.0.4"]}
    assert (batch["name"], batch["scheduler"]) == ("batch", "slurm")
    assert (batch["access"], batch["sched_options"]) == (["--partition=cpu"], {})
    first, second = (part["extras"]["tensorwright"] for part in (web, batch))
    assert (first["vcpus"], first["environment"], first["limit_s"]) == ([2], {"A": "b"}, 0.0)
    assert (second["vcpus"], second["environment"], second["limit_s"]) == ([1, 8], {}, 7200.0)


def test_nothing_is_written_to_the_home_folder() -> None:
    """ReFrame's defaults are a database, a report and a log there or in the folder for temporary
    files."""
    settings = build_settings(parse_hosts(TABLE, "hosts.toml"), ())
    assert settings["storage"] == [{"enable": False}]
    handlers = settings["logging"][0]["handlers"]
    assert [handler["type"] for handler in handlers] == ["stream"]
    words = build_command(Path("reframe"), Path("/b"), Path("/b/s.json"), Path("/b/r"))
    assert words[words.index("--report-file") + 1] == Path("/b/r/report.json")
    assert words[words.index("--prefix") + 1] == Path("/b/r")
