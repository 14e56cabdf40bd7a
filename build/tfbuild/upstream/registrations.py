"""Which kernel sources register which ops for the CPU, read from the sources themselves.

A registration is REGISTER_KERNEL_BUILDER(Name("X").Device(DEVICE_CPU)…, Class), mostly written by
macros of the source or of the headers beside it. So those macros are expanded as the preprocessor
would (C++17, [cpp.replace]), as far as registrations need it: names of ops and devices. Types that
a registration is limited to are not looked at; compiled libraries say those.
"""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tfbuild.upstream.kernels import FOLDER

# Headers of the framework whose macros and constants registrations are written with.
_FRAMEWORK = tuple(
    f"tensorflow/core/framework/{name}.h" for name in ("register_types", "dataset", "function")
)
_SKIPPED = ("_test.cc", "_gpu.cc", ".cu.cc", "_testlib.cc", "_test_util.cc", "_benchmark.cc")
_SKIPPED_FOLDERS = ("mkl", "fuzzing", "mlir_generated")
_DEEPEST = 40  # macros in macros, and calls in calls

_COMMENT = re.compile(r'//[^\n]*|/\*.*?\*/|("(?:\\.|[^"\\\n])*")', re.DOTALL)
_DIRECTIVE = re.compile(r"[ \t]*#[ \t]*(\w+)[ \t]*(.*)")
_DEFINITION = re.compile(r"(\w+)(?:\(([^)]*)\))?[ \t]*(.*)", re.DOTALL)
_BUILDER = re.compile(r"\bREGISTER_(?:SYSTEM_)?KERNEL_BUILDER\s*\(")
_CONSTANT = re.compile(r'\bchar\b[\s*]*(?:const\s+)?(\w+)(?:\[\])?\s*=\s*"([^"]*)"')
_NAME = re.compile(r"\bName\(((?:[^()]|\([^()]*\))*)\)")
_LITERAL = re.compile(r'"([^"]*)"')
_DEVICE = re.compile(r'\bDevice\(\s*(?:[\w:]*\bDEVICE_CPU|"CPU")\s*\)')
_WORD = re.compile(r'"(?:\\.|[^"\\])*"|\b[A-Za-z_]\w*')


@dataclass(frozen=True, slots=True)
class _Macro:
    """`parameters` is None for one that is written without brackets."""

    parameters: tuple[str, ...] | None
    body: str


@dataclass(slots=True)
class _State:
    """Where the preprocessor is in one source: what is defined, what was read, what was found."""

    texts: Mapping[str, str]
    macros: dict[str, _Macro]
    read: set[str] = field(default_factory=set)
    constants: dict[str, str] = field(default_factory=dict)
    found: set[str] = field(default_factory=set)


def ops_of(source: str, texts: Mapping[str, str], defines: Mapping[str, str]) -> frozenset[str]:
    """The ops that a source registers for the CPU.

    `texts` are the files that it may include, by their paths in the tree, and itself, all `plain`;
    `defines` is what the compiler is told (-D).
    """
    macros = {name: _Macro(None, value) for name, value in defines.items()}
    state = _State(texts, macros)
    _read(source, state)
    return frozenset(state.found)


@functools.cache
def registrations(tree: Path, defines: tuple[str, ...] = ()) -> Mapping[str, tuple[str, ...]]:
    """Source (as in tensorflow/core/kernels/…, without it) → the ops that it registers for the CPU.

    `tree` holds TensorFlow's sources, `defines` are NAME or NAME=VALUE as after -D. Sources that
    register none have a row, too: others may need what they define.
    """
    folder = tree / FOLDER
    files = [path for kind in ("*.cc", "*.h", "*.inc") for path in folder.rglob(kind)]
    files += [tree / name for name in _FRAMEWORK]
    texts = {str(path.relative_to(tree)): _text(path) for path in files}
    pairs = (define.partition("=") for define in defines)
    values = {name: value or "1" for name, _, value in pairs}
    sources = sorted(path.removeprefix(f"{FOLDER}/") for path in texts if path.endswith(".cc"))
    return {
        source: tuple(sorted(ops_of(f"{FOLDER}/{source}", texts, values)))
        for source in sources
        if is_source(source)
    }


