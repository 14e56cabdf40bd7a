"""Trees shaped like TensorFlow's, made from tests/data/tensorflow_like."""

from __future__ import annotations

import shutil
import tomllib
from pathlib import Path
from typing import Any

import pytest
from packaging.version import Version

from tfbuild.planning import render
from tfbuild.tools import bazel
from tfbuild.tools.bazel import Bazel
from tfbuild.upstream.releases import load_releases
from tfcore.settings import ROOT, Paths

LIKE = ROOT / "tests" / "data" / "tensorflow_like"
FACTS = ROOT / "tests" / "data" / "trees" / "trees.toml"
PIP_PACKAGE = Path("tensorflow/tools/pip_package")
EVERY_RELEASE = pytest.mark.parametrize(
    "release", load_releases(), ids=lambda release: release.version
)

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


def repository_options(bazel_tool: Bazel, paths: Paths) -> tuple[str, ...]:
    """Where Debian's Bazel finds what belongs to any Bazel; nothing for another."""
    rules_cc = paths.tools / "rules_cc"
    render.write(render.render_rules_cc(paths.templates), rules_cc)
    return bazel.build_repository_options(bazel_tool, {"rules_cc": rules_cc})


# What a reduced tree has of build_pip_package.sh, in which a word is compared as in the real one.
_PROGRAM = """#!/bin/sh
if [[ "$1" == "--cpu" ]]; then PKG=1
elif [[ "$1" == "--project_name" ]]; then PKG=2
fi
"""


def facts_of(release: str) -> dict[str, Any]:
    """What this release's tree says of itself, from tests/data/trees/trees.toml."""
    table = tomllib.loads(FACTS.read_text(encoding="utf-8"))
    row, common = table[release], table["every"]
    questions = common["questions"] + [
        name for key in row["questions"] for name in table["sets"][key]
    ]
    configs = [*common["configs"], *row["configs"]]
    return {**row, "configs": configs, "questions": questions, "named": common["named"]}


def reduced_tree(folder: Path, release: str) -> Path:
    """The files that read_tree reads, with what this release's tree says of itself. Nothing can be
    built from them; make_tree makes a tree that can."""
    facts = facts_of(release)
    by_rule = facts["target"] == "wheel"
    rule = "tf_wheel" if by_rule else "sh_binary"
    files = {
        ".bazelversion": f"{facts['bazel']}\n# the release's own\n",
        ".bazelrc": _bazelrc(facts),
        "configure.py": _configure(facts),
        f"{PIP_PACKAGE}/BUILD": f'{rule}(\n    name = "{facts["target"]}",\n)\n',
        "third_party/py/python_repo.bzl": "".join(
            f'VALUE = ctx.os.environ.get("{name}", "")\n' for name in facts["repo_env"]
        ),
    }
    if Version(release) >= Version("2.20"):
        files["tensorflow/tf_version.bzl"] = f'TF_VERSION = "{release}"\n'
    else:
        files[f"{PIP_PACKAGE}/setup.py"] = f"_VERSION = '{release}'\n"
    if not by_rule:
        files[f"{PIP_PACKAGE}/build_pip_package.sh"] = _PROGRAM
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def change(folder: Path, name: str, old: str, new: str) -> Path:
    """Replace a text that is there, everywhere in one file."""
    path = folder / name
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))
    return folder


def _bazelrc(facts: dict[str, Any]) -> str:
    lines = [f"build:{name} --define=is_{name}=true" for name in facts["configs"]]
    lines += ["# build:commented --copt=-w", "test:tests_only --test_tag_filters=-gpu"]
    if facts["shares_host_flags"]:
        lines.append("build:linux --distinct_host_configuration=false")
    imports = ("%workspace%/.tf_configure.bazelrc", "%workspace%/.bazelrc.user")
    return "\n".join([*lines, *(f"try-import {name}" for name in imports)]) + "\n"


def _configure(facts: dict[str, Any]) -> str:
    lines = ["import os", "environ_cp = dict(os.environ)"]
    for end, version in zip(("MIN", "MAX"), facts.get("bazel_limits", ()), strict=False):
        lines.append(f"_TF_{end}_BAZEL_VERSION = '{version}'")
    lines += [f"environ_cp.get('{name}')" for name in facts["named"]]
    lines += [f"get_var(environ_cp, '{name}', 'it', False)" for name in facts["questions"][::2]]
    lines += [
        f"prompt_loop_or_load_from_env(environ_cp, var_name='{name}')"
        for name in facts["questions"][1::2]
    ]
    return "\n".join(lines) + "\n"
