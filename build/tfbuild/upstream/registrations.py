"""The ops that kernel sources register for the CPU, read from the sources.

A registration is REGISTER_KERNEL_BUILDER(Name("X").Device(DEVICE_CPU)…, Class). Most of them are
written with macros of the source or of the headers beside it. This module expands the macros as the
preprocessor does (C++17, [cpp.replace]), as far as the names of ops and devices need it. It ignores
the types that a registration is limited to: compiled libraries report them.
"""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tfbuild.upstream.kernels import FOLDER

# Headers of the framework with macros and constants that registrations use.
_FRAMEWORK = tuple(
    f"tensorflow/core/framework/{name}.h" for name in ("register_types", "dataset", "function")
)
_SKIPPED = ("_test.cc", "_gpu.cc", ".cu.cc", "_testlib.cc", "_test_util.cc", "_benchmark.cc")
_SKIPPED_FOLDERS = ("mkl", "fuzzing", "mlir_generated")
_DEEPEST = 40  # levels of macros in macros, and of calls in calls

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
    """A macro; `parameters` is None for an object-like one."""

    parameters: tuple[str, ...] | None
    body: str


@dataclass(slots=True)
class _Preprocessor:
    """The state of the preprocessor in one source: definitions, files read, ops found."""

    texts: Mapping[str, str]
    macros: dict[str, _Macro]
    read: set[str] = field(default_factory=set)
    constants: dict[str, str] = field(default_factory=dict)
    found: set[str] = field(default_factory=set)


def find_ops(source: str, texts: Mapping[str, str], defines: Mapping[str, str]) -> frozenset[str]:
    """Return the ops that a source registers for the CPU.

    `texts` are the files that it may include, by their paths in the tree, and itself, all
    without comments (`strip_comments`); `defines` are those of the compiler (-D).
    """
    macros = {name: _Macro(None, value) for name, value in defines.items()}
    state = _Preprocessor(texts, macros)
    _process_file(source, state)
    return frozenset(state.found)


@functools.cache
def find_registrations(tree: Path, defines: tuple[str, ...] = ()) -> Mapping[str, tuple[str, ...]]:
    """Return, by source, the ops that it registers for the CPU.

    Sources are paths below tensorflow/core/kernels/. `tree` holds TensorFlow's sources,
    `defines` are NAME or NAME=VALUE as after -D. Sources without registrations have a row,
    too: others may need their definitions.
    """
    folder = tree / FOLDER
    files = [path for kind in ("*.cc", "*.h", "*.inc") for path in folder.rglob(kind)]
    files += [tree / name for name in _FRAMEWORK]
    texts = {str(path.relative_to(tree)): _read_source(path) for path in files}
    pairs = (define.partition("=") for define in defines)
    values = {name: value or "1" for name, _, value in pairs}
    sources = sorted(path.removeprefix(f"{FOLDER}/") for path in texts if path.endswith(".cc"))
    return {
        source: tuple(sorted(find_ops(f"{FOLDER}/{source}", texts, values)))
        for source in sources
        if is_source(source)
    }


def is_source(name: str) -> bool:
    """Return True if a path below the kernel folder is a kernel source of the CPU.

    Tests, GPU code and oneDNN's own ops are excluded.
    """
    return not name.endswith(_SKIPPED) and not set(name.split("/")[:-1]) & set(_SKIPPED_FOLDERS)


def strip_comments(text: str) -> str:
    """Return a source without comments, its continued lines joined."""
    return _COMMENT.sub(lambda match: match[1] or " ", text.replace("\\\n", " "))


def _read_source(path: Path) -> str:
    return strip_comments(path.read_text(encoding="utf-8", errors="replace"))


def _process_file(path: str, state: _Preprocessor) -> None:
    """Process a file line by line, with the files that it includes."""
    state.read.add(path)
    pending: list[str] = []
    active: list[bool | None] = []  # per open #if: taken now; None after a taken branch
    for line in state.texts[path].splitlines():
        directive = _DIRECTIVE.match(line)
        if directive is None:
            if all(active):
                pending.append(line)
            continue
        word, arguments = directive[1], directive[2].strip()
        if word in _CONDITIONALS:
            _handle_conditional(word, arguments, active, state.macros)
        elif all(active):
            _collect_registrations(pending, state)
            _handle_directive(word, arguments, state)
    _collect_registrations(pending, state)


