"""invoke fleet: what it checks before anything is copied, and what it reads from ReFrame."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.builders.fleet_hosts import make_checkout, make_wheel
from tests.builders.fleet_results import fleet_host, row

from tfbench.commands import FleetOptions
from tfbench.hosts import handler
from tfbench.hosts.handler import describe, prepare, require_complete, shorten_reason
from tfbench.hosts.summary import FleetResult
from tfcore import settings
from tfcore.errors import FleetError, UsageError, WheelError
from tfcore.settings import Paths


@pytest.fixture
def options(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., FleetOptions]:
    """Options with a table of two hosts and a wheel, in a checkout."""
    (tmp_path / "hosts.toml").write_text(
        '[defaults]\nvcpus = [1]\n[hosts.a]\nenvironment = { T = "secret" }\n[hosts.b]\n'
    )
    pool = tmp_path / "pool"
    pool.mkdir()
    wheel = make_wheel(pool)
    paths = Paths(root=make_checkout(tmp_path / "c"), cache=tmp_path / "cache", pool=pool)
    monkeypatch.setattr(settings, "paths", lambda: paths)
    return lambda **fields: FleetOptions(
        **{"hosts": str(tmp_path / "hosts.toml"), "candidate": str(wheel)} | fields
    )


def test_a_dry_run_names_hosts_wheels_and_the_command(options: Callable[..., FleetOptions]) -> None:
    text = describe(options(budget="20s", thorough=True))
    assert text == (
        "wheel  tuned: a-1.0-py3-none-any.whl\n"
        "host   a: a, vCPUs: 1, folder ~/.cache/tensorwright-fleet\n"
        "host   b: b, vCPUs: 1, folder ~/.cache/tensorwright-fleet\n"
        "on each: invoke compare --workloads all --phase train --budget 20s --thorough\n"
    )


def test_prepare_writes_what_a_user_of_reframe_needs(
    options: Callable[..., FleetOptions], tmp_path: Path
) -> None:
    target = tmp_path / "prepared"
    text = prepare(options(prepare=str(target)))
    assert f"reframe -C {target}/settings.json -c {target}/fleet_check.py" in text
    assert {path.name for path in target.iterdir()} == {
        *("settings.json", "bundle.json", "fleet_check.py", "start.sh", "on_host.py"),
        "tensorwright.tar.gz",
        "a-1.0-py3-none-any.whl",
    }
    for path in (target, target / "settings.json"):
        assert path.stat().st_mode & 0o077 == 0  # the table may have secrets
    target.chmod(0o755)
    prepare(options(prepare=str(target)))
    assert (target / "settings.json").stat().st_mode & 0o077 == 0
    with pytest.raises(UsageError, match="characters that ReFrame"):
        prepare(options(prepare=str(tmp_path / "a b")))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"hosts": "nowhere.toml"}, "file not found"),
        ({"candidate": "nowhere.whl"}, "file not found: nowhere.whl"),
        ({"workloads": "resnet5"}, "resnet5"),
        ({"budget": "soon"}, "--budget"),
        ({"vcpus": "none"}, "--vcpus"),
        ({"phase": "fit"}, "phase"),
        ({"prices": "2099"}, "2099"),
        ({"region": "us"}, "need --prices"),
    ],
)
def test_what_is_wrong_is_said_before_anything_is_copied(
    options: Callable[..., FleetOptions], fields: dict[str, str], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        describe(options(**fields))


def test_without_a_tuned_wheel_the_message_says_how_to_build_one(
    options: Callable[..., FleetOptions],
) -> None:
    """The one in the pool is none."""
    with pytest.raises(WheelError, match=r"no tuned wheel in .*invoke build"):
        describe(options(candidate=""))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (
            (
                "spawned process error: command 'ssh …' failed with exit code 255:\n"
                "--- stderr ---\nssh: connect to host a port 22: Connection refused\n--- stderr ---"
            ),
            "ssh: connect to host a port 22: Connection refused",
        ),
        (
            "error\n--- stderr ---\nsbatch: error: a\nsbatch: error: b\n--- stderr ---",
            "sbatch: error: b",
        ),
        ("job exceeded its time limit", "job exceeded its time limit"),
        ("", "no reason given"),
    ],
)
def test_a_reason_is_the_line_that_tells_it(text: str, reason: str) -> None:
    assert shorten_reason(text).startswith(reason)


def test_hosts_without_a_result_are_an_error() -> None:
    found = fleet_host("a", row("tuned", 1.2))
    result = FleetResult(
        made="", wheels=(), compare=(), hosts=(found,), missing=(), kinds=(), complete=True
    )
    require_complete(result)
    missing = FleetResult(
        made="",
        wheels=(),
        compare=(),
        hosts=(found,),
        missing=(("b", "no"),),
        kinds=(),
        complete=False,
    )
    with pytest.raises(FleetError, match="1 of 2 hosts have no result: b"):
        require_complete(missing)


def test_the_shipped_lock_pins_every_package() -> None:
    text = handler.REQUIREMENTS.read_text()
    packages = [line for line in text.splitlines() if "==" in line]
    assert any(line.startswith("reframe-hpc==") for line in packages)
    assert all(line.endswith("\\") for line in packages)
    assert "://" not in text
