"""A Slurm cluster on this machine: a controller and two nodes, with keys and ports of their own."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

_CONFIG = """
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/controller.pid
SlurmdPidFile={folder}/%n.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
SlurmdParameters=config_overrides
NodeName=node1 NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[1]} CPUs=2
NodeName=node2 NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[2]} CPUs=2
PartitionName=cpu Nodes=node1,node2 Default=YES MaxTime=INFINITE State=UP
"""


def _find_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        servers = [
            stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)
        ]
        return [server.getsockname()[1] for server in servers]


@contextlib.contextmanager
def running_slurm(folder: Path) -> Iterator[Path]:
    """Start munged, slurmctld and two slurmd; yield the configuration, for SLURM_CONF."""
    folder.mkdir(mode=0o755)
    (folder / "state").mkdir()
    key = folder / "munge.key"
    key.write_bytes(secrets.token_bytes(1024))
    key.chmod(0o600)
    config = folder / "slurm.conf"
    config.write_text(
        _CONFIG.format(
            folder=folder,
            host=socket.gethostname().partition(".")[0],
            ports=_find_ports(3),
            user="root",
        )
    )
    programs = [
        [
            "munged",
            "--foreground",
            "--force",
            f"--key-file={key}",
            f"--socket={folder}/munge.socket",
        ]
        + [f"--{name}-file={folder}/munge.{name}" for name in ("pid", "log", "seed")],
        ["slurmctld", "-D", "-f", str(config)],
        *(["slurmd", "-D", "-f", str(config), "-N", node] for node in ("node1", "node2")),
    ]
    path = f"{os.environ['PATH']}:/usr/sbin"
    with contextlib.ExitStack() as stack:
        for words in programs:
            program = shutil.which(words[0], path=path)
            assert program is not None
            with (folder / f"{words[-1].rpartition('/')[2]}.log").open("w") as log:
                process = subprocess.Popen([program, *words[1:]], stdout=log, stderr=log)
            stack.callback(process.wait)
            stack.callback(process.terminate)
            time.sleep(0.5)
        env = os.environ | {"SLURM_CONF": str(config)}
        deadline = time.monotonic() + 60
        while (
            "idle"
            not in subprocess.run(
                ["sinfo", "-h", "-o", "%T"], env=env, check=False, capture_output=True, text=True
            ).stdout.split()
        ):
            assert time.monotonic() < deadline, "no node of Slurm became idle"
            time.sleep(0.5)
        yield config