_CONDITIONALS = {"if", "ifdef", "ifndef", "elif", "else", "endif"}


def _handle_conditional(
    word: str, condition: str, active: list[bool | None], macros: Mapping[str, _Macro]
) -> None:
    if word == "endif":
        if active:
            active.pop()
    elif word in {"else", "elif"}:
        # After a taken branch, no other branch of this #if is taken.
        before = active.pop() if active else None
        after = word == "else" or _evaluate_condition(condition, macros)
        active.append(None if before or before is None else after)
    elif word == "if":
        active.append(_evaluate_condition(condition, macros))
    else:
        active.append((_parse_name(condition) in macros) == (word == "ifdef"))


def _evaluate_condition(condition: str, macros: Mapping[str, _Macro]) -> bool:
    """Return the value of a condition of #if; one that cannot be parsed counts as false."""
    text = re.sub(
        r"\bdefined\s*(?:\(\s*(\w+)\s*\)|(\w+))",
        lambda match: str(int((match[1] or match[2]) in macros)),
        condition,
    )
    text = re.sub(r"\b[A-Za-z_]\w*", lambda match: _expand_number(match[0], macros), text)
    text = text.replace("&&", " and ").replace("||", " or ")
    text = re.sub(r"!(?!=)", " not ", text)
    try:
        return bool(_evaluate_node(ast.parse(text.strip(), mode="eval").body))
    except (SyntaxError, ValueError, RecursionError, MemoryError):  # (the last two: too deep)
        return False


def _parse_name(argument: str) -> str:
    """Return the name that a directive is about; empty for one without."""
    return next(iter(argument.split()), "")


def _expand_number(name: str, macros: Mapping[str, _Macro]) -> str:
    body = macros[name].body.strip() if name in macros else ""
    return body if body.isdigit() else "0"


def _evaluate_node(node: ast.expr) -> int:
    """Return the value of numbers combined by and, or, not, ==, >=.

    Raises ValueError for any other expression.
    """
    match node:
        case ast.Constant(value=int(number)):
            return number
        case ast.BoolOp(op=ast.And(), values=values):
            return int(all(_evaluate_node(term) for term in values))
        case ast.BoolOp(op=ast.Or(), values=values):
            return int(any(_evaluate_node(term) for term in values))
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return int(not _evaluate_node(operand))
        case ast.Compare(left=left, ops=[ast.Eq()], comparators=[right]):
            return int(_evaluate_node(left) == _evaluate_node(right))
        case ast.Compare(left=left, ops=[ast.GtE()], comparators=[right]):
            return int(_evaluate_node(left) >= _evaluate_node(right))
        case _:
            raise ValueError(ast.dump(node))


def _handle_directive(word: str, argument: str, state: _Preprocessor) -> None:
    if word == "include":
        path = argument.strip('"')
        # A header has a guard, so it is read once; an .inc file is read at each include.
        if path in state.texts and (path.endswith(".inc") or path not in state.read):
            _process_file(path, state)
    elif word == "undef":
        state.macros.pop(_parse_name(argument), None)
    elif word == "define":
        match = _DEFINITION.match(argument)
        if match:
            names = match[2]
            parameters = None if names is None else tuple(_split_arguments(names))
            state.macros[match[1]] = _Macro(parameters, match[3])


def _collect_registrations(pending: list[str], state: _Preprocessor) -> None:
    """Find registrations in the lines since the last directive."""
    text = "\n".join(pending)
    pending.clear()
    state.constants.update(_CONSTANT.findall(text))
    for invocation in _find_invocations(text, state.macros):
        expanded = _expand_macros(invocation, state.macros, _DEEPEST)
        for builder in _BUILDER.finditer(expanded):
            inside = expanded[builder.end() : _find_closing(expanded, builder.end() - 1)]
            state.found.update(_parse_registration(inside, state.constants))


