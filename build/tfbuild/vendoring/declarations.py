"""Reads the archives that a source tree declares, without Bazel or a network.

WORKSPACE and the .bzl files that it loads are Starlark, which Python's parser can read. Nothing is
run: only constants, string formatting and tf_mirror_urls are evaluated, since TensorFlow's
declarations use nothing else.
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

from tfcore.errors import TreeError, VendorError
from tfcore.records import write_atomic

_ROOTS = ("WORKSPACE", "WORKSPACE.bazel")
_OWN = ("@//", "@org_tensorflow//", "//")
_URLS = ("urls", "url", "jar_urls")
# third_party/repo.bzl: the same for every release that has this function.
_MIRROR = "https://storage.googleapis.com/mirror.tensorflow.org/"
_SHA256 = re.compile(r"[0-9a-f]{64}|")
Names = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True, slots=True)
class DeclaredArchive:
    """An archive that a repository rule downloads. `sha256` is empty if the rule pins none;
    `origin` is the declaring file in the tree.
    """

    name: str
    urls: tuple[str, ...]
    sha256: str
    origin: str

    @property
    def file(self) -> str:
        return parse_file_name(self.urls[0])


@dataclass(frozen=True, kw_only=True, slots=True)
class Declarations:
    """The archives that a source tree declares.

    `elsewhere` are the labels of files in other repositories whose functions are called:
    their declarations are known only once they are fetched. `unread` are the rules
    (file:line) whose addresses could not be evaluated.
    """

    archives: tuple[DeclaredArchive, ...]
    elsewhere: tuple[str, ...]
    unread: tuple[str, ...]


class _UnknownError(Exception):
    """Raised for an expression that this module does not evaluate."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Rule:
    """A call with an address among its arguments, and the names known at that point of the file."""

    origin: str
    call: ast.Call
    words: Mapping[str, ast.expr]
    names: Names


def parse_file_name(url: str) -> str:
    """Return the file name at the end of a rule's first address. Two archives may share one
    name.
    """
    name = url.partition("?")[0].rpartition("/")[2]
    return "" if name in {".", ".."} else name


def read_declarations(tree: Path) -> Declarations:
    """Read the declarations of WORKSPACE and of the files that it loads from the tree. Raises
    TreeError.
    """
    archives: dict[DeclaredArchive, None] = {}
    elsewhere: set[str] = set()
    unread: list[str] = []
    for origin, module in _iter_modules(tree):
        elsewhere |= _list_foreign_labels(module)
        for rule in _iter_rules(origin, module):
            try:
                archives |= dict.fromkeys(_iter_archives(rule))
            except _UnknownError:
                unread.append(f"{origin}:{rule.call.lineno}")
    return Declarations(
        archives=tuple(
            sorted(archives, key=lambda archive: (archive.name.lower(), archive.sha256))
        ),
        elsewhere=tuple(sorted(elsewhere)),
        unread=tuple(unread),
    )


def pin_hashes(tree: Path, pins: Mapping[str, str]) -> tuple[str, ...]:
    """Write a sha256 into each of the tree's rules that has none, looked up by the rule's name,
    and return the changed files.

    Bazel accepts a file without a network only by its hash. Raises TreeError, VendorError.
    """
    unpinned = dict(pins)
    changed = []
    for origin, module in _iter_modules(tree):
        insertions = []
        for rule in _iter_rules(origin, module):
            name = _get_repository_name(rule)
            if name not in pins:
                continue
            match rule.words.get("sha256", rule.words.get("integrity")):
                case None:
                    insertions.append((rule.call, pins[name]))
                    unpinned.pop(name, None)
                case ast.Constant(value=value) if value == pins[name]:  # (by an earlier run)
                    unpinned.pop(name, None)
        if insertions:
            path = tree / origin
            write_atomic(path, _insert_hashes(path.read_bytes(), insertions))
            changed.append(origin)
    if unpinned:
        raise VendorError(
            f"no rule of the tree can take the hash of {', '.join(sorted(unpinned))}",
            hint="Another repository declares it. Pass a copy with Bazel's --override_repository",
        )
    return tuple(changed)


