from __future__ import annotations

import zipfile
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path

import pytest
from tests.builders.index_wheels import tuned_for
from tests.builders.notices import COMPILED

from tfbuild.packing import notices
from tfbuild.packing.notices import (
    LICENCE,
    check_licences,
    find_missing_licence,
    list_header_libraries,
    render_notice,
)
from tfbuild.packing.tuned import Tuned
from tfbuild.packing.wheel import open_wheel
from tfbuild.planning.guard import DATA
from tfbuild.tools.environment import Environment
from tfcore.errors import WheelError

EIGEN = "tensorflow/include/Eigen/src/Core/util/Macros.h"
ABSEIL = "tensorflow/include/absl/base/config.h"
HEADERS = {
    EIGEN: "#define EIGEN_WORLD_VERSION 3\n#define EIGEN_MAJOR_VERSION 4\n"
    "#define EIGEN_MINOR_VERSION 90\n",
    ABSEIL: "// ABSL_LTS_RELEASE_VERSION == 20300401 && ABSL_LTS_RELEASE_PATCH_LEVEL == 2\n"
    "#define ABSL_LTS_RELEASE_VERSION 20230125\n#define ABSL_LTS_RELEASE_PATCH_LEVEL 2\n",
}
NAMES = (
    EIGEN,
    "tensorflow/THIRD_PARTY_NOTICES.txt",
    "tensorflow/include/external/com_google_absl/LICENSE",
    "tensorflow_cpu-2.14.1.dist-info/LICENSE",
)


def wheel_with(folder: Path, headers: dict[str, str]) -> Path:
    path = folder / "tensorflow_cpu-2.14.1-cp311-cp311-manylinux_2_17_x86_64.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in headers.items():
            archive.writestr(name, text)
    return path


def text_for(tuned: Tuned) -> str:
    added = [*(library.file for library in tuned.libraries), "tensorflow/core/kernels/first.so"]
    return render_notice(
        tuned,
        version="2.14.1+haswell",
        stock_file="stock.whl",
        changed={"tensorflow/__init__.py": "a line at its end"},
        added=added,
        compiled=COMPILED,
    ).decode()


def test_headers_say_what_is_compiled_in(tmp_path: Path) -> None:
    assert list_header_libraries(wheel_with(tmp_path, HEADERS)) == COMPILED


def test_eigen_5_states_its_version_in_a_header_of_its_own(tmp_path: Path) -> None:
    text = "#define EIGEN_WORLD_VERSION 3\n#define EIGEN_MAJOR_VERSION 5\n"
    text += "#define EIGEN_MINOR_VERSION 0\n#define EIGEN_PATCH_VERSION 1\n"
    later = {"tensorflow/include/Eigen/Version": text, ABSEIL: HEADERS[ABSEIL]}
    assert list_header_libraries(wheel_with(tmp_path, later))[0].version == "5.0.1"


@pytest.mark.parametrize("header", HEADERS)
def test_a_version_that_no_header_states_is_not_guessed(tmp_path: Path, header: str) -> None:
    stock = wheel_with(tmp_path, {**HEADERS, header: "// #define EIGEN_WORLD_VERSION 3\n"})
    name = header.removeprefix("tensorflow/include/")
    with pytest.raises(WheelError, match=name):
        list_header_libraries(stock)


def test_a_wheel_with_all_licences_may_be_passed_on() -> None:
    check_licences(NAMES)
    moved = [name.replace("dist-info/", "dist-info/licenses/") for name in NAMES]
    check_licences(moved)


@pytest.mark.parametrize("lost", NAMES)
def test_a_wheel_that_lost_one_may_not(lost: str) -> None:
    with pytest.raises(WheelError):
        check_licences([name for name in NAMES if name != lost])


def test_a_licence_of_something_else_does_not_count() -> None:
    names = [name.replace("2.14.1.dist-info/", "2.14.1/") for name in NAMES]
    with pytest.raises(WheelError, match="LICENSE"):
        check_licences(names)