def is_source(name: str) -> bool:
    """Whether a path below the kernel folder is a kernel source of the CPU: no test, no GPU code,
    nothing of oneDNN's own ops."""
    return not name.endswith(_SKIPPED) and not set(name.split("/")[:-1]) & set(_SKIPPED_FOLDERS)


def plain(text: str) -> str:
    """A source without comments, its continued lines joined."""
    return _COMMENT.sub(lambda found: found[1] or " ", text.replace("\\\n", " "))


def _text(path: Path) -> str:
    return plain(path.read_text(encoding="utf-8", errors="replace"))


def _read(path: str, state: _State) -> None:
    """Go through a file line by line, and through what it includes."""
    state.read.add(path)
    pending: list[str] = []
    lively: list[bool | None] = []  # of each open #if: taken now; None once a branch was taken
    for line in state.texts[path].splitlines():
        directive = _DIRECTIVE.match(line)
        if directive is None:
            if all(lively):
                pending.append(line)
            continue
        word, rest = directive[1], directive[2].strip()
        if word in _CONDITIONALS:
            _branch(word, rest, lively, state.macros)
        elif all(lively):
            _flush(pending, state)
            _obey(word, rest, state)
    _flush(pending, state)


_CONDITIONALS = {"if", "ifdef", "ifndef", "elif", "else", "endif"}


def _branch(word: str, rest: str, lively: list[bool | None], macros: Mapping[str, _Macro]) -> None:
    if word == "endif":
        if lively:
            lively.pop()
    elif word in {"else", "elif"}:
        # A branch that was taken ends; otherwise the next one may be.
        before = lively.pop() if lively else None
        after = word == "else" or _true(rest, macros)
        lively.append(None if before or before is None else after)
    elif word == "if":
        lively.append(_true(rest, macros))
    else:
        lively.append((_first(rest) in macros) == (word == "ifdef"))


def _true(condition: str, macros: Mapping[str, _Macro]) -> bool:
    """The value of a condition of #if; what cannot be read counts as false."""
    text = re.sub(
        r"\bdefined\s*(?:\(\s*(\w+)\s*\)|(\w+))",
        lambda found: str(int((found[1] or found[2]) in macros)),
        condition,
    )
    text = re.sub(r"\b[A-Za-z_]\w*", lambda found: _number(found[0], macros), text)
    text = text.replace("&&", " and ").replace("||", " or ")
    text = re.sub(r"!(?!=)", " not ", text)
    try:
        return bool(_value(ast.parse(text.strip(), mode="eval").body))
    except (SyntaxError, ValueError, RecursionError, MemoryError):  # (the last two: too deep)
        return False


def _first(rest: str) -> str:
    """The name that a directive is about; empty for one without."""
    return next(iter(rest.split()), "")


def _number(name: str, macros: Mapping[str, _Macro]) -> str:
    body = macros[name].body.strip() if name in macros else ""
    return body if body.isdigit() else "0"


def _value(node: ast.expr) -> int:
    """Raises ValueError for what is neither a number nor made of them by and, or, not, ==, >=."""
    match node:
        case ast.Constant(value=int(number)):
            return number
        case ast.BoolOp(op=ast.And(), values=values):
            return int(all(_value(each) for each in values))
        case ast.BoolOp(op=ast.Or(), values=values):
            return int(any(_value(each) for each in values))
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return int(not _value(operand))
        case ast.Compare(left=left, ops=[ast.Eq()], comparators=[right]):
            return int(_value(left) == _value(right))
        case ast.Compare(left=left, ops=[ast.GtE()], comparators=[right]):
            return int(_value(left) >= _value(right))
        case _:
            raise ValueError(ast.dump(node))


def _obey(word: str, rest: str, state: _State) -> None:
    if word == "include":
        path = rest.strip('"')
        # A header is read once (its guard says so), a list of cases as often as it is included.
        if path in state.texts and (path.endswith(".inc") or path not in state.read):
            _read(path, state)
    elif word == "undef":
        state.macros.pop(_first(rest), None)
    elif word == "define":
        found = _DEFINITION.match(rest)
        if found:
            names = found[2]
            parameters = None if names is None else tuple(_split(names))
            state.macros[found[1]] = _Macro(parameters, found[3])


