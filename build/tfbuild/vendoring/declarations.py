"""The archives that a source tree declares, read from its files without Bazel or a network.

WORKSPACE and the .bzl files that it loads are Starlark, which Python's parser reads. Nothing is
run: constants, string formatting and tf_mirror_urls are worked out, as TensorFlow's declarations
use nothing else.
"""

from __future__ import annotations

import ast
import re
import warnings
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tfbuild.errors import TreeError, VendorError
from tfbuild.records import write_atomic

_ROOTS = ("WORKSPACE", "WORKSPACE.bazel")
_OWN = ("@//", "@org_tensorflow//", "//")
_URLS = ("urls", "url", "jar_urls")
# third_party/repo.bzl: the same for every release that has this function.
_MIRROR = "https://storage.googleapis.com/mirror.tensorflow.org/"
_SHA256 = re.compile(r"[0-9a-f]{64}|")
Names = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True, slots=True)
class DeclaredArchive:
    """A file that a repository rule downloads. `sha256` is empty where the rule pins none; `origin`
    is the declaring file in the tree."""

    name: str
    urls: tuple[str, ...]
    sha256: str
    origin: str

    @property
    def file(self) -> str:
        return file_of(self.urls[0])


@dataclass(frozen=True, kw_only=True, slots=True)
class Declarations:
    """`elsewhere` are the labels of other repositories' files whose functions are called: what they
    declare is known only when they have been fetched. `unread` are rules (file:line) whose
    addresses could not be worked out.
    """

    archives: tuple[DeclaredArchive, ...]
    elsewhere: tuple[str, ...]
    unread: tuple[str, ...]


class _UnknownError(Exception):
    """An expression that is more than what is worked out here."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Rule:
    """A call with an address in it, and the names that are known where it stands."""

    origin: str
    call: ast.Call
    words: Mapping[str, ast.expr]
    names: Names


def file_of(url: str) -> str:
    """The name of an archive: the end of a rule's first address. Two may have one name."""
    name = url.partition("?")[0].rpartition("/")[2]
    return "" if name in {".", ".."} else name


def declared(tree: Path) -> Declarations:
    """What WORKSPACE and the files that it loads from the tree declare. Raises TreeError."""
    archives: dict[DeclaredArchive, None] = {}
    elsewhere: set[str] = set()
    unread: list[str] = []
    for origin, module in _modules(tree):
        elsewhere |= _foreign(module)
        for rule in _rules(origin, module):
            try:
                archives |= dict.fromkeys(_archives(rule))
            except _UnknownError:
                unread.append(f"{origin}:{rule.call.lineno}")
    return Declarations(
        archives=tuple(sorted(archives, key=lambda each: (each.name.lower(), each.sha256))),
        elsewhere=tuple(sorted(elsewhere)),
        unread=tuple(unread),
    )


def pin(tree: Path, pins: Mapping[str, str]) -> tuple[str, ...]:
    """Write a sha256 into each of the tree's rules that has none, by the rule's name; the changed
    files. Bazel takes a file without a network only by its hash. Raises TreeError, VendorError.
    """
    left = dict(pins)
    changed = []
    for origin, module in _modules(tree):
        places = []
        for rule in _rules(origin, module):
            name = _name(rule)
            if name not in pins:
                continue
            match rule.words.get("sha256", rule.words.get("integrity")):
                case None:
                    places.append((rule.call, pins[name]))
                    left.pop(name, None)
                case ast.Constant(value=value) if value == pins[name]:  # (by an earlier run)
                    left.pop(name, None)
        if places:
            path = tree / origin
            write_atomic(path, _inserted(path.read_bytes(), places))
            changed.append(origin)
    if left:
        raise VendorError(
            f"no rule of the tree can be given a hash under the name {', '.join(sorted(left))}",
            hint="Another repository declares it: give Bazel a copy with --override_repository",
        )
    return tuple(changed)


