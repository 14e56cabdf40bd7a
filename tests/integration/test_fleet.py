"""invoke fleet with ReFrame, OpenSSH and Slurm; on the hosts are commands that answer at once."""

from __future__ import annotations

import dataclasses
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.builders.fleet_hosts import SshServer, make_checkout, make_wheel, serving_ssh
from tests.builders.slurm_cluster import running_slurm

from tfbench.commands import FleetOptions
from tfbench.hosts.handler import measure_fleet, prepare
from tfbench.hosts.results import HostStatus, load_outcome
from tfcore import settings
from tfcore.errors import BusyError
from tfcore.settings import ROOT, Paths, lock_folder

pytestmark = pytest.mark.toolchain

PROGRAM = Path(__file__).with_name("measured_fleet.py")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SshServer]:
    with serving_ssh(tmp_path_factory.mktemp("ssh") / "server") as running:
        yield running


@pytest.fixture
def measure(
    paths: Paths, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., FleetOptions]:
    """Options for a table of hosts, with a wheel and a checkout of stand-ins."""
    pool = tmp_path / "pool"
    pool.mkdir()
    wheel = make_wheel(pool)
    own = Paths(root=make_checkout(tmp_path / "checkout"), cache=paths.cache, pool=pool)
    monkeypatch.setattr(settings, "paths", lambda: own)

    def make_options(table: str) -> FleetOptions:
        (tmp_path / "hosts.toml").write_text(table)
        return FleetOptions(
            hosts=str(tmp_path / "hosts.toml"),
            candidate=str(wheel),
            out=str(tmp_path / "out"),
            vcpus="1,2",
        )

    return make_options


def variables(tmp_path: Path, **values: str) -> str:
    """The variables of a host. Its lock is not that of fleets on this machine."""
    values = {"TENSORWRIGHT_FLEET_LOCK": f"{tmp_path}/lock"} | values
    pairs = ", ".join(f'{name} = "{value}"' for name, value in values.items())
    return f"environment = {{ {pairs} }}\n"


def host(server: SshServer, name: str, tmp_path: Path, **values: str) -> str:
    folder = f'folder = "{tmp_path}/kept"\n'
    return f"[hosts.{name}]\n{server.options}{folder}{variables(tmp_path, **values)}"


def test_hosts_that_fail_do_not_stop_the_others_and_a_second_call_continues(
    measure: Callable[..., FleetOptions], server: SshServer, tmp_path: Path
) -> None:
    refused_key = server.options.replace("/user", "/host")
    unknown = server.options.replace("/known", "/authorized")
    table = (
        host(server, "good", tmp_path, TARGET="zen4")
        + host(server, "old", tmp_path, ADMIT="24", TARGET="core2")
        + host(server, "broken", tmp_path, COMPARE="25")
        + f"[hosts.key]\n{refused_key}[hosts.unknown]\n{unknown}"
        + '[hosts.down]\naddress = "127.0.0.1"\nport = 1\n'
    )
    result, text = measure_fleet(measure(table), as_json=False)
    assert [found.name for found in result.hosts] == ["good", "old"]
    assert {kind.target for kind in result.kinds} == {"zen4", "core2"}
    reasons = dict(result.missing)
    assert "compare failed: compare failed. Do something" in reasons["broken"]
    assert "Permission denied" in reasons["key"]
    assert "Host key verification failed" in reasons["unknown"]
    assert "Connection refused" in reasons["down"]
    assert "no wheel could be measured, keep stock" in text
    out = tmp_path / "out"
    assert {"report.html", "report.md", "fleet.json", "fleet.csv", "fleet.log", "hosts"} <= {
        path.name for path in out.iterdir()
    }
    assert not list(out.glob(".work-*"))
    mended = table.replace('COMPARE = "25"', 'TARGET = "haswell"')
    before = (out / "hosts" / "good" / "outcome.json").stat().st_mtime_ns
    result, _ = measure_fleet(measure(mended), as_json=True)
    assert [found.name for found in result.hosts] == ["good", "old", "broken"]
    assert (out / "hosts" / "good" / "outcome.json").stat().st_mtime_ns == before
    assert not result.complete


def test_secrets_of_hosts_are_in_no_file_that_stays(
    measure: Callable[..., FleetOptions], server: SshServer, tmp_path: Path
) -> None:
    table = host(server, "one", tmp_path, PIP_INDEX_URL="SECRET")
    measure_fleet(measure(table), as_json=False)
    for folder in (tmp_path / "out", tmp_path / "kept"):
        for path in folder.rglob("*"):
            assert not path.is_file() or b"SECRET" not in path.read_bytes(), path


