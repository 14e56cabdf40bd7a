"""No wheel that somebody has altered passes an audit, or is published."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
from tests.builders.audit_cases import pin_stock, small_stock, sound_wheel
from tests.builders.doctored_wheels import DOCTORED, Case

from tfbuild.auditing.audit import audit
from tfcore import settings
from tfcore.errors import AdmissionError, AuditError, PublishError, TensorwrightError, WheelError
from tfcore.settings import Paths
from tfwheels.commands import PublishOptions
from tfwheels.handlers import publish_wheels

pytestmark = pytest.mark.toolchain

Made = tuple[Path, Path]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    """The sound wheel and its stock wheel."""
    folder = tmp_path_factory.mktemp("made")
    return sound_wheel(folder), small_stock(folder)


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """So that the same libraries are looked at once."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def case(made: Made, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Case:
    wheel, stock = made
    pin_stock(monkeypatch, stock)
    paths = Paths(root=tmp_path, cache=cache, pool=tmp_path / "pool")
    monkeypatch.setattr(settings, "paths", lambda: paths)
    folder = tmp_path / "doctored"
    folder.mkdir()
    return Case(wheel=Path(shutil.copy(wheel, folder)), stock=stock, folder=folder)


def published(wheel: Path, case: Case) -> None:
    """Whatever the options: the gate and the dependencies are others' matters."""
    expected = PublishOptions(
        to=str(case.folder / "index"),
        wheels=str(wheel),
        gate=False,
        only_tuned=True,
        stock_wheel=str(case.stock),
    )
    publish_wheels(expected, as_json=False)


def problems(wheel: Path, case: Case) -> str:
    try:
        wheel_audit = audit(wheel, paths=settings.paths(), stock=case.stock)
    except TensorwrightError as error:
        return str(error)
    return "\n".join(wheel_audit.problems)


def test_the_wheel_that_is_doctored_is_sound(case: Case) -> None:
    assert problems(case.wheel, case) == ""
    published(case.wheel, case)
    assert (case.folder / "index" / "pool" / "tensorflow-cpu" / case.wheel.name).is_file()


@pytest.mark.parametrize("name", DOCTORED)
def test_every_doctored_wheel_is_refused(name: str, case: Case) -> None:
    doctor, says = DOCTORED[name]
    wheel = doctor(case)
    with pytest.raises((AuditError, WheelError, PublishError, AdmissionError)) as caught:
        published(wheel, case)
    assert len(str(caught.value).splitlines()) == 1
    assert not (case.folder / "index").exists()
    assert re.search(says, f"{caught.value}\n{problems(wheel, case)}")