def _inserted(source: bytes, places: list[tuple[ast.Call, str]]) -> bytes:
    """The source with `sha256` as the first argument of these calls, last call first."""
    lines = source.splitlines(keepends=True)
    for call, sha256 in sorted(places, key=lambda place: -(place[0].func.end_lineno or 0)):
        row, column = (call.func.end_lineno or 1) - 1, call.func.end_col_offset or 0
        head, bracket, tail = lines[row][:column], *lines[row][column:].partition(b"(")[1:]
        lines[row] = head + bracket + f'sha256 = "{sha256}", '.encode() + tail
    return b"".join(lines)


def _modules(tree: Path) -> Iterator[tuple[str, ast.Module]]:
    """Every file that WORKSPACE leads to inside the tree, once, with its path in the tree."""
    waiting = deque(name for name in _ROOTS if (tree / name).is_file())
    if not waiting:
        raise TreeError(f"{tree} has no WORKSPACE", hint="Give the folder of a TensorFlow tree")
    seen = set(waiting)
    while waiting:
        origin = waiting.popleft()
        try:
            with warnings.catch_warnings(action="ignore"):  # (what Python says of escapes)
                module = ast.parse((tree / origin).read_bytes())
        except (OSError, SyntaxError, ValueError, RecursionError, MemoryError) as error:
            said = str(error) or type(error).__name__
            raise TreeError(f"{origin} cannot be read as Starlark: {said}") from error
        yield origin, module
        found = {_inside(label, origin) for label in _loads(module)} - seen
        fresh = sorted(path for path in found if path and _is_file(tree / path))
        seen |= found
        waiting += fresh


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:  # (a label that is too long for a name)
        return False


def _loads(module: ast.Module) -> dict[str, tuple[str, ...]]:
    """Loaded label → the names that it gives this file."""
    found: dict[str, tuple[str, ...]] = {}
    for statement in module.body:
        match statement:
            case ast.Expr(
                value=ast.Call(
                    func=ast.Name(id="load"),
                    args=[ast.Constant(value=str(label)), *plain],
                    keywords=renamed,
                )
            ):
                given = [each.value for each in plain if isinstance(each, ast.Constant)]
                names = (*map(str, given), *(word.arg for word in renamed if word.arg))
                found[label] = (*found.get(label, ()), *names)
    return found


def _inside(label: str, origin: str) -> str:
    """The path in the tree of a label; empty for another repository's."""
    if label.startswith(":"):
        folder = origin.rpartition("/")[0]
        return f"{folder}/{label[1:]}".lstrip("/")
    for start in _OWN:
        if label.startswith(start):
            path = label.removeprefix(start).replace(":", "/").lstrip("/")
            return "" if ".." in path.split("/") else path
    return ""


def _foreign(module: ast.Module) -> set[str]:
    """Labels of other repositories whose functions this file calls as statements."""
    called = {
        node.value.func.id
        for node in ast.walk(module)
        if isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Call)
        and isinstance(node.value.func, ast.Name)
    }
    return {
        label
        for label, names in _loads(module).items()
        if label.startswith("@")
        and not label.startswith((*_OWN, "@bazel_tools//"))
        and called & set(names)
    }


def _rules(origin: str, module: ast.Module) -> Iterator[_Rule]:
    """Calls that name a repository and its addresses; not the macros that only hand them on."""
    outer = _assigned(module.body, {})
    for statement in module.body:
        names, handed = outer, set[str]()
        if isinstance(statement, ast.FunctionDef):
            handed = {argument.arg for argument in statement.args.args}
            names = _assigned(statement.body, {**outer, **_defaults(statement.args)})
        for node in ast.walk(statement):
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
                continue
            words = {word.arg: word.value for word in node.keywords if word.arg}
            address = next((words[key] for key in (*_URLS, "sha256_urls") if key in words), None)
            passed_on = isinstance(address, ast.Name) and address.id in handed
            if "name" in words and address is not None and not passed_on:
                yield _Rule(origin=origin, call=node, words=words, names=names)


