"""An environment that is made from one of another wheel is what uv would have made."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest
from tests.builders.index_wheels import wheel_of
from tests.builders.later import later
from tests.builders.locked_wheels import HERE

from tfbuild.tools.environment import Environment, create
from tfbuild.tools.shared_files import locate_packages
from tfcore.errors import WheelError
from tfcore.settings import ROOT, Paths

OLD = {"pkg/__init__.py": "", "pkg/same.py": "x = 1\n", "pkg/changed.py": "x = 1\n"}
OLD |= {"pkg/gone.py": "x = 1\n", "pkg/data/same.txt": "same"}
NEW = {"pkg/__init__.py": "", "pkg/same.py": "x = 1\n", "pkg/changed.py": "x = 2\n"}
NEW |= {"pkg/data/same.txt": "same", "pkg/data/new.txt": "new", "other.py": "x = 3\n"}
OF_INSTALLERS = {"INSTALLER", "REQUESTED", "RECORD", "direct_url.json", "uv_cache.json"}
ASK = "import pkg.same, pkg.changed, other; print(pkg.same.x, pkg.changed.x, other.x)"


def wheel(folder: Path, version: str, files: Mapping[str, str], tag: str = "py3-none-any") -> Path:
    return wheel_of(folder, f"pkg-{version}", files, tag=tag)


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    return Paths(root=ROOT, cache=tmp_path / "cache", pool=tmp_path / "pool")


@pytest.fixture
def old(tmp_path: Path, paths: Paths) -> Environment:
    path = wheel(tmp_path / "wheels", "1.0", OLD)
    environment = create(path, python=HERE, requirements="", paths=paths)
    says(environment, "import pkg.same, pkg.changed, pkg.gone")  # Python compiles them
    return environment


def says(arm: Environment, code: str) -> str:
    env = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    return subprocess.run(
        [arm.python, "-c", code], check=True, capture_output=True, text=True, env=env
    ).stdout.strip()


def inside(arm: Environment) -> dict[str, str]:
    """Every file of the packages but what Python compiled and what installers say of themselves."""
    folder = locate_packages(arm.folder, HERE)
    return {
        str(path.relative_to(folder)): path.read_text()
        for path in folder.rglob("*")
        if path.is_file() and path.suffix != ".pyc" and path.name not in OF_INSTALLERS
    }


def made(path: Path, paths: Paths, template: Environment | None) -> Environment:
    return create(path, python=HERE, requirements="", paths=paths, sibling=template)


def test_it_is_what_uv_makes(tmp_path: Path, paths: Paths, old: Environment) -> None:
    path = wheel(tmp_path / "wheels", "1.0+tuned", NEW)
    shared = made(path, paths, old)
    elsewhere = Paths(root=ROOT, cache=tmp_path / "other", pool=tmp_path / "pool")
    by_uv = made(path, elsewhere, None)
    assert inside(shared) == inside(by_uv)
    assert says(shared, ASK) == says(by_uv, ASK) == "1 2 3"
    version = (
        "import importlib.metadata as m; print(m.version('pkg'), len(list(m.distributions())))"
    )
    assert says(shared, version) == says(by_uv, version) == "1.0+tuned 1"


def test_what_both_have_is_on_the_disk_once(tmp_path: Path, paths: Paths, old: Environment) -> None:
    shared = made(wheel(tmp_path / "wheels", "1.0+tuned", NEW), paths, old)
    shared_package, old_package = (
        locate_packages(environment.folder, HERE) / "pkg" for environment in (shared, old)
    )
    same, changed = "__pycache__/same.*.pyc", "__pycache__/changed.*.pyc"
    assert (shared_package / "same.py").samefile(old_package / "same.py")
    assert next(shared_package.glob(same)).samefile(next(old_package.glob(same)))
    assert not list(shared_package.glob(changed))
    assert list(old_package.glob(changed))
    assert not (shared_package / "gone.py").exists()
    assert says(old, "import pkg.gone, pkg.changed; print(pkg.changed.x)") == "1"


def test_what_somebody_changed_in_the_other_one_is_unpacked(
    tmp_path: Path, paths: Paths, old: Environment
) -> None:
    same = locate_packages(old.folder, HERE) / "pkg/same.py"
    same.write_text("x = 1000\n")
    shared = made(wheel(tmp_path / "wheels", "1.0+tuned", NEW), paths, old)
    assert says(shared, ASK) == "1 2 3"
    assert same.read_text() == "x = 1000\n"


@pytest.mark.parametrize(
    "name", ["pkg-1.0+tuned.data/scripts/x", *later("pkg-1.0+tuned.data/data/y")]
)
def test_a_wheel_with_files_for_other_places_is_left_to_uv(
    name: str, tmp_path: Path, paths: Paths, old: Environment
) -> None:
    shared = made(wheel(tmp_path / "wheels", "1.0+tuned", NEW | {name: "z"}), paths, old)
    assert says(shared, ASK) == "1 2 3"
    assert not (locate_packages(shared.folder, HERE) / Path(name).parts[0]).exists()


@pytest.mark.slow
def test_one_with_other_dependencies_is_not_like_it(
    tmp_path: Path, paths: Paths, old: Environment
) -> None:
    other_environment = Environment(
        folder=old.folder.rename(old.folder.with_name("other")),
        wheel=old.wheel,
        wheel_sha256=old.wheel_sha256,
    )
    shared = made(wheel(tmp_path / "wheels", "1.0+tuned", NEW), paths, other_environment)
    shared_file, other_file = (
        locate_packages(environment.folder, HERE) / "pkg/same.py"
        for environment in (shared, other_environment)
    )
    assert not shared_file.samefile(other_file)


def test_uv_is_asked_whether_it_takes_the_wheel(
    tmp_path: Path, paths: Paths, old: Environment
) -> None:
    path = wheel(tmp_path / "wheels", "1.0+tuned", NEW, tag="cp39-cp39-win_amd64")
    for _ in range(2):  # nothing half-made is taken the second time
        with pytest.raises(WheelError, match=r"pkg-1\.0.*no wheels with a matching"):
            made(path, paths, old)
