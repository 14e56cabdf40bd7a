"""hosts.toml becomes records, and whatever is wrong in it is one clear line."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfbench.costs import catalog
from tfbench.hosts.host_table import FleetHost, load_hosts, parse_hosts
from tfcore.errors import UsageError
from tfcore.settings import ROOT

TABLE = """
[defaults]
user = "ubuntu"
vcpus = [2, 1, 2]
python = "python3.12"

[hosts.web-1]
address = "10.0.0.4"
port = 2222
key = "/keys/fleet"
options = ["-oProxyJump=gate"]
machine = "c7i.large"
count = 12
limit = "1h30m"
environment = { PIP_INDEX_URL = "https://u:p@index.example/simple" }

[hosts.web-2]
vcpus = [4]
"""


def test_a_host_has_the_defaults_and_what_its_own_table_says() -> None:
    first, second = parse_hosts(TABLE, "hosts.toml")
    assert first == FleetHost(
        name="web-1",
        address="10.0.0.4",
        options=(
            *("-o User=ubuntu", "-o Port=2222", "-o IdentityFile=/keys/fleet"),
            "-oProxyJump=gate",
        ),
        vcpus=(1, 2),
        machine="c7i.large",
        count=12,
        python="python3.12",
        limit_s=5400.0,
        environment=(("PIP_INDEX_URL", "https://u:p@index.example/simple"),),
    )
    assert (second.address, second.vcpus, second.options) == ("web-2", (4,), ("-o User=ubuntu",))


def test_a_scheduler_gets_its_own_options() -> None:
    text = '[hosts.a]\nscheduler = "slurm"\nqueue = "cpu"\nnode = "n1"\noptions = ["--exclusive"]\n'
    (host,) = parse_hosts(text, "hosts.toml")
    assert host.options == ("--partition=cpu", "--nodelist=n1", "--exclusive")
    assert host.address == ""


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no hosts"),
        ("[hosts.a", "not TOML"),
        ("[host.a]\n", "unknown key 'host'"),
        ("[hosts.a]\nadress = 'b'\n", "unknown key 'adress'"),
        ("[hosts.a]\nscheduler = 'slurn'\n", "unknown scheduler 'slurn'"),
        ("[hosts.a]\nscheduler = 'local'\nuser = 'b'\n", "user is for the scheduler ssh"),
        ("[hosts.a]\nscheduler = 'pbs'\nnode = 'b'\n", "node is not known for pbs"),
        ("[hosts.a]\naddress = 'b; rm -rf /'\n", "characters that are not allowed"),
        ("[hosts.a]\naddress = '-oProxyCommand=x'\n", "characters that are not allowed"),
        ("[hosts.a]\naddress = '::1'\n", "characters that are not allowed"),
        ("[hosts.a]\nuser = '$(id)'\n", "characters that are not allowed"),
        ("[hosts.a]\nkey = 'a b'\n", "characters that are not allowed"),
        ("[hosts.a]\noptions = ['a`b`']\n", "characters that are not allowed"),
        ("[hosts.a]\noptions = 'a'\n", "must be a list of texts"),
        ("[hosts.a]\nfolder = 'a b'\n", "characters that are not allowed"),
        ("[hosts.'a b']\n", "characters that are not allowed"),
        ("[hosts.a]\nvcpus = [0]\n", "must be a list of numbers"),
        ("[hosts.a]\nvcpus = [true]\n", "must be a list of numbers"),
        ("[hosts.a]\nport = 99999\n", "must be a number"),
        ("[hosts.a]\ncount = 0\n", "must be a number"),
        ("[hosts.a]\nlimit = 'soon'\n", "limit"),
        ("[hosts.a]\nenvironment = { A = 1 }\n", "must be a text"),
        ("[hosts.a]\nenvironment = { 'A=B' = 'c' }\n", "characters that are not allowed"),
        ("[hosts]\na = 1\n", "must be a table"),
    ],
)
def test_what_is_wrong_is_said(text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        parse_hosts(text, "hosts.toml")


@given(st.text(max_size=60))
def test_no_text_of_a_host_reaches_a_shell_unchecked(text: str) -> None:
    """ReFrame builds shell commands from addresses and options."""
    quoted = "".join(f"\\U{ord(c):08x}" for c in text if not 0xD800 <= ord(c) < 0xE000)
    for key in ("address", "user", "key", "folder", "python"):
        try:
            (host,) = parse_hosts(f'[hosts.a]\n{key} = "{quoted}"\n', "hosts.toml")
        except UsageError:
            continue
        words = (host.address, host.folder, host.python, *host.options)
        assert not set("".join(words)) & set(" ;&|<>$`\\\"'()*?[]{}!\n\t") - {" "}


def test_keys_of_ssh_among_the_defaults_are_for_hosts_with_ssh() -> None:
    text = '[defaults]\nuser = "u"\n[hosts.a]\n[hosts.b]\nscheduler = "local"\n'
    first, second = parse_hosts(text, "hosts.toml")
    assert (first.options, second.options) == (("-o User=u",), ())


def test_the_table_of_the_docs_is_right() -> None:
    page = (ROOT / "docs" / "fleet.md").read_text("utf-8")
    table = page.partition("```toml\n")[2].partition("```")[0]
    hosts = {host.name: host for host in parse_hosts(table, "fleet.md")}
    assert hosts["batch"].options == ("--partition=cpu", "--exclusive")
    book = catalog.find_book("2017-07-gce")
    assert book.find_price(hosts["web-1"].machine).usd_hour > 0


def test_a_missing_table_says_how_to_write_one(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"file not found.*docs/fleet.md"):
        load_hosts(tmp_path / "hosts.toml")
