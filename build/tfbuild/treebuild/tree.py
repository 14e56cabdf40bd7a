"""Reads the build settings of a source tree from its files.

Nothing in the tree is run. The settings come from .bazelversion, .bazelrc and its imports,
configure.py, tensorflow/tools/pip_package and the .bzl files of the tree's repositories.
"""

from __future__ import annotations

import ast
import functools
import re
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from packaging.version import Version

from tfcore import console
from tfcore.errors import TreeError

PIP_PACKAGE = "tensorflow/tools/pip_package"
_RULE = f"//{PIP_PACKAGE}:wheel"
_PROGRAM = f"//{PIP_PACKAGE}:build_pip_package"
# The folder to which the rule writes the wheel: tensorflow/tools/pip_package/utils/tf_wheel.bzl.
_RULES_FOLDER = f"bazel-bin/{PIP_PACKAGE}/wheel_house"

# Commands of an rc file whose lines `bazel build` reads (Bazel's documentation, "bazelrc").
_FOR_BUILD = frozenset({"always", "build", "common"})
_OFF = frozenset({"0", "false", "no"})
HOST_FLAG = "--distinct_host_configuration"
# The functions of configure.py that ask the user if the environment has no answer.
_ASKING = frozenset(
    {
        "get_from_env_or_user_or_default",
        "get_var",
        "prompt_loop_or_load_from_env",
        "set_action_env_var",
        "set_build_var",
    }
)
_VARIABLE = re.compile(r"[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+|CC|CXX")
_QUOTED = re.compile(r"""["']([A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+)["']""")
_LARGEST = 4_000_000
"""Size limit in bytes. The largest of these files in any release has less than a tenth of it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SourceTree:
    """The build settings that a source tree's own files state.

    `bazel` and `wheel_target` are empty if the tree does not state them; `bazel_limits` are those
    that configure.py enforces, if any. `configs` are the names that `bazel build --config`
    knows, `wheel_options` those that build_pip_package accepts. `variables` are named in
    configure.py, which asks for `questions` if the environment does not set them; `repo_env` are
    the names that the tree's repository rules can read.
    """

    folder: Path
    release: str
    bazel: str
    bazel_limits: tuple[str, str] | None
    configs: frozenset[str]
    shares_host_flags: bool
    wheel_target: str
    wheel_folder: str
    wheel_options: frozenset[str]
    variables: frozenset[str]
    questions: frozenset[str]
    repo_env: frozenset[str]


def read_tree(folder: Path) -> SourceTree:
    """Read the facts of a tree from its files. Raises TreeError if it is no TensorFlow tree, or
    if its files cannot be parsed.
    """
    read = functools.partial(_read_text, folder)
    rc = _read_required(folder, ".bazelrc")
    configure = _read_required(folder, "configure.py")
    build = _read_required(folder, f"{PIP_PACKAGE}/BUILD")
    lines = tuple(read_rc_lines(rc, functools.partial(_read_imported, folder)))
    program = read(f"{PIP_PACKAGE}/build_pip_package.sh") or ""
    script = read(f"{PIP_PACKAGE}/build_pip_package.py") or ""
    target = find_wheel_target(build)
    names, questions, limits = parse_configure(configure)
    return SourceTree(
        folder=folder,
        release=_find_release(read),
        bazel=parse_bazel_version(read(".bazelversion") or ""),
        bazel_limits=limits,
        configs=list_configs(lines),
        shares_host_flags=has_shared_host_flags(lines),
        wheel_target=target,
        wheel_folder=_RULES_FOLDER if target == _RULE else "",
        wheel_options=list_wheel_options(program + script),
        variables=names,
        questions=questions,
        repo_env=_list_repo_env(folder),
    )


def _read_required(folder: Path, name: str) -> str:
    """Read a file that every TensorFlow tree has. Raises TreeError if it is missing or empty."""
    text = _read_text(folder, name)
    if text is None:
        raise TreeError(
            f"{folder} is not a TensorFlow source tree: it has no {name}",
            hint="Pass the folder that contains configure.py and .bazelrc with --tree",
        )
    if not text.strip():
        raise TreeError(f"{folder / name} is empty", hint="Unpack the sources again")
    return text


def _read_text(folder: Path, name: str) -> str | None:
    """Return the text of a file, or None if there is none.

    Raises TreeError for a link out of the tree, bytes that are not UTF-8, a NUL, or a file of
    more than 4 MB.
    """
    path = folder / name
    try:
        if not path.resolve(strict=True).is_relative_to(folder.resolve()):
            raise TreeError(f"{path} is a link to a file outside the tree")
        if not path.is_file():
            return None
        if path.stat().st_size > _LARGEST:
            raise TreeError(
                f"{path} has {console.format_size(path.stat().st_size)}: it is not TensorFlow's"
            )
        text = path.read_bytes().decode()
    except FileNotFoundError:
        return None
    except UnicodeDecodeError as error:
        raise TreeError(f"{path} is not UTF-8 from byte {error.start} on") from error
    except (OSError, RuntimeError) as error:  # (RuntimeError: a link to itself)
        raise TreeError(f"{path} cannot be read: {error}") from error
    if "\0" in text:
        raise TreeError(f"{path} is binary: it has a NUL at character {text.index(chr(0))}")
    return text


def _find_release(read: Callable[[str], str | None]) -> str:
    """Return the release, such as 2.14.1, from the first file that states it: tf_version.bzl
    since 2.20, setup.py before.
    """
    for name, pattern in (
        ("tensorflow/tf_version.bzl", r'^TF_VERSION *= *"([^"]+)"'),
        (f"{PIP_PACKAGE}/setup.py", r"^_VERSION *= *['\"]([^'\"]+)['\"]"),
    ):
        if match := re.search(pattern, read(name) or "", re.MULTILINE):
            return match[1]
    raise TreeError(
        f"the tree has no release number in tensorflow/tf_version.bzl or {PIP_PACKAGE}/setup.py"
    )


def parse_bazel_version(text: str) -> str:
    """Return the version in .bazelversion. Only the first line counts; comments may follow it."""
    line = text.strip().partition("\n")[0].strip()
    return _require_version(line, ".bazelversion") if line else ""


def _require_version(text: str, name: str) -> str:
    """Return the text. Raises TreeError if it is no version."""
    try:
        Version(text)
    except ValueError:
        raise TreeError(f"{name} has no valid Bazel version: {text[:40]}") from None
    return text


def read_rc_lines(
    text: str, imported: Callable[[str, bool], str | None], within: tuple[str, ...] = (".bazelrc",)
) -> Iterator[tuple[str, ...]]:
    """Yield the words of each line of an rc file and of the files that it imports, in Bazel's
    order.

    `imported` returns the text of a file by its name; its second argument states whether the
    file must exist. Raises TreeError for a file that imports itself.
    """
    for line in text.replace("\\\n", "").split("\n"):
        words = tuple(_split_words(line))
        if words[:1] in {("import",), ("try-import",)} and len(words) > 1:
            name = PurePosixPath(words[1].removeprefix("%workspace%/")).as_posix()
            if name in within:
                raise TreeError(f"{name} imports itself through {' and '.join(within)}")
            imported_text = imported(name, words[0] == "import")
            if imported_text is not None:
                yield from read_rc_lines(imported_text, imported, (*within, name))
        elif words:
            yield words


def _split_words(line: str) -> Iterator[str]:
    """Yield the words of a line up to a comment. Quotes are only stripped: no name that is
    searched for contains any.
    """
    for word in line.split():
        if word.startswith("#"):
            return
        yield word.strip("\"'")


def _read_imported(folder: Path, name: str, needed: bool) -> str | None:
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts:
        return None  # (a file of the machine, not of the tree)
    text = _read_text(folder, name)
    if text is None and needed:
        raise TreeError(f".bazelrc imports {name}, which is not in the tree")
    return text


def list_configs(lines: Iterable[tuple[str, ...]]) -> frozenset[str]:
    """Return the names that `bazel build --config=NAME` finds in these lines."""
    heads = (words[0].partition(":") for words in lines)
    return frozenset(name for command, _, name in heads if command in _FOR_BUILD and name)


def has_shared_host_flags(lines: Iterable[tuple[str, ...]]) -> bool:
    """Return whether tools that run during the build are compiled with the target's flags on
    Linux. The last of several lines counts.
    """
    shared = False
    for command, *flags in lines:
        if command in {"build", "common", "build:linux", "common:linux"}:
            for flag in flags:
                name, _, value = flag.partition("=")
                if name == HOST_FLAG.replace("--", "--no"):
                    shared = True
                elif name == HOST_FLAG:
                    shared = value in _OFF
    return shared


def find_wheel_target(build: str) -> str:
    """Return the target that makes the wheel in tools/pip_package/BUILD: the rule `wheel` since
    2.17, the program build_pip_package before, or an empty string if it has neither.
    """
    names = set()
    for call in _iter_calls(_parse_starlark(build, f"{PIP_PACKAGE}/BUILD")):
        for keyword in call.keywords:
            if keyword.arg == "name" and isinstance(keyword.value, ast.Constant):
                names.add(keyword.value.value)
    if "wheel" in names:
        return _RULE
    return _PROGRAM if "build_pip_package" in names else ""


def list_wheel_options(program: str) -> frozenset[str]:
    """Return the options that build_pip_package.sh compares its arguments with, or that
    build_pip_package.py adds.
    """
    compared = re.findall(r"""["']?\$\{?[0-9]\b[^=\n]*==? *["']?(--[a-z_-]+)""", program)
    added = re.findall(r"""add_argument\(\s*["'](--[a-z_-]+)""", program)
    return frozenset(compared + added)


def parse_configure(
    configure: str,
) -> tuple[frozenset[str], frozenset[str], tuple[str, str] | None]:
    """Return the variables of configure.py: all that it names, those that it asks the user for,
    and the oldest and newest Bazel that it accepts, if it states them (_TF_MIN_BAZEL_VERSION,
    up to 2.9).
    """
    tree = _parse_starlark(configure, "configure.py")
    named = frozenset(text for text in _iter_strings(ast.walk(tree)) if _VARIABLE.fullmatch(text))
    prompted = {
        text
        for call in _iter_calls(tree)
        if isinstance(call.func, ast.Name) and call.func.id in _ASKING
        for text in _iter_strings([*call.args[:2], *(word.value for word in call.keywords)])
    }
    return named, named & prompted, _find_bazel_limits(tree)


def _find_bazel_limits(configure: ast.Module) -> tuple[str, str] | None:
    values = {
        target.id: str(node.value.value)
        for node in configure.body
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    oldest, newest = (values.get(f"_TF_{end}_BAZEL_VERSION") for end in ("MIN", "MAX"))
    if oldest is None or newest is None:
        return None
    return _require_version(oldest, "configure.py"), _require_version(newest, "configure.py")


def _iter_strings(nodes: Iterable[ast.AST]) -> Iterator[str]:
    for node in nodes:
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def _iter_calls(tree: ast.AST) -> Iterator[ast.Call]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.Call))


def _parse_starlark(text: str, name: str) -> ast.Module:
    """Parse Starlark, the language of BUILD files, which has Python's syntax. Raises TreeError."""
    try:
        with warnings.catch_warnings(action="ignore"):
            return ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise TreeError(f"{name} cannot be parsed: {str(error) or type(error).__name__}") from error


def _list_repo_env(folder: Path) -> frozenset[str]:
    """Return every quoted name in the .bzl files that read the environment."""
    names: set[str] = set()
    for root in ("third_party", "tensorflow"):
        for path in sorted((folder / root).rglob("*.bzl")):
            text = _read_text(folder, str(path.relative_to(folder))) or ""
            if re.search(r"\b(?:environ|getenv|get_host_environ)\b", text):
                names.update(_QUOTED.findall(text))
    return frozenset(names)
