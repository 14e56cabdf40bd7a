"""Hosts of a fleet: a checkout whose commands answer at once, and an SSH server of our own.

The checkout's `inv` takes what the hosts call. Its variables say what fails: ADMIT and COMPARE are
exit codes, THEN is that of a compare with a result. WAIT is a file that compare writes its process
number to before it waits.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.builders import report_comparisons

from tfcore.comparisons.comparison import Comparison, save

_INV = """#!/usr/bin/env python3
import json, os, pathlib, shutil, sys, time
name, *words = sys.argv[1:]
here = pathlib.Path(__file__).parent
if name == "detect":
    target = os.environ.get("TARGET", "haswell")
    cpu = {"name": os.environ.get("CPU", "A CPU")}
    print(json.dumps({"cpu": cpu, "match": {"best": {"name": target}}, "vcpus": {"usable": 2}}))
elif name == "admit":
    code = int(os.environ.get("ADMIT", 0))
    if code:
        print("error: " + words[0].rpartition("/")[2] + " does not fit", file=sys.stderr)
    sys.exit(code)
elif name == "compare":
    code, waits = int(os.environ.get("COMPARE", 0)), os.environ.get("WAIT")
    if waits:
        pathlib.Path(waits).write_text(str(os.getpid()))
        time.sleep(600)
    if code:
        print("error: compare failed. Do something", file=sys.stderr)
        sys.exit(code)
    out = pathlib.Path(words[words.index("--out") + 1])
    out.mkdir(parents=True)
    (out / "words.json").write_text(json.dumps(words))
    shutil.copy(here / "benchmarks" / "comparison.json", out)
    sys.exit(int(os.environ.get("THEN", 0)))
"""


def make_checkout(folder: Path, comparison: Comparison | None = None) -> Path:
    """A checkout for hosts, whose comparisons have this result."""
    for name in ("build", "wheels/tfwheels", "benchmarks", "templates"):
        (folder / name).mkdir(parents=True)
    for name in ("tasks.py", "requirements.txt"):
        (folder / name).write_text("")
    (folder / "inv").write_text(_INV)
    (folder / "inv").chmod(0o755)
    save(folder / "benchmarks" / "comparison.json", comparison or report_comparisons.sound())
    return folder


def make_wheel(folder: Path, name: str = "a") -> Path:
    path = folder / f"{name}-1.0-py3-none-any.whl"
    path.write_bytes(name.encode() * 1000)
    return path


@dataclass(frozen=True, kw_only=True)
class SshServer:
    """A server on the loopback interface; `options` are what hosts.toml needs to reach it."""

    port: int
    folder: Path

    @property
    def options(self) -> str:
        return (
            f'address = "127.0.0.1"\nport = {self.port}\nkey = "{self.folder}/user"\n'
            f'options = ["-oUserKnownHostsFile={self.folder}/known"]\n'
        )


@contextlib.contextmanager
def serving_ssh(folder: Path) -> Iterator[SshServer]:
    """Run OpenSSH's server with keys of its own; it ends with the test."""
    folder.mkdir()
    for name in ("host", "user"):
        words = ("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name))
        subprocess.run(words, check=True)
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    shutil.copy(folder / "user.pub", folder / "authorized")
    host_key = " ".join((folder / "host.pub").read_text().split()[:2])
    (folder / "known").write_text(f"[127.0.0.1]:{port} {host_key}\n")
    (folder / "config").write_text(
        f"Port {port}\nListenAddress 127.0.0.1\nHostKey {folder}/host\n"
        f"AuthorizedKeysFile {folder}/authorized\nPasswordAuthentication no\n"
        "PermitRootLogin prohibit-password\nStrictModes no\nUsePAM no\nPidFile none\n"
    )
    Path("/run/sshd").mkdir(exist_ok=True)
    program = shutil.which("sshd", path=f"{os.environ['PATH']}:/usr/sbin")
    assert program is not None
    with (folder / "log").open("w") as log:
        server = subprocess.Popen([program, "-D", "-e", "-f", folder / "config"], stderr=log)
    try:
        for _ in range(200):
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
                break
            time.sleep(0.05)
        yield SshServer(port=port, folder=folder)
    finally:
        server.terminate()
        server.wait()