def _insert_hashes(source: bytes, places: list[tuple[ast.Call, str]]) -> bytes:
    """Return the source with `sha256` as the first argument of these calls, inserted from the
    last call to the first.
    """
    lines = source.splitlines(keepends=True)
    for call, sha256 in sorted(places, key=lambda place: -(place[0].func.end_lineno or 0)):
        row, column = (call.func.end_lineno or 1) - 1, call.func.end_col_offset or 0
        head, bracket, tail = lines[row][:column], *lines[row][column:].partition(b"(")[1:]
        lines[row] = head + bracket + f'sha256 = "{sha256}", '.encode() + tail
    return b"".join(lines)


def _iter_modules(tree: Path) -> Iterator[tuple[str, ast.Module]]:
    """Yield every file that WORKSPACE reaches inside the tree once: its path in the tree, and
    its syntax tree.
    """
    queue = deque(name for name in _ROOTS if (tree / name).is_file())
    if not queue:
        raise TreeError(f"{tree} has no WORKSPACE", hint="Pass a TensorFlow source tree")
    visited = set(queue)
    while queue:
        origin = queue.popleft()
        try:
            with warnings.catch_warnings(action="ignore"):  # (Python warns of invalid escapes)
                module = ast.parse((tree / origin).read_bytes())
        except (OSError, SyntaxError, ValueError, RecursionError, MemoryError) as error:
            reason = str(error) or type(error).__name__
            raise TreeError(f"{origin} cannot be parsed as Starlark: {reason}") from error
        yield origin, module
        loaded = {_resolve_label(label, origin) for label in _list_loads(module)} - visited
        new_paths = sorted(path for path in loaded if path and _is_file(tree / path))
        visited |= loaded
        queue += new_paths


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:  # (a label that is too long for a file name)
        return False


def _list_loads(module: ast.Module) -> dict[str, tuple[str, ...]]:
    """Return a map from each loaded label to the names that it defines in this file."""
    loads: dict[str, tuple[str, ...]] = {}
    for statement in module.body:
        match statement:
            case ast.Expr(
                value=ast.Call(
                    func=ast.Name(id="load"),
                    args=[ast.Constant(value=str(label)), *plain],
                    keywords=renamed,
                )
            ):
                positional = [
                    argument.value for argument in plain if isinstance(argument, ast.Constant)
                ]
                names = (*map(str, positional), *(word.arg for word in renamed if word.arg))
                loads[label] = (*loads.get(label, ()), *names)
    return loads


def _resolve_label(label: str, origin: str) -> str:
    """Return the path of a label in the tree, or an empty string for a label of another
    repository.
    """
    if label.startswith(":"):
        folder = origin.rpartition("/")[0]
        return f"{folder}/{label[1:]}".lstrip("/")
    for start in _OWN:
        if label.startswith(start):
            path = label.removeprefix(start).replace(":", "/").lstrip("/")
            return "" if ".." in path.split("/") else path
    return ""


def _list_foreign_labels(module: ast.Module) -> set[str]:
    """List the labels of other repositories whose functions this file calls as statements."""
    called = {
        node.value.func.id
        for node in ast.walk(module)
        if isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Call)
        and isinstance(node.value.func, ast.Name)
    }
    return {
        label
        for label, names in _list_loads(module).items()
        if label.startswith("@")
        and not label.startswith((*_OWN, "@bazel_tools//"))
        and called & set(names)
    }


def _iter_rules(origin: str, module: ast.Module) -> Iterator[_Rule]:
    """Yield the calls that name a repository and its addresses, excluding macros that only pass
    their parameters on.
    """
    outer = _apply_assignments(module.body, {})
    for statement in module.body:
        names, parameters = outer, set[str]()
        if isinstance(statement, ast.FunctionDef):
            parameters = {argument.arg for argument in statement.args.args}
            names = _apply_assignments(statement.body, {**outer, **_read_defaults(statement.args)})
        for node in ast.walk(statement):
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
                continue
            keywords = {word.arg: word.value for word in node.keywords if word.arg}
            address = next(
                (keywords[key] for key in (*_URLS, "sha256_urls") if key in keywords), None
            )
            passed_on = isinstance(address, ast.Name) and address.id in parameters
            if "name" in keywords and address is not None and not passed_on:
                yield _Rule(origin=origin, call=node, words=keywords, names=names)


