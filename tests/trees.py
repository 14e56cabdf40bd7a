"""Trees shaped like TensorFlow's, made from tests/data/tensorflow_like."""

from __future__ import annotations

import shutil
from pathlib import Path

from packaging.version import Version
from tests.planned import planned

from tfbuild.planning import render
from tfbuild.settings import Places
from tfbuild.tools import bazel
from tfbuild.tools.bazel import Bazel

LIKE = Path(__file__).with_name("data") / "tensorflow_like"
PIP_PACKAGE = Path("tensorflow/tools/pip_package")

# From 2.17 on Bazel makes the wheel itself, in a folder of its own.
_BY_RULE = """genrule(
    name = "wheel",
    srcs = [
        "setup.py",
        "//tensorflow:__init__.py",
        "//tensorflow:libtensorflow_cc.so.2",
    ],
    outs = ["wheel_house/{file}"],
    cmd = "$$PYTHON_BIN_PATH $(location setup.py) $(location //tensorflow:libtensorflow_cc.so.2)" +
          " $(location //tensorflow:__init__.py) tensorflow_cpu $$(dirname $@)",
)
"""


def make_tree(
    folder: Path, release: str = "2.14.1", *, bazel: str = "", python: str = "311"
) -> Path:
    """A copy of the workspace in `folder` that says it is `release` and made for `bazel`."""
    shutil.copytree(LIKE, folder, dirs_exist_ok=True)
    if bazel:
        (folder / ".bazelversion").write_text(f"{bazel}\n")
    setup = folder / PIP_PACKAGE / "setup.py"
    setup.write_text(setup.read_text().replace("2.14.1", release))
    if Version(release) >= Version("2.17"):
        file = f"tensorflow_cpu-{release}-cp{python}-cp{python}-linux_x86_64.whl"
        (folder / PIP_PACKAGE / "BUILD").write_text(_BY_RULE.format(file=file))
    return folder


def repository_options(found: Bazel, places: Places) -> tuple[str, ...]:
    """Where Debian's Bazel finds what belongs to any Bazel; nothing for another."""
    rules_cc = places.tools / "rules_cc"
    render.write(render.repositories(planned(), places.templates)["rules_cc"], rules_cc)
    return bazel.repository_options(found, {"rules_cc": rules_cc})