def _defaults(arguments: ast.arguments) -> dict[str, Any]:
    """Parameters with the constants that they default to."""
    count = len(arguments.defaults)
    pairs = zip(arguments.args[len(arguments.args) - count :], arguments.defaults, strict=True)
    return {each.arg: node.value for each, node in pairs if isinstance(node, ast.Constant)}


def _assigned(body: list[ast.stmt], names: Names) -> Names:
    """The names, with what plain assignments in the body give."""
    known = dict(names)
    for statement in body:
        match statement:
            case ast.Assign(targets=[ast.Name(id=name)], value=node):
                try:
                    known[name] = _value(node, known)
                except _UnknownError:
                    known.pop(name, None)
    return known


def _archives(rule: _Rule) -> Iterator[DeclaredArchive]:
    """One archive, or for filegroup_external as many as it has hashes."""
    for urls, sha256 in _addresses(rule):
        listed = (urls,) if isinstance(urls, str) else tuple(urls)
        if not listed or not all(isinstance(each, str) for each in (*listed, sha256)):
            raise _UnknownError
        pinned = sha256.lower()  # (as Bazel reads it)
        if not _SHA256.fullmatch(pinned):
            raise _UnknownError
        yield DeclaredArchive(name=_name(rule), urls=listed, sha256=pinned, origin=rule.origin)


def _addresses(rule: _Rule) -> Iterator[tuple[Any, Any]]:
    if "sha256_urls" in rule.words:
        by_hash = _value(rule.words["sha256_urls"], rule.names)
        yield from ((urls, sha256) for sha256, urls in by_hash.items())
        return
    address = next(rule.words[key] for key in _URLS if key in rule.words)
    sha256 = rule.words.get("sha256", rule.words.get("jar_sha256", ast.Constant(value="")))
    yield _value(address, rule.names), _value(sha256, rule.names)


def _name(rule: _Rule) -> str:
    """The repository's name; that of the declaring folder where the caller of a macro gives it."""
    try:
        return str(_value(rule.words["name"], rule.names))
    except _UnknownError:
        return rule.origin.rpartition("/")[0].rpartition("/")[2] or rule.origin


_FAILURES: Final = (KeyError, IndexError, TypeError, ValueError, AttributeError)


def _value(node: ast.expr, names: Names) -> Any:  # noqa: ANN401  (what Starlark can hold)
    """The value of an expression. Raises _UnknownError for all that declarations do not use."""
    try:
        return _worked_out(node, names)
    except _FAILURES as error:
        raise _UnknownError from error


def _worked_out(node: ast.expr, names: Names) -> Any:  # noqa: ANN401  (what Starlark can hold)
    match node:
        case ast.Constant(value=value):
            return value
        case ast.Name(id=name):
            return names[name]
        case ast.List(elts=members):
            return [_value(each, names) for each in members]
        case ast.Tuple(elts=members):
            return tuple(_value(each, names) for each in members)
        case ast.Dict(keys=keys, values=values):
            pairs = zip(keys, values, strict=True)
            return {_value(key, names): _value(each, names) for key, each in pairs if key}
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return _value(left, names) + _value(right, names)
        case ast.BinOp(left=left, op=ast.Mod(), right=right):
            return _value(left, names) % _value(right, names)
        case ast.Call(func=ast.Attribute(value=text, attr="format"), args=args, keywords=words):
            given = {word.arg: _value(word.value, names) for word in words if word.arg}
            return _value(text, names).format(*(_value(each, names) for each in args), **given)
        case ast.Call(func=ast.Name(id="tf_mirror_urls"), args=[address]):
            url = _value(address, names)
            rest = url.removeprefix("https://")
            return [url] if rest == url else [_MIRROR + rest, url]
    raise _UnknownError