def test_the_same_folder_is_used_by_one_call(
    measure: Callable[..., FleetOptions], tmp_path: Path
) -> None:
    options = measure('[hosts.a]\nscheduler = "local"\n')
    with lock_folder(tmp_path / "out", "a test"), pytest.raises(BusyError):
        measure_fleet(options, as_json=False)


def test_ctrl_c_stops_the_hosts_and_the_next_call_continues(
    measure: Callable[..., FleetOptions], server: SshServer, tmp_path: Path
) -> None:
    waiting = tmp_path / "waiting"
    table = host(server, "quick", tmp_path, TENSORWRIGHT_FLEET_LOCK=f"{tmp_path}/own")
    table += host(server, "slow", tmp_path, WAIT=str(waiting))
    options = measure(table)
    own = settings.paths()
    roots = os.pathsep.join(str(ROOT / name) for name in ("build", "wheels", "benchmarks"))
    folders = map(str, (own.root, own.cache))
    words = [sys.executable, str(PROGRAM), *folders]
    words += [options.hosts, options.candidate, options.out]
    with subprocess.Popen(words, env=os.environ | {"PYTHONPATH": roots}) as process:
        number = wait_for(waiting)
        came_back = "out/.work-*/reframe/stage/fleet/quick/*/*/outcome.json"
        wait_until(lambda: any(tmp_path.glob(came_back)))
        process.send_signal(signal.SIGINT)
        assert process.wait(60) != 0
    wait_until(lambda: not Path(f"/proc/{number}").exists())
    assert load_outcome(tmp_path / "out" / "hosts" / "quick").status is HostStatus.DONE
    assert not list((tmp_path / "out").glob(".work-*"))
    result, _ = measure_fleet(measure(table.replace("WAIT", "OTHER")), as_json=False)
    assert [found.name for found in result.hosts] == ["quick", "slow"]


def wait_until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 120
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def wait_for(path: Path) -> str:
    wait_until(lambda: path.is_file() and bool(path.read_text()))
    return path.read_text()


@pytest.mark.slow
def test_a_changed_row_is_measured_again(
    measure: Callable[..., FleetOptions], tmp_path: Path
) -> None:
    row = f'[hosts.a]\nscheduler = "local"\nfolder = "{tmp_path}/kept"\n'
    targets = []
    for target in ("zen3", "zen4"):
        table = row + variables(tmp_path, TARGET=target)
        result, _ = measure_fleet(measure(table), as_json=False)
        targets += [kind.target for kind in result.kinds]
    assert targets == ["zen3", "zen4"]


@pytest.mark.slow
def test_slurm_runs_a_host_per_node(
    measure: Callable[..., FleetOptions], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with running_slurm(tmp_path / "slurm") as config:
        monkeypatch.setenv("SLURM_CONF", str(config))
        table = "".join(
            f'[hosts.{name}]\nscheduler = "squeue"\nqueue = "{queue}"\nnode = "{node}"\n'
            f'folder = "{tmp_path}/kept"\nvcpus = [1]\n{variables(tmp_path)}'
            for name, node, queue in (
                *(("one", "node1", "cpu"), ("two", "node2", "cpu")),
                ("none", "node3", "cpu"),
            )
        )
        result, _ = measure_fleet(measure(table), as_json=False)
    assert [found.name for found in result.hosts] == ["one", "two"]
    assert "sbatch: error" in dict(result.missing)["none"]


@pytest.mark.slow
def test_a_prepared_folder_runs_with_reframe(
    measure: Callable[..., FleetOptions], tmp_path: Path
) -> None:
    row = f'[hosts.here]\nscheduler = "local"\nfolder = "{tmp_path}/kept"\n'
    options = measure(row + variables(tmp_path))
    target = tmp_path / "prepared"
    text = prepare(dataclasses.replace(options, out="", vcpus="1", prepare=str(target)))
    (line,) = (line.strip() for line in text.splitlines() if line.startswith("  reframe"))
    paths = settings.paths()
    (reframe,) = paths.arms.glob("bare-*/bin/reframe")
    words = [str(reframe), *line.split()[1:], "--performance-report"]
    done = subprocess.run(words, check=True, capture_output=True, text=True)
    assert "tuned_2" in done.stdout
    (stage,) = target.glob("reframe/stage/fleet/here/*/*/outcome.json")
    assert load_outcome(stage.parent).status is HostStatus.DONE