def test_the_statement_names_what_was_changed_and_from_what() -> None:
    tuned = tuned_for(("haswell", "zen4"))
    text = text_for(tuned)
    assert text.startswith("This is a modified TensorFlow. It was not published by the TensorFlow")
    for phrase in (
        "Tensorwright made version 2.14.1+haswell of\n  stock.whl\n  sha256 " + tuned.stock_sha256,
        "sources.tar.xz\n  sha256 " + tuned.source_sha256,
        "  tensorflow/__init__.py\n    a line at its end\n",
        "  *.dist-info/METADATA\n    the version\n",
        "  tensorflow/core/kernels/first.so\n",
        f"{tuned.compiler} compiled them",
    ):
        assert phrase in text
    changed, added = text.index("Changed files:"), text.index("Added files:")
    assert changed < text.index("tensorflow/__init__.py") < added
    for library in tuned.libraries:
        assert added < text.index(f"  {library.file}\n")
        assert f"  {library.file}\n    {library.target} {' '.join(library.flags)}\n" in text


def test_the_statement_says_where_eigens_sources_are() -> None:
    text = text_for(tuned_for(("haswell",)))
    assert "  Eigen 3.4.90, tensorflow/include/Eigen and tensorflow/include/unsupported/" in text
    assert "under the Mozilla Public License, Version 2.0 (https://mozilla.org/MPL/2.0/)\n" in text


def test_the_notice_of_archspecs_data_is_passed_on() -> None:
    text = text_for(tuned_for(("haswell",)))
    assert f"{DATA} holds data of archspec {version('archspec')}," in text
    assert "by Lawrence Livermore National Laboratory under Contract" in text


def test_equal_facts_give_equal_bytes() -> None:
    tuned = tuned_for(("haswell", "zen4"))
    assert text_for(tuned) == text_for(tuned)
    assert text_for(tuned) != text_for(tuned_for(("haswell",)))


def stock_with(folder: Path, *members: str) -> Path:
    path = folder / "tensorflow_cpu-2.20.0-cp311-cp311-manylinux_2_17_x86_64.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for name in members:
            archive.writestr(name, "text")
    return path


MEMBERS = (EIGEN, "tensorflow/THIRD_PARTY_NOTICES.txt")
GENERAL = "tensorflow/include/LICENSE"


def test_a_wheel_without_its_licence_gets_that_of_the_sources(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stock = stock_with(tmp_path, *MEMBERS, GENERAL)
    (tmp_path / "LICENSE").write_bytes(b"The licence\r\n")
    monkeypatch.setattr(notices, "LICENCE_SHA256", sha256(b"The licence\n").hexdigest())
    monkeypatch.setattr(notices, "_ABSEILS", sha256(b"text").hexdigest())
    assert find_missing_licence(stock, tmp_path) == {LICENCE: b"The licence\n"}
    whole = stock_with(tmp_path, *MEMBERS, GENERAL, "tensorflow_cpu-2.20.0.dist-info/LICENSE")
    assert find_missing_licence(whole, tmp_path) == {}


def test_another_licence_in_the_sources_is_not_taken_for_it(tmp_path: Path) -> None:
    stock = stock_with(tmp_path, *MEMBERS, GENERAL)
    (tmp_path / "LICENSE").write_bytes(b"All rights reserved\n")
    with pytest.raises(WheelError, match="not TensorFlow's"):
        find_missing_licence(stock, tmp_path)
    (tmp_path / "LICENSE").unlink()
    with pytest.raises(WheelError, match="lacks TensorFlow's LICENSE"):
        find_missing_licence(stock, tmp_path)


def test_a_licence_that_is_not_abseils_is_not_taken_for_it(tmp_path: Path) -> None:
    stock = stock_with(tmp_path, *MEMBERS, GENERAL, "tensorflow_cpu-2.20.0.dist-info/LICENSE")
    with pytest.raises(WheelError, match="not Abseil's licence"):
        find_missing_licence(stock, tmp_path)


@pytest.mark.toolchain
def test_the_stock_wheel_has_what_it_must(stock_arm: Environment) -> None:
    with open_wheel(stock_arm.wheel) as archive:
        check_licences(archive.namelist())
    assert list_header_libraries(stock_arm.wheel) == COMPILED