def _flush(pending: list[str], state: _State) -> None:
    """Look for registrations in the lines since the last directive."""
    text = "\n".join(pending)
    pending.clear()
    state.constants.update(_CONSTANT.findall(text))
    for invocation in _invocations(text, state.macros):
        expanded = _expanded(invocation, state.macros, _DEEPEST)
        for builder in _BUILDER.finditer(expanded):
            inside = expanded[builder.end() : _closing(expanded, builder.end() - 1)]
            state.found.update(_registered(inside, state.constants))


def _invocations(text: str, macros: Mapping[str, _Macro]) -> Iterator[str]:
    """The macro calls of a text that may register something."""
    for found in re.finditer(r"\b([A-Z_]\w*)\s*\(", text):
        if found[1] in macros or _BUILDER.match(found[0]):
            yield text[found.start() : _closing(text, found.end() - 1) + 1]


def _registered(builder: str, constants: Mapping[str, str]) -> Iterator[str]:
    """The op of one registration's text, if it is for the CPU."""
    name = _NAME.search(builder)
    if name is None or not _DEVICE.search(builder):
        return
    literals = _LITERAL.findall(name[1])
    op = "".join(literals) or constants.get(name[1].strip().split("::")[-1])
    if op:
        yield op


def _expanded(text: str, macros: Mapping[str, _Macro], depth: int) -> str:
    """The text with every macro replaced, but for a macro's own name in what it was replaced with
    (C++17, [cpp.rescan])."""
    parts: list[str] = []
    at = 0
    for found in _WORD.finditer(text):
        macro = macros.get(found[0])
        if found.start() < at or macro is None or depth == 0:
            continue
        end = found.end()
        given: tuple[str, ...] = ()
        if macro.parameters is not None:
            opening = re.compile(r"\s*\(").match(text, end)
            if opening is None:
                continue
            end = _closing(text, opening.end() - 1) + 1
            given = tuple(_split(text[opening.end() : end - 1]))
        body = _replaced(macro, given, macros, depth - 1)
        others = {name: each for name, each in macros.items() if each is not macro}
        parts += [text[at : found.start()], _expanded(body, others, depth - 1)]
        at = end
    return "".join([*parts, text[at:]])


def _replaced(
    macro: _Macro, given: tuple[str, ...], macros: Mapping[str, _Macro], depth: int
) -> str:
    """A macro's body with its parameters replaced: stringified, pasted, or expanded before. The
    macros in it stand as they were."""
    body = macro.body
    if macro.parameters:
        *names, last = macro.parameters
        if last == "...":
            rest = ", ".join(given[len(names) :])
            pairs = dict(zip([*names, "__VA_ARGS__"], [*given[: len(names)], rest], strict=False))
        else:
            pairs = dict(zip(macro.parameters, given, strict=False))
        words = "|".join(map(re.escape, pairs)) or "$^"
        body = re.sub(rf"(?<!#)#\s*({words})\b", lambda found: f'"{pairs[found[1]]}"', body)
        pasted = re.compile(rf"(##\s*)?\b({words})\b(?=(\s*##)?)")
        pieces = re.split(r'("(?:\\.|[^"\\])*")', body)

        def put(found: re.Match[str]) -> str:
            raw = pairs[found[2]]
            beside = found[1] or found[3]
            return (found[1] or "") + (raw if beside else _expanded(raw, macros, depth))

        pieces[::2] = [pasted.sub(put, piece) for piece in pieces[::2]]
        body = "".join(pieces)
    return re.sub(r"\s*##\s*", "", body)


def _split(arguments: str) -> Iterator[str]:
    """The arguments of a macro call; a comma in round brackets or a literal separates none."""
    depth, start = 0, 0
    for found in re.finditer(r'"(?:\\.|[^"\\])*"|[(),]', arguments):
        if found[0] == "(":
            depth += 1
        elif found[0] == ")":
            depth -= 1
        elif found[0] == "," and depth == 0:
            yield arguments[start : found.start()].strip()
            start = found.end()
    yield arguments[start:].strip()


def _closing(text: str, opening: int) -> int:
    """Where the bracket that opens at `opening` is closed; the text's end if it is not."""
    depth = 0
    for found in re.compile(r'"(?:\\.|[^"\\])*"|[()]').finditer(text, opening):
        depth += {"(": 1, ")": -1}.get(found[0], 0)
        if depth == 0:
            return found.start()
    return len(text)