def _read_defaults(arguments: ast.arguments) -> dict[str, Any]:
    """Return the parameters whose default is a constant, with that constant."""
    count = len(arguments.defaults)
    pairs = zip(arguments.args[len(arguments.args) - count :], arguments.defaults, strict=True)
    return {argument.arg: node.value for argument, node in pairs if isinstance(node, ast.Constant)}


def _apply_assignments(body: list[ast.stmt], names: Names) -> Names:
    """Return the names, updated by the plain assignments in the body."""
    known = dict(names)
    for statement in body:
        match statement:
            case ast.Assign(targets=[ast.Name(id=name)], value=node):
                try:
                    known[name] = _evaluate(node, known)
                except _UnknownError:
                    known.pop(name, None)
    return known


def _iter_archives(rule: _Rule) -> Iterator[DeclaredArchive]:
    """Yield one archive, or for filegroup_external one per hash."""
    for urls, sha256 in _iter_addresses(rule):
        addresses = (urls,) if isinstance(urls, str) else tuple(urls)
        if not addresses or not all(isinstance(value, str) for value in (*addresses, sha256)):
            raise _UnknownError
        pinned = sha256.lower()  # (Bazel ignores case)
        if not _SHA256.fullmatch(pinned):
            raise _UnknownError
        yield DeclaredArchive(
            name=_get_repository_name(rule), urls=addresses, sha256=pinned, origin=rule.origin
        )


def _iter_addresses(rule: _Rule) -> Iterator[tuple[Any, Any]]:
    """Yield the addresses and the SHA-256 of each archive of a rule."""
    if "sha256_urls" in rule.words:
        by_hash = _evaluate(rule.words["sha256_urls"], rule.names)
        yield from ((urls, sha256) for sha256, urls in by_hash.items())
        return
    address = next(rule.words[key] for key in _URLS if key in rule.words)
    sha256 = rule.words.get("sha256", rule.words.get("jar_sha256", ast.Constant(value="")))
    yield _evaluate(address, rule.names), _evaluate(sha256, rule.names)


def _get_repository_name(rule: _Rule) -> str:
    """Return the repository's name, or the name of the declaring folder if the caller of a macro
    passes it.
    """
    try:
        return str(_evaluate(rule.words["name"], rule.names))
    except _UnknownError:
        return rule.origin.rpartition("/")[0].rpartition("/")[2] or rule.origin


_FAILURES: Final = (KeyError, IndexError, TypeError, ValueError, AttributeError)


def _evaluate(node: ast.expr, names: Names) -> Any:  # noqa: ANN401  (any Starlark value)
    """Evaluate an expression. Raises _UnknownError for anything that the declarations do not
    use.
    """
    try:
        return _evaluate_node(node, names)
    except _FAILURES as error:
        raise _UnknownError from error


def _evaluate_node(node: ast.expr, names: Names) -> Any:  # noqa: ANN401  (any Starlark value)
    match node:
        case ast.Constant(value=value):
            return value
        case ast.Name(id=name):
            return names[name]
        case ast.List(elts=members):
            return [_evaluate(member, names) for member in members]
        case ast.Tuple(elts=members):
            return tuple(_evaluate(member, names) for member in members)
        case ast.Dict(keys=keys, values=values):
            pairs = zip(keys, values, strict=True)
            return {_evaluate(key, names): _evaluate(member, names) for key, member in pairs if key}
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return _evaluate(left, names) + _evaluate(right, names)
        case ast.BinOp(left=left, op=ast.Mod(), right=right):
            return _evaluate(left, names) % _evaluate(right, names)
        case ast.Call(func=ast.Attribute(value=text, attr="format"), args=args, keywords=words):
            keywords = {word.arg: _evaluate(word.value, names) for word in words if word.arg}
            return _evaluate(text, names).format(
                *(_evaluate(member, names) for member in args), **keywords
            )
        case ast.Call(func=ast.Name(id="tf_mirror_urls"), args=[address]):
            url = _evaluate(address, names)
            bare_url = url.removeprefix("https://")
            return [url] if bare_url == url else [_MIRROR + bare_url, url]
    raise _UnknownError