def _find_invocations(text: str, macros: Mapping[str, _Macro]) -> Iterator[str]:
    """Yield the macro calls of a text that may register something."""
    for match in re.finditer(r"\b([A-Z_]\w*)\s*\(", text):
        if match[1] in macros or _BUILDER.match(match[0]):
            yield text[match.start() : _find_closing(text, match.end() - 1) + 1]


def _parse_registration(builder: str, constants: Mapping[str, str]) -> Iterator[str]:
    """Yield the op of one registration's text, if it is for the CPU."""
    name = _NAME.search(builder)
    if name is None or not _DEVICE.search(builder):
        return
    literals = _LITERAL.findall(name[1])
    op = "".join(literals) or constants.get(name[1].strip().split("::")[-1])
    if op:
        yield op


def _expand_macros(text: str, macros: Mapping[str, _Macro], depth: int) -> str:
    """Return the text with every macro replaced.

    A macro's own name in its replacement is not replaced again (C++17, [cpp.rescan]).
    """
    parts: list[str] = []
    at = 0
    for match in _WORD.finditer(text):
        macro = macros.get(match[0])
        if match.start() < at or macro is None or depth == 0:
            continue
        end = match.end()
        arguments: tuple[str, ...] = ()
        if macro.parameters is not None:
            opening = re.compile(r"\s*\(").match(text, end)
            if opening is None:
                continue
            end = _find_closing(text, opening.end() - 1) + 1
            arguments = tuple(_split_arguments(text[opening.end() : end - 1]))
        body = _substitute_parameters(macro, arguments, macros, depth - 1)
        other_macros = {
            name: candidate for name, candidate in macros.items() if candidate is not macro
        }
        parts += [text[at : match.start()], _expand_macros(body, other_macros, depth - 1)]
        at = end
    return "".join([*parts, text[at:]])


def _substitute_parameters(
    macro: _Macro, arguments: tuple[str, ...], macros: Mapping[str, _Macro], depth: int
) -> str:
    """Return a macro's body with its parameters replaced.

    Their arguments are stringified, pasted, or expanded first. Macros of the body itself are
    not expanded.
    """
    body = macro.body
    if macro.parameters:
        *names, last = macro.parameters
        if last == "...":
            variadic = ", ".join(arguments[len(names) :])
            pairs = dict(
                zip([*names, "__VA_ARGS__"], [*arguments[: len(names)], variadic], strict=False)
            )
        else:
            pairs = dict(zip(macro.parameters, arguments, strict=False))
        alternatives = "|".join(map(re.escape, pairs)) or "$^"
        body = re.sub(rf"(?<!#)#\s*({alternatives})\b", lambda match: f'"{pairs[match[1]]}"', body)
        pasted = re.compile(rf"(##\s*)?\b({alternatives})\b(?=(\s*##)?)")
        pieces = re.split(r'("(?:\\.|[^"\\])*")', body)

        def substitute(match: re.Match[str]) -> str:
            raw = pairs[match[2]]
            beside = match[1] or match[3]
            return (match[1] or "") + (raw if beside else _expand_macros(raw, macros, depth))

        pieces[::2] = [pasted.sub(substitute, piece) for piece in pieces[::2]]
        body = "".join(pieces)
    return re.sub(r"\s*##\s*", "", body)


def _split_arguments(arguments: str) -> Iterator[str]:
    """Yield the arguments of a macro call.

    A comma in round brackets or a literal separates none.
    """
    depth, start = 0, 0
    for match in re.finditer(r'"(?:\\.|[^"\\])*"|[(),]', arguments):
        if match[0] == "(":
            depth += 1
        elif match[0] == ")":
            depth -= 1
        elif match[0] == "," and depth == 0:
            yield arguments[start : match.start()].strip()
            start = match.end()
    yield arguments[start:].strip()


def _find_closing(text: str, opening: int) -> int:
    """Return the position of the closing bracket; the end of the text if there is none."""
    depth = 0
    for match in re.compile(r'"(?:\\.|[^"\\])*"|[()]').finditer(text, opening):
        depth += {"(": 1, ")": -1}.get(match[0], 0)
        if depth == 0:
            return match.start()
    return len(text)
