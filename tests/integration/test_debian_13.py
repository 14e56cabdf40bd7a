"""README's first steps on Debian 13: another compiler and Python, no root, a blank in the path."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from packaging.markers import Marker
from tests.builders.newer_bazel import inside
from tests.tools.locks import USER, bare, entries

from tfbuild.tools import pip
from tfcore.run import run
from tfcore.settings import ROOT

pytestmark = [pytest.mark.toolchain, pytest.mark.slow]

PACKAGES = "ca-certificates,npm,python3,python3-venv"
PYTHON = "3.13"
NAME = "ada"
LIMIT_S = 1200.0


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What that system sees of this one: the checkout, and what `./inv` fetches there."""
    folder = tmp_path_factory.mktemp("shared")
    checkout = folder / "my work" / "tensorwright"
    listed = ["git", "-C", str(ROOT), "ls-files", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(listed, check=True, capture_output=True, text=True).stdout.splitlines()
    for name in names:
        if (ROOT / name).is_file():
            (checkout / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, checkout / name)
    (folder / "wanted.txt").write_text("".join(wanted()), encoding="utf-8")
    versions = ("--python-version", PYTHON, "--only-binary=:all:")
    pip.download(folder / "wanted.txt", folder / "wheels", *versions)
    run(["chmod", "-R", "a+rwX", folder])
    return folder


def wanted() -> Iterator[str]:
    """The entries of the user's lock that are for that Python, without markers."""
    environment = {"python_full_version": f"{PYTHON}.0", "python_version": PYTHON}
    for entry, marker in map(bare, entries(USER.read_text(encoding="utf-8"))):
        if not marker or Marker(marker).evaluate(environment):
            yield entry


@pytest.fixture(scope="module")
def system(shared: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    if os.geteuid() != 0:
        pytest.skip("only root can make and enter the folder of another system")
    root = tmp_path_factory.mktemp("trixie") / "root"
    words = ["mmdebstrap", "--quiet", "--variant=minbase", f"--include={PACKAGES}", "trixie"]
    run([*words, root], timeout_s=LIMIT_S)
    run(["chroot", root, "useradd", "--create-home", NAME])
    shutil.copy2("/etc/resolv.conf", root / "etc")
    yield root
    shutil.rmtree(root, ignore_errors=True)


@pytest.fixture(scope="module")
def inv(system: Path, shared: Path) -> Callable[..., tuple[int, str]]:
    """`./inv` there, as an ordinary user: the exit code, and all that it prints."""

    def call(*words: str) -> tuple[int, str]:
        checkout = shlex.quote(str(shared / "my work" / "tensorwright"))
        env = f"PIP_NO_INDEX=1 PIP_FIND_LINKS={shlex.quote(str(shared / 'wheels'))}"
        script = f"cd {checkout} && {env} ./inv {shlex.join(words)}"
        command = [*inside(system, shared), "su", "-", NAME, "-c", script]
        done = run(command, check=False, timeout_s=LIMIT_S)
        return done.returncode, done.output

    return call


def test_what_doctor_asks_for_is_there_and_is_all(
    inv: Callable[..., tuple[int, str]], system: Path, shared: Path
) -> None:
    code, text = inv("detect")
    assert code == 0, text
    assert "native " in text
    code, text = inv("doctor")
    assert code == 15
    update, install = re.findall(r"^  sudo (apt-get .*)$", text, re.MULTILINE)
    code, planned = inv("plan")
    assert code == 0, planned
    (package,) = re.findall(r"clang-\d+", install)
    assert f"planned with {package.replace('-', ' ')}" in planned
    for command in (update, install):
        words = ["env", "DEBIAN_FRONTEND=noninteractive", *command.split()]
        run([*inside(system, shared), *words], timeout_s=LIMIT_S)
    code, text = inv("doctor")
    assert code == 0, text
    assert f"/usr/bin/{package}" in text


def test_quickstart_says_what_it_would_do(inv: Callable[..., tuple[int, str]]) -> None:
    code, text = inv("quickstart", "--dry-run")
    assert code == 0, text
    assert "for Python 3.13" in text
    assert "compare   stock with the new wheel on mnist_mlp" in text
